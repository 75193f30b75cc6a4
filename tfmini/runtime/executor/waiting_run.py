"""Runs that wait for answers of their own nodes: the state that `BlockingRun` and `DataflowRun` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

from tfmini import errors
from tfmini.graph.node import Node
from tfmini.locks import lock
from tfmini.runtime.compiler.kernels import kernel_error, node_error
from tfmini.runtime.compiler.levels import Level
from tfmini.runtime.executor.registered_graph import Aborted, PartitionRun, Path, RegisteredGraph, RunOwner


class WaitingRun(PartitionRun):
    """A run with pending waits.

    Attributes:
      lock: guards the waits and all counters.
      waits: the pending waits that can be cancelled.
      answered: the nodes (by their events) outside loops that have answered.
      started_at: on the clock of its worker.
    """

    __slots__ = ("lock", "waits", "answered", "started_at")

    def __init__(
        self,
        owner: RunOwner,
        graph: RegisteredGraph,
        step_id: int,
        feeds: Sequence[Any],
        timeout_s: float | None = None,
    ) -> None:
        super().__init__(owner, graph, step_id, feeds, timeout_s)
        self.lock = lock("run")
        self.waits: dict[NodeWait, None] = {}
        self.answered: set[int] = set()
        self.started_at = owner.now()

    @property
    def run(self) -> WaitingRun:
        return self

    @property
    def is_patient(self) -> bool:
        """Whether a thread does nothing but wait for the only answer that the program needs."""
        return False

    def wake(self) -> None:
        """Makes a thread that waits for the run look at it again."""

    def missing_groups(self) -> list[int]:
        """The groups that other tasks still have to send."""
        return []

    def awaited(self) -> str:
        groups = sorted(self.missing_groups())
        return " and ".join([*map(self.graph.describe_group, groups), *(wait.cause for wait in list(self.waits))])

    def refuse_answers(self, error: errors.OpError) -> bool:
        with self.lock:  # an answer between the look and the abort would take elements along
            waits = bool(self.waits)
            if waits and not isinstance(self.stopped, Aborted):
                self.stopped = Aborted(error)
        return waits

    def is_computing(self) -> bool:
        """Whether a segment runs or is about to. The caller holds the lock."""
        return True

    def is_stuck_in(self, ops: Set[str]) -> bool:
        with self.lock:
            if self.is_computing() or self.missing_groups():
                return False
            return bool(self.waits) and all(wait.node.op in ops for wait in self.waits)

    def describe_wait(self) -> str:
        awaited, seconds = self.awaited(), self.owner.now() - self.started_at
        return awaited and f"step {self.step_id} on {self.owner.task} waits for {awaited} for {seconds:.1f} s"

    def end_stopped(self, doing: str = "computes") -> None:
        """Ends the run for the reason for which it must end; see `raise_stopped`."""
        try:
            self.raise_stopped(doing)
        except errors.OpError as error:
            self.abort(error)

    def release(self) -> None:
        with self.lock:
            waits = list(self.waits)
            self.waits.clear()
        for wait in waits:
            wait.cancel()


class RunContext:
    """The ``step`` of generated code and of kernels: a whole run, or one iteration of a loop.

    Attributes:
      level: the segments that run.
      path: see `registered_graph.Path`.
    """

    __slots__ = ()
    level: Level
    path: Path

    @property
    def run(self) -> WaitingRun:
        """The run of the whole partition."""
        raise NotImplementedError

    @property
    def step_id(self) -> int:
        return self.run.step_id

    @property
    def owner(self) -> RunOwner:
        return self.run.owner

    def begin(self, key: int, kernel: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Starts an asynchronous kernel; its answer completes the event ``key``."""
        trace = self.run.trace
        if trace is not None:
            trace.begun(key, self.path)
        wait = NodeWait(self, key)
        try:
            kernel(wait, *arguments)
        except BaseException:  # even Ctrl-C: a kernel that did not start will never answer
            wait.forget()
            raise

    def skip(self, key: int) -> None:
        """Completes an event without values, because the node that would answer is dead."""
        self.complete(key, None)

    def complete(self, key: int, values: Sequence[Any] | None) -> bool:
        """An event is complete: a group (0 and up) has arrived or a node (below 0) has answered.

        Returns:
          False if the run is over, or is about to end, and does not take the values.
        """
        raise NotImplementedError


class NodeWait:
    """The pending answer of one node: the runtime's implementation of `graph.op_types.PatientWait`.

    Attributes:
      cause: the event that the node waits for, for people.
      since: when the wait began, on the clock of the worker.
      sleep: a function that waits where the answer comes from, or None.
    """

    __slots__ = ("step", "cause", "since", "sleep", "_run", "_key", "_cancel", "_open")

    def __init__(self, step: RunContext, key: int) -> None:
        self.step = step
        self._run = step.run
        self.cause = ""
        self.since = 0.0
        self.sleep: Callable[[float], bool] | None = None
        self._key = key
        self._cancel: Callable[[], None] | None = None
        self._open = True

    @property
    def is_patient(self) -> bool:
        return self._run.is_patient

    @property
    def node(self) -> Node:
        """The node that waits."""
        return self._run.program.waits[self._key]

    def offer_sleep(self, sleep: Callable[[float], bool]) -> None:
        self.sleep = sleep if self._open else None
        self._run.wake()  # the thread may be driving the reactor by now

    def done(self, result: Any = None) -> bool:
        run = self._run
        is_over = bool(run.stopped)
        if is_over:  # aborted, or its time is up: an element that came now would be lost with the step
            run.end_stopped()
        if not self.forget() or is_over:
            return False
        slots = self.step.level.arrivals[self._key][0]
        values = () if not slots else result if type(result) in (tuple, list) else (result,)
        try:
            is_taken = self.step.complete(self._key, values)
        except Exception as error:  # noqa: BLE001 - it belongs to this step, not to the step of the caller
            run.abort(kernel_error(error, run.owner.task, run.program.waits[self._key]))
            return True
        if not is_taken:
            run.end_stopped()
        return is_taken

    def fail(self, error: errors.OpError) -> bool:
        if not self.forget():
            return False
        run = self._run
        run.abort(node_error(error, run.program.waits[self._key], run.owner.task))
        return True

    def on_cancel(self, cause: str, cancel: Callable[[], None]) -> bool:
        run = self._run
        with run.lock:
            if self._open and not run.stopped:
                self.cause = f"{cause} (node {run.program.waits[self._key].name})"
                self._cancel = cancel
                self.since = run.owner.now()
                run.waits[self] = None
                return True
        if run.stopped:  # by a deadline, perhaps, that has let the run go on as long as it waited for nothing
            run.end_stopped()
        return False

    def forget(self) -> bool:
        """Ends the wait; False when it has ended already."""
        run = self._run
        with run.lock:
            was_open, self._open = self._open, False
            if not self.step.path:
                run.answered.add(self._key)
            # Both refer to the wait: the cycle would keep the tensors until a garbage collection.
            self._cancel = self.sleep = None
            run.waits.pop(self, None)
        return was_open

    def cancel(self) -> None:
        """Ends the wait and tells the kernel that no answer is wanted, because the run is over."""
        cancel = self._cancel
        if self.forget() and cancel is not None:
            cancel()
