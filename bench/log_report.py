"""Tables and a plot of a log that writers at several sites write by turns."""

import statistics

import report
from agora import lines
from wide import AWAY, JITTER_MS, ROUND_TRIP_MS

# What the others are held against.
BASE = "zko"
# How many times as many entries as that are wanted, at a length of turns.
WANTED_MS = 400
WANTED = {"consecutive": 1.45, "expected": 2.2}
ENTRIES, SHARE = "entries/s", "share of the time"


def figures(turns, writers):
    """What the turns of one length come to, by name. Rounds are whole: the first one is not counted, the last turn
    only ends the one before."""
    turns = sorted(turns, key=lambda turn: turn["acquired"])[writers:]
    counted, ms = turns[:-1], turns[-1]["acquired"] - turns[0]["acquired"]
    if not counted or len(counted) % writers:
        raise ValueError(f"{len(counted)} turns are no whole rounds of {writers}")
    entries = sum(turn["entries"] for turn in counted)
    writing = sum(turn["written"] - turn["ready"] for turn in counted if turn["entries"])
    made = {ENTRIES: entries / ms * 1e3, SHARE: writing / ms}
    for site in AWAY:
        own = [turn for turn in counted if turn["site"] == site]
        took = [after["acquired"] - turn["recorded"] for turn, after in zip(turns, turns[1:]) if after["site"] == site]
        made[f"entries a turn, {site}"] = statistics.mean(turn["entries"] for turn in own)
        made[f"until its ledger is there, {site}, ms"] = statistics.mean(turn["ready"] - turn["acquired"] for turn in own)
        made[f"until its end is recorded, {site}, ms"] = statistics.mean(turn["recorded"] - turn["written"] for turn in own)
        made[f"until the lock is there, {site}, ms"] = statistics.mean(took)
    return made


def over(value, base):
    """How many times as much; where there is nothing to hold it against, that is said."""
    if "" in (value, base):
        return ""
    return f"{value / base:.2f}x" if base else "no entry there"


def write(run, kinds, stem, machine, commands):
    """Writes the record and its plot; returns the text."""
    results = Results(run, kinds)
    date = stem.name.split("-sites")[0]
    shown = "\n".join(f"- `{name}`: {kinds[name].title}" for name in run.kinds)
    trips = ", ".join(f"{one.capitalize()} to {other.capitalize()} {ms} ms" for (one, other), ms in ROUND_TRIP_MS.items())
    besides = f" Beside it on the machine: {machine['besides']}." if "besides" in machine else ""
    besides += f" The bookies' folders are in {run.folders}." if run.folders else ""
    path = stem.with_name(f"{stem.name}-entries.svg")
    report.plot_lines(path, "A log written by turns", "length of a turn, s", "entries a second", results.series())
    whole = f"""# A log that sites write by turns, {date}

One run of `bench/sites_log.py` on one machine: Figure 7 of the WanKeeper paper, with Apache BookKeeper {machine["bookkeeper"]}.{besides} Three writers in California and one in Frankfurt take turns by a lock; what each turn is stands in [the benchmarks' page](../README.md#a-log-that-sites-write-by-turns). The service that has the lock, the log's znode and BookKeeper's metadata is

{shown}

each with a server in Virginia, California and Frankfurt. Round trips, by links of `stoa proxy`: {trips}; each way up to {JITTER_MS} ms more or less. One kind was measured after the other, {run.size.turns} times; figures are medians of those.

## What is wanted

{results.wanted()}

## Entries

{results.entries()}

{results.ratios()}

{results.shares()}

![entries]({path.name})

## Where the time of a turn goes

Turns of {WANTED_MS} ms, means in ms. A ledger is there when it was created and stands in the log's znode; that and the entries have the turn's time. Behind it the ledger is closed and its end recorded, and the next writer has the lock.

{results.times()}

```
python3 bench/sites_log.py --kinds {",".join(run.kinds)}
```
"""
    facts = {"machine": machine, "sizes": vars(run.size), "written": run.written}
    spread = {name: by_kind for name, by_kind in run.samples.items() if name.endswith((ENTRIES, SHARE))}
    report.write(stem, whole, facts, spread, run.medians(), commands)
    return whole


class Results:
    """The tables."""

    def __init__(self, run, kinds):
        self.run, self.kinds, self.medians = run, kinds, run.medians()

    def value(self, ms, figure, kind):
        """A median; empty where it was not measured."""
        return self.medians.get(f"{ms} ms: {figure}", {}).get(kind, "")

    def rows(self, cell, kinds):
        return [[f"{ms / 1000:g} s", *(cell(ms, kind) for kind in kinds)] for ms in self.run.size.lengths_ms]

    def entries(self):
        return lines(["entries a second, by a turn's length", *self.run.kinds], self.rows(lambda ms, kind: self.value(ms, ENTRIES, kind), self.run.kinds))

    def ratios(self):
        others = [kind for kind in self.run.kinds if kind != BASE]
        if len(others) == len(self.run.kinds):
            return ""
        cell = lambda ms, kind: over(self.value(ms, ENTRIES, kind), self.value(ms, ENTRIES, BASE))
        return lines([f"entries a second over {BASE}", *others], self.rows(cell, others))

    def shares(self):
        cell = lambda ms, kind: f"{100 * self.value(ms, SHARE, kind):.1f}%"
        return lines(["share of the time in which entries were written", *self.run.kinds], self.rows(cell, self.run.kinds))

    def times(self):
        steps = ["until its ledger is there, {}, ms", "until its end is recorded, {}, ms", "until the lock is there, {}, ms", "entries a turn, {}"]
        rows = []
        for step in steps:
            for site in AWAY:
                name = step.format(site)
                rows.append([step.format(site.capitalize()).removesuffix(", ms"), *(self.value(WANTED_MS, name, kind) for kind in self.run.kinds)])
        return lines(["", *self.run.kinds], rows)

    def wanted(self):
        rows = []
        for kind, least in WANTED.items():
            mine, base = (self.value(WANTED_MS, ENTRIES, each) for each in (kind, BASE))
            if "" in (mine, base) or not base:
                continue
            verdict = "reached" if mine / base >= least else "**short**"
            rows.append([f"{kind}: entries over {BASE}, turns of {WANTED_MS / 1000:g} s", f"{least:g}x", over(mine, base), verdict])
        return lines(["", "wanted", "measured", ""], rows)

    def series(self):
        return [
            (kind, [(ms / 1000, self.value(ms, ENTRIES, kind)) for ms in self.run.size.lengths_ms], False)
            for kind in self.run.kinds
        ]
