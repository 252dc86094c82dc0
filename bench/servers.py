"""The servers that are compared, each a process, pinned to one core if wanted."""

import contextlib
import os
import pathlib
import random
import resource
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = ROOT / "bench" / "zoo.cfg"
STOA = ROOT / "target" / "release" / "stoa"
PEER_JARS = ROOT / "target" / "peer"
PEER_POM = ROOT / "tests" / "peer" / "pom.xml"
START_SECONDS_MAX = 300
LOOPBACK = "127.0.0.1"
PORTS = range(12_000, 30_000)

# Nice level of everything that is measured; below 0 it keeps other work on the machine from disturbing.
nice = 0
commands = []

# Ports that servers have got.
given_ports = set()


def pinned(core):
    """The start of a command that runs on one core only; without a core it runs on any."""
    return [] if core is None else ["taskset", "--cpu-list", str(core)]


def prepare():
    """In a new process, before its program: priority, and as many open files as allowed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if nice:
        # Linux may weigh whole sessions against each other before it looks at nice levels.
        os.setsid()
        with contextlib.suppress(OSError):
            pathlib.Path("/proc/self/autogroup").write_text(str(nice))
        os.nice(nice)


def shown(command):
    """Prints a command and keeps it for the report, with paths as seen from the repository."""
    line = shlex.join(str(part) for part in command).replace(f"{ROOT}/", "")
    print(f"$ {line}", flush=True)
    if line not in commands:
        commands.append(line)


def free_port():
    (port,) = free_ports(1)
    return port


def free_ports(count):
    """Different ports that nobody listens on. They lie below those that the system gives to connections,
    so that none is taken while its server is restarted. None is given twice: a server may not listen yet."""
    ports = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(ports) == count:
            given_ports.update(ports)
            return ports
        if port in given_ports:
            continue
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            ports.append(port)
    raise RuntimeError(f"there are no {count} free ports in {PORTS}")


def build():
    """Builds Stoa and brings Apache ZooKeeper's jars, if they are not there yet."""
    command = ["cargo", "build", "--release", "--package", "stoa"]
    shown(command)
    subprocess.run(command, cwd=ROOT, check=True)
    if not list(PEER_JARS.glob("zookeeper-3*.jar")):
        command = ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", "--file", PEER_POM, f"-DoutputDirectory={PEER_JARS}"]
        shown(command)
        subprocess.run(command, check=True)


def peer_version():
    (jar,) = PEER_JARS.glob("zookeeper-3*.jar")
    return jar.stem.removeprefix("zookeeper-")


class Session:
    """A session for a few requests. Every OSError means that the server does not answer."""

    CREATE, EXISTS, SYNC, CLOSE = 1, 3, 9, -11
    NO_DATA, NO_FLAGS, NO_WATCH = bytes(4), bytes(4), b"\0"
    OPEN_ACL = b"\0\0\0\1" b"\0\0\0\x1f" b"\0\0\0\5world" b"\0\0\0\6anyone"

    def __init__(self, port, timeout=1, session_timeout=10, host=LOOPBACK):
        self.connection = socket.create_connection((host, port), timeout=timeout)
        hello = struct.pack(">iqiq", 0, 0, session_timeout * 1000, 0) + struct.pack(">i", 16) + bytes(16) + b"\0"
        self._send(hello)
        self._receive()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._send(struct.pack(">ii", 2, self.CLOSE))
            self._receive()
        self.connection.close()

    def call(self, opcode, path, rest=b""):
        """A request that begins with a path; returns the error code of the answer."""
        error, _ = self.answer(opcode, path, rest)
        return error

    def answer(self, opcode, path, rest=b""):
        """A request that begins with a path; returns the error code of the answer, and what comes after it."""
        name = path.encode()
        self._send(struct.pack(">iii", 1, opcode, len(name)) + name + rest)
        reply = self._receive()
        (error,) = struct.unpack(">i", reply[12:16])
        return error, reply[16:]

    def exists(self, path):
        return self.call(self.EXISTS, path, self.NO_WATCH) == 0

    def sync(self, path):
        return self.call(self.SYNC, path) == 0

    def create(self, path):
        """Creates a znode without data."""
        error = self.call(self.CREATE, path, self.NO_DATA + self.OPEN_ACL + self.NO_FLAGS)
        if error:
            raise RuntimeError(f"create {path} answered error {error}")

    def _send(self, body):
        self.connection.sendall(struct.pack(">i", len(body)) + body)

    def _receive(self):
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, length):
        data = b""
        while len(data) < length:
            part = self.connection.recv(length - len(data))
            if not part:
                raise ConnectionError("closed")
            data += part
        return data


def first_reply(port, path):
    """Opens a session and reads `path`: raises OSError as long as the server does not answer."""
    with Session(port) as session:
        if not session.exists(path):
            raise RuntimeError(f"there is no {path}")


def ask(port, word, host=LOOPBACK):
    """The answer to a four-letter word."""
    with socket.create_connection((host, port), timeout=2) as connection:
        connection.sendall(word.encode())
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer.decode(errors="replace")


class Server:
    """A running server with a data folder of its own. Stopped and removed at the end of `with`. `flags`
    are for Stoa alone; `under` is what runs it, with its options."""

    host = LOOPBACK

    def __init__(self, kind, core, heap=None, flags=(), under=()):
        self.kind = kind
        self.core = core
        self.heap = heap
        self.binary = STOA
        self.flags = list(flags)
        self.under = list(under)
        self.port = free_port()
        self.admin_port = free_port()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"bench-{kind}-"))
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self):
        pin = pinned(self.core) + self.under
        data = self.folder / "data"
        if self.kind == "stoa":
            serve = [self.binary, "serve", "--config", CONFIG, "--data-dir", data, *self.flags]
            return pin + serve + ["--port", str(self.port), "--admin-port", str(self.admin_port)]
        config = self.folder / "zoo.cfg"
        settings = CONFIG.read_text() + f"dataDir={data}\nclientPort={self.port}\n"
        config.write_text(settings)
        return pin + self.java("ZooKeeperServerMain", config)

    def java(self, main, config):
        """The command line of Apache ZooKeeper."""
        java = ["java", *(self.heap or []), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        return java + ["-cp", PEER_JARS / "*", f"org.apache.zookeeper.server.{main}", config]

    def start(self, path="/"):
        """Starts the server; returns the seconds until the first reply to a read of `path`."""
        self.launch()

        def answers():
            first_reply(self.port, path)
            return True

        return self.wait_until(answers)

    def launch(self):
        """Starts the server and returns at once."""
        command = self.command()
        shown(command)
        with (self.folder / "log").open("ab") as log:
            self.launched = time.monotonic()
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=prepare,
            )

    def wait_until(self, holds):
        """Waits until something holds, an OSError means that it does not yet; returns the seconds
        since the server was started."""
        while True:
            with contextlib.suppress(OSError):
                if holds():
                    return time.monotonic() - self.launched
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.kind} ended:\n{(self.folder / 'log').read_text()}")
            if time.monotonic() - self.launched > START_SECONDS_MAX:
                raise RuntimeError(f"{self.kind} did not come so far in {START_SECONDS_MAX} s")
            time.sleep(0.002)

    def pause(self):
        """Takes its core away, so that another server can be measured."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self, how=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            self.resume()
            self.process.send_signal(how)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def restart_after_crash(self, path):
        """Kills the server and starts it again; returns the seconds until the first reply."""
        self.stop(signal.SIGKILL)
        return self.start(path)

    def rss_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024


class EchoServer:
    """The bare echo server: the limit that a server can be compared with."""

    def __init__(self, core, reply_bytes):
        command = pinned(core) + [STOA, "bench", "echo-server", "--reply-bytes", str(reply_bytes)]
        shown(command)
        command = [str(part) for part in command]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=prepare)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
