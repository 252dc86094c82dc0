"""Pictures that the other benchmarks have no need for."""

import html
import math

from report import number

START = '<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{}" font-family="sans-serif" font-size="12">'
WHITE = '<rect width="100%" height="100%" fill="white"/>'


def text(x, y, said, anchor="start", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(str(said))}</text>'


def shade(share):
    """A color from light to dark, and that of writing on it."""
    light, dark = (255, 247, 224), (128, 28, 48)
    mixed = [round(one + (other - one) * share) for one, other in zip(light, dark)]
    return f"rgb({mixed[0]},{mixed[1]},{mixed[2]})", "white" if share > 0.55 else "black"


def heat_svg(title, x_title, y_title, values, bounds=None):
    """Values by (x, y), shaded by their logarithm between the least and the largest of `bounds`."""
    xs, ys = (sorted({place[axis] for place in values}) for axis in (0, 1))
    low, high = bounds or (min(values.values()), max(values.values()))
    left, top, wide, tall = 62, 34, 58, 30
    width, height = left + max(wide * len(xs), 8 * len(title)) + 20, top + tall * len(ys) + 44
    out = [START.format(width, height), WHITE, text(left, 18, title, more=' font-weight="bold"')]
    for (x, y), value in values.items():
        share = math.log(max(value, low) / low) / math.log(high / low) if high > low > 0 else 0
        fill, ink = shade(min(max(share, 0), 1))
        at_x, at_y = left + wide * xs.index(x), top + tall * (len(ys) - 1 - ys.index(y))
        out.append(f'<rect x="{at_x}" y="{at_y}" width="{wide - 1}" height="{tall - 1}" fill="{fill}"/>')
        out.append(text(at_x + wide / 2, at_y + 19, number(value), "middle", f' fill="{ink}"'))
    out += [text(left + wide * (index + 0.5), height - 26, f"{x:g}", "middle") for index, x in enumerate(xs)]
    out += [text(left - 6, top + tall * (len(ys) - 1 - index) + 19, f"{y:g}", "end") for index, y in enumerate(ys)]
    middle = top + tall * len(ys) / 2
    out.append(text(left + wide * len(xs) / 2, height - 8, x_title, "middle"))
    out.append(text(16, middle, y_title, "middle", f' transform="rotate(-90 16 {middle:.1f})"'))
    return "\n".join([*out, "</svg>"]) + "\n"


def histogram_svg(title, x_title, samples, bars=40):
    """How often each time came; what is above the last percentile is left out."""
    ordered = sorted(samples)
    shown = ordered[: max(round(len(ordered) * 0.99), 2)]
    low, high = shown[0], shown[-1]
    width_each = (high - low) / bars or 1e-9
    counts = [0] * bars
    for value in shown:
        counts[min(int((value - low) / width_each), bars - 1)] += 1
    left, top, width, height = 50, 34, 400, 180
    out = [START.format(left + width + 20, top + height + 46), WHITE, text(left, 18, title, more=' font-weight="bold"')]
    for index, count in enumerate(counts):
        tall = height * count / max(counts)
        x = left + width * index / bars
        out.append(
            f'<rect x="{x:.1f}" y="{top + height - tall:.1f}" width="{width / bars - 1:.1f}" height="{tall:.1f}" '
            'fill="#1f5fa8"/>'
        )
    for share in (0, 0.25, 0.5, 0.75, 1):
        out.append(text(left + width * share, top + height + 16, f"{low + (high - low) * share:.4g}", "middle"))
    out += [text(left - 6, top + 6, max(counts), "end"), text(left - 6, top + height, 0, "end")]
    out.append(text(left + width / 2, top + height + 36, x_title, "middle"))
    return "\n".join([*out, "</svg>"]) + "\n"


def bars_svg(title, x_title, rows):
    """Bars on a logarithmic axis: `rows` are [(label, [(name, value)])], with the same names everywhere."""
    values = [value for _, bars in rows for _, value in bars]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    left, top, width, step = 190, 52, 360, 14
    names = [name for name, _ in rows[0][1]]
    place = lambda value: width * (math.log10(value) - low) / max(high - low, 1)
    height = top + sum(step * len(bars) + 8 for _, bars in rows)
    out = [START.format(left + width + 70, height + 40), WHITE, text(8, 18, title, more=' font-weight="bold"')]
    for index, name in enumerate(names):
        out.append(f'<rect x="{left + 130 * index}" y="28" width="12" height="12" fill="{PAIR[index]}"/>')
        out.append(text(left + 130 * index + 18, 38, name))
    for power in range(low, high + 1):
        at = left + place(10**power)
        out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top - 4}" y2="{height}" stroke="#ddd"/>')
        out.append(text(at, height + 14, f"{10**power:g}", "middle"))
    y = top
    for label, bars in rows:
        out.append(text(left - 8, y + step * len(bars) / 2 + 4, label, "end"))
        for index, (_, value) in enumerate(bars):
            long = max(place(value), 1)
            out.append(f'<rect x="{left}" y="{y}" width="{long:.1f}" height="{step - 2}" fill="{PAIR[index]}"/>')
            out.append(text(left + long + 4, y + 10, number(value), more=' font-size="10"'))
            y += step
        y += 8
    out.append(text(left + width / 2, height + 32, x_title, "middle"))
    return "\n".join([*out, "</svg>"]) + "\n"


PAIR = ["#1f5fa8", "#c07a1c"]
COLORS = {"operations": "#555555", "heat": "#b5482a", "contention": "#1f5fa8", "distance": "#8a4fa8", "grid": "#2a7f62"}


def scatter_svg(title, points):
    """Points of (x, y, group) on logarithmic axes, with the line where both are the same and those 15% off."""
    values = [value for x, y, _ in points for value in (x, y)]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    left, top, size = 60, 34, 380
    place = lambda value: size * (math.log10(value) - low) / max(high - low, 1)
    out = [START.format(left + size + 130, top + size + 50), WHITE, text(left, 18, title, more=' font-weight="bold"')]
    for power in range(low, high + 1):
        at = place(10**power)
        out.append(text(left + at, top + size + 16, f"{10**power:g}", "middle"))
        out.append(text(left - 6, top + size - at + 4, f"{10**power:g}", "end"))
    for factor, dash in [(1, ""), (1.15, ' stroke-dasharray="4 4"'), (1 / 1.15, ' stroke-dasharray="4 4"')]:
        shift = place(10**low * factor)
        out.append(
            f'<line x1="{left}" x2="{left + size}" y1="{top + size - shift:.1f}" y2="{top - shift:.1f}" stroke="#888"{dash}/>'
        )
    for x, y, group in points:
        at = f'cx="{left + place(x):.1f}" cy="{top + size - place(y):.1f}"'
        out.append(f'<circle {at} r="2.5" fill="{COLORS[group]}" fill-opacity="0.6"/>')
    for index, group in enumerate(dict.fromkeys(group for *_, group in points)):
        out.append(f'<circle cx="{left + size + 16}" cy="{top + 10 + 18 * index}" r="4" fill="{COLORS[group]}"/>')
        out.append(text(left + size + 26, top + 14 + 18 * index, group))
    out.append(text(left + size / 2, top + size + 38, "measured", "middle"))
    return "\n".join([*out, "</svg>"]) + "\n"
