"""Readers by the hundred below an ensemble: what they cost its clients and its leader.

Each reader is a process in a network namespace of its own, below a member that does not lead, or below another reader. All
of them share the processors of one machine with the members, which no reader does that has one to itself. So members and
generator go before all else (run this by `chrt --rr 1`), readers have what is left, and the leader and the generator have a
processor of their own: what a write waits for is then what it would wait for on machines of their own, but that all others
share one.
"""

import os
import time

import ensembles
import measure
import servers
import wires

PEER_PORT = 2888
ONE_WRITER = ["--op", "set", "--sessions", 1, "--pipeline", 1, "--znodes", 1]


class Reader(servers.Server):
    """A server below a member or another reader, in a network namespace of its own."""

    def __init__(self, number, port, fan_out):
        super().__init__("stoa", None)
        self.number, self.port, self.host, self.fan_out = number, port, wires.host(number), fan_out
        self.parents = []

    def command(self):
        parents = ",".join(f"{parent.host}:{PEER_PORT}" for parent in self.parents)
        own = ["--data-dir", self.folder / "data", "--port", self.port, "--reader-of", parents]
        below = ["--reader-port", PEER_PORT, "--max-readers", 2 * self.fan_out]
        inside = [*wires.inside(wires.machine(self.number)), "chrt", "--other", "0"]
        return [*inside, self.binary, "serve", "--config", servers.CONFIG, *own, *below]

    def line(self, begin):
        """What it says behind these words; None while it says nothing."""
        try:
            lines = servers.ask(self.port, "srvr", self.host).splitlines()
        except OSError:
            return None
        return next((line.removeprefix(begin) for line in lines if line.startswith(begin)), None)

    def behind(self):
        """How many entries it lacks; None while it serves nobody."""
        below = self.line("Reader: below ")
        if self.line("Mode: ") != "observer" or below is None:
            return None
        return int(below.split()[-2]) if below.endswith(" behind") else None

    def cpu_seconds(self):
        return cpu_seconds(self)


def cpu_seconds(server):
    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Readers:
    """Some readers below an ensemble: as many as `fan_out` below each member that does not lead, the rest below those, evenly.
    Stopped and removed at the end of `with`."""

    def __init__(self, ensemble, count, fan_out, port):
        members = ensemble.followers()
        first = len(ensemble.members) + 1
        self.readers = [Reader(first + at, port, fan_out) for at in range(count)]
        upper = self.readers[: len(members) * fan_out]
        for at, reader in enumerate(upper):
            # One alone, so that it is below that one and no other.
            reader.parents = [members[at % len(members)]]
        for at, reader in enumerate(self.readers[len(upper) :]):
            reader.parents = [upper[at % len(upper)]]

    def __enter__(self):
        try:
            for reader in self.readers:
                reader.launch()
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait(self):
        """Waits until all of them serve and have everything."""
        deadline = time.monotonic() + ensembles.QUORUM_SECONDS_MAX
        left = list(self.readers)
        while left := [reader for reader in left if reader.behind() != 0]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(left)} readers do not serve after {ensembles.QUORUM_SECONDS_MAX} s")
            time.sleep(0.2)

    def __exit__(self, *_):
        for reader in self.readers:
            if reader.process:
                reader.process.kill()
        for reader in self.readers:
            reader.stop()
            servers.shutil.rmtree(reader.folder, ignore_errors=True)


class Part:
    """What a run measures of an ensemble, without readers and with them."""

    def __init__(self, run, ensemble, port):
        self.run, self.ensemble, self.port = run, ensemble, port
        self.args, self.seconds = run.args, run.seconds
        # The processor of the leader and the generator, and those of all others.
        self.own, self.rest = None, None

    def measure(self):
        leader = self.ensemble.leader()
        self.own = min(os.sched_getaffinity(0))
        self.rest = os.sched_getaffinity(0) - {self.own} or {self.own}
        for member in self.ensemble.members:
            ensembles.pin(member.process.pid, {self.own} if member is leader else self.rest)
        self.look("without readers", [])
        with Readers(self.ensemble, self.args.readers, self.args.fan_out, self.port) as below:
            print(f"{self.args.readers} readers serve", flush=True)
            for reader in below.readers:
                ensembles.pin(reader.process.pid, self.rest)
            self.look(f"{self.args.readers} readers", below.readers)
            below.wait()
        self.look("without readers", [])

    def note(self, figure, how, value):
        self.run.note_at("readers", self.ensemble, f"{figure}, {how}", value)

    def look(self, how, readers):
        self.idle(how, readers)
        self.writer(how, readers)
        self.throughput(how, readers)

    def watched(self, readers, work):
        """Does the work; returns what comes of it, how long that took, and what each server spent and sent meanwhile."""
        all_of_them = [*self.ensemble.members, *readers]
        spent, sent, clock = [cpu_seconds(one) for one in all_of_them], wires.sent(), time.monotonic()
        result = work()
        seconds, now = time.monotonic() - clock, wires.sent()
        spent = {one: cpu_seconds(one) - had for one, had in zip(all_of_them, spent)}
        sent = {one: [new - old for new, old in zip(now[one.number], sent[one.number])] for one in all_of_them}
        return result, seconds, spent, sent

    def idle(self, how, readers):
        time.sleep(1)
        _, seconds, spent, sent = self.watched(readers, lambda: time.sleep(self.seconds))
        leader, *others = [self.ensemble.leader(), *self.ensemble.followers()]
        self.note("idle: packets a second, leader", how, sent[leader][1] / seconds)
        self.note("idle: packets a second, each other member", how, mean(sent[one][1] for one in others) / seconds)
        self.note("idle: CPU of each other member, %", how, mean(spent[one] for one in others) / seconds * 100)
        self.note("memory of each other member, MiB", how, mean(one.rss_mib() for one in others))
        if readers:
            self.note("idle: packets a second, each reader", how, mean(sent[one][1] for one in readers) / seconds)
            self.note("idle: CPU of each reader, %", how, mean(spent[one] for one in readers) / seconds * 100)
            self.note("memory of each reader, MiB", how, mean(one.rss_mib() for one in readers))

    def writer(self, how, readers):
        """One client of the leader writes at a pace that leaves the machine room for all of them."""
        leader = self.ensemble.leader()
        load = [*ONE_WRITER, "--payload", 1024, "--rate", self.args.rate, "--warmup", 1, "--duration", 3 * self.seconds]
        result, _, spent, sent = self.watched(readers, lambda: measure.generate(self.own, [leader], *load))
        self.latency("one writer", how, result)
        others, count = [one for one in self.ensemble.members if one is not leader], result["operations"]
        # The warming up is counted by the system, and not by the generator.
        count *= 1 + 1 / (3 * self.seconds)
        self.note("one writer: bytes that the leader sends, a write", how, sent[leader][0] / count)
        self.note("one writer: packets that the leader sends, a write", how, sent[leader][1] / count)
        self.note("one writer: CPU of the leader, us a write", how, spent[leader] / count * 1e6)
        each = mean(spent[one] for one in others) / count * 1e6
        self.note("one writer: CPU of each other member, us a write", how, each)
        if readers:
            each = mean(spent[one] for one in readers) / count * 1e6
            self.note("one writer: CPU of each reader, us a write", how, each)

    def throughput(self, how, readers):
        leader = self.ensemble.leader()
        load = ["--op", "set", "--payload", 1024, "--sessions", self.args.sessions, "--pipeline", self.args.pipeline]
        load += ["--warmup", 0, "--duration", self.seconds]
        result, _, spent, sent = self.watched(readers, lambda: measure.generate(self.own, self.ensemble.members, *load))
        self.note("many writers: sets/s", how, result["throughput"])
        self.latency("many writers", how, result)
        count = result["operations"]
        self.note("many writers: bytes that the leader sends, for each of data", how, sent[leader][0] / (count * 1024))
        self.note("many writers: CPU of the leader, us a write", how, spent[leader] / count * 1e6)
        if readers:
            behind = [reader.behind() for reader in readers]
            self.note("many writers: entries that a reader lacks in the end, at most", how, max(it or 0 for it in behind))

    def latency(self, of, how, result):
        took = result["latency_us"]["set"]
        self.note(f"{of}: p50 us", how, took["p50"])
        self.note(f"{of}: p99 us", how, took["p99"])


def mean(values):
    values = list(values)
    return sum(values) / len(values)
