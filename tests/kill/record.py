"""What a server has promised: every acknowledged change, and the changes whose fate is unknown.

A state of a path is None where there is no znode, else (data, version). An operation changes one
path, or several at once. Its outcome is one of three: acknowledged, refused, or unknown because
the connection was lost before the reply. An unknown operation may have happened or not, but as a
whole; an acknowledged one has happened.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Operation:
    """Changes as (path, state before, state after)."""

    changes: tuple

    @property
    def paths(self):
        return {path for path, _, _ in self.changes}


class Record:
    """The promised states. Not locked: each writer keeps its own, of paths that only it changes."""

    def __init__(self):
        self.states = {}
        self.doubtful = []
        self.acknowledged_count = 0

    def state(self, path):
        """The last promised state."""
        return self.states.get(path)

    def in_doubt(self, path):
        return any(path in operation.paths for operation in self.doubtful)

    def acknowledged(self, operation):
        for path, _, after in operation.changes:
            self.states[path] = after
        self.acknowledged_count += 1

    def unknown(self, operation):
        self.doubtful.append(operation)

    def complaints(self, observed):
        """What the observed states (path -> state, absent paths left out) break."""
        found = []
        doubted = set()
        for operation in self.doubtful:
            doubted |= operation.paths
            found += self._broken_doubt(operation, observed)
        for path in sorted(self.states.keys() | observed.keys()):
            if path in doubted:
                continue
            promised, seen = self.states.get(path), observed.get(path)
            if promised != seen:
                found.append(f"{path}: acknowledged {promised}, found {seen}")
        return found

    @staticmethod
    def _broken_doubt(operation, observed):
        if all(observed.get(path) == before for path, before, _ in operation.changes):
            return []
        if all(observed.get(path) == after for path, _, after in operation.changes):
            return []
        seen = {path: observed.get(path) for path in sorted(operation.paths)}
        return [f"neither before nor after {operation.changes}: {seen}"]

    def settle(self, observed):
        """What has been observed is from now on as good as acknowledged."""
        self.doubtful.clear()
        self.states = dict(observed)
