"""What follows from the measurements: which primitive is best where, and how far off the models are. Pure functions."""

import math
import statistics

from consensus.cells import ADAPTIVE, EXTENSION

# What the adaptive lock and the models are to reach.
NEAR_BEST, NEVER_WORSE, NEAR_BEST_SHARE = 1.1, 1.3, 0.9
MODEL_ERROR, MODEL_SHARE = 0.15, 0.8
# What counts as low and high. What lies between them is in no quadrant.
LOW_RTT_MS, HIGH_RTT_MS = 10, 50
LOW_LOAD, HIGH_LOAD = 0.2, 0.6
# Primitives whose means differ by less are as good as each other.
AS_GOOD = 1.05
QUADRANTS = [
    ("low round trip, low contention", "low", "low"),
    ("low round trip, high contention", "low", "high"),
    ("high round trip, low contention", "high", "low"),
    ("high round trip, high contention", "high", "high"),
]


def best_fixed(latencies, names=None):
    """The name and the latency of the best primitive of a cell, the adaptive one left out."""
    names = [name for name in names or latencies if name in latencies and name != ADAPTIVE]
    best = min(names, key=latencies.get)
    return best, latencies[best]


def adaptive_ratios(grid):
    """How many times the best fixed primitive's latency the adaptive one has, by cell. `grid` has latencies by name,
    by round trip and load."""
    ratios = {}
    for place, latencies in grid.items():
        if ADAPTIVE in latencies and len(latencies) > 1:
            ratios[place] = latencies[ADAPTIVE] / best_fixed(latencies)[1]
    return ratios


def adaptive_verdict(ratios):
    """The share of cells where it is near the best, the worst ratio, and whether both are as they should be."""
    near = sum(ratio <= NEAR_BEST for ratio in ratios.values())
    worst = max(ratios.values())
    is_met = near >= NEAR_BEST_SHARE * len(ratios) and worst <= NEVER_WORSE
    return {"near": near, "cells": len(ratios), "worst": worst, "is_met": is_met}


def side(value, low, high):
    return "low" if value <= low else "high" if value >= high else None


def quadrant(grid, rtt_side, load_side, without=()):
    """Primitives from the best to the worst in a quadrant, with how many times the best one's latency each has: the
    geometric mean over cells."""
    ratios = {}
    for (rtt, load), latencies in grid.items():
        is_inside = side(rtt, LOW_RTT_MS, HIGH_RTT_MS) == rtt_side and side(load, LOW_LOAD, HIGH_LOAD) == load_side
        names = [name for name in latencies if name not in without]
        if not is_inside or not any(name != ADAPTIVE for name in names):
            continue
        _, best = best_fixed(latencies, names)
        for name in names:
            ratios.setdefault(name, []).append(latencies[name] / best)
    ranked = [(name, math.exp(statistics.fmean(map(math.log, each)))) for name, each in ratios.items()]
    return sorted(ranked, key=lambda one: one[1])


def advice(ranked):
    """The quadrant in words."""
    fixed = [one for one in ranked if one[0] != ADAPTIVE]
    if not fixed:
        return "not measured"
    least = fixed[0][1]
    good = [name for name, ratio in fixed if ratio <= least * AS_GOOD]
    worst, ratio = fixed[-1]
    said = f"{' or '.join(good)}; {worst} takes {ratio:.1f} times as long"
    if worst in good:
        said = "all alike"
    adaptive = dict(ranked).get(ADAPTIVE)
    return said if adaptive is None else f"{said}; the adaptive one {adaptive:.2f} times"


def summary(grid):
    """The four quadrants of section IV, with the extension and without it: other servers have none."""
    has_extension = any(EXTENSION in latencies for latencies in grid.values())
    rows = []
    for title, rtt_side, load_side in QUADRANTS:
        row = [title, advice(quadrant(grid, rtt_side, load_side))]
        if has_extension:
            # The adaptive one has made use of the extension.
            row.append(advice(quadrant(grid, rtt_side, load_side, (EXTENSION, ADAPTIVE))))
        rows.append(row)
    return rows


def model_verdict(pairs):
    """How far predictions are from measurements, by pairs of both."""
    errors = [abs(predicted / measured - 1) for predicted, measured in pairs]
    near = sum(error <= MODEL_ERROR for error in errors)
    return {
        "near": near,
        "cells": len(errors),
        "median": statistics.median(errors),
        "worst": max(errors),
        "is_met": near >= MODEL_SHARE * len(errors),
    }


def distances(samples):
    """How far three distributions with the mean and the deviation of some samples are from these: the largest
    difference between the distribution functions (Kolmogorov and Smirnov)."""
    ordered = sorted(samples)
    mean, deviation = statistics.fmean(ordered), statistics.pstdev(ordered)
    low, width = mean - deviation * math.sqrt(3), 2 * deviation * math.sqrt(3)
    functions = {
        "uniform": lambda x: min(max((x - low) / width, 0), 1) if width else float(x >= mean),
        "normal": lambda x: 0.5 * (1 + math.erf((x - mean) / (deviation * math.sqrt(2)))) if deviation else 0.5,
        "exponential": lambda x: max(1 - math.exp(-(x - (mean - deviation)) / deviation), 0) if deviation else 0.5,
    }
    count = len(ordered)
    found = {}
    for name, function in functions.items():
        steps = ((function(x), index) for index, x in enumerate(ordered))
        found[name] = max(max(abs(at - index / count), abs(at - (index + 1) / count)) for at, index in steps)
    return {"mean": mean, "deviation": deviation, **found}
