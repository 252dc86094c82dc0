"""`addauth consistency linearizable`: a follower shows at once what was written through the leader."""

import pytest

from members import Ensemble

ROUNDS = 500


@pytest.fixture(scope="module")
def ensemble():
    with Ensemble() as ensemble:
        yield ensemble


def started(ensemble, member):
    client = ensemble.client([member])
    client.start()
    return client


def reader(ensemble, member):
    client = started(ensemble, member)
    client.add_auth("consistency", "linearizable")
    return client


def test_a_follower_shows_what_was_written_through_the_leader(ensemble):
    leader = ensemble.leader
    writer = started(ensemble, leader)
    readers = [reader(ensemble, follower) for follower in ensemble.others(leader)]
    writer.create("/value", b"")
    for number in range(ROUNDS):
        written = str(number).encode()
        stat = writer.set("/value", written)
        for each in readers:
            data, seen = each.get("/value")
            assert (data, seen.mzxid) == (written, stat.mzxid)


def test_the_leader_shows_what_was_written_through_a_follower(ensemble):
    leader = ensemble.leader
    writer = started(ensemble, ensemble.others(leader)[0])
    through_leader = reader(ensemble, leader)
    writer.create("/children")
    for number in range(ROUNDS):
        writer.create(f"/children/{number}")
        assert through_leader.exists(f"/children/{number}")
        assert len(through_leader.get_children("/children")) == number + 1


def test_it_holds_again_after_the_connection_was_lost(ensemble):
    """A client says it again on each connection, as it does with every auth packet."""
    leader = ensemble.leader
    writer = started(ensemble, leader)
    first, second = ensemble.others(leader)
    moving = ensemble.client([first, second], randomize_hosts=False)
    moving.start()
    moving.add_auth("consistency", "linearizable")
    writer.create("/moving", b"")
    first.stop()
    try:
        for number in range(ROUNDS // 5):
            written = str(number).encode()
            writer.set("/moving", written)
            assert moving.retry(moving.get, "/moving")[0] == written
    finally:
        ensemble.start(first)
        ensemble.wait_in_quorum([first])


def test_reads_are_sequential_again_when_that_is_said(ensemble):
    """What cannot be tested is that such a read is old; but it is one, and the connection lives."""
    client = reader(ensemble, ensemble.leader)
    client.add_auth("consistency", "sequential")
    assert client.get("/")
