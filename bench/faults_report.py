"""What is wanted of several sites when something fails, and what was measured: tables and plots."""

import report
from wide import ROUND_TRIP_MS

# Plots by name: which curves, and how they are shown.
PLOTS = {
    "lag": ("lag, ", "How far other sites are behind", "ms beyond the way", "share of the writes, %", {"dots": False}),
    "pauses": ("pauses, ", "Longest pause of writes at California", "kill", "ms", {}),
    "cut": ("cut, ", "Writes of what California holds, the hub cut off", "seconds", "acknowledged in a second", {"dots": False}),
    "joins": ("joins, ", "Longest pause of writes at the hub", "turn", "ms", {}),
}


def write(run, stem, machine, commands):
    """Writes the record and its plots; returns the text."""
    date = stem.name.split("-sites")[0]
    trips = ", ".join(f"{one.capitalize()} to {other.capitalize()} {ms} ms" for (one, other), ms in ROUND_TRIP_MS.items())
    besides = f" Beside it on the machine: {machine['besides']}." if "besides" in machine else ""
    besides += f" The servers' folders are in {run.folders}, but of `cpu` on the disk." if run.folders else ""
    plots = "\n\n".join(drawn(run, stem))
    whole = f"""# Sites when something fails, {date}

One run of `bench/sites_faults.py` on one machine.{besides} Each site is one server, but for the hub whose leader is killed, which is three; all are processes of this machine. The hub is Virginia. Round trips, by links of `stoa proxy`: {trips}. What was measured, and how, stands in [the benchmarks' page](../README.md#sites-when-something-fails).

{table(run.rows)}

{plots}
"""
    facts = {"machine": machine, "sizes": vars(run.size), "rows": [vars(row) for row in run.rows], "curves": run.curves}
    report.write(stem, whole, facts, run.samples, run.medians(), commands)
    return whole


def table(rows):
    """A line for each row. What is only told has no verdict."""
    lines = ["| row | measured | wanted | |", "| --- | ---: | ---: | --- |"]
    for row in rows:
        verdict = {None: "", True: "met", False: "**SHORT**"}[row.is_met]
        lines.append(f"| {row.title} | {row.measured} | {row.wanted} | {verdict} |")
    return "\n".join(lines)


def drawn(run, stem):
    """Draws what there is; yields where it is."""
    for name, (start, title, x_title, y_title, how) in PLOTS.items():
        series = [
            (key.removeprefix(start).capitalize(), points, False)
            for key, points in run.curves.items()
            if key.startswith(start)
        ]
        if series:
            path = stem.with_name(f"{stem.name}-{name}.svg")
            report.plot_lines(path, title, x_title, y_title, series, **how)
            yield f"![{name}]({path.name})"
