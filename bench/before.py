#!/usr/bin/env python3
"""Stoa beside an earlier build of itself: whether anything has become slower.

Results go to bench/results/<date>-before.{json,md}.
"""

import argparse
import pathlib

import ensemble
import measure
import report
import servers
import shift
from agora import PARTITIONS, SWITCHING, TOPS, commands
from ensembles import Ensemble
from servers import Server

NOW, BEFORE = "now", "before"
# What has become worse by more.
BOUND = 1.1
FULL, WAITING, ONE = (32, 64), (50, 1), (1, 1)
# By each build of the same data.
RESTARTS = 4
PARTS = ["speed", "partitions", "shift", "faults"]
# At a server alone and in an ensemble: what is asked, of how many bytes, by how many sessions with how many requests.
ALONE = [
    ("get", 100, FULL), ("set", 100, FULL), ("create-delete", 1024, FULL),
    ("get", 100, WAITING), ("set", 100, WAITING), ("get", 100, ONE), ("set", 100, ONE),
]
SERVERS = [("set", 100, FULL), ("set", 1024, FULL), ("set", 100, WAITING), ("set", 100, ONE)]


class Size:
    """How long and how often everything is."""

    def __init__(self, quick):
        self.warmup, self.duration = (0.1, 0.2) if quick else (0.5, 2)
        self.turns = 1 if quick else 9
        self.turns_big = 1 if quick else 3
        self.turns_shift = 1 if quick else 2
        # When the load moves to another partition, and how long all of it takes, seconds.
        self.shifts, self.shifting = ([1, 3], 5) if quick else ([5, 15], 25)
        self.znodes = 20_000 if quick else 1_000_000


def three(binary):
    """Three servers."""
    made = Ensemble("stoa")
    for member in made.members:
        member.binary = binary
    return made


class Faults(ensemble.Run):
    """What killed, restarted and absent servers of three cost their clients."""

    def __init__(self, args, binaries):
        parts = ["failover", "rolling", "return"]
        super().__init__(argparse.Namespace(**vars(args) | {"kinds": list(binaries), "parts": parts}))
        self.binaries = binaries

    def ensemble(self, kind, heap=None):
        return three(self.binaries[kind])


class Run(measure.Samples):
    """Each turn has new servers: from one process to the next the same work takes up to a tenth more or less."""

    def __init__(self, args):
        super().__init__()
        self.binaries = {NOW: servers.STOA, BEFORE: args.before}
        self.size = Size(args.quick)
        if args.alternations:
            self.size.turns = self.size.turns_shift = args.alternations

    def server(self, name, core, flags=()):
        server = Server("stoa", core, flags=[*flags])
        server.binary = self.binaries[name]
        return server

    def loads(self, where, name, targets, loads, core):
        for op, payload, (sessions, pipeline) in loads:
            shape = ["--op", op, "--payload", payload, "--sessions", sessions, "--pipeline", pipeline]
            times = ["--warmup", self.size.warmup, "--duration", self.size.duration]
            result = measure.generate(core, targets, *shape, *times)
            title = f"{where}: {op} {payload} B, {sessions} x {pipeline}"
            if (sessions, pipeline) == ONE:
                self.note(f"{title}: p50 us", name, result["latency_us"][op]["p50"])
                continue
            self.note(f"{title}: ops/s", name, result["throughput"])
            self.note(f"{title}: cpu us", name, result["server"]["cpu_us_per_operation"])

    def big(self, name):
        with self.server(name, 0) as server:
            measure.generate(1, [server], "load", "--znodes", self.size.znodes, "--payload", 100)
            title = f"{self.size.znodes:,} znodes"
            self.note(f"{title}: rss MiB", name, server.rss_mib())
            last = self.size.znodes - 1
            path = f"/bench/{last // 1000:07}/{last % 1000:03}"
            # The first one follows the load, and takes longer. Each build has its own data: an earlier one need not
            # be able to read what this one has written.
            server.restart_after_crash(path)
            for _ in range(RESTARTS):
                self.note(f"{title}: restart s", name, server.restart_after_crash(path))

    def all(self):
        for turn in range(self.size.turns):
            print(f"== turn {turn + 1} of {self.size.turns}", flush=True)
            for name in self.in_turn(turn):
                with self.server(name, 0) as server:
                    self.loads("alone", name, [server], ALONE, 1)
            for name in self.in_turn(turn):
                with three(self.binaries[name]) as servers_of_one:
                    self.loads("three servers", name, servers_of_one.members, SERVERS, None)
        for turn in range(self.size.turns_big):
            for name in self.in_turn(turn):
                self.big(name)

    def partitions(self):
        """Rows of `agora.py`: local work, and clients that switch."""
        for turn in range(self.size.turns):
            print(f"== turn {turn + 1} of {self.size.turns}", flush=True)
            for partitions in PARTITIONS:
                for name in self.in_turn(turn):
                    self.divided(name, partitions)

    def load_shifts(self):
        """Rows of `agora.py`: load that shifts to what lives on one partition."""
        for turn in range(self.size.turns_shift):
            print(f"== turn {turn + 1} of {self.size.turns_shift}", flush=True)
            for partitions in shift.PARTITIONS:
                for op in ["get", "set"]:
                    for name in self.in_turn(turn):
                        self.shifted(name, partitions, op)

    def divided(self, name, partitions):
        flags = ["--partitions", str(partitions)]
        shapes = [("local", FULL, ["--local"])]
        if partitions > 1:
            shapes.append(("switching", SWITCHING, ["--stay", 1]))
        with self.server(name, None, flags) as server:
            options = ["--payload", 8, "--znodes", 100, "--tops", TOPS, "--partitions", partitions]
            options += ["--warmup", self.size.warmup, "--duration", self.size.duration]
            for what, (sessions, pipeline), where in shapes:
                for op in ["get", "set"]:
                    shape = ["--op", op, "--sessions", sessions, "--pipeline", pipeline]
                    result = measure.generate(None, [server], *shape, *options, *where)
                    title = f"partitions {partitions}, {what}: {op} 8 B, {sessions} x {pipeline}"
                    self.note(f"{title}: ops/s", name, result["throughput"])
                    self.note(f"{title}: cpu us", name, result["server"]["cpu_us_per_operation"])

    def shifted(self, name, partitions, op):
        figures, _ = shift.run(partitions, op, True, self.size.shifts, self.size.shifting, self.binaries[name])
        for figure, value in figures.items():
            if figure.endswith(", ops/s"):
                what = figure.removesuffix(", ops/s")
                self.note(f"partitions {partitions}, load that shifts, {op} 8 B, {what}: ops/s", name, value)

    def in_turn(self, turn):
        """Whoever comes first has the disk busy with what the one before has left."""
        return list(self.binaries)[:: 1 if turn % 2 else -1]


def rows(run):
    for title, of in run.medians().items():
        unit = title.rsplit(" ", 1)[1]
        at_least = unit == "ops/s"
        bound = 1 / BOUND if at_least else BOUND
        target = f"at least {bound:.2f}x" if at_least else f"at most {bound}x"
        samples = run.samples[title]
        turns = list(zip(samples[NOW], samples[BEFORE]))
        yield report.Pairs(title, target, of[NOW], of[BEFORE], unit.replace("ops", ""), bound, at_least, turns)


def main():
    parser = measure.arguments(__doc__.splitlines()[0])
    parser.add_argument("before", type=pathlib.Path, help="the earlier build's binary")
    parser.add_argument("label", help="what the report calls it")
    parser.add_argument("--parts", type=measure.some_of(PARTS), default=PARTS, help=",".join(PARTS))
    args = parser.parse_args()
    measure.prepare(args)
    run = Run(args)
    faults = Faults(args, run.binaries)
    work = {"speed": run.all, "partitions": run.partitions, "shift": run.load_shifts, "faults": faults.all}
    machine = measure.measured_machine(lambda: [work[part]() for part in args.parts])
    table = report.table(list(rows(run)) + ensemble.rows(faults, NOW, BEFORE))
    print(table)
    if args.quick:
        return
    stem = measure.stem(args, "-before")
    shown = list(dict.fromkeys(command.replace(str(args.before), "BEFORE") for command in commands()))
    text = f"""# Stoa beside an earlier build, {stem.name.removesuffix("-before")}

One run of `bench/before.py` on one machine: medians of {run.size.turns} turns, {run.size.turns_big} with {run.size.znodes:,} znodes, with new servers in each. A server alone has one core and the generator the other; three servers share both with it. Ratios are medians of those within the turns. Each build restarts with the data that it has written. "Other" is the earlier build ({args.label}). A row is missed when it is worse by more than a tenth. In the part `faults` leaders are killed {faults.size.kills} times without znodes and as often with {faults.size.znodes:,}; its rows have no bound, since some are worst cases and few are of many samples.

{table}
"""
    facts = {"machine": machine, "before": args.label}
    samples, medians = run.samples | faults.samples, run.medians() | faults.medians()
    report.write(stem, text, facts, samples, medians, shown)
    print(f"written: {stem}.md")


if __name__ == "__main__":
    main()
