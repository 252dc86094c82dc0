#!/usr/bin/env python3
"""Compares ensembles of three: Stoa with Apache ZooKeeper, same machine, same run, in turns.

All servers and the generator share the machine, nothing is pinned. Results go to
bench/results/<date>-ensemble.{json,md}.
"""

import contextlib
import signal
import time

import measure
import report
import servers
from ensembles import Ensemble, Probe, build_etcd, generate_etcd
from servers import Server, Session

KINDS = ["zookeeper", "stoa", "etcd"]
KINDS_DEFAULT = ["zookeeper", "stoa"]
BIG_HEAP = ["-Xms1g", "-Xmx2g"]
PARTS = ["speed", "failover", "rolling", "return"]


class Size:
    """How long, how large and how often everything is."""

    def __init__(self, quick):
        self.warmup_jvm = 2 if quick else 20
        self.warmup = 0.3 if quick else 1.5
        self.duration = 0.7 if quick else 5
        self.alternations = 1 if quick else 5
        self.kills = 2 if quick else 30
        self.znodes = 20_000 if quick else 1_000_000
        self.rolls = 1 if quick else 5
        self.returns = 1 if quick else 3
        self.updates = 5_000 if quick else 1_000_000
        self.steady = 0.5 if quick else 2


class Run(measure.Samples):
    def __init__(self, args):
        super().__init__()
        self.kinds = args.kinds
        self.parts = args.parts
        self.size = Size(args.quick)
        if args.alternations:
            self.size.alternations = args.alternations
            self.size.rolls = min(self.size.rolls, args.alternations)
            self.size.returns = min(self.size.returns, args.alternations)

    def ensemble(self, kind, heap=None):
        return Ensemble(kind, heap)

    def load(self, targets, op, payload, sessions, pipeline):
        shape = ["--payload", payload, "--sessions", sessions, "--pipeline", pipeline]
        times = ["--warmup", self.size.warmup, "--duration", self.size.duration]
        if targets[0].kind == "etcd":
            return generate_etcd(targets, *shape, *times)
        return measure.generate(None, targets, "--op", op, *shape, *times)

    def speed(self):
        """CPU, throughput and latency. Load by load, one kind right after the other."""
        with contextlib.ExitStack() as stack:
            ensembles = [stack.enter_context(self.ensemble(kind)) for kind in self.kinds]
            alone = [stack.enter_context(Server(kind, None)) for kind in self.kinds if kind != "etcd"]
            for each in ensembles + alone:
                each.pause()
            for each in ensembles + alone:
                if each.kind == "zookeeper":
                    each.resume()
                    self.warm_up(getattr(each, "members", [each]))
                    each.pause()
            # Gets come first, from trees that nothing was done to yet, so that all servers are alike.
            for ensemble in self.turns(each for each in ensembles if each.kind != "etcd"):
                self.gets("get cpu us, contact server", ensemble.followers()[0])
            for server in self.turns(alone):
                self.gets("get cpu us, standalone", server)
            for work in [self.sets, self.sets_waiting, self.sets_alone]:
                for ensemble in self.turns(ensembles):
                    work(ensemble)

    def warm_up(self, targets):
        for op in ["mixed", "create-delete"]:
            seconds = ["--duration", self.size.warmup_jvm / 2]
            measure.generate(None, targets, "--op", op, "--mix", "get=50,set=50", *seconds)

    def turns(self, paused):
        """Servers or ensembles one at a time, while the others are stopped."""
        for each in paused:
            each.resume()
            yield each
            each.pause()

    def sets(self, ensemble):
        for payload in [100, 1024]:
            result = self.load(ensemble.members, "set", payload, 32, 64)
            if "server" in result:
                cpu = result["server"]["cpu_us_per_operation"]
                self.note(f"set {payload} B cpu us, all three", ensemble.kind, cpu)
            self.note(f"set {payload} B ops/s", ensemble.kind, result["throughput"])

    def sets_waiting(self, ensemble):
        result = self.load(ensemble.members, "set", 100, 50, 1)
        self.note("set ops/s, 50 x 1", ensemble.kind, result["throughput"])

    def sets_alone(self, ensemble):
        for name, contact in [("leader", ensemble.leader()), ("follower", ensemble.followers()[0])]:
            result = self.load([contact], "set", 100, 1, 1)
            self.note(f"set p50 us, 1 x 1, {name}", ensemble.kind, result["latency_us"]["set"]["p50"])

    def gets(self, name, server):
        result = self.load([server], "get", 100, 32, 64)
        self.note(name, server.kind, result["server"]["cpu_us_per_operation"])

    def failovers(self, kind, kills):
        self.failover(kind, kills, "failover ms")
        if kind != "etcd":
            self.failover(kind, kills, "failover ms, large", self.size.znodes)

    def failover(self, kind, kills, name, znodes=0):
        """Kills the leader under load, again and again: how long is nothing acknowledged?"""
        with self.ensemble(kind, BIG_HEAP if znodes else None) as ensemble:
            if znodes:
                measure.generate(None, [ensemble.leader()], "load", "--znodes", znodes, "--payload", 100)
                ensemble.wait_in_quorum()
            with Probe(ensemble.members) as probe:
                for _ in range(kills):
                    time.sleep(self.size.steady)
                    leader = ensemble.leader()
                    with ensemble.set_apart(leader, probe.process):
                        time.sleep(0.5)
                        probe.mark("killed")
                        leader.stop(signal.SIGKILL)
                        probe.wait_for_write()
                        # A pause right after the first write would be part of the same outage.
                        time.sleep(0.2)
                        outage = probe.mark("restarted")["longest_gap_ms"]
                    self.note(name, kind, outage)
                    leader.launch()
                    leader.wait_in_quorum()
                    ensemble.wait_in_quorum()
                    probe.mark("steady")
                self.note_losses(name, kind, probe.end())

    def rolling(self, kind):
        """Restarts the servers one by one under load."""
        with self.ensemble(kind) as ensemble, Probe(ensemble.members, "--sessions", 30) as probe:
            time.sleep(self.size.steady)
            probe.mark("rolling")
            for member in ensemble.members:
                member.stop(signal.SIGTERM)
                member.launch()
                member.wait_in_quorum()
                time.sleep(self.size.steady)
            probe.wait_for_write()
            pause = probe.mark("over")["longest_gap_ms"]
            self.note("longest pause ms, rolling restart", kind, pause)
            self.note_losses("rolling restart", kind, probe.end())

    def come_back(self, kind):
        """A server that was away for many updates comes back while the others are written to."""
        with self.ensemble(kind) as ensemble:
            away, *others = ensemble.followers() + [ensemble.leader()]
            away.stop(signal.SIGTERM)
            shape = ["--op", "set", "--payload", 100, "--sessions", 32, "--pipeline", 64]
            measure.generate(None, others, *shape, "--operations", self.size.updates)
            newest = "/newest"
            with Session(others[-1].port) as session:
                session.create(newest)
            with Probe(others, "--sessions", 20, "--rate", 500) as probe:
                time.sleep(self.size.steady)
                probe.mark("before")
                time.sleep(self.size.duration)
                before = probe.mark("return")
                away.launch()
                back = away.wait_until_read(newest)
                self.note("return s", kind, back)
                # As long as the time before it: of a few writes the slowest would be the p99.
                time.sleep(max(0, self.size.duration - back))
                meanwhile = probe.mark("over")
                self.note("write p99 us, before the return", kind, before["latency_us"]["p99"])
                self.note("write p99 us, during the return", kind, meanwhile["latency_us"]["p99"])
                self.note_losses("return", kind, probe.end())

    def note_losses(self, name, kind, whole):
        self.note(f"sessions lost, {name}", kind, whole["sessions_lost"])
        self.note(f"writes refused, {name}", kind, sum(whole["errors"].values()))

    def in_turns(self, part, times, work, unlike=None):
        """Some turns of a part over the kinds, but for one that does not have its like."""
        if part not in self.parts:
            return
        for turn in range(times):
            print(f"== {part}, turn {turn + 1} of {times}", flush=True)
            for kind in self.kinds:
                if kind != unlike:
                    work(kind)

    def all(self):
        size = self.size
        if "speed" in self.parts:
            for turn in range(size.alternations):
                print(f"== speed, turn {turn + 1} of {size.alternations}", flush=True)
                self.speed()
        # The kinds take turns after every few kills, so that all meet the same machine.
        turns = min(size.alternations, size.kills)
        self.in_turns("failover", turns, lambda kind: self.failovers(kind, size.kills // turns))
        self.in_turns("rolling", size.rolls, self.rolling, "etcd")
        self.in_turns("return", size.returns, self.come_back, "etcd")


def rows(run, ours="stoa", others="zookeeper"):
    """The lines of the table, those that were measured."""
    medians = run.medians()
    worst = {name: {kind: max(all) for kind, all in by_kind.items()} for name, by_kind in run.samples.items()}
    size, made = run.size, []

    def row(title, name, unit, figures=medians, at_least=False):
        values = figures.get(name, {})
        if values:
            made.append(report.Row(title, "", values.get(ours), values.get(others), unit, None, at_least))

    shape = "32 sessions x 64 outstanding"
    for payload, title in [(100, "100 B"), (1024, "1 KB")]:
        row(f"set {title}, {shape}: CPU of all three servers per operation", f"set {payload} B cpu us, all three", "us")
        row(f"set {title}, the same: throughput", f"set {payload} B ops/s", "/s", at_least=True)
    row("50 sessions, one outstanding each: sets", "set ops/s, 50 x 1", "/s", at_least=True)
    for contact in ["leader", "follower"]:
        row(f"one session at a {contact}, one outstanding: median set latency", f"set p50 us, 1 x 1, {contact}", "us")
    row(f"get 100 B, {shape}: CPU of the contact server per operation", "get cpu us, contact server", "us")
    row("the same at a standalone server", "get cpu us, standalone", "us")
    for name, more in [("failover ms", ""), ("failover ms, large", f", {size.znodes:,} znodes")]:
        kills = "leader killed until the next acknowledged write"
        row(f"{kills}{more}: median", name, "ms")
        row(f"{kills}{more}: worst", name, "ms", worst)
        row(f"sessions lost meanwhile{more}: most in a turn", f"sessions lost, {name}", "", worst)
    row("rolling restart: longest pause between writes, median", "longest pause ms, rolling restart", "ms")
    row("rolling restart: longest pause between writes, worst", "longest pause ms, rolling restart", "ms", worst)
    row("rolling restart: sessions lost of 30, most in a turn", "sessions lost, rolling restart", "", worst)
    row(f"return of a server that was away for {size.updates:,} sets of 1,000 znodes", "return s", "s")
    row(f"write p99 of the others in the {size.duration} s before it", "write p99 us, before the return", "us")
    row(f"the same in the {size.duration} s from its start on", "write p99 us, during the return", "us")
    return made


def etcd_table(run):
    """What etcd has the like of: its client, in Go, shares the cores too and needs more of them."""
    lines = ["| etcd | lowest | median | highest |", "| --- | ---: | ---: | ---: |"]
    for name, by_kind in run.samples.items():
        if values := by_kind.get("etcd"):
            figures = [min(values), run.medians()[name]["etcd"], max(values)]
            lines.append(f"| {name} | {' | '.join(report.number(figure) for figure in figures)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def main():
    parser = measure.arguments(__doc__.splitlines()[0])
    parser.add_argument("--kinds", type=measure.some_of(KINDS), default=KINDS_DEFAULT, help=",".join(KINDS))
    parser.add_argument("--parts", type=measure.some_of(PARTS), default=PARTS, help=",".join(PARTS))
    args = parser.parse_args()
    measure.prepare(args)
    if "etcd" in args.kinds:
        build_etcd()
    run = Run(args)
    machine = measure.measured_machine(run.all)
    made = rows(run)
    print(report.table(made))
    beside = etcd_table(run)
    print(beside)
    if args.quick:
        return
    size = run.size
    facts = {"machine": machine, "sizes": vars(size), "nice": args.nice}
    stem = measure.stem(args, "-ensemble")
    text = f"""# Ensembles of three, Stoa beside Apache ZooKeeper, {stem.name.removesuffix("-ensemble")}

One machine, one run of `bench/ensemble.py`; three servers of one kind and the generator share all cores, while those of the other kind are stopped. Speed: medians of {size.alternations} alternations, after {size.warmup_jvm} s of warm-up of the JVM. Both kinds sync every write on a majority before they answer it, with `tickTime=2000`, `initLimit=10`, `syncLimit=5`, JVM defaults, and `-Xms1g -Xmx2g` where many znodes are held. Killed means `kill -9` of the leader, {size.kills} times without znodes and as often with {size.znodes:,}.

{report.table(made)}

{beside}
"""
    report.write(stem, text, facts, run.samples, run.medians(), servers.commands)
    print(f"written: {stem}.md")


if __name__ == "__main__":
    main()
