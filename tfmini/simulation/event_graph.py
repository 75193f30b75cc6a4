"""The events of steps, from the partitioner's graphs: what runs, what is sent, and what waits for what.

It follows the runtime where that matters for time: a message is handled in the task's one thread, which goes on with
the segments that the message made ready; a long segment runs in the task's pool; a segment sends as early as the
compiler's order allows; tensors may come before their step; takes from accumulators and queues, and collectives, wait
for the steps that they need. It differs from the runtime in five things: queues are never full, gradients are never
stale, a while loop runs once, both branches of a conditional run, and variables have no locks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tfmini.simulation.contention import POOL, Stalls, coldness
from tfmini.simulation.cores import Clock, Cores, Thread
from tfmini.simulation.cores import Piece as Work
from tfmini.simulation.exchange import exchange
from tfmini.simulation.links import Cluster, Nics
from tfmini.simulation.prediction import Event
from tfmini.simulation.task_program import Piece, SegmentCosts, TaskProgram
from tfmini.simulation.waits import ADD, Member, Stores


@dataclass(frozen=True)
class StepPlan:
    """A step of one client: the program of each task and what is sent.

    Attributes:
      master: the client's task.
      groups: group -> (target task, payload bytes, label).
      fed, fetched: task -> payload bytes of RunGraph and of its answer.
    """

    master: str
    programs: Mapping[str, TaskProgram]
    groups: Mapping[int, tuple[str, int, str]]
    fed: Mapping[str, int] = field(default_factory=dict)
    fetched: Mapping[str, int] = field(default_factory=dict)

    def fills(self) -> Iterator[str]:
        """The queues and accumulators to which it adds."""
        for program in self.programs.values():
            for segment in program.segments:
                yield from (p.wait.key for p in segment.pieces if p.wait is not None and p.wait.kind == ADD)


class Task:
    """A task: the thread (of other systems: the threads) that handles messages, and the pool."""

    def __init__(self, clock: Clock, cores: Cores, threads: int) -> None:
        self.main, self.pool = Thread(clock, cores, threads), Thread(clock, cores, POOL)
        self.latest: Event | None = None  # the latest event that ended
        self.is_cold = False  # whether it has waited since its last segment

    @property
    def busy_s(self) -> float:
        """Seconds of CPU."""
        return self.main.busy_s + self.pool.busy_s


class World:
    """The tasks and links that all steps share, and the queues and accumulators that ``plans`` fill."""

    def __init__(self, clock: Clock, cluster: Cluster, plans: Sequence[StepPlan] = ()) -> None:
        self.clock, self.cluster, self.nics = clock, cluster, Nics(cluster, clock)
        self._stalls = Stalls()
        self.stores = Stores(frozenset(key for plan in plans for key in plan.fills()), self._exchange)
        self.cores = {host: Cores(clock, machine.cores, machine.overload) for host, machine in cluster.machines.items()}
        self.tasks = {
            task: Task(clock, self.cores[host], cluster.machines[host].threads) for task, host in cluster.hosts.items()
        }
        count = Counter(cluster.hosts.values())
        #: The tasks that take turns on the cores of their machine.
        self.crowded = {task for task, host in cluster.hosts.items() if count[host] > cluster.machines[host].cores}

    def _exchange(self, members: Sequence[Member], cause: Event) -> None:
        exchange(members, cause, self.nics)

    def submit(self, task: str, job: Iterator[Work], in_pool: bool = False) -> None:
        """Queues a job on a task."""
        found = self.tasks[task]
        # The thread is still awake at the moment when its last work ends.
        wakes = found.main.is_idle and found.pool.is_idle and found.main.ended < self.clock.now()
        found.is_cold |= wakes
        stalls = wakes and task in self.crowded and self.cores[self.cluster.hosts[task]].is_half_idle
        delay_s = self._stalls.next_s(self.cluster.machines[self.cluster.hosts[task]]) if stalls else 0.0
        (found.pool if in_pool else found.main).submit(job, delay_s)

    def send_cost(self, source: str, target: str, nbytes: int) -> float:
        """CPU of the sender."""
        link = self.cluster.between(source, target)
        return link.send_s + link.copy_s(nbytes)

    def receive_cost(self, source: str, target: str, nbytes: int) -> float:
        """CPU of the receiver."""
        link = self.cluster.between(source, target)
        return link.receive_s + link.copy_s(nbytes)

    def event(self, label: str, task: str, ready: float, cause: Event | None) -> Event:
        """Begins an event now; if its thread was busy when it became ready, it was caused by that work."""
        latest, now = self.tasks[task].latest, self.clock.now()
        if latest is not None and now > ready and latest.end > ready:
            cause = latest
        return Event(label, task, now, cause)

    def end(self, event: Event) -> Event:
        """Ends an event of a task now."""
        event.end = self.clock.now()
        self.tasks[event.task].latest = event
        return event


class Step:
    """One step of a client.

    Args:
      renamed: task of the plan -> task that takes its place, for replicas of a plan.
      on_end: called with the last event.
    """

    def __init__(
        self, world: World, plan: StepPlan, renamed: Mapping[str, str], on_end: Callable[[Event], None]
    ) -> None:
        self.world, self.plan, self._on_end = world, plan, on_end
        self.master = renamed.get(plan.master, plan.master)
        self.parts = {task: _Part(self, renamed.get(task, task), program) for task, program in plan.programs.items()}
        self._left = len(self.parts)

    def start(self, cause: Event | None) -> None:
        """The client calls `Session.run` now."""
        self.world.submit(self.master, self._begin(self.world.clock.now(), cause))

    def _begin(self, ready: float, cause: Event | None) -> Iterator[Work]:
        world, plan = self.world, self.plan
        machine = world.cluster.machines[world.cluster.hosts[self.master]]
        event = world.event("Session.run", self.master, ready, cause)
        if set(self.parts) != {plan.master}:
            yield machine.step_s, None
        for task, part in self.parts.items():
            if task != plan.master:
                nbytes = plan.fed.get(task, 0)
                yield machine.part_s + world.send_cost(self.master, part.task, nbytes), None
                self.send(self.master, part.task, nbytes, "RunGraph", world.end(event), part.start)
                event = world.event("Session.run", self.master, event.end, event)
        own = self.parts.get(plan.master)
        if own is not None:
            yield machine.start_s, None
            yield from own.begin(world.end(event))
        else:
            world.end(event)

    def send(
        self, source: str, target: str, nbytes: int, label: str, cause: Event,
        handle: Callable[[Event], Iterator[Work]],
    ) -> None:  # fmt: skip
        """A message leaves now; ``handle`` is the target's work after receiving it."""
        world = self.world
        event = Event(label, f"{source} -> {target}", world.clock.now(), cause)

        def arrived() -> None:
            event.end = world.clock.now()
            world.submit(target, self._receive(source, target, nbytes, event, handle))

        world.nics.send(source, target, nbytes, arrived)

    def _receive(
        self, source: str, target: str, nbytes: int, cause: Event, handle: Callable[[Event], Iterator[Work]]
    ) -> Iterator[Work]:
        event = self.world.event(f"receives {cause.label}", target, cause.end, cause)
        yield self.world.receive_cost(source, target, nbytes), None
        yield from handle(self.world.end(event))

    def part_over(self, task: str, cause: Event) -> Iterator[Work]:
        """All segments of a part have run."""
        plan, world = self.plan, self.world
        if task == plan.master:
            yield from self._part_done(cause)
            return
        part, nbytes = self.parts[task], plan.fetched.get(task, 0)
        event = world.event("answers", part.task, cause.end, cause)
        yield world.send_cost(part.task, self.master, nbytes), None
        self.send(part.task, self.master, nbytes, "done", world.end(event), self._part_done)

    def _part_done(self, cause: Event) -> Iterator[Work]:
        self._left -= 1
        if not self._left:
            self._on_end(cause)
        return iter(())


class _Part:
    """The run of one task's program in a step."""

    def __init__(self, step: Step, task: str, program: TaskProgram) -> None:
        self.step, self.task, self.program = step, task, program
        self.template = next(name for name, each in step.plan.programs.items() if each is program)
        self.pending = [segment.pending for segment in program.segments]
        self.left = len(self.pending)
        self.is_running = False

    def start(self, cause: Event) -> Iterator[Work]:
        """RunGraph has been received."""
        world = self.step.world
        event = world.event("starts", self.task, cause.end, cause)
        yield world.cluster.machines[world.cluster.hosts[self.task]].start_s, None
        yield from self.begin(world.end(event))

    def begin(self, cause: Event) -> Iterator[Work]:
        """Runs what needs nothing more."""
        self.is_running = True
        ready = [i for i, count in enumerate(self.pending) if count == 0]
        yield from self._drive(ready, cause)

    def complete(self, key: int, cause: Event) -> Iterator[Work]:
        """A group or an answer is there."""
        segment = self.program.arrivals[key]
        self.pending[segment] -= 1
        if self.is_running and self.pending[segment] == 0:
            yield from self._drive([segment], cause)

    def _drive(self, ready: list[int], cause: Event, in_pool: bool = False) -> Iterator[Work]:
        while ready:
            index = ready.pop()
            segment = self.program.segments[index]
            if segment.is_long and not in_pool:
                self.step.world.submit(self.task, self._drive([index], cause, True), True)
                continue
            in_pool = False
            cause = yield from self._run(segment, cause)
            for successor in segment.successors:
                self.pending[successor] -= 1
                if self.pending[successor] == 0:
                    ready.append(successor)
            self.left -= 1
            if self.left == 0:
                yield from self.step.part_over(self.template, cause)

    def _run(self, segment: SegmentCosts, cause: Event) -> Generator[Work, None, Event]:
        world, plan = self.step.world, self.step.plan
        coldness = self._coldness(segment)
        for piece in segment.pieces:
            slower = (1.0 + coldness) * self._beside(segment)
            event = world.event(piece.op, self.task, cause.end, cause)
            target, nbytes, label = plan.groups[piece.sends] if piece.sends >= 0 else ("", 0, "")
            if not target:
                yield slower * piece.seconds, None
                cause = world.end(event)
                self._begin_wait(piece, cause)
                continue
            part = self.step.parts[target]
            yield slower * piece.seconds + world.send_cost(self.task, part.task, nbytes), None
            cause = world.end(event)
            self.step.send(self.task, part.task, nbytes, label, cause, _Arrival(part, piece.sends))
        return cause

    def _coldness(self, segment: SegmentCosts) -> float:
        """By how much longer a segment takes, because the task has waited before it."""
        world = self.step.world
        task, machine = world.tasks[self.task], world.cluster.machines[world.cluster.hosts[self.task]]
        if not task.is_cold or not segment.seconds:
            return 0.0
        task.is_cold = False
        return coldness(segment.seconds, machine, self.task in world.crowded)

    def _beside(self, segment: SegmentCosts) -> float:
        """How many times longer a segment takes now, because others use the memory as well."""
        world = self.step.world
        host = world.cluster.hosts[self.task]
        return world.cluster.machines[host].beside if segment.is_long and world.cores[host].is_busy else 1.0

    def _begin_wait(self, piece: Piece, cause: Event) -> None:
        answer = partial(self._answered, piece) if piece.begins else None
        if piece.wait is not None:
            self.step.world.stores.begin(self.task, piece.wait, cause, answer)
        elif answer is not None:
            answer(cause, 0.0)

    def _answered(self, piece: Piece, cause: Event, cpu_s: float) -> None:
        world = self.step.world
        ready = world.clock.now()
        job = self._after_wait(piece.begins, cpu_s, ready, cause)
        world.clock.call_later(0.0, world.submit, self.task, job)

    def _after_wait(self, key: int, cpu_s: float, ready: float, cause: Event) -> Iterator[Work]:
        if cpu_s:
            event = self.step.world.event("collective", self.task, ready, cause)
            yield cpu_s, None
            cause = self.step.world.end(event)
        yield from self.complete(key, cause)


class _Arrival:
    """What a task does when a group has come."""

    __slots__ = ("_part", "_group")

    def __init__(self, part: _Part, group: int) -> None:
        self._part, self._group = part, group

    def __call__(self, cause: Event) -> Iterator[Work]:
        return self._part.complete(self._group, cause)


@dataclass(frozen=True)
class Client:
    """A client that runs a plan again and again.

    Attributes:
      renamed: see `Step`.
      steps: how often; 0: as long as others run.
      start_s: when it begins.
    """

    plan: StepPlan
    renamed: Mapping[str, str] = field(default_factory=dict)
    steps: int = 0
    start_s: float = 0.0


def run_clients(world: World, clients: Sequence[Client]) -> list[tuple[int, float, float, Event]]:
    """Prepares the steps of all clients; the caller then runs the clock.

    Returns:
      A list that receives, for each step of a client with a number of steps, in the order of their ends: the number of
      the client, begin, end, and the last event.
    """
    ends: list[tuple[int, float, float, Event]] = []
    left = sum(client.steps for client in clients)

    def run(number: int, count: int, cause: Event | None) -> None:
        client, began = clients[number], world.clock.now()

        def over(last: Event) -> None:
            if client.steps:
                ends.append((number, began, world.clock.now(), last))
            if count + 1 < client.steps or not client.steps and len(ends) < left:
                run(number, count + 1, last)

        Step(world, client.plan, client.renamed, over).start(cause)

    for number, client in enumerate(clients):
        world.clock.call_later(client.start_s, run, number, 0, None)
    return ends
