#!/usr/bin/env python3
"""The log of the WanKeeper paper: writers at several sites write one log by turns, with Apache BookKeeper's own client and
servers, whose metadata and lock are in one service with a server at each site.

Results go to bench/results/<date>-sites-log.{json,md} with a plot beside them.
"""

import contextlib
import dataclasses
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import typing

import log_report
import measure
import servers
import tokens
from agora import commands
from servers import ROOT, Server, shown
from wide import AWAY, HUB, KINDS, ONE_TRIP, TWO_TRIPS, TokenSites, is_open

WEST, EAST = AWAY
# Where the writers are: the log is at home in California. They take the lock one after the other.
WRITERS = [WEST, WEST, WEST, EAST]
# Bookies at each of these sites; an entry is on the disks of all of its writer's site.
BOOKIES = 2
LENGTHS_MS = [100, 200, 400, 700, 1000, 2000]
# What the next turn takes besides, about.
BETWEEN_MS = 200
SPREAD_SECONDS = 2
JARS = ROOT / "target" / "bookkeeper"
SOURCES = ROOT / "bench" / "bookkeeper"
# How many writes are looked at before anything counts.
CHECKED = 20


def with_policy(policy):
    sites = TokenSites()
    sites.policy = policy
    return sites


@dataclasses.dataclass(frozen=True)
class Kind:
    title: str
    make: typing.Callable
    # Between what a write in California has to be, as in wide.py.
    write_ms: tuple | None = None


LOG_KINDS = {
    "zk": Kind(KINDS["zk"].title, KINDS["zk"].make, TWO_TRIPS),
    "zko": Kind(KINDS["zko"].title, KINDS["zko"].make, ONE_TRIP),
    "consecutive": Kind("Stoa, sites with `site-policy` `consecutive 2`", lambda: with_policy("consecutive 2")),
    "expected": Kind("Stoa, sites with the default `site-policy`", lambda: with_policy(None)),
}


class Size:
    """How long everything is, in seconds, and how often."""

    def __init__(self, quick):
        self.warmup = 2 if quick else 20
        self.seconds = 2 if quick else 24
        self.turns = 1 if quick else 3
        self.lengths_ms = [100, 400] if quick else LENGTHS_MS


class Bookie(Server):
    """A server of BookKeeper, with its journal and its ledgers in a folder of its own."""

    def __init__(self, metadata_port, folders=None):
        super().__init__("bookie", None)
        self.metadata_port = metadata_port
        if folders:
            self.folder.rmdir()
            self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-bookie-", dir=folders))

    def command(self):
        config = self.folder / "bk.conf"
        settings = {
            "metadataServiceUri": uri(self.metadata_port),
            "bookiePort": self.port,
            "allowLoopback": "true",
            "advertisedAddress": "127.0.0.1",
            "journalDirectories": self.folder / "journal",
            "ledgerDirectories": self.folder / "ledgers",
            # Small files, and few threads: there are four on this machine.
            "journalMaxSizeMB": 64,
            "journalPreAllocSizeMB": 4,
            "journalMaxBackups": 0,
            "logSizeLimit": 64 << 20,
            "entryLogFilePreallocationEnabled": "false",
            "numAddWorkerThreads": 1,
            "numReadWorkerThreads": 1,
            "serverNumIOThreads": 1,
            "diskUsageThreshold": 0.99,
            "diskUsageWarnThreshold": 0.99,
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        memory = ["-Xms128m", "-Xmx128m", "-XX:MaxDirectMemorySize=128m"]
        return java("org.apache.bookkeeper.server.Main", "--conf", config, memory=memory)


def uri(port):
    return f"zk://127.0.0.1:{port}/ledgers"


def java(main, *arguments, memory=()):
    """A command line with BookKeeper's jars."""
    options = [*memory, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    return ["java", *options, "-cp", f"{JARS / 'classes'}:{JARS / '*'}", main, *arguments]


def build():
    """Brings BookKeeper's jars if they are not there yet, and compiles the writers."""
    commands = []
    if not list(JARS.glob("bookkeeper-server-*.jar")):
        bring = ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        commands.append([*bring, "--file", SOURCES / "pom.xml", f"-DoutputDirectory={JARS}"])
    commands.append(["javac", "-d", JARS / "classes", "-cp", JARS / "*", SOURCES / "Writers.java"])
    for command in commands:
        shown(command)
        subprocess.run([str(part) for part in command], check=True)


def turns_of(ms, seconds):
    """How many turns of this length are asked for: whole rounds, of which the first does not count, and one more,
    which ends the last one."""
    around = len(WRITERS) * (ms + BETWEEN_MS) / 1000
    return len(WRITERS) * (1 + max(2, math.ceil(seconds / around))) + 1


class Run(measure.Samples):
    def __init__(self, args):
        super().__init__()
        self.kinds, self.size, self.quick, self.folders = args.kinds, Size(args.quick), args.quick, args.folders
        if args.alternations:
            self.size.turns = args.alternations
        # By kind: what the writers said of each of their turns, for each time that they ran.
        self.written = {}

    def all(self):
        for number in range(1, self.size.turns + 1):
            for name in self.kinds:
                print(f"== {name}, turn {number}", flush=True)
                with LOG_KINDS[name].make() as service:
                    self.require(name, service)
                    self.measure(name, service)

    def require(self, name, service):
        """Ends the run where a write of ZooKeeper does not take what it should."""
        with tokens.Client(service.at(WEST).port) as client:
            client.create("/checked")
            # The first ones are those of a JVM that is cold.
            ms = statistics.median(tokens.timed(client, ["/checked"] * 2 * CHECKED)[CHECKED:])
        print(f"  a write in California takes {ms:.1f} ms [{name}]", flush=True)
        known = LOG_KINDS[name].write_ms
        if known and not known[0] <= ms <= known[1] and not self.quick:
            sys.exit(f"{name}: a write in California takes {ms:.1f} ms in the median, which should be {known[0]} to {known[1]}")

    def measure(self, name, service):
        with contextlib.ExitStack() as stack:
            run_java("Writers", "format", uri(service.at(HUB).port))
            time.sleep(SPREAD_SECONDS)
            bookies = {site: [Bookie(service.at(site).port, self.folders) for _ in range(BOOKIES)] for site in AWAY}
            for bookie in [each for site in AWAY for each in bookies[site]]:
                stack.callback(bookie.__exit__)
                bookie.launch()
            for bookie in [each for site in AWAY for each in bookies[site]]:
                bookie.wait_until(lambda bookie=bookie: is_open(bookie.port))
            writers = [
                f"{site}=127.0.0.1:{service.at(site).port}={'+'.join(f'127.0.0.1:{each.port}' for each in bookies[site])}"
                for site in WRITERS
            ]
            warm = turns_of(400, self.size.warmup)
            lengths = [f"400x{warm}", *(f"{ms}x{turns_of(ms, self.size.seconds)}" for ms in self.size.lengths_ms)]
            said = run_java("Writers", "write", ",".join(lengths), *writers)
        turns = [json.loads(line) for line in said.splitlines()][warm:]
        self.written.setdefault(name, []).append(turns)
        self.keep(name, turns)

    def keep(self, name, turns):
        for ms in self.size.lengths_ms:
            for figure, value in log_report.figures([turn for turn in turns if turn["turn_ms"] == ms], len(WRITERS)).items():
                self.note(f"{ms} ms: {figure}", name, value)


def run_java(*arguments):
    """Has BookKeeper's client do something; returns what it said."""
    command = [str(part) for part in java(*arguments)]
    shown(command)
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, preexec_fn=servers.prepare, check=True)
    return process.stdout


def arguments():
    parser = measure.arguments(__doc__.splitlines()[0])
    names = list(LOG_KINDS)
    parser.add_argument("--kinds", type=measure.some_of(names), default=names, help=",".join(names))
    parser.add_argument("--folders", type=pathlib.Path, help="where bookies have their folders, such as /dev/shm; on the disk if nothing is said")
    parser.add_argument("--suffix", default="", help="what the names of the results end with")
    parser.add_argument("--note", default="", help="what else runs on the machine, for the record")
    return parser.parse_args()


def main():
    args = arguments()
    measure.prepare(args)
    build()
    run = Run(args)
    machine = measure.measured_machine(run.all)
    machine["bookkeeper"] = next(JARS.glob("bookkeeper-server-*.jar")).stem.removeprefix("bookkeeper-server-")
    if args.note:
        machine["besides"] = args.note
    with contextlib.ExitStack() as stack:
        if args.quick:
            args.results = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stem = measure.stem(args, "-".join(filter(None, ["-sites-log", args.suffix])))
        print(log_report.write(run, LOG_KINDS, stem, machine, commands()))
        print(f"written: {stem}.md")


if __name__ == "__main__":
    main()
