"""Tables and plots of what clients at several sites have met."""

import report
from agora import lines
from wide import AWAY, JITTER_MS, KINDS, ROUND_TRIP_MS, TokenSites

# A write that is answered faster went to no other site; as the generator counts them.
LOCAL_MS = 5
TOKENS = "stoa-sites"
# In what sites with tokens are to be that many times better than another kind, or to have at least: part, load, site,
# other kind or figure, and that. What the paper has, with its policy.
WANTED = [
    ("ratio", "50% writes", "california", "zk", 7),
    ("ratio", "50% writes", "california", "zko", 3.5),
    ("ratio", "5% writes", "california", "zk", 2.8),
    ("ratio", "5% writes", "california", "zko", 1.5),
    ("ratio", "50% writes", "california", "local writes", 0.73),
    ("ratio", "100% writes", "california", "local writes", 0.82),
    ("disjoint", "cold", "california", "zko", 3),
    ("disjoint", "cold", "frankfurt", "zko", 3),
    *(("files", "Zipf, 10% shared", site, "zko", 3.5) for site in AWAY),
    *(("files", "hotspot, 80% shared", site, "zko", 4) for site in AWAY),
]
# With the default one.
WANTED_BY_DEFAULT = [
    ("ratio", "50% writes", "california", "zk", 60),
    ("ratio", "50% writes", "california", "zko", 30),
    ("ratio", "5% writes", "california", "zk", 8),
    ("ratio", "5% writes", "california", "zko", 4),
    ("ratio", "0% writes", "california", "stoa-alone", 0.97),
    ("ratio", "50% writes", "california", "local writes", 0.98),
    ("ratio", "100% writes", "california", "local writes", 0.98),
    *(("disjoint", "cold", site, "zko", 5) for site in AWAY),
    *(("disjoint", "a directory each, cold", site, "zko", 20) for site in AWAY),
    *(("disjoint", "hot", site, "stoa-alone", 0.95) for site in AWAY),
    *(
        ("overlap", f"{percent}% shared", site, "zko", 5 if percent == 10 else 0.95)
        for percent in (0, 10, 25, 50, 75, 100)
        for site in AWAY
    ),
    *(("files", f"{load} shared", site, "zko", 5) for load in ("Zipf, 10%", "hotspot, 80%") for site in AWAY),
]


def write(run, stem, machine, commands):
    """Writes the record and its plots; returns the text."""
    date = stem.name.split("-sites")[0]
    text = Results(run, stem).all()
    policies = {TOKENS: f"; `site-policy` is `{TokenSites.policy}`" if TokenSites.policy else "; the default `site-policy`"}
    kinds = "\n".join(f"- `{name}`: {KINDS[name].title}{policies.get(name, '')}" for name in run.kinds)
    trips = ", ".join(f"{one.capitalize()} to {other.capitalize()} {ms} ms" for (one, other), ms in ROUND_TRIP_MS.items())
    besides = f" Beside it on the machine: {machine['besides']}." if "besides" in machine else ""
    turns = ", ".join(f"{part} {run.size.turns[part]}" for part in run.parts)
    whole = f"""# Clients at several sites, {date}

One run of `bench/sites.py` on one machine: the experiments of the WanKeeper paper.{besides} Each kind has a server in Virginia, one in California and one in Frankfurt; in ensembles the one in Virginia leads:

{kinds}

Round trips, by links of `stoa proxy`: {trips}; each way up to {JITTER_MS} ms more or less. At each site that takes part one client with one request at a time, connected to the server beside it; figures are those of each site, medians of so many turns: {turns}. A write is local when it is answered within {LOCAL_MS} ms. There are {run.records:,} records, asked for by Zipf's law with exponent {run.zipf}; a load ends for a site after {run.operations:,} operations or a time, which with writes is {run.size.ratio} to {run.size.ratio_waits} s in `ratio`, {run.size.files} s in `files` and {run.size.disjoint} s in others. Writes of the kind with tokens become faster with time, so it has up to {", ".join(f"{seconds} s in {part}" for part, seconds in run.size.tokens.items())}, that all operations are done if possible: how long it took stands with each.

{text}
"""
    for (part, _, _), turns in run.reports.items():
        for made in turns:
            for met in made["sites"].values():
                # Distributions are shown of that part only, and throughput over time of the other; both are long.
                if part != "ratio":
                    met.pop("write_ms_by_percent", None)
                if part != "files":
                    met.pop("parts", None)
    reports = [
        {"part": part, "load": title, "kind": kind, "turn": turn, "report": made}
        for (part, title, kind), turns in run.reports.items()
        for turn, made in enumerate(turns, 1)
    ]
    facts = {"machine": machine, "sizes": vars(run.size), "checked": run.checked, "loads": reports}
    # The spread of all of them is in the other file.
    shown = {name: kinds for name, kinds in run.samples.items() if name.endswith(("ops/s", "write p50 ms", "a write"))}
    report.write(stem, whole, facts, shown, run.medians(), commands)
    return whole


class Results:
    """The sections of the report."""

    def __init__(self, run, stem):
        self.run, self.stem = run, stem
        self.medians = run.medians()
        self.sections = []

    def plot(self, name, *what, **axes):
        path = self.stem.with_name(f"{self.stem.name}-{name}.svg")
        report.plot_lines(path, *what, **axes)
        return f"![{name}]({path.name})"

    def section(self, part, title, *paragraphs):
        command = f"```\npython3 bench/sites.py --parts {part}\n```"
        self.sections.append("\n\n".join([f"## {title}", *paragraphs, command]))

    def value(self, name, kind, scale=1):
        """A median; empty where it was not measured."""
        value = self.medians.get(name, {}).get(kind)
        return "" if value is None else value * scale

    def table(self, head, titles, figure, scale=1):
        """A row for each title, a column for each kind. Titles are a row's name and what samples begin with."""
        rows = [[name, *(self.value(f"{start}: {figure}", kind, scale) for kind in self.run.kinds)] for name, start in titles]
        return lines([head, *self.run.kinds], rows)

    def latencies(self, word, titles):
        """Mean, median and p99 of reads or of writes: three columns for each kind."""
        figures = ["mean", "p50", "p99"]
        head = [f"{word}s, ms", *(f"{kind} {figure}" for kind in self.run.kinds for figure in figures)]
        rows = [
            [name, *(self.value(f"{start}: {word} {figure} ms", kind) for kind in self.run.kinds for figure in figures)]
            for name, start in titles
        ]
        return lines(head, [row for row in rows if any(cell != "" for cell in row[1:])])

    def titles(self, part, sites=AWAY):
        """Of the loads of a part, by site."""
        loads = dict.fromkeys(title for of, title, _ in self.run.reports if of == part)
        several = len(sites) > 1
        return [
            (f"{title}, {site.capitalize()}" if several else title, f"{part}, {title}, {site}")
            for title in loads
            for site in sites
        ]

    def tables(self, part, sites=AWAY):
        titles = self.titles(part, sites)
        throughput = self.table("operations a second", titles, "ops/s")
        reads = [self.latencies("read", titles)] if self.any(titles, "read p50 ms") else []
        return [throughput, *self.against(titles), self.latencies("write", titles), *reads, self.local(titles), *self.lasted(titles)]

    def against(self, titles):
        """How many times as many operations as other kinds sites with tokens do."""
        others = [kind for kind in self.run.kinds if kind != TOKENS]
        if len(others) == len(self.run.kinds):
            return []

        def over(start, kind):
            mine, other = (self.value(f"{start}: ops/s", each) for each in (TOKENS, kind))
            return "" if "" in (mine, other) else f"{mine / other:.2f}x"

        rows = [[name, *(over(start, kind) for kind in others)] for name, start in titles]
        return [lines([f"{TOKENS}: operations a second", *(f"over {kind}" for kind in others)], rows)]

    def lasted(self, titles):
        """How long loads have lasted; where all have the same time it stands in the beginning."""
        if TOKENS not in self.run.kinds:
            return []
        rows = [
            [name, self.value(f"{start}: s", TOKENS), self.value(f"{start}: s", TOKENS) * self.value(f"{start}: ops/s", TOKENS)]
            for name, start in titles
            if self.any([(name, start)], "s")
        ]
        return [lines([f"{TOKENS}: a load", "seconds", "operations"], rows)]

    def wanted(self):
        """What is wanted of sites with tokens, and what there is."""
        rows = []
        for part, load, site, other, least in WANTED if TokenSites.policy else WANTED_BY_DEFAULT:
            start = f"{part}, {load}, {site}"
            is_share = other not in KINDS
            made = self.value(f"{start}: {other if is_share else 'ops/s'}", TOKENS)
            than = 1 if is_share else self.value(f"{start}: ops/s", other)
            if "" in (made, than):
                continue
            name = load if part == "ratio" else f"{part}, {load}, {site.capitalize()}"
            got = made / than
            shown = [f"{least:.0%}", f"{made:.0%}"] if is_share else [f"{least:g}x", f"{got:.2f}x"]
            verdict = "reached" if got >= least else "**short**"
            rows.append([f"{name}: {other if is_share else f'over {other}'}", *shown, verdict])
        return lines(["stoa-sites", "wanted", "measured", ""], rows)

    def tokens(self):
        titles = [(name.split("tokens, ")[1].removesuffix(": p50 ms"), name.removesuffix(": p50 ms")) for name in self.medians if name.startswith("tokens, ") and name.endswith(": p50 ms")]
        figures = ["p50", "p90", "p99", "max"]
        rows = [[name, *(self.value(f"{start}: {figure} ms", TOKENS) for figure in figures)] for name, start in titles]
        said = "Writes of one client one after the other, each of another znode, by where the token was. And how long after a write at the hub was sent a client beside the server of another site, which reads every half millisecond, has it."
        self.section("tokens", "Single writes, and how far sites are behind", said, lines(["ms", *figures], rows))

    def local(self, titles):
        """How many writes were local; one sentence, where none were."""
        writing = [each for each in titles if self.any([each], "local writes")]
        if not any(value for _, start in writing for value in self.medians[f"{start}: local writes"].values()):
            return f"No write was answered within {LOCAL_MS} ms."
        return self.table("local writes, %", writing, "local writes", 100)

    def any(self, titles, figure):
        return any(f"{start}: {figure}" in self.medians for _, start in titles)

    def check(self):
        if not self.run.checked:
            return
        head = ["one client in California", "alone, p50 ms", "beside the others, p50 ms", "alone, mean ms", "beside the others, mean ms"]
        said = "Loads of at least 25% writes wait for links nearly all of the time. They run at all kinds at the same time: ZooKeeper's writes, whose times are known, take no more than 2% longer then in the median."
        if not self.run.together:
            said = "Kinds were measured one after the other, for at the same time the median of a write of ZooKeeper became longer by more than 2%."
        self.sections.append("\n\n".join(["## Whether kinds disturb one another", said, lines(head, self.run.checked)]))

    def ratio(self):
        west = AWAY[0]
        plots = []
        for name, figure, axis in [("throughput", "ops/s", "operations a second"), ("write-latency", "write mean ms", "ms")]:
            series = [(kind, self.over(f"ratio, {{}}% writes, {west}: {figure}", kind), False) for kind in self.run.kinds]
            title = "One client in California: " + ("throughput" if name == "throughput" else "mean of writes")
            plots.append(self.plot(f"ratio-{name}", title, "writes, %", axis, [each for each in series if each[1]], y_log=10))
        series = []
        for kind in self.run.kinds:
            for writes, dashed in [(100, False), (50, True)]:
                series.append((f"{kind}, {writes}% writes", self.distribution(f"{writes}% writes", kind), dashed))
        axes = ["ms", "share of the writes, %", series]
        plots.append(self.plot("ratio-cdf", "Writes in California that are answered so fast", *axes, dots=False))
        said = "One client in California. With 0 to 10% writes one kind is measured after the other."
        self.section("ratio", "Reads and writes (Figures 3 and 4)", said, *self.tables("ratio", [west]), *plots)

    def over(self, pattern, kind):
        """Points of a figure over the number in its name, for a kind."""
        start, end = pattern.split("{}")
        points = []
        for name, values in self.medians.items():
            if name.startswith(start) and name.endswith(end) and kind in values:
                number = name.removeprefix(start).removesuffix(end)
                if number.isdigit():
                    points.append((int(number), values[kind]))
        return sorted(points)

    def distribution(self, title, kind):
        """Which share of the writes of all turns took so long at most. Turns count alike."""
        times = sorted(
            ms
            for made in self.run.reports["ratio", title, kind]
            for ms in made["sites"][AWAY[0]]["write_ms_by_percent"]
        )
        return [(ms, 100 * (at + 1) / len(times)) for at, ms in enumerate(times)]

    def disjoint(self):
        said = "Clients in California and in Frankfurt, half of their requests writes, each with records of its own, which lie side by side in one directory, or in a directory each. Cold: all records were just written in Virginia. Hot: the same requests once more; hot again: a third time."
        self.section("disjoint", "Two sites, each with its own records (Figure 5)", said, *self.tables("disjoint"))

    def overlap(self):
        plots = []
        for site in AWAY:
            series = [(kind, self.over(f"overlap, {{}}% shared, {site}: ops/s", kind), False) for kind in self.run.kinds]
            axes = ["accesses to records that both sites write, %", "operations a second", series]
            plots.append(self.plot(f"overlap-{site}", f"Writes in {site.capitalize()}", *axes, y_log=10))
        said = "Clients in California and in Frankfurt that only write; so many of their accesses go to records that both use."
        self.section("overlap", "Two sites that share records (Figure 6)", said, *self.tables("overlap"), *plots)

    def files(self):
        plots = []
        for overlap in [10, 50]:
            series = []
            for kind in self.run.kinds:
                for site in AWAY:
                    series.append((f"{kind}, {site.capitalize()}", self.over_time(f"hotspot, {overlap}% shared", kind, site), site != AWAY[0]))
            axes = ["seconds", "operations a second", series]
            plots.append(self.plot(f"files-{overlap}", f"Updates of files, hotspot, {overlap}% shared", *axes, y_log=10, dots=False))
        said = "Clients in California and in Frankfurt update what a file system knows of its files, a znode each of 200 B. Zipf: so many of the accesses go to files that both use. Hotspot: so many of a site's files are shared, and 80% of its updates go to 20% of its files, to its own ones first."
        self.section("files", "A shared file system (Figures 8 and 9)", said, *self.tables("files"), *plots)

    def over_time(self, title, kind, site):
        """Operations in each second that is over."""
        made = self.run.reports["files", title, kind][-1]["sites"][site]
        whole = int(made["elapsed_s"])
        # What nobody did cannot stand on a logarithmic axis.
        return [(second + 1, max(count, 0.1)) for second, count in enumerate(made["parts"]["operations"][:whole])]

    def cpu(self):
        rows = [
            ["32 clients in California, 8 writes outstanding each: us a write", *(self.value("cpu, many writes: cpu us a write", kind) for kind in self.run.kinds)],
            ["the same: writes a second", *(self.value(f"cpu, many writes, {AWAY[0]}: ops/s", kind) for kind in self.run.kinds)],
            ["one client, one write at a time: us a write", *(self.value("ratio, 100% writes: cpu us a write", kind) for kind in self.run.kinds)],
            ["one client that only reads: us a read", *(self.value("ratio, 0% writes: cpu us a read", kind) for kind in self.run.kinds)],
            ["nobody asks anything: cores", *(self.value("cpu, idle: cores", kind) for kind in self.run.kinds)],
        ]
        said = "CPU time of all three servers together, without links and clients. Of one client's writes it is mostly what servers do anyway, which is as much while they wait."
        self.section("cpu", "What operations cost the servers", said, lines(["", *self.run.kinds], rows))

    def all(self):
        if TOKENS in self.run.kinds:
            self.sections.append(f"## What is wanted\n\nOf the policy, and what was measured here.\n\n{self.wanted()}")
        self.check()
        for part in self.run.parts:
            getattr(self, part)()
        return "\n\n".join(self.sections)
