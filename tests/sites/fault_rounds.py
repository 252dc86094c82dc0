"""Three sites under load, as `stoa dev --sites` starts them: servers are killed, links are cut, all of it comes back, and
in the middle another site becomes the hub.

Clients at each site, and some that go from site to site, set the same few znodes, and note what they were told. Where
sites are divided over partitions, the znodes move between those all the time. In the end no version of a znode was given
twice, each has at least the last version that anybody was told of, and all sites have the same.
"""

import argparse
import collections
import contextlib
import logging
import os
import pathlib
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

SITES = ("virginia", "california", "frankfurt")
ZNODES = tuple(f"/z{number}" for number in range(6))
CLIENTS = 2
# Where operators say what lives on which partition, if there are several.
PLACES = "/zookeeper/partitions"
PARTITIONS_MAX = 3
# A client that goes to whichever site answers, with its session.
ANYWHERE = "anywhere"
# Sessions end so long after their clients; what waits for another site may take as long as that is away.
SESSION_SECONDS = 6
START_SECONDS = 60
ANSWER_SECONDS = 20
EQUAL_SECONDS = 60
PROMOTE_SECONDS = 40
# Links as long as those between data centres would make the rounds no better, and slower.
ROUND_TRIPS = "virginia california 6\nvirginia frankfurt 9\n"


def free_port(count):
    """The first of as many ports that nobody listens on."""
    for _ in range(1000):
        first = random.randrange(12_000, 30_000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise SystemExit("fault_rounds.py: no free ports")


class Sites:
    """The servers, and what is typed about them."""

    def __init__(self, stoa, folder, servers, partitions):
        self.servers = servers
        self.port = free_port(len(SITES) * servers)
        trips = folder / "round-trips.txt"
        trips.write_text(ROUND_TRIPS)
        command = [stoa, "dev", "--sites", ",".join(SITES), "--servers", str(servers)]
        command += ["--partitions", partitions] if partitions else []
        command += ["--round-trips", str(trips), "--port", str(self.port), "--data-dir", str(folder / "data")]
        self.stoa, self.log_path = stoa, folder / "log.txt"
        self.log = self.log_path.open("w")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self.log, stderr=subprocess.STDOUT, text=True
        )
        self.down, self.cut = set(), set()

    def hosts(self, site):
        if site == ANYWHERE:
            return ",".join(self.hosts(site) for site in SITES)
        first = self.port + SITES.index(site) * self.servers
        return ",".join(f"127.0.0.1:{port}" for port in range(first, first + self.servers))

    def wait(self):
        """Until all have been ready: what there is to ask is shown then."""
        deadline = time.monotonic() + START_SECONDS
        while "  admin " not in self.log_path.read_text():
            if time.monotonic() > deadline:
                sys.stdout.write(self.log_path.read_text()[-20_000:])
                raise SystemExit("fault_rounds.py: the servers are not ready")
            time.sleep(0.1)

    def type(self, words):
        print(f"    {words}", flush=True)
        try:
            self.process.stdin.write(words + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            sys.stdout.write(self.log_path.read_text()[-20_000:])
            raise

    def trouble(self, chance):
        """One thing goes wrong, or is mended."""
        if chance.random() < 0.6:
            server = chance.randrange(1, len(SITES) * self.servers + 1)
            self.type(f"start {server}" if server in self.down else f"kill {server}")
            self.down ^= {server}
        else:
            site = chance.choice(SITES[1:])
            self.type(f"heal {site}" if site in self.cut else f"cut {site}")
            self.cut ^= {site}

    def mend(self):
        # A server that is being killed at this moment is not down yet, and cannot be started.
        time.sleep(1)
        for server in sorted(self.down):
            self.type(f"start {server}")
        for site in sorted(self.cut):
            self.type(f"heal {site}")
        self.down, self.cut = set(), set()

    def move_hub(self, site):
        """Another site becomes the hub, while all are there. Returns what is wrong."""
        first = SITES.index(site) * self.servers
        print(f"    {site} becomes the hub", flush=True)
        deadline, why = time.monotonic() + PROMOTE_SECONDS, "its servers have never been ready"
        while True:
            # Where others need the machine the servers may not be ready yet.
            said = self.log_path.read_text()
            admins = re.findall(r"http://(127\.0\.0\.1:\d+)/commands", said.split("  admin ")[-1])
            # The one that leads its site says more than the others.
            for admin in admins[first : first + self.servers]:
                asked = [self.stoa, "sites", "promote", "--admin", admin]
                done = subprocess.run(asked, capture_output=True, text=True, timeout=2 * PROMOTE_SECONDS, check=False)
                if done.returncode == 0 or "is the hub already" in done.stderr:
                    return []
                why = f"{done.stdout}{done.stderr}"
            if time.monotonic() > deadline:
                return [f"{site} does not become the hub: {why}"]
            time.sleep(0.5)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(START_SECONDS)
        if self.process.poll() is None:
            self.process.kill()
        self.log.close()


class Told:
    """What clients were told: each version of each znode, and who has set it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.versions = collections.defaultdict(dict)
        self.complaints = []
        self.answers = collections.Counter()

    def note(self, site, path, stat, value):
        with self.lock:
            version = (stat.czxid, stat.version)
            if version in self.versions[path]:
                self.complaints.append(f"{path} got version {version} twice, at {site} by {value}")
            self.versions[path][version] = value
            self.answers[site] += 1


class Client(threading.Thread):
    """Sets znodes at a site, one after the other, for as long as it may."""

    def __init__(self, sites, site, seed, told):
        super().__init__(daemon=True)
        self.hosts, self.site, self.told = sites.hosts(site), site, told
        self.chance = random.Random(seed)
        self.stopping = threading.Event()
        self.count = 0

    def run(self):
        while not self.stopping.is_set():
            client = KazooClient(hosts=self.hosts, timeout=SESSION_SECONDS)
            # What becomes of a write whose answer is lost nobody knows, so it is not noted.
            with contextlib.suppress(Exception):
                client.start(timeout=SESSION_SECONDS)
                while not self.stopping.is_set():
                    self.write(client)
            with contextlib.suppress(Exception):
                client.stop()
                client.close()
            time.sleep(0.1)

    def write(self, client):
        self.count += 1
        path, value = self.chance.choice(ZNODES), f"{self.site} {self.name} {self.count}"
        try:
            stat = client.set_async(path, value.encode()).get(timeout=ANSWER_SECONDS)
            self.told.note(self.site, path, stat, value)
        except NoNodeError:
            with contextlib.suppress(NodeExistsError):
                client.create(path, b"")


class Mover(Client):
    """Says again and again on which partition each znode is to live, at each site that has that many."""

    def write(self, client):
        lines = [f"pin {path} {self.chance.randrange(PARTITIONS_MAX)}\n" for path in ZNODES]
        said = "".join(self.chance.sample(lines, len(lines) // 2)).encode()
        try:
            client.set_async(PLACES, said).get(timeout=ANSWER_SECONDS)
        except NoNodeError:
            with contextlib.suppress(NodeExistsError):
                client.create(PLACES, said)
        self.stopping.wait(self.chance.uniform(0.2, 1))


def state(sites):
    """What each site has: of each znode its value, and when it was created and how often set."""
    found = {}
    for site in SITES:
        client = KazooClient(hosts=sites.hosts(site), timeout=SESSION_SECONDS)
        client.start(timeout=START_SECONDS)
        try:
            znodes = {}
            for name in client.get_children("/"):
                if name != "zookeeper":
                    value, stat = client.get(f"/{name}")
                    znodes[f"/{name}"] = (value.decode(), stat.czxid, stat.mzxid, stat.version)
            found[site] = znodes
        finally:
            client.stop()
            client.close()
    return found


def differences(sites, told):
    """What is wrong in the end."""
    deadline = time.monotonic() + EQUAL_SECONDS
    while True:
        try:
            found = state(sites)
            if all(found[site] == found[SITES[0]] for site in SITES):
                break
            why = f"the sites have different states: {found}"
        except Exception as error:
            why = f"a site cannot be read: {error!r}"
        if time.monotonic() > deadline:
            return [why]
        time.sleep(0.5)
    complaints = list(told.complaints)
    for path, versions in told.versions.items():
        _, czxid, _, version = found[SITES[0]].get(path, ("", 0, 0, -1))
        lost = [known for known in versions if known[0] != czxid or known[1] > version]
        if lost:
            complaints.append(f"{path} has version {version} of {czxid:#x}; told was also {sorted(lost)[:5]}")
    return complaints


def play(stoa, seed, troubles, servers, partitions):
    """One life of three sites. Returns what is wrong in the end, and how much was answered."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="stoa-sites-") as folder:
        sites, told = Sites(stoa, pathlib.Path(folder), servers, partitions), Told()
        try:
            seeds = [(site, seed * 100 + number) for number in range(CLIENTS) for site in (*SITES, ANYWHERE)]
            clients = [Client(sites, site, of, told) for site, of in seeds]
            if partitions:
                clients.append(Mover(sites, chance.choice((*SITES, ANYWHERE)), seed, told))
            for client in clients:
                client.start()
            sites.wait()
            moved = []
            for number in range(troubles):
                if number == troubles // 2:
                    sites.mend()
                    moved = sites.move_hub(chance.choice(SITES))
                time.sleep(chance.uniform(0.3, 2.5))
                sites.trouble(chance)
            sites.mend()
            time.sleep(3)
            for client in clients:
                client.stopping.set()
            for client in clients:
                client.join(ANSWER_SECONDS + 2 * SESSION_SECONDS)
            complaints = moved + differences(sites, told)
        finally:
            sites.end()
        if complaints:
            sys.stdout.write((pathlib.Path(folder) / "log.txt").read_text()[-20_000:])
        return complaints, told.answers


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="how many lives")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="that of the first")
    parser.add_argument("--troubles", type=int, default=12, help="how much goes wrong in each")
    parser.add_argument("--partitions", help="how many each site has, or one number for each, such as 2,3,1")
    options = parser.parse_args()
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    # The server's command, of which only the program counts here.
    stoa = shlex.split(os.environ["SERVER_COMMAND"])[0]
    passed = 0
    for at in range(options.rounds):
        seed = options.seed + at
        servers = 1 if seed % 2 else 3
        print(f"seed {seed}: {servers} servers a site", flush=True)
        complaints, answers = play(stoa, seed, options.troubles, servers, options.partitions)
        for complaint in complaints:
            print(f"    {complaint}")
        passed += not complaints
        print(f"    {dict(answers)} writes were answered", flush=True)
    print(f"{passed} passed, {options.rounds - passed} failed")
    return 0 if passed == options.rounds else 1


if __name__ == "__main__":
    sys.exit(main())
