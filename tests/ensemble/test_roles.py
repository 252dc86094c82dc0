"""Servers that are readers, observers and participants one after the other, by reconfig alone."""

import itertools
import re
import shlex
import subprocess
import threading
import time

import pytest
from kazoo.exceptions import ConnectionLoss, KazooException, NewConfigNoQuorumError, ReconfigInProcessError
from kazoo.protocol.states import KazooState

from members import ENVIRONMENT, HOST, SETTINGS, Ensemble, Member, ended, eventually

ALLOWS = "reconfigEnabled=true\nskipACL=yes\n"


class Switching(Member):
    """A server with a number that begins below others, and is what the list of servers says."""

    def __init__(self, ensemble, number, more=(), environment=None):
        super().__init__(ensemble.folder, number)
        self.ensemble, self.more = ensemble, list(more)
        self.data.mkdir()
        self.config.write_text(f"{SETTINGS}{ALLOWS}clientPort={self.port}\ndataDir={self.data}\n")

    def start(self, environment=None):
        parents = ",".join(f"{HOST}:{member.peer_port}" for member in self.ensemble.members)
        own = ["--server-id", str(self.number), "--reader-of", parents, "--peer-bind", HOST]
        own += ["--reader-port", str(self.peer_port), *self.more]
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(
                [*shlex.split(self.command), str(self.config), *own],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.ensemble.environment,
            )
        return self

    def line_as(self, role):
        return f"server.{self.number}={HOST}:{self.peer_port}:{self.election_port}:{role};{HOST}:{self.port}"

    def has_said(self, text):
        return self.output.read_text(errors="replace").count(text)

    @property
    def is_below(self):
        """Whether it has a parent."""
        return any(line.startswith("Reader: below ") and "nobody" not in line for line in self.ask(b"srvr").splitlines())

    def becomes(self, mode):
        def is_so():
            assert self.process.poll() is None, self.said()
            as_reader = mode == "reader"
            return self.mode == ("observer" if as_reader else mode) and self.is_below == as_reader

        eventually(f"server {self.number} is a {mode}", is_so)


def reconfig(client, joining=None, leaving=None):
    """As an operator does: again while a change is under way."""

    def change():
        try:
            client.reconfig(joining=joining, leaving=leaving, new_members=None)
            return True
        except (ReconfigInProcessError, NewConfigNoQuorumError, ConnectionLoss):
            return False

    eventually("the list is changed", change)


class Writer(threading.Thread):
    """Writes one value after the other, and knows what was acknowledged."""

    def __init__(self, client, path):
        super().__init__(daemon=True)
        self.client, self.path, self.last, self.ends = client, path, 0, threading.Event()
        self.pause = 0
        client.ensure_path(path)

    def run(self):
        asked = time.monotonic()
        for number in itertools.count(1):
            if self.ends.is_set():
                return
            try:
                self.client.create(f"{self.path}/{number}", b"x" * 100)
            except KazooException:
                # It may be there or not; either is right.
                self.ends.wait(0.02)
                continue
            now = time.monotonic()
            self.pause, asked = max(self.pause, now - asked), now
            self.last += 1

    def finish(self):
        self.ends.set()
        self.join(30)
        assert not self.is_alive()
        return self.last


@pytest.fixture(scope="module")
def ensemble():
    with Ensemble(more_settings=ALLOWS, environment=ENVIRONMENT) as all_members:
        yield all_members


def client(ensemble, *servers, **settings):
    connected = ensemble.client(list(servers) or None, timeout=20, **settings)
    connected.start(20)
    return connected


def test_a_participant_becomes_an_observer_and_back_and_its_clients_stay(ensemble):
    changing = next(it for it in ensemble.members if it is not ensemble.leader)
    idle, states = client(ensemble, changing), []
    idle.add_listener(states.append)
    events = []
    idle.exists("/seen", watch=events.append)
    direct = client(ensemble, *ensemble.others(changing))
    line = changing.line.strip()
    for _ in range(2):
        reconfig(direct, joining=line.replace(":participant", ":observer"))
        eventually("it observes", lambda: changing.mode == "observer")
        idle.ensure_path("/while-it-observes")
        reconfig(direct, joining=line)
        eventually("it follows", lambda: changing.mode in ("follower", "leader"))
    direct.create("/seen")
    eventually("the watch fires", lambda: events)
    assert states == [], "its connection was never lost"
    # Its vote counts again: another one may fail.
    third = next(it for it in ensemble.others(changing) if it is not ensemble.leader)
    third.kill()
    direct.set("/seen", b"by two of three")
    ensemble.start(third)
    ensemble.wait_in_quorum([third])


def test_the_leader_becomes_an_observer(ensemble):
    leader = ensemble.leader
    direct = client(ensemble, *ensemble.others(leader))
    reconfig(direct, joining=leader.line.strip().replace(":participant", ":observer"))
    eventually("it observes", lambda: leader.mode == "observer")
    assert ensemble.leader is not leader
    reconfig(direct, joining=leader.line.strip())
    eventually("it follows", lambda: leader.mode in ("follower", "leader"))


def test_every_role_after_every_other_under_load(ensemble):
    switching = Switching(ensemble, 6)
    with ended(switching):
        switching.start()
        switching.becomes("reader")
        direct = client(ensemble)
        writer = Writer(client(ensemble), "/load")
        writer.start()
        through, states = client(ensemble, switching), []
        through.add_listener(states.append)
        session = through.client_id[0]
        through.create("/mine", ephemeral=True)
        sent = lambda: sum(member.output.read_text().count("is far behind and is sent") for member in ensemble.members)
        before = sent()

        def switch(mode, role=None):
            if role is None:
                reconfig(direct, leaving=str(switching.number))
            else:
                reconfig(direct, joining=switching.line_as(role))
            switching.becomes(mode)
            # Its client is back with its session, and sees what was written before.
            eventually("the client is back", lambda: through.connected and through.state == KazooState.CONNECTED)
            through.retry(through.sync, "/")
            assert through.client_id[0] == session and through.retry(through.exists, "/mine")

        for mode, role in [
            ("observer", "observer"),
            ("follower", "participant"),
            ("observer", "observer"),
            ("reader", None),
            ("follower", "participant"),
            ("reader", None),
            ("observer", "observer"),
            ("reader", None),
        ]:
            switch(mode, role)
        assert KazooState.LOST not in states
        # No state went over the network again: its log goes on.
        assert sent() == before
        # With a vote, it is needed: one of four may fail, two of five.
        switch("follower", "participant")
        victim = next(it for it in ensemble.members if it.mode == "follower")
        victim.kill()
        direct.retry(direct.ensure_path, "/three-of-four")
        ensemble.start(victim)
        ensemble.wait_in_quorum([victim])
        # The leader ends while the server may lead.
        leader = next((it for it in ensemble.members if it.mode == "leader"), None)
        if leader is not None:
            leader.kill()
            direct.retry(direct.ensure_path, "/another-leads")
            ensemble.start(leader)
            ensemble.wait_in_quorum([leader])
        switch("reader", None)
        written = writer.finish()
        through.retry(through.sync, "/")
        assert written <= len(through.retry(through.get_children, "/load"))
        print(f"{written} writes, the longest pause {writer.pause:.3f} s")


def test_it_is_the_same_after_kill_9_and_learns_what_it_has_missed(ensemble):
    switching = Switching(ensemble, 7)
    direct = client(ensemble)
    with ended(switching):
        switching.start()
        switching.becomes("reader")
        reconfig(direct, joining=switching.line_as("participant"))
        switching.becomes("follower")
        switching.kill()
        switching.start()
        switching.becomes("follower")
        # Taken out while it is away: it does not know, and nobody knows it any more.
        switching.kill()
        reconfig(direct, leaving="7")
        direct.retry(direct.ensure_path, "/without-it")
        switching.start()
        switching.becomes("reader")
        own = client(ensemble, switching)
        own.sync("/")
        assert own.exists("/without-it")
        # Added while it is away.
        switching.kill()
        reconfig(direct, joining=switching.line_as("observer"))
        switching.start()
        switching.becomes("observer")
        # A folder that is lost while it is a member is a stranger's, and is taken in again.
        reconfig(direct, joining=switching.line_as("participant"))
        switching.becomes("follower")
        switching.kill()
        subprocess.run(["rm", "-rf", str(switching.data)], check=True)
        switching.data.mkdir()
        switching.start()
        switching.becomes("follower")
        reconfig(direct, leaving="7")
        switching.becomes("reader")


def test_a_member_that_has_parents_is_a_reader_when_it_is_taken_out(ensemble):
    leaving = next(it for it in ensemble.members if it is not ensemble.leader)
    others = ensemble.others(leaving)
    leaving.stop()
    parents = ",".join(f"{HOST}:{member.peer_port}" for member in others)
    leaving.start({**ensemble.environment, "STOA_READER_OF": parents})
    ensemble.wait_in_quorum([leaving])
    direct = client(ensemble, *others)
    reconfig(direct, leaving=str(leaving.number))
    eventually("it is a reader", lambda: leaving.mode == "observer" and "Reader: below" in leaving.ask(b"srvr"))
    reconfig(direct, joining=leaving.line.strip())
    ensemble.wait_in_quorum([leaving])


def test_a_newcomer_is_fed_by_a_neighbour_and_not_by_the_leader(ensemble):
    direct = client(ensemble)
    direct.ensure_path("/big")
    for number in range(200):
        direct.create(f"/big/{number}", b"x" * 10_000)
    newcomers = [Switching(ensemble, number) for number in (10, 11, 12)]
    servers = ",".join(member.line.strip().removeprefix("server.") for member in ensemble.members)
    with ended(*newcomers):
        for it in newcomers:
            own = it.line_as("participant").removeprefix("server.")
            it.more = ["--join", "--servers", f"{servers},{own}"]
            command = [*shlex.split(it.command), str(it.config), "--server-id", str(it.number), "--peer-bind", HOST]
            with open(it.output, "ab") as output:
                it.process = subprocess.Popen(
                    [*command, *it.more], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=ensemble.environment
                )
        for it in newcomers:
            it.becomes("reader")
        leader = ensemble.leader
        for it in newcomers:
            assert f"port {leader.peer_port} (" not in it.ask(b"srvr"), "the leader feeds nobody"
        before = leader.output.read_text().count(" is sent snapshot")
        reconfig(direct, joining=",".join(it.line_as("participant") for it in newcomers))
        for it in newcomers:
            eventually("it is a member", lambda: it.mode in ("follower", "leader"))
        assert leader.output.read_text().count(" is sent snapshot") == before
        assert not re.search(r"server 1[012] is far behind", "".join(it.said() for it in ensemble.members))
        reconfig(direct, leaving="10,11,12")
