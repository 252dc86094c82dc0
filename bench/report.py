"""The results: a table of targets, the samples behind it, and plots."""

import dataclasses
import html
import json
import math
import statistics


@dataclasses.dataclass
class Row:
    """A line of the table. `ratio` is Stoa's figure over the other's. Without a bound nothing is met
    or missed; a figure that was not measured is None."""

    title: str
    target: str
    stoa: float | None
    other: float | None
    unit: str
    bound: float | None
    at_least: bool = False

    @property
    def ratio(self):
        return self.stoa / self.other if self.other else self.stoa

    @property
    def is_met(self):
        return self.ratio >= self.bound if self.at_least else self.ratio <= self.bound


@dataclasses.dataclass
class Pairs(Row):
    """What was measured in turns, Stoa's figure and the other's in each. The machine changes more from turn to turn than
    within one, so the ratio is the median of those within the turns."""

    turns: list[tuple[float, float]] = dataclasses.field(default_factory=list)

    @property
    def ratio(self):
        return statistics.median(stoa / other for stoa, other in self.turns)


def rows(medians):
    """The rows, from medians by name and server."""
    made = []

    def row(title, target, name, unit, bound, at_least=False, other="zookeeper"):
        values = medians[name]
        made.append(Row(title, target, values["stoa"], values.get(other), unit, bound, at_least))

    shape = "32 sessions x 64 outstanding"
    row(f"get 100 B, {shape}: server CPU per operation", "at most 1/20", "get cpu us", "us", 1 / 20)
    row("set 100 B, the same", "at most 1/8", "set cpu us", "us", 1 / 8)
    row("create + delete 1 KB, the same", "at most 1/8", "create-delete cpu us", "us", 1 / 8)
    row("get 100 B: throughput, server on one core", "at least 8x", "get ops/s", "/s", 8, True)
    row("set 100 B: throughput", "at least 5x", "set ops/s", "/s", 5, True)
    row("create + delete 1 KB: throughput", "at least 5x", "create-delete ops/s", "/s", 5, True)
    row("50 sessions, one outstanding each: gets", "at least 2x", "get ops/s, 50 x 1", "/s", 2, True)
    row("50 sessions, one outstanding each: sets", "at least 2x", "set ops/s, 50 x 1", "/s", 2, True)
    for op in ["get", "set"]:
        name = f"{op} p99 us at the peer's best"
        row(f"{op} p99 at the rate that ZooKeeper reaches at its best", "at most 1/4", name, "us", 1 / 4)
    for op in ["get", "set"]:
        name = f"{op} p50 us, 1 x 1"
        row(f"one session, one outstanding: median {op} latency", "no slower", name, "us", 1)
    row("memory with 1,000,000 znodes of 100 B", "at most 1/4", "rss MiB with the znodes", "MiB", 1 / 4)
    row("restart with them until the first reply", "at most 1/5", "restart s", "s", 1 / 5)
    row("longest stall of a 1 ms probe during a snapshot", "under 10 ms", "longest stall ms", "ms", 10)
    row("memory of 10,000 idle sessions", "at most 1/2", "rss MiB of idle sessions", "MiB", 1 / 2)
    row("get: server CPU per operation against a bare echo server", "at most 3x", "get cpu us", "us", 3, other="echo")
    return made


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def ratio(row):
    if row.stoa is None or not row.other:
        return ""
    value = row.ratio
    if value == 0:
        return "0"
    return f"{value:.2f}x" if value >= 1 else f"1/{1 / value:.1f}"


def figure(value, unit):
    return "" if value is None else f"{number(value)} {unit}".strip()


def table(rows):
    lines = ["| row | target | Stoa | other | ratio | |", "| --- | --- | ---: | ---: | ---: | --- |"]
    for row in rows:
        stoa, other = figure(row.stoa, row.unit), figure(row.other, row.unit)
        verdict = "" if row.bound is None else "met" if row.is_met else "**missed**"
        lines.append(f"| {row.title} | {row.target} | {stoa} | {other} | {ratio(row)} | {verdict} |")
    return "\n".join(lines)


def write(stem, text, facts, samples, medians, commands):
    """Writes `<stem>.json` and `<stem>.md`: the text, then the machine, the spread and the commands."""
    stem.with_suffix(".json").write_text(
        json.dumps({**facts, "medians": medians, "samples": samples, "commands": commands}, indent=1) + "\n"
    )
    machine = "".join(f"- {key}: {value}\n" for key, value in facts["machine"].items())
    spread = ["| figure | server | lowest | median | highest |", "| --- | --- | ---: | ---: | ---: |"]
    for name, by_kind in samples.items():
        for kind, values in by_kind.items():
            low, high = min(values), max(values)
            spread.append(f"| {name} | {kind} | {number(low)} | {number(medians[name][kind])} | {number(high)} |")
    stem.with_suffix(".md").write_text(f"""{text}
## The machine

{machine}
## The spread

{chr(10).join(spread)}

## The commands

Ports, process ids and rates differ from turn to turn.

```
{chr(10).join(commands)}
```
""")


def plot(rows, path):
    """How many times better than the other server each row is, on a logarithmic scale, and the target."""
    bars = [row for row in rows if row.other]
    left, width, step, top = 430, 420, 26, 40
    better = [row.ratio if row.at_least else 1 / row.ratio for row in bars]
    wanted = [row.bound if row.at_least else 1 / row.bound for row in bars]
    low = min(0, math.floor(math.log10(min(better + wanted))))
    high = math.ceil(math.log10(max(better + wanted)))

    def x(value):
        return left + width * (math.log10(value) - low) / (high - low)

    height = top + step * len(bars) + 30
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 70}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="18">times better than the other server; the mark is the target</text>',
    ]
    for exponent in range(low, high + 1):
        at = x(10**exponent)
        out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top - 8}" y2="{height - 24}" stroke="#ddd"/>')
        out.append(f'<text x="{at:.1f}" y="{height - 8}" text-anchor="middle">{10**exponent:g}</text>')
    for index, (row, value, goal) in enumerate(zip(bars, better, wanted)):
        y = top + step * index
        color = "#2a7f62" if row.is_met else "#b5482a"
        start, end = sorted((x(1), x(value)))
        out.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{html.escape(row.title)}</text>')
        out.append(f'<rect x="{start:.1f}" y="{y}" width="{max(end - start, 1):.1f}" height="16" fill="{color}"/>')
        out.append(f'<rect x="{x(goal) - 1:.1f}" y="{y - 3}" width="2" height="22" fill="black"/>')
        out.append(f'<text x="{end + 6:.1f}" y="{y + 12}">{value:.3g}</text>')
    out.append("</svg>")
    path.write_text("\n".join(out) + "\n")


COLORS = ["#2a7f62", "#1f5fa8", "#8a4fa8", "#c07a1c", "#b5482a", "#555555", "#d06fa3", "#4aa3b5"]


class Scale:
    """Places the values of one axis, evenly or by their logarithms, and says where its ticks are."""

    def __init__(self, values, at, length, log_base=None):
        self.at, self.length, self.log_base = at, length, log_base
        if log_base:
            low, high = (math.log(bound, log_base) for bound in (min(values), max(values)))
            self.low, self.high = math.floor(low + 1e-9), max(math.ceil(high - 1e-9), math.floor(low) + 1)
            self.ticks = [log_base**power for power in range(self.low, self.high + 1)]
        else:
            step = 10 ** math.floor(math.log10(max(values) or 1))
            step = next(part * step for part in (0.2, 0.5, 1, 2) if max(values) <= 6 * part * step)
            self.low, self.high = 0, step * math.ceil(max(values) / step)
            self.ticks = [step * count for count in range(round(self.high / step) + 1)]

    def place(self, value):
        value = math.log(value, self.log_base) if self.log_base else value
        return self.at + self.length * (value - self.low) / (self.high - self.low)


def short(value):
    for size, unit in [(1e6, "M"), (1e3, "k")]:
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def plot_lines(path, *what, **how):
    """Writes a picture of lines."""
    path.write_text(lines_svg(*what, **how))


def lines_svg(title, x_title, y_title, series, x_log=None, y_log=None, dots=True):
    """Lines through points: `series` is [(name, [(x, y)], dashed)]. An axis with a base is logarithmic.
    What has the same name but for what stands behind a comma has the same color."""
    width, height, left, top = 520, 320, 70, 34
    names = max(190, 44 + 7 * max(len(name) for name, _, _ in series))
    points = [point for _, line, _ in series for point in line]
    xs = Scale([x for x, _ in points], left, width, x_log)
    ys = Scale([y for _, y in points], top + height, -height, y_log)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + names}" height="{top + height + 56}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="18" font-weight="bold">{html.escape(title)}</text>',
        f'<text x="{left + width / 2}" y="{top + height + 44}" text-anchor="middle">{html.escape(x_title)}</text>',
        f'<text x="16" y="{top + height / 2}" text-anchor="middle" '
        f'transform="rotate(-90 16 {top + height / 2})">{html.escape(y_title)}</text>',
    ]
    for tick in xs.ticks:
        x = xs.place(tick)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + height}" stroke="#ddd"/>')
        out.append(f'<text x="{x:.1f}" y="{top + height + 18}" text-anchor="middle">{short(tick)}</text>')
    for tick in ys.ticks:
        y = ys.place(tick)
        out.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    colors = {}
    for index, (name, line, dashed) in enumerate(series):
        color = colors.setdefault(name.split(",")[0], COLORS[len(colors) % len(COLORS)])
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        places = [(xs.place(x), ys.place(y)) for x, y in line]
        along = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{along}" fill="none" stroke="{color}" stroke-width="2"{dash}/>')
        if dots:
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places]
        y, x = top + 8 + 18 * index, left + width + 12
        out.append(f'<line x1="{x}" x2="{x + 24}" y1="{y}" y2="{y}" stroke="{color}" stroke-width="2"{dash}/>')
        out.append(f'<text x="{x + 30}" y="{y + 4}">{html.escape(name)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
