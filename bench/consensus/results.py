"""From cells and their results to the sections of the report."""

import collections
import statistics

import report
from consensus import analysis, cells, figures
from consensus.page import Section, Table
from consensus.prediction import Model

NAMES = {"stoa": "Stoa", "zookeeper": "ZooKeeper"}
OPERATIONS = ["create", "set", "get", "delete"]


# The share of visits that find a lock taken which has time to spare.
TIME_TO_SPARE = 0.85

# What is predicted and what was measured, milliseconds.
Pair = collections.namedtuple("Pair", "part name cell predicted measured has_time")


def together(turns):
    """What several turns of a cell come to. All have asked as much, so means are means of means, also of percentiles."""
    first, *others = turns
    if not others:
        return first
    if isinstance(first, dict):
        # A turn may have nothing of what is rare.
        names = dict.fromkeys(name for turn in turns for name in turn)
        return {name: together([turn[name] for turn in turns if name in turn]) for name in names}
    return statistics.fmean(turns)


def system(kind, servers):
    return f"{NAMES[kind]}, {servers} {'server' if servers == 1 else 'servers'}"


def acquire_ms(result):
    """Until the lock was had, on average."""
    return result["latency_us"]["acquire"]["mean"] / 1e3


class Results:
    """What a journal says of the cells of a run; those that were not measured yet are left out."""

    def __init__(self, wanted, journal):
        # Of each turn, for the record, and of all turns of a cell together, or of those that there are.
        self.turns = [(cell, result) for cell in wanted if (result := journal.result(cell)) is not None]
        self.missing = len(wanted) - len(self.turns)
        of = {}
        for cell, result in self.turns:
            of.setdefault(cell.whole, []).append(result)
        self.measured = [(cell, together(results)) for cell, results in of.items()]
        self.systems = list(dict.fromkeys((cell.kind, cell.servers) for cell, _ in self.measured))
        # Of operations that follow one another, and of locks, which are wanted now and then.
        self.busy = {each: Model.of(each[1], self.near_operations(each)) for each in self.systems}
        rested = {each: self.near_operations(each, "rested") or self.near_operations(each) for each in self.systems}
        self.models = {each: Model.of(each[1], result) for each, result in rested.items()}

    def of(self, part, kind=None, servers=None):
        """Cells of a part with their results."""
        return [
            (cell, result)
            for cell, result in self.measured
            if cell.part == part and kind in (None, cell.kind) and servers in (None, cell.servers)
        ]

    def near_operations(self, each, part="operations"):
        for cell, result in self.of(part, *each):
            if cell.client_rtt == cell.server_rtt == 0:
                return result
        return None

    def all(self):
        makers = [self.links, self.basic, self.operations, self.heat, self.between_servers]
        makers += [self.contention, self.distance, self.grid, self.extension, self.models_section]
        return [section for make in makers for section in make()]

    def links(self):
        """Figure 5."""
        rows, pictures = [], []
        for cell, result in self.of("links"):
            jitter = cell.settings["jitter-ms"]
            what = f"{cell.client_rtt} ms" + (f" ± {jitter / 2:g} ms each way" if jitter else " added")
            found = analysis.distances(result["ms"])
            kinds = ("uniform", "normal", "exponential")
            nearest = min(kinds, key=found.get)
            rows.append([
                f"{system(cell.kind, cell.servers)}, {what}", found["mean"], found["deviation"],
                *(found[name] for name in kinds), nearest,
            ])
            title = f"{system(cell.kind, cell.servers)}, {what}"
            pictures.append(figures.histogram_svg(title, "round trip of a read, ms", result["ms"]))
        if rows:
            said = "Round trips of reads, one after the other, from near and through links. The last columns are how far the distribution is from one of each kind with the same mean and deviation (Kolmogorov and Smirnov)."
            head = ["link", "mean ms", "deviation", "uniform", "normal", "exponential", "nearest"]
            yield Section("Distribution of round trips (Figure 5)", [said], pictures, [Table(head, rows)])

    def basic(self):
        """Figure 7."""
        rows, pictures = [], []
        for each in self.systems:
            result = self.near_operations(each)
            if not result:
                continue
            bars = []
            for name in OPERATIONS:
                one = result["latency_us"]["one_by_one"][name]["mean"] / 1e3
                once = result["us_each_at_once"][name] / 1e3
                rows.append([f"{system(*each)}: {name}", one, once, f"{one / once:.0f}x"])
                bars.append((name, [("one by one", one), ("at once", once)]))
            pictures.append(figures.bars_svg(system(*each), "ms each", bars))
        if rows:
            said = "One client, links without delay: milliseconds an operation takes when each waits for the one before, and milliseconds for each when all are sent at once."
            table = Table(["operation", "one by one", "at once", "ratio"], rows, True)
            yield Section("Basic operations (Figure 7)", [said], pictures, [table])

    def operations(self):
        """Figures 8 and 9."""
        shown = [("Figure 8: creates at once, ms each", lambda r: r["us_each_at_once"]["create"] / 1e3)]
        shown.append(("Figure 9: creates one by one, ms", lambda r: r["latency_us"]["one_by_one"]["create"]["mean"] / 1e3))
        pictures, tables = [], []
        for title, value in shown:
            for each in self.systems:
                lines = {}
                for cell, result in self.of("operations", *each):
                    name = f"{cell.server_rtt:g} ms between servers"
                    lines.setdefault(name, []).append((cell.client_rtt, value(result)))
                if not lines:
                    continue
                series = [(name, line, False) for name, line in lines.items()]
                name = f"{title}: {system(*each)}"
                pictures.append(report.lines_svg(name, "client round trip, ms", "ms", series))
                tables.append(by_x(name, lines))
        if pictures:
            said = "Means by the client's round trip, a line for each round trip between servers."
            yield Section("Operations from afar (Figures 8 and 9)", [said], pictures, tables)

    def heat(self):
        """Figure 10."""
        for each in self.systems:
            found = self.of("heat", *each)
            if not found:
                continue
            all_ms = [acquire_ms(result) for _, result in found]
            pictures, rows = [], []
            for name in cells.primitives(each[0]):
                of = [(cell, result) for cell, result in found if cell.primitive == name]
                values = {(cell.server_rtt, cell.client_rtt): acquire_ms(result) for cell, result in of}
                if values:
                    axes = ["ms between servers", "ms to the client"]
                    pictures.append(figures.heat_svg(f"{name}, ms", *axes, values, (min(all_ms), max(all_ms))))
                rows += [[name, cell.server_rtt, cell.client_rtt, acquire_ms(r), *spread(r)] for cell, r in of]
            head = ["primitive", "between servers", "client", "mean ms", "p50", "p99", "requests"]
            said = "A lock that is wanted every 500 ms for 1 ms, both on average and exponentially distributed: mean time until it is had."
            yield Section(f"Locks by both round trips (Figure 10): {system(*each)}", [said], pictures, [Table(head, rows)])

    def between_servers(self):
        """Figure 11: those of Figure 10 with the client near."""
        pictures, tables = [], []
        for each in self.systems:
            lines = {}
            for cell, result in self.of("heat", *each):
                if cell.client_rtt == 0:
                    lines.setdefault(cell.primitive, []).append((cell.server_rtt, acquire_ms(result)))
            if lines and each[1] > 1:
                title = system(*each)
                series = as_series(lines)
                pictures.append(report.lines_svg(title, "round trip between servers, ms", "mean ms", series))
                tables.append(by_x(title, lines))
        if pictures:
            said = "The cells of Figure 10 where clients are near."
            yield Section("Locks by the round trip between servers (Figure 11)", [said], pictures, tables)

    def sweep(self, part, title, said, places, x_of, x_title):
        """Sections of lines, a picture for each system and place."""
        pictures, tables = [], []
        for name, is_there in places:
            for each in self.systems:
                lines = {}
                for cell, result in self.of(part, *each):
                    if is_there(cell):
                        lines.setdefault(cell.primitive, []).append((x_of(cell), acquire_ms(result)))
                if lines:
                    what = f"{name}: {system(*each)}"
                    pictures.append(report.lines_svg(what, x_title, "mean ms", as_series(lines)))
                    tables.append(by_x(what, lines))
        if pictures:
            yield Section(title, [said], pictures, tables)

    def contention(self):
        """Figures 13 and 14."""
        places = [
            ("Figure 13: 100 ms to the client", lambda cell: cell.client_rtt == 100),
            ("Figure 14: no delay", lambda cell: cell.client_rtt == 0),
        ]
        said = "The lock is wanted every 200 ms, at fixed times, for as long as the axis says. Where critical section and round trip together are more than 200 ms, each waits longer than the one before: the mean is that of so many visits, and no steady state."
        x_of = lambda cell: cell.settings["service-ms"]
        yield from self.sweep("contention", "Contention (Figures 13 and 14)", said, places, x_of, "critical section, ms")

    def distance(self):
        """Figures 15 and 16."""
        places = [
            ("Figure 15: 1 ms, every 500 ms", lambda cell: cell.settings["service-ms"] == 1),
            ("Figure 16: 150 ms, every 200 ms", lambda cell: cell.settings["service-ms"] == 150),
        ]
        said = "Low contention (times exponentially distributed) and high contention (fixed times) from any distance."
        x_of = lambda cell: cell.client_rtt
        yield from self.sweep("distance", "Distance (Figures 15 and 16)", said, places, x_of, "client round trip, ms")

    def grid_of(self, each):
        """Latencies by name, by round trip and load."""
        found = {}
        for cell, result in self.of("grid", *each):
            place = (cell.client_rtt, cells.offered_load(cell))
            found.setdefault(place, {})[cell.primitive] = acquire_ms(result)
        # A cell that is not complete would be compared with what is not the best.
        return {place: of for place, of in found.items() if len(of) == len(cells.primitives(each[0]))}

    def grid(self):
        for each in self.systems:
            found = self.grid_of(each)
            if not found:
                continue
            ratios = analysis.adaptive_ratios(found)
            verdict = analysis.adaptive_verdict(ratios)
            said = [
                f"A lock that is needed for {self.section_ms(each)} ms (exponentially distributed), wanted at random so often that an ideal lock of this round trip would be taken for the share of its time that the load says: the same visits for all primitives, drawn so that an ideal lock is waited for as long as in the long run.",
                f"The adaptive lock is within 10% of the best fixed primitive in {verdict['near']} of {verdict['cells']} cells; the worst is {verdict['worst']:.2f} times the best. {'Met' if verdict['is_met'] else 'Missed'}: at least 90% of cells within 10%, none worse than 1.3 times.",
            ]
            axes = ["load", "round trip, ms"]
            turned = lambda values: {(load, rtt): value for (rtt, load), value in values.items()}
            best = {place: analysis.best_fixed(of)[1] for place, of in found.items()}
            pictures = [
                figures.heat_svg("the best fixed primitive, ms", *axes, turned(best)),
                figures.heat_svg("adaptive over the best", *axes, turned(ratios), (1, 2)),
            ]
            names = cells.primitives(each[0])
            for far in sorted({rtt for rtt, _ in found}):
                lines = {name: [(load, of[name]) for (rtt, load), of in found.items() if rtt == far] for name in names}
                shown = [(name, sorted(line), dashed) for name, line, dashed in as_series(lines)]
                pictures.append(report.lines_svg(f"{far:g} ms to the client", "load", "mean ms", shown, y_log=10))
            rows = [
                [f"{rtt:g} ms, load {load:g}", *(of[name] for name in names), analysis.best_fixed(of)[0], f"{ratios[rtt, load]:.2f}"]
                for (rtt, load), of in sorted(found.items())
            ]
            tables = [Table(["cell, mean ms", *names, "best fixed", "adaptive/best"], rows, True)]
            tables.append(Table(["cell", *names], self.choices(each)))
            summary = analysis.summary(found)
            head = ["quadrant", "best first, by how long until the lock is had", "without extensions"][: len(summary[0])]
            tables.append(Table(head, summary, True))
            yield Section(f"The grid, and the four quadrants of section IV: {system(*each)}", said, pictures, tables)

    def choices(self, each):
        """How often the adaptive lock chose which primitive, by cell."""
        rows = []
        for cell, result in self.of("grid", *each):
            if cell.primitive == cells.ADAPTIVE:
                chosen = result.get("primitives", {})
                place = f"{cell.client_rtt:g} ms, load {cells.offered_load(cell):g}: chosen by the adaptive one"
                rows.append([place, *(chosen.get(name, 0) for name in cells.primitives(each[0]))])
        return rows

    def section_ms(self, each):
        return self.of("grid", *each)[0][0].settings["service-ms"]

    def extension(self):
        """What the extension takes when the lock is free, and when it is handed over."""
        rows = []
        for each in self.systems:
            for cell, result in self.of("grid", *each):
                if cell.primitive != cells.EXTENSION:
                    continue
                latency = result["latency_us"]
                load = cells.offered_load(cell)
                handover = latency["handover"]
                rows.append([
                    f"{system(*each)}: {cell.client_rtt:g} ms, load {load:g}", latency["acquire"]["p50"] / 1e3,
                    handover["p50"] / 1e3, handover["p99"] / 1e3, handover["count"], result["requests"]["until_held"],
                ])
        if rows:
            said = "The median at the lowest load is that of a lock that is found free. A handover counts from when one begins to give the lock back until one who has waited knows that it has it: one way there and one way back, a round trip, and a commit."
            head = ["cell", "acquire p50 ms", "handover p50 ms", "p99", "handovers", "requests"]
            yield Section("The extension: found free, and handed over", [said], [], [Table(head, rows)])

    def predictions(self, each):
        """What is predicted and what was measured, with the cell, and whether the lock has time to spare."""
        model = self.models[each]
        for part in ("heat", "contention", "distance", "grid"):
            for cell, result in self.of(part, *each):
                if found := model.lock(cell):
                    predicted, taken = found
                    yield Pair(part, cell.primitive, cell, predicted, acquire_ms(result), taken < TIME_TO_SPARE)
        for cell, result in self.of("operations", *each):
            measured = {**result["latency_us"]["one_by_one"], "connect": result["latency_us"]["connect"]}
            for name, predicted in self.busy[each].operations(cell).items():
                yield Pair("operations", name, cell, predicted, measured[name]["mean"] / 1e3, True)

    def models_section(self):
        for each in self.systems:
            found = list(self.predictions(each))
            if not found:
                continue
            # By part, and by part and what it is of.
            rows, detail = ([], []), []
            groups = {}
            for pair in found:
                groups.setdefault("all", []).append(pair)
                groups.setdefault(pair.part, []).append(pair)
                groups.setdefault(f"{pair.part}: {pair.name}", []).append(pair)
                if pair.has_time:
                    groups.setdefault("all, with time to spare", []).append(pair)
                    groups.setdefault(f"{pair.part}, with time to spare", []).append(pair)
                cell, error = pair.cell, f"{pair.predicted / pair.measured - 1:+.0%}"
                place = [cell.server_rtt, cell.client_rtt, load_of(cell), "yes" if pair.has_time else "no"]
                detail.append([f"{pair.part}: {pair.name}", *place, pair.measured, pair.predicted, error])
            for title, pairs in sorted(groups.items()):
                verdict = analysis.model_verdict([(pair.predicted, pair.measured) for pair in pairs])
                share = f"{verdict['near']} of {verdict['cells']} ({verdict['near'] / verdict['cells']:.0%})"
                rows[":" in title].append([title, share, f"{verdict['median']:.1%}", f"{verdict['worst']:.0%}"])
            model = self.models[each]
            busy = self.busy[each]
            said = f"Means predicted by `stoa model`, which was told what is measured from near: for operations one after the other {busy.base_ms:.3f} ms for a read and {busy.disk_ms:.3f} ms more for a write, and for locks {model.base_ms:.3f} and {model.disk_ms:.3f} ms, which is what they take after {cells.REST_MS} ms in which nobody asked anything. A lock has time to spare if less than 85% of visits are predicted to find it taken: nearer to all it can give, latencies grow without bound, and so few visits are not the long run that the models are of."
            head = ["cells", "within 15%", "median error", "worst"]
            tables = [Table(head, rows[0], True), Table(head, rows[1])]
            tables.append(Table(["what", "between servers", "client", "wanted", "time to spare", "measured ms", "predicted", "error"], detail))
            picture = figures.scatter_svg(f"{system(*each)}: predicted by measured, ms", [(pair.measured, pair.predicted, pair.part) for pair in found])
            yield Section(f"Models and measurement: {system(*each)}", [said], [picture], tables)


def load_of(cell):
    settings = cell.settings
    if "service-ms" not in settings:
        return ""
    return f"{settings['service-ms']:g} ms every {settings['interarrival-ms']:g} ms"


def spread(result):
    latency = result["latency_us"]["acquire"]
    return latency["p50"] / 1e3, latency["p99"] / 1e3, result["requests"]["until_held"]


def as_series(lines):
    return [(name, line, name == cells.ADAPTIVE) for name, line in lines.items()]


def by_x(title, lines):
    """A table of lines: a row for each place on their axis."""
    places = sorted({x for line in lines.values() for x, _ in line})
    values = {name: dict(line) for name, line in lines.items()}
    rows = [[f"{x:g}", *(values[name].get(x) for name in lines)] for x in places]
    return Table([title, *lines], rows)
