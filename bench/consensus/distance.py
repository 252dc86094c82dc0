"""Servers that are as far from one another as is wanted: ensembles whose links run through `stoa proxy`."""

import contextlib
import subprocess
import time

import servers
from ensembles import Ensemble, Member
from servers import STOA, Server, free_ports

# Servers that have just become as far from one another as never before may elect anew.
SETTLE_SECONDS = 1.0


class Proxy:
    """Links that can be changed while they are used. Ends at the end of `with`."""

    def __init__(self, links):
        """`links` are pairs of ports: where it listens, and where it connects to."""
        self.links = links

    def __enter__(self):
        command = [str(STOA), "proxy", "--control"]
        for listen, to in self.links:
            command += ["--link", f"127.0.0.1:{listen}=127.0.0.1:{to}"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=servers.prepare
        )
        self._answers(len(self.links))
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def set_round_trip(self, ms, jitter_ms=0):
        """Makes all links that long, give or take the jitter."""
        self._set("*", len(self.links), ms / 2, jitter_ms / 2)

    def set_one_way(self, listen, ms, jitter_ms=0):
        """Makes one link that long in each direction, give or take the jitter."""
        self._set(f"127.0.0.1:{listen}", 1, ms, jitter_ms)

    def _set(self, which, count, ms, jitter_ms):
        self.process.stdin.write(f"{which},delay={ms:.6f}ms,jitter={jitter_ms:.6f}ms\n")
        self.process.stdin.flush()
        self._answers(count)

    def _answers(self, count):
        for _ in range(count):
            line = self.process.stdout.readline()
            if not line or line.startswith("error"):
                raise RuntimeError(f"the proxy says: {line}")


class DistantMember(Member):
    """A server that each of the others finds at the near end of a link of its own."""

    def __init__(self, *args):
        super().__init__(*args)
        # Ports of the links' near ends, by the number of who uses them.
        self.doors = {}

    def seen_by(self, viewer):
        return self.doors.get(viewer.number) or super().seen_by(viewer)


class DistantEnsemble(Ensemble):
    """Three servers or more with a link from each to each other one, for each of its two ports. Whoever opens a
    connection does so through its own link, which carries it both ways."""

    MEMBER = DistantMember

    def configure(self):
        pairs = [(viewer, member) for viewer in self.members for member in self.members if viewer is not member]
        taken = {port for each in self.members for port in (each.port, each.peer_port, each.election_port)}
        free = [port for port in free_ports(2 * len(pairs) + len(taken)) if port not in taken]
        links = []
        for (viewer, member), doors in zip(pairs, zip(free[::2], free[1::2])):
            member.doors[viewer.number] = doors
            links += zip(doors, (member.peer_port, member.election_port))
        self.proxy = Proxy(links)
        super().configure()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.proxy)
            super().__enter__()
            self._proxy = stack.pop_all()
        return self

    def __exit__(self, *args):
        super().__exit__(*args)
        if hasattr(self, "_proxy"):
            self._proxy.close()

    def set_round_trip(self, ms):
        """Puts the servers that far from one another, and waits until they have got used to it."""
        self.proxy.set_round_trip(ms)
        time.sleep(SETTLE_SECONDS)
        self.wait_in_quorum()


class Lone(Server):
    """One server by itself, with what is asked of ensembles."""

    def __init__(self, kind):
        super().__init__(kind, None)
        self.members = [self]

    def leader(self):
        return self

    def set_round_trip(self, ms):
        assert ms == 0, "there is no other server"


def ensemble(kind, size):
    return Lone(kind) if size == 1 else DistantEnsemble(kind, size=size)
