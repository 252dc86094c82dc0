"""The clients that keep a server busy while it is killed: writers and holders of sessions."""

import random
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, OperationTimeoutError, SessionExpiredError
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from record import Operation, Record

SESSION_SECONDS = 20
BACK_SECONDS = 30
PATHS = 150
WINDOW = 24
PAIR = ("left", "right")

UNKNOWN_OUTCOME = (ConnectionLoss, OperationTimeoutError, SessionExpiredError)


class Session:
    """A client whose session has to outlive every restart."""

    def __init__(self, address):
        retry = KazooRetry(max_tries=-1, delay=0.05, backoff=1, max_delay=0.05)
        self.client = KazooClient(address, timeout=SESSION_SECONDS, connection_retry=retry)
        self.connected = threading.Event()
        self.lost = False
        self.client.add_listener(self._changed)
        self.client.start(timeout=BACK_SECONDS)
        self.identity = self.client.client_id[0]

    def _changed(self, state):
        if state == KazooState.CONNECTED:
            self.connected.set()
        else:
            self.connected.clear()
            self.lost |= state == KazooState.LOST

    def complaints(self, name):
        """Waits for the connection and looks whether it is still the same session."""
        if not self.connected.wait(BACK_SECONDS):
            return [f"{name}: session {self.identity:#x} did not come back in {BACK_SECONDS} s"]
        if self.lost or self.client.client_id[0] != self.identity:
            return [f"{name}: session {self.identity:#x} was told that it is gone"]
        return []

    def close(self):
        self.client.remove_listener(self._changed)
        self.client.stop()
        self.client.close()


class Writer:
    """Changes znodes that only it changes, many requests under way, one for each path."""

    def __init__(self, number, address, seed):
        self.name = f"writer {number}"
        self.base = f"/w{number}"
        self.random = random.Random(seed)
        self.record = Record()
        self.session = Session(address)
        self.session.client.ensure_path(self.base)
        self.failures = []
        self.counter = 0
        self._stopping = threading.Event()
        self._thread = None

    def start(self):
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self):
        """No new requests; returns when every request has its outcome."""
        self._stopping.set()
        self._thread.join(BACK_SECONDS + SESSION_SECONDS)
        if self._thread.is_alive():
            self.failures.append(f"{self.name}: requests without an outcome")

    def ask_to_stop(self):
        self._stopping.set()

    def _run(self):
        while not self._stopping.is_set():
            if not self.session.connected.wait(0.05):
                continue
            self._wait_for(self._send_window())

    def _send_window(self):
        """Sends requests for different paths and returns them with their results to come."""
        sent = [self._send_pair()] if self.random.random() < 0.3 else []
        for index in self.random.sample(range(PATHS), WINDOW):
            path = f"{self.base}/n{index}"
            if not self.record.in_doubt(path):
                sent.append(self._send_change(path))
        return [request for request in sent if request]

    def _send_change(self, path):
        client, before = self.session.client, self.record.state(path)
        data = self._fresh_data()
        if before is None:
            after = (data, 0)
            result = client.create_async(path, data)
        elif self.random.random() < 0.2:
            after = None
            result = client.delete_async(path, version=before[1])
        else:
            after = (data, before[1] + 1)
            result = client.set_async(path, data, version=before[1])
        return Operation(((path, before, after),)), result

    def _send_pair(self):
        """Both znodes change in one multi, so they are always equal."""
        paths = [f"{self.base}/{name}" for name in PAIR]
        if any(self.record.in_doubt(path) for path in paths):
            return None
        before, data = self.record.state(paths[0]), self._fresh_data()
        transaction = self.session.client.transaction()
        for path in paths:
            if before is None:
                transaction.create(path, data)
            else:
                transaction.set_data(path, data, version=before[1])
        after = (data, 0 if before is None else before[1] + 1)
        return Operation(tuple((path, before, after) for path in paths)), transaction.commit_async()

    def _fresh_data(self):
        self.counter += 1
        return b"%d " % self.counter + b"x" * self.random.randrange(200)

    def _wait_for(self, requests):
        deadline = time.monotonic() + BACK_SECONDS + SESSION_SECONDS
        for operation, result in requests:
            try:
                answer = result.get(timeout=max(0.1, deadline - time.monotonic()))
                self._judge(operation, answer)
            except UNKNOWN_OUTCOME:
                self.record.unknown(operation)
            except Exception as error:
                self.failures.append(f"{self.name}: {operation.changes} was refused: {error!r}")
                self.record.unknown(operation)

    def _judge(self, operation, answer):
        answers = answer if isinstance(answer, list) else [answer]
        wrong = [one for one in answers if isinstance(one, Exception)]
        if wrong:
            self.failures.append(f"{self.name}: {operation.changes} was refused: {wrong}")
            self.record.unknown(operation)
            return
        for (path, _, after), one in zip(operation.changes, answers):
            version = getattr(one, "version", None)
            if version is not None and version != after[1]:
                self.failures.append(f"{self.name}: {path} answered version {version}, not {after[1]}")
        self.record.acknowledged(operation)

    def observe(self, reader):
        """The states of all its paths as a reader sees them."""
        names = reader.get_children(self.base)
        pending = [(f"{self.base}/{name}", reader.get_async(f"{self.base}/{name}")) for name in names]
        observed = {}
        for path, result in pending:
            data, stat = result.get(timeout=BACK_SECONDS)
            observed[path] = (data, stat.version)
        return observed


class Holder:
    """A session that owns ephemeral znodes and does nothing else."""

    def __init__(self, name, address):
        self.name = f"holder {name}"
        self.session = Session(address)
        self.paths = [f"/held/{name}-{index}" for index in range(3)]
        for path in self.paths:
            self.session.client.create(path, ephemeral=True, makepath=True)

    def complaints(self, reader):
        found = self.session.complaints(self.name)
        for path in self.paths:
            stat = reader.exists(path)
            if stat is None:
                found.append(f"{self.name}: its ephemeral {path} is gone")
            elif stat.ephemeralOwner != self.session.identity:
                found.append(f"{self.name}: {path} belongs to {stat.ephemeralOwner:#x}")
        return found
