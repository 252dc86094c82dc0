"""Results that are kept as they come, so that a run goes on where another one has stopped."""

import json


class Journal:
    """Lines of JSON: `cell` with `result`, or `session` with facts about the machine. What was measured once is not
    measured again."""

    def __init__(self, path):
        self.path = path
        self.results = {}
        self.sessions = []
        if path.exists():
            self._read(path.read_text())
        path.parent.mkdir(parents=True, exist_ok=True)

    def _read(self, text):
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                # A run was ended in the middle of it.
                continue
            if "session" in entry:
                self.sessions.append(entry["session"])
            else:
                self.results[entry["cell"]] = entry["result"]

    def begin(self, facts):
        self.sessions.append(facts)
        self._append({"session": facts})

    def note(self, cell, result):
        self.results[cell.key] = result
        self._append({"cell": cell.key, "result": result})

    def result(self, cell):
        """None if it was not measured yet."""
        return self.results.get(cell.key)

    def _append(self, entry):
        # Behind half a line that a run has left, a new one begins.
        is_whole = not self.path.exists() or self.path.read_bytes()[-1:] in (b"", b"\n")
        with self.path.open("a") as file:
            file.write(("" if is_whole else "\n") + json.dumps(entry) + "\n")
