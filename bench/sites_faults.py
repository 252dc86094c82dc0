#!/usr/bin/env python3
"""What several sites do when something fails, beside what is wanted of them: kills, cuts, promotions, a site that joins.

Results go to bench/results/<date>-sites-faults.{json,md} with plots beside them.
"""

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import signal
import statistics
import tempfile
import time

import faults_report
import measure
import servers
import tokens
from agora import commands
from ensembles import Probe, pin
from servers import Server
from site_ensembles import SITES, SiteEnsembles
from sites import cpu_us
from tokens import Client
from wide import AWAY, HUB, ROUND_TRIP_MS

PARTS = ["forward", "lag", "leader", "cut", "promote", "join", "cpu"]
WEST, EAST = AWAY
# What the probe writes, and the generator.
PROBED, LOADED = "/probe", "/bench"
# How often is written where it is said how often, a second, and by how many sessions.
RATE, SESSIONS = 1000, 8
PROBE = ["--sessions", SESSIONS, "--rate", RATE]
# Sessions and requests outstanding of each for CPU time.
SHAPES = [(32, 64), (50, 1)]
POLL_SECONDS = 0.001
# How servers run that have threads which let others go first: in real time these would not.
ORDINARY, NICE = ["chrt", "--other", "0"], -15
NO_SITES, EARLIER = "no sites", "no sites, earlier build"


class Size:
    """How long everything is, in seconds, and how often."""

    def __init__(self, quick):
        self.forwarded = 20 if quick else 200
        self.lag = 1 if quick else 20
        self.kills, self.window = (1, 1) if quick else (10, 4)
        self.cut = 3 if quick else 60
        # Before and after a cut.
        self.around = 1 if quick else 10
        self.promotions, self.lost = (1, 20) if quick else (5, 300)
        self.znodes = 20_000 if quick else 1_000_000
        self.joins = 1 if quick else 3
        self.cpu_turns, self.cpu = (1, 0.5) if quick else (6, 5)


@dataclasses.dataclass(frozen=True)
class Row:
    """Something that is wanted. `bound` is the highest that meets it; without one it is only told."""

    title: str
    measured: str
    wanted: str
    is_met: bool | None


class Run(measure.Samples):
    def __init__(self, args):
        super().__init__()
        self.parts, self.size, self.before, self.folders = args.parts, Size(args.quick), args.before, args.folders
        self.rows = []
        # What plots are made of, by its name: lists of points.
        self.curves = {}

    def row(self, title, measured, wanted, is_met=None):
        verdict = "" if is_met is None else "met" if is_met else "SHORT"
        print(f"  {title}: {measured} | {wanted} | {verdict}", flush=True)
        self.rows.append(Row(title, measured, wanted, is_met))

    def at_most(self, title, value, unit, wanted, bound):
        self.row(title, f"{value:,.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}", wanted, value <= bound)

    def all(self):
        for part in self.parts:
            print(f"== {part}", flush=True)
            # As in other records what a write costs is measured with a disk.
            tempfile.tempdir = None if part == "cpu" else self.folders
            getattr(self, part)()

    def forward(self):
        """Writes whose tokens stay at the hub, one after the other."""
        with SiteEnsembles(policy="hub") as sites, Client(sites.at(HUB).port) as hub:
            hub.create(tokens.ROOT)
            for site in AWAY:
                with Client(sites.at(site).port) as client:
                    tokens.wait_for(client, tokens.ROOT)
                    times = tokens.timed(client, [tokens.ROOT] * self.size.forwarded)
                p50, trip = statistics.median(times), ROUND_TRIP_MS[HUB, site]
                for ms in times:
                    self.samples.setdefault(f"forwarded write, {site}, ms", {}).setdefault("stoa", []).append(ms)
                self.at_most(f"a write that is forwarded, {site.capitalize()}: p50", p50, "ms", f"{trip} + 3 ms", trip + 3)

    def lag(self):
        """How long after a write at the hub was sent clients of other sites read it."""
        with SiteEnsembles(policy="hub") as sites:
            found = tokens.lags(sites, self.size.lag, RATE)
        for site, times in found.items():
            way = ROUND_TRIP_MS[HUB, site] / 2
            p50, _, p99, highest = tokens.figures(times)
            self.note(f"lag, {site}: longest, ms", "stoa", highest)
            for name, value in [("p50", p50), ("p99", p99)]:
                self.at_most(f"lag of {site.capitalize()}: {name}", value, "ms", f"{way:g} + 3 ms", way + 3)
            times = sorted(times)
            self.curves[f"lag, {site}"] = [(ms - way, 100 * (at + 1) / len(times)) for at, ms in enumerate(times)]

    def leader(self):
        """The leader of a hub of three is killed while a leaf writes what it holds."""
        with SiteEnsembles({HUB: 3}) as sites:
            holds(sites, WEST, PROBED)
            failed, calm, killed, back = 0, [], [], []
            with Probe(sites.members[WEST], *PROBE) as probe:
                for turn in range(self.size.kills):
                    probe.mark("calm")
                    time.sleep(self.size.window)
                    calm.append(probe.mark("killed"))
                    leader = sites.leader(HUB)
                    leader.stop(signal.SIGKILL)
                    sites.wait_until(lambda: sites.leader(HUB) is not None, "another server leads the hub")
                    time.sleep(self.size.window)
                    killed.append(probe.mark("back"))
                    leader.launch()
                    leader.wait_in_quorum()
                    sites.wait_until(lambda: sites.is_connected(WEST), "California is connected again")
                    time.sleep(1)
                    back.append(probe.mark("between"))
                    for name, reports in [("without a kill", calm), ("killed", killed), ("started again", back)]:
                        self.note(f"longest pause at California, {name}, ms", "stoa", reports[-1]["longest_gap_ms"])
                    self.note("writes at California while killed", "stoa", killed[-1]["writes"])
        failed = sum(failures(report) for report in [*killed, *back])
        kills = f"hub's leader killed {self.size.kills} times"
        self.row(f"{kills}: failed local writes at a leaf", f"{failed}", "0", failed == 0)
        longest = max(report["longest_gap_ms"] for report in killed)
        self.at_most(f"{kills}: longest pause there", longest, "ms", "10 ms", 10)
        self.row("as long without a kill: longest pause there", f"{max(report['longest_gap_ms'] for report in calm):.3g} ms", "")
        for name, reports in [("without a kill", calm), ("hub's leader killed", killed)]:
            self.curves[f"pauses, {name}"] = [(turn + 1, report["longest_gap_ms"]) for turn, report in enumerate(reports)]

    def cut(self):
        """The hub is cut off while a leaf writes what it holds."""
        with SiteEnsembles() as sites, Client(sites.at(HUB).port) as hub:
            hub.create("/marks")
            marks = {site: f"/marks/{site}" for site in (HUB, WEST)}
            for path in marks.values():
                hub.create(path)
            holds(sites, WEST, PROBED)
            sites.pin(marks[HUB], HUB)
            sites.pin(marks[WEST], WEST)
            with Probe(sites.members[WEST], *PROBE) as probe:
                each_second = self.count(probe, self.size.around, [])
                probe.mark("cut")
                sites.cut_off_hub()
                self.count(probe, self.size.cut, each_second)
                took = self.caught_up(sites, marks)
                report = probe.mark("healed")
                self.count(probe, self.size.around, each_second)
        done = report["writes"]
        share = done / (done + failures(report))
        said = f"{share:.2%} of {done:,}, {done / report['elapsed_s']:,.0f} a second"
        self.row(f"hub cut off for {self.size.cut} s: held writes served at a leaf", said, "100%", share == 1)
        self.row("longest pause meanwhile", f"{report['longest_gap_ms']:.3g} ms", "")
        self.note("writes at California during the cut", "stoa", done)
        for name, seconds in took.items():
            self.note(f"after the cut: {name}, s", "stoa", seconds)
        self.at_most("the same: until all is caught up after the heal", max(took.values()), "s", "2 s", 2)
        self.curves["cut, California"] = list(enumerate(each_second, 1))

    def count(self, probe, seconds, each_second):
        """Lets time go by; adds how many writes were acknowledged in each second."""
        for _ in range(seconds):
            before, began = probe.look(), time.monotonic()
            time.sleep(1)
            after = probe.look()
            each_second.append((after["writes"] - before["writes"]) / (time.monotonic() - began))
        return each_second

    def caught_up(self, sites, marks):
        """Heals the line; returns by who looks at what how long it takes until what was written there last is here."""
        clients = {site: Client(sites.at(site).port) for site in SITES}
        with contextlib.ExitStack() as stack:
            for client in clients.values():
                stack.enter_context(client)
            for site, path in marks.items():
                clients[site].set(path, b"last")
            pairs = [(viewer, site) for viewer in SITES for site in marks if viewer != site]
            healed = time.monotonic()
            sites.heal()
            took = {}
            while len(took) < len(pairs):
                for viewer, site in pairs:
                    if (viewer, site) not in took and clients[viewer].get(marks[site]) == b"last":
                        took[viewer, site] = time.monotonic() - healed
                if time.monotonic() - healed > 60:
                    raise RuntimeError(f"60 s after the line was healed only {sorted(took)} have what is written")
                time.sleep(POLL_SECONDS)
        return {f"{viewer} has what {site} wrote": seconds for (viewer, site), seconds in took.items()}

    def promote(self):
        """The hub is lost, with what it could not ship; California becomes the hub."""
        took, metrics, lost = [], [], []
        for _ in range(self.size.promotions):
            with SiteEnsembles() as sites:
                metric, seconds, missing = self.promotion(sites)
            self.note("promotion: from the order to the first write, ms", "stoa", seconds * 1e3)
            self.note("promotion: unshipped before the kill", "stoa", metric)
            self.note("promotion: lost", "stoa", missing)
            took.append(seconds * 1e3)
            metrics.append(metric)
            lost.append(missing)
        trip = ROUND_TRIP_MS[AWAY[0], AWAY[1]]
        title = f"hub lost, {self.size.promotions} times: from `promote --lose` to the first write of what it held, longest"
        self.at_most(title, max(took), "ms", f"3 x {trip} ms + 1 s", 3 * trip + 1000)
        title = "the same: writes lost, beside entries that the hub said it had not shipped"
        self.row(title, f"{', '.join(map(str, lost))} beside {', '.join(map(str, metrics))}", "equal", lost == metrics)

    def promotion(self, sites):
        """What the hub said that California lacks, seconds until that writes what the hub held, and how much is lost."""
        made = [f"{tokens.ROOT}/{number}" for number in range(self.size.lost)]
        kept = f"{tokens.ROOT}/kept"
        with Client(sites.at(HUB).port) as hub:
            for path in [tokens.ROOT, kept]:
                hub.create(path)
            # What is shipped is acknowledged a little later.
            sites.wait_until(lambda: all(sites.unshipped(site) == 0 for site in AWAY), "all is shipped")
            sites.break_off_hub()
            for path in made:
                hub.create(path)
            metric = sites.unshipped(WEST)
            if sites.unshipped(EAST) != metric:
                raise RuntimeError("the hub says of one site that it lacks more than the other")
            sites.at(HUB).stop(signal.SIGKILL)
        with concurrent.futures.ThreadPoolExecutor(1) as pool, Client(sites.at(WEST).port) as west:
            began = time.monotonic()
            order = pool.submit(sites.sites, "promote", "--lose", HUB, at=WEST)
            west.set(kept, b"x" * 100)
            seconds = time.monotonic() - began
            order.result()
            missing = sum(not west.exists(path) for path in made)
        return metric, seconds, missing

    def join(self):
        """A site joins while the hub has many znodes and is written to."""
        calm, joining, until = [], [], []
        for _ in range(self.size.joins):
            with ordinary(SiteEnsembles(first=[HUB])) as sites:
                last = self.load(sites.at(HUB))
                with Probe(sites.members[HUB], *PROBE) as probe:
                    time.sleep(self.size.window)
                    probe.mark("calm")
                    time.sleep(2 * self.size.window)
                    calm.append(probe.mark("joins"))
                    sites.launch(WEST)
                    member = sites.at(WEST)
                    # It would be on a machine of its own.
                    pin(member.process.pid, {max(os.sched_getaffinity(0))})

                    def serves():
                        with Client(member.port) as client:
                            return client.exists(last)

                    until.append(member.wait_until(serves))
                    joining.append(probe.mark("joined"))
                self.note("joins: longest pause at the hub, ms", "stoa", joining[-1]["longest_gap_ms"])
                self.note("joins: longest pause at the hub before, ms", "stoa", calm[-1]["longest_gap_ms"])
                self.note("joins: p99 of writes at the hub, ms", "stoa", joining[-1]["latency_us"]["p99"] / 1e3)
                self.note("joins: until it serves, s", "stoa", until[-1])
                if failed := failures(joining[-1]):
                    raise RuntimeError(f"{failed} writes at the hub failed while a site joined")
        title = f"a site joins a hub with {self.size.znodes:,} znodes, {self.size.joins} times: longest pause of writes there"
        self.at_most(title, max(report["longest_gap_ms"] for report in joining), "ms", "20 ms", 20)
        self.row("before that: longest pause there", f"{max(report['longest_gap_ms'] for report in calm):.3g} ms", "")
        self.row("until the site serves, longest", f"{max(until):.3g} s", "")
        self.curves["joins, before"] = [(turn + 1, report["longest_gap_ms"]) for turn, report in enumerate(calm)]
        self.curves["joins, a site joins"] = [(turn + 1, report["longest_gap_ms"]) for turn, report in enumerate(joining)]

    def load(self, server):
        """Fills a server; returns the path of what was created last."""
        command = measure.generator(None, "load", "--server", measure.addresses([server]), "--znodes", str(self.size.znodes))
        measure.reported([*command, "--payload", "100", "--json"])
        last = "/bench/last"
        with Client(server.port) as client:
            client.create(last)
        return last

    def cpu(self):
        """CPU time of a server for each write, with sites and without, in turns."""
        with contextlib.ExitStack() as stack:
            alone = {NO_SITES: stack.enter_context(Server("stoa", None))}
            if self.before:
                alone[EARLIER] = Server("stoa", None)
                alone[EARLIER].binary = self.before
                stack.enter_context(alone[EARLIER])
            sites = stack.enter_context(SiteEnsembles())
            for server in [*alone.values(), sites.at(HUB)]:
                measure.generate(None, [server], "--op", "set", "--warmup", 0, "--duration", 0.1)
            places = [(kind, server, None) for kind, server in alone.items()]
            places += [("a leaf", sites.at(WEST), WEST), ("the hub", sites.at(HUB), HUB)]
            for turn in range(self.size.cpu_turns):
                for load, options in loads().items():
                    # Whoever comes behind another one finds the machine as that has left it.
                    for kind, server, site in places[:: -1 if turn % 2 else 1]:
                        if site:
                            sites.pin(LOADED, site)
                        self.note(f"cpu us a write, {load}", kind, self.cost(server, options, sites if site else None))
        for load in loads():
            samples = self.samples[f"cpu us a write, {load}"]
            for kind in ["a leaf", "the hub"]:
                self.more(f"CPU of a write, {load}: {kind} beside no sites", samples[NO_SITES], samples[kind], 0.15)
            if self.before:
                self.more(f"CPU of a write, {load}: no sites beside an earlier build", samples[EARLIER], samples[NO_SITES], 0)

    def more(self, title, before, after, bound):
        """A row of how much more something takes, the median of those within the turns. A fiftieth is nothing: that much
        turns differ by themselves."""
        ratio = statistics.median(late / early for early, late in zip(before, after))
        figures = " to ".join(f"{statistics.median(values):.3g}" for values in (before, after))
        wanted = f"+{bound:.0%} at most" if bound else "+0%"
        self.row(title, f"{ratio - 1:+.1%} ({figures} us)", wanted, ratio - 1 <= max(bound, 0.02))

    def cost(self, server, options, sites=None):
        """Microseconds a write, until all of it is at the other sites."""
        before = cpu_us(server.process.pid)
        made = measure.generate(None, [server], "--op", "set", *options, "--prepared", "--warmup", 0, "--duration", self.size.cpu)
        if sites:
            others = [site for site in SITES if site != server.site] if server.site == HUB else [HUB]
            sites.wait_until(lambda: not any(sites.unshipped(each, server.site) for each in others), "all is shipped", 0.05)
        return (cpu_us(server.process.pid) - before) / made["operations"]


def loads():
    """What CPU time is measured with: options by name."""
    return {f"{sessions} x {pipeline}": ["--sessions", sessions, "--pipeline", pipeline] for sessions, pipeline in SHAPES}


@contextlib.contextmanager
def ordinary(sites):
    """Has servers run before others, but not in real time."""
    before, servers.nice = servers.nice, min(NICE, servers.nice)
    for member in sites.servers():
        member.under = ORDINARY
    try:
        with sites:
            yield sites
    finally:
        servers.nice = before


def failures(report):
    """Writes of a probe that were refused or have no answer, and connections and sessions that were lost."""
    return sum(report["errors"].values()) + sum(report[name] for name in ["unknown", "connections_lost", "sessions_lost"])


def holds(sites, site, path):
    """Has a site hold the token of a new znode, and of all that will be below it."""
    with Client(sites.at(HUB).port) as hub:
        hub.create(path)
    sites.pin(path, site)


def arguments():
    parser = measure.arguments(__doc__.splitlines()[0], alternates=False)
    parser.add_argument("--parts", type=measure.some_of(PARTS), default=PARTS, help=",".join(PARTS))
    parser.add_argument("--before", type=pathlib.Path, help="an earlier build, for CPU time without sites")
    parser.add_argument("--folders", help="where servers' folders are made; in memory no other work on the disk counts")
    parser.add_argument("--suffix", default="", help="what the names of the results end with")
    parser.add_argument("--note", default="", help="what else runs on the machine, for the record")
    return parser.parse_args()


def main():
    args = arguments()
    measure.prepare(args)
    run = Run(args)
    machine = measure.measured_machine(run.all)
    tempfile.tempdir = None
    if args.note:
        machine["besides"] = args.note
    with contextlib.ExitStack() as stack:
        if args.quick:
            args.results = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stem = measure.stem(args, "-".join(filter(None, ["-sites-faults", args.suffix])))
        text = faults_report.write(run, stem, machine, commands())
        print(text)
        print(f"written: {stem}.md")


if __name__ == "__main__":
    main()
