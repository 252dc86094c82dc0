"""Clients whose certificate is wrong in one way each: refused, and the log says which. And some that are right."""

import pytest
from authority import CLIENT
from secured import Secured, eventually
from world import BAD

# What the log says, and the name of the alert as openssl knows it.
NOBODY = "its certificate is signed by nobody in the trust store", "unknown ca"
WRONG = "the signature on its certificate is wrong: is it from another authority of that name?", "certificate unknown"
SIGNED = "its certificate is signed in a way that is not accepted (such as SHA-1 or MD5)", "decrypt error"
SMALL = "the RSA key of its certificate, or of one that signed it, has fewer than 2,048 bits", "certificate unknown"
REASONS = {
    "expired": ("its certificate, or one that signed it, has expired ", "certificate expired"),
    "not yet valid": ("is not valid yet: it will be in ", "certificate expired"),
    "of another authority": NOBODY,
    "of another authority of that name": WRONG,
    "revoked": ("its certificate, or one that signed it, is revoked", "certificate revoked"),
    "of a revoked authority": ("its certificate, or one that signed it, is revoked", "certificate revoked"),
    "no list": ("no list says whether its certificate is revoked", "unknown ca"),
    "an old list": ("the list that says whether its certificate is revoked is out of date", "unknown ca"),
    "for servers": ("its extended key usage lacks what is needed here (clientAuth", "unsupported certificate"),
    "not for signing": ("its key usage lacks digitalSignature", "certificate unknown"),
    "self-signed": NOBODY,
    "an authority": ("its certificate is one of an authority (CA:TRUE)", "certificate unknown"),
    "too long a chain": (
        "the chain of its certificate is longer than an authority in it allows", "certificate unknown"),
    "a chain without end": ("the chain of its certificate is too long", "certificate unknown"),
    "without the one between": NOBODY,
    "signed by no authority": (
        "its certificate is signed with one that is not an authority's (CA:TRUE)", "certificate unknown"),
    "signed by one that may not": ("its key usage lacks keyCertSign", "certificate unknown"),
    "listed by one that may not": ("is signed by one that may not: its key usage lacks cRLSign", "handshake failure"),
    "a flipped bit": WRONG,
    "a flipped name": WRONG,
    "signed with SHA-1": SIGNED,
    "signed with MD5": SIGNED,
    "signed with a small key": SMALL,
    "a small key of 1024": SMALL,
    "a small key of 512": SMALL,
    "outside of the names": ("its certificate has a name that its authority may not give", "certificate unknown"),
    "an unknown critical extension": ("a critical extension that is not known", "certificate unknown"),
    "a key of another": (
        "what it has signed in the handshake is wrong: its key does not belong to its certificate", "decrypt error"),
    "none": (
        "it has shown no certificate, and one is needed", "certificate required|handshake failure|bad certificate"),
}
# Debian's openssl does not show weak ones unless it is told.
WEAK = ("-cipher", "DEFAULT:@SECLEVEL=0")


def versions(case):
    # So short a key signs nothing that TLS 1.3 has.
    return ["-tls1_2"] if case == "a small key of 512" else ["-tls1_2", "-tls1_3"]


def test_every_case_has_its_reason():
    assert set(REASONS) == {*BAD, "none"}


@pytest.mark.parametrize("case", REASONS)
def test_bad_certificates_are_refused_and_the_log_says_why(tmp_path, world, case):
    words, alert = REASONS[case]
    who = world.bad.get(case)
    with Secured(tmp_path, world) as secured:
        for count, version in enumerate(versions(case), 1):
            more = ["-client_sigalgs", "RSA+SHA256"] if version == "-tls1_2" and "512" in case else []
            answer, told = secured.s_client(version, *WEAK, *more, who=who)
            assert answer == b""
            found = next((line for line in told.splitlines() if ":SSL alert number" in line), "")
            assert any(f"alert {it}:" in found for it in alert.split("|")), told
            refused = "closed: its TLS handshake failed: "
            eventually(f"the log says why:\n{secured.log}", lambda: secured.log.count(refused) == count)
            assert words in secured.log.splitlines()[-1]
            counts = secured.counts()
            names = ("unsuccessful_handshake", "auth_failed_count", "stoa_tls_handshakes_total")
            assert [counts[name] for name in names] == [count, count, 0], version
        # And nobody pays for it.
        secured.lets_in(world.client)
        eventually("nothing is under way", lambda: secured.counted("outstanding_tls_handshake") == 0)


GOOD = {
    "of the authority": lambda world: world.client,
    "of the one below": lambda world: world.client_of_middle,
    "self-signed, in the trust store": lambda world: world.pinned,
    "an authority in the trust store": lambda world: world.authority,
    "RSA": lambda world: world.authority.give("rsa2048", key="rsa:2048"),
    "without usages": lambda world: world.authority.give(
        "any-use", "\n".join(line for line in CLIENT.splitlines() if "Usage" not in line)),
    "within the names": lambda world: world.constrained.give("good", CLIENT + "subjectAltName=DNS:app.good.example\n"),
}


@pytest.mark.parametrize("case", GOOD)
@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_good_certificates_are_accepted(tmp_path, world, case, version):
    if case not in world.good:
        world.good[case] = GOOD[case](world)
    with Secured(tmp_path, world) as secured:
        secured.lets_in(world.good[case], version)
        assert secured.counted("unsuccessful_handshake") == 0
