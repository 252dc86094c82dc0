"""What `openssl s_client` can ask for: protocols, cipher suites, renegotiation, sessions that are taken up again."""

import contextlib
import datetime
import re
import select
import signal
import socket
import ssl
import struct
import subprocess
import time

import pytest
from authority import CLIENT
from secured import PATIENCE_SECONDS, Secured, eventually
from server_process import HOST
from steady import GET_DATA, Client

SET_DATA = 5
# When a client has waited in vain: before its session expires, and its socket has something to tell again.
STALL_SECONDS = 4
# How long a certificate is valid that ends while a test waits for that.
LIFE_SECONDS = 4
# Debian's openssl leaves old protocols and suites out unless it is told.
ALL = ("-cipher", "ALL:@SECLEVEL=0")
# A client of SSL 3 says no more than this: its version, 32 random bytes, no session, one suite, no compression.
SSL_3 = bytes.fromhex("160300002d 010000290300") + bytes(range(32)) + bytes.fromhex("00 0002000a 0100")
# The same as SSL 2 had it, which clients of that time began with whatever they spoke (RFC 5246, E.2).
SSL_2 = bytes.fromhex("802e 01 0300 0015 0000 0010 00000a 010080 030080 060040 000004 000005 020080") + bytes(16)


@pytest.mark.parametrize("protocol", ["-tls1_2", "-tls1_3"])
def test_newer_protocols_are_spoken(tmp_path, world, protocol):
    with Secured(tmp_path, world) as secured:
        secured.lets_in(world.client, protocol)
        secured.lets_in(world.client_of_middle, protocol)
        counts = secured.counts()
    assert (counts["stoa_tls_handshakes_total"], counts["unsuccessful_handshake"]) == (4, 0)


@pytest.mark.parametrize("protocol", ["-tls1", "-tls1_1"])
def test_older_protocols_are_refused(tmp_path, world, protocol):
    with Secured(tmp_path, world) as secured:
        answer, told = secured.s_client(protocol, *ALL, who=world.client)
        assert answer == b"" and re.search("alert (handshake failure|protocol version)", told), told
        secured.logged("as all do that have TLS 1.2 or newer: is it older?")
        assert secured.counted("unsuccessful_handshake") == 1


def test_ssl_is_refused(tmp_path, world):
    """No openssl of today speaks it."""
    with Secured(tmp_path, world) as secured:
        for hello, why in [(SSL_3, "is it older?"), (SSL_2, "it does not begin with TLS")]:
            with socket.create_connection((HOST, secured.secure_port), PATIENCE_SECONDS) as client:
                client.sendall(hello)
                answer = client.recv(100)
                # A fatal alert, and the end.
                assert answer[:1] == b"\x15" and answer[5] == 2, answer
                client.shutdown(socket.SHUT_WR)
                assert client.recv(100) == b""
            secured.logged(why)
        secured.lets_in(world.client)


def test_weak_suites_are_refused(tmp_path, world):
    suites = {
        "AES128-SHA": "no key exchange in common",
        "ECDHE-ECDSA-AES128-SHA": "no cipher suite in common",
        "NULL-SHA256": "no key exchange in common",
        "ADH-AES128-SHA256": "no key exchange in common",
    }
    with Secured(tmp_path, world) as secured:
        for at, (suite, why) in enumerate(suites.items()):
            only = ["-tls1_2", "-cipher", f"{suite}:@SECLEVEL=0"]
            answer, told = secured.s_client(*only, who=world.client)
            assert answer == b"" and "alert handshake failure" in told, (suite, told)
            told_of = lambda: secured.log.count("its TLS handshake failed")
            eventually(f"it says why of {suite}:\n{secured.log}", lambda: told_of() > at)
            assert why in secured.log.splitlines()[-1], suite
        assert secured.counted("unsuccessful_handshake") == len(suites)


class Interactive:
    """`s_client` with its own commands: a line R begins a renegotiation, K changes keys and has the server do it too."""

    def __init__(self, secured, protocol):
        self.client = subprocess.Popen(
            secured.command(protocol, who=secured.world.client), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        eventually("the handshake", lambda: secured.counted("stoa_tls_handshakes_total") == 1)
        # What it reads before it is done counts for nothing.
        time.sleep(0.3)

    def say(self, line):
        """Whether it could be said: s_client ends with its connection."""
        try:
            self.client.stdin.write(line + b"\n")
            self.client.stdin.flush()
        except BrokenPipeError:
            return False
        # A command is one only where it is all that is read at a time.
        time.sleep(0.05)
        return self.client.poll() is None

    def close(self):
        self.client.kill()
        return self.client.communicate()[0].decode(errors="replace")


def test_renegotiation_is_refused(tmp_path, world):
    with Secured(tmp_path, world) as secured:
        client = Interactive(secured, "-tls1_2")
        for _ in range(10):
            if not client.say(b"R"):
                break
        said = client.close()
        assert "RENEGOTIATING" in said and "no renegotiation" in said, said
        assert secured.counted("stoa_tls_handshakes_total") == 1
        secured.lets_in(world.client, "-tls1_2")


def test_changes_of_keys_are_bounded(tmp_path, world):
    """What renegotiation was, in TLS 1.3: each costs the server work, and costs the client next to nothing."""
    with Secured(tmp_path, world) as secured:
        client = Interactive(secured, "-tls1_3")
        count = 0
        while client.say(b"K"):
            count += 1
            assert count < 100, "there is no end of it"
        said = client.close()
        assert "KEYUPDATE" in said, said
        assert count >= 16, "a client may change its keys now and then"
        secured.logged("after its TLS handshake: it breaks the rules of TLS")
        secured.logged("TooManyKeyUpdateRequests")
        secured.lets_in(world.client, "-tls1_3")


def reply_when_told(client):
    """A reply, read as the client in C does: each time that the socket has something, once its length, and once what is
    behind that. What OpenSSL has deciphered already it does not look at."""
    data, length = b"", 4
    while len(data) < length:
        assert select.select([client.socket], [], [], STALL_SECONDS)[0], "the socket has nothing"
        with contextlib.suppress(ssl.SSLWantReadError):
            if len(data) < 4:
                data += client.socket.recv(4 - len(data))
            if len(data) >= 4:
                length = 4 + struct.unpack(">i", data[:4])[0]
                data += client.socket.recv(length - len(data))
    return data[4:]


@pytest.mark.parametrize("size", [1, 700, 40_000])
def test_a_client_that_goes_by_its_socket_alone_misses_no_reply(tmp_path, world, size):
    """As the client in C does: it takes a reply, and waits until its socket has something before it takes the next."""
    count = 300
    with Secured(tmp_path, world) as secured:
        client = Client(secured.secure_port, world.authority.certificate, world.client.certificate, world.client.key)
        data = bytes(size)
        bodies = [struct.pack(">iii", 1, SET_DATA, 1) + b"/" + struct.pack(">i", size) + data + struct.pack(">i", -1)]
        bodies += [struct.pack(">iii", xid, GET_DATA, 1) + b"/\0" for xid in range(2, count)]
        client.socket.sendall(b"".join(struct.pack(">i", len(body)) + body for body in bodies))
        client.socket.setblocking(False)
        for xid in range(1, count):
            reply = reply_when_told(client)
            assert struct.unpack(">iqi", reply[:16])[::2] == (xid, 0)
            assert xid == 1 or len(reply) > size
        client.close()


def take_up(secured, session, protocol, *options, who=None):
    """Whether a session was taken up again, where a word was answered."""
    command = secured.command(protocol, "-sess_in", session, "-ign_eof", *options, who=who)
    done = subprocess.run(command, input=b"ruok", capture_output=True, timeout=PATIENCE_SECONDS)
    assert b"imok" in done.stdout, done
    return re.search(rb"^(Reused|New), TLSv1\.[23]", done.stdout, re.MULTILINE)[1] == b"Reused"


@pytest.mark.parametrize("protocol", ["-tls1_2", "-tls1_3"])
def test_sessions_are_taken_up_again(tmp_path, world, protocol):
    session = tmp_path / "session"
    with Secured(tmp_path, world) as secured:
        answer, told = secured.s_client(protocol, "-sess_out", session, who=world.client)
        assert answer == b"imok" and session.exists(), told
        for _ in range(3):
            assert take_up(secured, session, protocol, who=world.client)
        # The ticket says whom it was given to.
        assert take_up(secured, session, protocol)
        assert secured.counted("unsuccessful_handshake") == 0
        # Another server does not know it.
        (tmp_path / "other").mkdir()
        with Secured(tmp_path / "other", world) as other:
            assert not take_up(other, session, protocol, who=world.client)


@pytest.mark.parametrize("protocol", ["-tls1_2", "-tls1_3"])
def test_a_ticket_ends_with_the_certificates_that_it_was_given_for(tmp_path, world, protocol):
    """Who is revoked does not come in by the ticket that he has."""
    session = tmp_path / "session"
    holder = world.authority.give(f"revoked-later{protocol}", CLIENT)
    lists = tmp_path / "lists.pem"
    lists.write_text(world.revoked.read_text())
    with Secured(tmp_path, world, revoked=lists) as secured:
        answer, told = secured.s_client(protocol, "-sess_out", session, who=holder)
        assert answer == b"imok", told
        assert take_up(secured, session, protocol)
        world.authority.revoke(holder)
        lists.write_text("".join([world.authority.revoked(), *world.other_lists]))
        secured.server.process.send_signal(signal.SIGHUP)
        eventually("the list is read", lambda: secured.counted("stoa_tls_reloads_total") > 0)
        answer, told = secured.s_client(protocol, "-sess_in", session, who=holder)
        assert answer == b"" and "alert certificate revoked" in told, told
        secured.logged("is revoked")
        # Without a certificate neither.
        answer, told = secured.s_client(protocol, "-sess_in", session)
        assert answer == b"" and "alert" in told, told


@pytest.mark.parametrize("protocol", ["-tls1_2", "-tls1_3"])
def test_a_ticket_ends_with_the_certificate_that_was_shown_for_it(tmp_path, world, protocol):
    session = tmp_path / "session"
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=LIFE_SECONDS)
    holder = world.authority.give(f"ends-soon{protocol}", CLIENT, end=end.strftime("%Y%m%d%H%M%SZ"))
    with Secured(tmp_path, world) as secured:
        answer, told = secured.s_client(protocol, "-sess_out", session, who=holder)
        assert answer == b"imok", told
        assert take_up(secured, session, protocol)
        while datetime.datetime.now(datetime.UTC) < end + datetime.timedelta(seconds=1):
            time.sleep(0.1)
        answer, told = secured.s_client(protocol, "-sess_in", session)
        assert answer == b"", told
        secured.logged("its certificate, or one that signed it, has expired")
