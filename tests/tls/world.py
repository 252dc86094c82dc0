"""The certificates of all tests: those that are trusted, and those that are wrong in one way each."""

from authority import AUTHORITY, BEGIN, CLIENT, PAST, SERVER, Authority, changed, self_signed, with_key_of


class World:
    def __init__(self, folder):
        self.folder = folder
        self.authority = Authority(folder, "authority")
        self.server = self.authority.give("server", SERVER)
        self.client = self.authority.give("client")
        self.pinned = self_signed(folder, "pinned")
        self.middle = Authority(folder, "middle", self.authority)
        self.client_of_middle = self.middle.give("of-middle")
        # Others that are trusted. Of these two no list says who is revoked, or only one that is old.
        self.without_list = Authority(folder, "without-list")
        self.with_old_list = Authority(folder, "with-old-list")
        self.small = Authority(folder, "small", key="rsa:1024")
        self.listed = [self.authority, self.middle, self.small]
        self.bad = {name: make(self) for name, make in BAD.items()}
        self.trusted = folder / "trusted.pem"
        trusted = [self.authority, self.pinned, self.without_list, self.with_old_list, self.small]
        self.trusted.write_text("".join(it.certificate.read_text() for it in trusted))
        self.revoked = folder / "revoked.pem"
        # Those but the first authority's, whose list becomes longer.
        self.other_lists = [it.revoked() for it in self.listed[1:]]
        self.other_lists.append(self.with_old_list.revoked("-crl_lastupdate", PAST, "-crl_nextupdate", BEGIN))
        self.revoked.write_text("".join([self.authority.revoked(), *self.other_lists]))
        # Filled as they are asked for.
        self.good = {}

    def another(self, name, by, extensions=AUTHORITY):
        """An authority below another one, with a list of its own."""
        authority = Authority(self.folder, name, by, extensions=extensions)
        self.listed.append(authority)
        return authority


def another_authority(world):
    return Authority(world.folder, "foreign").give("stranger")


def another_of_that_name(world):
    return Authority(world.folder, "twin", subject="/CN=authority").give("stranger")


def revoked(world):
    holder = world.authority.give("revoked")
    world.authority.revoke(holder)
    return holder


def of_a_revoked_authority(world):
    middle = world.another("revoked-middle", world.authority)
    world.authority.revoke(middle)
    return middle.give("below-revoked")


def too_long_a_chain(world):
    """The authority allows none below it, and there is one."""
    last = world.another("last", world.authority, AUTHORITY.replace("CA:TRUE", "CA:TRUE,pathlen:0"))
    return world.another("below-last", last).give("below-below-last")


def a_chain_without_end(world):
    signer = world.authority
    for number in range(10):
        signer = world.another(f"step-{number}", signer)
    return signer.give("far-below")


def without_the_one_between(world):
    holder = world.middle.give("without-middle")
    holder.chain = None
    return holder


def signed_by_no_authority(world):
    return world.another("no-authority", world.authority, CLIENT).give("below-none")


def may_not_sign(world):
    extensions = AUTHORITY.replace("keyCertSign,", "")
    return world.another("no-signer", world.authority, extensions).give("below-no-signer")


def may_not_list(world):
    extensions = AUTHORITY.replace(",cRLSign", "")
    return world.another("no-lister", world.authority, extensions).give("below-no-lister")


def flipped(world):
    def flip(der):
        der[-5] ^= 1

    return changed(world.folder, "flipped", world.client, flip)


def flipped_name(world):
    def flip(der):
        at = der.rindex(b"client")
        der[at : at + 6] = b"CLIENT"

    return changed(world.folder, "flipped-name", world.client, flip)


def outside_of_the_names(world):
    within = "nameConstraints=critical,permitted;DNS:good.example\n"
    world.constrained = world.another("constrained", world.authority, AUTHORITY + within)
    return world.constrained.give("evil", CLIENT + "subjectAltName=DNS:app.evil.example\n")


def key_of_another(world):
    return with_key_of(world.folder, "impostor", world.client, world.server)


# What is wrong, and who shows it.
BAD = {
    "expired": lambda world: world.authority.give("expired", begin=PAST, end=BEGIN),
    "not yet valid": lambda world: world.authority.give("early", begin="20980101000000Z"),
    "of another authority": another_authority,
    "of another authority of that name": another_of_that_name,
    "revoked": revoked,
    "of a revoked authority": of_a_revoked_authority,
    "no list": lambda world: world.without_list.give("unlisted"),
    "an old list": lambda world: world.with_old_list.give("listed-long-ago"),
    "for servers": lambda world: world.authority.give("for-servers", SERVER),
    "not for signing": lambda world: world.authority.give(
        "not-for-signing", CLIENT.replace("digitalSignature", "keyEncipherment"), key="rsa:2048"),
    "self-signed": lambda world: self_signed(world.folder, "self"),
    "an authority": lambda world: world.middle,
    "too long a chain": too_long_a_chain,
    "a chain without end": a_chain_without_end,
    "without the one between": without_the_one_between,
    "signed by no authority": signed_by_no_authority,
    "signed by one that may not": may_not_sign,
    "listed by one that may not": may_not_list,
    "a flipped bit": flipped,
    "a flipped name": flipped_name,
    "signed with SHA-1": lambda world: world.authority.give("sha1", digest="sha1"),
    "signed with MD5": lambda world: world.small.give("md5", digest="md5"),
    "signed with a small key": lambda world: world.small.give("of-small"),
    "a small key of 1024": lambda world: world.authority.give("rsa1024", key="rsa:1024"),
    "a small key of 512": lambda world: world.authority.give("rsa512", key="rsa:512"),
    "outside of the names": outside_of_the_names,
    "an unknown critical extension": lambda world: world.authority.give(
        "critical", CLIENT + "1.2.3.4.5=critical,ASN1:UTF8String:unknown\n"),
    "a key of another": key_of_another,
}
