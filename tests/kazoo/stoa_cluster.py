"""Gives kazoo's own tests the server under test.

kazoo's harness imports `kazoo.testing.common` for its cluster of Java processes. This module takes
that name before kazoo is imported and offers what the harness uses of it: a cluster of one server,
which can be started, stopped, restarted with its data, and wiped. Loaded as `pytest -p
stoa_cluster`; it also leaves out the tests named in left-out.txt.
"""

import atexit
import logging
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

import pytest

from server_process import ServerProcess, free_port

COMMAND = shlex.split(os.environ["SERVER_COMMAND"])
# A server alone is given certificates and users. One of several is started by a program of its own, and has none.
HAS_DOORS = COMMAND[1:2] == ["serve"]
OF_DOORS = ("test_client.py::TestSSLClient", "test_sasl.py")

LEFT_OUT = pathlib.Path(__file__).with_name("left-out.txt")


class ManagedZooKeeper:
    """One server, under the names that kazoo's tests call."""

    def __init__(self, jaas_config=None):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="stoa-kazoo-"))
        # Not in the directory, which tests remove.
        self.keys = pathlib.Path(tempfile.mkdtemp(prefix="stoa-kazoo-keys-"))
        atexit.register(shutil.rmtree, self.keys, ignore_errors=True)
        doors = []
        if HAS_DOORS:
            self.secure_port = free_port()
            doors = self.doors(jaas_config)
        self.server = ServerProcess(self.directory / "data", free_port(), doors)

    def doors(self, jaas_config):
        """Certificates for the server and a client, and the users of SASL, as settings of the server."""
        keys = self.keys
        for whom in ("--name=127.0.0.1", "--client=kazoo"):
            subprocess.run(
                [COMMAND[0], "certificate", whom, "--to", keys], check=True, stdout=subprocess.DEVNULL
            )
        settings = [
            f"--secure-port={self.secure_port}",
            f"--tls-certificate={keys}/server.pem",
            f"--tls-key={keys}/server-key.pem",
            f"--tls-authority={keys}/authority.pem",
        ]
        if jaas_config:
            users = keys / "jaas.conf"
            users.write_text(jaas_config, encoding="utf-8")
            settings.append(f"--sasl-config={users}")
        return settings

    def key(self, name):
        return (self.keys / name).read_bytes()

    @property
    def address(self):
        return self.server.address

    @property
    def secure_address(self):
        return f"127.0.0.1:{self.secure_port}"

    @property
    def client_port(self):
        return self.server.port

    @property
    def running(self):
        return self.server.running

    def run(self):
        self.directory.mkdir(exist_ok=True)
        self.server.start()

    def stop(self):
        self.server.stop()

    def reset(self):
        self.stop()
        shutil.rmtree(self.server.data, ignore_errors=True)

    def destroy(self):
        try:
            self.stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def get_logs(self, num_lines=100):
        return self.server.tail(num_lines).splitlines(keepends=True)


class ZookeeperCluster:
    """A cluster of one server, whatever stands behind it."""

    def __init__(self, jaas_config=None, **_settings_of_the_java_server):
        self.members = [ManagedZooKeeper(jaas_config)]

    def get_ssl_client_configuration(self):
        """What TestSSLClient shows, and whom it trusts."""
        key = self.members[0].key
        return {
            "client_key": key("client-key.pem"),
            "client_cert": key("client.pem"),
            "ca_cert": key("authority.pem"),
        }

    def __getitem__(self, index):
        return self.members[index]

    def __iter__(self):
        return iter(self.members)

    def start(self):
        for member in self.members:
            member.run()

    def stop(self):
        for member in self.members:
            member.stop()

    def terminate(self):
        for member in self.members:
            member.destroy()

    def reset(self):
        for member in self.members:
            member.reset()

    def get_logs(self):
        return [line for member in self.members for line in member.get_logs()]


# Clients that a test leaves behind would print each lost connection on standard error until the end.
logging.getLogger("kazoo").addHandler(logging.NullHandler())

if "kazoo.testing.common" in sys.modules:
    raise RuntimeError("stoa_cluster has to be loaded before kazoo's harness")
sys.modules["kazoo.testing.common"] = sys.modules[__name__]


def left_out():
    """Test name -> reason, as left-out.txt says."""
    entries = {}
    for number, line in enumerate(LEFT_OUT.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, separator, reason = line.partition(": ")
        if not separator or not reason.strip():
            raise pytest.UsageError(f"{LEFT_OUT.name}:{number}: a test is left out without a reason")
        entries[name.strip()] = reason.strip()
    return entries


def matches(nodeid, name):
    """`test_file.py::Class` leaves out a class, `test_file.py::Class::test` one test."""
    tail = nodeid.rpartition("tests/")[2]
    return tail == name or tail.startswith((name + "::", name + "["))


def pytest_collection_modifyitems(config, items):
    entries = left_out()
    used = set()
    kept, dropped = [], []
    for item in items:
        names = [name for name in entries if matches(item.nodeid, name)]
        used.update(names)
        needs_doors = any(matches(item.nodeid, name) for name in OF_DOORS)
        (dropped if names or needs_doors and not HAS_DOORS else kept).append(item)
    # An entry that names no test hides nothing and must go; only a run of all tests can tell.
    whole = not config.option.keyword and not any(".py" in argument for argument in config.args)
    if whole and (unused := sorted(set(entries) - used)):
        raise pytest.UsageError(f"{LEFT_OUT.name} names tests that do not exist: {unused}")
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
