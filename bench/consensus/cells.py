"""What is measured: cells, each one run of the generator with its settings, and how long and how much work it is."""

import dataclasses
import json

PARTS = ["links", "operations", "rested", "heat", "contention", "distance", "grid"]
KINDS = ["stoa", "zookeeper"]
SIZES = [1, 3, 5]
# By the names of `stoa bench lock --primitive`; the last one chooses among the others.
FIXED = ["sync-queue", "async-queue", "async-queue-watch", "sync-tas", "tas-watch", "async-tas", "extension"]
ADAPTIVE = "adaptive"
EXTENSION = "extension"
ROUND_TRIPS = [0, 1, 10, 50, 100, 250]
# The grid is the same for all but what a commit takes.
GRID_SERVERS = 3
# How often asynchronous primitives ask, as where nothing is said.
POLL_MS = 10
# How long nobody asks anything before an operation of a rested service. Locks of the grid are wanted every 14 to 220 ms
# where nothing is far, those of the sweeps every 200 and 500.
REST_MS = 100
# What a commit takes of a turn where nothing is far, about: it decides which visits are drawn, and nothing else.
COMMIT_MS = 1
# The least that a primitive of several round trips costs on top of a turn, in round trips.
EXTRA_TRIPS = 1


@dataclasses.dataclass(frozen=True)
class Cell:
    """One measurement. Two cells with the same fields are the same measurement, so its result can be kept."""

    part: str
    kind: str
    servers: int
    # Round trips in milliseconds: between servers, and between clients and servers.
    server_rtt: float
    client_rtt: float
    # What runs: "pings", "smoke" or "lock".
    tool: str
    # Its options, in pairs.
    options: tuple = ()
    # Some are measured more than once; the first time has no number.
    turn: int = 0

    @property
    def key(self):
        *fields, turn = dataclasses.astuple(self)
        return json.dumps([*fields, turn] if turn else fields)

    @property
    def whole(self):
        """The cell that all its turns are of."""
        return dataclasses.replace(self, turn=0)

    @property
    def settings(self):
        return dict(self.options)

    @property
    def primitive(self):
        return self.settings.get("primitive")

    @property
    def is_near(self):
        """Whether latencies are so short that work for other cells would show in them."""
        return self.server_rtt + self.client_rtt < 10


@dataclasses.dataclass(frozen=True)
class Load:
    """How the lock of a cell is wanted: the options of `stoa bench lock`."""

    between_ms: float
    section_ms: float
    visits: int
    warmup: int = 0
    regular: bool = False
    fixed_section: bool = False
    clients: int = 20

    def options(self, primitive, cell_rtt_ms):
        options = {
            "primitive": primitive,
            "interarrival-ms": round(self.between_ms, 3),
            "service-ms": self.section_ms,
            "clients": self.clients,
            "visits": self.visits,
            "warmup": self.warmup,
            "poll-ms": POLL_MS,
        }
        if self.regular:
            options["arrivals"] = "fixed"
        else:
            options["representative-ms"] = cell_rtt_ms + COMMIT_MS
        if self.fixed_section:
            options["service"] = "fixed"
        return tuple(options.items())


class Size:
    """How many of everything. A quick run only shows that all of it works."""

    def __init__(self, quick):
        self.round_trips = [0, 50] if quick else ROUND_TRIPS
        self.sweep_round_trips = [0, 50] if quick else [0, 10, 25, 50, 75, 100, 150, 200, 250]
        self.sections = [1, 150] if quick else [1, 25, 50, 75, 90, 110, 125, 150, 175]
        self.pings = 50 if quick else 2000
        self.once = 50 if quick else 1000
        self.rested, self.rest_ms = (5, 10) if quick else (60, REST_MS)
        self.heat_visits, self.heat_warmup = (3, 1) if quick else (80, 10)
        self.sweep_visits = 5 if quick else 60
        self.loads = [0.2, 0.8] if quick else [0.05, 0.2, 0.4, 0.6, 0.8]
        # The less is asked of a lock, the less latencies differ; so all loads take as long.
        self.grid_visits = {load: 8 if quick else round(1000 * load) for load in self.loads}
        # More than ever want it at the same time: each has to be introduced to the lock before.
        self.grid_clients = {0.05: 6, 0.2: 10, 0.4: 16, 0.6: 24, 0.8: 40}
        self.grid_section_ms = 10
        # Where latencies are short, what the machine does at one time and not at another makes a difference, and
        # so does the chance of few visits.
        self.near_turns = {load: 1 if quick else max(2, round(400 / self.grid_visits[load])) for load in self.loads}
        self.quick = quick

    def one_by_one(self, rtt_ms):
        """How many operations one after the other: as many as a few seconds allow."""
        return 5 if self.quick else max(20, min(1000, round(4000 / max(rtt_ms, 1))))


def primitives(kind):
    """What servers of a kind can do; programs inside the service are Stoa's."""
    return [name for name in FIXED if kind == "stoa" or name != EXTENSION] + [ADAPTIVE]


def server_round_trips(size, servers):
    return size.round_trips if servers > 1 else [0]


def cells(size, parts, kinds, sizes):
    """All cells of a run, in the order in which it is sensible to measure them: those between servers that are as far
    from one another in a row."""
    made = []
    for kind in kinds:
        for servers in sizes:
            for server_rtt in server_round_trips(size, servers):
                for part in PARTS:
                    if part in parts:
                        made += of_part(part, size, kind, servers, server_rtt)
    return made


def of_part(part, size, kind, servers, server_rtt):
    """The cells of a part in one ensemble whose servers are so far from one another."""

    def cell(client_rtt, tool, options=()):
        return Cell(part, kind, servers, server_rtt, client_rtt, tool, tuple(options))

    def locks(client_rtt, load):
        rtt = client_rtt + server_rtt
        return [cell(client_rtt, "lock", load.options(name, rtt)) for name in primitives(kind)]

    if part == "links":
        # Figure 5; what is between servers is not seen there.
        jitters = [(0, 0), (10, 0), (10, 4)]
        pings = (("count", size.pings),)
        return [cell(rtt, "pings", (*pings, ("jitter-ms", jitter))) for rtt, jitter in jitters if server_rtt == 0]
    if part == "operations":
        return [
            cell(rtt, "smoke", (("one-by-one", size.one_by_one(rtt + server_rtt)), ("at-once", size.once)))
            for rtt in size.round_trips
        ]
    if part == "rested":
        options = (("one-by-one", size.rested), ("pause-ms", size.rest_ms), ("at-once", 1))
        return [cell(0, "smoke", options)] if server_rtt == 0 else []
    if part == "heat":
        load = Load(500, 1, size.heat_visits, size.heat_warmup)
        return [each for rtt in size.round_trips for each in locks(rtt, load)]
    if server_rtt != 0 or (part == "grid" and servers != GRID_SERVERS):
        # From here on only the clients are far.
        return []
    if part == "contention":
        loads = [Load(200, section, size.sweep_visits, 0, True, True) for section in size.sections]
        return [each for rtt in [0, 100] for load in loads for each in locks(rtt, load)]
    if part == "distance":
        low = Load(500, 1, size.heat_visits, size.heat_warmup)
        high = Load(200, 150, size.sweep_visits, 0, True, True)
        return [each for load in [low, high] for rtt in size.sweep_round_trips for each in locks(rtt, load)]
    return grid(size, locks)


def grid(size, locks):
    made = []
    for rtt in size.round_trips:
        turn = size.grid_section_ms + rtt + COMMIT_MS
        for load in size.loads:
            visits = size.grid_visits[load]
            warmup, clients = max(visits // 5, 2), size.grid_clients[load]
            here = locks(rtt, Load(turn / load, size.grid_section_ms, visits, warmup, clients=clients))
            turns = size.near_turns[load] if here[0].is_near else 1
            made += [dataclasses.replace(cell, turn=number) for number in range(turns) for cell in here]
    return made


def offered_load(cell):
    """The share of its time that the best lock there can be is taken in a cell of the grid."""
    settings = cell.settings
    turn = settings["service-ms"] + cell.client_rtt + COMMIT_MS
    return round(turn / settings["interarrival-ms"], 2)


def turn_ms(cell):
    """How long the lock is taken for each visit, about: at most, for primitives differ."""
    trips = cell.client_rtt + cell.server_rtt
    extra = EXTRA_TRIPS * trips if cell.primitive in ("sync-queue", "sync-tas", "tas-watch") else 0
    return cell.settings["service-ms"] + COMMIT_MS + trips + extra


def expected_seconds(cell):
    """How long a cell takes, about."""
    settings = cell.settings
    trips = (cell.client_rtt + cell.server_rtt) / 1e3
    if cell.tool == "pings":
        return settings["count"] * (trips + 1e-4)
    if cell.tool == "smoke":
        pause = settings.get("pause-ms", 0) / 1e3
        return 4 * settings["one-by-one"] * (trips + pause + 1e-3) + 15 * trips + 1
    visits = settings["visits"] + settings["warmup"]
    # Each client takes the lock once first.
    introductions = settings["clients"] * 2.5 * trips
    return visits * max(settings["interarrival-ms"], turn_ms(cell)) / 1e3 + introductions + 8 * trips + 0.5


def requests_per_second(cell):
    """What a cell asks of the servers, about."""
    if cell.tool == "pings":
        return 1e3 / max(cell.client_rtt, 0.2)
    if cell.tool == "smoke":
        return 1e3 / max(cell.client_rtt + cell.server_rtt, 0.5)
    settings = cell.settings
    between, turn = settings["interarrival-ms"], turn_ms(cell)
    visits = settings["visits"] + settings["warmup"]
    load = turn / between
    # Of those who want the lock, all wait but the one who has it. Without a steady state they grow more and more.
    waiting = load * load / (2 * (1 - load)) if load < 0.9 else visits * max(1 - between / turn, 0.1) / 2
    # All the time, or in the first round trip.
    asking = {"async-queue": waiting + load, "async-tas": waiting + load, "async-queue-watch": load, ADAPTIVE: load}
    asking = min(asking.get(cell.primitive, 0), visits) * 1e3 / POLL_MS
    return asking + 6e3 / max(between, turn)
