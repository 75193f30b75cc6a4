"""The cores of a machine in virtual time, the threads that compete for them, and what tasks cost each other."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import partial
from typing import Any, Protocol

from tfmini import dtypes
from tfmini.errors import OpError
from tfmini.graph.node import Endpoint, Node, Nodes, output_dtypes
from tfmini.graph.op_types import FLOW_OPS, OPS, PLACEHOLDER_OPS, VARIABLE_OPS, ops_with, trait_of
from tfmini.graph.prune import traverse
from tfmini.shapes import RawShape
from tfmini.show.inspection.findings import size
from tfmini.show.simulation.profile import Machine

POOL = 2  # threads of a task for long segments, as of a server's default options
# A short segment uses little of what has left the caches: this is the most that it takes longer.
_WAITED_MOST, _CROWDED_MOST = 0.4, 0.8
_GOLDEN = 0.618034  # multiples of it, without their whole part, spread evenly

Call = Callable[[], None]


class VirtualClock(Protocol):
    """Virtual time; `tfmini.rpc.waiter.Clock` and the simulated network have this interface."""

    def now(self) -> float: ...
    def call_later(self, delay: float, call: Any, *args: object) -> Any: ...


class Cores:
    """The cores of one machine: threads share them equally, none has more than one.

    Args:
      overload: how many times longer all threads take while there are more of them than cores: they take turns, and
        each finds less of its data in the caches.

    Attributes:
      busy_s: seconds of CPU that threads have used.
    """

    def __init__(self, clock: VirtualClock, count: int, overload: float = 1.0) -> None:
        self._clock, self._count, self._shared = clock, count, count / overload
        self._running: list[tuple[float, int, Call]] = []  # by the progress at which each ends
        self._progress = 0.0  # seconds of CPU that a thread would have got that ran since the start
        self._at = 0.0
        self._order = self._generation = 0
        self.busy_s = 0.0

    def run(self, seconds: float, done: Call) -> None:
        """Lets a thread run for ``seconds`` of CPU, then calls ``done``."""
        self._advance()
        self._order += 1
        heapq.heappush(self._running, (self._progress + seconds, self._order, done))
        self.busy_s += seconds
        self._plan()

    @property
    def is_busy(self) -> bool:
        """Whether a thread runs."""
        return bool(self._running)

    @property
    def is_half_idle(self) -> bool:
        """Whether some cores run a thread and others none."""
        return 0 < len(self._running) < self._count

    def _rate(self) -> float:
        running = len(self._running)
        return 1.0 if running <= self._count else self._shared / running

    def _advance(self) -> None:
        now = self._clock.now()
        if self._running:
            self._progress += (now - self._at) * self._rate()
        self._at = now

    def _plan(self) -> None:
        self._generation += 1
        if self._running:
            delay = max(0.0, self._running[0][0] - self._progress) / self._rate()
            self._clock.call_later(delay, self._end, self._generation)

    def _end(self, generation: int) -> None:
        if generation != self._generation:
            return  # another thread has begun or ended since
        self._advance()
        end, _, done = heapq.heappop(self._running)
        self._progress = max(self._progress, end)
        self._plan()
        done()


class Lock:
    """A lock that threads wait for without a core, in the order in which they come."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: deque[Call] = deque()

    def acquire(self, then: Call) -> bool:
        """Takes the lock; False: somebody has it, and ``then`` is called when it has been taken."""
        if self._is_held:
            self._waiting.append(then)
            return False
        self._is_held = True
        return True

    def release(self) -> None:
        """Gives it to the next thread."""
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._is_held = False


Piece = tuple[float | Lock, Call | None]
"""Seconds of CPU, or a lock to take; and what happens after that."""


class Thread:
    """A thread that runs jobs one after the other. A job is a sequence of pieces, between which nothing else runs.

    Attributes:
      busy_s: seconds of CPU of its jobs. ``ended``: when its latest job ended.
    """

    def __init__(self, clock: VirtualClock, cores: Cores, count: int = 1) -> None:
        self._clock, self._cores = clock, cores
        self._jobs: deque[Iterator[Piece]] = deque()
        self._free = self._count = count
        self.busy_s = self.ended = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do."""
        return not self._jobs and self._free == self._count

    def submit(self, job: Iterator[Piece], delay_s: float = 0.0) -> None:
        """Queues a job; with a delay, the thread is idle and gets a core so much later."""
        if delay_s:
            self._free -= 1
            self._clock.call_later(delay_s, self._reached, None, job)
            return
        self._jobs.append(job)
        self._next()

    def _next(self) -> None:
        while self._free and self._jobs:
            self._free -= 1
            self._go_on(self._jobs.popleft())

    def _go_on(self, job: Iterator[Piece]) -> None:
        for seconds, then in job:
            if isinstance(seconds, Lock):
                if not seconds.acquire(partial(self._reached, then, job)):
                    return
            elif seconds > 0:
                self.busy_s += seconds
                self._cores.run(seconds, partial(self._reached, then, job))
                return
            if then is not None:
                then()
        self.ended = self._clock.now()
        self._free += 1

    def _reached(self, then: Call | None, job: Iterator[Piece]) -> None:
        if then is not None:
            then()
        self._go_on(job)
        self._next()


def coldness(seconds: float, machine: Machine, is_crowded: bool) -> float:
    """By which share a segment takes longer after its task has waited.

    Args:
      seconds: of the segment on a warm machine; above 0.
      is_crowded: whether the machine has more tasks than cores, so that others have used the caches meanwhile.
    """
    if is_crowded:
        return min(_CROWDED_MOST, machine.crowded_s / seconds)
    return min(_WAITED_MOST, machine.wake_s / seconds)


class Stalls:
    """The waits of tasks that wake up on crowded machines, spread evenly, so that tasks do not fall into step."""

    def __init__(self) -> None:
        self._spread = 0.0

    def next_s(self, machine: Machine) -> float:
        """Seconds from 0 to twice `Machine.stall_s`."""
        self._spread = (self._spread + _GOLDEN) % 1.0
        return 2.0 * self._spread * machine.stall_s


# ---- deciding ----------------------------------------
# Which ops of a graph must really run in a simulation, because what they compute decides what runs, waits or is sent.
# Such are queues, accumulators and collectives; small whole numbers and truth values that follow from constants, shapes
# and each other: steps, tokens, counters and conditions of loops. Everything that follows from fed, random or stored
# floats is a phantom: only its type and shape are known. A condition that is a phantom is false.

_SMALL = 4096  # elements: synchronous workers take their tokens from a tensor with one for each
_SHAPE_ONLY = ops_with("shape_only")
_WRITES = ops_with("writes")
_COLLECTIVES = ops_with("collective")
_CONTROL_ONLY = ops_with("control_only")
Shapes = Mapping[Endpoint, RawShape]


class Deciding:
    """The ops of one graph that must run.

    Args:
      nodes: the whole graph. ``shapes``: static shapes; unknown ones make phantoms.
      steps: what runs: it tells which queues and accumulators are filled.
    """

    def __init__(self, nodes: Nodes, shapes: Shapes, steps: Iterable[Nodes]) -> None:
        self._nodes, self._shapes = nodes, shapes
        self._filled = {
            node.inputs[0][0] for step in steps for node in step.values()
            if trait_of(node.op, "queue") == "enqueue" or trait_of(node.op, "accumulator") == "apply"
        }  # fmt: skip
        self._stores = {
            node.inputs[0][0] for node in nodes.values()
            if trait_of(node.op, "queue") is not None or trait_of(node.op, "accumulator") is not None
        }  # fmt: skip
        self.phantoms: Set[str] = self._spread({name for name, node in nodes.items() if self._begins(node)})

    def runs(self, node: Node) -> bool:
        """Whether the op's kernel runs; else its outputs are phantoms. The op may be one that the partitioner made."""
        if node.op in _COLLECTIVES or trait_of(node.op, "accumulator") is not None:
            return True
        if trait_of(node.op, "queue") is not None:
            return self._nodes.get(node.name, node).inputs[0][0] in self._filled
        return self.is_known(node.name) if node.name in self._nodes else all(self.is_known(n) for n, _ in node.inputs)

    def is_known(self, name: str) -> bool:
        """Whether the outputs of an op are really computed."""
        return name not in self.phantoms

    def variables(self) -> list[str]:
        """The variables that have real values."""
        return [name for name, node in self._nodes.items() if node.op in VARIABLE_OPS and self.is_known(name)]

    def _begins(self, node: Node) -> bool:
        """Whether an op's outputs are phantoms whatever its inputs are."""
        op = node.op
        if op in FLOW_OPS or op in _CONTROL_ONLY or trait_of(op, "accumulator") == "apply":
            return False
        if op in VARIABLE_OPS:
            return not _is_small_variable(node)
        if op in _WRITES:
            return False  # as the variable
        if trait_of(op, "queue") is not None:
            return node.inputs[0][0] not in self._filled or not self._is_small(node)
        if node.inputs and node.inputs[0][0] in self._stores:
            return node.inputs[0][0] not in self._filled or not self._is_small(node)
        if op in PLACEHOLDER_OPS or op not in OPS or op in _COLLECTIVES:
            return True
        if op == "ReadVariableOp":
            return False
        makes_state = not node.inputs and any(t.base_dtype is dtypes.resource or t._is_ref_dtype for t in _types(node))
        if OPS[op].op_def.is_stateful and not makes_state:
            return True
        if op in _SHAPE_ONLY:
            return not all(size(self._shapes.get(e)) is not None for e in node.inputs) or not self._is_small(node)
        return op != "Const" and not makes_state and not self._is_small(node)

    def _is_small(self, node: Node) -> bool:
        """Whether all outputs are few whole numbers or truth values."""
        for i, dtype in enumerate(_types(node)):
            count = size(self._shapes.get((node.name, i)))
            if count is None or count > _SMALL or not (dtype.base_dtype.is_integer or dtype.base_dtype is dtypes.bool):
                return False
        return True

    def _spread(self, found: set[str]) -> set[str]:
        """Adds all ops that follow from phantoms."""
        readers: dict[str, list[str]] = {}
        for node in self._nodes.values():
            if node.op not in _SHAPE_ONLY and node.op not in _COLLECTIVES:
                for source, _ in node.inputs:
                    readers.setdefault(source, []).append(node.name)
        return set(traverse(found, lambda name: readers.get(name, ())))


def _types(node: Node) -> list[dtypes.DType]:
    try:
        return output_dtypes(node)
    except (KeyError, OpError):
        return []


def _is_small_variable(node: Node) -> bool:
    dtype, count = node.attrs["dtype"].base_dtype, size(node.attrs["shape"])
    return count is not None and count <= _SMALL and (dtype.is_integer or dtype is dtypes.bool)
