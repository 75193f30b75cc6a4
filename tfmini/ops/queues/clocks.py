"""The clocks of workers: how many rounds each has ended, and a wait for the slowest. They bound staleness.

Not in TensorFlow. A worker that has ended ``c`` rounds may go on, with a staleness of ``s``, when each other one has
ended ``c - s`` at least (Ho et al., *More effective distributed ML via a stale synchronous parallel parameter server*,
2013). One object on one task holds all clocks, so a tick and what it allows are one event.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import errors
from tfmini.core_types import Array
from tfmini.graph.node import Node
from tfmini.graph.op_types import DeviceResources, Wait
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.waiting_line import OVER, STUCK, Attempt, WaitingState, find_or_create, state_op

clocks = state_op(
    """_Clocks() -> handle: resource
    workers: int >= 1
    container: string = ''
    shared_name: string = ''""",
    [(2,)], on_ps=True,
)  # fmt: skip
clock_tick = state_op("_ClockTick(handle: resource, worker: int32) -> ended: int64", [()])
clock_wait = state_op("_ClockWait(handle: resource, worker: int32, staleness: int64) -> slowest: int64", [()])
clock_enter = state_op("_ClockEnter(handle: resource, worker: int32) -> ended: int64", [()])
clock_leave = state_op("_ClockLeave(handle: resource, worker: int32)", [])
clock_reach = state_op("_ClockReach(handle: resource, worker: int32, ended: int64)", [])


class ClocksState(WaitingState):
    """How many rounds each worker has ended. Those who have left hold nobody up.

    Args:
      name: of the object.
      workers: their number. All are awaited from the beginning, so nobody runs ahead of one that starts late. One with
        a higher number is awaited from when it enters.
    """

    def __init__(self, name: str, workers: int) -> None:
        super().__init__(1, unordered=(0,))
        self.name = name
        self._first = workers
        self.ended: list[int | None] = [0] * workers

    @property
    def workers(self) -> int:
        """The workers that are known: those of the beginning, and up to the highest one that has joined."""
        return len(self.ended)

    def admit(self, workers: int) -> None:
        """There may be so many workers now."""
        with self.lock:
            self.ended += [None] * (workers - len(self.ended))

    def at(self, worker: int) -> int:
        """The rounds that a worker has ended."""
        ended = self.ended[worker]
        if ended is None:
            refuse(f'worker {worker} has left the clocks "{self.name}"; it must enter again')
        return ended

    def slowest(self) -> int:
        """The rounds that all workers have ended, but those who have left."""
        return min((ended for ended in self.ended if ended is not None), default=0)

    def tick(self, worker: int) -> int:
        """A worker has ended a round; returns how many."""
        with self.lock:
            now = self.ended[worker] = self.at(worker) + 1
        self.changed()
        return now

    def reach(self, worker: int, ended: int) -> None:
        """A worker has ended so many rounds, which may be told twice. One that has left enters again by it."""
        with self.lock:
            self.ended[worker] = max(ended, self.ended[worker] or 0)
        self.changed()

    def enter(self, worker: int) -> int:
        """A worker begins, or begins again after a failure: then it goes on where it was."""
        with self.lock:
            if self.ended[worker] is None:
                self.ended[worker] = self.slowest()
            return self.at(worker)

    def leave(self, worker: int) -> None:
        """Nobody waits for a worker any more. When all have left, the next run begins as the first one did."""
        with self.lock:
            self.ended[worker] = None
            if all(ended is None for ended in self.ended):
                self.ended = [0] * self._first
        self.changed()

    def clear(self) -> None:
        """Called when the task removes the clocks; fails all waiting ops."""
        self.fail_all(errors.CancelledError.of(f'The clocks "{self.name}" were deleted by a reset of their container.'))

    def go_on_when(self, wait: Wait, worker: int, staleness: int) -> None:
        """Answers once no other worker is over ``staleness`` rounds behind."""
        self.at(worker)  # refused here if it has left
        self.submit(self.lines[0], _Pace(wait, self, worker, staleness))


class _Pace(Attempt):
    """Waits until no worker is more than ``staleness`` rounds behind one."""

    __slots__ = ("state", "worker", "staleness")

    def __init__(self, wait: Wait, state: ClocksState, worker: int, staleness: int) -> None:
        super().__init__(wait)
        self.state, self.worker, self.staleness = state, worker, staleness

    def cause(self) -> str:
        ended = self.state.ended
        needed = (ended[self.worker] or 0) - self.staleness
        late = [f"worker {i} ({at} ended)" for i, at in enumerate(ended) if at is not None and at < needed]
        rounds = "1 round" if needed == 1 else f"{needed} rounds"
        return f'{", ".join(late)} to end {rounds}, in clocks "{self.state.name}"'

    def advance(self) -> int:
        slowest = self.state.slowest()
        if slowest < self.state.at(self.worker) - self.staleness:
            return STUCK
        self.result = np.int64(slowest)
        return OVER


@clocks.state_kernel("CPU")
def _find(resources: DeviceResources, *, container: bytes, shared_name: bytes, node: Node, workers: int) -> ClocksState:
    found = find_or_create(resources, container, shared_name, node, "clocks", lambda name: ClocksState(name, workers))
    found.admit(workers)
    return found


def _index(state: ClocksState, worker: Array) -> int:
    index = int(worker)
    if not 0 <= index < state.workers:
        refuse(f'there is no worker {index}: "{state.name}" is of workers 0 to {state.workers - 1}')
    return index


@clock_tick.kernel("CPU")
def _tick(state: ClocksState, worker: Array) -> Any:
    return np.int64(state.tick(_index(state, worker)))


@clock_reach.kernel("CPU")
def _reach(state: ClocksState, worker: Array, ended: Array) -> tuple[()]:
    state.reach(_index(state, worker), int(ended))
    return ()


@clock_wait.async_kernel("CPU")
def _wait(wait: Wait, state: ClocksState, worker: Array, staleness: Array) -> None:
    if staleness < 0:
        refuse(f"staleness must not be negative: {int(staleness)}")
    state.go_on_when(wait, _index(state, worker), int(staleness))


@clock_enter.kernel("CPU")
def _enter(state: ClocksState, worker: Array) -> Any:
    return np.int64(state.enter(_index(state, worker)))


@clock_leave.kernel("CPU")
def _leave(state: ClocksState, worker: Array) -> tuple[()]:
    state.leave(_index(state, worker))
    return ()
