"""DIGEST-MD5 with the JDK's client and with pure-sasl, kazoo's. Needs Java 17 and the packages in requirements.txt."""

import os
import sys
import unittest

from exchange import HERE, Server, with_java, with_pure_sasl

JAAS = """
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_super="adminsecret"
    user_bob="bob\\"s \\\\ secret"
    "user_\u00e4nn,=e"="p\u00e4ssword";
};
"""
USERS = {"super": "adminsecret", "bob": 'bob"s \\ secret', "\u00e4nn,=e": "p\u00e4ssword"}


class Digest(unittest.TestCase):
    def test_jdk(self):
        for user, password in USERS.items():
            with Server(JAAS) as server:
                self.assertEqual(with_java(server, "DIGEST-MD5", user, password), ("done", user, True))

    def test_jdk_with_another_password(self):
        with Server(JAAS) as server:
            end = with_java(server, "DIGEST-MD5", "bob", "x")
        self.assertEqual(end, ("failed", 'the password of user "bob" is another one', False))

    def test_pure_sasl(self):
        # It hashes in UTF-8 whatever is not ASCII and names no charset, which the JDK's server refuses, too.
        for user in ["super", "bob"]:
            with Server(JAAS) as server:
                end = with_pure_sasl(
                    server, "DIGEST-MD5", "zk-sasl-md5", username=user, password=USERS[user])
                self.assertEqual(end, ("done", user, True))

    def test_pure_sasl_with_an_unknown_user(self):
        with Server(JAAS) as server:
            end = with_pure_sasl(server, "DIGEST-MD5", "zk-sasl-md5", username="eve", password="x")
        self.assertEqual(end, ("failed", 'there is no user "eve"', False))

    def test_pure_sasl_for_another_host(self):
        with Server(JAAS) as server:
            end = with_pure_sasl(server, "DIGEST-MD5", "localhost", username="bob", password=USERS["bob"])
        self.assertEqual(end[0], "failed")


def record():
    """Writes what the unit tests are told: responses to the challenge whose random bytes are all 7."""
    jaas = 'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_bob="secret"; };'
    folder = os.path.join(HERE, "../../crates/sasl/tests/recorded")
    for name, exchange in [
        ("jdk", lambda server: with_java(server, "DIGEST-MD5", "bob", "secret")),
        ("pure-sasl", lambda server: with_pure_sasl(
            server, "DIGEST-MD5", "zk-sasl-md5", username="bob", password="secret")),
    ]:
        with Server(jaas, "--fixed") as server:
            assert exchange(server) == ("done", "bob", True)
            for what, token in zip(["response", "rspauth"], server.tokens[2:]):
                with open(os.path.join(folder, f"{name}-{what}"), "wb") as file:
                    file.write(token)


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        record()
    else:
        unittest.main()
