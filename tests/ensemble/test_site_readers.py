"""Readers at sites, as `stoa dev --sites a,b,c --readers N` starts them: each below the servers of its own site."""

import os
import pathlib
import random
import shlex
import socket
import subprocess
import tempfile
import time

import pytest
from kazoo.client import KazooClient, KazooState

from members import HOST, ask, eventually

SITES = ("virginia", "california", "frankfurt")
# A reader's clients wait for the way to the hub and back, as all do.
ROUND_TRIPS = "virginia california 6\nvirginia frankfurt 9\n"
START_SECONDS = 90


def free_ports(count):
    """The first of as many ports that nobody listens on."""
    for _ in range(1000):
        first = random.randrange(12_000, 30_000)
        try:
            sockets = [socket.socket() for _ in range(count)]
            for offset, one in enumerate(sockets):
                one.bind((HOST, first + offset))
            return first
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise AssertionError("there are no free ports")


class Sites:
    """Three sites of one server each, numbered 1 to 3, and a reader of each, numbered 4 to 6."""

    def __init__(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="stoa-site-readers-")
        folder = pathlib.Path(self.temporary.name)
        (folder / "round-trips.txt").write_text(ROUND_TRIPS)
        self.first = free_ports(2 * len(SITES))
        self.log = folder / "log.txt"
        stoa = shlex.split(os.environ["MEMBER_COMMAND"])[0]
        command = [stoa, "dev", "--sites", ",".join(SITES), "--readers", "1", "--port", str(self.first)]
        command += ["--round-trips", str(folder / "round-trips.txt"), "--data-dir", str(folder / "data")]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, text=True
            )
        self.clients = []

    def __enter__(self):
        deadline = time.monotonic() + START_SECONDS
        while "  admin " not in self.log.read_text():
            assert time.monotonic() < deadline and self.process.poll() is None, self.log.read_text()[-10_000:]
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        for client in self.clients:
            client.stop()
            client.close()
        self.process.terminate()
        self.process.wait(30)
        self.temporary.cleanup()

    def type(self, words):
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def srvr(self, number):
        try:
            return ask(self.first + number - 1, b"srvr").decode()
        except OSError:
            return ""

    def is_attached(self, number):
        return "Reader: below " in (said := self.srvr(number)) and "by way of server" in said

    def client(self, number):
        client = KazooClient(f"{HOST}:{self.first + number - 1}", timeout=10)
        self.clients.append(client)
        client.start(30)
        return client


@pytest.fixture(scope="module")
def sites():
    with Sites() as running:
        yield running


def test_a_client_at_a_reader_of_a_leaf_has_what_its_site_has(sites):
    hub, leaf, reader = sites.client(1), sites.client(3), sites.client(6)
    # Its session is the site's: the last five bits say which one that is.
    assert reader.client_id[0] & 31 == 3
    hub.create("/from-hub", b"hub")
    eventually("what another site has written is read", lambda: reader.exists("/from-hub"))
    assert reader.get("/from-hub")[0] == b"hub"
    # It writes through its site and the hub, and is told what came of that.
    assert reader.create("/by-reader", b"1") == "/by-reader"
    reader.set("/by-reader", b"2")
    hub.sync("/by-reader")
    assert hub.get("/by-reader")[0] == b"2"
    events = []
    reader.get("/from-hub", watch=events.append)
    hub.set("/from-hub", b"again")
    eventually("the watch fires", lambda: [event.type for event in events] == ["CHANGED"])
    # Its ephemerals end with it, everywhere.
    reader.create("/mine", ephemeral=True)
    for client in (hub, leaf):
        eventually("it is there", lambda client=client: client.exists("/mine"))
        assert client.exists("/mine").ephemeralOwner == reader.client_id[0]
    reader.stop()
    for client in (hub, leaf):
        eventually("it has gone with its session", lambda client=client: client.exists("/mine") is None)


def test_clients_of_a_reader_keep_what_they_have_while_its_only_parent_starts_again(sites):
    hub, reader = sites.client(1), sites.client(6)
    states = []
    reader.add_listener(states.append)
    reader.create("/kept", ephemeral=True)
    sites.type("kill 3")
    eventually("it has no parent", lambda: not sites.is_attached(6))
    hub.create("/later")
    # A server that is being killed at this moment is not down yet, and cannot be started.
    time.sleep(1)
    sites.type("start 3")
    eventually("it has one again", lambda: sites.is_attached(6))
    # A server that has just started sends a snapshot to whoever follows it, and clients come back after that.
    eventually("its client is there", lambda: reader.connected)
    eventually("it sees what was done meanwhile", lambda: reader.retry(reader.exists, "/later"))
    reader.retry(reader.set, "/kept", b"after")
    assert KazooState.LOST not in states
    hub.sync("/kept")
    assert hub.get("/kept")[0] == b"after"


def test_what_is_cut_off_with_a_site_is_cut_off_with_its_readers(sites):
    hub, reader = sites.client(1), sites.client(5)
    hub.create("/cut", b"before")
    eventually("it has come", lambda: reader.exists("/cut"))
    sites.type("cut california")
    eventually("it is cut off", lambda: "california is cut off" in sites.log.read_text())
    assert reader.get("/cut")[0] == b"before"
    hub.set("/cut", b"meanwhile")
    time.sleep(0.5)
    assert reader.get("/cut")[0] == b"before", "nothing has come"
    sites.type("heal")
    eventually("it has come", lambda: reader.get("/cut")[0] == b"meanwhile")
