"""Read-only mode: what clients have of a server when the other two are gone."""

import pytest
from kazoo.exceptions import NotReadOnlyCallError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState

from members import Ensemble, eventually

SESSION_SECONDS = 6


@pytest.fixture
def ensemble():
    with Ensemble("readonlymode.enabled=true\n") as ensemble:
        yield ensemble


def kept(ensemble, member):
    """A znode, and a client that has seen at this server that it is there."""
    client = ensemble.client([member])
    client.start()
    client.create("/kept", b"1")
    client.sync("/kept")
    client.stop()


def leave_alone(ensemble, member):
    for other in ensemble.others(member):
        other.kill()
    eventually("read-only mode", lambda: member.mode == "read-only")


def is_in(client, state):
    return eventually(f"state {state}", lambda: client.client_state == state)


def test_a_server_that_is_left_alone_only_reads(ensemble):
    alone = ensemble.others(ensemble.leader)[0]
    kept(ensemble, alone)
    leave_alone(ensemble, alone)
    assert alone.ask(b"isro") == "ro"
    assert "zk_server_state\tread-only\n" in alone.ask(b"mntr")

    client = ensemble.client(read_only=True)
    client.start()
    assert client.client_state == KeeperState.CONNECTED_RO
    assert client.get("/kept", watch=print)[0] == b"1"
    assert client.exists("/missing") is None
    assert client.get_children("/") == ["zookeeper", "kept"], "in the order of their creation"
    client.add_auth("digest", "user:password")
    transaction = client.transaction()
    transaction.create("/new")
    refused = [
        lambda: client.create("/new"),
        lambda: client.set("/kept", b"2"),
        lambda: client.delete("/kept"),
        lambda: client.sync("/kept"),
        transaction.commit,
    ]
    for request in refused:
        with pytest.raises(NotReadOnlyCallError):
            request()

    newest = ensemble.client(read_only=True)
    newest.start()
    newest.add_auth("consistency", "linearizable")
    with pytest.raises(NotReadOnlyCallError):
        newest.get("/kept")

    with pytest.raises(KazooTimeoutError):
        ensemble.client([alone]).start(timeout=2)

    # With one more there is a majority: the client comes back by itself, for everything.
    other = ensemble.others(alone)[0]
    ensemble.start(other)
    ensemble.wait_in_quorum([alone, other])
    is_in(client, KeeperState.CONNECTED)
    assert alone.ask(b"isro") == "rw"
    assert client.retry(client.set, "/kept", b"2").version == 1


def test_a_session_goes_through_it_with_its_ephemeral(ensemble):
    alone = ensemble.others(ensemble.leader)[0]
    client = ensemble.client(read_only=True, timeout=SESSION_SECONDS)
    client.start()
    session, _ = client.client_id
    client.create("/mine", ephemeral=True)
    client.sync("/")
    seen = ensemble.client([alone])
    seen.start()
    seen.sync("/mine")
    seen.stop()

    leave_alone(ensemble, alone)
    is_in(client, KeeperState.CONNECTED_RO)
    assert client.client_id[0] == session
    assert client.get("/mine")[1].ephemeralOwner == session

    for other in ensemble.others(alone):
        ensemble.start(other)
    ensemble.wait_in_quorum(ensemble.members)
    is_in(client, KeeperState.CONNECTED)
    assert client.client_id[0] == session
    client.retry(client.sync, "/mine")
    assert client.get("/mine")[1].ephemeralOwner == session
    client.stop()
    other = ensemble.client()
    other.start()
    eventually("its end with the session", lambda: not other.exists("/mine"))


def test_a_server_that_starts_alone_reads_what_it_has(ensemble):
    alone = ensemble.others(ensemble.leader)[0]
    kept(ensemble, alone)
    # That the last entries are committed is stored with the next ones.
    for _ in range(2):
        client = ensemble.client([alone])
        client.start()
        client.stop()
    for member in ensemble.members:
        member.stop()
    ensemble.start(alone)
    eventually("read-only mode", lambda: alone.mode == "read-only")
    client = ensemble.client([alone], read_only=True)
    client.start()
    assert client.client_state == KeeperState.CONNECTED_RO
    assert client.get("/kept")[0] == b"1"


def test_without_the_setting_it_serves_nobody():
    with Ensemble() as ensemble:
        alone = ensemble.others(ensemble.leader)[0]
        for other in ensemble.others(alone):
            other.kill()
        eventually("that no leader is known", lambda: alone.mode == "")
        with pytest.raises(KazooTimeoutError):
            ensemble.client([alone], read_only=True).start(timeout=4)
        assert alone.mode == ""
