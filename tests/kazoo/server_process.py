"""A server under test as a child process.

The command comes from SERVER_COMMAND; `--port` and `--data-dir` are added to it, so the same
suites drive Stoa and Apache ZooKeeper.
"""

import os
import random
import shlex
import signal
import socket
import subprocess
import time

HOST = "127.0.0.1"
# Below those that the system gives to connections: a server may listen at more addresses than the held one.
PORTS = range(12_000, 30_000)
READY_SECONDS = 30
STOP_SECONDS = 20

# One socket for each port that this process was given: it is bound, and does not listen.
holders = []


def eventually(what, holds, seconds=60):
    """Waits for what another process or thread brings about, and returns it."""
    deadline = time.monotonic() + seconds
    while not (held := holds()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)
    return held


def free_port():
    """A port that nobody else gets as long as this process runs, also while its server does not listen: neither a
    process that looks for one in the same way, nor a connection that the system chooses a port for."""
    for port in random.sample(PORTS, len(PORTS)):
        holder = socket.socket()
        try:
            holder.bind((HOST, port))
        except OSError:
            holder.close()
            continue
        # Only now, or it could have been bound beside another holder. The server allows it too, so it may listen.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holders.append(holder)
        return port
    raise RuntimeError(f"there is no free port in {PORTS}")


def ask(port, word, timeout=2):
    """Sends a four-letter word and returns the whole answer."""
    with socket.create_connection((HOST, port), timeout=timeout) as connection:
        connection.settimeout(timeout)
        connection.sendall(word)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer


class ServerProcess:
    """One server with its data directory and its port, both kept over a restart."""

    def __init__(self, data, port=None, more=()):
        self.data = str(data)
        self.more = list(more)
        self.port = port or free_port()
        self.process = None
        self.output = self.data + ".out"

    @property
    def address(self):
        return f"{HOST}:{self.port}"

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    def start(self):
        """Starts the server and waits until it serves clients."""
        if not self.running:
            self.launch()
            self.wait_until_ready()

    def launch(self):
        """Starts the server and returns at once."""
        command = shlex.split(os.environ["SERVER_COMMAND"])
        command += ["--port", str(self.port), "--data-dir", self.data, *self.more]
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def wait_until_ready(self):
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                if b"Mode:" in ask(self.port, b"srvr"):
                    return
            except OSError:
                pass
            time.sleep(0.02)
        state = self.process.poll()
        told = f"exited with {state}" if state is not None else "does not answer"
        raise RuntimeError(f"the server {told}:\n{self.tail()}")

    def stop(self):
        """Stops the server as an operator does."""
        self._end(signal.SIGTERM)

    def kill(self):
        """Ends the server as a crash does."""
        self._end(signal.SIGKILL)

    def _end(self, number):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"the server did not stop in {STOP_SECONDS} seconds") from None
        finally:
            self.process = None

    def tail(self, lines=40):
        """The end of what the server printed, for messages."""
        try:
            with open(self.output, encoding="utf-8", errors="replace") as output:
                return "".join(output.readlines()[-lines:])
        except FileNotFoundError:
            return ""
