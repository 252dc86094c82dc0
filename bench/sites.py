#!/usr/bin/env python3
"""The experiments of the WanKeeper paper: clients at several sites of one service, far from one another.

Results go to bench/results/<date>-sites.{json,md} with plots beside them.
"""

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile
import time

import measure
import sites_report
import tokens
from agora import commands
from consensus.laboratory import busy_ticks
from wide import AWAY, HUB, KINDS, TokenSites

PARTS = ["ratio", "disjoint", "overlap", "files", "cpu", "tokens"]
RECORDS = 1000
# Until records that are new are at all sites.
SPREAD_SECONDS = 1
ZIPF = 0.99
OPERATIONS = 10_000
WRITES = [0, 5, 10, 25, 50, 100]
# With fewer writes reads take much of the time, and would disturb one another.
WRITES_TOGETHER = 25
OVERLAPS = [0, 10, 25, 50, 75, 100]
OVERLAPS_FILES = [10, 50, 80]
HOTSPOT = "80/20"
# How loads are called in which each site has the records that it uses in a directory of its own.
EACH = "a directory each"
# Of a file, what a znode holds of it.
METADATA_BYTES = 200
# What a session with many requests does to the processors: sessions and requests outstanding of each.
FULL = (32, 8)
# How much longer the median of a write may be while other kinds are measured at the same time, of the kinds whose
# writes take a known time.
DISTURBED = 0.02


class Size:
    """How long everything is, in seconds, and how often."""

    def __init__(self, quick):
        self.warmup_jvm = 2 if quick else 15
        self.check = 0.5 if quick else 6
        # Of few writes and of many.
        self.ratio, self.ratio_waits = (0.3, 0.5) if quick else (6, 10)
        self.disjoint = self.overlap = 0.5 if quick else 10
        self.files = 2 if quick else 30
        self.cpu = 0.5 if quick else 5
        self.lag = 1 if quick else 10
        # Kinds with tokens have so much time for loads with writes, at most: until all is done, but where sites share.
        self.tokens = {"ratio": 150, "disjoint": 120, "overlap": 90, "files": 240}
        self.tokens = dict.fromkeys(self.tokens, 2) if quick else self.tokens
        # What is varied.
        self.writes, self.overlaps, self.overlaps_files = WRITES, OVERLAPS, OVERLAPS_FILES
        if quick:
            self.writes, self.overlaps, self.overlaps_files = [0, 50, 100], [0, 100], [10, 50]
        self.turns = {part: 1 if quick else 3 for part in PARTS}
        self.turns.update({} if quick else {"overlap": 2, "files": 1, "tokens": 1})


@dataclasses.dataclass(frozen=True)
class Load:
    """What clients do, one at each site with one request at a time unless the options say otherwise."""

    part: str
    title: str
    sites: list
    seconds: float
    options: list
    # Whether it may run at several kinds at the same time: it waits for links, and hardly takes processor time.
    waits: bool = True
    # Whether kinds with tokens have more time for it, in which writes become local.
    learns: bool = False


class Run(measure.Samples):
    def __init__(self, args):
        super().__init__()
        self.parts, self.kinds, self.quick = args.parts, args.kinds, args.quick
        self.records, self.zipf, self.operations = RECORDS, ZIPF, OPERATIONS
        self.size = Size(args.quick)
        if args.alternations:
            self.size.turns = dict.fromkeys(PARTS, args.alternations)
        # Whether loads that wait run at all kinds at the same time.
        self.together = not args.alone
        # By part, title and kind: a report for each turn.
        self.reports = {}
        # How many loads with records of their own each kind has had.
        self.tops = {}
        # What one kind takes alone, and while the others are measured, too: rows of a table.
        self.checked = []

    @contextlib.contextmanager
    def services(self):
        """One of each kind, the JVMs warm."""
        with contextlib.ExitStack() as stack:
            made = {name: KINDS[name].make() for name in self.kinds}
            entered = self.at_once(lambda name: stack.enter_context(made[name]))
            self.running = dict(zip(self.kinds, entered))
            # Whoever reads somewhere else finds the records.
            self.at_once(lambda name: self.generate(name, [HUB], 0.1, []))
            time.sleep(SPREAD_SECONDS)
            # So many that code is compiled in time, at all servers.
            everywhere = ["--sessions", FULL[0], "--writes", 50]
            self.at_once(lambda name: self.generate(name, [HUB, *AWAY], self.size.warmup_jvm, everywhere))
            yield

    def at_once(self, work):
        """Does something with all kinds at the same time; returns what comes of it, in their order."""
        with concurrent.futures.ThreadPoolExecutor(len(self.kinds)) as pool:
            return list(pool.map(work, self.kinds))

    def generate(self, name, sites, seconds, options):
        """Has the clients of some sites do something, beginning with records that were written in the middle."""
        service = self.running[name]
        at = [f"{site}=127.0.0.1:{service.at(site).port}" for site in sites]
        pids = ",".join(str(server.process.pid) for server in service.servers())
        if "--prepared" not in options:
            # What a policy has learnt of other records does not concern these.
            self.tops[name] = self.tops.get(name, 0) + 1
        options = ["--records", RECORDS, "--path", f"/load-{self.tops[name]}", *options]
        *others, origin = service.origins()
        if "--prepared" not in options:
            self.prepare(sites, [*others, origin], options)
            options.append("--prepared")
        return measure.reported(sites_command(origin, at, [*options, "--duration", seconds, "--server-pid", pids]))

    def prepare(self, sites, origins, options):
        """Has the records of so many sites written, and waits until they are at all sites."""
        for origin in origins:
            at = [f"{site}=127.0.0.1:{origin.port}" for site in sites]
            measure.reported(sites_command(origin, at, [*options, "--duration", 0.01]))
        time.sleep(SPREAD_SECONDS)

    def measure(self, load, turn):
        """One turn of a load at all kinds, with other requests than in the turns before."""
        options = [*load.options, "--seed", turn]

        def work(name):
            before = busy_ticks()
            seconds = self.size.tokens[load.part] if load.learns and KINDS[name].has_tokens else load.seconds
            result = self.generate(name, load.sites, seconds, options)
            busy, ticks = (late - early for late, early in zip(busy_ticks(), before))
            return {**result, "busy": round(busy / max(ticks, 1), 3)}

        made = self.at_once(work) if load.waits and self.together else map(work, self.kinds)
        for name, result in zip(self.kinds, made):
            self.keep(load, name, result)

    def keep(self, load, name, result):
        """Notes what a load has met. How much of the cores' time was used meanwhile, by whatever, is in its report."""
        self.reports.setdefault((load.part, load.title, name), []).append(result)
        for site, met in result["sites"].items():
            title = f"{load.part}, {load.title}, {site}"
            self.note(f"{title}: ops/s", name, met["throughput"])
            for op, word in [("get", "read"), ("set", "write")]:
                if latency := met["latency_us"].get(op):
                    for figure in ["mean", "p50", "p99"]:
                        self.note(f"{title}: {word} {figure} ms", name, latency[figure] / 1e3)
            self.note(f"{title}: s", name, met["elapsed_s"])
            if "local_writes" in met:
                self.note(f"{title}: local writes", name, met["local_writes"])
        op, count = ("write", result["writes"]) if result["writes"] else ("read", result["operations"])
        us = result["server"]["cpu_us"] / count
        self.note(f"{load.part}, {load.title}: cpu us a {op}", name, us)

    def check(self):
        """Whether distances are what they should be, and whether kinds disturb one another."""
        alone = {}
        for name in self.kinds:
            alone[name] = self.check_at(name)
            us = alone[name][100]["latency_us"]["set"]["p50"]
            self.require(name, us / 1e3)
        if not self.together:
            return
        beside = dict(zip(self.kinds, self.at_once(self.check_at)))
        for name in self.kinds:
            for writes in alone[name]:
                for op in alone[name][writes]["latency_us"]:
                    p50, mean = (
                        [made[name][writes]["latency_us"][op][figure] / 1e3 for made in (alone, beside)]
                        for figure in ["p50", "mean"]
                    )
                    self.checked.append([f"{name}, {writes}% writes: {op}", *p50, *mean])
                    is_known = op == "set" and KINDS[name].write_ms is not None
                    if is_known and p50[1] / p50[0] - 1 > DISTURBED and not self.quick:
                        self.together = False
        said = "at the same time" if self.together else "one after the other, for they disturb one another"
        print(f"loads that wait are measured at all kinds {said}", flush=True)

    def check_at(self, name):
        """What one client in California meets, by the share of writes."""
        options = {writes: ["--writes", writes, "--zipf", ZIPF] for writes in [100, 50]}
        made = {writes: self.generate(name, AWAY[:1], self.size.check, options[writes]) for writes in options}
        return {writes: result["sites"][AWAY[0]] for writes, result in made.items()}

    def require(self, name, ms):
        kind = KINDS[name]
        print(f"  a write in California takes {ms:.1f} ms [{name}]", flush=True)
        if kind.write_ms is None or kind.write_ms[0] <= ms <= kind.write_ms[1]:
            return
        low, high = kind.write_ms
        problem = f"{name}: a write in California takes {ms:.1f} ms in the median, which should be {low} to {high}: see whether the server in Virginia leads, the links are as long as they should be, and the machine has time for all this"
        if not self.quick:
            sys.exit(problem)
        print(f"  but {problem}", flush=True)

    def loads(self):
        """All that is measured, in this order."""
        size, zipf, bounded = self.size, ["--zipf", ZIPF], ["--operations", OPERATIONS]
        west = AWAY[:1]
        for writes in size.writes:
            # Without writes so many operations are over in no time.
            options = ["--writes", writes, *zipf, *(bounded if writes else [])]
            waits = writes >= WRITES_TOGETHER
            seconds = size.ratio_waits if waits else size.ratio
            yield Load("ratio", f"{writes}% writes", west, seconds, options, waits, writes > 0)
        half = ["--writes", 50, *zipf, *bounded]
        for name, options, times in [("", half, ["hot", "hot again"]), (f"{EACH}, ", [*half, "--apart"], ["hot"])]:
            yield Load("disjoint", f"{name}cold", AWAY, size.disjoint, options, learns=True)
            for time_of in times:
                yield Load("disjoint", f"{name}{time_of}", AWAY, size.disjoint, [*options, "--prepared"], learns=True)
        for overlap in size.overlaps:
            options = ["--writes", 100, "--overlap", overlap, *zipf, *bounded]
            yield Load("overlap", f"{overlap}% shared", AWAY, size.overlap, options, learns=True)
        update = ["--writes", 100, "--payload", METADATA_BYTES, *bounded]
        for law, spread in [("Zipf", zipf), ("hotspot", ["--hotspot", HOTSPOT])]:
            for overlap in size.overlaps_files:
                options = [*update, *spread, "--overlap", overlap]
                yield Load("files", f"{law}, {overlap}% shared", AWAY, size.files, options, learns=True)
        sessions, pipeline = FULL
        many = ["--writes", 100, *zipf, "--sessions", sessions, "--pipeline", pipeline]
        yield Load("cpu", "many writes", west, size.cpu, many, False)

    def all(self):
        with self.services():
            print("== check", flush=True)
            self.check()
            loads = [load for load in self.loads() if load.part in self.parts]
            for part in self.parts:
                for turn in range(1, self.size.turns[part] + 1):
                    print(f"== {part}, turn {turn}", flush=True)
                    for load in loads:
                        if load.part == part:
                            self.measure(load, turn)
            self.idle()
            self.tokens()

    def idle(self):
        """CPU time of all servers while nobody asks anything."""
        if "cpu" not in self.parts:
            return
        before = {name: self.cpu_us(name) for name in self.kinds}
        time.sleep(self.size.cpu)
        for name in self.kinds:
            self.note("cpu, idle: cores", name, (self.cpu_us(name) - before[name]) / self.size.cpu / 1e6)

    def tokens(self):
        """Of kinds with tokens: what single writes take, and how far the others are behind the hub."""
        if "tokens" not in self.parts:
            return
        for name in self.kinds:
            if not KINDS[name].has_tokens:
                continue
            made = {f"write in California, {title}": times for title, times in tokens.single_writes(self.running[name]).items()}
            for rate in [0, tokens.RATE]:
                for site, lag in tokens.lags(self.running[name], self.size.lag, rate).items():
                    made[f"lag, {site.capitalize()}, {rate:,} other writes a second"] = lag
            for title, times in made.items():
                for figure, value in zip(["p50", "p90", "p99", "max"], tokens.figures(times)):
                    self.note(f"tokens, {title}: {figure} ms", name, value)

    def cpu_us(self, name):
        return sum(cpu_us(server.process.pid) for server in self.running[name].servers())


def sites_command(origin, at, options):
    """The command line of the generator whose records are written at a server first."""
    command = measure.generator(None, "sites", "--server", measure.addresses([origin]))
    for site in at:
        command += ["--site", site]
    return [*command, *map(str, options), "--json"]


def cpu_us(pid):
    """User and system time of a process; the second field of `stat`, its name, may have anything in it."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


def arguments():
    parser = measure.arguments(__doc__.splitlines()[0])
    parser.add_argument("--parts", type=measure.some_of(PARTS), default=PARTS, help=",".join(PARTS))
    names = list(KINDS)
    parser.add_argument("--kinds", type=measure.some_of(names), default=names, help=",".join(names))
    parser.add_argument("--alone", action="store_true", help="measure one kind after the other, always")
    parser.add_argument("--policy", help="the setting site-policy of stoa-sites; its default if nothing is said")
    parser.add_argument("--suffix", default="", help="what the names of the results end with")
    parser.add_argument("--note", default="", help="what else runs on the machine, for the record")
    return parser.parse_args()


def main():
    args = arguments()
    measure.prepare(args)
    TokenSites.policy = args.policy
    run = Run(args)
    machine = measure.measured_machine(run.all)
    if args.note:
        machine["besides"] = args.note
    with contextlib.ExitStack() as stack:
        if args.quick:
            args.results = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stem = measure.stem(args, "-".join(filter(None, ["-sites", args.suffix])))
        text = sites_report.write(run, stem, machine, commands())
        print(text)
        print(f"written: {stem}.md")


if __name__ == "__main__":
    main()
