#!/usr/bin/env python3
"""The experiments of *The Cost of Consensus*: operations and locks of Stoa and Apache ZooKeeper from any distance.

Results go to bench/results/<date>-consensus-cost.{html,json,md}. Each result is kept when it is there, so a run that
was stopped goes on where it was: say the same again.
"""

import json
import pathlib
import sys

import measure
import servers
from consensus import cells, page
from consensus.journal import Journal
from consensus.laboratory import Laboratory
from consensus.results import Results
from consensus.page import Section, Table

TITLE = "The cost of consensus"
WARMUP_JVM = {True: 2, False: 20}


def arguments():
    parser = measure.arguments(__doc__.splitlines()[0], alternates=False)
    parser.add_argument("--parts", type=measure.some_of(cells.PARTS), default=cells.PARTS, help=",".join(cells.PARTS))
    parser.add_argument("--only", choices=cells.KINDS, help="one kind of servers alone")
    parser.add_argument("--servers", type=sizes, default=cells.SIZES, help="how many, as in 1,3,5")
    parser.add_argument("--journal", type=pathlib.Path, help="where results are kept until all are there")
    parser.add_argument("--anew", action="store_true", help="forget what was measured before")
    parser.add_argument("--report", action="store_true", help="measure nothing, report what there is")
    return parser.parse_args()


def sizes(text):
    return [int(size) for size in measure.some_of([str(size) for size in cells.SIZES])(text)]


def main():
    args = arguments()
    kinds = [args.only] if args.only else cells.KINDS
    wanted = cells.cells(cells.Size(args.quick), args.parts, kinds, args.servers)
    name = "quick.jsonl" if args.quick else "full.jsonl"
    path = args.journal or servers.ROOT / "target" / "consensus-cost" / name
    if args.anew:
        path.unlink(missing_ok=True)
    measure.prepare(args)
    journal = Journal(path)
    failures = []
    if not args.report:
        facts = measure.watched_machine()
        laboratory = Laboratory(wanted, journal, WARMUP_JVM[args.quick])
        try:
            laboratory.run()
        finally:
            journal.begin(facts())
            print(f"kept: {path}")
        failures = laboratory.failures
    write(args, wanted, journal, failures)
    for what, why in failures:
        print(f"FAILED: {what}: {why}", file=sys.stderr)
    sys.exit(1 if failures else 0)


def write(args, wanted, journal, failures):
    """Writes the report of what there is."""
    results = Results(wanted, journal)
    suffix = "-consensus-cost" + ("-quick" if args.quick else "")
    if args.quick:
        # It shows nothing, and is not kept with the others.
        args.results = servers.ROOT / "target" / "consensus-cost"
    stem = measure.stem(args, suffix)
    sections = [introduction(results, journal, failures), *results.all()]
    stem.with_suffix(".html").write_text(page.as_html(TITLE, sections))
    stem.with_suffix(".md").write_text(page.as_markdown(TITLE, sections))
    kept = {"sessions": journal.sessions, "cells": [{"cell": c.key, "result": r} for c, r in results.turns]}
    stem.with_suffix(".json").write_text(json.dumps(kept) + "\n")
    print(f"written: {stem}.html, .md and .json")


def introduction(results, journal, failures):
    said = [
        "One machine, links of `stoa proxy`: between servers, and between the clients and the leader, which they are connected to. Every write is synced on a majority before it is answered. Latency counts from when a lock was wanted, also while all clients were busy; what the lock protects checks tokens, and a violation fails the run.",
        "Cells whose round trips are 10 ms and more run at the same time as others, as long as all together ask little; those below run alone, or ask some hundred requests a second together; those of the grid are measured several times, with all others between, and what stands here of them is the mean.",
    ]
    if results.missing:
        said.append(f"Not measured yet: {results.missing} cells.")
    if failures:
        said.append(f"Failed: {len(failures)} cells: {'; '.join(what for what, _ in failures)}.")
    busy = [result["busy"] for _, result in results.measured]
    if busy:
        most = sum(share > 0.7 for share in busy)
        said.append(f"The machine's cores were busy for more than 70% of the time (without what others did at a low priority) in {most} of {len(busy)} cells.")
    rows = [[f"{number}. {name}", value] for number, facts in enumerate(journal.sessions, 1) for name, value in facts.items()]
    return Section("How it was measured", said, [], [Table(["run", "machine"], rows, True)] if rows else [])


if __name__ == "__main__":
    main()
