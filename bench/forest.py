#!/usr/bin/env python3
"""Big ensembles with a forest and without one, beside Apache ZooKeeper: figures 6 to 8 and 10 of the paper on Giraffe.

Each server is a process in a network namespace of its own; with a limit it sends no more than so many bits a second, as a
machine with such a line would. Data are in memory (/dev/shm), and all servers and the generator share the processors of one
machine: without a limit it is the machine that is full, and the more servers there are, the less each has of it. What a
failure of a coordinator costs (figure 9) is measured by `forest_faults.py`.

As root on Linux. Results go to bench/results/<date>-forest.{md,json}.
"""

import tempfile
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
PARTS = ["sets", "broadcast", "leader", "latency", "readers"]
TITLES = {
    "sets": "Sets of 1 KiB, clients at all servers (figure 6)",
    "broadcast": "Sets of 1 KiB, clients at the leader alone (figure 7)",
    "leader": "The leader is killed (figure 8)",
    "latency": "One client that creates znodes of 1 KiB, one after the other (figure 10)",
    "readers": "Readers below the members that do not lead",
}
CLIENT_PORT, PEER_PORT, ELECTION_PORT = 2181, 2888, 3888
# Fifty of them share the machine.
HEAP = ["-Xms48m", "-Xmx160m", "-XX:+UseSerialGC", "-Xss512k"]
# ZooKeeper writes 64 MiB ahead if it is not told otherwise, here in memory.
SETTINGS = {PEER: "preAllocSize=1024\nsnapCount=1000000\n"}
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

    def __init__(self, name, size, readers_max=0):
        self.name = name
        flags = ["--forest-servers-min", "0"]
        if name in FORESTS:
            trees, children = FORESTS[name]
            flags = ["--forest-trees", trees, "--forest-children", children]
        flags += ["--max-readers", readers_max]
        kind = PEER if name == PEER else "stoa"
        self.kind = kind
        ports = (CLIENT_PORT, PEER_PORT, ELECTION_PORT)
        self.members = [Machine(kind, number, ports, HEAP, map(str, flags)) for number in range(1, size + 1)]
        for member in self.members:
            member.settings = SETTINGS.get(kind, "")
        self.configure()

    def limit(self, rate):
        for member in self.members:
            wires.limit(member.number, rate)


class Run(measure.Samples):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.seconds = 2 if args.quick else args.seconds

    def ensemble(self, name, size):
        began = time.monotonic()
        with Ensemble(name, size, self.args.readers) as ensemble:
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


class Report:
    def __init__(self, run, stem):
        self.run, self.stem, self.medians = run, stem, run.medians()

    def figures(self, part, rate):
        """What was measured in a part, in the order in which it was."""
        begin = f"{part}, limit {rate}, "
        return list(dict.fromkeys(name.split(": ")[1] for name in self.medians if name.startswith(begin)))

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
    parser.add_argument("--parts", type=measure.some_of(PARTS), default=[part for part in PARTS if part != "readers"])
    parser.add_argument("--limits", type=lambda text: text.split(","), default=[NO_LIMIT, "100mbit"])
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--pipeline", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--kills", type=int, default=3, help="how often the leader is killed at each turn (3)")
    parser.add_argument("--readers", type=int, default=100, help="how many of them are below an ensemble (100)")
    parser.add_argument("--fan-out", type=int, default=5, help="how many are below each member that does not lead (5)")
    parser.add_argument("--rate", type=int, default=20, help="writes a second of the one writer above readers (20)")
    parser.add_argument("--suffix", default="", help="behind the names of the results")
    args = parser.parse_args()
    if args.quick:
        args.servers = args.servers[:1]
    # Before the network is one that leads nowhere.
    measure.prepare(args)
    below = args.readers if "readers" in args.parts else 0
    if not wires.within(max(args.servers) + below):
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
