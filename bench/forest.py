#!/usr/bin/env python3
"""Big ensembles with a forest and without one, beside Apache ZooKeeper: figures 6 to 8 and 10 of the paper on Giraffe.

Each server is a process in a network namespace of its own; with a limit it sends no more than so many bits a second, as a
machine with such a line would. Data are in memory (/dev/shm), and all servers and the generator share the processors of one
machine: without a limit it is the machine that is full, and the more servers there are, the less each has of it. What a
failure of a coordinator costs (figure 9) is measured by `forest_faults.py`.

As root on Linux. Results go to bench/results/<date>-forest.{md,json}.
"""

import contextlib
import shutil
import subprocess
import tempfile
import threading
import time

import ensembles
import measure
import readers
import report
import servers
import wires

FORESTS = {"stoa": (5, 5), "stoa 3-3": (3, 3)}
STAR, PEER = "stoa star", "zookeeper"
KINDS = [PEER, STAR, *FORESTS]
PARTS = ["sets", "broadcast", "leader", "latency", "readers", "join", "lag"]
TITLES = {
    "sets": "Sets of 1 KiB, clients at all servers (figure 6)",
    "broadcast": "Sets of 1 KiB, clients at the leader alone (figure 7)",
    "leader": "The leader is killed (figure 8)",
    "latency": "One client that creates znodes of 1 KiB, one after the other (figure 10)",
    "readers": "Readers below the members that do not lead",
    "join": "Servers join at once, at half of the sets that the others can take",
    "lag": "A server comes back that lacks more than the logs hold, at half of the sets that the others can take",
}
# Who feeds those that join: one of the others, before they are in the list of servers, or the leader, when they are.
FEEDERS = {"neighbours": ["--join"], "the leader": []}
# Who gives a server its snapshot that lacks more than the logs hold.
GIVERS = {"a neighbour": "true", "the leader": "false"}
CLIENT_PORT, PEER_PORT, ELECTION_PORT = 2181, 2888, 3888
# Fifty of them share the machine.
HEAP = ["-Xms48m", "-Xmx160m", "-XX:+UseSerialGC", "-Xss512k"]
# ZooKeeper writes 64 MiB ahead if it is not told otherwise, here in memory.
SETTINGS = {PEER: "preAllocSize=1024\nsnapCount=1000000\n"}
# Where servers join.
CHANGES = "reconfigEnabled=true\nskipACL=yes\n"
# On a network that is this machine's alone.
SECRET = ["--peer-secret", "of the measured"]
NO_LIMIT = "none"
PAYLOAD = 1024


class Machine(ensembles.Member):
    """A server in a network namespace of its own."""

    def __init__(self, kind, number, ports, heap, flags):
        super().__init__(kind, number, ports, heap, flags)
        self.host = wires.host(number)

    def command(self):
        return [*wires.inside(wires.machine(self.number)), *super().command()]


class Ensemble(ensembles.Ensemble):
    MEMBER = Machine

    def __init__(self, name, size, changes, readers_max=0):
        self.name, self.changes = name, changes
        flags = [*SECRET, "--forest-servers-min", "0"]
        if name in FORESTS:
            trees, children = FORESTS[name]
            flags = [*SECRET, "--forest-trees", trees, "--forest-children", children]
        flags += ["--max-readers", readers_max]
        kind = PEER if name == PEER else "stoa"
        self.kind = kind
        self.flags = list(map(str, flags))
        self.members = [self.machine(number) for number in range(1, size + 1)]
        self.configure()

    def machine(self, number, flags=()):
        ports = (CLIENT_PORT, PEER_PORT, ELECTION_PORT)
        machine = Machine(self.kind, number, ports, HEAP, [*self.flags, *flags])
        machine.settings = SETTINGS.get(self.kind, "") + (CHANGES if self.changes else "")
        return machine

    @contextlib.contextmanager
    def newcomers(self, count, flags):
        """So many machines more, which are not started yet."""
        first = len(self.members) + 1
        newcomers = [self.machine(number, flags) for number in range(first, first + count)]
        try:
            for newcomer in newcomers:
                newcomer.configure([*self.members, newcomer])
            yield newcomers
        finally:
            for newcomer in newcomers:
                newcomer.stop(servers.signal.SIGKILL)
                shutil.rmtree(newcomer.folder, ignore_errors=True)

    def reconfigure(self, *change):
        """Asks for another list of servers, again while a change is under way."""
        command = [str(servers.STOA), "reconfig", "--server", measure.addresses(self.members), *change]
        deadline = time.monotonic() + ensembles.QUORUM_SECONDS_MAX
        while subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE).returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{command} is refused")
            time.sleep(0.2)

    def start_anew(self, *flags):
        """Stops all and starts them with these flags besides."""
        for member in self.members:
            member.stop()
            member.flags = [*self.flags, *flags]
        self.launch()
        self.wait_in_quorum()

    def limit(self, rate):
        for member in self.members:
            wires.limit(member.number, rate)


def snapshots_sent(member):
    """How many snapshots a server has sent to others."""
    words = dict(line.split(None, 1) for line in servers.ask(member.port, "mntr", member.host).splitlines() if "\t" in line)
    return int(words["zk_snap_count"])


class Run(measure.Samples):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.seconds = 2 if args.quick else args.seconds

    def ensemble(self, name, size):
        began = time.monotonic()
        with Ensemble(name, size, "join" in self.args.parts, self.args.readers) as ensemble:
            print(f"{name}, {size} servers: ready after {time.monotonic() - began:.1f} s", flush=True)
            for rate in self.args.limits:
                ensemble.limit(None if rate == NO_LIMIT else rate)
                for part in self.args.parts:
                    if part in ("sets", "broadcast"):
                        self.sets(ensemble, part, rate)
                    elif rate == NO_LIMIT:
                        getattr(self, part)(ensemble)

    def note_at(self, part, ensemble, figure, value, rate=NO_LIMIT):
        self.note(f"{part}, limit {rate}, {len(ensemble.members)} servers: {figure}", ensemble.name, value)

    def sets(self, ensemble, part, rate):
        leader = ensemble.leader()
        targets = [leader] if part == "broadcast" else ensemble.members
        load = ["--op", "set", "--payload", PAYLOAD, "--sessions", self.args.sessions, "--pipeline", self.args.pipeline]
        measure.generate(None, targets, *load, "--warmup", 0, "--duration", self.seconds / 2)
        before, sent, clock = [readers.cpu_seconds(one) for one in ensemble.members], wires.sent(), time.monotonic()
        result = measure.generate(None, targets, *load, "--prepared", "--warmup", 0, "--duration", self.seconds)
        spent = [readers.cpu_seconds(one) - had for one, had in zip(ensemble.members, before)]
        now, operations = wires.sent(), result["operations"]
        seconds = time.monotonic() - clock
        size, packets = (new - old for new, old in zip(now[leader.number], sent[leader.number]))
        if ensemble.leader() is not leader:
            print("  another server leads now: the leader's figures say nothing", flush=True)
        of_leader = spent[ensemble.members.index(leader)]
        figures = {
            "sets/s": result["throughput"],
            "p50 ms": result["latency_us"]["set"]["p50"] / 1e3,
            "p99 ms": result["latency_us"]["set"]["p99"] / 1e3,
            "CPU of all servers, us an operation": sum(spent) / operations * 1e6,
            "CPU of the leader, us an operation": of_leader / operations * 1e6,
            "bytes that the leader sends, for each of data": size / (operations * PAYLOAD),
            "packets that the leader sends, an operation": packets / operations,
            "Mbit/s that the leader sends": size * 8 / seconds / 1e6,
        }
        for figure, value in figures.items():
            self.note_at(part, ensemble, figure, value, rate)

    def leader(self, ensemble):
        """The longest time without an acknowledged write, as clients see it that know all servers."""
        for _ in range(1 if self.args.quick else self.args.kills):
            leader = ensemble.leader()
            others = [member for member in ensemble.members if member is not leader]
            with ensembles.Probe(others) as probe:
                time.sleep(1)
                probe.mark("killed")
                leader.stop(servers.signal.SIGKILL)
                probe.wait_for_write()
                time.sleep(1)
                self.note_at("leader", ensemble, "no write for, ms", probe.mark("after")["longest_gap_ms"])
                leader.launch()
                ensemble.wait_in_quorum()

    def readers(self, ensemble):
        if ensemble.kind != PEER:
            readers.Part(self, ensemble, CLIENT_PORT).measure()

    def latency(self, ensemble):
        leader = ensemble.leader()
        at = [next(member for member in ensemble.members if member is not leader)]
        one = ["--op", "create-delete", "--payload", PAYLOAD, "--sessions", 1, "--pipeline", 1, "--duration", self.seconds]
        result = measure.generate(None, at, *one)
        self.note_at("latency", ensemble, "create, p50 ms", result["latency_us"]["create"]["p50"] / 1e3)
        self.note_at("latency", ensemble, "create, mean ms", result["latency_us"]["create"]["mean"] / 1e3)


    def join(self, ensemble):
        """How long it takes servers to join, and what the others and their clients notice of it."""
        if ensemble.kind == PEER:
            return
        leader, seconds = ensemble.leader(), self.seconds
        subprocess.run(measure.generator(None, "load", "--server", measure.addresses([leader]), "--znodes", self.args.znodes), check=True)
        load = ["--op", "set", "--payload", PAYLOAD, "--sessions", self.args.sessions, "--pipeline", self.args.pipeline]
        most = measure.generate(None, ensemble.members, *load, "--warmup", 0, "--duration", seconds)["throughput"]
        half = [*load, "--prepared", "--warmup", 0, "--rate", int(most / 2)]
        for feeder, flags in FEEDERS.items():
            before, sent = self.watched(ensemble, half, seconds, lambda: time.sleep(seconds))
            with ensemble.newcomers(self.args.joiners, flags) as newcomers:
                took = {}
                # Longer than that takes.
                during, sent_during = self.watched(
                    ensemble, half, 4 * seconds, lambda: self.have_them_join(ensemble, newcomers, feeder, took)
                )
                figures = {
                    "all have what the others have after, s": took.get("fed"),
                    "all vote after, s": took["vote"],
                    "p99 of the others' writes before, ms": before["latency_us"]["set"]["p99"] / 1e3,
                    "p99 of the others' writes meanwhile, ms": during["latency_us"]["set"]["p99"] / 1e3,
                    "Mbit/s that the leader sends before": sent,
                    "Mbit/s that the leader sends meanwhile": sent_during,
                }
                for figure, value in figures.items():
                    if value is not None:
                        self.note_at("join", ensemble, f"by {feeder}: {figure}", value)
                ensemble.reconfigure("-remove", ",".join(str(newcomer.number) for newcomer in newcomers))
            ensemble.wait_in_quorum()

    def lag(self, ensemble):
        """How long it takes a server to be there again, and what the others and their clients notice of it."""
        if ensemble.kind == PEER:
            return
        load = ["--op", "set", "--payload", PAYLOAD, "--sessions", self.args.sessions, "--pipeline", self.args.pipeline]
        load += ["--znodes", self.args.znodes]
        most = measure.generate(None, ensemble.members, *load, "--warmup", 0, "--duration", self.seconds)["throughput"]
        load += ["--prepared"]
        half = [*load, "--warmup", 0, "--rate", int(most / 2)]
        for giver, by_neighbours in GIVERS.items():
            ensemble.start_anew("--neighbour-snapshots", by_neighbours)
            before, sent = self.watched(ensemble, half, self.seconds, lambda: time.sleep(self.seconds))
            leader = ensemble.leader()
            lagging = next(member for member in ensemble.members if member is not leader)
            others = [member for member in ensemble.members if member is not lagging]
            lagging.stop(servers.signal.SIGKILL)
            measure.generate(None, others, *load, "--operations", self.args.znodes)
            sent_snapshots, took = snapshots_sent(leader), {}
            clock = time.monotonic()

            def come_back():
                lagging.launch()
                lagging.wait_in_quorum()
                took["serves"] = time.monotonic() - clock

            during, sent_during = self.watched(ensemble, half, self.seconds, come_back, others)
            figures = {
                "it serves after, s": took["serves"],
                "p99 of the others' writes before, ms": before["latency_us"]["set"]["p99"] / 1e3,
                "p99 of the others' writes meanwhile, ms": during["latency_us"]["set"]["p99"] / 1e3,
                "MB that the leader sends meanwhile": sent_during * took["serves"] / 8,
                "Mbit/s that the leader sends before": sent,
                "Mbit/s that the leader sends meanwhile": sent_during,
                "snapshots that the leader sends": snapshots_sent(leader) - sent_snapshots,
            }
            for figure, value in figures.items():
                self.note_at("lag", ensemble, f"given by {giver}: {figure}", value)

    def watched(self, ensemble, load, seconds, act, at=None):
        """Writes for so long, and does something at the same time; returns what the generator says, and how many Mbit/s
        the leader sent meanwhile."""
        leader, result = ensemble.leader(), {}
        writing = threading.Thread(
            target=lambda: result.update(measure.generate(None, at or ensemble.members, *load, "--duration", seconds))
        )
        sent, clock = wires.sent()[leader.number][0], time.monotonic()
        writing.start()
        act()
        size, took = wires.sent()[leader.number][0] - sent, time.monotonic() - clock
        writing.join()
        return result, size * 8 / took / 1e6

    def have_them_join(self, ensemble, newcomers, feeder, took):
        began = time.monotonic()
        for newcomer in newcomers:
            newcomer.launch()
        if feeder == "neighbours":
            for newcomer in newcomers:
                newcomer.wait_until(lambda: newcomer.mode() == "observer")
            took["fed"] = time.monotonic() - began
        lines = (f"server.{it.number}={it.host}:{it.peer_port}:{it.election_port}:participant;{it.port}" for it in newcomers)
        ensemble.reconfigure("-add", ",".join(lines))
        for newcomer in newcomers:
            newcomer.wait_in_quorum()
        took["vote"] = time.monotonic() - began


class Report:
    def __init__(self, run, stem):
        self.run, self.stem, self.medians = run, stem, run.medians()

    def figures(self, part, rate):
        """What was measured in a part, in the order in which it was."""
        begin = f"{part}, limit {rate}, "
        return list(dict.fromkeys(name.split(": ", 1)[1] for name in self.medians if name.startswith(begin)))

    def value(self, part, rate, size, figure, kind):
        return self.medians.get(f"{part}, limit {rate}, {size} servers: {figure}", {}).get(kind)

    def table(self, part, rate, figure):
        kinds = [kind for kind in KINDS if kind in self.run.args.kinds]
        rows = [f"| {figure} | " + " | ".join(kinds) + " |", "| --- |" + " ---: |" * len(kinds)]
        for size in self.run.args.servers:
            values = [self.value(part, rate, size, figure, kind) for kind in kinds]
            told = " | ".join("" if value is None else report.number(value) for value in values)
            rows.append(f"| {size} servers | {told} |")
        return "\n".join(rows)

    def plot(self, part, rate):
        """Figures of an ensemble by its size; how many readers there are is no size."""
        figure = self.figures(part, rate)[0]
        series = []
        for kind in self.run.args.kinds:
            points = [(size, self.value(part, rate, size, figure, kind)) for size in self.run.args.servers]
            series.append((kind, [(size, value) for size, value in points if value is not None], kind == PEER))
        path = self.stem.with_name(f"{self.stem.name}-{part}-{rate}.svg")
        series = [line for line in series if line[1]]
        report.plot_lines(path, f"{part}, limit {rate}", "servers", figure, series, y_log=10)
        return f"![{part}]({path.name})"

    def text(self):
        said = [f"# Big ensembles\n\n{__doc__.split(chr(10) * 2, 2)[1]}"]
        for part in self.run.args.parts:
            said.append(f"## {TITLES[part]}")
            for rate in self.run.args.limits:
                if figures := self.figures(part, rate):
                    what = "Without a limit." if rate == NO_LIMIT else f"Each server sends at most {rate}."
                    said += [what, *(self.table(part, rate, figure) for figure in figures)]
                    said += [] if part == "readers" else [self.plot(part, rate)]
        return "\n\n".join(said) + "\n"


def main():
    parser = measure.arguments(__doc__.splitlines()[0])
    numbers = lambda text: [int(number) for number in text.split(",")]
    parser.add_argument("--servers", type=numbers, default=[3, 15, 50], help="sizes of ensembles (3,15,50)")
    parser.add_argument("--kinds", type=measure.some_of(KINDS), default=KINDS)
    parser.add_argument("--parts", type=measure.some_of(PARTS), default=[part for part in PARTS if part not in ("readers", "lag")])
    parser.add_argument("--limits", type=lambda text: text.split(","), default=[NO_LIMIT, "100mbit"])
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--pipeline", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--kills", type=int, default=3, help="how often the leader is killed at each turn (3)")
    parser.add_argument("--readers", type=int, default=100, help="how many of them are below an ensemble (100)")
    parser.add_argument("--fan-out", type=int, default=5, help="how many are below each member that does not lead (5)")
    parser.add_argument("--rate", type=int, default=20, help="writes a second of the one writer above readers (20)")
    parser.add_argument("--znodes", type=int, default=100_000, help="znodes that those who join, or come back, are given (100,000)")
    parser.add_argument("--joiners", type=int, default=10, help="servers that join at once (10)")
    parser.add_argument("--suffix", default="", help="behind the names of the results")
    args = parser.parse_args()
    if args.quick:
        args.servers, args.joiners = args.servers[:1], min(args.joiners, 4)
    # Before the network is one that leads nowhere.
    measure.prepare(args)
    more = [args.readers] * ("readers" in args.parts) + [args.joiners] * ("join" in args.parts)
    if not wires.within(max(args.servers) + max(more, default=0)):
        return
    tempfile.tempdir = "/dev/shm"
    facts, run = measure.watched_machine(), Run(args)
    for _ in range(1 if args.quick else args.alternations or 1):
        for size in args.servers:
            for name in args.kinds:
                run.ensemble(name, size)
    if args.quick:
        return
    stem = measure.stem(args, f"-forest{args.suffix}")
    text = Report(run, stem).text()
    report.write(stem, text, {"machine": facts()}, run.samples, run.medians(), servers.commands)
    print(f"written: {stem}.md")


if __name__ == "__main__":
    main()
