"""Services with a server at each of three sites that are as far from one another as data centres are.

A kind of service is an entry of KINDS. What its `make` returns is entered with `with`, and then has `at(site)`, the server
that clients of a site are connected to, and `servers()`, all those whose CPU time is counted.
"""

import contextlib
import dataclasses
import signal
import socket
import time
import typing

from consensus.distance import DistantEnsemble

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


# One round trip to Virginia, and one more where Virginia needs the vote of California.
ONE_TRIP, TWO_TRIPS = (62, 66), (124, 130)
KINDS = {
    "zk": Kind("ZooKeeper, a voter at each site", lambda: WideEnsemble("zookeeper"), TWO_TRIPS),
    "zko": Kind("ZooKeeper, observers", lambda: WideEnsemble("zookeeper", AWAY), ONE_TRIP),
    "stoa-stretched": Kind("Stoa, a voter at each site", lambda: WideEnsemble("stoa")),
    "stoa-observers": Kind("Stoa, observers", lambda: WideEnsemble("stoa", AWAY)),
}
