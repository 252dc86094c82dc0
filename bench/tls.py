#!/usr/bin/env python3
"""TLS of clients, beside the same in the clear and beside Apache ZooKeeper with TLS.

Two things: what a request costs the server, and how long others wait while very many sessions come back at once. The
second is of Stoa alone: of 10,000 sessions with TLS, ZooKeeper loses the first before the last is open.
Results go to bench/results/<date>-tls.{json,md}.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import measure
import report
import servers
from servers import STOA, Server, shown

PARTS = ["cost", "return"]
SHAPE = ["--sessions", 32, "--pipeline", 64, "--payload", 100]
# What is asked of the peer's key store, trust store and protocols; the rest is its default.
PEER = """
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.type=PEM
ssl.trustStore.type=PEM
ssl.enabledProtocols=TLSv1.3
ssl.clientAuth=need
"""
PROBE_PRIORITY = 20
# As long as sessions may last while others are opened.
SESSION_SECONDS = 60


class Files:
    """An authority, and certificates of it for the servers and for a client."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        for whom in [["--name", "localhost"], ["--client", "client"]]:
            command = [STOA, "certificate", "--to", self.folder, *whom]
            shown(command)
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        both = (self.folder / "server-key.pem").read_text() + (self.folder / "server.pem").read_text()
        (self.folder / "both.pem").write_text(both)

    def of_server(self):
        return [
            f"--tls-certificate={self.folder / 'server.pem'}", f"--tls-key={self.folder / 'server-key.pem'}",
            f"--tls-authority={self.folder / 'authority.pem'}", "--tls-protocols=TLSv1.3",
        ]

    def of_peer(self):
        stores = {"ssl.keyStore.location": "both.pem", "ssl.trustStore.location": "authority.pem"}
        return PEER + "".join(f"{key}={self.folder / name}\n" for key, name in stores.items())

    def of_client(self):
        return [
            "--tls-authority", self.folder / "authority.pem", "--tls-certificate", self.folder / "client.pem",
            "--tls-key", self.folder / "client-key.pem",
        ]


class Secured(Server):
    """A server with a port in the clear and one with TLS."""

    def __init__(self, kind, core, files, heap=None):
        self.files = files
        self.secure_port = servers.free_port()
        super().__init__(kind, core, heap, [f"--secure-port={self.secure_port}", *files.of_server()])

    def command(self):
        command = super().command()
        if self.kind != "stoa":
            config = self.folder / "zoo.cfg"
            secured = f"{self.files.of_peer()}secureClientPort={self.secure_port}\n"
            config.write_text(config.read_text() + secured)
        return command


def missing(gaps, begin, end):
    """How long of that time the probe's own core did not run it, seconds."""
    return sum(max(0, min(end, at + lasted) - max(begin, at)) for at, lasted in gaps)


class Run(measure.Samples):
    def __init__(self, args, files):
        super().__init__()
        self.args = args
        self.files = files
        self.turns = args.alternations or (1 if args.quick else 5)
        self.warmup_jvm = 2 if args.quick else 20
        self.duration = 0.7 if args.quick else 5
        self.sessions = 300 if args.quick else 10_000

    def server(self, kind, heap=None):
        return Secured(kind, self.args.server_core, self.files, heap)

    def command(self, server, is_tls, *options):
        """The command line of the generator."""
        port = server.secure_port if is_tls else server.port
        tls = self.files.of_client() if is_tls else []
        return measure.generator(self.args.load_core, *options, "--server", f"127.0.0.1:{port}", "--json", *tls)

    def generate(self, server, is_tls, *options):
        return measure.reported(self.command(server, is_tls, *options, "--server-pid", server.process.pid))

    def cost(self):
        """CPU time and throughput, one load right after the other on either server."""
        with self.server("zookeeper") as peer, self.server("stoa") as ours:
            for is_tls in [False, True]:
                mix = ["--op", "mixed", "--mix", "get=50,set=50", "--duration", self.warmup_jvm / 2]
                self.generate(peer, is_tls, *mix)
            times = ["--warmup", 0.3 if self.args.quick else 1.5, "--duration", self.duration]
            for op in ["get", "set"]:
                for server, other in [(peer, ours), (ours, peer)]:
                    other.pause()
                    for is_tls in [False, True]:
                        result = self.generate(server, is_tls, "--op", op, *SHAPE, *times)
                        name = f"{op}, {'TLS' if is_tls else 'clear'}"
                        self.note(f"{name}, cpu us", server.kind, result["server"]["cpu_us_per_operation"])
                        self.note(f"{name}, ops/s", server.kind, result["throughput"])
                    other.resume()

    def idle(self):
        """Memory of sessions that do nothing."""
        for is_tls in [False, True]:
            with self.server("stoa") as server:
                few = ["--op", "idle", "--sessions", 50, "--warmup", 0, "--duration", 1]
                self.generate(server, is_tls, *few)
                before = server.rss_mib()
                seconds = ["--warmup", 1, "--duration", 1] if self.args.quick else ["--warmup", 10, "--duration", 10]
                result = self.generate(server, is_tls, "--op", "idle", *self.many(), *seconds)
                grown = result["server"]["rss_kib_after"] - before * 1024
                self.note(f"idle session, {'TLS' if is_tls else 'clear'}, KiB", server.kind, grown / self.sessions)

    def come_back(self, is_tls):
        """Sessions come back while another one is asked something once a millisecond, and when nothing goes on."""
        name = "TLS" if is_tls else "clear"
        with self.server("stoa") as server:
            with self.probing(server) as probe:
                time.sleep(1)
                result = self.back(server, is_tls)
                told = json.loads(probe.communicate()[0])
            waits, gaps = told["waits"], told["gaps"]
            began, end = result["broken_unix"], result["over_unix"]
            if end > waits[-1][0]:
                raise RuntimeError(f"sessions took {result['seconds']} s: give more --probe-seconds")
            during = [(asked, waited) for asked, waited in waits if asked + waited > began and asked < end]
            meanwhile = [waited for _, waited in during]
            of_server = [waited - missing(gaps, asked, asked + waited) for asked, waited in during]
            # Sessions are closed behind that, 40 at a time; in the last second all are gone.
            quiet = [waited for asked, waited in waits if asked > waits[-1][0] - 1]
            self.note(f"nothing goes on, {name}, longest wait ms", server.kind, max(quiet) * 1e3)
            self.note(f"return, {name}, longest wait of others ms", server.kind, max(meanwhile) * 1e3)
            self.note(f"return, {name}, longest wait for the server ms", server.kind, max(of_server) * 1e3)
            p99 = sorted(meanwhile)[len(meanwhile) * 99 // 100]
            self.note(f"return, {name}, p99 of others ms", server.kind, p99 * 1e3)
            everything = [waited for _, waited in waits]
            self.note(f"opened, back and closed, {name}, longest wait of others ms", server.kind, max(everything) * 1e3)
            self.note(f"return, {name}, s", server.kind, result["seconds"])
            self.note(f"return, {name}, sessions lost or missing", server.kind, result["lost"] + result["missing"])
            self.note(f"return, {name}, connections that failed", server.kind, result["retries"])

    def back(self, server, is_tls):
        return measure.reported(self.command(server, is_tls, "return", *self.many(), "--after", 1))

    def many(self):
        return ["--sessions", self.sessions, "--timeout", SESSION_SECONDS]

    def probing(self, server):
        # What it waits for is the server, not for room on the core that it shares with the sessions.
        first = ["chrt", "--fifo", str(PROBE_PRIORITY)] if os.geteuid() == 0 else []
        command = [
            *first, "taskset", "--cpu-list", str(self.args.load_core), sys.executable,
            str(pathlib.Path(__file__).with_name("probe.py")), str(server.port), str(self.args.probe_seconds),
        ]
        shown(command)
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=servers.prepare)

    def all(self):
        for turn in range(self.turns):
            print(f"== turn {turn + 1} of {self.turns}", flush=True)
            if "cost" in self.args.parts:
                self.cost()
            if "return" in self.args.parts:
                self.idle()
                for is_tls in [False, True]:
                    self.come_back(is_tls)


def table(medians):
    """All figures, with how the servers compare and what TLS costs."""
    lines = ["| | ZooKeeper | Stoa | Stoa / ZooKeeper |", "| --- | ---: | ---: | ---: |"]
    for name, by_kind in medians.items():
        peer, ours = by_kind.get("zookeeper"), by_kind["stoa"]
        ratio = report.number(ours / peer) if peer else ""
        theirs = "" if peer is None else report.number(peer)
        lines.append(f"| {name} | {theirs} | {report.number(ours)} | {ratio} |")
    for op in ["get", "set"]:
        tls, clear = (medians.get(f"{op}, {port}, cpu us") for port in ["TLS", "clear"])
        if tls:
            times = [report.number(tls[kind] / clear[kind]) for kind in ["zookeeper", "stoa"]]
            lines.append(f"| {op}: CPU with TLS over that in the clear | {times[0]} | {times[1]} | |")
    return "\n".join(lines)


def main():
    parser = measure.arguments(__doc__.splitlines()[0])
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--parts", type=measure.some_of(PARTS), default=PARTS)
    parser.add_argument("--probe-seconds", type=int, default=40, help="while sessions come back")
    args = parser.parse_args()
    measure.prepare(args)
    folder = tempfile.mkdtemp(prefix="bench-tls-")
    try:
        run = Run(args, Files(folder))
        machine = measure.measured_machine(run.all)
    finally:
        shutil.rmtree(folder)
    medians = run.medians()
    print(table(medians))
    if args.quick:
        return
    stem = measure.stem(args, "-tls")
    text = f"""# TLS of clients, {stem.name}

Medians of {run.turns} turns of `bench/tls.py`. The server has core {args.server_core}, the generator core
{args.load_core}. TLS 1.3, certificates of `stoa certificate` (ECDSA, P-256) on either side. Loads are gets and sets of
100 bytes by 32 sessions with 64 requests outstanding each. In *return* the connections of {run.sessions} sessions break
and all of them come back at once, while another session, in the clear, asks for something once a millisecond.

{table(medians)}
"""
    facts = {"machine": machine, "turns": run.turns, "nice": args.nice}
    report.write(stem, text, facts, run.samples, medians, servers.commands)
    print(f"written: {stem}.md")


if __name__ == "__main__":
    main()
