"""Load that shifts to what lives on one partition, again and again (Figure 10 of the AGORA paper), at one server.

The threads of the partitions get a share of a core each, the same whatever else there is to do
(`SCHED_DEADLINE`), so that a partition which has everything to do is short of time even where there are not as
many cores as partitions.
"""

import math
import pathlib
import subprocess
import threading
import time
import urllib.request

import measure
from servers import Server

PARTITIONS = [2, 4, 8]
SHAPE = (64, 128)
TOPS = 16
# Cores that all partitions' threads have together; generator, log and system have the rest.
SHARED_CORES = 0.8
# How long the shares are counted over.
PERIOD_NS = 1_000_000
INTERVAL_MS = 100
LOOK_SECONDS = 0.05
# A throughput is a mean over so many intervals; it is back when it has come so near to what it was.
MEAN_OF = 5
BACK = 0.9
# As where the server begins to move things; and equal it is when it stays so for a second.
EQUAL = 1.25
EQUAL_SECONDS = 1.0


class Watcher:
    """What the server's balancer says of itself, over the time of `with`."""

    METRICS = {
        "imbalance": "stoa_load_imbalance",
        "moves": "stoa_subtree_moves_total",
        "refused": "stoa_subtree_moves_refused_total",
    }

    def __init__(self, server):
        self.url = f"http://127.0.0.1:{server.admin_port}/metrics"
        # [(Unix time, figures by name)]
        self.seen = []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()

    def _watch(self):
        while not self.is_over.wait(LOOK_SECONDS):
            with urllib.request.urlopen(self.url, timeout=10) as answer:
                values = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[:1] != "#")
            self.seen.append((time.time(), {name: float(values[metric]) for name, metric in self.METRICS.items()}))


def share_cores(server, share):
    """Gives each partition's thread so much of a core."""
    for thread in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        name = (thread / "comm").read_text().strip()
        # The first partition's is the one that the process began with.
        if thread.name == str(server.process.pid) or name.startswith("partition-"):
            share_core(int(PERIOD_NS * share), "--pid", "0", thread.name)


def share_core(runtime_ns, *what):
    """The system may refuse it for a moment when threads with such a share have just ended."""
    times = ["--sched-runtime", runtime_ns, "--sched-deadline", PERIOD_NS, "--sched-period", PERIOD_NS]
    command = [str(part) for part in ["chrt", "--deadline", "--reset-on-fork", *times, *what]]
    for _ in range(50):
        if subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0:
            return
        time.sleep(0.1)
    raise RuntimeError(f"{command} is refused: it needs the right to use SCHED_DEADLINE, as root has it")


def run(partitions, op, is_balanced, shifts, seconds, binary=None):
    """Shifts the load at these times; returns the figures and the throughput over time. The server is the build of this
    tree if no other binary is named."""
    flags = ["--partitions", str(partitions), "--balance", str(is_balanced).lower()]
    sessions, pipeline = SHAPE
    options = ["--op", op, "--payload", 8, "--sessions", sessions, "--pipeline", pipeline, "--znodes", 100]
    options += ["--tops", TOPS, "--partitions", partitions, "--remote", "--warmup", 1, "--duration", seconds]
    options += ["--shift", ",".join(map(str, shifts)), "--interval", INTERVAL_MS]
    server = Server("stoa", None, flags=flags)
    if binary:
        server.binary = binary
    with server:
        share_cores(server, SHARED_CORES / partitions)
        with Watcher(server) as watcher:
            result = measure.generate(None, [server], *options)
    parts = result["parts"]
    began = parts["began_unix_ms"] / 1000
    rates = [count * 1000 / INTERVAL_MS for count in parts["operations"]]
    looks = [(at - began, figures) for at, figures in watcher.seen]
    figures = {"failed": sum(parts["errors"]) + result["unanswered"]}
    figures["moves"], figures["refused"] = (looks[-1][1][name] for name in ["moves", "refused"])
    figures["before, ops/s"] = settled(rates, 0, shifts[0])
    was = figures["before, ops/s"]
    for number, (start, end) in enumerate(zip(shifts, [*shifts[1:], seconds]), 1):
        at = int(start * 1000 / INTERVAL_MS)
        will_be = settled(rates, start, end)
        figures[f"shift {number}: at first, ops/s"] = mean(rates, at)
        figures[f"shift {number}: settled, ops/s"] = will_be
        # What is asked of other znodes may be less when all is as it should be: more of it is handed over.
        figures[f"shift {number}: back after, s"] = near_after(min(was, will_be), rates, start, end)
        figures[f"shift {number}: settled after, s"] = near_after(will_be, rates, start, end)
        figures[f"shift {number}: equal after, s"] = equal_after(looks, start, end)
        was = will_be
    series = [(at * INTERVAL_MS / 1000, mean(rates, at)) for at in range(0, len(rates), MEAN_OF)]
    return figures, series


def mean(rates, at):
    part = rates[at : at + MEAN_OF]
    return sum(part) / len(part)


def settled(rates, start, end):
    """The mean of the last quarter of a phase."""
    first, last = (int(at * 1000 / INTERVAL_MS) for at in (end - (end - start) / 4, end))
    return sum(rates[first:last]) / (last - first)


def near_after(throughput, rates, start, end):
    """Until the mean of the next half second is not less than a tenth below this."""
    first, last = (int(at * 1000 / INTERVAL_MS) for at in (start, end))
    near = (at - first for at in range(first, last) if mean(rates, at) >= BACK * throughput)
    return next(near) * INTERVAL_MS / 1000


def equal_after(looks, start, end):
    """Until the busiest partition has no more than `EQUAL` times the mean to do, and goes on so for a second;
    infinity if that does not come. What the server says of it lags behind, so it must have said once that it is not
    so; if it never does, the answer is 0."""
    looks = [(at - start, figures["imbalance"]) for at, figures in looks if start <= at < end]
    unequal = [at for at, imbalance in looks if imbalance > EQUAL]
    if not unequal:
        return 0.0
    since = None
    for at, imbalance in looks:
        if at <= unequal[0] or imbalance > EQUAL:
            since = None
        elif since is None:
            since = at
        elif at - since >= EQUAL_SECONDS:
            return since
    return math.inf


def name_of(partitions, is_balanced):
    return f"{partitions} partitions" + ("" if is_balanced else ", not balanced")


def check_machine():
    """Whether threads can have a share of a core, which is to be missed now and not after an hour."""
    share_core(PERIOD_NS // 10, "0", "true")


def shares():
    """What `share_cores` does, for the report."""
    each = ", ".join(f"{SHARED_CORES / partitions:.0%} with {partitions}" for partitions in PARTITIONS)
    return f"{each} (`chrt --deadline`, counted over {PERIOD_NS / 1e6:g} ms)"
