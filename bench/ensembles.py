"""Ensembles of servers on loopback, of each kind, and the probe that writes through them."""

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import time
import urllib.request

import measure
import servers
from servers import CONFIG, ROOT, STOA, Server, Session, ask, free_ports, shown

SIZE = 3
# As in the sample configuration that both servers come with.
LIMITS = "initLimit=10\nsyncLimit=5\n"
QUORUM_SECONDS_MAX = 300
# After a pause the servers may find that they have not heard from each other.
SETTLE_SECONDS = 1.0
SYNCED_MODES = ("leader", "follower")
ETCD = ROOT / "target" / "etcd"
ETCD_SOURCE = ROOT / "bench" / "etcd"


class Member(Server):
    """One server of an ensemble, which keeps its ports and its folder over restarts."""

    # Or observer.
    role = "participant"
    # Lines of its configuration beyond those that all have.
    settings = ""

    def __init__(self, kind, number, ports, heap=None, flags=()):
        super().__init__(kind, None, heap, flags)
        self.number = number
        self.port, self.peer_port, self.election_port = ports

    def seen_by(self, _):
        """The ports at which a member finds this one, for consensus and for elections."""
        return self.peer_port, self.election_port

    def configure(self, members):
        """Makes the folder, with the configuration in which all members stand."""
        ports = {each.number: each.seen_by(self) for each in members}
        lines = "".join(
            "server.{0}={1}:{2}:{3}:{4};{5}\n".format(each.number, each.host, *ports[each.number], each.role, each.port)
            for each in members
        )
        data = self.folder / "data"
        data.mkdir()
        (data / "myid").write_text(f"{self.number}\n")
        (self.folder / "zoo.cfg").write_text(f"{CONFIG.read_text()}{LIMITS}{self.settings}dataDir={data}\n{lines}")

    def command(self):
        config = self.folder / "zoo.cfg"
        if self.kind == "stoa":
            return [self.binary, "serve", "--config", config, *self.flags]
        return self.java("quorum.QuorumPeerMain", config)

    def mode(self):
        """What the server says of itself; None while it does not serve."""
        with contextlib.suppress(OSError):
            for line in ask(self.port, "srvr", self.host).splitlines():
                if line.startswith("Mode: "):
                    return line.removeprefix("Mode: ")
        return None

    def wait_in_quorum(self):
        """Waits until the server serves as a part of the ensemble; returns the seconds since its start."""
        return self.wait_until(lambda: self.mode() in SYNCED_MODES)

    def wait_until_read(self, path):
        """Waits until a session of the server finds `path` after a sync; returns the seconds since its
        start. What is newest when the server starts shows that it has everything."""

        def is_there():
            with Session(self.port) as session:
                return session.sync(path) and session.exists(path)

        return self.wait_until(is_there)


class EtcdMember(Member):
    """A server of etcd, which has its own configuration and its own protocol."""

    def configure(self, members):
        self.cluster = ",".join(f"{each.number}=http://127.0.0.1:{each.peer_port}" for each in members)

    def command(self):
        client, peer = (f"http://127.0.0.1:{port}" for port in (self.port, self.peer_port))
        names = ["--name", str(self.number), "--data-dir", self.folder / "data", "--log-level", "error"]
        clients = ["--listen-client-urls", client, "--advertise-client-urls", client]
        peers = ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        return [ETCD, "serve", *names, *clients, *peers, "--initial-cluster", self.cluster]

    def mode(self):
        url = f"http://127.0.0.1:{self.port}/v3/maintenance/status"
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(urllib.request.Request(url, data=b"{}"), timeout=1) as answer:
                status = json.load(answer)
            if leader := status.get("leader"):
                return "leader" if leader == status["header"]["member_id"] else "follower"
        return None


class Ensemble:
    """Some running servers, three if nothing is said. Stopped and removed at the end of `with`."""

    MEMBER = Member

    def __init__(self, kind, heap=None, flags=(), size=SIZE):
        self.kind = kind
        ports = free_ports(3 * size)
        made = EtcdMember if kind == "etcd" else self.MEMBER
        self.members = [made(kind, n + 1, ports[3 * n : 3 * n + 3], heap, flags) for n in range(size)]
        self.configure()

    def configure(self):
        for member in self.members:
            member.configure(self.members)

    def __enter__(self):
        try:
            self.launch()
            self.wait_in_quorum()
        except BaseException:
            self.__exit__()
            raise
        return self

    def launch(self):
        for member in self.members:
            member.launch()

    def __exit__(self, *_):
        for member in self.members:
            member.stop(signal.SIGKILL)
            shutil.rmtree(member.folder, ignore_errors=True)

    def leader(self):
        """The server that leads, of which there has to be one."""
        deadline = time.monotonic() + QUORUM_SECONDS_MAX
        while time.monotonic() < deadline:
            for member in self.members:
                if member.mode() == "leader":
                    return member
            time.sleep(0.01)
        raise RuntimeError(f"{self.kind}: no server leads after {QUORUM_SECONDS_MAX} s")

    def followers(self):
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    def wait_in_quorum(self):
        """Waits until all servers serve, and go on to do so under the same leader."""
        deadline = time.monotonic() + QUORUM_SECONDS_MAX
        voters = sum(member.role == Member.role for member in self.members)
        wanted = ["leader"] + ["follower"] * (voters - 1) + ["observer"] * (len(self.members) - voters)
        before = None
        while time.monotonic() < deadline:
            modes = [member.mode() for member in self.members]
            if sorted(modes, key=str) == sorted(wanted):
                if modes == before:
                    return
                before = modes
                time.sleep(SETTLE_SECONDS)
            else:
                before = None
                time.sleep(0.05)
        raise RuntimeError(f"{self.kind}: no quorum of all servers after {QUORUM_SECONDS_MAX} s")

    @contextlib.contextmanager
    def set_apart(self, member, generator):
        """Gives a server a core of its own, as if it were a machine: what its end costs the system
        takes nothing from the others. Whatever that core still does slows the others' down on many
        processors, so it is busy all the time, however much there is to do when the server ends."""
        cores = os.sched_getaffinity(0)
        if len(cores) < 2:
            yield
            return
        own = {min(cores)}
        for process in [generator, *(each.process for each in self.members)]:
            pin(process.pid, own if process is member.process else cores - own)
        busy = multiprocessing.Process(target=keep_busy, args=(own,), daemon=True)
        busy.start()
        try:
            yield
        finally:
            busy.kill()
            busy.join()

    def pause(self):
        for member in self.members:
            member.pause()

    def resume(self):
        for member in self.members:
            member.resume()
        self.wait_in_quorum()


def pin(pid, cores):
    """Keeps all threads of a process, and those that they begin, on these cores."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cores)


def keep_busy(cores):
    """Takes what nobody else wants of these cores, until it is killed."""
    os.sched_setaffinity(0, cores)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while True:
        pass


class Probe:
    """Sessions that write without a break through whatever server they reach. See
    `stoa bench probe --help`."""

    def __init__(self, members, *options):
        generator = [str(ETCD), "probe"] if members[0].kind == "etcd" else measure.generator(None, "probe")
        self.command = [*generator, "--servers", measure.addresses(members), *map(str, options)]

    def __enter__(self):
        shown(self.command)
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=servers.prepare
        )
        self._answer()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def mark(self, name):
        """Begins a phase; returns the report of the one before."""
        return self._ask(f"mark {name}")

    def look(self):
        """The report of the phase under way."""
        return self._ask("look")

    def wait_for_write(self):
        """Waits until a write was acknowledged that was sent in the phase under way."""
        deadline = time.monotonic() + QUORUM_SECONDS_MAX
        while self.look()["first_write_after_ms"] is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no write was acknowledged in {QUORUM_SECONDS_MAX} s")
            time.sleep(0.02)

    def end(self):
        """Closes the sessions; returns the report of the whole time."""
        self.process.stdin.close()
        report = self._answer()
        self.process.wait()
        return report

    def _ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the probe ended: {self.command}")
        return json.loads(line)


def build_etcd():
    """Builds etcd and what drives it."""
    command = ["go", "build", "-o", str(ETCD), "."]
    shown(command)
    subprocess.run(command, cwd=ETCD_SOURCE, check=True)


def generate_etcd(targets, *options):
    """As measure.generate, for etcd; the CPU time of the servers is not measured."""
    command = [str(part) for part in (ETCD, "set", "--servers", measure.addresses(targets), *options)]
    shown(command)
    process = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, preexec_fn=servers.prepare
    )
    return json.loads(process.stdout)
