#!/usr/bin/env python3
"""The experiments of the paper on extensions: recipes with programs inside Stoa beside those of ordinary requests.

Ensembles of three on loopback. Results go to bench/results/<date>-extensions.{json,md} with plots beside them.
"""

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import measure
import report
from agora import commands, lines
from ensembles import Ensemble
from servers import STOA, Server, shown


@dataclasses.dataclass
class Recipe:
    """What the clients do, in which figure, and what its steps are: the first is the throughput."""

    figure: int
    title: str
    steps: list
    # What the paper says of Extensible ZooKeeper beside ZooKeeper.
    paper: str = ""


RECIPES = {
    "counter": Recipe(6, "A counter", ["increment"], "20x in the paper"),
    "queue": Recipe(8, "A queue", ["remove", "add"], "17x in the paper"),
    "barrier": Recipe(10, "A barrier", ["enter"]),
    "election": Recipe(12, "Leader election", ["change"]),
}
PARTS = [*RECIPES, "regular", "greedy", "unmatched"]
PEER, PLAIN, EXTENDED = "ZooKeeper", "Stoa", "Stoa, extension"
# What is measured, with the kind of server and the form of the recipe.
SYSTEMS = {
    PEER: ("zookeeper", "traditional"),
    PLAIN: ("stoa", "traditional"),
    EXTENDED: ("stoa", "extension"),
}
CLIENTS = [1, 10, 20, 30, 40, 50]
# As in the paper: half of the regular clients read, half write.
REGULAR_EACH = 15
REGULAR_BYTES = 256
OPS = ["get", "set"]
PROGRAMS = 100
# A session may not have registered more of them.
PROGRAMS_OF_A_SESSION = 20
UNMATCHED = """on_operation("read", "/unmatched-{number}/*");
on_operation("update", "/unmatched-{number}/*");
on_event("changed", "/unmatched-{number}/*");

fn read(request) {{ return 1; }}
fn update(request) {{ }}
fn changed(event) {{ }}
"""
NONE, MANY = "none", f"{PROGRAMS} programs"
UNMATCHED_OPS = ["get", "set", "create-delete"]
OPS_BYTES = 100
UNMATCHED_SHAPE = ["--sessions", 32, "--pipeline", 64, "--payload", OPS_BYTES]
UNMATCHED_TARGET = 1.01
# What others ask while one client has calls stopped that take all steps they may have.
OTHERS = {"sessions": 20, "rate": 1000, "payload": 100}
ALONE, GREEDY = "others alone", "beside a greedy client"
GREEDY_TARGET = 1.2


class Size:
    """How long and how often everything is."""

    def __init__(self, quick):
        self.warmup_jvm = 2 if quick else 20
        self.warmup = 0.2 if quick else 1
        self.duration = 0.5 if quick else 2
        self.greedy = 1 if quick else 6
        self.alternations = 1 if quick else 3
        self.unmatched = 1 if quick else 9
        # How often instructions are counted, since batches are not always as large, and for how many operations: the
        # difference is what they take without the server's start.
        self.counts = 1 if quick else 3
        self.counted = (1000, 3000) if quick else (20_000, 220_000)
        self.clients = [1, 10] if quick else CLIENTS


class Run(measure.Samples):
    def __init__(self, args):
        super().__init__()
        self.parts = args.parts
        self.size = Size(args.quick)
        if args.alternations:
            self.size.alternations = args.alternations
        self.times = ["--warmup", self.size.warmup, "--duration", self.size.duration]
        self.finished = []
        self.done = 0
        self.began = time.monotonic()

    def turns_of(self, part):
        """How many measurements a part has."""
        counts = len(self.size.clients)
        each = {"regular": len(SYSTEMS) * (counts + 1), "greedy": 2}
        if part == "unmatched":
            return 2 * len(UNMATCHED_OPS) * (self.size.unmatched + self.size.counts)
        return self.size.alternations * each.get(part, len(SYSTEMS) * counts)

    def next_turn(self):
        """Says how far it is, by the time that the ones before have taken."""
        total = sum(self.turns_of(part) for part in self.parts)
        passed = time.monotonic() - self.began
        left = f", about {passed / self.done * (total - self.done) / 60:.0f} min left" if self.done else ""
        self.done += 1
        print(f"-- {self.done} of {total}{left}", flush=True)

    @contextlib.contextmanager
    def ensembles(self):
        """One of each kind, stopped, the JVM warm."""
        with contextlib.ExitStack() as stack:
            made = {}
            for kind in ["zookeeper", "stoa"]:
                ensemble = made[kind] = stack.enter_context(Ensemble(kind))
                if kind == "zookeeper":
                    half = ["--duration", self.size.warmup_jvm / 2]
                    for load in [["--op", "mixed", "--mix", "get=50,set=50"], ["--op", "create-delete"]]:
                        measure.generate(None, ensemble.members, *load, *half)
                ensemble.pause()
            yield made

    def turns(self, ensembles):
        """The systems with the members that they are made of, one at a time, while the others are stopped."""
        for _ in range(self.size.alternations):
            running = None
            for name, (kind, _) in SYSTEMS.items():
                if ensembles[kind] is not running:
                    if running:
                        running.pause()
                    running = ensembles[kind]
                    running.resume()
                self.next_turn()
                yield name, running.members
            running.pause()

    def recipe(self, members, recipe, name, clients):
        _, form = SYSTEMS[name]
        options = ["recipe", "--recipe", recipe, "--form", form, "--clients", clients, *self.times]
        return measure.generate(None, members, *options)

    def recipes(self, ensembles, recipe):
        """Figures 6, 8, 10 and 12."""
        steps = RECIPES[recipe].steps
        for clients in self.size.clients:
            for name, members in self.turns(ensembles):
                result = self.recipe(members, recipe, name, clients)
                title = f"{recipe}, {clients} clients"
                self.note(f"{title}: {steps[0]}s/s", name, result["throughput"])
                for step in steps:
                    # Nothing may have come of it in so short a time.
                    if step in result["latency_us"]:
                        for what in ["mean", "p99"]:
                            self.note(f"{title}: {step} {what} us", name, result["latency_us"][step][what])
                        self.note(f"{title}: {step} bytes", name, result["bytes_sent"][step])
                self.note(f"{title}: cpu us, all three", name, result["server"]["cpu_us_per_operation"])
                self.note(f"{title}: generator cpu us", name, result["generator_cpu_us_per_operation"])

    def regular(self, ensembles):
        """Figure 13: what reads and writes of others meet while a queue is used."""
        shape = ["--sessions", REGULAR_EACH, "--pipeline", 1, "--payload", REGULAR_BYTES]
        for ensemble in ensembles.values():
            ensemble.resume()
            measure.generate(None, ensemble.members, "--op", "set", *shape, "--operations", 1000)
            ensemble.pause()
        for clients in [0, *self.size.clients]:
            for name, members in self.turns(ensembles):
                with concurrent.futures.ThreadPoolExecutor() as pool:
                    loads = {
                        op: pool.submit(
                            measure.generate, None, members, "--op", op, *shape, "--prepared", *self.times
                        )
                        for op in OPS
                    }
                    queue = self.recipe(members, "queue", name, clients) if clients else {"throughput": 0}
                title = f"regular, {clients} clients of a queue"
                self.note(f"{title}: elements/s", name, queue["throughput"])
                for op, load in loads.items():
                    latency = load.result()["latency_us"][op]
                    for what in ["p50", "p99"]:
                        self.note(f"{title}: {op} {what} us", name, latency[what])

    def greedy(self, ensembles):
        """What a client costs others that has the longest calls there can be, one after the other."""
        ensemble = ensembles["stoa"]
        ensemble.resume()
        shape = ["--op", "mixed", "--mix", "get=50,set=50", "--sessions", OTHERS["sessions"]]
        shape += ["--payload", OTHERS["payload"]]
        measure.generate(None, ensemble.members, *shape, "--operations", 1000)
        shape += ["--rate", OTHERS["rate"], "--prepared", "--warmup", self.size.warmup]
        shape += ["--duration", self.size.greedy]
        for _ in range(self.size.alternations):
            for name in [ALONE, GREEDY]:
                self.next_turn()
                with concurrent.futures.ThreadPoolExecutor() as pool:
                    others = pool.submit(measure.generate, None, ensemble.members, *shape)
                    if name == GREEDY:
                        options = ["recipe", "--recipe", "greedy", "--form", "extension", "--clients", 1]
                        options += ["--warmup", self.size.warmup, "--duration", self.size.greedy]
                        calls = measure.generate(None, ensemble.members, *options)
                        self.note("greedy: calls/s", name, calls["throughput"])
                for op in OPS:
                    for what in ["p50", "p99"]:
                        self.note(f"greedy: {op} {what} us", name, others.result()["latency_us"][op][what])
        ensemble.pause()

    def unmatched(self):
        """CPU time of requests that no program is for, each time at a new server with a core of its own; and how many
        instructions they take, which says more about so little."""
        cores = sorted(os.sched_getaffinity(0))
        own, others = (cores[0], cores[-1]) if len(cores) > 1 else (None, None)
        for op in UNMATCHED_OPS:
            for _ in range(self.size.unmatched):
                for name in [NONE, MANY]:
                    self.next_turn()
                    with Server("stoa", own) as server:
                        if name == MANY:
                            register(server)
                        result = measure.generate(others, [server], "--op", op, *UNMATCHED_SHAPE, *self.times)
                    self.note(f"unmatched: {op} cpu us", name, result["server"]["cpu_us_per_operation"])
            for name in [NONE, MANY] * self.size.counts if shutil.which("valgrind") else []:
                self.next_turn()
                few, many = (instructions(op, count, name == MANY) for count in self.size.counted)
                each = (many - few) / (self.size.counted[1] - self.size.counted[0])
                self.note(f"unmatched: {op} instructions", name, each)

    def all(self, is_done):
        """Measures all parts, and says so after each of them."""
        chosen = [part for part in self.parts if part != "unmatched"]
        with contextlib.ExitStack() as stack:
            ensembles = stack.enter_context(self.ensembles()) if chosen else {}
            self.began = time.monotonic()
            for part in chosen:
                print(f"== {part}", flush=True)
                if part in RECIPES:
                    self.recipes(ensembles, part)
                else:
                    getattr(self, part)(ensembles)
                self.finished.append(part)
                is_done()
        if "unmatched" in self.parts:
            print("== unmatched", flush=True)
            self.unmatched()
            self.finished.append("unmatched")
            is_done()


def instructions(op, count, with_programs):
    """How many instructions a server takes to start, for so many operations, and to stop; what the kernel does for it
    is not in it."""
    with tempfile.TemporaryDirectory(prefix="bench-counts-") as folder:
        counts = pathlib.Path(folder, "counts")
        counted = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}"]
        with Server("stoa", None, under=counted) as server:
            if with_programs:
                register(server)
            measure.generate(None, [server], "--op", op, *UNMATCHED_SHAPE, "--operations", count)
        found = re.search(r"^totals: (\d+)$", counts.read_text(), re.MULTILINE)
    return int(found[1])


def register(server):
    """Registers programs that match nothing which the generator asks or changes."""
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder, f"unmatched-{number}.rhai") for number in range(PROGRAMS)]
        for number, file in enumerate(files):
            file.write_text(UNMATCHED.format(number=number))
        for start in range(0, PROGRAMS, PROGRAMS_OF_A_SESSION):
            some = files[start : start + PROGRAMS_OF_A_SESSION]
            command = [STOA, "extension", "add", "--server", f"127.0.0.1:{server.port}", *some]
            if start == 0:
                shown([*command[:-len(some)], f"unmatched-{{0..{PROGRAMS_OF_A_SESSION - 1}}}.rhai"])
            subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)


class Results:
    """Tables and plots of a run."""

    def __init__(self, run, stem):
        self.medians = run.medians()
        self.run, self.stem = run, stem
        self.most = run.size.clients[-1]
        self.sections = []

    def figure(self, name, system):
        """The median, or nothing where no client came to an end."""
        return self.medians.get(name, {}).get(system)

    def plot(self, name, *what, **axes):
        path = self.stem.with_name(f"{self.stem.name}-{name}.svg")
        report.plot_lines(path, *what, **axes)
        return f"![{name}]({path.name})"

    def section(self, part, title, *paragraphs):
        command = f"```\npython3 bench/extensions.py --parts {part}\n```"
        self.sections.append("\n\n".join([f"## {title}", *paragraphs, command]))

    def table(self, what, part):
        """What was measured by the number of clients."""
        rows = []
        for clients in self.run.size.clients:
            figures = [self.figure(f"{part}, {clients} clients: {what}", name) for name in SYSTEMS]
            rows.append([str(clients), *("" if figure is None else figure for figure in figures)])
        return lines([f"{what}, by clients", *SYSTEMS], rows)

    def rows(self, title, name, unit, at_least=False, paper=""):
        """With a program beside each of the others."""
        extended, plain, peer = (self.figure(name, system) for system in [EXTENDED, PLAIN, PEER])
        beside = [("ZooKeeper", peer, paper), ("the same recipe without a program on Stoa", plain, "")]
        return [
            report.Row(f"{title}: beside {other}", target, extended, figure, unit, None, at_least)
            for other, figure, target in beside
        ]

    def recipe(self, part):
        recipe = RECIPES[part]
        first = recipe.steps[0]
        most = f"{part}, {self.most} clients"
        rows = self.rows(f"{first}s a second", f"{most}: {first}s/s", "/s", True, recipe.paper)
        said = [self.table(f"{first}s/s", part)]
        plotted = [(f"{first}s/s", "a second")]
        for step in recipe.steps:
            for what, unit in [("mean us", "us"), ("bytes", "bytes")]:
                said.append(self.table(f"{step} {what}", part))
                rows += self.rows(f"{step}, {what}", f"{most}: {step} {what}", unit)
            said.append(self.table(f"{step} p99 us", part))
        said += [self.table(what, part) for what in ["cpu us, all three", "generator cpu us"]]
        plotted += [(f"{first} mean us", "us, mean"), (f"{first} bytes", "bytes that a client sends")]
        plots = []
        for what, axis in plotted:
            series = []
            for name in SYSTEMS:
                of = [(n, self.figure(f"{part}, {n} clients: {what}", name)) for n in self.run.size.clients]
                series.append((name, [point for point in of if point[1] is not None], name == PLAIN))
            name = f"{part}-{what.split('/')[0].replace(' ', '-')}"
            series = [line for line in series if line[1]]
            plots.append(self.plot(name, f"{recipe.title}: {what}", "clients", axis, series))
        at = f"At {self.most} clients; \"other\" is what the row says:"
        self.section(part, f"{recipe.title} (Figure {recipe.figure})", *said, at, report.table(rows), *plots)

    def regular(self):
        rows, plots = [], []
        counts = [0, *self.run.size.clients]
        titles = {clients: f"regular, {clients} clients of a queue" for clients in counts}
        figures = ["elements/s", *(f"{op} {what} us" for op in OPS for what in ["p50", "p99"])]
        for clients in counts:
            for name in SYSTEMS:
                values = [self.medians[f"{titles[clients]}: {figure}"][name] for figure in figures]
                rows.append([f"{clients}, {name}", *values])
        for op in OPS:
            series = []
            for name in SYSTEMS:
                of = [
                    tuple(self.medians[f"{titles[n]}: {figure}"][name] for figure in ["elements/s", f"{op} p50 us"])
                    for n in counts
                ]
                series.append((name, of, name == PLAIN))
            axes = ["elements through the queue a second", "us, median", series]
            plots.append(self.plot(f"regular-{op}s", f"{op}s of {REGULAR_BYTES} B beside a queue", *axes))
        idle, busy = titles[0], titles[self.most]
        beside = []
        for op in OPS:
            for name in SYSTEMS:
                with_queue, without = (self.medians[f"{title}: {op} p50 us"][name] for title in [busy, idle])
                beside.append([f"{op}, {name}", with_queue, without, f"{with_queue / without:.2f}x"])
        intro = f"{REGULAR_EACH} clients that read and as many that write znodes of {REGULAR_BYTES} B, one request of each at a time, beside the clients of a queue."
        table = lines(["clients of the queue", *figures], rows)
        head = ["p50 us", f"beside {self.most} clients of the queue", "beside none", "ratio"]
        said = [intro, table, lines(head, beside), *plots]
        self.section("regular", "Regular clients beside a queue (Figure 13)", *said)

    def greedy(self):
        rows = []
        for op in OPS:
            for what in ["p50", "p99"]:
                values = self.medians[f"greedy: {op} {what} us"]
                bound = GREEDY_TARGET if what == "p99" else None
                target = f"at most {GREEDY_TARGET}x" if bound else ""
                rows.append(report.Row(f"{op} {what}", target, values[GREEDY], values[ALONE], "us", bound))
        calls = report.number(self.medians["greedy: calls/s"][GREEDY])
        intro = f"{OTHERS['sessions']} sessions that send {OTHERS['rate']} gets and sets of {OTHERS['payload']} B a second, at fixed times, while one client calls a program in a loop that is stopped each time when it has taken all steps a call may take: {calls} calls a second. \"Other\" is without that client."
        self.section("greedy", "Others beside a client that burns its budget (section 4.1.2)", intro, report.table(rows))

    def unmatched(self):
        rows = []
        for op in UNMATCHED_OPS:
            title = f"{op} {OPS_BYTES} B"
            values = self.medians[f"unmatched: {op} cpu us"]
            rows.append(report.Row(f"{title}: CPU per operation", "", values[MANY], values[NONE], "us", None))
            if values := self.medians.get(f"unmatched: {op} instructions"):
                few = [values[MANY], values[NONE], "instructions", UNMATCHED_TARGET]
                rows.append(report.Row(f"{title}: instructions per operation", f"at most {UNMATCHED_TARGET}x", *few))
        intro = f"A server alone on one core, the generator on another, 32 sessions with 64 outstanding: with {PROGRAMS} programs registered, each for reads, updates and changes of paths that nobody asks for, beside none (\"other\"). The sessions have acknowledged no program, as regular clients have not. Instructions are those of the server's own code, counted by valgrind's callgrind between {self.run.size.counted[0]:,} and {self.run.size.counted[1]:,} operations; CPU time differs by more from one process to the next than programs cost."
        self.section("unmatched", "Requests that no program is for (section 6.2)", intro, report.table(rows))

    def all(self):
        for part in self.run.finished:
            if part in RECIPES:
                self.recipe(part)
            else:
                getattr(self, part)()
        return "\n\n".join(self.sections)


def main():
    parser = measure.arguments(__doc__.splitlines()[0])
    parser.add_argument("--parts", type=measure.some_of(PARTS), default=PARTS, help=",".join(PARTS))
    args = parser.parse_args()
    measure.prepare(args)
    run = Run(args)
    facts = measure.watched_machine()
    if args.quick:
        run.all(lambda: None)
        with tempfile.TemporaryDirectory() as folder:
            print(Results(run, pathlib.Path(folder, "quick-extensions")).all())
        return
    stem = measure.stem(args, "-extensions")
    run.all(lambda: write(run, stem, args, facts()))
    print(stem.with_suffix(".md").read_text())
    print(f"written: {stem}.md")


def write(run, stem, args, machine):
    """Writes the results of what is finished, so that a run which is cut short leaves that."""
    size = run.size
    facts = {"machine": machine, "sizes": vars(size), "nice": args.nice}
    left = [part for part in run.parts if part not in run.finished]
    cut = f" Not measured yet, or cut short: {', '.join(left)}." if left else ""
    text = f"""# The experiments of the paper on extensions, {stem.name.removesuffix("-extensions")}

One run of `bench/extensions.py` on one machine: ensembles of three, Stoa and Apache ZooKeeper with the same `zoo.cfg`, that sync every write on a majority before they answer it. The recipes without a program are the paper's; those with one are the client library's, with all that it does for connections that are lost. Each client is a session of Stoa's client library, the sessions are spread over all three servers, and each has one thing to do at a time. One system right after the other is measured, {size.duration} s each, while servers of the other kind are stopped; all share the cores with the generator. Figures are medians of {size.alternations} turns; their spread is at the end.{cut} Latency is the mean, in which those that are beaten by others until the end count with the time that they have tried; bytes are what all clients send, divided by what succeeds.

{Results(run, stem).all()}
"""
    report.write(stem, text, facts, run.samples, run.medians(), commands())


if __name__ == "__main__":
    main()
