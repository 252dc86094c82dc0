"""The forest: fifteen servers, of which appends reach most by way of others."""

import time

from kazoo.client import KazooState

from members import Ensemble, eventually

SERVERS = tuple(range(1, 16))
TREES = 5
# More than a server needs to be elected, on a machine that has more to do; a write waits for no tree.
WRITE_SECONDS = 5
# Fifteen servers share the machine with other tests.
SLOWER = {"STOA_HEARTBEAT": "100ms", "STOA_ELECTION_TIMEOUT": "2s"}


def place(member):
    """Where a server stands by its own account, such as `root of tree 2`; empty where it knows of no trees."""
    lines = (line.partition(": ") for line in member.ask(b"srvr").splitlines())
    return next((value for name, _, value in lines if name == "Forest"), "")


def places(ensemble):
    return {member.number: place(member) for member in ensemble.members if member.process is not None}


def roots(ensemble):
    """The roots of the trees by the number of each tree, if all servers know that there are five."""
    all_places = places(ensemble)
    found = {it.rpartition(" ")[2]: number for number, it in all_places.items() if it.startswith("root of tree")}
    complete = len(found) == TREES and "leader of the forest" in all_places.values() and all(all_places.values())
    return found if complete else None


def figure(member, name):
    lines = (line.split("\t") for line in member.ask(b"mntr").splitlines())
    return int(dict(lines)[f"zk_{name}"])


# One test, as fifteen servers are many to start.
def test_appends_reach_fifteen_servers_whoever_ends():
    with Ensemble(numbers=SERVERS, environment=SLOWER) as ensemble:
        what_one_place_writes_all_places_read(ensemble)
        a_root_that_ends_is_replaced_and_comes_back(ensemble)
        the_leader_ends_and_the_next_one_has_trees(ensemble)


def member(ensemble, number):
    return next(it for it in ensemble.members if it.number == number)


def started(ensemble, members):
    client = ensemble.client(members, timeout=20)
    client.start(30)
    return client


def what_one_place_writes_all_places_read(ensemble):
    found = eventually("five trees", lambda: roots(ensemble))
    leader = ensemble.leader
    root = member(ensemble, next(iter(found.values())))
    others = [it for it in ensemble.members if it is not leader and it.number not in found.values()]
    assert len(found) + len(others) == len(SERVERS) - 1
    eventually("all are fed", lambda: figure(leader, "stoa_forest_fed_servers") == len(SERVERS) - 1)
    for number, writer in enumerate((leader, root, others[0])):
        client = started(ensemble, [writer])
        client.create(f"/by-{number}", b"x" * 5000)
        client.set(f"/by-{number}", b"small")
        client.stop()
    for reader in (leader, root, *others):
        client = started(ensemble, [reader])
        client.sync("/")
        for number in range(3):
            data, stat = client.get(f"/by-{number}")
            assert (data, stat.version) == (b"small", 1)
        client.stop()


def a_root_that_ends_is_replaced_and_comes_back(ensemble):
    before = eventually("five trees", lambda: roots(ensemble))
    leader = ensemble.leader
    root = member(ensemble, before["0"])
    witness = next(it for it in ensemble.members if it is not leader and it.number not in before.values())
    client = started(ensemble, [witness])
    client.create("/while-away", b"0")
    root.kill()
    longest = 0
    for count in range(1, 50):
        began = time.monotonic()
        client.set("/while-away", b"%d" % count)
        longest = max(longest, time.monotonic() - began)
    assert longest < WRITE_SECONDS
    assert client.state == KazooState.CONNECTED

    def replaced():
        found = roots(ensemble)
        return found and root.number not in found.values()

    eventually("another root", replaced)
    assert ensemble.leader is leader
    ensemble.start(root)
    eventually("it is back", root.is_in_quorum)
    reader = started(ensemble, [root])
    reader.sync("/")
    assert reader.get("/while-away")[0] == b"49"
    reader.stop()
    client.stop()


def the_leader_ends_and_the_next_one_has_trees(ensemble):
    eventually("five trees", lambda: roots(ensemble))
    leader = ensemble.leader
    client = started(ensemble, ensemble.others(leader))
    client.create("/before", b"1")
    leader.kill()
    client.retry(client.create, "/after", b"1")
    found = eventually("five trees of another leader", lambda: roots(ensemble))
    assert leader.number not in found.values()
    ensemble.start(leader)
    eventually("it is back", leader.is_in_quorum)
    reader = started(ensemble, [leader])
    reader.sync("/")
    assert reader.exists("/before") and reader.exists("/after")
    reader.stop()
    client.stop()
