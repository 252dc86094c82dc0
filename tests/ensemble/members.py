"""Three servers on loopback, or as many as a test wants, which tests stop, kill and start one by one.

The command comes from MEMBER_COMMAND; the path of a server's configuration is added to it.
"""

import contextlib
import functools
import os
import pathlib
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

from kazoo.client import KazooClient

import server_process
from server_process import HOST, ask, free_port

NUMBERS = (1, 2, 3)
PATIENCE_SECONDS = 40
STOP_SECONDS = 20
# Elections are quick, so that tests are.
ENVIRONMENT = {"STOA_HEARTBEAT": "50ms", "STOA_ELECTION_TIMEOUT": "400ms"}
SETTINGS = """\
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=mntr
"""


eventually = functools.partial(server_process.eventually, seconds=PATIENCE_SECONDS)


@contextlib.contextmanager
def ended(*servers):
    """They end with the test, and say what they have printed if it fails."""
    try:
        yield
    except BaseException:
        for server in servers:
            print(server.said())
        raise
    finally:
        for server in servers:
            server.kill()


class Member:
    """A server that keeps its ports and its folder over restarts."""

    def __init__(self, folder, number, role="participant", command=None):
        self.number, self.role = number, role
        self.command = command or os.environ["MEMBER_COMMAND"]
        self.port, self.peer_port, self.election_port = free_port(), free_port(), free_port()
        self.data = folder / str(number)
        self.config = folder / f"{number}.cfg"
        self.output = folder / f"{number}.out"
        self.process = None

    @property
    def line(self):
        ports = f"{self.peer_port}:{self.election_port}:{self.role};{HOST}:{self.port}"
        return f"server.{self.number}={HOST}:{ports}\n"

    @property
    def address(self):
        return f"{HOST}:{self.port}"

    def configure(self, settings):
        self.data.mkdir()
        (self.data / "myid").write_text(str(self.number))
        self.config.write_text(f"{settings}dataDir={self.data}\n")

    def start(self, environment):
        command = [*shlex.split(self.command), str(self.config)]
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )

    def kill(self):
        """Ends the server as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self):
        """Stops the server as an operator does."""
        self._end(signal.SIGTERM)

    def _end(self, number):
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.wait(STOP_SECONDS)

    def said(self):
        """Whether the server runs, and what it has printed."""
        code = self.process and self.process.poll()
        state = "stopped" if self.process is None else "running" if code is None else f"exited with {code}"
        output = self.output.read_text(errors="replace") if self.output.exists() else ""
        return f"server {self.number}, port {self.port}, {state}:\n{output}"

    def ask(self, word):
        """The answer to a four-letter word; empty when there is none."""
        with contextlib.suppress(OSError):
            return ask(self.port, word).decode()
        return ""

    @property
    def mode(self):
        """What `srvr` says, such as `leader`; empty while nobody is served."""
        lines = (line.partition(": ") for line in self.ask(b"srvr").splitlines())
        return next((value for name, _, value in lines if name == "Mode"), "")

    def is_in_quorum(self):
        code = self.process.poll()
        assert code is None, f"server {self.number} has exited with {code}"
        return self.mode in ("leader", "follower")


class Ensemble:
    """All of them, and the clients that tests open; both end with it."""

    def __init__(self, more_settings="", numbers=NUMBERS, environment=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stoa-ensemble-"))
        times = environment or ENVIRONMENT
        self.environment = {**os.environ, **times, "STOA_PEER_SECRET": secrets.token_hex(16)}
        self.members = [Member(self.folder, number) for number in numbers]
        self.clients = []
        settings = SETTINGS + more_settings + "".join(member.line for member in self.members)
        for member in self.members:
            member.configure(settings)

    def __enter__(self):
        try:
            for member in self.members:
                self.start(member)
            self.wait_in_quorum(self.members)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, *_error):
        for client in self.clients:
            with contextlib.suppress(Exception):
                client.stop()
                client.close()
        if kind is not None:
            print(f"the servers' folders are kept in {self.folder}")
            for member in self.members:
                print(member.said())
        for member in self.members:
            member.kill()
        if kind is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, member):
        member.start(self.environment)

    def wait_in_quorum(self, members):
        for member in members:
            eventually(f"server {member.number} in the quorum", member.is_in_quorum)

    @property
    def leader(self):
        return eventually("a leader", lambda: next((it for it in self.members if it.mode == "leader"), None))

    def others(self, member):
        return [other for other in self.members if other is not member]

    def client(self, members=None, **settings):
        """A client of these servers, or of all, which is not started yet."""
        hosts = ",".join(member.address for member in members or self.members)
        client = KazooClient(hosts, **settings)
        self.clients.append(client)
        return client
