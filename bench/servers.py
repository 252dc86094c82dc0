"""The servers that are compared, each a process pinned to one core."""

import contextlib
import os
import pathlib
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

# Nice level of everything that is measured; below 0 it keeps other work on the machine from disturbing.
nice = 0
commands = []


def pinned(core):
    """The start of a command that runs on one core only."""
    return ["taskset", "--cpu-list", str(core)]


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
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


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


def frame(body):
    return struct.pack(">i", len(body)) + body


def receive_frame(connection):
    def exactly(length):
        data = b""
        while len(data) < length:
            part = connection.recv(length - len(data))
            if not part:
                raise ConnectionError("closed")
            data += part
        return data

    (length,) = struct.unpack(">i", exactly(4))
    return exactly(length)


def first_reply(port, path):
    """Opens a session and reads `path`: raises OSError as long as the server does not answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
        hello = struct.pack(">iqiq", 0, 0, 10_000, 0) + struct.pack(">i", 16) + bytes(16) + b"\0"
        connection.sendall(frame(hello))
        receive_frame(connection)
        name = path.encode()
        request = struct.pack(">iii", 1, 3, len(name)) + name + b"\0"
        connection.sendall(frame(request))
        reply = receive_frame(connection)
        (error,) = struct.unpack(">i", reply[12:16])
        if error != 0:
            raise RuntimeError(f"exists {path} answered error {error}")
        connection.sendall(frame(struct.pack(">ii", 2, -11)))
        receive_frame(connection)


class Server:
    """A running server with a data folder of its own. Stopped and removed at the end of `with`."""

    def __init__(self, kind, core, heap=None):
        self.kind = kind
        self.core = core
        self.heap = heap
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
        pin = pinned(self.core)
        data = self.folder / "data"
        if self.kind == "stoa":
            serve = [STOA, "serve", "--config", CONFIG, "--data-dir", data]
            return pin + serve + ["--port", str(self.port), "--admin-port", str(self.admin_port)]
        config = self.folder / "zoo.cfg"
        settings = CONFIG.read_text() + f"dataDir={data}\nclientPort={self.port}\n"
        config.write_text(settings)
        java = ["java", *(self.heap or []), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return pin + java + ["-cp", PEER_JARS / "*", main, config]

    def start(self, path="/"):
        """Starts the server; returns the seconds until the first reply to a read of `path`."""
        command = self.command()
        shown(command)
        log = (self.folder / "log").open("ab")
        start = time.monotonic()
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=prepare,
        )
        while True:
            with contextlib.suppress(OSError):
                first_reply(self.port, path)
                return time.monotonic() - start
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.kind} ended:\n{(self.folder / 'log').read_text()}")
            if time.monotonic() - start > START_SECONDS_MAX:
                raise RuntimeError(f"{self.kind} did not answer in {START_SECONDS_MAX} s")
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
