"""Services with a server at each of three sites that are as far from one another as data centres are.

A kind of service is an entry of KINDS. What its `make` returns is entered with `with`, and then has `at(site)`, the server
that clients of a site are connected to, `servers()`, all those whose CPU time is counted, and `origins()`, those at which
records have to be written so that all sites have them.
"""

import contextlib
import dataclasses
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import typing

from consensus.distance import DistantEnsemble, Proxy
from servers import STOA, Server, free_ports, shown

# What lies in the middle: here writes are decided.
HUB = "virginia"
AWAY = ["california", "frankfurt"]
# Numbers of servers grow in this order. Of those that know as much ZooKeeper's elect the one with the highest number;
# of Stoa's the one with the lowest is first to try.
ORDER = {"zookeeper": ["frankfurt", "california", "virginia"], "stoa": ["virginia", "california", "frankfurt"]}
ROUND_TRIP_MS = {("virginia", "california"): 62, ("virginia", "frankfurt"): 90, ("california", "frankfurt"): 148}
# By which a way in one direction may be longer or shorter.
JITTER_MS = 1
HEAP = ["-Xms64m", "-Xmx256m"]
# The server in the middle is to lead, so Stoa's others wait longer before they want to.
PATIENT = ["--election-timeout", "4s"]
ELECTIONS_MAX = 5
# Until servers that are farther from one another than before have got used to it.
SETTLE_SECONDS = 3


def one_way_ms(site, other):
    return (ROUND_TRIP_MS.get((site, other)) or ROUND_TRIP_MS[other, site]) / 2


class WideEnsemble(DistantEnsemble):
    """One ensemble with a server at each site. The one in Virginia leads; those of `observers` have no vote."""

    def __init__(self, kind, observers=()):
        self.observers = observers
        self.sites = ORDER[kind]
        super().__init__(kind, heap=HEAP)

    def configure(self):
        for member, site in zip(self.members, self.sites):
            member.site = site
            if site in self.observers:
                member.role = "observer"
            if self.kind == "zookeeper":
                # Or else one server with a vote would be taken for one that stands alone.
                member.settings = "standaloneEnabled=false\n"
            elif site != HUB:
                member.flags = PATIENT
        super().configure()

    def launch(self):
        middle = self.at(HUB)
        middle.launch()
        if self.kind == "zookeeper":
            # It must be there when the others look for a leader.
            middle.wait_until(lambda: is_open(middle.election_port))
        for member in self.members:
            if member is not middle:
                member.launch()

    def __enter__(self):
        super().__enter__()
        try:
            self.elect()
            self.go_apart()
        except BaseException:
            self.__exit__()
            raise
        return self

    def elect(self):
        """Has the server in the middle lead: as long as another one does, that one starts again."""
        for _ in range(ELECTIONS_MAX):
            if (leader := self.leader()) is self.at(HUB):
                return
            leader.stop(signal.SIGKILL)
            self.leader()
            leader.launch()
            self.wait_in_quorum()

    def go_apart(self):
        """Puts the servers as far from one another as their sites are."""
        for viewer in self.members:
            for member in self.members:
                for door in member.doors.get(viewer.number, ()):
                    self.proxy.set_one_way(door, one_way_ms(viewer.site, member.site), JITTER_MS)
        time.sleep(SETTLE_SECONDS)
        self.wait_in_quorum()
        if (leader := self.leader()) is not self.at(HUB):
            raise RuntimeError(f"{self.kind}: the server in {leader.site} leads, not the one in {HUB}")

    def at(self, site):
        return self.members[self.sites.index(site)]

    def servers(self):
        return self.members

    def origins(self):
        return [self.at(HUB)]


class SiteServer(Server):
    """A server that is the only one of its site."""

    role = "participant"

    def __init__(self, site):
        super().__init__("stoa", None)
        self.site = site

    def is_connected(self):
        """Whether it has said that it and the hub know each other."""
        return " is connected " in (self.folder / "log").read_text()


class LoneServers:
    """A server at each site that knows of no other one."""

    def __init__(self):
        self.members = [SiteServer(site) for site in [HUB, *AWAY]]

    def __enter__(self):
        try:
            for member in self.members:
                member.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for member in self.members:
            member.__exit__()

    def at(self, site):
        return next(member for member in self.members if member.site == site)

    def servers(self):
        return self.members

    def origins(self):
        return self.members


class TokenSites(LoneServers):
    """Sites with tokens, an ensemble of one server each. Every other site reaches the hub through a link of its own."""

    # The setting site-policy; by default that of the server.
    policy = None
    # How many partitions the server of each site has.
    partitions = 1

    def __init__(self):
        super().__init__()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-sites-"))
        self.doors = dict(zip([HUB, *AWAY], free_ports(len(self.members))))
        self.proxy = Proxy([(self.doors[site], self.doors[HUB]) for site in AWAY])

    def __enter__(self):
        try:
            self.configure()
            self.proxy.__enter__()
            for site in AWAY:
                self.proxy.set_one_way(self.doors[site], one_way_ms(HUB, site), JITTER_MS)
            super().__enter__()
            for site in AWAY:
                self.at(site).wait_until(self.at(site).is_connected)
        except BaseException:
            self.__exit__()
            raise
        time.sleep(SETTLE_SECONDS)
        return self

    def configure(self):
        command = [STOA, "certificate", "--to", self.folder, "--name", "127.0.0.1"]
        shown(command)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for member in self.members:
            # Nobody connects to a site that is not the hub, but each has an address. The hub's is the link to it.
            ports = {**self.doors, HUB: self.doors[member.site]}
            sites = ",".join(f"{site}=127.0.0.1:{port}" for site, port in ports.items())
            member.flags = ["--site", member.site, "--sites", sites]
            member.flags += ["--partitions", str(self.partitions)] if self.partitions > 1 else []
            if member.site == HUB:
                member.flags += ["--site-port", str(self.doors[HUB]), "--site-bind", "127.0.0.1"]
                member.flags += ["--site-policy", self.policy] if self.policy else []
            for what, file in [("certificate", "server"), ("key", "server-key"), ("authority", "authority")]:
                member.flags += [f"--site-tls-{what}", self.folder / f"{file}.pem"]

    def origins(self):
        return [self.at(HUB)]

    def __exit__(self, *_):
        super().__exit__()
        if hasattr(self.proxy, "process"):
            self.proxy.__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)


class DividedSites(TokenSites):
    """The same, where each server has as many partitions as this machine has processors."""

    partitions = 2


def is_open(port):
    with contextlib.closing(socket.create_connection(("127.0.0.1", port), timeout=1)):
        return True


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of service."""

    title: str
    # Makes it.
    make: typing.Callable
    # Between what a write in California has to be in the median where nothing else is under way, milliseconds: or else
    # something is wrong with the links, with who leads or with the machine, and nothing counts.
    write_ms: tuple | None = None
    # Whether it has tokens: then writes become faster with time, and loads last until all is done that was to be.
    has_tokens: bool = False


# One round trip to Virginia, and one more where Virginia needs the vote of California.
ONE_TRIP, TWO_TRIPS = (62, 66), (124, 130)
KINDS = {
    "zk": Kind("ZooKeeper, a voter at each site", lambda: WideEnsemble("zookeeper"), TWO_TRIPS),
    "zko": Kind("ZooKeeper, observers", lambda: WideEnsemble("zookeeper", AWAY), ONE_TRIP),
    "stoa-stretched": Kind("Stoa, a voter at each site", lambda: WideEnsemble("stoa")),
    "stoa-observers": Kind("Stoa, observers", lambda: WideEnsemble("stoa", AWAY)),
    "stoa-sites": Kind("Stoa, sites: each an ensemble of one server, the hub in Virginia", TokenSites, None, True),
    "stoa-divided": Kind("Stoa, sites of one server with two partitions", DividedSites, None, True),
    "stoa-alone": Kind("Stoa, a server at each site that knows of no other", LoneServers),
}
