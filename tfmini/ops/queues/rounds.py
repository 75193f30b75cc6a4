"""Rounds of synchronous updates: which workers' gradients make an update, and its application once on each task.

Not in TensorFlow. One `RoundsState` on one task decides: a round has the gradients of the workers that arrive first. A
`RoundGradients` on each task with variables keeps the gradients that arrive, each by generation, round and push of one
worker, until the round is applied there. A step of a worker puts its gradients, arrives, and takes part in the
application: on each task one step leads and the others wait. So no thread and no worker is special.

What can go wrong, and what follows:

* A worker dies before it has arrived: its gradients are in no round. They are dropped when the next round is applied.
* A worker dies after it has arrived: another step applies the round. A step that arrives for the next round while
  this one is not applied everywhere applies it first.
* A worker dies while a task applies a round under its lead: no step of another worker repeats that, since some ops may
  have run. It fails once, and the next round goes on. (The ops of an update are one segment of a program, which no end
  of a step cuts.)
* A task with variables is restarted: it has lost the gradients of a round and the application fails once.
* A push fails, and its worker makes it again: it asks the `RoundsState` to take the failed attempts back. Then either
  none of them will ever count, and the next one drops their gradients; or the round is decided, perhaps with one of
  them, and the next one leaves none. So the tasks keep no more gradients however often a push fails.
* The task with the `RoundsState` is restarted: a new generation begins, and nothing of the earlier ones counts.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tfmini import errors
from tfmini.core_types import Array
from tfmini.dtypes import DType
from tfmini.graph.families import unknown_shapes
from tfmini.graph.node import Node
from tfmini.graph.op_types import DeviceResources, Wait
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.queues.barrier import LockToken
from tfmini.ops.waiting_line import OVER, STUCK, Attempt, WaitingState, find_or_create, own_all, state_op

rounds = state_op(
    """_Rounds() -> handle: resource
    workers: int >= 1
    backup: int >= 0
    container: string = ''
    shared_name: string = ''""",
    [(2,)], on_ps=True,
)  # fmt: skip
rounds_enter = state_op("_RoundsEnter(handle: resource, worker: int32) -> ticket: int64", [(3,)])
rounds_leave = state_op("_RoundsLeave(handle: resource, ticket: int64)", [])
rounds_arrive = state_op(
    """_RoundsArrive(handle: resource, push: int64) -> round: int64, members: int64
    what: string""",
    [(2,), (None, 2)],
)  # fmt: skip
rounds_take_back = state_op("_RoundsTakeBack(handle: resource, push: int64) -> earlier: int64", [()])
rounds_settle = state_op("_RoundsSettle(handle: resource, round: int64)", [])
rounds_late = state_op("_RoundsLate(handle: resource) -> late: int64", [(None,)])

round_gradients = state_op(
    "_RoundGradients() -> handle: resource; container: string = ''; shared_name: string = ''", [(2,)], on_ps=True
)
round_put = state_op(
    "_RoundPut(handle: resource, push: int64, gradients: types); types: list(type) >= 1", [], keeps=True
)
round_lead = state_op(
    "_RoundLead(handle: resource, round: int64, members: int64) -> leads: bool, hold: variant", [(), ()]
)
round_begin = state_op(
    """_RoundBegin(handle: resource, hold: variant) -> gradients: types
    types: list(type) >= 1
    forms: string
    mean: bool = true""",
    unknown_shapes,
)
round_end = state_op("_RoundEnd(handle: resource, hold: variant)", [])

# The letters of ``forms``: a dense gradient; the ids of a sparse one, and its rows.
DENSE, IDS = "d", "i"
SPARSE = f"{IDS}r"
Member = tuple[int, int]  # token, attempt
# What an attempt of a push knows of the ones before it: there are none; none of them will ever count; the round is
# decided, so that this one does not count, and one of those before may.
FIRST, VOID, DECIDED = 0, 1, 2


class Push(NamedTuple):
    """Which push it is: of which life of which worker, and which attempt.

    ``earlier`` says what has become of the attempts before this one: FIRST, VOID or DECIDED.
    """

    generation: int
    round: int
    worker: int
    token: int
    attempt: int
    earlier: int = FIRST

    @property
    def key(self) -> tuple[int, int]:
        return self.generation, self.round

    @property
    def member(self) -> Member:
        return self.token, self.attempt


def _ints(name: str, value: Array, size: int) -> list[int]:
    """The numbers of a vector, which another process may have made."""
    if value.shape != (size,):
        refuse(f"{name} has {size} numbers, not shape {list(value.shape)}")
    return value.tolist()  # type: ignore[no-any-return]


def _push(value: Array) -> Push:
    return Push(*_ints("push", value, len(Push._fields)))


# ---- which gradients make a round ----------------------------------------------------------------------------------


class RoundsState(WaitingState):
    """The decisions about rounds.

    Args:
      name: of the object.
      workers: their number. All are awaited from the beginning, but those who have left.
      backup: how many gradients a round does not wait for.

    Attributes:
      generation: tells the runs apart, also those of earlier incarnations of this task. It grows.
      round: the number of the one that gradients are collected for.
      late: for each worker, how many gradients came after their round was decided.
    """

    def __init__(self, name: str, workers: int, backup: int) -> None:
        super().__init__(1, unordered=(0,))
        self.name, self.workers, self.backup = name, workers, backup
        self.generation = 0
        self._begin()

    def _begin(self) -> None:
        self.generation = max(time.time_ns(), self.generation + 1)
        self.round = 0
        self.late = [0] * self.workers
        self._lives = 0  # of all workers
        self._tokens: dict[int, int] = {}  # of the workers that have entered
        self._left: set[int] = set()
        self._arrived: dict[int, _Arrival] = {}
        self._members: dict[int, Member] = {}  # of the round before, by worker
        self._what = ""  # the arrays of the round before
        self._is_settled = True  # the round before is applied everywhere
        self._counted: dict[int, int] = {}  # token -> the latest round that has a gradient of it
        self._void: dict[int, int] = {}  # token -> the latest attempt that was taken back

    def enter(self, worker: int) -> tuple[int, int, int]:
        """A worker begins, or begins again after a failure: its earlier life counts no more.

        Returns:
          (generation, round, token), which all its calls bring.
        """
        with self.lock:
            self._forget_life(self._tokens.get(worker, 0))
            self._lives += 1
            token = self._tokens[worker] = self._lives << 32 | secrets.randbits(32)  # a later life has a larger one
            self._left.discard(worker)
            self._arrived.pop(worker, None)
            ticket = self.generation, self.round, token
        self.changed()  # which fails what its earlier life waits for
        return ticket

    def leave(self, generation: int, worker: int, token: int) -> None:
        """Nobody waits for a worker any more. When all have left, a generation ends."""
        with self.lock:
            if generation != self.generation or self._tokens.get(worker) != token:
                return
            del self._tokens[worker]
            self._forget_life(token)
            self._left.add(worker)
            if len(self._left) == self.workers:
                self._begin()
        self.changed()

    def _forget_life(self, token: int) -> None:
        self._counted.pop(token, None)
        self._void.pop(token, None)

    def check(self, push: Push) -> None:
        """Refuses a push of another generation or of an earlier life of a worker.

        Raises:
          AbortedError: it is one.
        """
        if not 0 <= push.worker < self.workers:
            refuse(f'there is no worker {push.worker}: "{self.name}" is of workers 0 to {self.workers - 1}')
        if push.generation != self.generation:
            raise errors.AbortedError.of(
                f'The rounds "{self.name}" began anew, for their task was restarted, or all workers had left: make the'
                " store again, and restore a checkpoint."
            )
        if self._tokens.get(push.worker) != push.token:
            raise errors.AbortedError.of(
                f'Another process has entered the rounds "{self.name}" as worker {push.worker}, so this one is out.'
            )

    def arrive(self, wait: Wait, push: Push, what: str) -> None:
        """All gradients of a push are on their tasks. Answers when its round is decided."""
        self.submit(self.lines[0], _Arrival(wait, self, push, what))

    def take_back(self, push: Push) -> int:
        """An attempt has failed at its worker. It and those before it count no more, unless its round is decided.

        Its arrival may still wait, or be on its way: it is refused.

        Returns:
          VOID or DECIDED.

        Raises:
          AbortedError: as `check`.
        """
        with self.lock:
            self.check(push)
            if push.round < self.round:
                return DECIDED
            self._void[push.token] = push.attempt
            arrival = self._arrived.get(push.worker)
            if arrival is not None and self.is_void(arrival.push):
                del self._arrived[push.worker]
        self.changed()  # which fails the arrival
        return VOID

    def is_void(self, push: Push) -> bool:
        """Whether an attempt was taken back."""
        return push.attempt <= self._void.get(push.token, -1)

    def answer(self) -> tuple[Any, ...]:
        """What an arrival learns: the latest round, and whose gradients to apply if that is not done yet."""
        members = [] if self._is_settled else [self._members[worker] for worker in sorted(self._members)]
        latest = np.array([self.generation, self.round - 1], np.int64)
        return latest, np.array(members, np.int64).reshape(-1, 2)

    def note_late(self, push: Push) -> None:
        """Counts a push whose round was decided without it."""
        self.late[push.worker] += push.round < self.round and self._counted.get(push.token) != push.round

    def collect(self, arrival: _Arrival) -> None:
        """Notes an arrival of this round, and decides the round if it is the last one needed."""
        self._refuse_other_arrays(arrival)
        self._arrived[arrival.push.worker] = arrival
        # All but the backup workers; fewer when more have left than that. Not 0: a round has a gradient.
        if len(self._arrived) < max(1, min(self.workers - self.backup, self.workers - len(self._left))):
            return
        self._members = {worker: each.push.member for worker, each in self._arrived.items()}
        self._counted.update((each.push.token, self.round) for each in self._arrived.values())
        self._what, self._is_settled = arrival.what, False
        self._arrived = {}
        self.round += 1

    def _refuse_other_arrays(self, arrival: _Arrival) -> None:
        for worker, other in self._arrived.items():
            if other.what != arrival.what:
                refuse(
                    f"worker {arrival.push.worker} pushes {arrival.what} in round {self.round}, in which worker"
                    f" {worker} pushes {other.what}: the pushes of a round are of the same arrays"
                )

    def forget(self, arrival: _Arrival) -> None:
        """The step of an arrival has ended."""
        if self._arrived.get(arrival.push.worker) is arrival:
            del self._arrived[arrival.push.worker]

    def can_answer(self, what: str) -> bool:
        """Whether a step with these arrays need not wait for one with other arrays to apply the round before."""
        return self._is_settled or what == self._what

    @property
    def is_settled(self) -> bool:
        """Whether all tasks have applied the round before."""
        return self._is_settled

    def unsettled(self) -> str:
        """What those wait for who push other arrays than those of the round before."""
        return (
            f"the update of round {self.round - 1}, of {self._what}; if all workers of that round are lost, push these"
            f' arrays first; in rounds "{self.name}"'
        )

    def settle(self, generation: int, number: int) -> None:
        """All tasks have applied a round."""
        with self.lock:
            self._is_settled |= (generation, number) == (self.generation, self.round - 1)
        self.changed()

    def absent(self) -> list[int]:
        """The workers that this round waits for."""
        return [w for w in range(self.workers) if w not in self._left and w not in self._arrived]

    def clear(self) -> None:
        """Called when the task removes the rounds; fails all waiting ops."""
        self.fail_all(errors.CancelledError.of(f'The rounds "{self.name}" were deleted by a reset of their container.'))


class _Arrival(Attempt):
    """Waits until its round is decided."""

    __slots__ = ("state", "push", "what")

    def __init__(self, wait: Wait, state: RoundsState, push: Push, what: str) -> None:
        super().__init__(wait)
        self.state, self.push, self.what = state, push, what

    def cause(self) -> str:
        if not self.state.can_answer(self.what):
            return self.state.unsettled()
        workers = ", ".join(map(str, self.state.absent()))
        return f'the gradients of workers {workers} for round {self.push.round}, in rounds "{self.state.name}"'

    def advance(self) -> int:
        state = self.state
        state.check(self.push)
        if state.is_void(self.push):
            raise errors.AbortedError.of("This attempt of a push was taken back, for another one is made.")
        if self.push.round > state.round:
            refuse(f'round {self.push.round} is not the next one of "{state.name}": that is {state.round}')
        if not state.can_answer(self.what):
            return STUCK
        if self.push.round == state.round and state.is_settled:  # else it helps with the round before, and comes again
            state.collect(self)
            if self.push.round == state.round:
                return STUCK
        state.note_late(self.push)
        self.result = state.answer()
        return OVER

    def give_back(self) -> None:
        self.state.forget(self)


@rounds.state_kernel("CPU")
def _find(
    resources: DeviceResources, *, container: bytes, shared_name: bytes, node: Node, workers: int, backup: int
) -> RoundsState:
    if backup >= workers:
        refuse(f"backup must be below the number of workers, {workers}: {backup}")
    found = find_or_create(
        resources, container, shared_name, node, "rounds", lambda name: RoundsState(name, workers, backup)
    )
    if (found.workers, found.backup) != (workers, backup):
        refuse(
            f'the rounds "{found.name}" are of {found.workers} workers, {found.backup} of them backup workers; not of'
            f" {workers} and {backup}"
        )
    return found


@rounds_enter.kernel("CPU")
def _enter(state: RoundsState, worker: Array) -> Any:
    if not 0 <= worker < state.workers:
        refuse(f'there is no worker {int(worker)}: "{state.name}" is of workers 0 to {state.workers - 1}')
    return np.array(state.enter(int(worker)), np.int64)


@rounds_leave.kernel("CPU")
def _leave(state: RoundsState, ticket: Array) -> tuple[()]:
    generation, worker, token = _ints("ticket", ticket, 3)
    state.leave(generation, worker, token)
    return ()


@rounds_arrive.async_kernel("CPU")
def _arrive(wait: Wait, state: RoundsState, push: Array, *, what: bytes) -> None:
    state.arrive(wait, _push(push), what.decode())


@rounds_take_back.kernel("CPU")
def _take_back(state: RoundsState, push: Array) -> Any:
    return np.int64(state.take_back(_push(push)))


@rounds_settle.kernel("CPU")
def _settle(state: RoundsState, round: Array) -> tuple[()]:  # noqa: A002 - the op's input
    generation, number = _ints("round", round, 2)
    state.settle(generation, number)
    return ()


@rounds_late.kernel("CPU")
def _late(state: RoundsState) -> Any:
    return np.array(state.late, np.int64)


# ---- the gradients of one task -------------------------------------------------------------------------------------


class RoundGradients(WaitingState):
    """The gradients for the variables of one task, until a step applies their round.

    Attributes:
      done: (generation, round) of the latest round that is over on this task.
      kept: (generation, round) -> member -> the worker and its gradients.
    """

    def __init__(self, name: str) -> None:
        super().__init__(1, unordered=(0,))
        self.name = name
        self.done = (0, -1)
        self.kept: dict[tuple[int, int], dict[Member, tuple[int, tuple[Any, ...]]]] = {}
        self._leads: tuple[int, int] | None = None  # the round that a step applies
        self._members: list[Member] = []  # of that round
        self._has_begun = False
        self._cut: tuple[int, int] | None = None

    def put(self, push: Push, gradients: list[Array]) -> None:
        """Keeps the gradients of a push in place of those that it makes void; drops them if they do not count.

        An attempt makes those before it void, and a life of a worker what the lives before it have left in its round:
        the round was not decided when this life entered. So a worker that dies again and again leaves one gradient.
        """
        if push.earlier == DECIDED:
            return
        own = own_all(gradients)
        with self.lock:
            if push.key <= self.done:
                return
            kept = self.kept.setdefault(push.key, {})
            lives = {member[0] for member, (worker, _) in kept.items() if worker == push.worker}
            if max(lives, default=0) > push.token:
                return
            for token, attempt in list(kept):
                is_void = token == push.token and attempt < push.attempt and push.earlier == VOID
                if is_void or (token in lives and token < push.token):
                    del kept[token, attempt]
            kept[push.member] = push.worker, own

    def lead(self, wait: Wait, key: tuple[int, int], members: list[Member]) -> None:
        """Answers with (True, a hold) the step that is to apply a round, and the others when that is done."""
        self.submit(self.lines[0], _Lead(wait, self, key, members))

    def take_lead(self, key: tuple[int, int], members: list[Member]) -> LockToken | None:
        """The hold of the step that applies a round; None: another step does so.

        Raises:
          AbortedError: the gradients are not here.
        """
        if self._leads is not None:
            return None
        kept = self.kept.get(key, {})
        if not all(member in kept for member in members):
            self._finish(key)
            raise errors.AbortedError.of(
                f"This task has lost gradients of round {key[1]}, for it was restarted. The round changes nothing"
                " here. Restore a checkpoint."
            )
        self._leads, self._members, self._has_begun = key, members, False
        return LockToken(self)

    def begin(self, forms: str, types: Sequence[DType], mean: bool) -> tuple[Any, ...]:
        """The gradients of the round, of all members together, in the order of the workers."""
        wanted = [np.dtype(each.as_numpy_dtype) for each in types]
        with self.lock:
            kept = self.kept[self.leads]
            pushes = [kept[member][1] for member in self._members]
            for push in pushes:
                if [each.dtype for each in push] != wanted or len(forms) != len(wanted):
                    refuse(f"the gradients of a push are {[each.dtype.name for each in push]}, not {list(types)}")
            self._has_begun = True
        return tuple(_joined(form, list(each), mean) for form, each in zip(forms, zip(*pushes)))

    @property
    def leads(self) -> tuple[int, int]:
        """The round that a step applies."""
        if self._leads is None:
            refuse(f'no step applies a round, in "{self.name}"')
        return self._leads

    def end(self) -> None:
        """The step that leads has applied the round."""
        with self.lock:
            self._finish(self.leads)

    def release(self) -> None:
        """The step that leads has ended. If it did not `end` what it has begun, the round is cut."""
        with self.lock:
            key, self._leads = self._leads, None
            if key is not None and self._has_begun and key > self.done:
                self._finish(key)
                self._cut = key
        self.changed()

    def check(self, key: tuple[int, int]) -> None:
        """Tells one step that a round was cut.

        Raises:
          AbortedError: it was.
        """
        if key == self._cut:
            self._cut = None
            raise errors.AbortedError.of(
                f"The update of round {key[1]} was cut on this task, for the step that made it ended. Restore a"
                " checkpoint, or go on if a part of an update does no harm."
            )

    def withdraw(self) -> None:
        """The step that was to lead has ended before it knew."""
        self._leads = None

    def _finish(self, key: tuple[int, int]) -> None:
        self.done = max(self.done, key)
        self.kept = {each: kept for each, kept in self.kept.items() if each > self.done}

    def clear(self) -> None:
        """Called when the task removes it; fails all waiting ops."""
        self.fail_all(errors.CancelledError.of(f'The gradients "{self.name}" were deleted by a reset.'))


def _joined(form: str, values: list[Array], mean: bool) -> Array:
    """The sum or mean of gradients; of sparse ones their ids and rows, which the update sums."""
    shapes = {value.shape if form == DENSE else value.shape[1:] for value in values}
    if len(shapes) != 1 or (form != DENSE and not all(value.ndim for value in values)):
        refuse(f"gradients of one round have shapes {sorted(map(str, shapes))}")
    if form == IDS:
        return np.concatenate(values)
    if form == DENSE:
        total = values[0].copy() if len(values) > 1 or mean else values[0]
        for value in values[1:]:
            total += value
    else:
        total = np.concatenate(values)
    return np.asarray(total / total.dtype.type(len(values)), total.dtype) if mean else np.asarray(total)


class _Lead(Attempt):
    """Waits until it leads a round, or until the round is over."""

    __slots__ = ("state", "key", "members")

    def __init__(self, wait: Wait, state: RoundGradients, key: tuple[int, int], members: list[Member]) -> None:
        super().__init__(wait)
        self.state, self.key, self.members = state, key, members

    def cause(self) -> str:
        return f'the update of round {self.key[1]}, in "{self.state.name}"'

    def advance(self) -> int:
        if self.members:
            self.state.check(self.key)
        if not self.members or self.state.done >= self.key:
            self.result = np.bool_(False), LockToken(None)
            return OVER
        hold = self.state.take_lead(self.key, self.members)
        if hold is None:
            return STUCK
        self.result = np.bool_(True), hold
        return OVER

    def give_back(self) -> None:
        if self.result and self.result[0]:
            self.result[1].abandon()
            self.state.withdraw()


@round_gradients.state_kernel("CPU")
def _find_gradients(resources: DeviceResources, *, container: bytes, shared_name: bytes, node: Node) -> RoundGradients:
    return find_or_create(resources, container, shared_name, node, "round gradients", RoundGradients)


@round_put.kernel("CPU")
def _put(state: RoundGradients, push: Array, gradients: list[Array]) -> tuple[()]:
    state.put(_push(push), gradients)
    return ()


@round_lead.async_kernel("CPU")
def _lead(wait: Wait, state: RoundGradients, round: Array, members: Array) -> None:  # noqa: A002 - the op's input
    generation, number = _ints("round", round, 2)
    if members.ndim != 2 or members.shape[1] != 2:
        refuse(f"members have a token and an attempt each, not shape {list(members.shape)}")
    state.lead(wait, (generation, number), [(token, attempt) for token, attempt in members.tolist()])


@round_begin.kernel("CPU")
def _begin(state: RoundGradients, hold: LockToken, *, types: list[DType], forms: bytes, mean: bool) -> Any:
    return state.begin(forms.decode(), types, mean)


@round_end.kernel("CPU")
def _end(state: RoundGradients, hold: LockToken) -> tuple[()]:
    state.end()
    hold.release()
    return ()
