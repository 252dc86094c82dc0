"""A server with a port for TLS, and `openssl s_client` as its client."""

import contextlib
import functools
import pathlib
import subprocess

import server_process
from server_process import HOST, ServerProcess, ask, free_port

PATIENCE_SECONDS = 30
# A client of ZooKeeper that asks for a new session: its length, version, zxid, timeout of 10 s, id, password.
CONNECT = bytes.fromhex("0000002d" "00000000" "0000000000000000" "00002710" "0000000000000000" "00000010") + bytes(17)
# What of the answer is the same each time: its length, version, and the timeout.
CONNECTED = bytes.fromhex("00000025" "00000000" "00002710")

eventually = functools.partial(server_process.eventually, seconds=PATIENCE_SECONDS)


class Secured:
    """A server at whose second port all clients need a certificate."""

    def __init__(self, folder, world, *more, revoked=None):
        self.world = world
        self.secure_port = free_port()
        files = ["--tls-certificate", world.server.certificate, "--tls-key", world.server.key]
        files += ["--tls-authority", world.trusted, "--tls-revoked", revoked or world.revoked]
        options = ["--secure-port", self.secure_port, "--tls-client-certificates", "need", *files, *more]
        self.server = ServerProcess(pathlib.Path(folder) / "data", more=map(str, options))

    def __enter__(self):
        try:
            self.server.start()
        except BaseException:
            self.server.kill()
            raise
        return self

    def __exit__(self, *_):
        self.server.kill()

    @property
    def log(self):
        return pathlib.Path(self.server.output).read_text(errors="replace")

    def logged(self, words):
        """Waits until the server has logged a line with these words, and returns it."""
        return eventually(
            f"{words!r} in the log:\n{self.log}",
            lambda: next((line for line in self.log.splitlines() if words in line), None),
        )

    def counts(self):
        """All metrics of `mntr` that are whole numbers."""
        found = {}
        for line in ask(self.server.port, b"mntr", timeout=PATIENCE_SECONDS).decode().splitlines():
            name, _, value = line.partition("\t")
            with contextlib.suppress(ValueError):
                found[name.removeprefix("zk_")] = int(value)
        return found

    def counted(self, name):
        return self.counts()[name]

    def memory_kib(self):
        """What of the server is in memory."""
        status = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))

    def command(self, *options, who=None):
        words = ["openssl", "s_client", "-connect", f"{HOST}:{self.secure_port}", *map(str, options)]
        words += ["-CAfile", str(self.world.authority.certificate), "-verify_return_error"]
        return words + (who.options if who else [])

    def s_client(self, *options, who=None, says=b"ruok"):
        """What comes of one run of `openssl s_client` that says this: its output and its complaints."""
        command = self.command("-quiet", *options, who=who)
        done = subprocess.run(command, input=says, capture_output=True, timeout=PATIENCE_SECONDS)
        return done.stdout, done.stderr.decode(errors="replace")

    def lets_in(self, who, *options):
        """Asserts that this client is served: a four-letter word, and the handshake of ZooKeeper's clients."""
        answer, told = self.s_client(*options, who=who)
        assert answer == b"imok", told
        client = subprocess.Popen(
            self.command("-quiet", *options, who=who), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            client.stdin.write(CONNECT)
            client.stdin.flush()
            answer = client.stdout.read(len(CONNECTED))
        finally:
            client.kill()
            client.communicate()
        assert answer == CONNECTED
