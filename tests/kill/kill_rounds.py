"""Kills a server under load, restarts it, and looks for what it must not have lost.

After each restart every acknowledged change is there, no change happened by half, every session
that was alive is alive with its ephemeral znodes, and none that was closed has come back.
"""

import argparse
import logging
import pathlib
import random
import shutil
import sys
import tempfile
import time

from load import Holder, Session, Writer
from record import Operation
from server_process import ServerProcess

COMPLAINTS_SHOWN = 20


class Trial:
    """One server, its clients, and what they know."""

    def __init__(self, seed, writers, holders):
        self.random = random.Random(seed)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="stoa-kill-"))
        self.server = ServerProcess(self.directory / "data")
        self.server.start()
        address = self.server.address
        self.reader = Session(address)
        self.writers = [Writer(number, address, seed + number) for number in range(writers)]
        self.holders = [Holder(number, address) for number in range(holders)]
        self.closed = []
        self.visits = 0
        self.newcomers = 0

    def round(self):
        """One kill under load. Returns the complaints, and the seconds to the end of the restart."""
        for writer in self.writers:
            writer.start()
        self.visit_and_leave()
        self.newcomers += 1
        newcomer = Holder(f"new{self.newcomers}", self.server.address)
        self.holders.append(newcomer)
        time.sleep(self.random.uniform(0.2, 1.5))
        self.server.kill()
        time.sleep(self.random.uniform(0, 0.1))
        begun = time.monotonic()
        self.restart()
        took = time.monotonic() - begun
        for writer in self.writers:
            writer.ask_to_stop()
        found = self.complaints()
        self.holders.remove(newcomer)
        newcomer.session.close()
        self.closed += newcomer.paths
        return found, took

    def restart(self):
        """Sometimes the server crashes again before it is ready."""
        while self.random.random() < 0.3:
            self.server.launch()
            time.sleep(self.random.uniform(0, 0.15))
            self.server.kill()
        self.server.start()

    def visit_and_leave(self):
        """A session that is closed before the crash: its ephemeral must not come back."""
        self.visits += 1
        path = f"/visits/{self.visits}"
        visitor = Session(self.server.address)
        visitor.client.create(path, ephemeral=True, makepath=True)
        visitor.close()
        self.closed.append(path)

    def complaints(self):
        found = self.reader.complaints("reader")
        if found:
            return found
        client = self.reader.client
        for writer in self.writers:
            writer.stop()
            found += writer.session.complaints(writer.name)
            observed = writer.observe(client)
            found += writer.record.complaints(observed) + writer.failures
            writer.failures = []
            writer.record.settle(observed)
        for holder in self.holders:
            found += holder.complaints(client)
        found += [f"{path}: the ephemeral of a closed session" for path in self.closed if client.exists(path)]
        return found

    def canary(self):
        """An acknowledgement that never was has to be found, or the checking is worth nothing."""
        writer = self.writers[0]
        path = f"{writer.base}/never-written"
        writer.record.acknowledged(Operation(((path, None, (b"", 0)),)))
        found = writer.record.complaints(writer.observe(self.reader.client))
        return [] if len(found) == 1 and path in found[0] else [f"the canary lives: {found}"]

    def acknowledged(self):
        return sum(writer.record.acknowledged_count for writer in self.writers)

    def close(self, keep):
        for session in [self.reader, *(client.session for client in self.writers + self.holders)]:
            session.close()
        self.server.kill()
        if keep:
            print(f"the server's data is kept in {self.directory}")
        else:
            shutil.rmtree(self.directory)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--holders", type=int, default=6)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    # Lost connections are the purpose of this program and no news.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    seed = random.randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed} (steers the load and the times of the kills, not the scheduling)")
    trial = Trial(seed, options.writers, options.holders)
    passed = failed = 0
    before = 0
    for number in range(1, options.rounds + 2):
        last = number > options.rounds
        found, took = (trial.canary(), 0.0) if last else trial.round()
        name = "canary" if last else f"round {number}"
        acknowledged = trial.acknowledged() - before
        before += acknowledged
        print(f"{name}: {acknowledged} acknowledged, restart {took:.2f} s, {len(found)} complaints", flush=True)
        for complaint in found[:COMPLAINTS_SHOWN]:
            print(f"  {complaint}")
        passed, failed = (passed, failed + 1) if found else (passed + 1, failed)
    trial.close(keep=failed > 0)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
