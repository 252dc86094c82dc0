"""The same in an ensemble, asked through a follower: its lines, and those of the other two."""

import pytest

from audited import STOA, ZOOKEEPER, Played, by_step, ensemble, play
from differences import check
from steps import STEPS_OF_AN_ENSEMBLE


def played(kind, folder):
    with ensemble(kind, folder) as servers:
        follower = next(it for it in servers if it.server.mode == "follower")
        others = [it for it in servers if it is not follower]
        answers = play(follower, STEPS_OF_AN_ENSEMBLE)
        for it in [follower, *others]:
            it.server.stop()
        return Played(by_step(follower.lines(), STEPS_OF_AN_ENSEMBLE), answers), [it.lines() for it in others]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble")
    return played(ZOOKEEPER, folder), played(STOA, folder)


@pytest.mark.parametrize("name", ["start", *STEPS_OF_AN_ENSEMBLE, "stop"])
def test_lines_of_the_server_that_is_asked(both, name):
    check(name, *(asked for asked, _ in both))


def test_lines_of_the_other_servers(both):
    zookeeper, stoa = (others for _, others in both)
    assert stoa == zookeeper
    for lines in stoa:
        assert any("\toperation=ephemeralZNodeDeletionOnSessionCloseOrExpire\t" in line for line in lines)
        assert not any("\tip=" in line for line in lines)
