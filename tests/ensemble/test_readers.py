"""Readers: servers that belong to no ensemble, below members and below each other."""

import contextlib
import os
import shlex
import shutil
import subprocess
import time

import pytest
from kazoo.exceptions import KazooException, NodeExistsError

from members import ENVIRONMENT, HOST, SETTINGS, Ensemble, Member, ended, eventually, free_port

IN_ORDER = ["--reader-in-order", "true"]
LETS_READERS_IN = {**ENVIRONMENT, "STOA_MAX_READERS": "10"}


class Seen(Ensemble):
    """An ensemble whose servers have admin HTTP."""

    def __init__(self):
        super().__init__(environment=LETS_READERS_IN)
        self.admins = [f"{HOST}:{free_port()}" for _ in self.members]
        for member, admin in zip(self.members, self.admins):
            port = admin.partition(":")[2]
            settings = member.config.read_text().replace("admin.enableServer=false", f"admin.serverPort={port}")
            member.config.write_text(settings)
            # A flag counts more than the file.
            member.command = member.command.replace("--admin-port 0", f"--admin-port {port}")

    def readers(self):
        """What `stoa readers` says of all of them."""
        stoa = shlex.split(self.members[0].command)[0]
        command = [stoa, "readers", "--admin", ",".join(self.admins)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


class Alone(Ensemble):
    """An ensemble of one server."""

    def __init__(self, environment):
        super().__init__(numbers=(1,), environment=environment)

    def wait_in_quorum(self, members):
        eventually("it serves", lambda: [member.mode for member in members] == ["standalone"])


class Reader(Member):
    """A server below others."""

    def __init__(self, ensemble, name, parents, more=()):
        super().__init__(ensemble.folder, name)
        self.ensemble, self.more = ensemble, list(more)
        self.follow(parents)
        self.data.mkdir()
        self.config.write_text(f"{SETTINGS}clientPort={self.port}\ndataDir={self.data}\n")

    def follow(self, parents):
        self.reader_of = ",".join(f"{HOST}:{parent.peer_port}" for parent in parents)

    def start(self, environment=None):
        own = ["--reader-of", self.reader_of, "--reader-port", str(self.peer_port), "--peer-bind", HOST, *self.more]
        command = [*shlex.split(self.command), str(self.config), *own]
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self.ensemble.environment
            )
        return self

    def is_ready(self):
        assert self.process.poll() is None, self.said()
        return self.mode == "observer"

    @property
    def parent(self):
        """The peer port of the parent, and how many entries the reader is behind; None without a parent."""
        for line in self.ask(b"srvr").splitlines():
            if line.startswith("Reader: below ") and "nobody" not in line:
                words = line.split()
                return int(words[words.index("port") + 1])
        return None

    def has_said(self, text):
        return text in self.output.read_text(errors="replace")


def ready(reader):
    eventually(f"reader {reader.number} serves", reader.is_ready)


def client(ensemble, *servers, **settings):
    """A client of these servers, or of all members, which is connected."""
    connected = ensemble.client(list(servers) or None, timeout=10, **settings)
    connected.start(20)
    return connected


@pytest.fixture(scope="module")
def ensemble():
    with Ensemble(environment=LETS_READERS_IN) as all_members:
        yield all_members


def test_a_chain_of_readers_serves_everything(ensemble):
    upper = Reader(ensemble, "upper", ensemble.members[:2])
    lower = Reader(ensemble, "lower", [upper])
    with ended(upper, lower):
        upper.start()
        lower.start()
        ready(upper)
        ready(lower)
        direct, above, below = client(ensemble), client(ensemble, upper), client(ensemble, lower)
        # What was there before came as a snapshot or as entries; what is written anywhere is read everywhere.
        for number, writer in enumerate((direct, above, below)):
            writer.create(f"/by-{number}", b"x" * 5000)
            writer.set(f"/by-{number}", b"small")
        for reader in (direct, above, below):
            reader.sync("/")
            for number in range(3):
                data, stat = reader.get(f"/by-{number}")
                assert (data, stat.version) == (b"small", 1)
        with pytest.raises(NodeExistsError):
            below.create("/by-0")
        # Watches, and ephemerals that end with their session.
        events = []
        below.exists("/watched", watch=events.append)
        direct.create("/watched")
        eventually("the watch fires", lambda: [event.type for event in events] == ["CREATED"])
        below.create("/mine", ephemeral=True)
        assert below.client_id[0] < 0, "a reader's sessions have 255 in front"
        direct.sync("/")
        assert direct.exists("/mine").ephemeralOwner == below.client_id[0]
        below.stop()
        eventually("the ephemeral is gone", lambda: direct.exists("/mine") is None)
        # In ZooKeeper's words.
        assert "zk_server_state\tobserver" in lower.ask(b"mntr")
        assert "Readers: 1, 0 of them behind" in upper.ask(b"srvr")


def test_clients_that_wait_for_nothing_stay_when_the_parent_is_killed(ensemble):
    first, second = [it for it in ensemble.members if it is not ensemble.leader]
    reader = Reader(ensemble, "orphan", [first, second], IN_ORDER)
    with ended(reader):
        reader.start()
        ready(reader)
        assert reader.parent == first.peer_port
        idle = client(ensemble, reader)
        states = []
        idle.add_listener(states.append)
        idle.create("/kept", ephemeral=True)
        events = []
        idle.exists("/later", watch=events.append)
        first.kill()
        eventually("another parent", lambda: reader.parent == second.peer_port)
        ready(reader)
        idle.set("/kept", b"after")
        client(ensemble, second).create("/later")
        eventually("the watch is there still", lambda: events)
        assert states == [], "its connection was never lost"
        ensemble.start(first)
        ensemble.wait_in_quorum([first])
        # Nobody is left but one that cannot be elected: reads go on for a while, and writes wait.
        assert idle.exists("/kept").version == 1


def test_what_is_under_way_when_the_parent_is_killed_is_carried_out_once_or_not_at_all(ensemble):
    first, second = [it for it in ensemble.members if it is not ensemble.leader]
    reader = Reader(ensemble, "busy", [first, second], IN_ORDER)
    with ended(reader):
        reader.start()
        ready(reader)
        busy = client(ensemble, reader)
        busy.create("/count")
        asked = [busy.create_async("/count/n-", sequence=True) for _ in range(300)]
        first.kill()
        done = 0
        for one in asked:
            with contextlib.suppress(KazooException):
                one.get(30)
                done += 1
        ensemble.start(first)
        ensemble.wait_in_quorum([first])
        eventually("another parent", lambda: reader.parent == second.peer_port)
        ready(reader)
        after = client(ensemble, reader)
        after.sync("/")
        there = after.get_children("/count")
        assert done <= len(there) <= 300 and len(set(there)) == len(there)


def test_a_reader_that_restarts_goes_on_from_what_it_has(ensemble):
    reader = Reader(ensemble, "restarted", ensemble.members)
    with ended(reader):
        reader.start()
        ready(reader)
        direct = client(ensemble)
        direct.create("/restart")
        for number in range(50):
            direct.set("/restart", b"%d" % number)
        received = reader.output.read_text().count("a snapshot of the parent is coming")
        reader.kill()
        direct.set("/restart", b"meanwhile")
        reader.start()
        ready(reader)
        own = client(ensemble, reader)
        own.sync("/")
        assert own.get("/restart")[0] == b"meanwhile"
        # It lacked one entry, and was given that.
        assert reader.output.read_text().count("a snapshot of the parent is coming") == received
        # With an empty folder it is given everything.
        reader.stop()
        shutil.rmtree(reader.data)
        reader.data.mkdir()
        reader.start()
        ready(reader)
        again = client(ensemble, reader)
        again.sync("/")
        assert again.get("/restart")[0] == b"meanwhile"


def test_readers_spread_over_their_parents_and_are_listed_with_those_below_them():
    with Seen() as ensemble:
        readers = [Reader(ensemble, f"spread-{number}", ensemble.members) for number in range(6)]
        lower = Reader(ensemble, "lower-still", readers[:1])
        with ended(*readers, lower):
            for reader in readers:
                reader.start()
                ready(reader)
            parents = [reader.parent for reader in readers]
            counts = [parents.count(member.peer_port) for member in ensemble.members]
            # Each has taken the better one of two that chance has named.
            assert sum(counts) == 6 and max(counts) <= 4, counts
            lower.start()
            ready(lower)

            def lines():
                return {one: line for line in ensemble.readers() for one in [*readers, lower] if f":{one.port} " in line}

            found = eventually("all are listed", lambda: len(lines()) == 7 and lines())
            depths = {one.number: len(line) - len(line.lstrip()) for one, line in found.items()}
            assert depths == {**{one.number: 2 for one in readers}, lower.number: 4}
            assert found[readers[0]].endswith(", 1 below it")
            # Who is gone is not listed any more.
            lower.kill()
            eventually("it is gone", lambda: lower not in lines())


def test_who_is_not_to_be_a_reader_is_told_why(ensemble):
    with Alone(ENVIRONMENT) as closed:
        unwelcome = Reader(closed, "unwelcome", closed.members)
        with ended(unwelcome):
            unwelcome.start()
            eventually("it is told", lambda: unwelcome.has_said("server 1 lets no readers in: set max-readers on it"))
        divided = Reader(ensemble, "divided", ensemble.members, ["--partitions", "2"])
        with ended(divided):
            divided.start()
            eventually("it has too many", lambda: divided.has_said("a reader has as many as its ensemble"))
            time.sleep(2)
            tries = divided.output.read_text().count("cannot be this reader's parent")
            assert tries <= 3, "each is told once"


def test_a_reader_of_another_ensemble_is_refused_and_goes_on_to_the_next(ensemble):
    secret = {"STOA_PEER_SECRET": ensemble.environment["STOA_PEER_SECRET"]}
    with Alone(LETS_READERS_IN) as other:
        only = other.members[0]
        stranger = Reader(ensemble, "stranger", [only])
        with ended(stranger):
            stranger.start()
            eventually("its secret is wrong", lambda: stranger.has_said("does not know the secret"))
        # With the same secret the histories tell.
        only.kill()
        other.environment.update(secret)
        other.start(only)
        other.wait_in_quorum([only])
        reader = Reader(ensemble, "lost", ensemble.members)
        with ended(reader):
            reader.start()
            ready(reader)
            reader.stop()
            reader.follow([only, *ensemble.members])
            reader.start()
            eventually("it is told", lambda: reader.has_said("of the ensemble"))
            # The next address will do.
            ready(reader)


def test_no_folder_of_a_reader_counts_as_a_members(ensemble):
    reader = Reader(ensemble, "folder", ensemble.members)
    with ended(reader):
        reader.start()
        ready(reader)
    direct = client(ensemble)
    direct.ensure_path("/voted")
    follower = next(it for it in ensemble.members if it is not ensemble.leader)
    follower.stop()
    kept = follower.data.with_name("kept")
    follower.data.rename(kept)
    shutil.copytree(reader.data, follower.data)
    shutil.copy(kept / "myid", follower.data / "myid")
    ensemble.start(follower)
    others = ensemble.others(follower)
    told = "another data folder than it had"
    eventually("the others see a stranger", lambda: all(told in it.output.read_text() for it in others))
    ensemble.wait_in_quorum([follower])
    again = client(ensemble, follower)
    again.set("/voted", b"by all")


def test_a_members_folder_keeps_its_promises_while_a_reader_has_it(ensemble):
    follower = next(it for it in ensemble.members if it is not ensemble.leader)
    follower.stop()
    borrowed = Reader(ensemble, "borrowed", ensemble.others(follower))
    shutil.rmtree(borrowed.data)
    os.symlink(follower.data, borrowed.data)
    direct = client(ensemble, *ensemble.others(follower))
    direct.ensure_path("/borrowed")
    with ended(borrowed):
        borrowed.start()
        ready(borrowed)
        own = client(ensemble, borrowed)
        own.set("/borrowed", b"by a reader")
        borrowed.stop()
    said = len(follower.output.read_text())
    ensemble.start(follower)
    ensemble.wait_in_quorum([follower])
    again = client(ensemble, follower)
    again.sync("/")
    assert again.get("/borrowed")[0] == b"by a reader"
    assert "another data folder" not in follower.output.read_text()[said:]
