"""GSSAPI with the JDK's client and with pure-sasl, kazoo's, and MIT's KDC on a loopback port.

Needs Java 17, the KDC and its tools, and the packages in requirements.txt; `cargo xtask sasl` sees to that.
"""

import os
import sys
import time
import unittest

from exchange import HERE, with_java
from kdc import REALM
from realm import NAME, World

class Kerberos(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World()

    @classmethod
    def tearDownClass(cls):
        cls.world.kdc.close()

    def test_jdk(self):
        for mutual in [(), ("mutual",)]:
            with self.world.server() as server:
                self.assertEqual(self.world.java(server, *mutual), ("done", f"bob@{REALM}", True))

    def test_jdk_with_two_parts(self):
        with self.world.server() as server:
            self.assertEqual(self.world.java(server, client="app"), ("done", f"app/host.example@{REALM}", True))
        with self.world.server("--short", principal=NAME) as server:
            self.assertEqual(self.world.java(server, client="app"), ("done", "app", True))

    def test_another_service(self):
        with self.world.server() as server:
            word, reason, _ = self.world.java(server, service="other")
        self.assertEqual(word, "failed")
        self.assertIn(f"the ticket is for \"other/localhost@{REALM}\"", reason)

    def test_an_old_keytab(self):
        self.world.kdc.principal("zookeeper/old", "old.keytab")
        self.world.kdc.keys("zookeeper/old", "new.keytab")
        for keytab, expected in [("old.keytab", "failed"), ("new.keytab", "done")]:
            with self.world.server(keytab=keytab, principal=f"zookeeper/old@{REALM}") as server:
                options = [
                    f"-Djava.security.krb5.conf={self.world.kdc.path('krb5.conf')}",
                    f"-Djava.security.auth.login.config={self.world.kdc.path('bob.conf')}",
                ]
                word, reason, _ = with_java(server, "GSSAPI", "zookeeper", "old", "", options=options)
            self.assertEqual(word, expected, reason)
        self.assertIn("bob", reason)

    def test_clocks_apart(self):
        with self.world.server("--late") as server:
            word, reason, _ = self.world.java(server)
        self.assertEqual(word, "failed")
        self.assertIn("the clocks of client and server", reason)

    def test_a_token_again(self):
        with self.world.server() as server:
            self.assertEqual(self.world.java(server)[0], "done")
            first = server.tokens[0]
            server.again()
            word, _, reason = server.step(first)
            self.assertEqual(word, "failed")
            self.assertIn("used before", reason)
            server.again()
            self.assertEqual(self.world.java(server)[0], "done")

    def test_pure_sasl(self):
        with self.world.server() as server:
            self.assertEqual(self.world.pure_sasl(server), ("done", f"bob@{REALM}", True))


class Types(unittest.TestCase):
    """Encryption types other than the first one."""

    def test_aes128(self):
        world = World("permitted_enctypes = aes128-cts-hmac-sha1-96\ndefault_tgs_enctypes = aes128-cts-hmac-sha1-96")
        try:
            with world.server() as server:
                self.assertEqual(world.java(server, "mutual"), ("done", f"bob@{REALM}", True))
        finally:
            world.kdc.close()


def record():
    """Writes what the unit tests are told: a keytab, and the first tokens of clients with the time at which they came."""
    folder = os.path.join(HERE, "../../crates/sasl/tests/recorded")
    world = World()
    try:
        with open(world.kdc.path("server.keytab"), "rb") as keytab:
            tokens = {"server.keytab": keytab.read()}
        for name, exchange in [
            ("jdk-ap-req", world.java),
            ("jdk-ap-req-mutual", lambda server: world.java(server, "mutual")),
            ("pure-sasl-ap-req", world.pure_sasl),
        ]:
            with world.server() as server:
                assert exchange(server) == ("done", f"bob@{REALM}", True), name
                tokens[name] = server.tokens[0]
        tokens["now_s"] = str(int(time.time())).encode()
        for name, token in tokens.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(token)
    finally:
        world.kdc.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        record()
    else:
        unittest.main()
