"""What single writes of sites with tokens take, by where the token is, and how far other sites are behind."""

import contextlib
import statistics
import struct
import subprocess
import threading
import time

import measure
import servers
from servers import Session
from wide import AWAY, HUB

# Above the directories that the generator makes.
ROOT = "/bench-tokens"
# How many znodes single writes are measured with.
ZNODES = 100
# How fast others write at the hub while it is measured how far a leaf is behind, and how often a time is among that.
RATE = 1000
MARK_SECONDS = 0.02
POLL_SECONDS = 0.0005


class Client(Session):
    """A session that also writes and reads."""

    GET, SET = 4, 5
    ANY_VERSION = struct.pack(">i", -1)

    def __init__(self, port):
        # It sends no heartbeats, and waits for others in between.
        super().__init__(port, timeout=20, session_timeout=60)

    def set(self, path, data):
        if error := self.call(self.SET, path, struct.pack(">i", len(data)) + data + self.ANY_VERSION):
            raise RuntimeError(f"set {path} answered error {error}")

    def get(self, path):
        error, body = self.answer(self.GET, path, self.NO_WATCH)
        if error:
            raise RuntimeError(f"get {path} answered error {error}")
        (length,) = struct.unpack(">i", body[:4])
        return body[4 : 4 + max(length, 0)]


def single_writes(service, count=ZNODES):
    """Milliseconds that writes take, by title: each title's are of different znodes, one after the other."""
    west, east, hub = (Client(service.at(site).port) for site in [*AWAY, HUB])
    with west, east, hub:
        hub.create(ROOT)
        paths = [f"{ROOT}/{number}" for number in range(count)]
        for path in paths:
            hub.create(path)
        wait_for(west, paths[-1])
        wait_for(east, paths[-1])
        return {
            "token at the hub, first write": timed(west, paths),
            "token at the hub, second in a row": timed(west, paths),
            "token here": timed(west, paths),
            "token at Frankfurt": [*taken_back(west, east, paths)],
        }


def timed(client, paths):
    made = []
    for path in paths:
        began = time.perf_counter()
        client.set(path, b"x" * 100)
        made.append((time.perf_counter() - began) * 1e3)
    return made


def taken_back(west, east, paths):
    """Of writes in California of what was written often enough in Frankfurt."""
    for path in paths:
        timed(east, [path] * 3)
        yield from timed(west, [path])


def wait_for(client, path):
    while not client.exists(path):
        time.sleep(0.01)


def lags(service, seconds, rate):
    """How many milliseconds after a write at the hub was sent clients at each other site find it there, while others
    write that often at the hub, or not at all."""
    marks = {site: f"{ROOT}-mark" for site in AWAY}
    found = {site: [] for site in AWAY}
    ended = threading.Event()

    def follow(site):
        with Client(service.at(site).port) as client:
            wait_for(client, marks[site])
            last = client.get(marks[site])
            while not ended.is_set():
                data, now = client.get(marks[site]), time.perf_counter()
                if data != last:
                    last = data
                    found[site].append((now - struct.unpack(">d", data)[0]) * 1e3)
                time.sleep(POLL_SECONDS)

    with Client(service.at(HUB).port) as hub, load(service, seconds, rate):
        if not hub.exists(marks[AWAY[0]]):
            hub.create(marks[AWAY[0]])
        followers = [threading.Thread(target=follow, args=[site]) for site in AWAY]
        for follower in followers:
            follower.start()
        time.sleep(1)
        until = time.perf_counter() + seconds
        while (now := time.perf_counter()) < until:
            hub.set(marks[AWAY[0]], struct.pack(">d", now))
            time.sleep(max(0, MARK_SECONDS - (time.perf_counter() - now)))
        time.sleep(0.5)
        ended.set()
        for follower in followers:
            follower.join()
    return found


@contextlib.contextmanager
def load(service, seconds, rate):
    """Writes of others at the hub, before and after, too."""
    if not rate:
        yield
        return
    command = measure.generator(None, "--op", "set", "--server", measure.addresses([service.at(HUB)]))
    command += ["--rate", str(rate), "--sessions", "8", "--warmup", "0", "--duration", str(seconds + 3), "--json"]
    servers.shown(command)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")


def figures(values):
    """Median, p90, p99 and the highest."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return [cuts[49], cuts[89], cuts[98], max(values)]
