#!/usr/bin/env python3
"""Compares Stoa with Apache ZooKeeper: same machine, same run, in turns, same durability.

The server has one core to itself and the load generator another. Every figure is the median over
the alternations. Results go to bench/results/<date>.{json,md} with plots beside them.
"""

import json
import subprocess
import sys
import time
import urllib.request

import measure
import report
import servers
from servers import EchoServer, Server, shown

BIG_HEAP = ["-Xms1g", "-Xmx2g"]


class Size:
    """How long and how large everything is."""

    def __init__(self, quick):
        self.warmup_jvm = 2 if quick else 20
        self.warmup = 0.3 if quick else 1.5
        self.duration = 0.7 if quick else 5
        self.alternations = 1 if quick else 5
        self.alternations_big = 1 if quick else 5
        self.znodes = 20_000 if quick else 1_000_000
        self.idle_sessions = 200 if quick else 10_000
        self.idle_seconds = 1 if quick else 10


class Run(measure.Samples):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.size = Size(args.quick)
        if args.alternations:
            self.size.alternations = self.size.alternations_big = args.alternations

    def bench(self, server, *options):
        """Runs the generator; returns its report."""
        return measure.generate(self.args.load_core, [server], *options)

    def load(self, server, op, payload, sessions, pipeline, *options):
        shape = ["--op", op, "--payload", payload, "--sessions", sessions, "--pipeline", pipeline]
        times = ["--warmup", self.size.warmup, "--duration", self.size.duration]
        return self.bench(server, *shape, *times, *options)

    def server(self, kind, heap=None):
        return Server(kind, self.args.server_core, heap)

    def speed(self):
        """CPU, throughput and latency. Load by load, one server right after the other: what the
        machine and its disk do to one they do to the other."""
        with self.server("zookeeper") as peer, self.server("stoa") as ours:
            pair = [peer, ours]
            ours.pause()
            for op in ["mixed", "create-delete"]:
                seconds = self.size.warmup_jvm / 2
                self.bench(peer, "--op", op, "--mix", "get=50,set=50", "--duration", seconds)
            peer.pause()
            best = {}
            for op, payload in [("get", 100), ("set", 100), ("create-delete", 1024)]:
                for kind, result in self.turns(pair, op, payload, 32, 64):
                    self.note(f"{op} cpu us", kind, result["server"]["cpu_us_per_operation"])
                    self.note(f"{op} ops/s", kind, result["throughput"])
                    # The peer comes first.
                    best.setdefault(op, int(result["throughput"]))
                if op == "get":
                    self.echo(result["request_bytes"], result["reply_bytes"])
            for op in ["get", "set"]:
                for kind, result in self.turns(pair, op, 100, 50, 1):
                    self.note(f"{op} ops/s, 50 x 1", kind, result["throughput"])
                for kind, result in self.turns(pair, op, 100, 1, 1):
                    self.note(f"{op} p50 us, 1 x 1", kind, result["latency_us"][op]["p50"])
                for kind, result in self.turns(pair, op, 100, 32, 64, "--rate", best[op]):
                    self.note(f"{op} p99 us at the peer's best", kind, result["latency_us"][op]["p99"])

    def turns(self, paused, *load):
        """The same load on each of some paused servers, one at a time."""
        for server in paused:
            server.resume()
            yield server.kind, self.load(server, *load)
            server.pause()

    def echo(self, request_bytes, reply_bytes):
        """The limit: an echo server with frames of the same sizes."""
        length_bytes = 4
        with EchoServer(self.args.server_core, round(reply_bytes) - length_bytes) as server:
            result = self.load(server, "echo", round(request_bytes) - length_bytes, 32, 64)
            self.note("get cpu us", "echo", result["server"]["cpu_us_per_operation"])

    def big(self, kind):
        """Memory, restart and snapshots with many znodes."""
        with self.server(kind, BIG_HEAP) as server:
            result = self.bench(server, "load", "--znodes", self.size.znodes, "--payload", 100)
            self.note("znodes loaded/s", kind, result["throughput"])
            time.sleep(2)
            self.note("rss MiB with the znodes", kind, server.rss_mib())
            last = self.size.znodes - 1
            path = f"/bench/{last // 1000:07}/{last % 1000:03}"
            self.note("restart s", kind, server.restart_after_crash(path))
            if kind == "stoa":
                self.snapshot(server)

    def snapshot(self, server):
        """Probes once a millisecond while the server takes a snapshot."""
        seconds = 2 if self.args.quick else 12
        options = ["--sessions", 0, "--probe", "--prepared", "--znodes", self.size.znodes]
        options += ["--warmup", 0.5, "--duration", seconds, "--server", measure.addresses([server]), "--json"]
        command = measure.generator(self.args.load_core, *options)
        shown(command)
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, preexec_fn=servers.prepare
        ) as probe:
            time.sleep(1)
            url = f"http://127.0.0.1:{server.admin_port}/commands/snapshot"
            shown(["curl", "--request", "POST", url])
            start = time.monotonic()
            with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=60) as answer:
                answer.read()
            taken = time.monotonic() - start
            result = json.loads(probe.communicate()[0])
        if taken > seconds - 1:
            raise RuntimeError(f"the snapshot took {taken:.1f} s, longer than the probe")
        self.note("snapshot s", "stoa", taken)
        self.note("longest stall ms", "stoa", result["latency_us"]["probe"]["max"] / 1000)

    def idle(self, kind):
        with self.server(kind) as server:
            # A first round, so that what is only needed once is there before the measurement.
            few = ["--op", "idle", "--sessions", 50, "--timeout", 30, "--warmup", 0, "--duration", 2]
            self.bench(server, *few)
            before = server.rss_mib()
            sessions = ["--op", "idle", "--sessions", self.size.idle_sessions, "--timeout", 30]
            times = ["--warmup", self.size.idle_seconds, "--duration", self.size.idle_seconds]
            result = self.bench(server, *sessions, *times)
            with_sessions = result["server"]["rss_kib_after"] / 1024
            self.note("rss MiB with idle sessions", kind, with_sessions)
            self.note("rss MiB of idle sessions", kind, with_sessions - before)

    def all(self):
        for turn in range(self.size.alternations):
            print(f"== speed, turn {turn + 1} of {self.size.alternations}", flush=True)
            self.speed()
        for turn in range(self.size.alternations_big):
            print(f"== size, turn {turn + 1} of {self.size.alternations_big}", flush=True)
            for kind in ["zookeeper", "stoa"]:
                self.big(kind)
                self.idle(kind)


def main():
    parser = measure.arguments(__doc__.splitlines()[0])
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="fail when a target is missed")
    args = parser.parse_args()
    measure.prepare(args)
    run = Run(args)
    machine = measure.measured_machine(run.all)
    medians = run.medians()
    rows = report.rows(medians)
    print(report.table(rows))
    if args.quick:
        return
    facts = {
        "machine": machine,
        "alternations": run.size.alternations,
        "warmup_jvm_s": run.size.warmup_jvm,
        "nice": args.nice,
    }
    stem = measure.stem(args)
    report.plot(rows, stem.with_name(stem.name + "-ratios.svg"))
    text = f"""# Stoa beside Apache ZooKeeper, {stem.name}

Medians of {run.size.alternations} alternations on one machine in one run of `bench/run.py`. Both servers sync every write before they answer it. The server has one core, the generator the other; both run at nice level {args.nice}. The JVM runs with its defaults, after {run.size.warmup_jvm} s of warm-up; with `-Xms1g -Xmx2g` where a million znodes are held. Restart means after `kill -9`. The other server is Apache ZooKeeper, in the last row the echo server with frames of the same sizes.

{report.table(rows)}

![ratios]({stem.name}-ratios.svg)
"""
    report.write(stem, text, facts, run.samples, medians, servers.commands)
    print(f"written: {stem}.md")
    if args.check and not all(row.is_met for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
