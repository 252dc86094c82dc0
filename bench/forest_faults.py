#!/usr/bin/env python3
"""How long no write is answered when a server fails that passes appends on to others.

`stoa dev` starts an ensemble with a forest on this machine, with its data in memory (/dev/shm). One client writes, one write
after the other, through a server that goes on; a root or an interior is killed, or stands still (SIGSTOP), and comes back.

Results go to bench/results/<date>-forest-faults-<servers>.md.
"""

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request

import measure
from servers import STOA, Session, free_ports, prepare, shown

SET = 5
PORT_MAX = 21_000
READY_SECONDS = 120
# Before somebody fails, after that, and until the server is there again.
BEFORE_SECONDS, AFTER_SECONDS, BACK_SECONDS = 1, 2, 1.5


class Ensemble:
    """All servers, as `stoa dev` has them."""

    def __init__(self, servers, folder):
        self.servers = servers
        # The servers' ports for each other lie 10,000 above, and must be below those that the system gives away.
        self.port = next(port for port in free_ports(50) if port < PORT_MAX)
        self.log = folder / "log"
        command = [STOA, "dev", "--servers", servers, "--port", self.port, "--data-dir", folder / "data"]
        shown(command)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command], stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, preexec_fn=prepare
            )
        deadline = time.monotonic() + READY_SECONDS
        while not (ports := re.search(r"PORT one of ([0-9 ]+)|admin +(http.*)", self.log.read_text())):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the servers are not ready:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.2)
        self.admins = re.findall(r"\b\d{4,5}\b", ports.group(0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def type(self, words):
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def forest(self):
        """The forest, as a server shows it that is there."""
        for admin in self.admins:
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"http://127.0.0.1:{admin}/commands/forest", timeout=2) as answer:
                    return json.load(answer)
        raise RuntimeError("no server answers")

    def pid(self, server):
        """That of a server, which has its number in its command line."""
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], stdout=subprocess.PIPE, text=True, check=True).stdout
        for child in children.split():
            words = pathlib.Path(f"/proc/{child}/cmdline").read_text().split("\0")
            if "--server-id" in words and words[words.index("--server-id") + 1] == str(server):
                return int(child)
        raise RuntimeError(f"server {server} is not there")


class Writer(threading.Thread):
    """Writes, and notes when each write was answered."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.session = Session(port, timeout=20)
        self.answered, self.is_over = [], False

    def run(self):
        data = struct.pack(">i", 100) + bytes(100) + struct.pack(">i", -1)
        with self.session:
            while not self.is_over:
                if self.session.call(SET, "/faults", data) == 0:
                    self.answered.append(time.monotonic())

    def longest_ms(self):
        return max(after - before for before, after in zip(self.answered, self.answered[1:])) * 1e3


def turn(ensemble, how, chance):
    """Somebody fails while one client writes; returns the longest time between two answers, in milliseconds."""
    forest = ensemble.forest()
    passing = [one["server_id"] for one in forest["servers"] if one["place"] in ("root", "interior")]
    victim = chance.choice(passing)
    others = [id for id in range(1, ensemble.servers + 1) if id not in (victim, forest["leader_id"])]
    writer = Writer(ensemble.port + chance.choice(others) - 1)
    writer.start()
    time.sleep(BEFORE_SECONDS)
    if how == "killed":
        ensemble.type(f"kill {victim}")
    else:
        os.kill(ensemble.pid(victim), signal.SIGSTOP)
    time.sleep(AFTER_SECONDS)
    writer.is_over = True
    writer.join()
    if how == "killed":
        ensemble.type(f"start {victim}")
    else:
        os.kill(ensemble.pid(victim), signal.SIGCONT)
    time.sleep(BACK_SECONDS)
    print(f"  server {victim} {how}: {writer.longest_ms():.1f} ms, {len(writer.answered)} writes", flush=True)
    return writer.longest_ms()


def main():
    parser = measure.arguments(__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, default=15)
    args = parser.parse_args()
    turns = 1 if args.quick else args.alternations or 30
    measure.prepare(args)
    facts = measure.watched_machine()
    chance, found = random.Random(1), {}
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="forest-faults-") as folder:
        with Ensemble(args.servers, pathlib.Path(folder)) as ensemble:
            with Session(ensemble.port, timeout=20) as session:
                session.create("/faults")
            for how in ("killed", "stopped"):
                found[how] = [turn(ensemble, how, chance) for _ in range(turns)]
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder, exist_ok=True)
    rows = [f"| {how} | {statistics.median(gaps):.1f} | {max(gaps):.1f} | {len(gaps)} |" for how, gaps in found.items()]
    told = ", ".join(f"{name}: {value}" for name, value in facts().items())
    text = (
        f"# {args.servers} servers with a forest, of which one fails\n\n{__doc__.split(chr(10) * 2)[1]}\n\n"
        "| a root or an interior is | longest time without an answer, median, ms | worst | times |\n| --- | ---: | ---: | ---: |\n"
        + "\n".join(rows)
        + f"\n\nThe machine: {told}.\n\n```console\n$ python3 bench/forest_faults.py --servers {args.servers}\n```\n"
    )
    print(text)
    if not args.quick:
        stem = measure.stem(args, f"-forest-faults-{args.servers}")
        stem.with_suffix(".md").write_text(text)
        print(f"written: {stem}.md")


if __name__ == "__main__":
    main()
