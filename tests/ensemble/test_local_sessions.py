"""Local sessions: what clients have of sessions that one server keeps by itself."""

import time

import pytest
from kazoo.exceptions import ConnectionLoss, EphemeralOnLocalSessionError, NoNodeError, SessionExpiredError
from kazoo.protocol.states import KazooState

from members import Ensemble, eventually

LOCAL = "localSessionsEnabled=true\n"
UPGRADING = LOCAL + "localSessionsUpgradingEnabled=true\n"


@pytest.fixture(params=[LOCAL, UPGRADING], ids=["local", "upgrading"])
def ensemble(request):
    with Ensemble(request.param) as ensemble:
        ensemble.upgrades = request.param == UPGRADING
        yield ensemble


def figure(member, name):
    lines = (line.split("\t") for line in member.ask(b"mntr").splitlines())
    return int(dict(lines)[f"zk_{name}"])


def sessions(member):
    return figure(member, "local_sessions"), figure(member, "global_sessions")


def test_a_session_that_only_reads_writes_nothing(ensemble):
    writer = ensemble.client([ensemble.leader])
    writer.start()
    written = writer.create("/a", b"1", include_data=True)[1].czxid
    readers = [ensemble.client([member]) for member in ensemble.members]
    for reader in readers:
        reader.start()
        assert reader.get("/a") == (b"1", reader.exists("/a"))
        with pytest.raises(NoNodeError):
            reader.get("/missing")
        reader.stop()
    assert writer.set("/a", b"2").mzxid == written + 1
    eventually("the readers' sessions are gone", lambda: sessions(ensemble.leader) == (1, 0))


def test_ephemerals_are_refused_or_make_a_session_global(ensemble):
    member = ensemble.others(ensemble.leader)[0]
    client = ensemble.client([member])
    client.start()
    client.create("/a", b"1")
    assert sessions(member) == (1, 0)
    if not ensemble.upgrades:
        with pytest.raises(EphemeralOnLocalSessionError):
            client.create("/e", ephemeral=True)
        transaction = client.transaction()
        transaction.create("/c", b"")
        transaction.create("/e", ephemeral=True)
        with pytest.raises(EphemeralOnLocalSessionError):
            transaction.commit()
        client.create("/b", b"")
        assert sessions(member) == (1, 0)
        return
    client.create("/e", ephemeral=True)
    assert sessions(member) == (0, 1)
    assert client.exists("/e").ephemeralOwner == client.client_id[0]
    # It is known everywhere now, so it lives on when its server ends.
    session = client.client_id[0]
    client.set_hosts(",".join(other.address for other in ensemble.others(member)))
    member.kill()
    eventually("the session goes on", lambda: client.connected and client.client_id[0] == session)
    assert client.retry(client.exists, "/e").ephemeralOwner == session


def test_a_local_session_ends_with_its_server(ensemble):
    member = ensemble.others(ensemble.leader)[0]
    client = ensemble.client([member])
    states = []
    client.add_listener(states.append)
    client.start()
    session = client.client_id[0]
    client.set_hosts(",".join(other.address for other in ensemble.others(member)))
    member.kill()
    eventually("kazoo has a new session", lambda: client.connected and client.client_id[0] != session)
    assert KazooState.LOST in states
    client.retry(client.create, "/after", b"")


def test_a_local_session_comes_back_to_its_server(ensemble):
    member = ensemble.others(ensemble.leader)[0]
    client = ensemble.client([member])
    client.start()
    session = client.client_id[0]
    client.create("/a", b"1")
    # The connection is lost, and nothing else.
    client._connection._socket.shutdown(2)
    time.sleep(0.1)
    eventually("the connection is back", lambda: client.connected)
    for _ in range(50):
        try:
            assert client.retry(client.get, "/a")[0] == b"1"
            break
        except (ConnectionLoss, SessionExpiredError):
            time.sleep(0.1)
    assert client.client_id[0] == session
    assert sessions(member) == (1, 0)
