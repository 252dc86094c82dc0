"""What every run of measurements needs: the generator, the samples, the facts about the machine."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys

import servers
from servers import ROOT, STOA, peer_version, shown


class Samples:
    """Figures by name and kind of server, in the order in which they were measured."""

    def __init__(self):
        self.samples = {}

    def note(self, name, kind, value):
        self.samples.setdefault(name, {}).setdefault(kind, []).append(value)
        print(f"  {name} [{kind}]: {value:.4g}", flush=True)

    def medians(self):
        return {
            name: {kind: statistics.median(values) for kind, values in by_kind.items()}
            for name, by_kind in self.samples.items()
        }


def generator(core, *options):
    """The command line of the generator; without a core it runs on any."""
    return [str(part) for part in servers.pinned(core) + [STOA, "bench", *options]]


def generate(core, targets, *options):
    """Runs the generator against some servers, which get its sessions in turn; returns its report."""
    command = generator(core, *options)
    command += ["--server", addresses(targets)]
    command += ["--server-pid", ",".join(str(target.process.pid) for target in targets), "--json"]
    return reported(command)


def reported(command):
    """Runs a command line of the generator; returns its report. Nothing may have gone wrong."""
    shown(command)
    process = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, preexec_fn=servers.prepare
    )
    result = json.loads(process.stdout)
    if result.get("errors"):
        raise RuntimeError(f"{command} met errors: {result['errors']}")
    return result


def addresses(targets):
    return ",".join(f"{target.host}:{target.port}" for target in targets)


def cpu_times():
    """Time of all cores since the machine started, in ticks: all of it, and what the host took away."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields), fields[7]


def machine():
    cpu = pathlib.Path("/proc/cpuinfo").read_text()
    models = [line.split(":", 1)[1].strip() for line in cpu.splitlines() if line.startswith("model name")]
    memory = pathlib.Path("/proc/meminfo").read_text().split()[1]
    java = subprocess.run(["java", "-version"], check=True, stderr=subprocess.PIPE, text=True).stderr
    commit = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return {
        "cpu": f"{len(models)} x {models[0]}" if models else platform.machine(),
        "memory_gib": round(int(memory) / 1024 / 1024, 1),
        "kernel": platform.release(),
        "java": java.splitlines()[0],
        "zookeeper": peer_version(),
        "stoa": subprocess.run(commit, check=True, stdout=subprocess.PIPE, text=True).stdout.strip(),
        **priority(),
    }


def priority():
    """Whether what is measured goes before all else on the machine; nothing where it is as usual."""
    is_real_time = os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
    return {"priority": "real time: before all else on the machine"} if is_real_time else {}


def watched_machine():
    """A function that returns the facts about the machine, with what else was going on since now."""
    load = pathlib.Path("/proc/loadavg").read_text().split()[0]
    began = cpu_times()

    def facts():
        ticks, stolen = (after - before for after, before in zip(cpu_times(), began))
        return {**machine(), "load at the start": load, "stolen by the host": f"{stolen / max(ticks, 1):.1%}"}

    return facts


def measured_machine(work):
    """Does the work; returns the facts about the machine, with what else was going on meanwhile."""
    facts = watched_machine()
    work()
    return facts()


def arguments(description, alternates=True):
    """A parser with the options that all runs have, and how often servers take turns, if they do."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="only check that everything runs")
    if alternates:
        parser.add_argument("--alternations", type=int, help="turns of each server (5)")
    parser.add_argument("--nice", type=int, default=0, help="nice level of servers and generator")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results")
    return parser


def some_of(known):
    """The type of an option that takes some of these words, with commas between."""

    def parse(text):
        chosen = text.split(",")
        unknown = [word for word in chosen if word not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{','.join(unknown)}: there are only {','.join(known)}")
        return [word for word in known if word in chosen]

    return parse


def prepare(args):
    """Sees to it that the servers are stopped however the run ends, and builds them."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    servers.nice = args.nice
    servers.build()


def stem(args, suffix=""):
    """Where the results go, without the ending."""
    args.results.mkdir(parents=True, exist_ok=True)
    return args.results / (datetime.date.today().isoformat() + suffix)
