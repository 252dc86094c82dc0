"""Where the lines are others on purpose. COMPAT.md names each, in the words that stand here as the reason."""

import re


def no_container_is_deleted(lines):
    """Both have a line of the create."""
    created, _deleted = lines
    return [created, *(refusal("delete", path) for path in ("/dc", "/a", "/none"))]


def refusal(operation, path):
    who = "session=client\tuser=127.0.0.1\tip=127.0.0.1"
    return f"ERROR {who}\toperation={operation}\tznode={path}\tresult=failure"


def all_kinds_are_there(lines):
    kinds = (
        "persistent_sequential",
        "ephemeral_sequential",
        "persistent_with_ttl",
        "persistent_sequential_with_ttl",
    )
    added = zip(lines, kinds, strict=True)
    return [line.replace("\tresult=", f"\tznode_type={kind}\tresult=") for line, kind in added]


def kinds_that_there_are_not_have_lines(lines):
    assert lines == []
    return [refusal("create", path) for path in ("/kind-7", "/kind-8")]


def nothing_is_told_of_what_was_read(lines):
    return [re.sub(r"\t(znode|znode_type|acl)=[^\t]*", "", line) for line in lines]


def each_cut_request_has_a_line(lines):
    """ZooKeeper has none of a setACL that ends before its ACL."""
    (at,) = [at for at, line in enumerate(lines) if "operation=setAcl" in line]
    return nothing_is_told_of_what_was_read([*lines[:at], lines[at], *lines[at:]])


def null_ids_are_empty(lines):
    return [line.replace("acl=auth:null:", "acl=auth::") for line in lines]


# What is not the same in a step, and what Stoa makes of ZooKeeper's lines.
LINES = {
    "creates_of_no_known_kind": (
        "a create of a kind that there is not: result failure; ZooKeeper has no line",
        kinds_that_there_are_not_have_lines,
    ),
    "null_paths": (
        "a request that cannot be read: what it would have done, without znode",
        nothing_is_told_of_what_was_read,
    ),
    "requests_that_are_cut": (
        "a request that cannot be read: what it would have done, without znode",
        each_cut_request_has_a_line,
    ),
    "set_acls_with_a_null_id": (
        "an id that is null in an ACL: empty; ZooKeeper writes null",
        null_ids_are_empty,
    ),
    "deletes_of_containers": (
        "deleteContainer from a client: Stoa answers NoAuth",
        no_container_is_deleted,
    ),
    "multis_with_kinds_that_zookeeper_forgets": (
        "znode_type in a multi: always there; ZooKeeper has none of sequential and TTL znodes",
        all_kinds_are_there,
    ),
}

# Steps in which what clients are answered is not the same.
ANSWERS = {
    "deletes_of_containers": "deleteContainer from a client: Stoa answers NoAuth",
    "null_paths": "null paths in setData and setACL: Stoa answers MarshallingError",
}


def check(name, zookeeper, stoa):
    """Each has the lines of the step, and its answers."""
    expected = zookeeper.lines[name]
    if name in LINES:
        _, change = LINES[name]
        expected = change(expected)
        assert expected != zookeeper.lines[name], "it is no difference any more"
    assert stoa.lines[name] == expected
    are_same = stoa.answers.get(name) == zookeeper.answers.get(name)
    assert are_same != (name in ANSWERS), (zookeeper.answers[name], stoa.answers[name])
