"""One step on one task: which segments may run, what has arrived, and how it ends.

A `StepRun` is told of events (start, a group has arrived, abort) and runs the segments that they
set free. It never waits: between events it is a few counters. A tensor may arrive before the
step has started here; the worker then makes the run early and `deliver` only stores.

What is set free inside a running segment (an op answers another step's wait, a loop begins) runs
when that segment has ended, in the same thread: `_dispatch` keeps such work in a queue, so that
neither the stack nor the set of locks grows with the length of the chain.
"""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from tfmini import errors
from tfmini.runtime.dead import DEAD
from tfmini.runtime.levels import Level, WaitingLoop
from tfmini.runtime.program import Program
from tfmini.runtime.step_errors import dead_fetch, kernel_error, node_error

Done = Callable[[errors.OpError | None, list[Any]], None]
Path = tuple[int, ...]
"""The iterations, outermost loop first, in which something happens; ``()`` outside all loops."""


class StepOwner(Protocol):
    """What a running step needs of its worker."""

    task: str

    def send_group(self, run: StepRun, group: int, values: tuple[Any, ...], path: Path) -> None: ...
    def schedule(self, activation: Activation, segment: int) -> bool: ...


class Activation:
    """One run of one level: of the whole program, or of one iteration of a loop.

    The attributes ``step_id``, ``state`` and ``owner`` are for kernels.
    """

    __slots__ = ("level", "slots", "path", "pending", "left")
    run: StepRun

    def __init__(self, level: Level, path: Path) -> None:
        self.level = level
        self.slots = level.template.copy()
        self.path = path
        self.pending = level.pending.copy()
        self.left = len(level.segments)

    @property
    def step_id(self) -> int:
        return self.run.id

    @property
    def state(self) -> dict[str, Any]:
        """Per-step state of kernels that need some (temporary variables, tensor arrays…)."""
        return self.run.shared

    @property
    def owner(self) -> StepOwner:
        return self.run.worker

    # ---- for generated code -----------------------------------------------------------------

    def send(self, group: int, values: tuple[Any, ...]) -> None:
        """Called by a segment as soon as a group is complete."""
        self.run.worker.send_group(self.run, group, values, self.path)

    def begin(self, key: int, kernel: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Starts a kernel that answers later."""
        wait = StepWait(self, key)
        try:
            kernel(wait, *arguments)
        except BaseException:  # even Ctrl-C: a kernel that never started will never answer
            wait.forget()
            raise

    def begin_loop(self, key: int, arguments: tuple[Any, ...]) -> None:
        """Starts a loop that has to wait on its way."""
        _LoopRun(self, key, self.run.program.loops[key], arguments).iterate(None)

    def skip(self, key: int) -> None:
        """What leads to this arrival is dead: nobody will look at its values."""
        self.complete(key, None)

    # ---- events -----------------------------------------------------------------------------

    def complete(self, key: int, values: Sequence[Any] | None) -> None:
        """Stores what has arrived and runs what that sets free."""
        slots, segment = self.level.arrivals[key]
        with self.run.lock:
            if values is not None:
                for slot, value in zip(slots, values, strict=True):
                    self.slots[slot] = value
            self.pending[segment] -= 1
            ready = self.pending[segment] == 0 and self.run.is_running
        if ready:
            _dispatch(self, [segment])

    def run_segment(self, index: int) -> list[int]:
        """Runs one segment; returns the segments that are ready now."""
        if self.run.stopped:
            return []
        segment = self.level.segments[index]
        begin = time.perf_counter()
        try:
            with np.errstate(all="ignore"):
                segment.run(self, self.slots)
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises ends this step, not the server
            self.run.fail(kernel_error(error, self.run.worker.task))
            return []
        segment.note(time.perf_counter() - begin)
        ready = []
        with self.run.lock:
            for successor in segment.successors:
                self.pending[successor] -= 1
                if self.pending[successor] == 0:
                    ready.append(successor)
            self.left -= 1
            finished = self.left == 0
        if finished:
            self.over()
        return ready

    def run_later(self, segment: int) -> None:
        """Runs a segment that was handed to a thread pool, and what it sets free."""
        _drive(self, [segment], scheduled=True)

    def over(self) -> None:
        """All segments have run."""
        raise NotImplementedError


class StepRun(Activation):
    """The state of one step of a program, and the activation of its outermost level.

    Attributes:
      id: the step's number, unique in the cluster.
      missing: groups that are expected outside loops and have not come.
      lock: guards all counters of all activations.
      stopped: the step has ended; set once.
      iteration: the class of a loop's iterations.
    """

    iteration: ClassVar[type[Iteration]]

    __slots__ = ("worker", "graph", "program", "id", "shared", "started_at", "missing", "lock", "stopped",
                 "is_running", "waits", "_early", "_iterations", "_on_done", "_aborted")  # fmt: skip

    def __init__(self, owner: StepOwner, graph: Any, step_id: int) -> None:
        program: Program = graph.program
        super().__init__(program, ())
        self.worker = owner
        self.graph = graph
        self.program = program
        self.id = step_id
        self.shared: dict[str, Any] = {}
        self.missing = {key for key in program.arrivals if key >= 0}
        self.started_at = 0.0
        self.lock = threading.Lock()
        self.is_running = False
        self.stopped = False
        self.waits: dict[StepWait, None] = {}
        self._early: dict[tuple[int, Path], Sequence[Any]] = {}
        self._iterations: dict[tuple[int, Path], Activation] = {}
        self._on_done: Done | None = None
        self._aborted: errors.OpError | None = None

    @property
    def run(self) -> StepRun:  # type: ignore[override]
        """Itself: no attribute, which would be a cycle that keeps the step's tensors until a collection."""
        return self

    def start(self, feeds: Sequence[Any], on_done: Done) -> None:
        """Runs what can run; ``on_done(error, fetched values)`` is called once, now or later."""
        for slot, value in zip(self.program.feeds, feeds):
            self.slots[slot] = value
        for slot in self.program.kept_feeds:  # the client may use its buffer again
            if isinstance(self.slots[slot], np.ndarray):
                self.slots[slot] = self.slots[slot].copy()
        self.started_at = time.monotonic()
        with self.lock:
            self._on_done = on_done
            self.is_running = True
            aborted = self._aborted
            ready = [i for i, count in enumerate(self.pending) if count == 0]
            finished = self.left == 0
        if aborted is not None or finished:
            self._finish(aborted)
            return
        # At once, even inside another step's segment: a py_func may run a session and wait for it.
        _drive(self, ready)

    def deliver(self, group: int, values: Sequence[Any], path: Path = (), arrived_ns: int = 0) -> None:
        """Stores a group of tensors from another task and runs what that sets free.

        Args:
          arrived_ns: when they came, by the process's monotonic clock, if that was before the step: for traces.
        """
        if path:
            self._deliver_in_loop(group, values, path)
            return
        if group not in self.program.arrivals:
            raise errors.InternalError(None, None, f"step {self.id} got group {group}, which it does not expect")
        with self.lock:
            if group not in self.missing:
                raise errors.InternalError(None, None, f"step {self.id} got group {group} twice")
            self.missing.discard(group)
        self.complete(group, values)

    def _deliver_in_loop(self, group: int, values: Sequence[Any], path: Path) -> None:
        if group not in self.program.loop_groups:
            raise errors.InternalError(None, None, f"step {self.id} got group {group} in iteration {path}")
        with self.lock:
            activation = self._iterations.pop((group, path), None)
            if activation is None:
                self._early[group, path] = values
        if activation is not None:
            activation.complete(group, values)

    def expect(self, activation: Activation) -> None:
        """An iteration has begun: what came for it early is delivered, what comes later will find it."""
        early = []
        with self.lock:
            for key in activation.level.arrivals:
                if key >= 0:
                    place = (key, activation.path)
                    if place in self._early:
                        early.append((key, self._early.pop(place)))
                    else:
                        self._iterations[place] = activation
        for key, values in early:
            activation.complete(key, values)

    def abort(self, error: errors.OpError) -> None:
        """Ends the step with an error; segments that are running finish and are ignored."""
        with self.lock:
            if not self.is_running and not self.stopped:
                self._aborted = self._aborted or error  # `start` will find it
                return
        self._finish(error)

    fail = abort

    def over(self) -> None:
        error = None
        if self.program.uncertain:
            dead = [i for i, slot in enumerate(self.program.fetches) if self.slots[slot] is DEAD]
            if dead:
                error = dead_fetch(dead[0])
        self._finish(error)

    @property
    def is_over(self) -> bool:
        return self.stopped

    def raise_stopped(self) -> None:
        """Ends a loop whose step has ended meanwhile."""
        raise errors.CancelledError(None, None, f"Step {self.id} has ended.", derived=True)

    @property
    def is_waiting(self) -> bool:
        """Whether something has to come from outside before the step can go on."""
        return bool(self.missing or self._iterations or self.waits)

    def describe_wait(self) -> str:
        """What the step is waiting for, for people."""
        with self.lock:
            groups = [*self.missing, *(group for group, _ in self._iterations)]
            causes = [wait.cause for wait in self.waits]
        waits = ", ".join([*(self.graph.describe_group(g) for g in sorted(groups)), *causes]) or "its own kernels"
        seconds = time.monotonic() - self.started_at
        return f"step {self.id} on {self.worker.task} waits for {waits} for {seconds:.1f} s"

    def _finish(self, error: errors.OpError | None) -> None:
        with self.lock:
            done, self._on_done = self._on_done, None
            if done is None:
                return
            self.stopped, self.is_running = True, False
            waits = list(self.waits)
            self.waits.clear()
            self._iterations.clear()
            self._early.clear()
        for wait in waits:
            wait.cancel()
        values = [] if error is not None else [self.slots[s] for s in self.program.fetches]
        # A run refers to itself, so without this its tensors would live until the next garbage collection. After
        # an error some may still arrive or be computed.
        self.slots = [] if error is None else self.program.template.copy()
        done(error, values)


class StepWait:
    """A node's pending answer: the runtime's side of `graph.waiting.Wait`."""

    __slots__ = ("step", "cause", "_key", "_cancel", "_open")

    def __init__(self, step: Activation, key: int) -> None:
        self.step = step
        self.cause = ""
        self._key = key
        self._cancel: Callable[[], None] | None = None
        self._open = True

    def done(self, result: Any = None) -> None:
        if not self.forget():
            return
        slots = self.step.level.arrivals[self._key][0]
        self.step.complete(self._key, () if not slots else result if type(result) in (tuple, list) else (result,))

    def fail(self, error: errors.OpError) -> None:
        if self.forget():
            run = self.step.run
            run.fail(node_error(error, run.program.waits[self._key], run.worker.task))

    def on_cancel(self, cause: str, cancel: Callable[[], None]) -> bool:
        run = self.step.run
        with run.lock:
            if run.stopped or not self._open:
                return False
            self.cause = f"{cause} (node {run.program.waits[self._key].name})"
            self._cancel = cancel
            run.waits[self] = None
            return True

    def forget(self) -> bool:
        """Ends the wait; False when it has ended already."""
        with self.step.run.lock:
            was_open, self._open = self._open, False
            self._cancel = None
            self.step.run.waits.pop(self, None)
        return was_open

    def cancel(self) -> None:
        """The step has ended: the waiter is told to go."""
        with self.step.run.lock:
            was_open, self._open = self._open, False
            cancel, self._cancel = self._cancel, None
        if was_open and cancel is not None:
            cancel()


class _LoopRun:
    """A loop that is under way."""

    __slots__ = ("outer", "key", "loop", "arguments", "exits", "count")

    def __init__(self, outer: Activation, key: int, loop: WaitingLoop, arguments: tuple[Any, ...]) -> None:
        self.outer = outer
        self.key = key
        self.loop = loop
        self.arguments = arguments
        self.exits: list[Any] = [DEAD] * len(loop.exits)
        self.count = 0

    def iterate(self, before: list[Any] | None) -> None:
        """Begins the next iteration, after one that has left these slots."""
        loop = self.loop
        iteration = self.outer.run.iteration(self, self.outer.path + (self.count,))
        self.count += 1
        slots = iteration.slots
        for slot, value in zip(loop.parameters, self.arguments):
            slots[slot] = value
        if before is None:
            for slot, parameter in loop.initial:
                slots[slot] = slots[parameter]
            for slot, _ in loop.variables[len(loop.initial) :]:
                slots[slot] = DEAD
        else:
            for slot in loop.first_only:
                slots[slot] = DEAD
            for slot, source in loop.variables:
                slots[slot] = before[source]
        ready = [i for i, count in enumerate(iteration.pending) if count == 0]
        self.outer.run.expect(iteration)
        _dispatch(iteration, ready)

    def iteration_over(self, slots: list[Any]) -> None:
        """Goes round again if anything does, or leaves."""
        for i, slot in enumerate(self.loop.exits):
            if slots[slot] is not DEAD:
                self.exits[i] = slots[slot]
        if all(slots[source] is DEAD for _, source in self.loop.variables):
            self.outer.complete(self.key, self.exits)
        else:
            self.iterate(slots)


class Iteration(Activation):
    """One iteration of a loop."""

    __slots__ = ("loop_run", "run")

    def __init__(self, loop_run: _LoopRun, path: Path) -> None:
        super().__init__(loop_run.loop.level, path)
        self.run = loop_run.outer.run
        self.loop_run = loop_run

    def over(self) -> None:
        self.loop_run.iteration_over(self.slots)


StepRun.iteration = Iteration


class _Queue(threading.local):
    """Per thread, the work that waits for the running segment to end; None when none runs."""

    work: collections.deque[tuple[Activation, list[int]]] | None = None


_queue = _Queue()


def _dispatch(activation: Activation, ready: list[int]) -> None:
    """Runs segments and all that they set free, now or when the segment that runs in this thread has ended."""
    if _queue.work is not None:
        _queue.work.append((activation, ready))
    else:
        _drive(activation, ready)


def _drive(activation: Activation, ready: list[int], scheduled: bool = False) -> None:
    """Runs segments now; ``scheduled``: the first one has been given to this thread already."""
    outer = _queue.work
    work = _queue.work = collections.deque([(activation, ready)])
    try:
        while work:
            activation, ready = work.popleft()
            while ready:
                segment = ready.pop()
                if scheduled or not activation.run.worker.schedule(activation, segment):
                    scheduled = False
                    ready.extend(activation.run_segment(segment))
    finally:
        _queue.work = outer
