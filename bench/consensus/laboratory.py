"""Runs cells against servers that are as far away as they say, and keeps what comes of it."""

import concurrent.futures
import itertools
import json
import pathlib
import subprocess
import time

import measure
import servers
from consensus import cells, distance, schedule
from servers import Session, free_port, shown


# Until servers that are farther from one another than before have got used to it.
SETTLE_SECONDS = 3


class Laboratory:
    """Measures what a journal does not have yet."""

    def __init__(self, wanted, journal, warmup_jvm):
        self.journal, self.warmup_jvm = journal, warmup_jvm
        self.left = [cell for cell in wanted if journal.result(cell) is None]
        self.total, self.done = len(wanted), len(wanted) - len(self.left)
        # Cells that failed, with the reason.
        self.failures = []
        self.numbers = itertools.count()
        # When cells that run have begun.
        self.begun = {}
        # How long cells take whose servers are so far from one another, by how many are left.
        self.estimates = {}

    def run(self):
        """Measures all of it, ensemble by ensemble."""
        if self.done:
            print(f"{self.done} of {self.total} cells were measured before", flush=True)
        for kind, size in dict.fromkeys((cell.kind, cell.servers) for cell in self.left):
            print(f"== {kind}, {size} {'server' if size == 1 else 'servers'}: {self.time_left()}", flush=True)
            with distance.ensemble(kind, size) as ensemble:
                if kind == "zookeeper":
                    self.warm_up(ensemble)
                self.measure_in(ensemble, kind, size)

    def measure_in(self, ensemble, kind, size):
        here = [cell for cell in self.left if (cell.kind, cell.servers) == (kind, size)]
        for server_rtt in dict.fromkeys(cell.server_rtt for cell in here):
            ensemble.set_round_trip(server_rtt)
            print(f"-- {server_rtt} ms between servers", flush=True)
            self.measure_all([cell for cell in here if cell.server_rtt == server_rtt], ensemble)

    def measure_all(self, some, ensemble):
        """Measures cells, several at the same time where they do not disturb each other."""
        order, running = schedule.Schedule(some), {}
        leader = ensemble.leader()
        with concurrent.futures.ThreadPoolExecutor(schedule.CELLS_MAX) as pool:
            while order.pending or running:
                while cell := order.next():
                    self.begun[cell] = time.monotonic()
                    running[pool.submit(self.measure, cell, leader)] = cell
                ended, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in ended:
                    cell = running.pop(future)
                    order.done(cell)
                    self.note(cell, future)

    def note(self, cell, future):
        self.done += 1
        self.left.remove(cell)
        del self.begun[cell]
        what = f"{cell.part}: {cell.kind}, {cell.servers} servers, {cell.server_rtt}/{cell.client_rtt} ms"
        what += f" {cell.primitive}" if cell.primitive else ""
        try:
            self.journal.note(cell, future.result())
        except (OSError, RuntimeError, ValueError) as problem:
            self.failures.append((what, str(problem)))
            what += f": FAILED: {problem}"
        print(f"{self.done} of {self.total}, {self.time_left()}: {what}", flush=True)

    def time_left(self):
        """By how long cells are expected to take."""
        now, groups = time.monotonic(), {}

        def takes(cell):
            return max(cells.expected_seconds(cell) - (now - self.begun.get(cell, now)), 0)

        for cell in self.left:
            groups.setdefault((cell.kind, cell.servers, cell.server_rtt), []).append(cell)
        seconds = 0
        for key, group in groups.items():
            # Of what has not begun, nothing changes.
            known = (key, len(group))
            if known not in self.estimates or any(cell in self.begun for cell in group):
                self.estimates[known] = schedule.seconds(group, takes) + SETTLE_SECONDS
            seconds += self.estimates[known]
        return f"about {seconds / 60:.0f} min left"

    def warm_up(self, ensemble):
        """Has the JVM compile what is measured."""
        half = ["--duration", self.warmup_jvm / 2]
        for load in [["--op", "mixed", "--mix", "get=50,set=50"], ["--op", "create-delete"]]:
            measure.generate(None, ensemble.members, *load, *half)

    def measure(self, cell, leader):
        """One cell. Clients are connected to the leader, from where the way of a write is shortest."""
        before, began = busy_ticks(), time.time()
        if cell.tool == "pings":
            result = pings(leader, cell)
        else:
            result = self.generate(cell, leader)
        busy, ticks = (after - earlier for after, earlier in zip(busy_ticks(), before))
        # Also of what else ran on the machine.
        return {"began": round(began), "busy": round(busy / max(ticks, 1), 3), **result}

    def generate(self, cell, leader):
        command = [*measure.generator(None, cell.tool), "--server", f"127.0.0.1:{leader.port}", "--json"]
        command += ["--rtt-ms", str(cell.client_rtt), "--path", f"/consensus-{next(self.numbers)}"]
        for name, value in cell.options:
            command += [f"--{name}", str(value)]
        process = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=servers.prepare
        )
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}: {process.stderr.strip()}")
        report = json.loads(process.stdout)
        # What it says again is known.
        report.pop("settings")
        return report


def pings(leader, cell):
    """Round trips of reads, one after the other, in milliseconds."""
    link = free_port()
    settings = cell.settings
    with distance.Proxy([(link, leader.port)]) as proxy:
        proxy.set_round_trip(cell.client_rtt, settings["jitter-ms"])
        # Without a delay there is no link either.
        with Session(leader.port if cell.client_rtt == 0 else link) as session:
            times = []
            for _ in range(settings["count"]):
                began = time.perf_counter()
                session.exists("/")
                times.append(round((time.perf_counter() - began) * 1e3, 4))
    return {"ms": times}


def busy_ticks():
    """Time in which the cores had something to do since the machine started, and all time, in ticks. What other
    programs do at a low priority (`nice`) gives way at once, and does not count."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    _, nice, _, idle, waiting = fields[:5]
    return sum(fields) - nice - idle - waiting, sum(fields)
