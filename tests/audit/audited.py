"""Servers that write an audit log, what they are asked, and what is in the log."""

import contextlib
import ipaddress
import itertools
import os
import pathlib
import re
import secrets
from typing import NamedTuple
from unittest import mock

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from members import ENVIRONMENT, Member
from server_process import HOST, ServerProcess, eventually

HERE = pathlib.Path(__file__).parent
PATIENCE_SECONDS = 60
# Marks the end of a step in the log.
MARKER = "/marker"
LOGGER = "org.apache.zookeeper.audit.Slf4jAuditLogger"
# ZooKeeper logs by slf4j-simple, among its errors. What is not ASCII has to come out in any locale.
JAVA_OPTIONS = (
    f"-Dorg.slf4j.simpleLogger.log.{LOGGER}=info -Dorg.slf4j.simpleLogger.showThreadName=false"
    " -Dfile.encoding=UTF-8"
)
FIELDS = ("session", "user", "ip", "operation", "znode", "znode_type", "acl", "result")


class Kind(NamedTuple):
    """One of the two programs that are compared."""

    name: str
    # The variables that have the commands for a server that stands alone, and for one of an ensemble.
    alone: str
    member: str
    # What stands before each record of its log, and before one of the audit log, with the level.
    record: str
    audit: str

    def log_alone(self, server):
        data = pathlib.Path(server.data)
        return data / "audit.log" if self is STOA else data / "zookeeper.log"

    def log_of_member(self, member):
        return member.data / "audit.log" if self is STOA else member.output


TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
STOA = Kind(
    "Stoa", "SERVER_COMMAND", "MEMBER_COMMAND", rf"{TIME} [A-Z]+ ", rf"{TIME} (INFO|ERROR) audit: "
)
ZOOKEEPER = Kind(
    "ZooKeeper",
    "PEER_COMMAND",
    "PEER_MEMBER_COMMAND",
    r"(?:INFO|WARN|ERROR) [\w.$]+ - ",
    rf"(INFO|ERROR) {re.escape(LOGGER)} - ",
)


class Audited:
    """A server with its clients and its audit log."""

    def __init__(self, kind, server, log, names):
        self.kind, self.server, self.log = kind, server, log
        # Of sessions, which all servers of an ensemble may log.
        self.names = names
        self.clients = []

    @property
    def port(self):
        return self.server.port

    def client(self, name, host=HOST, **options):
        """A client whose session has this name in the lines."""
        client = KazooClient(f"{host}:{self.port}", timeout=30, **options)
        client.start(timeout=PATIENCE_SECONDS)
        self.clients.append(client)
        self.know(client.client_id[0], name)
        return client

    def know(self, session, name):
        self.names[f"0x{session:x}"] = name

    def end(self):
        for client in self.clients:
            with contextlib.suppress(Exception):
                client.stop()
                client.close()
        self.clients = []

    def lines(self):
        """Those of the audit log, in order: the level, then the fields with tabs between them."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        records = re.split(rf"(?m)^(?={self.kind.record})", text)
        found = (re.fullmatch(rf"(?s){self.kind.audit}(.*)\n", record) for record in records)
        return in_order([f"{it[1]} {self.fields(it[2])}" for it in found if it])

    def fields(self, text):
        parts = re.split(rf"\t(?=(?:{'|'.join(FIELDS)})=)", text)
        return "\t".join(self.field(*part.partition("=")[::2]) for part in parts)

    def field(self, key, value):
        """Sessions have names, and what COMPAT.md says of all lines is done to ZooKeeper's."""
        if key == "session":
            value = self.names.get(value, value)
        elif self.kind is ZOOKEEPER:
            # Stoa leaves out what would begin another field or line, and writes IPv6 in its short form.
            value = re.sub(r"[\t\n\r]", "", value)
            value = re.sub(r"(?<![\w:])(?:[0-9a-f]+:){7}[0-9a-f]+(?![\w:])", short, value)
        if key == "user":
            # ZooKeeper has them in the order of a hash table.
            value = ",".join(sorted(value.split(",")))
        return f"{key}={value}"


def short(found):
    return str(ipaddress.ip_address(found[0]))


def in_order(lines):
    """The ends of ephemeral znodes that follow each other in the order of their names: neither has one."""
    ends = "operation=ephemeralZNodeDeletionOnSessionCloseOrExpire\t"
    groups = itertools.groupby(lines, lambda line: ends in line)
    return [line for is_end, group in groups for line in (sorted(group) if is_end else group)]


@contextlib.contextmanager
def alone(kind, folder):
    """One that is not started yet."""
    environment = {"SERVER_COMMAND": os.environ[kind.alone], "JDK_JAVA_OPTIONS": JAVA_OPTIONS}
    with mock.patch.dict(os.environ, environment):
        server = ServerProcess(folder / kind.name)
        audited = Audited(kind, server, kind.log_alone(server), {})
        try:
            yield audited
        finally:
            audited.end()
            server.kill()


@contextlib.contextmanager
def ensemble(kind, folder):
    """Three that serve."""
    folder = folder / kind.name
    folder.mkdir()
    members = [Member(folder, number, command=os.environ[kind.member]) for number in (1, 2, 3)]
    settings = (HERE / "zoo.cfg").read_text() + (HERE / "ensemble.cfg").read_text()
    settings += "".join(member.line for member in members)
    environment = {**os.environ, **ENVIRONMENT, "STOA_PEER_SECRET": secrets.token_hex(16)}
    environment["JDK_JAVA_OPTIONS"] = JAVA_OPTIONS
    names = {}
    audited = [Audited(kind, member, kind.log_of_member(member), names) for member in members]
    try:
        for member in members:
            member.configure(settings)
            member.start(environment)
        for member in members:
            eventually(f"server {member.number} in the quorum", member.is_in_quorum)
        yield audited
    finally:
        for it in audited:
            it.end()
        for member in members:
            member.kill()


def ask(client, request):
    """Sends a request as it is; returns what it was answered, or the name of the error."""
    answer = client.handler.async_result()
    client._call(request, answer)
    return outcome(answer.get, PATIENCE_SECONDS)


def outcome(call, *arguments, **options):
    try:
        return call(*arguments, **options)
    except KazooException as error:
        return type(error).__name__


class Played(NamedTuple):
    """By the names of steps."""

    lines: dict
    answers: dict


def play(server, steps):
    """Does all steps and ends all clients; returns what was answered in each step."""
    marker = server.client("marker")
    marker.create(MARKER, b"")
    client = server.client("client")
    answers = {}
    for name, step in steps.items():
        answers[name] = step(server, client)
        marker.set(MARKER, name.encode())
    server.end()
    return answers


def by_step(lines, steps):
    """The lines of each step, which end with a line of the marker."""
    names = iter(["start", *steps, "stop"])
    name = next(names)
    found = {name: []}
    for line in lines:
        if "session=marker\t" in line:
            name = next(names)
            found[name] = []
        else:
            found[name].append(line)
    assert name == "stop", f"the last lines are those of {name}"
    return found
