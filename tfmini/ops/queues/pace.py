"""The pace of workers that share parameters: clocks, which bound staleness, and rounds, which make them go together.

Not in TensorFlow. A worker whose *clock* stands at ``c`` may go on, with a staleness of ``s``, when each other clock
stands at ``c - s`` at least (Ho et al., *More effective distributed ML via a stale synchronous parallel parameter
server*, 2013). In a *round* each worker arrives with its gradients; when enough have arrived, one of their steps leads:
it makes the update and ends the round, which answers the others. If that step ends without, another one leads.

One object on one task holds the clocks or the round of all workers, so an event and what it allows are one.
"""

from __future__ import annotations

from _thread import start_new_thread
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
rounds = state_op(
    """_Rounds() -> handle: resource
    workers: int >= 1
    spare: int >= 0
    container: string = ''
    shared_name: string = ''""",
    [(2,)], on_ps=True,
)  # fmt: skip
round_enter = state_op(
    "_RoundEnter(handle: resource, worker: int32, what: string) -> ended: int64, has_arrived: bool", [(), ()]
)
round_leave = state_op("_RoundLeave(handle: resource, worker: int32)", [])
round_lead = state_op(
    "_RoundLead(handle: resource, worker: int32, ended: int64) -> leads: bool, lead: variant", [(), ()]
)
round_end = state_op("_RoundEnd(handle: resource, lead: variant)", [])
round_read = state_op("_RoundRead(handle: resource) -> ended: int64", [()])


# ---- clocks --------------------------------------------------------------------------------------------------------


class ClocksState(WaitingState):
    """How many rounds each worker has ended. Those who have left hold nobody up.

    Args:
      name: of the object.
      workers: their number. All are awaited from the beginning, so nobody runs ahead of one that starts late.
    """

    def __init__(self, name: str, workers: int) -> None:
        super().__init__(1, unordered=(0,))
        self.name, self.workers = name, workers
        self.ended: list[int | None] = [0] * workers

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
                self.ended = [0] * self.workers
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
        late = [f"{i} (has ended {at})" for i, at in enumerate(ended) if at is not None and at < needed]
        return f'workers {", ".join(late)} to end {needed} rounds, in clocks "{self.state.name}"'

    def advance(self) -> int:
        slowest = self.state.slowest()
        if slowest < self.state.at(self.worker) - self.staleness:
            return STUCK
        self.result = np.int64(slowest)
        return OVER


@clocks.state_kernel("CPU")
def _find(resources: DeviceResources, *, container: bytes, shared_name: bytes, node: Node, workers: int) -> ClocksState:
    found = find_or_create(resources, container, shared_name, node, "clocks", lambda name: ClocksState(name, workers))
    if found.workers != workers:
        refuse(f'the clocks "{found.name}" are of {found.workers} workers, not of {workers}')
    return found


def _index(state: ClocksState | RoundsState, worker: Array) -> int:
    index = int(worker)
    if not 0 <= index < state.workers:
        refuse(f'there is no worker {index}: "{state.name}" is of workers 0 to {state.workers - 1}')
    return index


@clock_tick.kernel("CPU")
def _tick(state: ClocksState, worker: Array) -> Any:
    return np.int64(state.tick(_index(state, worker)))


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


# ---- rounds --------------------------------------------------------------------------------------------------------


class Lead:
    """Of the step that leads a round. If it is lost, because the step has ended, another one leads."""

    __slots__ = ("_state",)

    def __init__(self, state: RoundsState | None) -> None:
        self._state = state

    def take(self) -> RoundsState | None:
        """The rounds, once."""
        state, self._state = self._state, None
        return state

    def __del__(self) -> None:
        # As `LockToken.__del__`: the garbage collector calls this, perhaps under locks of other steps.
        state = self.take()
        if state is None:
            return
        try:
            start_new_thread(state.lead_again, ())
        except RuntimeError:  # the interpreter ends, or there are too many threads
            state.lead_again()


class RoundsState(WaitingState):
    """The rounds of some workers.

    Args:
      name: of the object.
      workers: their number. All are awaited from the beginning.
      spare: how many of them a round does not wait for.

    Attributes:
      ended: how many rounds have ended.
      present: the workers that have not left.
      arrived: those whose gradients of this round are here.
    """

    def __init__(self, name: str, workers: int, spare: int) -> None:
        super().__init__(1, unordered=(0,))
        self.name, self.workers, self.spare = name, workers, spare
        self.what = b""
        self.ended = 0
        self.present = set(range(workers))
        self.arrived: set[int] = set()
        self.has_leader = False

    def is_complete(self) -> bool:
        """Whether enough workers have arrived."""
        return len(self.arrived & self.present) >= max(1, len(self.present) - self.spare)

    def enter(self, worker: int, what: bytes) -> tuple[int, bool]:
        """A worker begins, or begins again.

        Args:
          what: what an update changes, which is the same for all.

        Returns:
          The rounds that have ended, and whether the worker has arrived in this one.
        """
        with self.lock:
            self.what = self.what or what
            if self.what != what:
                refuse(f'an update of "{self.name}" changes {self.what.decode()}; worker {worker} has {what.decode()}')
            self.present.add(worker)
            return self.ended, worker in self.arrived

    def arrive(self, wait: Wait, worker: int, ended: int) -> None:
        """The gradients of a worker are here, unless the round is over. Answers then, or when this step is to lead.

        Raises:
          AbortedError: it has seen more rounds than this object, so the task has restarted.
        """
        with self.lock:
            if ended > self.ended:
                raise errors.AbortedError.of(
                    f'worker {worker} has seen {ended} rounds of "{self.name}", which has ended {self.ended}: its task'
                    " has restarted. Make the store again."
                )
            if ended == self.ended:
                self.arrived.add(worker)
        self.submit(self.lines[0], _Arrival(wait, self, ended))

    def leave(self, worker: int) -> None:
        """Nobody waits for a worker any more."""
        with self.lock:
            self.present.discard(worker)
        self.changed()

    def end(self) -> None:
        """The leader has made the update."""
        with self.lock:
            self.ended += 1
            self.arrived.clear()
            self.has_leader = False
        self.changed()

    def lead_again(self) -> None:
        """The leader has ended without."""
        with self.lock:
            self.has_leader = False
        self.changed()


class _Arrival(Attempt):
    """Waits until the round has ended, or until its step is the one to lead it."""

    __slots__ = ("state", "round")

    def __init__(self, wait: Wait, state: RoundsState, round: int) -> None:
        super().__init__(wait)
        self.state, self.round = state, round

    def cause(self) -> str:
        state = self.state
        missing = ", ".join(map(str, sorted(state.present - state.arrived)))
        what = f"the gradients of workers {missing}" if missing and not state.is_complete() else "the update"
        return f'{what} for round {self.round} of "{state.name}"'

    def advance(self) -> int:
        state = self.state
        if state.ended > self.round:
            self.result = np.bool_(False), Lead(None)
            return OVER
        if state.has_leader or not state.is_complete():
            return STUCK
        state.has_leader = True
        self.result = np.bool_(True), Lead(state)
        return OVER

    def give_back(self) -> None:
        if self.result != () and self.result[1].take() is not None:
            self.state.has_leader = False


@rounds.state_kernel("CPU")
def _find_rounds(
    resources: DeviceResources, *, container: bytes, shared_name: bytes, node: Node, workers: int, spare: int
) -> RoundsState:
    found = find_or_create(
        resources, container, shared_name, node, "rounds", lambda name: RoundsState(name, workers, spare)
    )
    if (found.workers, found.spare) != (workers, spare):
        refuse(
            f'the rounds "{found.name}" are of {found.workers} workers, {found.spare} of them spare, not of {workers}'
            f" and {spare}"
        )
    return found


@round_enter.kernel("CPU")
def _enter_rounds(state: RoundsState, worker: Array, what: bytes) -> Any:
    ended, has_arrived = state.enter(_index(state, worker), what)
    return np.int64(ended), np.bool_(has_arrived)


@round_leave.kernel("CPU")
def _leave_rounds(state: RoundsState, worker: Array) -> tuple[()]:
    state.leave(_index(state, worker))
    return ()


@round_lead.async_kernel("CPU")
def _lead(wait: Wait, state: RoundsState, worker: Array, ended: Array) -> None:
    state.arrive(wait, _index(state, worker), int(ended))


@round_end.kernel("CPU")
def _end(state: RoundsState, lead: Lead) -> tuple[()]:
    if lead.take() is None:
        refuse(f'this step does not lead the rounds "{state.name}"')
    state.end()
    return ()


@round_read.kernel("CPU")
def _ended(state: RoundsState) -> Any:
    return np.int64(state.ended)
