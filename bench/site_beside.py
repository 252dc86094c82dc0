#!/usr/bin/env python3
"""What a site does of reads and of writes whose tokens it holds, beside a server that knows of no sites.

A site has a machine of its own; here all three have the processors and the disk of one, so that what others do with an
update takes from the site that makes it. So the site in California, the lone server and their clients have one processor,
all else has the other one, data is in memory (/dev/shm), and the two are measured in turn. The client shares the
processor with the server, and there is no disk, whose time would hide what the server costs.

Results go to bench/results/<date>-site-beside.{json,md}.
"""

import json
import os
import statistics
import tempfile

import measure
from wide import AWAY, HUB, SiteServer, TokenSites

ITS_OWN, THE_OTHERS = 1, 0
WRITES = [0, 50, 100]
# How many requests a session has outstanding: one after the other, and so many that they come together.
PIPELINES = [1, 64]
FIGURES = {"operations a second": "throughput", "processor time of the server, us an operation": "cpu_us"}


class PinnedSites(TokenSites):
    """Three sites; that in California has a processor of its own."""

    def __init__(self):
        super().__init__()
        for member in self.members:
            member.core = ITS_OWN if member.site == AWAY[0] else THE_OTHERS


def turn(server, writes, pipeline, seconds, is_first):
    """One turn at one server; returns what came of it."""
    options = ["sites", "--site", f"here=127.0.0.1:{server.port}", "--server", f"127.0.0.1:{server.port}"]
    options += ["--server-pid", server.process.pid, "--records", 100, "--writes", writes, "--pipeline", pipeline]
    # Records have a top of their own for each load: who has used them before is nobody's business here.
    options += ["--path", f"/w{writes}p{pipeline}", "--duration", seconds, "--json"]
    result = measure.reported(measure.generator(ITS_OWN, *options, *([] if is_first else ["--prepared"])))
    (of_site,) = result["sites"].values()
    return {"throughput": of_site["throughput"], "cpu_us": result["server"]["cpu_us_per_operation"]}


def measured(args):
    """By load and figure what each of the two does, turn by turn."""
    seconds, turns = (0.5, 1) if args.quick else (3, args.alternations or 7)
    found = {}
    lone = SiteServer(AWAY[0])
    lone.core = ITS_OWN
    with PinnedSites() as sites, lone:
        pair = {"site": sites.at(AWAY[0]), "lone": lone}
        for writes in WRITES:
            for pipeline in PIPELINES:
                # Until the tokens have come.
                for server in pair.values():
                    turn(server, writes, pipeline, seconds, True)
                made = {name: [] for name in pair}
                for _ in range(turns):
                    for name, server in pair.items():
                        made[name].append(turn(server, writes, pipeline, seconds, False))
                found[f"{writes}% writes, {pipeline} outstanding"] = made
    return found


def text(found, machine, command):
    """The report."""
    parts = [f"# A site beside a server without sites\n\n{__doc__.splitlines()[0]} {' '.join(__doc__.split(chr(10) * 2)[1].split())}"]
    for title, figure in FIGURES.items():
        rows = [f"| {title} | a site | no sites | beside no sites, median (from, to) |", "| --- | ---: | ---: | ---: |"]
        for load, made in found.items():
            of = {name: [one[figure] for one in turns] for name, turns in made.items()}
            ratios = sorted(site / lone for site, lone in zip(of["site"], of["lone"]))
            site, lone = (statistics.median(of[name]) for name in ("site", "lone"))
            rows.append(
                f"| {load} | {site:,.4g} | {lone:,.4g} | {statistics.median(ratios):.2f}x ({ratios[0]:.2f}, {ratios[-1]:.2f}) |"
            )
        parts.append("\n".join(rows))
    told = ", ".join(f"{name}: {value}" for name, value in machine.items())
    parts += [f"The machine: {told}.", f"```console\n$ {command}\n```"]
    return "\n\n".join(parts) + "\n"


def main():
    args = measure.arguments(__doc__.splitlines()[0]).parse_args()
    measure.prepare(args)
    tempfile.tempdir = "/dev/shm"
    made = {}
    machine = measure.measured_machine(lambda: made.update(measured(args)))
    report = text(made, machine, f"python3 bench/site_beside.py --nice {args.nice}")
    print(report)
    if not args.quick:
        stem = measure.stem(args, "-site-beside")
        stem.with_suffix(".md").write_text(report)
        stem.with_suffix(".json").write_text(json.dumps({"machine": machine, "loads": made}, indent=1) + os.linesep)
        print(f"written: {stem}.md")


if __name__ == "__main__":
    main()
