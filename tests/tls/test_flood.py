"""Thousands of clients that begin and do not go on, all at once, from one process.

Loopback has many addresses, so they can come from one or from many. With `--long` there are 10,000.
"""

import contextlib
import itertools
import json
import resource
import socket
import subprocess
import sys
import threading
import time

import pytest
import steady
from secured import PATIENCE_SECONDS, Secured, eventually
from server_process import HOST
from test_cut import Memory

COUNT, LONG_COUNT = 1_000, 10_000
PER_ADDRESS = 60
# What one of them may cost, and what they may all together besides.
MEMORY_EACH_KIB, MEMORY_KIB = 16, 16_000
# While all cores are busy with other tests. What was measured is printed.
STALL_MS_MAX = 2_000


@pytest.fixture
def count(long):
    count = LONG_COUNT if long else COUNT
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < count + 200:
        pytest.skip(f"{count} connections need {count + 200} open files, and {files} are allowed: raise ulimit -n")
    return count


class Crowd:
    """Those who do not go on. They come from so many addresses in turn, none of which is that of an honest client."""

    def __init__(self, secured, count, addresses, says):
        self.sockets = []
        sources = itertools.cycle(f"127.0.{1 + n // 250}.{1 + n % 250}" for n in range(addresses))
        for source in itertools.islice(sources, count):
            member = socket.socket()
            self.sockets.append(member)
            member.bind((source, 0))
            member.settimeout(PATIENCE_SECONDS)
            member.connect((HOST, secured.secure_port))
            # Whoever was turned away by now does not hear it.
            with contextlib.suppress(OSError):
                member.sendall(says)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self.sockets:
            member.close()


class Watch:
    """What the server needs and counts meanwhile, and how a client fares that has a session already."""

    def __init__(self, secured):
        self.secured = secured
        self.most_under_way, self.most_kib = 0, 0
        self.ended = threading.Event()

    def __enter__(self):
        world = self.secured.world
        files = [world.authority.certificate, world.client.certificate, world.client.key]
        self.client = subprocess.Popen(
            [sys.executable, steady.__file__, str(self.secured.secure_port), *map(str, files)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        assert self.client.stdout.readline() == "ready\n"
        self.before_kib = self.secured.memory_kib()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self):
        while not self.ended.wait(0.1):
            # Words are answered all the time, too.
            self.most_under_way = max(self.most_under_way, self.secured.counted("outstanding_tls_handshake"))
            self.most_kib = max(self.most_kib, self.secured.memory_kib())

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        out, _ = self.client.communicate()
        self.gets = json.loads(out) if out else None

    def judge(self, record, count):
        """The client was served all the time, and the memory is bounded."""
        assert self.gets is not None, "the client with a session was disconnected"
        counts = self.secured.counts()
        record("half-open", count)
        record("most under way", self.most_under_way)
        record("turned away", counts["tls_handshake_exceeded"])
        record("given up", counts["unsuccessful_handshake"])
        record("gets of the client with a session", self.gets["gets"])
        record("its longest wait, ms", self.gets["longest_ms"])
        record("memory before, at most and after, KiB",
               f"{self.before_kib} {self.most_kib} {self.secured.memory_kib()}")
        assert self.most_kib - self.before_kib < MEMORY_KIB + MEMORY_EACH_KIB * count
        assert self.gets["longest_ms"] < STALL_MS_MAX
        assert self.gets["gets"] > 100


def newcomer(secured):
    """How long somebody takes who comes now, in milliseconds; None where he is not let in."""
    world, begun = secured.world, time.monotonic()
    try:
        client = steady.Client(secured.secure_port, world.authority.certificate, world.client.certificate,
                               world.client.key)
        client.get()
        client.close()
    except OSError:
        return None
    return round((time.monotonic() - begun) * 1000, 1)


def connections_of_others(secured):
    """But that of the question itself, and that of the client with a session."""
    return secured.counted("num_alive_connections") - 1


@pytest.fixture
def record(record_property, request):
    return lambda name, value: record_property(f"{request.node.name}: {name}", value)


def test_more_than_may_be_under_way(tmp_path, world, count, record):
    """They come from so many addresses that no bound but that of all together holds."""
    most = 4096 if count == LONG_COUNT else 400
    patience = 15 if count == LONG_COUNT else 5
    options = ["--tls-max-handshakes", most, "--max-connections-per-address", PER_ADDRESS]
    with Secured(tmp_path, world, *options, "--handshake-timeout", f"{patience}s") as secured:
        half = Memory(world, "1.3").step()[:100]
        with Watch(secured) as watch:
            begun = time.monotonic()
            with Crowd(secured, count, 2 * count // PER_ADDRESS, half):
                record("seconds to open them", round(time.monotonic() - begun, 1))
                exceeded = lambda: secured.counted("tls_handshake_exceeded")
                eventually("the others are turned away", lambda: exceeded() >= count - most)
                # There is no place for him either.
                assert newcomer(secured) is None
                secured.logged("too many TLS handshakes are under way (settings tls-max-handshakes, max-connec")
                eventually("there is room again", lambda: newcomer(secured) is not None)
                record("seconds until newcomers are let in", round(time.monotonic() - begun, 1))
                eventually("nothing is under way", lambda: secured.counted("outstanding_tls_handshake") == 0)
            newcomers = [newcomer(secured) for _ in range(20)]
            assert None not in newcomers
            record("handshake and get of a newcomer afterwards, ms", sorted(newcomers)[10])
        watch.judge(record, count)
        assert watch.most_under_way <= most
        assert secured.counted("unsuccessful_handshake") >= most
        # All who are left over have gone.
        eventually("no connection is left", lambda: connections_of_others(secured) <= 0)


def test_more_than_one_address_may_have(tmp_path, world, count, record):
    """They come from few addresses, so others find room all the time."""
    addresses = 5
    options = ["--max-connections-per-address", PER_ADDRESS, "--handshake-timeout", "5s"]
    with Secured(tmp_path, world, *options) as secured:
        half = Memory(world, "1.3").step()[:100]
        with Watch(secured) as watch:
            newcomers = []
            with Crowd(secured, count, addresses, half):
                for _ in range(20):
                    newcomers.append(newcomer(secured))
                    time.sleep(0.05)
                exceeded = lambda: secured.counted("tls_handshake_exceeded")
                eventually("the others are turned away", lambda: exceeded() >= count // 2)
            assert None not in newcomers
            record("handshake and get of a newcomer meanwhile, ms", sorted(newcomers)[10])
            eventually("nothing is under way", lambda: secured.counted("outstanding_tls_handshake") == 0)
        watch.judge(record, count)
        assert watch.most_under_way <= addresses * PER_ADDRESS + 1


@pytest.mark.parametrize("addresses", ["few", "many"])
def test_those_who_say_nothing(tmp_path, world, count, record, addresses):
    """They take no place from handshakes, however many they are."""
    options = ["--tls-max-handshakes", 10, "--max-connections-per-address", PER_ADDRESS]
    with Secured(tmp_path, world, *options, "--handshake-timeout", "5s") as secured:
        with Watch(secured) as watch:
            newcomers = []
            with Crowd(secured, count, 5 if addresses == "few" else 2 * count // PER_ADDRESS, b""):
                for _ in range(20):
                    newcomers.append(newcomer(secured))
                    time.sleep(0.05)
            assert None not in newcomers
            record("handshake and get of a newcomer meanwhile, ms", sorted(newcomers)[10])
        if addresses == "few":
            assert secured.counted("tls_handshake_exceeded") >= count - 5 * PER_ADDRESS
        watch.judge(record, count)
