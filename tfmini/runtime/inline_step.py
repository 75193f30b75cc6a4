"""A step of one task that waits for collectives and for nothing else, run by the thread of its client.

Most of a small all-reduce would be spent on handing its step from state machine to state machine. Here the client's
thread runs what can run, and drives the reactor itself where nothing can.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.rpc.waiter import Waiter
from tfmini.runtime.local_step import LocalStep
from tfmini.runtime.ownership import make_private
from tfmini.runtime.program import Program
from tfmini.runtime.step_errors import kernel_error, node_error

# A longer segment had better leave the sockets to another thread: `step_run` can do that.
_LONG_SEGMENT_S = 0.002
_NAP_S = 0.05  # how soon a thread that sleeps on another process's memory notices that its step has failed


def can_run_inline(program: Program) -> bool:
    """Whether a program waits for all-reduces only."""
    return (
        bool(program.waits)
        and not (program.sends or program.loops or program.loop_groups or program.uncertain)
        and all(key in program.waits for key in program.arrivals)
        and all(node.op == "CollectiveReduce" for node in program.waits.values())
    )


def is_short(program: Program) -> bool:
    """Whether none of its segments keeps a thread busy for long."""
    return all(segment.seconds < _LONG_SEGMENT_S for segment in program.segments)


class InlineStep(LocalStep):
    """One run of such a program.

    Args:
      reactor: what the thread drives while it waits.
      timeout_s: seconds after which the step ends with DeadlineExceededError.
    """

    __slots__ = ("_program", "slots", "_reactor", "_timeout_s", "_waits", "_arrived", "_error", "_waiter", "lock",
                 "has_one_wait")  # fmt: skip

    def __init__(self, program: Program, step_id: int, owner: Any, reactor: Any, timeout_s: float | None) -> None:
        super().__init__(step_id, owner)
        self._program, self._reactor, self._timeout_s = program, reactor, timeout_s
        self.slots = program.template.copy()
        self._waits: dict[InlineWait, None] = {}
        self._arrived: collections.deque[tuple[int, Any]] = collections.deque()
        self._error: errors.OpError | None = None
        self._waiter: Waiter | None = None
        self.lock = Lock()
        self.has_one_wait = len(program.waits) == 1

    def run_program(self, feeds: Sequence[Any]) -> list[Any]:
        """The fetched values.

        Raises:
          OpError: what the step failed with.
        """
        program = self._program
        for slot, value in zip(program.feeds, feeds):
            self.slots[slot] = value
        try:
            with np.errstate(all="ignore"):
                self._run_segments()
        except Exception as error:  # noqa: BLE001 - translated at the boundary of the step
            self._give_up()
            raise kernel_error(error, self.owner.task) from (None if isinstance(error, errors.OpError) else error)
        except BaseException:  # Ctrl-C: nobody will take the result
            self._give_up()
            raise
        values = [self.slots[slot] for slot in program.fetches]
        self.slots = []
        return make_private(values)

    def _run_segments(self) -> None:
        segments, pending = self._program.segments, self._program.pending.copy()
        ready = [i for i, count in enumerate(pending) if count == 0]
        left = len(segments)
        while left:
            while ready:
                segment = segments[ready.pop()]
                begin = time.thread_time()  # to wake another rank may mean to wait for it
                segment.run(self, self.slots)
                segment.note(time.thread_time() - begin)
                left -= 1
                for successor in segment.successors:
                    pending[successor] -= 1
                    if pending[successor] == 0:
                        ready.append(successor)
            if left:
                if not self._arrived:
                    self._wait()
                key, values = self._arrived.popleft()
                slots, index = self._program.arrivals[key]
                for slot, value in zip(slots, values):
                    self.slots[slot] = value
                pending[index] -= 1
                if pending[index] == 0:
                    ready.append(index)

    def _wait(self) -> None:
        """Until something has arrived."""
        deadline = None if self._timeout_s is None else self._reactor.now() + self._timeout_s
        while not self._arrived:
            waiter = self._waiter = Waiter()
            if self._error is not None:
                raise self._error
            if self._arrived:
                break
            if deadline is not None and self._reactor.now() >= deadline:
                raise self._timed_out()
            sleep = next((wait.sleep for wait in list(self._waits)), None)
            if sleep is None or not sleep(_NAP_S if deadline is None else min(_NAP_S, deadline - self._reactor.now())):
                self._reactor.drive(waiter, deadline)
        self._waiter = None

    def _timed_out(self) -> errors.OpError:
        causes = ", ".join(wait.cause for wait in list(self._waits)) or "nothing"
        text = (
            f"Timed out waiting for notification: no result in {self._timeout_s:g} s. step {self.step_id} on"
            f" {self.owner.task} waits for {causes}"
        )
        return errors.DeadlineExceededError(None, None, text)

    def _give_up(self) -> None:
        for wait in list(self._waits):
            wait.cancel()

    def stop(self, why: str) -> None:
        """Ends the step from another thread: its session has been closed."""
        super().stop(why)
        self.fail(errors.CancelledError(None, None, why))

    def fail(self, error: errors.OpError) -> None:
        """Ends the step with an error; the first one counts."""
        self._error = self._error or error
        self.wake()

    def wake(self) -> None:
        """Has the thread look again."""
        waiter = self._waiter
        if waiter is not None:
            waiter.set()

    # ---- for generated code and kernels -----------------------------------------------------

    def begin(self, key: int, kernel: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Starts a kernel that answers later."""
        wait = InlineWait(self, key)
        self._waits[wait] = None
        try:
            kernel(wait, *arguments)
        except BaseException:  # even Ctrl-C: a kernel that never started will never answer
            wait.forget()
            raise

    def arrived(self, key: int, values: Any) -> None:
        """An answer has come."""
        self._arrived.append((key, values))
        self.wake()

    def fail_node(self, key: int, error: errors.OpError) -> None:
        """A node's answer is an error."""
        self.fail(node_error(error, self._program.waits[key], self.owner.task))

    def named(self, key: int) -> str:
        """The name of the node that answers."""
        return self._program.waits[key].name

    def is_open(self, wait: InlineWait) -> bool:
        """Whether an answer is expected."""
        return wait in self._waits

    def ends(self, wait: InlineWait) -> bool:
        """Forgets a wait; False when it has been forgotten already."""
        with self.lock:
            if wait not in self._waits:
                return False
            del self._waits[wait]
        wait.sleep = None  # it refers to the wait, and a cycle would keep the tensors until a collection
        return True


class InlineWait:
    """A node's pending answer (`graph.waiting.PatientWait` where it is the only one)."""

    __slots__ = ("step", "cause", "is_patient", "sleep", "_key", "_cancel")

    def __init__(self, step: InlineStep, key: int) -> None:
        self.step = step
        self.is_patient = step.has_one_wait
        self.sleep: Callable[[float], bool] | None = None
        self.cause = ""
        self._key = key
        self._cancel: Callable[[], None] | None = None

    def offer_sleep(self, sleep: Callable[[float], bool]) -> None:
        self.sleep = sleep if self.step.is_open(self) else None
        self.step.wake()  # the thread may be driving the reactor by now

    def done(self, result: Any = None) -> None:
        if self.step.ends(self):
            self._cancel = None
            self.step.arrived(self._key, result if type(result) in (tuple, list) else (result,))

    def fail(self, error: errors.OpError) -> None:
        if self.step.ends(self):
            self._cancel = None
            self.step.fail_node(self._key, error)

    def on_cancel(self, cause: str, cancel: Callable[[], None]) -> bool:
        self.cause = f"{cause} (node {self.step.named(self._key)})"
        self._cancel = cancel
        return not self.step.stopped

    def forget(self) -> None:
        """The kernel has failed: no answer will come."""
        self._cancel = None
        self.step.ends(self)

    def cancel(self) -> None:
        """The step has ended: who was to answer is told."""
        cancel, self._cancel = self._cancel, None
        if self.step.ends(self) and cancel is not None:
            cancel()
