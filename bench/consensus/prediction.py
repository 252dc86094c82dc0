"""What `stoa model` expects of cells."""

import json
import statistics
import subprocess

from servers import STOA

# Where operations were not measured, milliseconds: the round trip that there is anyway, and a commit without any.
BASE_MS, DISK_MS = 0.1, 1.0


class Model:
    """The model of one kind of ensemble, with the two times that it cannot know: what a read takes that is not sent
    far, and what a write takes besides."""

    def __init__(self, servers, base_ms=BASE_MS, disk_ms=DISK_MS):
        self.servers, self.base_ms, self.disk_ms = servers, base_ms, disk_ms
        self.known = {}

    @classmethod
    def of(cls, servers, near):
        """With what was measured of operations from near; `near` is None if nothing was."""
        if near is None:
            return cls(servers)
        one_by_one = near["latency_us"]["one_by_one"]
        base = one_by_one["get"]["p50"] / 1e3
        write = statistics.fmean(one_by_one[name]["mean"] for name in ("create", "set", "delete")) / 1e3
        return cls(servers, base, max(write - base, 0.01))

    def operations(self, cell):
        """Milliseconds of each operation."""
        found = self.ask("operation", cell)
        return {name: found[model]["mean"] for name, model in [("connect", "connect"), ("create", "write"), ("get", "read")]}

    def lock(self, cell):
        """What is predicted of the lock of a cell: milliseconds until it is had, and the share of visits that find it
        taken. None where there is no model."""
        settings = cell.settings
        more = ["--section", f"{settings['service-ms']}ms", "--between", f"{settings['interarrival-ms']}ms"]
        more += ["--poll", f"{settings['poll-ms']}ms", "--trust-events"]
        more += ["--requests", str(settings["visits"] + settings["warmup"])]
        more += ["--regular"] if settings.get("arrivals") == "fixed" else []
        more += ["--fixed-section"] if settings.get("service") == "fixed" else []
        found = self.ask("primitive", cell, *more).get(cell.primitive)
        if not found or not found["latency"]:
            return None
        return found["latency"], found["waiting"]

    def ask(self, what, cell, *more):
        # The two that are added are what a round trip and a commit take where nothing is far.
        command = [str(STOA), "model", what, "--json", "--servers", str(self.servers)]
        command += ["--client-rtt", f"{cell.client_rtt + self.base_ms:.4f}ms", "--server-rtt", f"{cell.server_rtt}ms"]
        command += ["--disk", f"{self.disk_ms:.4f}ms", *more]
        key = tuple(command)
        if key not in self.known:
            process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            self.known[key] = json.loads(process.stdout)
        return self.known[key]
