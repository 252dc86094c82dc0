"""The audit log beside that of Apache ZooKeeper: the same requests to both, and their lines compared."""

import socket

import pytest

from audited import PATIENCE_SECONDS, STOA, ZOOKEEPER, Played, alone, by_step, play
from differences import check
from server_process import HOST
from steps import STEPS


def played(kind, folder):
    with alone(kind, folder) as audited:
        audited.server.start()
        answers = play(audited, STEPS)
        audited.server.stop()
        return Played(by_step(audited.lines(), STEPS), answers)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    return played(ZOOKEEPER, folder), played(STOA, folder)


@pytest.mark.parametrize("name", ["start", *STEPS, "stop"])
def test_lines(both, name):
    check(name, *both)


def test_something_is_compared(both):
    zookeeper, _ = both
    without_lines = {name for name, lines in zookeeper.lines.items() if not lines}
    assert without_lines == {"creates_of_no_known_kind", "reads"}
    every = [line for lines in zookeeper.lines.values() for line in lines]
    assert {line.rpartition("=")[2] for line in every} == {"success", "failure", "invoked"}


def test_a_server_that_cannot_start(tmp_path):
    lines = []
    for kind in (ZOOKEEPER, STOA):
        with alone(kind, tmp_path) as audited, socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind((HOST, audited.port))
            other.listen()
            audited.server.launch()
            assert audited.server.process.wait(PATIENCE_SECONDS) != 0
            lines.append(audited.lines())
    zookeeper, stoa = lines
    assert zookeeper == stoa and len(stoa) == 1
