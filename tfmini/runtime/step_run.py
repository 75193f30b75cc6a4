"""One step on one task: which segments may run, what has arrived, and how it ends.

A `StepRun` is told of events (start, a group has arrived, abort) and answers with segments to
run; whoever delivers the event runs them. It never waits: between events it is a few counters.
A tensor may arrive before the step has started here; the worker then makes the run early and
`deliver` only stores.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tfmini import errors
from tfmini.runtime.codegen import NODE_LINES
from tfmini.runtime.program import Program

Done = Callable[[errors.OpError | None, list[Any]], None]


class StepOwner(Protocol):
    """What a running step needs of its worker."""

    task: str

    def send_group(self, run: StepRun, group: int, values: tuple[Any, ...]) -> None: ...
    def schedule(self, run: StepRun, segment: int) -> bool: ...


class StepRun:
    """The state of one step of a program.

    Attributes:
      step_id: the step's number, unique in the cluster.
      state: per-step state of kernels that need some (temporary variables, tensor arrays…).
    """

    __slots__ = ("owner", "graph", "program", "step_id", "slots", "started_at", "missing", "state",
                 "_pending", "_left", "_lock", "_on_done", "_started", "_aborted")  # fmt: skip

    def __init__(self, owner: StepOwner, graph: Any, step_id: int) -> None:
        program: Program = graph.program
        self.owner = owner
        self.graph = graph
        self.program = program
        self.step_id = step_id
        self.slots = program.template.copy()
        self.state: dict[str, Any] = {}
        self.missing = set(program.groups)
        self.started_at = 0.0
        self._pending = program.pending.copy()
        self._left = len(program.segments)
        self._lock = threading.Lock()
        self._on_done: Done | None = None
        self._started = False
        self._aborted: errors.OpError | None = None

    def start(self, feeds: Sequence[Any], on_done: Done) -> None:
        """Runs what can run; ``on_done(error, fetched values)`` is called once, now or later."""
        for slot, value in zip(self.program.feeds, feeds):
            self.slots[slot] = value
        self.started_at = time.monotonic()
        with self._lock:
            self._on_done = on_done
            self._started = True
            aborted = self._aborted
            ready = [i for i, count in enumerate(self._pending) if count == 0]
            finished = self._left == 0
        if aborted is not None or finished:
            self._finish(aborted)
            return
        self._run_all(ready)

    def deliver(self, group: int, values: Sequence[Any]) -> None:
        """Stores a group of tensors from another task and runs what that sets free."""
        entry = self.program.groups.get(group)
        if entry is None:
            raise errors.InternalError(None, None, f"step {self.step_id} got group {group}, which it does not expect")
        slots, segment = entry
        with self._lock:
            if group not in self.missing:
                raise errors.InternalError(None, None, f"step {self.step_id} got group {group} twice")
            self.missing.discard(group)
            for slot, value in zip(slots, values, strict=True):
                self.slots[slot] = value
            self._pending[segment] -= 1
            ready = self._started and self._on_done is not None and self._pending[segment] == 0
        if ready:
            self._run_all([segment])

    def abort(self, error: errors.OpError) -> None:
        """Ends the step with an error; segments that are running finish and are ignored."""
        with self._lock:
            if not self._started:
                self._aborted = self._aborted or error  # `start` will find it
                return
        self._finish(error)

    @property
    def is_over(self) -> bool:
        return self._started and self._on_done is None

    def describe_wait(self) -> str:
        """What the step is waiting for, for people."""
        waits = ", ".join(self.graph.describe_group(g) for g in sorted(self.missing)) or "nothing"
        seconds = time.monotonic() - self.started_at
        return f"step {self.step_id} on {self.owner.task} waits for {waits} for {seconds:.1f} s"

    # ---- for generated code -----------------------------------------------------------------

    def send(self, group: int, values: tuple[Any, ...]) -> None:
        """Called by a segment as soon as a group is complete."""
        self.owner.send_group(self, group, values)

    # ---- running ----------------------------------------------------------------------------

    def _run_all(self, ready: list[int]) -> None:
        while ready:
            segment = ready.pop()
            if not self.owner.schedule(self, segment):
                ready.extend(self.run_segment(segment))

    def run_later(self, segment: int) -> None:
        """Runs a segment that was handed to a thread pool, and what it sets free."""
        self._run_all(self.run_segment(segment))

    def run_segment(self, index: int) -> list[int]:
        """Runs one segment; returns the segments that are ready now."""
        if self._on_done is None:
            return []
        segment = self.program.segments[index]
        begin = time.perf_counter()
        try:
            with np.errstate(all="ignore"):
                segment.run(self, self.slots)
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises ends this step, not the server
            self._finish(kernel_error(error, self.owner.task))
            return []
        segment.seconds += 0.25 * (time.perf_counter() - begin - segment.seconds)
        ready = []
        with self._lock:
            for successor in segment.successors:
                self._pending[successor] -= 1
                if self._pending[successor] == 0:
                    ready.append(successor)
            self._left -= 1
            finished = self._left == 0
        if finished:
            self._finish(None)
        return ready

    def _finish(self, error: errors.OpError | None) -> None:
        with self._lock:
            done, self._on_done = self._on_done, None
        if done is not None:
            done(error, [] if error is not None else [self.slots[s] for s in self.program.fetches])


def private(program: Program, values: Sequence[Any]) -> list[Any]:
    """Fetched values that their receiver may change: arrays of variables and constants are copied."""
    return [
        value.copy()
        if isinstance(value, np.ndarray) and (copy or value.base is not None or not value.flags.writeable)
        else value
        for value, copy in zip(values, program.copies)
    ]


def run_simple(program: Program, feeds: Sequence[Any], step: Any, task: str) -> list[Any]:
    """Runs a program of one segment as a function call: the whole of a local step.

    Raises:
      OpError: what the failing kernel gave.
    """
    slots = program.template.copy()
    for slot, value in zip(program.feeds, feeds):
        slots[slot] = value
    try:
        with np.errstate(all="ignore"):
            for segment in program.segments:
                segment.run(step, slots)
    except Exception as error:  # noqa: BLE001 - translated at the boundary of the step
        raise kernel_error(error, task) from (None if isinstance(error, errors.OpError) else error)
    return private(program, [slots[s] for s in program.fetches])


def failing_node(error: BaseException) -> Any:
    """The node whose line of generated code raised, or None."""
    trace = error.__traceback__
    while trace is not None:
        lines = trace.tb_frame.f_globals.get(NODE_LINES, {}).get(trace.tb_frame.f_code.co_filename)
        if lines is not None and trace.tb_lineno < len(lines) + 1:
            return lines[trace.tb_lineno]
        trace = trace.tb_next
    return None


def kernel_error(error: Exception, task: str) -> errors.OpError:
    """What a kernel raised, as TensorFlow's error with the node named."""
    node = failing_node(error)
    if isinstance(error, errors.OpError):
        code, message = error.error_code, error.message
    elif isinstance(error, MemoryError):
        code, message = errors.RESOURCE_EXHAUSTED, f"out of memory: {error}"
    elif isinstance(error, (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError)):
        code, message = errors.INVALID_ARGUMENT, f"{error}"
    else:
        code, message = errors.INTERNAL, f"{type(error).__name__}: {error}"
    name = node.name if node is not None else ""
    if name and "[[" not in message:
        message = f"{message}\n\t [[{{{{node {name}}}}}]]"
    device = node.device if node is not None else ""
    return errors.from_code(code, message, node_name=name, device=device, task=task)
