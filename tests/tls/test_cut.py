"""Handshakes that end anywhere, by Python's own TLS over memory."""

import contextlib
import socket
import ssl
import struct

import pytest
from secured import PATIENCE_SECONDS, Secured, eventually
from server_process import HOST

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class Memory:
    """A client whose records go where the test has them go."""

    def __init__(self, world, version):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = context.maximum_version = VERSIONS[version]
        context.load_verify_locations(world.authority.certificate)
        context.load_cert_chain(world.client.certificate, world.client.key)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def step(self):
        """What it says next; empty when it waits for more."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def answer(self, connection):
        """What it says to what the server has said."""
        while not (said := self.step()):
            heard = connection.recv(65536)
            assert heard, "the server has closed"
            self.incoming.write(heard)
        return said


def connect(secured):
    return socket.create_connection((HOST, secured.secure_port), PATIENCE_SECONDS)


def leave(connection, at):
    """Every other one resets its connection."""
    if at % 2:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def survives(secured, world, before):
    """Nothing is left of those who have gone, and others are served."""
    eventually("nothing is under way", lambda: secured.counted("outstanding_tls_handshake") == 0)
    # That of the question itself.
    eventually("no connection is left", lambda: secured.counted("num_alive_connections") <= 1)
    assert secured.memory_kib() < before + 30_000
    assert secured.server.running and "panicked" not in secured.log
    secured.lets_in(world.client)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_first_flight_that_is_cut(tmp_path, world, version):
    hello = Memory(world, version).step()
    assert len(hello) > 100
    with Secured(tmp_path, world) as secured:
        before = secured.memory_kib()
        for at in range(len(hello)):
            connection = connect(secured)
            connection.sendall(hello[:at])
            leave(connection, at)
        survives(secured, world, before)
        # The first byte says that it is TLS; whoever has said none is nobody.
        counts = secured.counts()
        assert counts["stoa_tls_handshakes_total"] == 2
        assert 0 < counts["unsuccessful_handshake"] < len(hello)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_second_flight_that_is_cut(tmp_path, world, version, long):
    with Secured(tmp_path, world) as secured:
        before = secured.memory_kib()
        at, length, step = 0, 1, 1 if long else 13
        while at < length:
            client = Memory(world, version)
            with connect(secured) as connection:
                connection.sendall(client.step())
                flight = client.answer(connection)
                length = len(flight)
                # Signatures are not all of one length: this one may be shorter than the one before.
                connection.sendall(flight[: min(at, length - 1)])
                leave(connection, at)
            at += step
        assert length > 500, "there is no certificate in it"
        survives(secured, world, before)
        assert secured.counted("stoa_tls_handshakes_total") == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_a_first_flight_with_a_changed_byte(tmp_path, world, version, long):
    """Whatever stands in it, there is an answer at once: the handshake's next messages, or an alert. Only who has TLS
    1.2 and says that he takes no signature which the server can make finds the connection closed without one."""
    hello = Memory(world, version).step()
    with Secured(tmp_path, world, "--handshake-timeout", "1s") as secured:
        before, unanswered = secured.memory_kib(), 0
        # The lengths at its beginning are waited for; the others are what is looked at here.
        for at in range(9, len(hello), 1 if long else 5):
            changed = bytearray(hello)
            changed[at] ^= 0xFF
            with connect(secured) as connection:
                connection.sendall(changed)
                answer = connection.recv(5)
                unanswered += answer == b""
                assert answer[:1] in (b"\x15", b"\x16", b""), (at, answer)
        # The two bytes of the one signature.
        assert unanswered <= (2 if version == "1.2" else 0)
        survives(secured, world, before)
