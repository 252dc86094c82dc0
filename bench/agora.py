#!/usr/bin/env python3
"""The experiments of the AGORA paper: Stoa with one and several partitions beside Apache ZooKeeper.

Results go to bench/results/<date>-agora.{json,md} with plots beside them.
"""

import contextlib
import math
import os
import pathlib
import re
import tempfile
import urllib.request

import measure
import prediction
import report
import servers
import shift
from ensembles import Ensemble, pin
from servers import Server

# In this order: in servers that had been through `switch`, local work cost up to twice what it costs in new ones. It is
# not known why; nothing had been moved in a shorter run of the same.
PARTS = ["size", "latency", "cpu", "cores", "switch", "shift"]
# So that each of 1, 2, 4 or 8 partitions has as many.
TOPS = 16
PEER = "zookeeper"
OPS = ["get", "set"]
SIZES = [8, 64, 256, 1024]
PARTITIONS = [1, 2, 4, 8]
# Sessions and requests outstanding of each, from little load to much.
LOADS = [(1, 1), (4, 1), (16, 1), (64, 1), (64, 4), (64, 16), (64, 64)]
FULL = (32, 64)
# The paper has up to 500 clients.
SWITCHING = (500, 16)
# Where the peer is at its best.
PEER_SHAPES = [FULL, (64, 64), SWITCHING]
STAYS = [2**power for power in range(11)]
CORES = [1, 2, 4, 8, 16, 24, 32]
# Sessions for each partition, and in all, of work that stays on its thread.
LOCAL_EACH = [4, FULL[0]]
LOCAL_IN_ALL = [FULL[0], FULL[0] * PARTITIONS[-1]]
# What a partition's thread has of a core where one and two are compared: the generator, on the same two cores,
# then has enough for both.
SHARE = 0.35


class Size:
    """How long and how often everything is."""

    def __init__(self, quick):
        self.warmup_jvm = 2 if quick else 20
        self.warmup = 0.1 if quick else 0.5
        self.duration = 0.2 if quick else 1.5
        self.turns = {"size": 2, "latency": 1, "switch": 9, "stays": 3, "cpu": 9, "cores": 5, "shift": 2}
        if quick:
            self.turns = dict.fromkeys(self.turns, 1)
        # As in the paper.
        self.shifts, self.shifting = ([1, 3], 5) if quick else ([10, 30, 50], 70)


def name_of(partitions):
    return "1 partition" if partitions == 1 else f"{partitions} partitions"


class System:
    """A server, or an ensemble of three, of one kind and with so many partitions."""

    def __init__(self, kind, partitions, ensemble):
        flags = ["--partitions", str(partitions)] if kind == "stoa" else []
        self.partitions = partitions
        self.name = PEER if kind == PEER else name_of(partitions)
        self.made = Ensemble(kind, flags=flags) if ensemble else Server(kind, None, flags=flags)
        # Bytes of data that its znodes have.
        self.payload = None

    def targets(self, op):
        """Who gets the sessions. As in the paper, reads are measured at one server and writes at all."""
        members = getattr(self.made, "members", [self.made])
        return members[:1] if op == "get" else members

    def pids(self):
        return [member.process.pid for member in self.targets("set")]


class Run(measure.Samples):
    def __init__(self, args):
        super().__init__()
        self.parts = args.parts
        self.ensemble = args.servers == 3
        self.size = Size(args.quick)
        if args.alternations:
            self.size.turns = dict.fromkeys(self.size.turns, args.alternations)
        self.cores = len(os.sched_getaffinity(0))
        # Throughput while the load shifts, of the last turn, by operation and kind of server.
        self.over_time = {}

    @contextlib.contextmanager
    def systems(self):
        """All of them, stopped, the JVM warm."""
        with contextlib.ExitStack() as stack:
            made = [System(PEER, 1, self.ensemble)]
            made += [System("stoa", partitions, self.ensemble) for partitions in PARTITIONS]
            for system in made:
                stack.enter_context(system.made)
                if system.name == PEER:
                    for op in ["mixed", "create-delete"]:
                        seconds = ["--duration", self.size.warmup_jvm / 2]
                        mix = ["--mix", "get=50,set=50"]
                        measure.generate(None, system.targets("set"), "--op", op, *mix, *seconds)
                system.made.pause()
            yield {system.name: system for system in made}

    def turns(self, part, systems):
        """The systems one at a time, while the others are stopped, as often as the part wants it."""
        for _ in range(self.size.turns[part]):
            yield from self.once(systems)

    def once(self, systems):
        for system in systems:
            system.made.resume()
            yield system
            system.made.pause()

    def load(self, system, op, payload, shape, *where, core=None):
        """Loads a system that runs; returns the generator's report."""
        sessions, pipeline = shape
        options = ["--op", op, "--payload", payload, "--sessions", sessions, "--pipeline", pipeline]
        options += ["--znodes", 100, "--tops", TOPS, "--partitions", system.partitions, *where]
        options += ["--warmup", self.size.warmup, "--duration", self.size.duration]
        if system.payload == payload:
            options.append("--prepared")
        result = measure.generate(core, system.targets(op), *options)
        system.payload = payload
        return result

    def sizes(self, systems):
        """Figures 6 and 7."""
        for payload in SIZES:
            for op in OPS:
                for system in self.turns("size", systems.values()):
                    result = self.load(system, op, payload, FULL, "--local")
                    self.note(f"{op} {payload} B ops/s", system.name, result["throughput"])
                    cpu = result["server"]["cpu_us_per_operation"]
                    self.note(f"{op} {payload} B cpu us", system.name, cpu)

    def latencies(self, systems):
        """Figure 8."""
        chosen = [systems[name] for name in [PEER, *map(name_of, [1, 2, 4])]]
        for op in OPS:
            for sessions, pipeline in LOADS:
                for system in self.turns("latency", chosen):
                    result = self.load(system, op, 8, (sessions, pipeline), "--local")
                    title = f"{op}, {sessions} x {pipeline}"
                    self.note(f"{title}: ops/s", system.name, result["throughput"])
                    for percentile in ["p50", "p99"]:
                        us = result["latency_us"][op][percentile]
                        self.note(f"{title}: {percentile} us", system.name, us)

    def switches(self, systems):
        """Figure 9. The peer's best is looked for in each turn: what the machine gives changes in minutes."""
        several = [systems[name_of(partitions)] for partitions in PARTITIONS[1:]]
        for op in OPS:
            for turn in range(self.size.turns["switch"]):
                best = 0
                for system in self.once([systems[PEER]]):
                    for shape in PEER_SHAPES:
                        best = max(best, self.load(system, op, 8, shape)["throughput"])
                self.note(f"{op}, best of the peer: ops/s", PEER, best)
                # Most turns are for the worst case alone.
                stays = STAYS if turn < self.size.turns["stays"] else STAYS[:1]
                for stay in stays:
                    for system in self.once(several):
                        result = self.load(system, op, 8, SWITCHING, "--stay", stay)
                        self.note(f"{op}, {stay} on the same: ops/s", system.name, result["throughput"])

    def cpu(self, _):
        """CPU time per operation of work that stays on its thread; one server on a core of its own, and a new one in
        each turn: from one process to the next an operation costs up to a tenth more or less."""
        for op in OPS:
            for _ in range(self.size.turns["cpu"]):
                for partitions in PARTITIONS:
                    system = System("stoa", partitions, self.ensemble)
                    with system.made:
                        self.local_cpu(system, op)

    def local_cpu(self, system, op):
        cores = sorted(os.sched_getaffinity(0))
        own = {cores[0]} if not self.ensemble and len(cores) > 1 else set(cores)
        for pid in system.pids():
            pin(pid, own)
        generator = None if own == set(cores) else cores[-1]
        counts = {each * system.partitions for each in LOCAL_EACH} | set(LOCAL_IN_ALL)
        for sessions in sorted(counts):
            result = self.load(system, op, 8, (sessions, FULL[1]), "--local", core=generator)
            us = result["server"]["cpu_us_per_operation"]
            self.note(f"{op} cpu us, local, {sessions} sessions", system.name, us)

    def all_cores(self, systems):
        """One and two partitions on all cores, and where the time goes: what the prediction is made from."""
        one, two = systems[name_of(1)], systems[name_of(2)]
        for op in OPS:
            for system in self.turns("cores", [systems[PEER], one, two]):
                places = ["local", "remote"] if system.partitions > 1 else ["local"]
                for place in places:
                    with Inside(system) as inside:
                        result = self.load(system, op, 8, FULL, f"--{place}")
                    self.note_inside(f"{op}, {place}", system, result, inside)
        for system in self.turns("cores", [one]):
            with Inside(system) as inside:
                self.load(system, "set", 8, (1, 1), "--local")
            self.note_log("set, alone", inside)
        self.shares()

    def shares(self):
        """One and two partitions whose threads have the same share of a core each."""
        for op in OPS:
            for partitions in [1, 2] * self.size.turns["cores"]:
                with Server("stoa", None, flags=["--partitions", str(partitions)]) as server:
                    shift.share_cores(server, SHARE)
                    options = ["--op", op, "--payload", 8, "--sessions", 2 * FULL[0], "--pipeline", FULL[1]]
                    options += ["--znodes", 100, "--tops", TOPS, "--partitions", partitions, "--local"]
                    options += ["--warmup", self.size.warmup, "--duration", self.size.duration]
                    result = measure.generate(None, [server], *options)
                name = name_of(partitions)
                self.note(f"{op}, shares: ops/s", name, result["throughput"])
                self.note(f"{op}, shares: server cores", name, result["server"]["cpu_cores"])

    def note_inside(self, title, system, result, inside):
        server = result["server"]
        seconds = result["elapsed_s"]
        generator_us = result["generator_cpu_us_per_operation"]
        self.note(f"{title}: ops/s", system.name, result["throughput"])
        self.note(f"{title}: server cores", system.name, server["cpu_cores"])
        self.note(f"{title}: generator us", system.name, generator_us)
        self.note(f"{title}: generator cores", system.name, generator_us * result["operations"] / seconds / 1e6)
        self.note(f"{title}: server us", system.name, server["cpu_us_per_operation"])
        if system.name != PEER:
            partitions_us = server["cpu_us_per_operation"] * (1 - inside.share("log"))
            self.note(f"{title}: partitions us", system.name, partitions_us)
            if title.startswith("set"):
                self.note_log(f"{title}, {system.name}", inside)

    def note_log(self, title, inside):
        if not inside.figures["batches"]:
            raise RuntimeError(f"{title}: nothing was stored")
        for what, value in inside.log().items():
            self.note(f"{title}: {what}", "log", value)

    def load_shifts(self, _):
        """Figure 10, each time with a server that has not moved anything yet."""
        for op in OPS:
            for partitions in shift.PARTITIONS:
                for is_balanced in [False] + [True] * self.size.turns["shift"]:
                    name = shift.name_of(partitions, is_balanced)
                    figures, series = shift.run(partitions, op, is_balanced, self.size.shifts, self.size.shifting)
                    for what, value in figures.items():
                        self.note(f"{op}, {what}", name, value)
                    self.over_time[op, name] = series

    def all(self):
        works = [self.sizes, self.latencies, self.cpu, self.all_cores, self.switches, self.load_shifts]
        with self.systems() as systems:
            for part, work in zip(PARTS, works):
                if part in self.parts:
                    print(f"== {part}", flush=True)
                    work(systems)


class Inside:
    """What a server's threads and its log do during `with`."""

    METRICS = {
        "batches": "stoa_log_append_seconds_count",
        "seconds": "stoa_log_append_seconds_sum",
        "updates": "stoa_log_updates_total",
        "bytes": "stoa_log_written_bytes_total",
    }

    def __init__(self, system):
        self.server = system.made
        self.is_stoa = system.name != PEER

    def __enter__(self):
        self.before = self._now() if self.is_stoa else None
        return self

    def __exit__(self, failed, *_):
        if self.is_stoa and not failed:
            (threads, figures), (threads_before, figures_before) = self._now(), self.before
            self.threads = {name: ns - threads_before.get(name, 0) for name, ns in threads.items()}
            self.figures = {name: value - figures_before[name] for name, value in figures.items()}

    def _now(self):
        threads = {}
        for task in pathlib.Path(f"/proc/{self.server.process.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError):
                name = (task / "comm").read_text().strip()
                threads[name] = threads.get(name, 0) + int((task / "schedstat").read_text().split()[0])
        url = f"http://127.0.0.1:{self.server.admin_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines()]
        values = {line[0]: line[1] for line in lines if len(line) == 2}
        return threads, {name: float(values[metric]) for name, metric in self.METRICS.items()}

    def share(self, thread):
        """The part of all CPU time that a thread took."""
        return self.threads.get(thread, 0) / sum(self.threads.values())

    def log(self):
        batches = self.figures["batches"]
        return {
            "updates a batch": self.figures["updates"] / batches,
            "us a batch": self.figures["seconds"] / batches * 1e6,
            "cpu us a batch": self.threads["log"] / batches / 1e3,
            "bytes an update": self.figures["bytes"] / max(1, self.figures["updates"]),
        }


def measured_costs(medians, op, partitions):
    """What the model is fed with. A partition that is not the only one costs what one of two does."""
    one, two = name_of(1), name_of(2)
    own = one if partitions == 1 else two
    kept = medians[f"{op}, local: partitions us"]
    hand_over = max(0.0, medians[f"{op}, remote: partitions us"][two] - kept[two])
    costs = prediction.Costs(kept[own], hand_over, medians[f"{op}, local: generator us"][own])
    if op == "set":

        def point(title, what):
            return tuple(medians[f"{title}: {key}"]["log"] for key in ["updates a batch", what])

        alone, full = "set, alone", f"set, local, {own}"
        costs.log_time = prediction.Line.through(point(alone, "us a batch"), point(full, "us a batch"))
        costs.log_cpu = prediction.Line.through(point(alone, "cpu us a batch"), point(full, "cpu us a batch"))
        costs.batch_max = round((1 << 20) / medians[f"{full}: bytes an update"]["log"])
    return costs


def checked(medians, op, cores):
    """[(what, the model's throughput, the measured one)] for what was measured, generator and all."""
    points = []
    for place, partitions in [("local", 1), ("local", 2), ("remote", 2)]:
        load = prediction.Load(*FULL, {"local": "kept", "remote": "apart"}[place])
        costs = measured_costs(medians, op, partitions)
        model = prediction.throughput(costs, load, partitions, cores, with_generator=True)
        measured = medians[f"{op}, {place}: ops/s"][name_of(partitions)]
        points.append((f"{op}, {name_of(partitions)}, {place}", model, measured))
    return points


def predicted(medians, op, place):
    """[(cores, throughput)], a partition a core, a generator elsewhere, and as much load for each."""
    points = []
    for cores in CORES:
        load = prediction.Load(FULL[0] * cores, FULL[1], place)
        costs = measured_costs(medians, op, cores)
        points.append((cores, prediction.throughput(costs, load, cores, cores)))
    return points


def lines(head, rows):
    """A table: the first column is text."""
    out = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    for title, *values in rows:
        texts = [report.number(value) if isinstance(value, (int, float)) else value for value in values]
        out.append(f"| {title} | {' | '.join(texts)} |")
    return "\n".join(out)


class Results:
    """Tables and plots of a run."""

    def __init__(self, run, stem):
        self.medians = run.medians()
        self.run, self.stem = run, stem
        self.names = [*map(name_of, PARTITIONS), PEER]
        self.sections = []

    def plot(self, name, *what, **axes):
        path = self.stem.with_name(f"{self.stem.name}-{name}.svg")
        report.plot_lines(path, *what, **axes)
        return f"![{name}]({path.name})"

    def section(self, part, title, *paragraphs):
        options = " --servers 3" if self.run.ensemble else ""
        command = f"```\npython3 bench/agora.py --parts {part}{options}\n```"
        self.sections.append("\n\n".join([f"## {title}", *paragraphs, command]))

    def sizes(self):
        said = []
        for what, unit in [("ops/s", "operations a second"), ("cpu us", "CPU time of the servers per operation, us")]:
            rows = []
            for op in OPS:
                for payload in SIZES:
                    values = self.medians[f"{op} {payload} B {what}"]
                    rows.append([f"{op} {payload} B", *(values[name] for name in self.names)])
            said.append(lines([unit, *self.names], rows))
        for op in OPS:
            series = []
            for payload in SIZES:
                values = self.medians[f"{op} {payload} B ops/s"]
                of = [(partitions, values[name_of(partitions)]) for partitions in PARTITIONS]
                series.append((f"{payload} B", of, False))
                series.append((f"{payload} B, ZooKeeper", [(x, values[PEER]) for x in PARTITIONS], True))
            title = f"Throughput of {op}s"
            axes = ["partitions", "operations a second", series]
            said.append(self.plot(f"{op}s-by-size", title, *axes, x_log=2))
        intro = "Sessions are connected to the threads that have their znodes, as the paper's clients are. Nothing is pinned: what is beyond as many partitions as there are cores costs switches between threads and cannot gain anything here."
        self.section("size", "Throughput by size and partitions (Figures 6 and 7)", intro, *said)

    def latencies(self):
        names = [PEER, *map(name_of, [1, 2, 4])]
        rows, plots = [], []
        for op in OPS:
            series = []
            for name in names:
                for percentile in ["p50", "p99"]:
                    of = []
                    for sessions, pipeline in LOADS:
                        title = f"{op}, {sessions} x {pipeline}"
                        of.append(tuple(self.medians[f"{title}: {key}"][name] for key in ["ops/s", f"{percentile} us"]))
                    series.append((f"{name}, {percentile}", of, percentile == "p99"))
            for sessions, pipeline in LOADS:
                title = f"{op}, {sessions} x {pipeline}"
                for name in names:
                    values = [self.medians[f"{title}: {key}"][name] for key in ["ops/s", "p50 us", "p99 us"]]
                    rows.append([f"{title}: {name}", *values])
            axes = ["operations a second", "latency, us", series]
            plots.append(self.plot(f"{op}s-latency", f"Latency of {op}s of 8 B", *axes, x_log=10, y_log=10))
        table = lines(["sessions x outstanding", "operations a second", "p50 us", "p99 us"], rows)
        self.section("latency", "Latency against throughput (Figure 8)", table, *plots)

    def switches(self):
        names = [name_of(partitions) for partitions in PARTITIONS[1:]]
        rows, plots, targets = [], [], []
        for op in OPS:
            best = self.best_of_peer(op)
            series = [(name, [(stay, self.medians[f"{op}, {stay} on the same: ops/s"][name]) for stay in STAYS], False) for name in names]
            series.append(("ZooKeeper's best", [(stay, best) for stay in STAYS], True))
            for stay in STAYS:
                values = self.medians[f"{op}, {stay} on the same: ops/s"]
                rows.append([f"{op}, {stay}", *(values[name] for name in names), best])
            axes = ["requests on a partition before the next one", "operations a second", series]
            plots.append(self.plot(f"{op}s-switching", f"{op}s of 8 B", *axes, x_log=2))
            for name in names:
                worst = f"{op}, 1 on the same: ops/s"
                title = f"{op}, each request on another partition, {name}, beside ZooKeeper's best of the same turn"
                peer = f"{op}, best of the peer: ops/s"
                turns = list(zip(self.run.samples[worst][name], self.run.samples[peer][PEER]))
                figures = self.medians[worst][name], self.medians[peer][PEER]
                targets.append(report.Pairs(title, "at least 3x", *figures, "/s", 3, True, turns))
        table = lines(["requests before switching", *names, "ZooKeeper's best"], rows)
        shape = f"{SWITCHING[0]} sessions, {SWITCHING[1]} outstanding each, 8 B. ZooKeeper knows no partitions; its best is the most that it reached with 8 B anywhere in this run. In the second table it is that of the same turn, the best of {', '.join(f'{sessions} x {pipeline}' for sessions, pipeline in PEER_SHAPES)}; ratios are medians of those within {self.run.size.turns['switch']} turns."
        self.section("switch", "Consecutive requests on the same partition (Figure 9)", shape, table, report.table(targets), *plots)

    def best_of_peer(self, op):
        """The most that the peer reached with 8 B in any load of this run."""
        starts = (f"{op} 8 B ops/s", f"{op}, ")
        samples = [
            value
            for name, by_kind in self.run.samples.items()
            if name.startswith(starts) and name.endswith("ops/s")
            for value in by_kind.get(PEER, [])
        ]
        return max(samples)

    def cpu(self):
        def value(op, partitions, sessions):
            return self.medians[f"{op} cpu us, local, {sessions} sessions"][name_of(partitions)]

        def rows(title, sessions_of):
            for op in OPS:
                for count in PARTITIONS[1:]:
                    ours, other = value(op, count, sessions_of(count)), value(op, 1, sessions_of(1))
                    name = f"{op} 8 B, {title}: CPU per operation, {name_of(count)} beside one"
                    yield report.Row(name, "at most 1.15x", ours, other, "us", 1.15)

        targets = [
            row
            for each in LOCAL_EACH
            for row in rows(f"{each} sessions for each partition", lambda count, each=each: each * count)
        ]
        divided = [
            row for sessions in LOCAL_IN_ALL for row in rows(f"{sessions} sessions in all", lambda _, all=sessions: all)
        ]
        where = "All servers and the generator share the cores." if self.run.ensemble else "The server has one core to itself and the generator another."
        intro = f"{where} Each session is connected to the thread that has its znodes. \"Other\" is Stoa with one partition, which has as many sessions as each of several."
        apart = "And with the same sessions divided among the partitions: of few, each partition has very few, and turns and batches are as small as those of one partition that has no more."
        self.section("cpu", "CPU time of partition-local work", intro, report.table(targets), apart, report.table(divided))

    def all_cores(self):
        rows, targets = [], []
        cores = self.run.cores
        for op in OPS:
            for place, name in [("local", name_of(1)), ("local", name_of(2)), ("remote", name_of(2)), ("local", PEER)]:
                ops, server, generator, us = (
                    self.medians[f"{op}, {place}: {what}"][name]
                    for what in ["ops/s", "server cores", "generator cores", "server us"]
                )
                title = f"{op}, {name}" + (f", {place}" if name == name_of(2) else "")
                rows.append([title, ops, server, generator, 1e6 / us])
            one, two = (self.medians[f"{op}, shares: ops/s"][name_of(partitions)] for partitions in [1, 2])
            targets.append(report.Row(f"{op}: 2 partitions beside 1", "at least 1.7x", two, one, "/s", 1.7, True))
        intro = f"""The threads of partitions have {SHARE:.0%} of a core each (`chrt --deadline`), on any of the {cores} cores, and the generator on the same cores has enough for both: {2 * FULL[0]} sessions, {FULL[1]} outstanding each, connected to the threads that have their znodes. \"Other\" is Stoa with one partition."""
        self.section("cores", "Two partitions and one, as much of a core for each", intro, report.table(targets))
        head = ["8 B", "operations a second", "server, cores", "generator, cores", "operations per CPU second of the server"]
        intro = f"""Servers and generator share {cores} cores and nothing is bounded. With gets the generator alone needs more than half as much time as the server, so two partitions are short of requests: they wait, are woken for a few at a time, and spend more on each. Local sessions work on the thread that they are connected to, remote ones elsewhere."""
        self.section("cores", "All threads and the generator on all cores", intro, lines(head, rows))
        self.prediction()

    def prediction(self):
        rows, checks, said, plots = [], [], [], []
        for op in OPS:
            for partitions in [1, 2]:
                costs = measured_costs(self.medians, op, partitions)
                said.append(f"- {op}, {name_of(partitions)}: {spoken(costs)}")
            for what, model, measured in checked(self.medians, op, self.run.cores):
                checks.append([what, model, measured, f"{model / measured - 1:+.0%}"])
            ceiling = self.best_of_peer(op)
            curves = {place: predicted(self.medians, op, place) for place in ["kept", "spread"]}
            for index, cores in enumerate(CORES):
                rows.append([f"{op}, {cores}", curves["kept"][index][1], curves["spread"][index][1], ceiling])
            series = [(f"{place} (predicted)", curve, False) for place, curve in curves.items()]
            series.append(("ZooKeeper, measured", [(cores, ceiling) for cores in CORES], True))
            axes = ["cores, a partition on each (predicted)", "operations a second", series]
            plots.append(self.plot(f"{op}s-predicted", f"Prediction, not measured: {op}s of 8 B", *axes, x_log=2, y_log=10))
        intro = f"""**This is a prediction, not a measurement: no machine with more than {self.run.cores} cores was used.** `bench/prediction.py` is a model of a server's threads in discrete steps, which says what it leaves out. It is fed with these costs, as measured above, those of two partitions also for more (CPU time of the threads of partitions and log from `/proc`, batches from the server's metrics):"""
        check = "The same model of this machine, generator included, against what was measured:"
        after = f"And without a generator on the machine, a partition on each core, {FULL[0]} sessions of {FULL[1]} outstanding for each. Kept: each session works where it is connected; spread: on all partitions alike, so that all but one of as many requests as there are partitions are handed over. ZooKeeper's figure is the most that it reached here with {self.run.cores} cores shared with the generator; in the paper it gains nothing beyond 4 cores. Batches larger than the measured ones are assumed to go on as the measured ones do, up to the log's bound of 1 MiB."
        self.section(
            "cores", "Prediction for 1 to 32 cores", intro, "\n".join(said), check,
            lines(["", "model", "measured", "model beside measured"], checks), after,
            lines(["cores", "kept (predicted)", "spread (predicted)", "ZooKeeper (measured)"], rows), *plots,
        )

    def load_shifts(self):
        rows, targets, plots = [], [], []
        for op in OPS:
            series = []
            for partitions in shift.PARTITIONS:
                for is_balanced in [True, False]:
                    name = shift.name_of(partitions, is_balanced)
                    rows += self.shifted(op, name, is_balanced)
                    series.append((name, self.run.over_time[op, name], not is_balanced))
                targets += self.times_back(op, shift.name_of(partitions, True))
            axes = ["seconds", "operations a second", series]
            plots.append(self.plot(f"{op}s-shifting", f"{op}s of 8 B, load that shifts", *axes, dots=False))
        head = ["8 B", "before the first shift, /s", "in the half second after", "settled", "back after, s", "settled after, s", "equal after, s", "moves in all", "failed"]
        sessions, pipeline = shift.SHAPE
        intro = f"""{sessions} sessions, {pipeline} outstanding each, on {shift.TOPS} znodes right below the root with 100 below each: at first as many on each partition, and after {spoken_times(self.run.size.shifts)} s as many others that are all on one, another one each time. A server alone; each time one that has not moved anything yet. Partitions' threads have a share of a core each, the same whatever the others do: {shift.shares()}. With free threads two cores show nothing: what one thread leaves the others take.

Settled is the mean of the last quarter of the time until the next shift. Back: when the mean of half a second is for the first time at least {shift.BACK:.0%} of what it was before the shift, or of what it settles at then if that is less. Settled after: the same of what it settles at. What is asked of another thread costs more than what stays on one, and moves decide how much of it there is: so throughput may settle far above what it was, and where it goes up and down by itself it may do so late, though load has long been equal. Equal: from when on the busiest partition has at most {shift.EQUAL:g} times the mean to do, for at least {shift.EQUAL_SECONDS:g} s, as the server says itself (`stoa_load_imbalance`). Not balanced: `balance = false`. Failed: errors, and requests that were never answered, of all turns."""
        self.section("shift", "Load that shifts to one partition (Figure 10)", intro, lines(head, rows), report.table(targets), *plots)

    def shifted(self, op, name, is_balanced):
        """A row for each shift."""
        of = {what: self.medians[f"{op}, {what}"][name] for what in ["before, ops/s", "moves"]}
        failed = sum(self.run.samples[f"{op}, failed"][name])
        for number in range(1, len(self.run.size.shifts) + 1):
            after = [
                self.medians[f"{op}, shift {number}: {what}"][name]
                for what in ["at first, ops/s", "settled, ops/s", "back after, s", "settled after, s", "equal after, s"]
            ]
            if not is_balanced:
                after[2:] = ["", "", ""]
            after = ["never" if value == math.inf else value for value in after]
            yield [f"{op}, {name}, shift {number}", of["before, ops/s"], *after, of["moves"], failed]

    def times_back(self, op, name):
        """How long it took until throughput was back, over all shifts and turns."""
        numbers = range(1, len(self.run.size.shifts) + 1)
        times = [time for n in numbers for time in self.run.samples[f"{op}, shift {n}: back after, s"][name]]
        title = f"{op}, {name}: until throughput is back after a shift"
        yield report.Row(f"{title}, mean of {len(times)}", "under 2 s", sum(times) / len(times), None, "s", 2)
        yield report.Row(f"{title}, the longest", "under 2 s", max(times), None, "s", 2)

    def all(self):
        works = [self.sizes, self.latencies, self.cpu, self.all_cores, self.switches, self.load_shifts]
        for part, work in zip(PARTS, works):
            if part in self.run.parts:
                work()
        return "\n\n".join(self.sections)


def spoken_times(times):
    *first, last = map(str, times)
    return f"{', '.join(first)} and {last}"


def spoken(costs):
    text = f"{costs.kept:.3g} us where it stays, {costs.hand_over:.3g} us more where it is handed over"
    if costs.log_time:
        time, cpu = costs.log_time, costs.log_cpu
        text += f"; the log takes {time.fixed:.3g} us a batch and {time.each:.3g} us an update, of that {cpu.fixed:.3g} us and {cpu.each:.3g} us of CPU time; at most {costs.batch_max:,} updates a batch"
    return text + f"; the generator {costs.generator:.3g} us"


def commands():
    """Those of the generator and the servers, each once whatever the port."""
    seen = {}
    for command in servers.commands:
        command = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", command)
        command = re.sub(r"--(port|admin-port|server-pid) [\d,]+", r"--\1 N", command)
        seen[re.sub(r"/\S*/bench-(\w+)-\w+/", r"FOLDER-\1/", command)] = None
    return list(seen)


def main():
    parser = measure.arguments(__doc__.splitlines()[0])
    parser.add_argument("--parts", type=measure.some_of(PARTS), default=PARTS, help=",".join(PARTS))
    parser.add_argument("--servers", type=int, choices=[1, 3], default=1, help="a server alone, or an ensemble")
    args = parser.parse_args()
    if args.servers == 3:
        # What is inside is looked at in one server only.
        args.parts = [part for part in args.parts if part not in ["cores", "shift"]]
    if {"cores", "shift"} & set(args.parts):
        shift.check_machine()
    measure.prepare(args)
    run = Run(args)
    machine = measure.measured_machine(run.all)
    suffix = "-agora" if args.servers == 1 else "-agora-ensemble"
    if args.quick:
        with tempfile.TemporaryDirectory() as folder:
            print(Results(run, pathlib.Path(folder, f"quick{suffix}")).all())
        return
    stem = measure.stem(args, suffix)
    text = Results(run, stem).all()
    print(text)
    facts = {"machine": machine, "sizes": vars(run.size), "nice": args.nice}
    kinds = "servers that stand alone" if args.servers == 1 else "ensembles of three"
    turns = ", ".join(f"{part} {run.size.turns[part]}" for part in args.parts)
    date = stem.name.split("-agora")[0]
    whole = f"""# The AGORA paper's experiments, {kinds}, {date}

One run of `bench/agora.py` on one machine: Stoa with 1, 2, 4 and 8 partitions and Apache ZooKeeper, with the same `zoo.cfg`. Both sync every write before they answer it. Load by load they are measured one after the other, {run.size.duration} s each, while the others are stopped. Figures are medians of so many turns: {turns}.

{text}
"""
    report.write(stem, whole, facts, run.samples, run.medians(), commands())
    print(f"written: {stem}.md")


if __name__ == "__main__":
    main()
