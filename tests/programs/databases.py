"""Members of a cluster of PostgreSQL, each with Patroni, which decides in ZooKeeper who of them leads."""

import contextlib
import glob
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request

import psycopg2

from server_process import HOST, free_port

SCOPE = "letters"
STOP_SECONDS = 40
PASSWORDS = {user: {"username": user, "password": f"the password of {user}"} for user in ("admin", "copier")}
# What the debian packages make. PostgreSQL does not run as root.
USER = "postgres"
PROGRAMS = "/usr/lib/postgresql/*/bin"
# The shortest times that Patroni takes.
DECIDED = {
    "ttl": 20,
    "loop_wait": 1,
    "retry_timeout": 3,
    # Who takes over has all that was acknowledged.
    "synchronous_mode": True,
    "postgresql": {"use_pg_rewind": True, "parameters": {"max_connections": 30, "shared_buffers": "16MB"}},
}


def newest_programs():
    """The folder with the programs of the newest PostgreSQL that is here."""
    found = sorted(glob.glob(PROGRAMS), key=lambda folder: int(folder.split("/")[-2]))
    assert found, f"there is nothing in {PROGRAMS}: install PostgreSQL (Debian: postgresql)"
    return found[-1]


class Owner:
    """The user whose processes and folders these are: the one of these tests, or, if that is root, postgres."""

    def __init__(self):
        self.entry = pwd.getpwnam(USER) if os.geteuid() == 0 else None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stoa-patroni-"))
        self.give(self.folder)

    def give(self, path):
        if self.entry:
            os.chown(path, self.entry.pw_uid, self.entry.pw_gid)

    def copy(self, path):
        """A copy that this user can read, and nobody else."""
        copy = self.folder / path.name
        shutil.copy(path, copy)
        copy.chmod(0o600)
        self.give(copy)
        return str(copy)

    def start(self, command, output):
        who = {"user": self.entry.pw_uid, "group": self.entry.pw_gid, "extra_groups": []} if self.entry else {}
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            cwd=self.folder, env=environment, **who,
        )


class Member:
    """PostgreSQL with its Patroni; both keep their ports and their folder over restarts."""

    def __init__(self, owner, name, zookeeper):
        self.owner, self.name = owner, name
        self.port, self.api_port = free_port(), free_port()
        self.folder = owner.folder / name
        self.folder.mkdir()
        owner.give(self.folder)
        self.data = self.folder / "data"
        self.output = self.folder / "output"
        self.config = self.folder / "patroni.yml"
        # What is JSON is YAML, too.
        self.config.write_text(json.dumps(self.settings(zookeeper)))
        owner.give(self.config)
        self.process = None

    def settings(self, zookeeper):
        api, database = f"{HOST}:{self.api_port}", f"{HOST}:{self.port}"
        rules = [f"host replication copier {HOST}/32 scram-sha-256", f"host all all {HOST}/32 scram-sha-256"]
        return {
            "scope": SCOPE,
            "name": self.name,
            "zookeeper": zookeeper,
            "restapi": {"listen": api, "connect_address": api},
            "bootstrap": {"dcs": DECIDED, "initdb": [{"encoding": "UTF8"}, "data-checksums", "no-sync"]},
            "postgresql": {
                "listen": database,
                "connect_address": database,
                "data_dir": str(self.data),
                "bin_dir": newest_programs(),
                "pgpass": str(self.folder / "passwords"),
                "authentication": {"superuser": PASSWORDS["admin"], "replication": PASSWORDS["copier"]},
                "parameters": {"unix_socket_directories": str(self.folder)},
                "pg_hba": ["local all all trust", *rules],
            },
        }

    def start(self):
        with open(self.output, "ab") as output:
            self.process = self.owner.start([sys.executable, "-m", "patroni", str(self.config)], output)

    def said(self):
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def ask(self, path="patroni"):
        """What Patroni says of itself, or of all; nothing while it does not answer."""
        with contextlib.suppress(OSError, ValueError):
            # It says with the status, too, how the member is.
            opener = urllib.request.build_opener(AnyStatus)
            with opener.open(f"http://{HOST}:{self.api_port}/{path}", timeout=5) as answer:
                return json.load(answer)
        return {}

    def leads(self):
        said = self.ask()
        return said.get("state") == "running" and said.get("role") in ("primary", "master")

    def follows(self):
        said = self.ask()
        return said.get("role") == "replica" and said.get("replication_state") == "streaming"

    def run(self, statement, fetch=False):
        """One statement, which is committed when it returns."""
        names = {"user": "admin", "password": PASSWORDS["admin"]["password"], "dbname": "postgres"}
        connection = psycopg2.connect(host=HOST, port=self.port, connect_timeout=5, **names)
        with contextlib.closing(connection), connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if fetch else None

    def kill(self):
        """Ends Patroni and PostgreSQL as a crash of the machine does."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait(STOP_SECONDS)
        with contextlib.suppress(OSError, ValueError):
            # The first line of this file is the process that ends all others of this server.
            os.kill(int((self.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)


class AnyStatus(urllib.request.HTTPErrorProcessor):
    def http_response(self, _request, response):
        return response
