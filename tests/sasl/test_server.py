"""Stoa itself, with clients that log in by SASL, and with such as send what no client sends.

The server's command comes from SERVER_COMMAND, as in the other suites.
"""

import functools
import pathlib
import socket
import struct
import tempfile
import time
import unittest

import puresasl.client
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl
from kdc import REALM
from realm import World
import server_process
from server_process import HOST, ServerProcess, ask

PATIENCE_SECONDS = 30
DIGEST = 'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_bob="secret"; };'
# ZooKeeper's protocol: a new session of 10 s, the opcode of SASL, and two errors.
CONNECT = struct.pack(">iiqiqi", 45, 0, 0, 10_000, 0, 16) + bytes(17)
SASL = 102
OK, AUTH_FAILED = 0, -115
# A request may be so long by default.
REQUEST_BYTES_MAX = 1_048_575
MEMORY_KIB = 30_000


eventually = functools.partial(server_process.eventually, seconds=PATIENCE_SECONDS)


class Stoa:
    """A server that offers its clients what this login configuration says."""

    def __init__(self, login, *more):
        self.folder = tempfile.TemporaryDirectory(prefix="stoa-sasl-")
        path = pathlib.Path(self.folder.name)
        (path / "login").write_text(login)
        self.server = ServerProcess(path / "data", more=["--sasl-config", str(path / "login"), *more])

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, *_):
        self.server.kill()
        self.folder.cleanup()

    @property
    def log(self):
        return pathlib.Path(self.server.output).read_text(errors="replace")

    def logged(self, words):
        eventually(f"{words!r} in the log:\n{self.log}", lambda: words in self.log)

    def counted(self, name):
        words = ask(self.server.port, b"mntr", timeout=PATIENCE_SECONDS).decode()
        return next(int(line.split("\t")[1]) for line in words.splitlines() if line.startswith(f"zk_{name}\t"))

    def memory_kib(self):
        status = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))

    def kazoo(self, **options):
        client = KazooClient(f"localhost:{self.server.port}", timeout=10, **options)
        client.start(timeout=PATIENCE_SECONDS)
        return client


class Raw:
    """A connection with a session, on which any token can be sent."""

    def __init__(self, stoa):
        self.socket = socket.create_connection((HOST, stoa.server.port), PATIENCE_SECONDS)
        self.socket.sendall(CONNECT)
        self.receive()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def exactly(self, length):
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise ConnectionResetError("the server has closed")
            data += more
        return data

    def receive(self):
        (length,) = struct.unpack(">i", self.exactly(4))
        return self.exactly(length)

    def say(self, token, length=None):
        """The error and the token that the server answers. The token's length is the one given, true or not."""
        length = len(token) if length is None else length
        body = struct.pack(">iii", 1, SASL, length) + token
        self.socket.sendall(struct.pack(">i", len(body)) + body)
        answer = self.receive()
        _, _, error = struct.unpack(">iqi", answer[:16])
        return error, answer[20:] if error == OK else b""

    def is_closed(self):
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def refused(self, token):
        """Asserts that the connection ends with this token."""
        error, _ = self.say(token)
        assert error == AUTH_FAILED, (error, token)
        assert self.is_closed()


class Hostile:
    """What is asked of both mechanisms. `login` is the server's configuration, and a client is made anew each time."""

    def first(self, connection):
        """The client, and the first of its tokens that is worth something, after what goes before it."""
        raise NotImplementedError

    def refuses(self, token, words, before=True):
        """A token, on a server of its own: each tells only so many complaints in a time."""
        with Stoa(self.login) as stoa:
            with Raw(stoa) as raw:
                if before:
                    self.first(raw)
                raw.refused(token)
            stoa.logged("SASL failed: ")
            stoa.logged(words)
            self.assertEqual(stoa.counted("auth_failed_count"), 1)

    def test_truncated_tokens(self):
        """None proves anything, and none takes anything from the whole one."""
        with Stoa(self.login) as stoa:
            with Raw(stoa) as raw:
                _, token = self.first(raw)
                # Every byte of its beginning, where the lengths are.
                cuts = [*range(1, 64), *range(64, len(token), 9), len(token) - 1]
                for cut in cuts:
                    with Raw(stoa) as other:
                        self.first(other)
                        other.refused(token[:cut])
                error, _ = raw.say(token)
                self.assertEqual(error, OK)
            stoa.logged("SASL failed: ")
            self.assertEqual(stoa.counted("auth_failed_count"), len(cuts))

    def test_oversized_tokens(self):
        with Stoa(self.login) as stoa:
            before = stoa.memory_kib()
            with Raw(stoa) as raw:
                _, token = self.first(raw)
            sizes = [len(token) + 1, 5_000, 65_536, 65_537, 1_000_000, REQUEST_BYTES_MAX - 12]
            for size in sizes:
                for filler in [b"\0", b"\xff", b"\x30\x80"]:
                    with Raw(stoa) as raw:
                        self.first(raw)
                        raw.refused((token + filler * size)[:size])
                    with Raw(stoa) as raw:
                        self.first(raw)
                        raw.refused((filler * size)[:size])
            stoa.logged("SASL failed: ")
            # This one is too long to be a request.
            with Raw(stoa) as raw:
                self.first(raw)
                error, _ = raw.say(bytes(REQUEST_BYTES_MAX))
                self.assertLess(error, OK)
            self.assertLess(stoa.memory_kib(), before + MEMORY_KIB)

    def test_lengths_that_are_not_true(self):
        with Stoa(self.login) as stoa:
            for length in [-2, -(2**31), 2**31 - 1, 10_000, 4]:
                with Raw(stoa) as raw, self.assertRaises((ConnectionResetError, AssertionError)):
                    _, token = self.first(raw)
                    error, _ = raw.say(token, length)
                    self.assertEqual(error, OK, length)
            with Raw(stoa) as raw:
                _, token = self.first(raw)
                self.assertEqual(raw.say(token)[0], OK)

    def test_changed_bytes(self):
        """Whatever is changed, the server is not; and nobody comes in."""
        with Stoa(self.login) as stoa:
            with Raw(stoa) as raw:
                _, token = self.first(raw)
            refused = 0
            for at in range(len(token)):
                changed = bytearray(token)
                changed[at] ^= 1 << at % 8
                with Raw(stoa) as raw:
                    self.first(raw)
                    error, _ = raw.say(bytes(changed))
                    self.assertIn(error, (OK, AUTH_FAILED))
                    refused += error == AUTH_FAILED
            self.assertGreater(refused, self.share_refused * len(token))
            self.assertEqual(stoa.counted("auth_failed_count"), refused)

    def test_tokens_out_of_order(self):
        with Stoa(self.login) as stoa:
            with Raw(stoa) as raw:
                _, token = self.first(raw)
                self.assertEqual(raw.say(token)[0], OK)
                raw.refused(token)
            with Raw(stoa) as raw:
                self.first(raw)
                raw.refused(b"")


class Kerberos(unittest.TestCase, Hostile):
    # The ticket's own version and flags that nobody checks are not sealed.
    share_refused = 0.95

    @classmethod
    def setUpClass(cls):
        cls.world = World()
        cls.world.log_in()
        cls.login = cls.world.login()

    @classmethod
    def tearDownClass(cls):
        cls.world.kdc.close()

    def first(self, _):
        client = puresasl.client.SASLClient(host="localhost", service="zookeeper", mechanism="GSSAPI")
        return client, client.process()

    def test_kazoo(self):
        with Stoa(self.login) as stoa:
            client = stoa.kazoo(sasl_options={"mechanism": "GSSAPI", "service": "zookeeper"})
            client.create("/mine", b"secret", acl=[make_acl("sasl", f"bob@{REALM}", all=True)])
            self.assertEqual(client.get("/mine")[0], b"secret")
            stranger = stoa.kazoo()
            with self.assertRaises(NoAuthError):
                stranger.get("/mine")
            for it in (client, stranger):
                it.stop()
                it.close()

    def test_a_token_on_two_connections(self):
        """Who has overheard a login sends it again, while the client is there and when it has gone."""
        with Stoa(self.login) as stoa:
            with Raw(stoa) as raw:
                client, token = self.first(raw)
                error, challenge = raw.say(token)
                self.assertEqual(error, OK)
                with Raw(stoa) as thief:
                    thief.refused(token)
                stoa.logged("used before")
                self.assertEqual(stoa.counted("auth_failed_count"), 1)
                # The client goes on, and whatever it says besides is worth nothing to others.
                while not client.complete:
                    response = client.process(challenge)
                    if client.complete and not response:
                        break
                    error, challenge = raw.say(response or b"")
                    self.assertEqual(error, OK)
            for again in (token, response):
                with Raw(stoa) as thief:
                    thief.refused(again)
            self.assertEqual(stoa.counted("auth_failed_count"), 3)

    def logs_in(self, stoa):
        """What a client has said until it was let in."""
        with Raw(stoa) as raw:
            client, token = self.first(raw)
            challenge = raw.say(token)[1]
            responses = []
            while not client.complete:
                response = client.process(challenge)
                responses.append(response or b"")
                if not client.complete or response:
                    challenge = raw.say(response or b"")[1]
        return token, responses

    def test_a_token_after_a_restart(self):
        """Whether the server was stopped or killed, it knows which tokens were used, also after two restarts."""
        with Stoa(self.login) as stoa:
            tokens = []
            for end in (stoa.server.kill, stoa.server.stop, stoa.server.kill):
                tokens.append(self.logs_in(stoa)[0])
                end()
                stoa.server.start()
                for number, token in enumerate(tokens, 1):
                    with Raw(stoa) as thief:
                        thief.refused(token)
                    self.assertEqual(stoa.counted("auth_failed_count"), number)
            self.assertEqual(stoa.log.count("used before"), 6)
            self.logs_in(stoa)

    def test_a_token_after_a_restart_that_was_forgotten(self):
        """The files are lost. But the client wanted proof of the server, so what it said last is under a key that the
        server had made for that one login."""
        with Stoa(self.login) as stoa:
            token, responses = self.logs_in(stoa)
            stoa.server.stop()
            files = list(pathlib.Path(stoa.folder.name).glob("data/logins-*"))
            self.assertEqual(len(files), 1)
            files[0].unlink()
            stoa.server.start()
            with Raw(stoa) as thief:
                errors = [thief.say(token)[0]]
                for response in responses:
                    if errors[-1] == OK:
                        errors.append(thief.say(response)[0])
                self.assertEqual(errors[-1], AUTH_FAILED, errors)
            stoa.logged("the client's wrap token was changed, or made with another key")

    def test_a_last_token_that_is_cut(self):
        """The one that says who it wants to be."""
        with Stoa(self.login) as stoa:
            for cut in range(1, 60, 3):
                with Raw(stoa) as raw:
                    client, token = self.first(raw)
                    error, challenge = raw.say(token)
                    response = client.process(challenge)
                    while not response:
                        error, challenge = raw.say(b"")
                        response = client.process(challenge)
                    raw.refused(response[:-cut])
            stoa.logged("SASL failed: ")

    def test_what_the_log_says(self):
        _, token = self.first(None)
        self.refuses(token[: len(token) // 2], "the first token is no AP-REQ of Kerberos", before=False)


class Digest(unittest.TestCase, Hostile):
    login = DIGEST
    # All of it is under the digest, but for the quotes.
    share_refused = 0.95

    def first(self, connection):
        client = puresasl.client.SASLClient(
            host="zk-sasl-md5", service="zookeeper", mechanism="DIGEST-MD5", username="bob", password="secret")
        error, challenge = connection.say(client.process() or b"")
        assert error == OK
        return client, client.process(challenge)

    def test_kazoo(self):
        options = {"mechanism": "DIGEST-MD5", "username": "bob"}
        with Stoa(self.login) as stoa:
            client = stoa.kazoo(sasl_options={**options, "password": "secret"})
            client.create("/mine", b"secret", acl=[make_acl("sasl", "bob", all=True)])
            self.assertEqual(client.get("/mine")[0], b"secret")
            client.stop()
            client.close()
            stranger = stoa.kazoo(sasl_options={**options, "password": "guess"})
            eventually("it is turned away", lambda: not stranger.connected)
            stranger.stop()
            stranger.close()
            stoa.logged('SASL failed: the password of user "bob" is another one')


if __name__ == "__main__":
    unittest.main()
