"""Which cells run at the same time. Delays are waiting and no work, so from afar many can; where nothing is far, what
one does shows in the others' latencies."""

import heapq
import itertools

from consensus.cells import expected_seconds, requests_per_second

# Requests a second of all cells that run at the same time, where latencies are long, by what they cost who answers
# them, and where latencies are short. A cell that asks more runs alone.
FAR_PER_SECOND = {"stoa": 4000, "zookeeper": 1500}
NEAR_PER_SECOND = 400
CELLS_MAX = 80


class Schedule:
    """What runs, and what may run besides."""

    def __init__(self, cells):
        # The longest first, so that the end is not one cell that all others wait for. What is near comes before that,
        # one turn of all cells after the other.
        order = lambda cell: (not cell.is_near, cell.tool, cell.turn, -expected_seconds(cell))
        self.pending = sorted(cells, key=order)
        self.asks = {cell: requests_per_second(cell) for cell in cells}
        self.running = set()
        # Requests a second of all that run.
        self.asked = 0

    def next(self):
        """Takes a cell that may begin now; None if there is none."""
        if len(self.running) >= CELLS_MAX:
            return None
        for index, cell in enumerate(self.pending):
            if self._fits(cell):
                del self.pending[index]
                self.running.add(cell)
                self.asked += self.asks[cell]
                return cell
        return None

    def done(self, cell):
        self.running.remove(cell)
        self.asked = self.asked - self.asks[cell] if self.running else 0

    def _fits(self, cell):
        if not self.running:
            return True
        other = next(iter(self.running))
        if (other.is_near, other.tool) != (cell.is_near, cell.tool):
            return False
        return self.asked + self.asks[cell] <= (NEAR_PER_SECOND if cell.is_near else FAR_PER_SECOND[cell.kind])


def seconds(cells, takes=expected_seconds):
    """How long cells take that are measured in this way, where `takes` says how long each of them does."""
    schedule, ends, now, numbers = Schedule(cells), [], 0.0, itertools.count()
    while schedule.pending or ends:
        while cell := schedule.next():
            heapq.heappush(ends, (now + takes(cell), next(numbers), cell))
        now, _, cell = heapq.heappop(ends)
        schedule.done(cell)
    return now
