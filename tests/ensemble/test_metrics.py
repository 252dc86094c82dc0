"""Metrics: what Apache ZooKeeper exports in each role, and that Stoa has them in the same form, counting alike.

`REWRITE_METRICS=1 cargo xtask ensemble -k metrics` writes zookeeper-metrics.txt anew. The unit tests of the server
hold its metrics and COMPAT.md to that list.
"""

import collections
import contextlib
import os
import pathlib
import re
import secrets
import shutil
import tempfile
import urllib.request

from kazoo.client import KazooClient
from kazoo.protocol.states import EventType

from members import ENVIRONMENT, Member, eventually
from server_process import HOST, free_port

LIST = pathlib.Path(__file__).with_name("zookeeper-metrics.txt")
ROLES = ("standalone", "leader", "follower", "observer")
SETTINGS = """\
tickTime=500
initLimit=20
syncLimit=10
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
"""
PROMETHEUS = """\
metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider
metricsProvider.httpHost={host}
metricsProvider.httpPort={port}
"""
# Of what ZooKeeper counts; each set has the label `key`.
SETS = {
    "ack_latency": "quantiles",
    "learner_handler_qp_size": "summary",
    "learner_handler_qp_time_ms": "quantiles",
    "read_per_namespace": "summary",
    "write_per_namespace": "summary",
}
# Stoa's own, and one of ZooKeeper 3.4.
OWN = re.compile(r"stoa_|process_|followers$")
MANY = 50

# What the same requests move by the same amount, by the role of the server that is asked.
EVERYWHERE = [
    "connection_request_count",
    "watch_bytes",
    "propagation_latency_count",
    *(
        f"node_{what}_watch_count_{part}"
        for what in ("created", "deleted", "changed", "children")
        for part in ("count", "sum")
    ),
]
LED = ["proposal_count", "commit_count"]
FOLLOWED = ["learner_commit_received_count"]


class Server(Member):
    """One that tells its metrics to Prometheus."""

    def __init__(self, folder, number, role, command):
        super().__init__(folder, number, role=role, command=command)
        self.metrics_port = free_port()

    def is_ready(self):
        code = self.process.poll()
        assert code is None, self.said()
        return self.mode in ROLES

    def prometheus(self):
        """Kinds by name, quantiles by name, and samples."""
        with urllib.request.urlopen(f"http://{HOST}:{self.metrics_port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        kinds, samples = {}, {}
        quantiles = collections.defaultdict(set)
        for line in lines:
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split()
                kinds[name] = kind
            elif not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                samples[name.replace(",}", "}")] = float(value)
                if found := re.search(r'quantile="([^"]*)"', name):
                    quantiles[name.partition("{")[0]].add(found[1])
        return kinds, quantiles, samples

    def mntr(self):
        """The keys of mntr, in their order."""
        return [line.split("\t")[0].removeprefix("zk_") for line in self.ask(b"mntr").splitlines()]


class Kind:
    """Three voters, an observer, and one that stands alone, all Stoa's or all ZooKeeper's."""

    def __init__(self, command, environment):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stoa-metrics-"))
        self.environment = environment
        roles = {n: "observer" if n == 4 else "participant" for n in (1, 2, 3, 4)}
        self.members = [Server(self.folder, n, role, command) for n, role in roles.items()]
        self.alone = Server(self.folder, 5, "participant", command)

    def __enter__(self):
        lines = "".join(member.line for member in self.members)
        for member in self.members:
            prometheus = PROMETHEUS.format(host=HOST, port=member.metrics_port)
            member.configure(SETTINGS + prometheus + lines)
        # The other provider of ZooKeeper, which gives mntr its form, goes with no more than this one.
        self.alone.configure(f"{SETTINGS}clientPort={self.alone.port}\nclientPortAddress={HOST}\n")
        try:
            for server in self.all:
                server.start(self.environment)
            for server in self.all:
                eventually(f"server {server.number} serves", server.is_ready)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, kind, *_error):
        if kind is not None:
            for server in self.all:
                print(server.said())
        self.end()

    def end(self):
        for server in self.all:
            server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def all(self):
        return [*self.members, self.alone]

    def by_role(self):
        return {server.mode: server for server in self.all}


@contextlib.contextmanager
def connected(server):
    client = KazooClient(server.address)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def some_of_everything(server, path):
    """Requests that all succeed, and set watches that all fire."""
    with connected(server) as client:
        events = []
        client.create(path, b"")
        client.exists(f"{path}/a", watch=events.append)
        client.get_children(path, watch=events.append)
        client.create(f"{path}/a", b"1")
        client.get(f"{path}/a", watch=events.append)
        client.set(f"{path}/a", b"2")
        with connected(server) as other:
            for each in (client, other):
                each.exists(f"{path}/a", watch=events.append)
            other.delete(f"{path}/a")
            eventually("all events have come", lambda: len(events) == 5)
        kinds = collections.Counter(event.type for event in events)
        assert kinds == {
            EventType.CREATED: 1,
            EventType.CHILD: 1,
            EventType.CHANGED: 1,
            EventType.DELETED: 2,
        }
        client.create(f"/zookeeper/quota{path}", b"", makepath=True)
        client.create(f"/zookeeper/quota{path}/zookeeper_limits", b"count=30,bytes=-1")
        client.create(f"/zookeeper/quota{path}/zookeeper_stats", b"count=0,bytes=0")
        client.sync(path)


def kind_of(name, kind, quantiles):
    if kind != "summary":
        return kind
    return SETS.get(name) or ("quantiles" if len(quantiles) > 1 else "summary")


def exported(servers):
    """Of each name its kind, and in which roles it is there."""
    found = collections.defaultdict(lambda: (set(), []))
    for role in ROLES:
        if role == "standalone":
            continue
        kinds, quantiles, _ = servers[role].prometheus()
        for name, kind in kinds.items():
            found[name][0].add(kind_of(name, kind, quantiles[name]))
            found[name][1].append(role)
    return {name: (*kinds, roles) for name, (kinds, roles) in found.items() if len(kinds) == 1}


def names_of(keys):
    """What mntr's keys are of: summaries have several keys, sets the key of each in front."""
    names = collections.defaultdict(set)
    for key in keys:
        part = re.match(r"(avg|min|max|cnt|sum|p50|p95|p99|p999)_(.*)", key)
        names[key].add("")
        if part:
            names[part[2]].add(part[1])
    return names


def listed(servers):
    """What ZooKeeper exports: a line a name, with its kind and its roles."""
    lines = []
    alone = names_of(servers["standalone"].mntr())
    for name, (kind, roles) in sorted(exported(servers).items()):
        # A gauge is nowhere in mntr when it has nothing to tell, as most sets at the start.
        is_there = name in alone or name in SETS or re.search("_per_namespace$|^jvm_|^process_", name)
        lines.append(f"{name} {kind} {' '.join(['standalone', *roles] if is_there else roles)}\n")
    return lines


def check_the_list(servers):
    lines = listed(servers)
    if os.environ.get("REWRITE_METRICS"):
        LIST.write_text(
            "# What Apache ZooKeeper 3.9.5 exports, how, and in which roles: made by test_metrics.py.\n"
            + "".join(lines)
        )
    expected = [line for line in LIST.read_text().splitlines(True) if not line.startswith("#")]
    assert lines == expected


def the_list():
    rows = [line.split() for line in LIST.read_text().splitlines() if not line.startswith("#")]
    return {name: (kind, roles) for name, kind, *roles in rows}


def check_prometheus(stoa, zookeeper):
    """What Stoa has it has in the roles and in the form in which ZooKeeper has it."""
    known = the_list()
    for name, (kind, roles) in exported(stoa).items():
        if not OWN.match(name):
            assert (kind, roles) == (known[name][0], [it for it in known[name][1] if it != "standalone"]), name
    _, theirs, _ = zookeeper["leader"].prometheus()
    _, ours, samples = stoa["leader"].prometheus()
    for name in ours:
        assert ours[name] == theirs[name], name
    assert samples['quota_count_limit_per_namespace{key="leader"}'] == 30


def check_mntr(stoa, zookeeper):
    """The keys of mntr: each is ZooKeeper's, none of a metric is missing, and kinds come in the same order."""
    ours, theirs = stoa["standalone"].mntr(), zookeeper["standalone"].mntr()
    # ZooKeeper begins to count when there is something to count.
    is_known = re.compile(f"{OWN.pattern}|.*_quota_exceeded_error_per_namespace$")
    strangers = [key for key in ours if not is_known.match(key) and key not in theirs]
    assert not strangers, strangers
    assert ours[:2] == theirs[:2] == ["version", "server_state"]
    known = the_list()
    of_ours, of_theirs = names_of(ours), names_of(theirs)
    order = []
    for name, parts in of_ours.items():
        if name in known and not OWN.match(name):
            assert parts == of_theirs[name], name
            order.append(["gauge", "counter", "summary", "quantiles"].index(known[name][0]))
    assert len(order) > MANY and order == sorted(order)
    for role in ("leader", "follower", "observer"):
        texts = ["version", "server_state", "peer_state", "observer_master_id"]
        assert [key for key in stoa[role].mntr() if key in texts] == [
            key for key in zookeeper[role].mntr() if key in texts
        ]


def check_words(stoa, zookeeper):
    """What stands before the values of envi, and of srvr."""
    for role in ROLES:
        ours, theirs = (
            (
                [line.partition("=")[0] for line in servers[role].ask(b"envi").splitlines()],
                re.findall("(?m)^[A-Z][^:]*:", servers[role].ask(b"srvr")),
            )
            for servers in (stoa, zookeeper)
        )
        assert ours == theirs, role


def moved(servers, role, path):
    """By how much metrics of the leader, the follower and the observer are moved by what `role` is asked."""
    watched = [it for it in ROLES if it != "standalone"]
    before = {it: servers[it].prometheus()[2] for it in watched}
    some_of_everything(servers[role], path)
    names = {"leader": LED, "follower": FOLLOWED, "observer": FOLLOWED}

    def all_moved():
        after = {it: servers[it].prometheus()[2] for it in watched}
        by = {
            it: {name: after[it][name] - before[it][name] for name in EVERYWHERE + names[it]}
            for it in watched
        }
        # The others apply what the leader has applied a moment later.
        counts = {by["leader"]["commit_count"], *(by[it][FOLLOWED[0]] for it in ("follower", "observer"))}
        return by if len(counts) == 1 else None

    return eventually("all servers have applied everything", all_moved)


def check_counts(stoa, zookeeper):
    for role in ("leader", "follower", "observer"):
        ours, theirs = (moved(servers, role, f"/{role}") for servers in (stoa, zookeeper))
        assert ours == theirs, role
        assert ours["leader"]["commit_count"] > 10
        assert ours[role]["node_deleted_watch_count_sum"] == 2


def test_metrics_are_those_of_zookeeper():
    environment = {**os.environ, **ENVIRONMENT, "STOA_PEER_SECRET": secrets.token_hex(16)}
    with (
        Kind(os.environ["PEER_COMMAND"], dict(os.environ)) as zookeeper,
        Kind(os.environ["MEMBER_COMMAND"], environment) as stoa,
    ):
        stoa, zookeeper = stoa.by_role(), zookeeper.by_role()
        for servers in (stoa, zookeeper):
            some_of_everything(servers["standalone"], "/standalone")
        check_counts(stoa, zookeeper)
        check_the_list(zookeeper)
        check_prometheus(stoa, zookeeper)
        check_mntr(stoa, zookeeper)
        check_words(stoa, zookeeper)
