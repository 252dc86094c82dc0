#!/usr/bin/env python3
"""Starts an ensemble of three servers on loopback and becomes one of them.

`launch.py K STOA serve ... --port P --data-dir D` takes the place of `STOA serve ... --port P --data-dir D`
in the suites. Server K has the client port P; the other two have ports of their own, which are kept in D
over a restart, with everybody's data. This process becomes server K, so what a suite does to it, and what
it prints, is that server's. The system ends the others with it, however that happens.

`launch.py site:K ...` does the same with three sites that are one server each, and have one tree; site 1 is the hub.
`launch.py site:K:L,M,N ...` gives them that many partitions.

`launch.py forest:K ...` starts fifteen servers, of which appends reach most by way of others.

`launch.py reader:K ...` starts the ensemble of three and becomes a reader below it, with K - 1 others in between.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time

HOST = "127.0.0.1"
SERVERS = (1, 2, 3)
FOREST = tuple(range(1, 16))
# Below those that the system gives to connections, so that none is taken while its server is down.
PORTS = range(12_000, 30_000)
# The servers are on one machine, and a suite starts many ensembles.
TIMES = ["--heartbeat", "50ms", "--election-timeout", "400ms"]
# Fifteen of them are many for a small machine, and a reader whose parent is silent for so long goes to another one.
FOREST_TIMES = ["--heartbeat", "100ms", "--election-timeout", "1s"]
DELAY_SECONDS = 0.1
# A file for each port that an ensemble of these has.
CLAIMS = pathlib.Path(tempfile.gettempdir()) / "stoa-ports"


def claim(port):
    """Whether no other ensemble has this port: one that starts at the same moment does not listen on it yet. It is
    this one's until its last server ends."""
    CLAIMS.mkdir(exist_ok=True)
    file = os.open(CLAIMS / str(port), os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return False
    os.set_inheritable(file, True)
    return True


def free_ports(count):
    """Different ports that nobody listens on, nor is about to."""
    ports = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(ports) == count:
            return ports
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind((HOST, port))
            if claim(port):
                ports.append(port)
    raise SystemExit(f"launch.py: there are no {count} free ports in {PORTS}; end what listens on them")


def hold(folder):
    """Waits until no process of the ensemble before this one is left: they all hold the file that is locked
    here. Whoever kills a server does not wait for the others."""
    file = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o644)
    fcntl.flock(file, fcntl.LOCK_EX)
    os.set_inheritable(file, True)
    return file


def kept_ports(folder, servers):
    """The peer port of each server, then its client port, which only those that are not talked to use."""
    file = folder / "ports"
    with contextlib.suppress(FileNotFoundError):
        ports = [int(port) for port in file.read_text().split()]
        # They go on being this one's, unless somebody came in between, who then says so.
        for port in ports:
            claim(port)
        return ports
    ports = free_ports(2 * len(servers))
    file.write_text(" ".join(map(str, ports)))
    return ports


def option(words, name):
    """The value after an option, which is taken out of the words."""
    if name not in words[:-1]:
        raise SystemExit(f"launch.py: {name} and its value are missing")
    index = words.index(name)
    _, value = words[index : index + 2]
    del words[index : index + 2]
    return value


def site_options(stoa, folder, hub_port):
    """The options of each of three sites. Only the hub is connected to; its port is the first that is kept."""
    keys = folder / "keys"
    if not keys.exists():
        made = subprocess.run([stoa, "certificate", "--to", keys, "--name", HOST], capture_output=True, text=True)
        if made.returncode != 0:
            raise SystemExit(f"launch.py: no certificates for sites: {made.stderr}")
    sites = ",".join(f"site-{n}={HOST}:{hub_port}" for n in SERVERS)
    tls = ["--site-tls-certificate", str(keys / "server.pem"), "--site-tls-key", str(keys / "server-key.pem")]
    tls += ["--site-tls-authority", str(keys / "authority.pem"), "--site-bind", HOST]

    def of(server):
        port = ["--site-port", str(hub_port)] if server == SERVERS[0] else []
        return ["--sites", sites, "--site", f"site-{server}", *tls, *port]

    return of


def be_reader(distance, words):
    """Starts the ensemble and what is in between, and becomes the reader at the end of the chain."""
    port, folder = option(words, "--port"), pathlib.Path(option(words, "--data-dir"))
    folder.mkdir(parents=True, exist_ok=True)
    lock = hold(folder)
    os.environ["STOA_PEER_SECRET"] = hashlib.sha256(bytes(folder.resolve())).hexdigest()
    between = [f"reader-{n}" for n in range(1, distance)]
    names = [*map(str, SERVERS), *between]
    ports = kept_ports(folder, names)
    peer_ports, client_ports = dict(zip(names, ports)), dict(zip(names, ports[len(names) :]))
    ensemble = ",".join(f"{n}={HOST}:{peer_ports[n]};{HOST}:{client_ports[n]}" for n in names[: len(SERVERS)])
    parents = ",".join(f"{HOST}:{peer_ports[n]}" for n in names[: len(SERVERS)])
    common = ["--peer-bind", HOST, "--max-readers", "10", *FOREST_TIMES, "--parent", str(os.getpid())]
    commands = [[*common, "--servers", ensemble, "--server-id", str(n)] for n in SERVERS]
    for name in between:
        own = ["--port", str(client_ports[name]), "--reader-port", str(peer_ports[name])]
        commands.append([*common, "--reader-of", parents, *own])
        parents = f"{HOST}:{peer_ports[name]}"
    for name, command in zip(names, commands):
        if os.fork() == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            os.execv(words[0], [*words, *command, "--data-dir", str(folder / name)])
    own = ["--reader-of", parents, "--port", port, *FOREST_TIMES]
    os.execv(words[0], [*words, *own, "--data-dir", str(folder / "reader")])


def main():
    number, *words = sys.argv[1:]
    if number.startswith("reader:"):
        be_reader(int(number.removeprefix("reader:")), words)
    are_sites, servers = number.startswith("site:"), FOREST if number.startswith("forest:") else SERVERS
    number, _, partitions = number.removeprefix("site:").removeprefix("forest:").partition(":")
    number, partitions = int(number), dict(zip(servers, partitions.split(","))) if partitions else {}
    if number not in servers:
        raise SystemExit(f"launch.py: the server to talk to is one of {servers}, not {number}")
    port, folder = option(words, "--port"), pathlib.Path(option(words, "--data-dir"))
    folder.mkdir(parents=True, exist_ok=True)
    lock = hold(folder)
    # A server of another ensemble that has come to one of these ports is none of this one.
    os.environ["STOA_PEER_SECRET"] = hashlib.sha256(bytes(folder.resolve())).hexdigest()
    ports = kept_ports(folder, servers)
    peer_ports = dict(zip(servers, ports))
    client_ports = dict(zip(servers, ports[len(servers) :])) | {number: port}
    ensemble = ",".join(f"{n}={HOST}:{peer_ports[n]};{HOST}:{client_ports[n]}" for n in servers)

    of_site = site_options(words[0], folder, peer_ports[SERVERS[0]]) if are_sites else None

    def command(server):
        times = FOREST_TIMES if servers is FOREST else TIMES
        own = ["--servers", ensemble, "--server-id", str(server), "--peer-bind", HOST, *times]
        if of_site is not None:
            own = ["--port", str(client_ports[server]), *of_site(server)]
            if server in partitions:
                own += ["--partitions", partitions[server]]
        return [*words, *own, "--data-dir", str(folder / str(server))]

    # Who comes first is elected, more often than not: this one has to lead now and then, too.
    delay = random.choice((0, DELAY_SECONDS))
    parent = str(os.getpid())
    for server in servers:
        if server != number and os.fork() == 0:
            time.sleep(delay)
            # What they log stands among what server K logs, so that a suite that shows it shows all.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            os.execv(words[0], [*command(server), "--parent", parent])
    os.execv(words[0], command(number))


if __name__ == "__main__":
    main()
