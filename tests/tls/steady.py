"""An honest client: TLS, a session, and one get after the other. As a program it tells how long it had to wait at most.

Arguments: port, authority, certificate, key. It ends with its input, and prints the number of gets and the longest wait
in milliseconds.
"""

import json
import socket
import ssl
import struct
import sys
import threading
import time

from secured import CONNECT, PATIENCE_SECONDS
from server_process import HOST

GET_DATA = 4
PAUSE_SECONDS = 0.002


class Client:
    """Raises where it is not let in or its connection ends."""

    def __init__(self, port, authority, certificate, key, source=HOST):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(authority)
        context.load_cert_chain(certificate, key)
        plain = socket.create_connection((HOST, port), PATIENCE_SECONDS, (source, 0))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.socket = context.wrap_socket(plain, server_hostname="localhost")
            self.socket.sendall(CONNECT)
            self.receive()
        except OSError:
            plain.close()
            raise
        self.xid = 0

    def receive(self):
        (length,) = struct.unpack(">i", self.exactly(4))
        return self.exactly(length)

    def exactly(self, length):
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise ConnectionResetError("the server has closed")
            data += more
        return data

    def get(self, path=b"/"):
        self.xid += 1
        body = struct.pack(">iii", self.xid, GET_DATA, len(path)) + path + b"\0"
        self.socket.sendall(struct.pack(">i", len(body)) + body)
        xid, _, error = struct.unpack(">iqi", self.receive()[:16])
        assert (xid, error) == (self.xid, 0)

    def close(self):
        self.socket.close()


def main():
    client = Client(int(sys.argv[1]), *sys.argv[2:])
    print("ready", flush=True)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    count, longest = 0, 0.0
    while not ended.is_set():
        begun = time.monotonic()
        client.get()
        longest = max(longest, time.monotonic() - begun)
        count += 1
        time.sleep(PAUSE_SECONDS)
    print(json.dumps({"gets": count, "longest_ms": round(longest * 1000, 1)}))


if __name__ == "__main__":
    main()
