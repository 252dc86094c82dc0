"""Sites of one server or of several, each as far from every other one as data centres are, whose lines can be cut.

Who looks from one site at another does so through a link of its own, in both directions. All links from and to the hub
are one process, and those between the others a second one: so the hub can be cut off.
"""

import base64
import contextlib
import hashlib
import itertools
import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

import servers
from consensus.distance import Proxy
from ensembles import Member
from servers import STOA, Server, free_port, free_ports, shown
from wide import AWAY, HUB, one_way_ms

SITES = [HUB, *AWAY]
PASSWORD = "bench"
# Until all sites know each other, and until something is as it should be.
SECONDS_MAX = 120
LOOK_SECONDS = 0.005


class SiteMember(Member):
    """A server of a site, which is an ensemble of its own."""

    def __init__(self, site, number):
        super().__init__("stoa", number, free_ports(3))
        self.site = site
        self.site_port = free_port()
        self.is_alone = True

    def configure(self, members):
        self.is_alone = len(members) == 1
        if not self.is_alone:
            super().configure(members)

    def command(self):
        if self.is_alone:
            return Server.command(self)
        return [*super().command(), "--admin-port", str(self.admin_port)]

    def view(self, command="sites"):
        """What it knows of the sites, or answers to another command; without an answer an OSError."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/commands/{command}", timeout=2) as answer:
            return json.load(answer)

    def leads(self):
        with contextlib.suppress(OSError):
            return self.process.poll() is None and bool(self.view()["leads"])
        return False


class SiteEnsembles:
    """Sites with so many servers each, one if nothing is said. All are started on entering, or those that are named."""

    def __init__(self, sizes=None, policy=None, first=SITES):
        sizes = {**dict.fromkeys(SITES, 1), **(sizes or {})}
        self.first, self.policy = first, policy
        self.members = {site: [SiteMember(site, n + 1) for n in range(sizes[site])] for site in SITES}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-sites-"))
        # Ports of links' near ends, by who looks and at whom.
        self.doors = {
            (viewer, member): free_port()
            for viewer in SITES
            for site in SITES
            if viewer != site
            for member in self.members[site]
        }
        of_hub, others = [], []
        for (viewer, member), door in self.doors.items():
            (of_hub if HUB in (viewer, member.site) else others).append((door, member.site_port))
        self.hub_links, self.other_links = Proxy(of_hub), Proxy(others)

    def __enter__(self):
        try:
            self.configure()
            for links in (self.hub_links, self.other_links):
                self.open(links)
            for site in self.first:
                self.launch(site)
            for site in self.first:
                self.wait_for_site(site)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for member in self.servers():
            member.stop(signal.SIGKILL)
            shutil.rmtree(member.folder, ignore_errors=True)
        for links in (self.hub_links, self.other_links):
            if hasattr(links, "process"):
                links.process.send_signal(signal.SIGCONT)
                links.__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)

    def configure(self):
        command = [STOA, "certificate", "--to", self.folder, "--name", "127.0.0.1"]
        shown(command)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for site in SITES:
            for member in self.members[site]:
                member.flags = self.flags(member)
                member.configure(self.members[site])

    def flags(self, member):
        """What a server is told of the sites. It finds each other one at the near end of a link."""
        listed = []
        for site in SITES:
            ports = [self.doors.get((member.site, each), each.site_port) for each in self.members[site]]
            listed.append(f"{site}={'|'.join(f'127.0.0.1:{port}' for port in ports)}")
        flags = ["--site", member.site, "--sites", ",".join(listed), "--site-port", str(member.site_port)]
        flags += ["--site-bind", "127.0.0.1", "--super-digest", super_digest()]
        flags += ["--site-policy", self.policy] if self.policy else []
        for what, file in [("certificate", "server"), ("key", "server-key"), ("authority", "authority")]:
            flags += [f"--site-tls-{what}", self.folder / f"{file}.pem"]
        return flags

    def open(self, links):
        """Opens links, as long as they should be."""
        links.__enter__()
        for (viewer, member), door in self.doors.items():
            if (door, member.site_port) in links.links:
                links.set_one_way(door, one_way_ms(viewer, member.site))

    def launch(self, site):
        for member in self.members[site]:
            member.launch()

    def wait_for_site(self, site):
        """Waits until a site serves, and knows the hub if it is another one."""

        def is_there():
            for member in self.members[site]:
                servers.first_reply(member.port, "/")
            return site == HUB or self.is_connected(site)

        self.wait_until(is_there, f"{site} is there")

    def is_connected(self, site):
        """Whether the site's leader and the hub's are connected."""
        leader = self.leader(site)
        return leader is not None and any(each["is_hub"] and each["connected"] for each in leader.view()["sites"])

    def wait_until(self, holds, what, pause=LOOK_SECONDS):
        """Waits until something holds; an OSError means that it does not yet."""
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if holds():
                    return
            time.sleep(pause)
        raise RuntimeError(f"not within {SECONDS_MAX} s: {what}")

    def at(self, site):
        return self.members[site][0]

    def servers(self):
        return list(itertools.chain(*self.members.values()))

    def leader(self, site):
        """The server that leads a site; None while none does."""
        return next((member for member in self.members[site] if member.leads()), None)

    def sites(self, *words, at=HUB):
        """`stoa sites` as the super user at a site's leader."""
        member = self.leader(at)
        command = [STOA, "sites", "--server", f"127.0.0.1:{member.port}", "--admin", f"127.0.0.1:{member.admin_port}"]
        command = [str(part) for part in [*command, "--auth", f"digest:super:{PASSWORD}", *words]]
        shown(command)
        process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if process.returncode:
            raise RuntimeError(f"{command} ended with {process.returncode}: {process.stdout}")

    def pin(self, path, site):
        """Has a site hold the token of a znode, and of all below it; waits until that site itself knows it."""
        self.sites("pin", path, site)
        holds = lambda: self.leader(site).view(f"token?path={path}")["holder"] == site
        self.wait_until(holds, f"{site} holds the token of {path}")

    def unshipped(self, site, at=HUB):
        """What a site has not acknowledged, as the leader of another one knows: entries. None where nothing is known."""
        view = self.leader(at).view()
        (found,) = (each for each in view["sites"] if each["site"] == site)
        return found["unshipped_entries"]

    def cut_off_hub(self):
        """Nothing passes from or to the hub any more, and nobody is told: as when a cable is torn."""
        self.hub_links.process.send_signal(signal.SIGSTOP)

    def heal(self):
        self.hub_links.process.send_signal(signal.SIGCONT)

    def break_off_hub(self):
        """The same for good, with all that was on its way, and both ends are told."""
        self.hub_links.__exit__()

    def open_hub_again(self):
        """Links from and to the hub as before; whoever listens there was not heard meanwhile."""
        self.open(self.hub_links)


def super_digest():
    digest = hashlib.sha1(f"super:{PASSWORD}".encode()).digest()
    return f"super:{base64.b64encode(digest).decode()}"
