"""Patroni, which elects the leader of a cluster of PostgreSQL in ZooKeeper, with certificates and ACLs."""

import contextlib
import pathlib
import shutil
import subprocess
import sys

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl

from databases import SCOPE, Member, Owner
from doors import Guarded, tls
from server_process import eventually

# Patroni asks for sessions of at least 20 s. The servers give it shorter ones, so that a test need not wait so long
# until they notice that it has crashed.
SHORT_SESSIONS = "maxSessionTimeout=6000\n"
OWN = f"/service/{SCOPE}"


class Cluster:
    """Two members: one leads, the other has all that is acknowledged."""

    def __init__(self, members):
        self.members = members
        self.count = 0

    def start(self):
        for member in self.members:
            member.start()
        self.wait_in_sync()
        self.leader.run("CREATE TABLE letters (number int PRIMARY KEY)")

    def wait_in_sync(self):
        """One leads, and the other one is as far as it."""
        eventually("one leads", lambda: any(member.leads() for member in self.members), 90)
        eventually("the other one follows", lambda: self.follower.follows(), 90)
        wanted = ["leader", "sync_standby"]
        eventually("it is the one to take over", lambda: sorted(self.roles()) == wanted, 90)

    def roles(self):
        return [member["role"] for member in self.leader.ask("cluster").get("members", [])]

    @property
    def leader(self):
        return eventually("somebody leads", lambda: next((it for it in self.members if it.leads()), None), 90)

    @property
    def follower(self):
        leader = self.leader
        return next(member for member in self.members if member is not leader)

    def write(self, count=20):
        leader = self.leader
        for _ in range(count):
            leader.run(f"INSERT INTO letters VALUES ({self.count})")
            self.count += 1

    def assert_written(self, member):
        rows = member.run("SELECT number FROM letters ORDER BY number", fetch=True)
        assert [number for (number,) in rows] == list(range(self.count))

    def lose_the_leader(self):
        """The leader crashes, the other one takes over with all that was written, and the first one follows it."""
        first, other = self.leader, self.follower
        first.kill()
        eventually(f"{other.name} takes over", other.leads, 60)
        self.assert_written(other)
        self.write()
        first.start()
        self.wait_in_sync()
        assert self.leader is other
        self.write()
        eventually(f"{first.name} has it all", lambda: self.has_all(first))

    def has_all(self, member):
        return member.run("SELECT count(*) FROM letters", fetch=True) == [(self.count,)]


@contextlib.contextmanager
def cluster(ensemble):
    """It ends with the test, with what Patroni said if that failed."""
    ensemble.keys.client("patroni")
    owner = Owner()
    members = [Member(owner, name, settings(ensemble, owner, "patroni")) for name in ("one", "two")]
    try:
        cluster = Cluster(members)
        cluster.start()
        yield cluster
    except BaseException:
        for member in members:
            print(f"member {member.name}:\n{member.said()[-20_000:]}")
        raise
    finally:
        for member in members:
            member.kill()
        shutil.rmtree(owner.folder, ignore_errors=True)


def settings(ensemble, owner, certificate):
    """Patroni's section on ZooKeeper."""
    keys = ensemble.keys
    section = {
        "hosts": ensemble.addresses.split(","),
        "use_ssl": True,
        "verify": True,
        "cacert": owner.copy(keys.authority),
        "set_acls": {"CN=patroni": ["ALL"]},
    }
    if certificate is not None:
        files = {"cert": keys.certificate(certificate), "key": keys.key(certificate)}
        section |= {name: owner.copy(path) for name, path in files.items()}
    return section


def assert_only_for_patroni(ensemble):
    zk = ensemble.enter("patroni")
    ensemble.keys.client("stranger")
    stranger = ensemble.enter("stranger")
    for path in ("/service", OWN, f"{OWN}/leader", f"{OWN}/config", f"{OWN}/members/one"):
        acls, _ = zk.get_acls(path)
        assert acls == [make_acl("x509", "CN=patroni", all=True)], path
    for path in (f"{OWN}/leader", f"{OWN}/config", f"{OWN}/members/one"):
        with pytest.raises(NoAuthError):
            stranger.get(path)
        with pytest.raises(NoAuthError):
            stranger.delete(path)
    with pytest.raises(NoAuthError):
        stranger.create(f"{OWN}/failover", b'{"leader": "two"}')


def test_the_leader_of_a_database_crashes():
    with Guarded(tls, SHORT_SESSIONS) as ensemble, cluster(ensemble) as database:
        database.write()
        assert_only_for_patroni(ensemble)
        database.lose_the_leader()


@pytest.mark.long
def test_leaders_change_and_servers_crash():
    with Guarded(tls, SHORT_SESSIONS) as ensemble, cluster(ensemble) as database:
        first, other = database.leader, database.follower
        hand_over(first, other)
        eventually(f"{other.name} leads", other.leads)
        database.wait_in_sync()
        database.write()
        lose_a_server(ensemble, database, other)
        assert_turned_away(ensemble, other.owner)
        database.lose_the_leader()


def hand_over(first, other):
    """As an operator does, whose tool comes in with the same certificate."""
    words = ["switchover", SCOPE, "--leader", first.name, "--candidate", other.name, "--force"]
    program = pathlib.Path(sys.executable).with_name("patronictl")
    done = subprocess.run([program, "-c", first.config, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def lose_a_server(ensemble, database, leader):
    """The server that leads the ensemble crashes: the database does not notice."""
    zk = ensemble.enter("patroni")
    session = zk.exists(f"{OWN}/leader").ephemeralOwner
    server = ensemble.leader
    server.kill()
    database.write()
    eventually("Patroni is seen by the others", lambda: "leader" in database.roles())
    ensemble.start(server)
    ensemble.wait_in_quorum(ensemble.members)
    database.write()
    assert leader.leads()
    assert zk.exists(f"{OWN}/leader").ephemeralOwner == session


def assert_turned_away(ensemble, owner):
    """A member without a certificate takes no part, and the servers say why."""
    member = Member(owner, "three", settings(ensemble, owner, None))
    member.start()
    reason = "its TLS handshake failed: it has shown no certificate, and one is needed"
    try:
        eventually("a member without a certificate is turned away", lambda: reason in ensemble.logged())
        assert not member.data.exists(), "it has a database"
    finally:
        member.kill()
