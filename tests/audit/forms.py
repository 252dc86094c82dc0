"""Requests that kazoo has no functions for, or does not send as they are."""

import struct
from collections import namedtuple

from kazoo.protocol.serialization import int_struct, read_string, write_buffer
from kazoo.security import OPEN_ACL_UNSAFE

PERSISTENT, EPHEMERAL, SEQUENTIAL, EPHEMERAL_SEQUENTIAL, CONTAINER, TTL, SEQUENTIAL_TTL = range(7)
CREATE, DELETE, SET_DATA, SET_ACL, CHECK, MULTI, CREATE2, RECONFIG = 1, 2, 5, 7, 13, 14, 15, 16
CREATE_CONTAINER, DELETE_CONTAINER, CREATE_TTL, MULTI_READ = 19, 20, 21, 22
HOUR_MS = 3_600_000
STAT_BYTES = 68


def write_string(text):
    """kazoo's makes null of an empty one."""
    return int_struct.pack(-1) if text is None else write_buffer(text.encode())


class Asked(namedtuple("Asked", "type body")):
    """Any request, the body as it is. What it is answered is not looked at."""

    def serialize(self):
        return self.body

    @classmethod
    def deserialize(cls, answer, offset):
        return "done"


def acl_bytes(acl):
    entries = (int_struct.pack(it.perms) + write_string(it.id.scheme) + write_string(it.id.id) for it in acl)
    return int_struct.pack(len(acl)) + b"".join(entries)


def create(path, mode=PERSISTENT, kind=CREATE, acl=OPEN_ACL_UNSAFE, data=b"", ttl=HOUR_MS):
    body = write_string(path) + write_buffer(data) + acl_bytes(acl) + int_struct.pack(mode)
    return Asked(kind, body + struct.pack("!q", ttl) if kind == CREATE_TTL else body)


def delete(path, version=-1):
    return Asked(DELETE, write_string(path) + int_struct.pack(version))


def delete_container(path):
    return Asked(DELETE_CONTAINER, write_string(path))


def set_data(path, data=b"", version=-1):
    return Asked(SET_DATA, write_string(path) + write_buffer(data) + int_struct.pack(version))


def set_acl(path, acl, version=-1):
    return Asked(SET_ACL, write_string(path) + acl_bytes(acl) + int_struct.pack(version))


def check(path, version=-1):
    return Asked(CHECK, write_string(path) + int_struct.pack(version))


def reconfig(joining=None, leaving=None, members=None, version=-1):
    servers = b"".join(map(write_string, (joining, leaving, members)))
    return Asked(RECONFIG, servers + struct.pack("!q", version))


def cut(request, length=-1):
    """No more than the beginning of it."""
    return Asked(request.type, request.body[:length])


class Multi(namedtuple("Multi", "operations")):
    """The answer is what each operation was answered: a path, nothing, or the number of an error."""

    type = MULTI

    def serialize(self):
        parts = (struct.pack("!ibi", it.type, 0, -1) + it.body for it in self.operations)
        return b"".join(parts) + struct.pack("!ibi", -1, 1, -1)

    @classmethod
    def deserialize(cls, answer, offset):
        results = []
        while True:
            kind, is_done, _ = struct.unpack_from("!ibi", answer, offset)
            offset += 9
            if is_done:
                return results
            result = None
            if kind == -1:
                (result,) = int_struct.unpack_from(answer, offset)
                offset += 4
            elif kind in (CREATE, CREATE2, CREATE_CONTAINER, CREATE_TTL):
                result, offset = read_string(answer, offset)
            if kind in (SET_DATA, CREATE2, CREATE_CONTAINER, CREATE_TTL):
                offset += STAT_BYTES
            results.append(result)
