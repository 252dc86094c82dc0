"""What both programs are asked. Each step is given a server and its client, and returns what was answered."""

import socket
import struct

from kazoo.security import ACL, Id, OPEN_ACL_UNSAFE, make_acl, make_digest_acl

import forms as of
from audited import PATIENCE_SECONDS, ask, eventually, outcome
from server_process import HOST

READ_ONLY = [make_acl("world", "anyone", read=True, admin=True)]
STEPS = {}


def step(function):
    STEPS[function.__name__] = function
    return function


def all_of(client, *requests):
    return [ask(client, request) for request in requests]


def open_session(server, name, timeout_ms):
    """A session without kazoo, which would keep it alive."""
    connection = socket.create_connection((HOST, server.port), PATIENCE_SECONDS)
    body = struct.pack("!iqiqi", 0, 0, timeout_ms, 0, 16) + bytes(17)
    connection.sendall(struct.pack("!i", len(body)) + body)
    answer = receive(connection)
    server.know(struct.unpack_from("!q", answer, 8)[0], name)
    return connection


def receive(connection):
    def exactly(length):
        data = b""
        while len(data) < length:
            more = connection.recv(length - len(data))
            assert more, "the server has closed the connection"
            data += more
        return data

    return exactly(struct.unpack("!i", exactly(4))[0])


def say(connection, request):
    body = struct.pack("!ii", 1, request.type) + request.body
    connection.sendall(struct.pack("!i", len(body)) + body)
    return struct.unpack_from("!i", receive(connection), 12)


@step
def creates(_, client):
    return [
        client.create("/a", b"1"),
        client.create("/a/with-stat", b"1", include_data=True)[0],
        client.create("/a/e", ephemeral=True),
        client.create("/a/s-", sequence=True),
        client.create("/a/es-", ephemeral=True, sequence=True),
        client.create("/a/es2-", ephemeral=True, sequence=True, include_data=True)[0],
        client.create("/a/\u00e4 \u4e2d b"),
        client.create("/a/n=1"),
    ]


@step
def creates_of_containers(_, client):
    return all_of(
        client,
        of.create("/c", of.CONTAINER, of.CREATE_CONTAINER),
        of.create("/c-by-create", of.CONTAINER),
        of.create("/c-by-create2", of.CONTAINER, of.CREATE2),
        of.create("/c", of.CONTAINER, of.CREATE_CONTAINER),
        of.create("/c-persistent", of.PERSISTENT, of.CREATE_CONTAINER),
    )


@step
def creates_with_a_ttl(_, client):
    return all_of(
        client,
        of.create("/ttl", of.TTL, of.CREATE_TTL),
        of.create("/ttl-", of.SEQUENTIAL_TTL, of.CREATE_TTL),
        of.create("/ttl", of.TTL, of.CREATE_TTL),
        of.create("/none/ttl", of.TTL, of.CREATE_TTL),
        of.create("/ttl-negative", of.TTL, of.CREATE_TTL, ttl=-5),
    )


@step
def creates_with_a_mode_of_another_request(_, client):
    return all_of(
        client,
        of.create("/mode-a", of.TTL),
        of.create("/mode-b", of.SEQUENTIAL_TTL, of.CREATE2),
        of.create("/mode-c", of.EPHEMERAL, of.CREATE_CONTAINER),
        of.create("/mode-d", of.TTL, of.CREATE_CONTAINER),
    )


@step
def creates_with_a_ttl_for_kinds_without(_, client):
    return all_of(
        client,
        of.create("/mode-e", of.PERSISTENT, of.CREATE_TTL),
        of.create("/mode-f", of.CONTAINER, of.CREATE_TTL),
    )


@step
def creates_of_no_known_kind(_, client):
    return all_of(client, of.create("/kind-7", 7), of.create("/kind-8", -1, of.CREATE2))


@step
def creates_that_fail(_, client):
    return all_of(
        client,
        of.create("/a"),
        of.create("/none/a"),
        of.create("/none/s-", of.SEQUENTIAL),
        of.create("/a/e/child"),
        of.create("/"),
        of.create("/zookeeper"),
    )


@step
def creates_with_bad_paths(_, client):
    return all_of(
        client,
        of.create("a"),
        of.create("/a//b"),
        of.create("/a/"),
        of.create("/a/./b"),
        of.create("/a/../b"),
        of.create("/tab\tnewline\nreturn\r"),
        of.create("/nul\0"),
        of.create("/high\x7f"),
    )


@step
def creates_with_bad_acls(_, client):
    return all_of(
        client,
        of.create("/acl-a", acl=[]),
        of.create("/acl-b", acl=[make_acl("unknown", "x", all=True)]),
        of.create("/acl-c", acl=[make_acl("world", "somebody", all=True)]),
        of.create("/acl-d", acl=[make_acl("auth", "", all=True)]),
        of.create("/acl-e", acl=[make_acl("ip", "not an address", all=True)]),
    )


@step
def deletes(_, client):
    client.create("/d", b"")
    client.create("/d/child", b"")
    return all_of(
        client,
        of.delete("/d"),
        of.delete("/d/child", 7),
        of.delete("/d/child"),
        of.delete("/d/child"),
        of.delete("/d"),
        of.delete("/"),
        of.delete("/zookeeper"),
        of.delete("/zookeeper/config"),
        of.delete("no-slash"),
        of.delete("/d//e"),
        of.delete("/d/"),
    )


@step
def deletes_of_containers(_, client):
    """By a client. ZooKeeper lets it."""
    return all_of(
        client,
        of.create("/dc", of.CONTAINER, of.CREATE_CONTAINER),
        of.delete_container("/dc"),
        of.delete_container("/a"),
        of.delete_container("/none"),
    )


@step
def sets(_, client):
    return [
        client.set("/a", b"2").version,
        *all_of(
            client,
            of.set_data("/a", b"3", 7),
            of.set_data("/none"),
            of.set_data("a"),
            of.set_data("/a//b"),
            of.set_data("/zookeeper/config"),
            of.set_data("/zookeeper/quota"),
        ),
    ]


@step
def empty_paths(_, client):
    return all_of(
        client,
        of.create(""),
        of.delete(""),
        of.set_data(""),
        of.set_acl("", READ_ONLY),
    )


@step
def null_paths(_, client):
    return all_of(
        client,
        of.create(None),
        of.delete(None),
        of.set_data(None),
        of.set_acl(None, READ_ONLY),
    )


@step
def set_acls(_, client):
    client.create("/acl", b"")
    many = [
        make_acl("world", "anyone", read=True, write=True, create=True, delete=True, admin=True),
        make_digest_acl("bob", "secret", read=True, create=True),
        make_acl("ip", "127.0.0.0/8", write=True, delete=True),
        make_acl("ip", "::1", read=True),
    ]
    return [
        client.set_acls("/acl", OPEN_ACL_UNSAFE).aversion,
        client.set_acls("/acl", many).aversion,
        *all_of(
            client,
            *(of.set_acl("/acl", [ACL(perms, Id("world", "anyone"))]) for perms in (17, 18, 20, 24, 63, 16)),
        ),
    ]


@step
def set_acls_that_fail(_, client):
    client.create("/acl2", b"")
    return all_of(
        client,
        of.set_acl("/none", READ_ONLY),
        of.set_acl("/acl2", READ_ONLY, 7),
        of.set_acl("/acl2", [make_acl("auth", "", all=True)]),
        of.set_acl("/acl2", [make_acl("unknown", "tab\tin", all=True)]),
        of.set_acl("/acl2", [make_acl("digest", "no-hash", all=True)]),
        of.set_acl("acl2", READ_ONLY),
        of.set_acl("/acl2", [ACL(0, Id("world", "nobody"))]),
        of.set_acl("/acl2", [ACL(64, Id("world", "nobody"))]),
    )


@step
def set_acls_without_entries(_, client):
    return [ask(client, of.set_acl("/acl2", []))]


@step
def set_acls_with_a_null_id(_, client):
    return [ask(client, of.set_acl("/acl2", [ACL(31, Id("auth", None))]))]


@step
def without_permission(_, client):
    client.create("/locked", b"")
    client.create("/locked/child", b"")
    client.set_acls("/locked", [make_acl("world", "anyone", read=True)])
    return all_of(
        client,
        of.create("/locked/new"),
        of.create("/locked/new", of.CONTAINER, of.CREATE_CONTAINER),
        of.delete("/locked/child"),
        of.set_data("/locked"),
        of.set_acl("/locked", OPEN_ACL_UNSAFE),
        of.Multi([of.set_data("/a"), of.set_data("/locked")]),
    )


@step
def users(server, _):
    """A client proves more each time."""
    client = server.client("users")
    done = [client.create("/users", b"")]
    for scheme, proof in [
        ("digest", "bob:secret"),
        ("digest", "eve:secret"),
        ("digest", "bob:secret"),
        ("digest", "bob:another"),
        ("ip", "anything"),
        ("digest", "super:test"),
    ]:
        done.append(outcome(client.add_auth, scheme, proof))
        done.append(client.set("/users", b"").version)
    done.append(ask(client, of.set_acl("/users", [make_acl("auth", "", all=True)])))
    return done


@step
def odd_users(server, _):
    done = []
    names = ["n\u00e4me:x", "tab\tnew\nline:x", "a,b:x", "a=b:x", "no-password", "b c:x"]
    for number, proof in enumerate(names):
        client = server.client(f"odd-{number}")
        done.append(outcome(client.add_auth, "digest", proof))
        done.append(client.set("/a", b"").version)
    return done


@step
def users_without_a_name(server, _):
    done = []
    for number, proof in enumerate([":x", "  :x"]):
        client = server.client(f"nameless-{number}")
        done.append(outcome(client.add_auth, "digest", proof))
        done.append(client.set("/a", b"").version)
    return done


@step
def users_that_fail(server, _):
    client = server.client("failing")
    client.set("/a", b"")
    return [outcome(client.add_auth, "unknown", "x")]


@step
def superuser_goes_everywhere(server, _):
    client = server.client("super")
    client.add_auth("digest", "super:test")
    path = "/locked/by-super"
    return all_of(client, of.set_data("/locked"), of.create(path), of.delete(path))


@step
def multis(_, client):
    client.create("/m", b"")
    return all_of(
        client,
        of.Multi([of.create("/m/a"), of.check("/m"), of.set_data("/m/a"), of.delete("/m/a")]),
        of.Multi([of.create("/m/e", of.EPHEMERAL, of.CREATE2), of.create("/m/e2", of.EPHEMERAL)]),
        of.Multi([of.create("/m/c", of.CONTAINER, of.CREATE_CONTAINER)]),
        of.Multi([of.check("/m")]),
        of.Multi([]),
    )


@step
def multis_with_kinds_that_zookeeper_forgets(_, client):
    return all_of(
        client,
        of.Multi(
            [
                of.create("/m/s-", of.SEQUENTIAL),
                of.create("/m/es-", of.EPHEMERAL_SEQUENTIAL, of.CREATE2),
            ]
        ),
        of.Multi([of.create("/m/ttl", of.TTL, of.CREATE_TTL)]),
        of.Multi([of.create("/m/ttl-", of.SEQUENTIAL_TTL, of.CREATE_TTL)]),
    )


@step
def multis_that_fail(_, client):
    return all_of(
        client,
        of.Multi([of.create("/m/new"), of.create("/m")]),
        of.Multi([of.check("/m", 7)]),
        of.Multi([of.delete("/none")]),
        of.Multi([of.set_data("/m", b"", 7), of.create("/m/new")]),
        of.Multi([of.create("/m//new")]),
        of.Multi([of.create("/m/new", acl=[])]),
        of.Multi([of.create("/m/new", of.TTL, of.CREATE_TTL, ttl=-1)]),
        of.Multi([of.create("/none/s-", of.SEQUENTIAL)]),
    )


@step
def multis_with_a_znode_of_no_known_kind(_, client):
    return all_of(client, of.Multi([of.create("/m/new", 7), of.create("/m")]))


@step
def multis_with_a_set_acl(_, client):
    """Of which neither server knows how it would be read."""
    return [ask(client, of.Multi([of.set_acl("/m", READ_ONLY)]))]


@step
def reads(server, client):
    # A server closes the connection after a check outside of a multi.
    other = server.client("checking")
    return [
        client.exists("/a") is not None,
        client.get("/a")[0],
        len(client.get_acls("/a")[0]),
        client.sync("/a"),
        outcome(client.get, "/none"),
        ask(client, of.Asked(of.MULTI_READ, of.Multi([]).serialize())),
        ask(other, of.check("/a")),
    ]


@step
def reconfigs_that_fail(server, client):
    root = server.client("superuser")
    root.add_auth("digest", "super:test")
    return [
        *all_of(client, of.reconfig(leaving="1"), of.reconfig()),
        *all_of(root, of.reconfig(joining="nonsense"), of.reconfig(leaving="7", version=99)),
    ]


@step
def requests_that_are_cut(server, _):
    done = []
    requests = [
        of.create("/cut"),
        of.create("/cut", of.TTL, of.CREATE_TTL),
        of.set_data("/a"),
        of.delete("/a"),
        of.set_acl("/a", READ_ONLY),
        of.Multi([of.delete("/a")]),
    ]
    for number, request in enumerate(requests):
        for length in (-1, 5):
            client = server.client(f"cut-{number}")
            done.append(ask(client, of.cut(of.Asked(request.type, request.serialize()), length)))
    return done


@step
def quotas(_, client):
    client.create("/q", b"")
    client.create("/zookeeper/quota/q", b"")
    limits = b"count=2,bytes=-1;byteHardLimit=10;countHardLimit=2"
    client.create("/zookeeper/quota/q/zookeeper_limits", limits)
    client.create("/zookeeper/quota/q/zookeeper_stats", b"count=1,bytes=0")
    return all_of(
        client,
        of.create("/q/a"),
        of.create("/q/b"),
        of.set_data("/q/a", b"x" * 100),
        of.Multi([of.create("/q/b")]),
    )


@step
def ends_of_sessions(server, _):
    client = server.client("ending")
    for name in ("x", "y", "z-"):
        client.create(f"/a/end-{name}", ephemeral=True, sequence=name == "z-")
    client.add_auth("digest", "bob:secret")
    client.stop()
    other = server.client("ending without")
    other.stop()


@step
def sessions_that_expire(server, client):
    connection = open_session(server, "expiring", 1000)
    done = say(connection, of.create("/a/expiring", of.EPHEMERAL))
    connection.close()
    eventually("the session expires", lambda: client.exists("/a/expiring") is None)
    return done


@step
def znodes_that_the_server_deletes(_, client):
    done = all_of(
        client,
        of.create("/goes", of.CONTAINER, of.CREATE_CONTAINER),
        of.create("/goes/child"),
        of.delete("/goes/child"),
        of.create("/goes-ttl", of.TTL, of.CREATE_TTL, ttl=1),
    )
    eventually("both are gone", lambda: not client.exists("/goes") and not client.exists("/goes-ttl"))
    return done


@step
def ipv6(server, _):
    client = server.client("ipv6", host="[::1]")
    return [client.set("/a", b"").version, outcome(client.set, "/none", b"")]


def reconfigs_that_are_done(server, _):
    """A server joins that is there already."""
    client = server.client("superuser of an ensemble")
    client.add_auth("digest", "super:test")
    return [ask(client, of.reconfig(joining=server.server.line.strip()))]


# A create that is cut ends the connections between ZooKeeper's servers; and members listen at one address.
LEFT_OUT = ("requests_that_are_cut", "ipv6")
STEPS_OF_AN_ENSEMBLE = {name: STEPS[name] for name in STEPS if name not in LEFT_OUT}
STEPS_OF_AN_ENSEMBLE["reconfigs_that_are_done"] = reconfigs_that_are_done
