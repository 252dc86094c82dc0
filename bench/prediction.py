"""What a server would do on more cores than there are: a model of its threads, fed with measured costs.

It is a simulation in discrete steps, without chance. A server of P partitions has P threads and the log's;
as many of them run at a time as there are cores, and each takes one piece of work and then lets the next
thread have its core. The pieces are bursts: what one session has outstanding, which a thread handles in one
turn. A burst

- goes to the thread of its session's connection, which, if the znodes live elsewhere, pays what handing
  over costs more and gives it to their partition;
- costs that partition its CPU time per request; of a write, half to prepare and half to apply;
- in between, if it writes, waits for the log, which takes everything that has queued up, as much as fits in
  a batch, uses its own CPU time, and is away until the disk has it;
- is answered, and comes again at once; if the generator is on the same machine, after its CPU time there.

Not in it: caches, memory and a network that are shared, cores that are slower when all are busy, and that
turns with more in them are cheaper.
"""

import collections
import dataclasses
import heapq


@dataclasses.dataclass
class Line:
    """Something that costs `fixed` and `each` for everything in it."""

    fixed: float
    each: float

    @staticmethod
    def through(first, second):
        """Through two measured points (count, cost), of which the second has the larger count."""
        (few, cost_of_few), (many, cost_of_many) = first, second
        each = max(0.0, (cost_of_many - cost_of_few) / (many - few))
        return Line(max(0.0, cost_of_few - each * few), each)

    def at(self, count):
        return self.fixed + self.each * count


@dataclasses.dataclass
class Costs:
    """Measured costs of one kind of request, in microseconds."""

    # CPU time of the partitions' threads for a request that stays on its thread.
    kept: float
    # How much more it is for one that is handed over.
    hand_over: float
    # CPU time of the generator for a request.
    generator: float
    # Of a batch by its updates: the log's CPU time, and the time until the disk has it. None for reads.
    log_cpu: Line | None = None
    log_time: Line | None = None
    # Most updates in a batch.
    batch_max: int = 0


@dataclasses.dataclass
class Load:
    sessions: int
    pipeline: int
    # "kept": sessions work where their connections are; "apart": elsewhere; "spread": everywhere in turn.
    place: str

    def target(self, session, burst, partitions):
        """The partition that a burst is for, of a session with so many before it. The thread
        `session % partitions` has its connection."""
        home = session % partitions
        if self.place == "kept":
            return home
        if self.place == "spread":
            return (home + burst) % partitions
        return (home + 1 + burst % max(1, partitions - 1)) % partitions


LOG, GENERATOR = "log", "generator"


class Machine:
    """One run of the model."""

    def __init__(self, costs, load, partitions, cores, with_generator):
        self.costs, self.load, self.partitions = costs, load, partitions
        self.with_generator = with_generator
        self.free_cores = cores
        self.now = 0.0
        # Events are (time, number, what to do), numbered so that ties keep their order.
        self.events = []
        self.count = 0
        # Work of each thread: (microseconds, what comes then).
        self.work = collections.defaultdict(collections.deque)
        self.ready = collections.deque()
        self.is_queued = set()
        self.bursts = [0] * load.sessions
        # Those that wait for the log, and whether it is with the disk.
        self.to_store = collections.deque()
        self.is_storing = False
        self.answered = 0

    def at(self, time, action):
        self.count += 1
        heapq.heappush(self.events, (time, self.count, action))

    def give(self, thread, cost, then):
        self.work[thread].append((cost, then))
        self.wake(thread)

    def wake(self, thread):
        if thread not in self.is_queued:
            self.is_queued.add(thread)
            self.ready.append(thread)
            self.schedule()

    def schedule(self):
        while self.free_cores and self.ready:
            thread = self.ready.popleft()
            self.free_cores -= 1
            cost, then = self.work[thread].popleft()
            self.at(self.now + cost, lambda thread=thread, then=then: self.ran(thread, then))

    def ran(self, thread, then):
        self.free_cores += 1
        self.is_queued.discard(thread)
        then()
        if self.work[thread]:
            self.wake(thread)
        self.schedule()

    def arrive(self, session):
        """A burst of a session comes to the thread of its connection."""
        home = session % self.partitions
        target = self.load.target(session, self.bursts[session], self.partitions)
        self.bursts[session] += 1
        if home == target:
            self.execute(session, target)
        else:
            cost = self.costs.hand_over * self.load.pipeline
            self.give(home, cost, lambda: self.execute(session, target))

    def execute(self, session, target):
        cost = self.costs.kept * self.load.pipeline
        if self.costs.log_time is None:
            self.give(target, cost, lambda: self.answer(session))
        else:
            self.give(target, cost / 2, lambda: self.store(session, target))

    def store(self, session, target):
        self.to_store.append((session, target))
        self.next_batch()

    def apply(self, session, target):
        cost = self.costs.kept * self.load.pipeline
        self.give(target, cost / 2, lambda: self.answer(session))

    def next_batch(self):
        if self.is_storing or not self.to_store:
            return
        self.is_storing = True
        self.give(LOG, 0.0, self.take_batch)

    def take_batch(self):
        bursts = min(len(self.to_store), max(1, self.costs.batch_max // self.load.pipeline))
        batch = [self.to_store.popleft() for _ in range(bursts)]
        updates = bursts * self.load.pipeline
        cpu = self.costs.log_cpu.at(updates)
        away = max(0.0, self.costs.log_time.at(updates) - cpu)
        self.give(LOG, cpu, lambda: self.at(self.now + away, lambda: self.stored(batch)))

    def stored(self, batch):
        self.is_storing = False
        for session, target in batch:
            self.apply(session, target)
        self.next_batch()
        self.schedule()

    def answer(self, session):
        self.answered += self.load.pipeline
        if self.with_generator:
            cost = self.costs.generator * self.load.pipeline
            self.give(GENERATOR, cost, lambda: self.arrive(session))
        else:
            # Behind what is queued already, as what comes over a network.
            self.at(self.now, lambda: self.arrive(session))

    def run_until(self, end):
        while self.events and self.events[0][0] <= end:
            self.now, _, action = heapq.heappop(self.events)
            action()
        self.now = end


def throughput(costs, load, partitions, cores, with_generator=False):
    """Requests a second, from a run long enough for many batches or turns."""
    machine = Machine(costs, load, partitions, cores, with_generator)
    for session in range(load.sessions):
        machine.at(0.0, lambda session=session: machine.arrive(session))
    window = 20_000.0 if costs.log_time is None else 150_000.0
    machine.run_until(window / 2)
    before = machine.answered
    machine.run_until(window * 1.5)
    return (machine.answered - before) / window * 1e6
