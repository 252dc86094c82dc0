"""A checker that finds nothing proves nothing: each kind of loss is planted here and found."""

import pytest

from record import Operation, Record


def create(path, data):
    return Operation(((path, None, (data, 0)),))


def pair(value, version):
    before, after = (b"old", version - 1), (value, version)
    return Operation((("/p", before, after), ("/q", before, after)))


@pytest.fixture
def record():
    kept = Record()
    kept.acknowledged(create("/a", b"1"))
    kept.acknowledged(Operation((("/a", (b"1", 0), (b"2", 1)),)))
    kept.acknowledged(create("/b", b"1"))
    kept.acknowledged(Operation((("/b", (b"1", 0), None),)))
    return kept


def test_kept_promises_are_no_complaint(record):
    assert record.complaints({"/a": (b"2", 1)}) == []


@pytest.mark.parametrize(
    "observed",
    [
        pytest.param({}, id="an acknowledged znode is gone"),
        pytest.param({"/a": (b"1", 0)}, id="an acknowledged change is gone"),
        pytest.param({"/a": (b"2", 2)}, id="a change happened twice"),
        pytest.param({"/a": (b"2", 1), "/b": (b"1", 0)}, id="a deleted znode is back"),
        pytest.param({"/a": (b"2", 1), "/c": (b"", 0)}, id="a znode comes from nowhere"),
    ],
)
def test_each_broken_promise_is_found(record, observed):
    assert len(record.complaints(observed)) == 1


def test_a_false_acknowledgement_is_found(record):
    observed = {"/a": (b"2", 1)}
    record.acknowledged(create("/never-sent", b"x"))
    (complaint,) = record.complaints(observed)
    assert "/never-sent" in complaint


def test_an_unknown_change_may_have_happened_or_not(record):
    record.unknown(Operation((("/a", (b"2", 1), (b"3", 2)),)))
    assert record.in_doubt("/a")
    assert record.complaints({"/a": (b"2", 1)}) == []
    assert record.complaints({"/a": (b"3", 2)}) == []
    assert len(record.complaints({"/a": (b"4", 2)})) == 1
    assert len(record.complaints({})) == 1


def test_half_of_an_unknown_multi_is_found():
    record = Record()
    record.unknown(pair(b"new", 3))
    old, new = (b"old", 2), (b"new", 3)
    assert record.complaints({"/p": old, "/q": old}) == []
    assert record.complaints({"/p": new, "/q": new}) == []
    assert len(record.complaints({"/p": new, "/q": old})) == 1


def test_what_was_observed_once_has_to_stay(record):
    record.unknown(Operation((("/a", (b"2", 1), (b"3", 2)),)))
    record.settle({"/a": (b"3", 2)})
    assert record.complaints({"/a": (b"3", 2)}) == []
    assert len(record.complaints({"/a": (b"2", 1)})) == 1
