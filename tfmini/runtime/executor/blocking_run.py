"""The driver of a partition that waits for all-reduces and nothing else: its caller's thread runs and waits.

Handing a step from thread to thread would take longer than a small all-reduce. Here the client's thread runs the
segments that are ready. Without any it drives the reactor, or sleeps where the other ranks' data arrives.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini import errors
from tfmini.graph.traits import ops_with
from tfmini.rpc.waiter import Waiter
from tfmini.runtime.compiler.kernel_errors import kernel_error
from tfmini.runtime.compiler.program import Program
from tfmini.runtime.executor.partition_run import Deadline, RunOwner
from tfmini.runtime.executor.waiting_run import RunContext, WaitingRun

if TYPE_CHECKING:
    from tfmini.runtime.executor.registered_graph import RegisteredGraph

_NAP_S = 0.05  # the longest sleep outside the reactor: after it, the thread looks whether the run must end
_ALL_REDUCES = ops_with("collective", "all-reduce")


def can_block(program: Program) -> bool:
    """Whether a program waits for all-reduces only."""
    return (
        bool(program.waits)
        and not (program.sends or program.loops or program.loop_groups or program.uncertain)
        and all(key in program.waits for key in program.arrivals)
        and all(node.op in _ALL_REDUCES for node in program.waits.values())
    )


class BlockingRun(WaitingRun, RunContext):
    """A run in its caller's thread, which waits inside `execute`."""

    __slots__ = ("level", "path", "_pending", "_left", "_pooled", "_events", "_waiter")

    def __init__(
        self,
        owner: RunOwner,
        graph: RegisteredGraph,
        step_id: int,
        feeds: Sequence[Any],
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(owner, graph, step_id, feeds, timeout_s)
        self.level, self.path = self.program, ()
        self._pending = self.program.pending.copy()
        self._left = len(self.program.segments)
        self._pooled = 0  # segments that the worker's pool runs
        # For the caller's thread: the key (below 0) and the values of an answer, or a segment that the pool has run.
        self._events: collections.deque[tuple[int, Any]] = collections.deque()
        self._waiter: Waiter | None = None

    @property
    def run(self) -> BlockingRun:
        return self

    @property
    def is_patient(self) -> bool:
        return len(self.program.waits) == 1

    # ---- in the caller's thread -------------------------------------------------------------

    def run_segments(self) -> None:
        ready = [i for i, count in enumerate(self._pending) if count == 0]
        while self._left:
            while ready:
                index = ready.pop()
                if self.program.segments[index].is_long and self.owner.threads.schedule(self, index):
                    self._pooled += 1
                else:
                    self._run_segment(index)
                    self._segment_over(index, ready)
            if self._left:
                if not self._events:
                    self._wait()
                key, values = self._events.popleft()
                if key < 0:
                    self._store(key, values, ready)
                else:
                    self._pooled -= 1
                    self._segment_over(key, ready)

    def _run_segment(self, index: int) -> None:
        segment = self.program.segments[index]
        begin = time.thread_time()  # waking another rank can include a wait for it, which is not the segment's time
        segment.run(self, self.slots)
        segment.note(time.thread_time() - begin)

    def _segment_over(self, index: int, ready: list[int]) -> None:
        self._left -= 1
        for successor in self.program.segments[index].successors:
            self._pending[successor] -= 1
            if self._pending[successor] == 0:
                ready.append(successor)

    def _store(self, key: int, values: Sequence[Any] | None, ready: list[int]) -> None:
        slots, segment = self.program.arrivals[key]
        for slot, value in zip(slots, values or ()):
            self.slots[slot] = value
        self._pending[segment] -= 1
        if self._pending[segment] == 0:
            ready.append(segment)

    def _wait(self) -> None:
        """Waits for an event."""
        end = self.stopped.end if isinstance(self.stopped, Deadline) else None
        reactor = self.owner.reactor
        while not self._events:
            waiter = self._waiter = Waiter()
            if self.stopped:
                self.raise_stopped()
            if self._events:
                break
            # A segment that ends in the pool wakes the reactor only.
            sleep = None if self._pooled else next((wait.sleep for wait in list(self.waits)), None)
            if sleep is None or not sleep(_NAP_S if end is None else min(_NAP_S, max(0.0, end - reactor.now()))):
                reactor.drive(waiter, end)
        self._waiter = None

    def is_computing(self) -> bool:
        return self._waiter is None or bool(self._pooled or self._events)

    # ---- from any thread --------------------------------------------------------------------

    def complete(self, key: int, values: Sequence[Any] | None) -> None:
        if self.trace is not None:
            self.trace.completed(key, self.path, values)
        self._events.append((key, values))
        self.wake()

    def run_later(self, segment: int) -> None:
        """Runs a segment in the worker's pool."""
        try:
            with np.errstate(all="ignore"):
                self._run_segment(segment)
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises ends this run
            self.abort(kernel_error(error, self.owner.task))
            return
        self._events.append((segment, None))
        self.wake()

    def abort(self, error: errors.OpError) -> None:
        super().abort(error)
        self.wake()

    def wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            waiter.set()
