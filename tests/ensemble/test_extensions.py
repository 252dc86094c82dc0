"""Extensions, with a client that has never heard of them: all is done by ordinary requests."""

import os
import pathlib
import threading

import pytest
from kazoo.exceptions import (
    BadArgumentsError,
    NodeExistsError,
    NoNodeError,
    SystemErrorException,
)

from members import Ensemble, eventually

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "extensions"
SESSION_SECONDS = 4


def source(name):
    """An example, in a subtree of its own: all of that lives on one partition, however many there are."""
    return (EXAMPLES / f"{name}.rhai").read_bytes().replace(b'"/', b'"/app/')


@pytest.fixture
def ensemble():
    with Ensemble() as ensemble:
        yield ensemble


def started(ensemble, members=None):
    client = ensemble.client(members, timeout=SESSION_SECONDS)
    client.start()
    client.ensure_path("/app")
    return client


def acknowledge(client, name):
    client.create(f"/em/{name}/ack-", ephemeral=True, sequence=True)


def why(client):
    return client.get("/em/error")[0].decode()


def test_a_counter_is_incremented_by_one_request_at_every_server(ensemble):
    clients = [started(ensemble, [member]) for member in ensemble.members]
    first = clients[0]
    first.create("/app/ctr", b"0")
    first.create("/em/counter", source("counter"))
    assert first.get("/em/counter")[0] == source("counter")
    for client in clients[1:]:
        client.sync("/em/counter")
        with pytest.raises(NoNodeError):
            client.get("/app/ctr-increment")
        acknowledge(client, "counter")
    found = []

    def increment(client):
        for _ in range(100):
            found.append(int(client.get("/app/ctr-increment")[0]))

    threads = [threading.Thread(target=increment, args=[client]) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(1, 301))
    first.sync("/app/ctr")
    assert first.get("/app/ctr")[0] == b"300"

    first.delete("/em/counter")
    for client in clients:
        client.sync("/em")
        with pytest.raises(NoNodeError):
            client.get("/app/ctr-increment")
        assert client.get_children("/em") == []


def test_programs_and_acknowledgements_go_through_the_loss_of_a_leader_and_of_all(ensemble):
    client = started(ensemble)
    client.create("/app/ctr", b"0")
    client.create("/em/counter", source("counter"))
    assert client.get("/app/ctr-increment")[0] == b"1"
    leader = ensemble.leader
    leader.kill()
    assert client.retry(client.get, "/app/ctr-increment")[0] in (b"2", b"3")
    ensemble.start(leader)
    ensemble.wait_in_quorum(ensemble.members)
    client.retry(client.set, "/app/ctr", b"10")
    for member in ensemble.members:
        member.kill()
    for member in ensemble.members:
        ensemble.start(member)
    ensemble.wait_in_quorum(ensemble.members)
    assert client.retry(client.get, "/app/ctr-increment")[0] in (b"11", b"12")
    assert len(client.get_children("/em/counter")) == 2


def test_an_acknowledgement_goes_with_its_session(ensemble):
    owner, other = started(ensemble), started(ensemble)
    owner.create("/app/ctr", b"0")
    owner.create("/em/counter", source("counter"))
    acknowledge(other, "counter")
    assert len(owner.get_children("/em/counter")) == 3
    other.stop()
    eventually("its end", lambda: len(owner.get_children("/em/counter")) == 2)
    owner.stop()
    again = started(ensemble)
    assert again.get_children("/em/counter") == ["owner"]
    assert b"session 0x" in again.get("/em/counter/owner")[0]
    acknowledge(again, "counter")
    assert again.get("/app/ctr-increment")[0] == b"1"


def test_a_program_can_be_deleted_with_all_that_is_below_it(ensemble):
    first, second = (started(ensemble, [member]) for member in ensemble.members[:2])
    for delete_all in (
        # One by one, from below.
        lambda path: first.delete(path, recursive=True),
        # In a multi, as deleteall of ZooKeeper's shell.
        lambda path: deletes_at_once(first, [f"{path}/{name}" for name in first.get_children(path)] + [path]),
    ):
        first.create("/em/counter", source("counter"))
        second.sync("/em/counter")
        acknowledge(second, "counter")
        first.sync("/em/counter")
        assert len(first.get_children("/em/counter")) == 3
        delete_all("/em/counter")
        second.sync("/em")
        assert second.get_children("/em") == []
        with pytest.raises(NoNodeError):
            second.get("/app/ctr-increment")


def deletes_at_once(client, paths):
    transaction = client.transaction()
    for path in paths:
        transaction.delete(path)
    assert transaction.commit() == [True] * len(paths)


def test_a_queue_hands_out_each_element_once(ensemble):
    clients = [started(ensemble, [member]) for member in ensemble.members]
    clients[0].create("/app/queue")
    clients[0].create("/em/queue", source("queue"))
    for client in clients[1:]:
        client.sync("/em/queue")
        acknowledge(client, "queue")
    for number in range(60):
        clients[number % 3].create(f"/app/queue/{number:02}", str(number).encode())
    taken = [[] for _ in clients]

    def take(client, into):
        while True:
            try:
                into.append(int(client.get("/app/queue/head")[0]))
            except SystemErrorException:
                assert "the queue is empty" in why(client)
                return

    threads = [threading.Thread(target=take, args=pair) for pair in zip(clients, taken)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sum(taken, [])) == list(range(60))
    assert all(part == sorted(part) for part in taken)


def test_a_barrier_lets_all_go_at_once(ensemble):
    clients = [started(ensemble, [member]) for member in ensemble.members]
    clients[0].create("/app/barrier")
    clients[0].create("/em/barrier", source("barrier"))
    open_for = [threading.Event() for _ in clients]
    for client in clients[1:]:
        client.sync("/em/barrier")
        acknowledge(client, "barrier")
    for number, (client, opened) in enumerate(zip(clients, open_for)):
        stat = client.exists(f"/app/ready/{number}", watch=lambda _event, opened=opened: opened.set())
        if number < 2:
            assert stat is None and not opened.is_set()
    assert stat is not None, "the last one finds it full"
    assert all(opened.wait(10) for opened in open_for[:2])


def test_the_next_leader_is_appointed_when_the_first_ends(ensemble):
    clients = [started(ensemble, [member]) for member in ensemble.members]
    clients[0].create("/app/clients")
    clients[0].create("/app/leader")
    clients[0].create("/em/election", source("election"))
    told = threading.Event()
    for client in clients[1:]:
        client.sync("/em/election")
        acknowledge(client, "election")
    assert clients[0].exists("/app/leader/0", watch=lambda _event: None)
    assert clients[1].exists("/app/leader/1", watch=lambda _event: told.set()) is None
    assert not told.is_set()
    clients[0].stop()
    assert told.wait(10)
    clients[1].sync("/app/leader")
    assert clients[1].get_children("/app/leader") == ["1"]


@pytest.mark.skipif(os.environ.get("STOA_PARTITIONS", "1") != "1", reason="its znodes live on several partitions")
def test_the_guide_says_what_happens(ensemble, monkeypatch):
    guide = EXAMPLES.parents[1] / "docs" / "extensions.md"
    lines = guide.read_text().split("```python\n")[1].split("```")[0].splitlines()
    assert len(lines) == 6
    monkeypatch.chdir(EXAMPLES)
    names = {"anna": started(ensemble), "bruno": started(ensemble)}
    for line in lines:
        code, _, said = line.partition("  # ")
        names["bruno"].sync("/")
        answer = eval(code, {}, names)
        if said.strip().startswith('b"'):
            assert answer[0] == eval(said), line


HOSTILE = {
    "while": (b'on_operation("read", "/h");\nfn read(r) {\n  while true {}\n}', "line 3, column 3"),
    "recursion": (b'on_operation("read", "/h");\nfn read(r) { return f(); }\nfn f() { return f(); }', "line 3"),
    "eval": (b'on_operation("read", "/h");\nfn read(r) { return eval("1"); }', "line 2"),
    "empty": (b"", "the program"),
    "binary": (b"\xff\xfe", "UTF-8"),
    "long": (b"//" + b"x" * 20_000, "16384"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_program_is_refused_with_its_place(ensemble, name):
    program, place = HOSTILE[name]
    client = started(ensemble)
    with pytest.raises(BadArgumentsError):
        client.create(f"/em/{name}", program)
    assert place in why(client)
    assert client.exists("/em") is None


def test_hostile_calls_are_stopped_while_the_server_goes_on(ensemble):
    client = started(ensemble)
    client.create("/em/steps", b"""
        on_operation("read", "/app/steps");
        on_operation("update", "/app/grow");
        fn read(request) {
            local.create("/app/trace");
            for i in 0..1000000000 { }
        }
        fn update(request) {
            local.create("/app/trace");
            let text = "x";
            for i in 0..64 { text += text; }
        }
    """)
    for call in (lambda: client.get("/app/steps"), lambda: client.set("/app/grow", b"")):
        with pytest.raises(SystemErrorException):
            call()
        assert "limit" in why(client)
        assert client.exists("/app/trace") is None
    client.create("/on")
    with pytest.raises(NodeExistsError):
        client.create("/em/steps", source("counter"))
