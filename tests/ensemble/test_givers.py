"""Snapshots for members that lag: another member than the leader gives them."""

import re
import shutil

import pytest

from members import Ensemble, eventually

SERVERS = (1, 2, 3, 4, 5)
# Old znodes are in snapshots and not in the log.
SHORT_LOGS = "snapCount=20\n"
BIG = b"x" * 20_000
BIG_ONES = 60


def figure(member, name):
    lines = (line.split("\t") for line in member.ask(b"mntr").splitlines())
    return int(float(dict(lines)[f"zk_{name}"]))


@pytest.fixture
def ensemble():
    with Ensemble(SHORT_LOGS, numbers=SERVERS) as ensemble:
        yield ensemble


def written(ensemble, count):
    client = ensemble.client(timeout=20)
    client.start(30)
    client.ensure_path("/big")
    for number in range(count):
        client.create(f"/big/{number}", BIG)
    return client


def lose_disk(member):
    member.kill()
    shutil.rmtree(member.data)
    member.data.mkdir()
    (member.data / "myid").write_text(str(member.number))


def test_who_lost_its_disk_is_given_a_snapshot_by_another_one_than_the_leader(ensemble):
    client = written(ensemble, BIG_ONES)
    leader = ensemble.leader
    lost, *others = ensemble.others(leader)
    before = figure(leader, "snap_count")
    lose_disk(lost)
    ensemble.start(lost)
    eventually("it is back", lost.is_in_quorum)
    delegated = eventually("the leader knows", lambda: figure(leader, "stoa_snapshots_delegated_total"))
    given = [figure(member, "stoa_snapshots_given_total") for member in others]
    assert (delegated, sum(given)) == (1, 1)
    assert figure(leader, "snap_count") == before
    reader = ensemble.client([lost], timeout=20)
    reader.start(30)
    reader.sync("/big")
    assert len(reader.get_children("/big")) == BIG_ONES
    assert reader.get(f"/big/{BIG_ONES - 1}")[0] == BIG
    client.create("/after", b"")


def test_where_the_giver_ends_another_one_gives(ensemble):
    client = written(ensemble, BIG_ONES)
    leader = ensemble.leader
    lost, *others = ensemble.others(leader)
    lose_disk(lost)
    ensemble.start(lost)
    pattern = re.compile(rf"server {lost.number} is far behind: server (\d) is to give it a snapshot")
    ordered = eventually("one is ordered", lambda: pattern.search(leader.said()))
    giver = next(member for member in others if member.number == int(ordered[1]))
    giver.kill()
    eventually("it is back", lost.is_in_quorum)
    reader = ensemble.client([lost], timeout=20)
    reader.start(30)
    reader.sync("/big")
    assert len(reader.get_children("/big")) == BIG_ONES
    client.create("/after", b"")
    ensemble.start(giver)
    eventually("the giver is back", giver.is_in_quorum)
