"""The pace of the stores of several workers: bounded staleness, barriers, and updates that all make together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tfmini.dtypes import int64
from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import control_dependencies, device
from tfmini.ops.array.identity import placeholder
from tfmini.ops.control import no_op
from tfmini.ops.flow.cond import cond
from tfmini.ops.queues.clocks import clock_enter, clock_leave, clock_reach, clock_tick, clock_wait, clocks
from tfmini.ops.queues.rounds import (
    DENSE,
    FIRST,
    SPARSE,
    VOID,
    Push,
    round_begin,
    round_end,
    round_gradients,
    round_lead,
    round_put,
    rounds,
    rounds_arrive,
    rounds_enter,
    rounds_late,
    rounds_leave,
    rounds_settle,
    rounds_take_back,
)
from tfmini.runtime.client.session import Session
from tfmini.train.sessions import readiness
from tfmini.train.store.arrays import ROWS, ArrayPart, Pushed


def check_pace(staleness: int | None, backup: int, workers: int, worker: int) -> None:
    """Refuses arguments of a store that make no sense together.

    Raises:
      ValueError: they do not.
    """
    for name, value in {"staleness": staleness or 0, "backup": backup, "workers": workers, "worker": worker}.items():
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise ValueError(f"{name} must be a whole number: {value!r}")
    if staleness is not None and staleness < 0:
        raise ValueError(f"staleness must be None, 0 or a number of rounds: {staleness}")
    if workers < 1:
        raise ValueError(f"workers must be at least 1: {workers}")
    if backup and staleness != 0:
        raise ValueError("backup is for synchronous updates: staleness=0")
    if not 0 <= backup < workers:
        raise ValueError(f"backup must be below the number of workers, {workers}: {backup}")
    if not 0 <= worker < workers:
        raise ValueError(f"worker must be in [0, {workers}): {worker}. Say workers= and worker=.")


class Clocks:
    """The clocks of the workers of one store (`tfmini.ops.queues.clocks`), and the ops of one worker on them."""

    def __init__(self, name: str, worker: int, workers: int, staleness: int) -> None:
        handle = clocks(workers=workers, shared_name=name, name="clocks")
        self._handle, self._worker, self._staleness = handle, worker, staleness
        self.enter: Tensor = clock_enter(handle, worker, name="enter")  # the rounds that it has ended
        self.leave: Operation = clock_leave(handle, worker, name="leave")

    def tick_after(self, updates: Sequence[Operation]) -> Operation:
        """Ends a round of this worker."""
        with control_dependencies(updates):
            return clock_tick(self._handle, self._worker, name="tick").op  # type: ignore[no-any-return]

    def reach(self, ended: Tensor) -> Operation:
        """This worker has ended so many rounds. That may be told again, after an error."""
        return clock_reach(self._handle, self._worker, ended, name="reach")  # type: ignore[no-any-return]

    def wait_after(self, ticks: Sequence[Operation]) -> Operation:
        """Waits until nobody has fallen back too far."""
        with control_dependencies(ticks):
            return clock_wait(self._handle, self._worker, self._staleness, name="pace").op  # type: ignore[no-any-return]


class Meeting:
    """The barrier of the stores of several workers: clocks without staleness. Each meeting is a round."""

    def __init__(self, clocks: Clocks) -> None:
        self._round = placeholder(int64, [], "round")
        self._met = clocks.wait_after([clocks.reach(self._round)])
        self.ended = 0

    def wait(self, session: Session) -> None:
        """Waits until all have come. After an error it is the same meeting that is waited for."""
        session.run(self._met, {self._round: self.ended + 1})
        self.ended += 1


class Rounds:
    """Synchronous updates (`tfmini.ops.queues.rounds`), and the ops of one worker for them.

    Args:
      task: the device name of the task that decides.
      adds: whether an update is the sum of the gradients; else it is made of their mean.

    Attributes:
      push: the placeholder of a `Push`, which tells the rounds whose gradients come.
      enter, leave: what the begin and the end of this worker run.
      late: how many gradients of each worker came too late.
    """

    def __init__(self, task: str, worker: int, workers: int, backup: int, adds: bool) -> None:
        self._task, self._worker, self._adds = task, worker, adds
        self._turn = threading.Lock()  # a worker makes one push at a time
        with device(task):
            handle = rounds(workers=workers, backup=backup, shared_name="parameter_store/rounds", name="rounds")
            self._handle = handle
            self.enter: Tensor = rounds_enter(handle, worker, name="enter")
            self._ticket = placeholder(int64, [3], "ticket")
            self.leave: Operation = rounds_leave(handle, self._ticket, name="leave")
            self.late: Tensor = rounds_late(handle, name="late")
            self._failed = placeholder(int64, [len(Push._fields)], "failed")
            self._earlier: Tensor = rounds_take_back(handle, self._failed, name="take_back")
        self.push = placeholder(int64, [len(Push._fields)], "round")
        self._gradients: dict[str, Tensor] = {}  # task -> its gradients
        self._mine = Push(0, 0, worker, 0, 0)
        self._has_failed = False  # whether nobody knows if the latest attempt counts

    def begin(self, ticket: Any) -> None:
        """Begins the part of this worker, with what ``enter`` gave it."""
        if np.size(ticket):  # the inspector runs nothing
            generation, number, token = ticket.tolist()
            self._mine = Push(generation, number, self._worker, token, 0)

    def end(self, session: Session) -> None:
        """Ends the part of this worker."""
        session.run(self.leave, {self._ticket: [self._mine.generation, self._worker, self._mine.token]})

    def add_push(self, pushed: Sequence[Pushed]) -> tuple[dict[str, Operation], Operation, Tensor]:
        """The ops of a push.

        Returns:
          for each task with arrays of the push the op after which its update is done; the last op; the round that the
          step has applied, which `take_part` reads.
        """
        tasks: dict[str, list[tuple[ArrayPart, str]]] = {}
        for array, form in pushed:
            for part in array.parts:
                tasks.setdefault(part.variable.device, []).append((part, form))
        puts = [self._put(task, parts) for task, parts in tasks.items()]
        what = ", ".join(f"'{array.name}'{' (rows)' if form == ROWS else ''}" for array, form in pushed)
        with device(self._task), control_dependencies(puts):
            number, members = rounds_arrive(self._handle, self.push, what=what, name="arrive")
        done = {task: self._update(task, parts, number, members) for task, parts in tasks.items()}
        with device(self._task), control_dependencies(list(done.values())):
            settled: Operation = rounds_settle(self._handle, number, name="settle")
        return done, settled, number

    def _put(self, task: str, parts: Sequence[tuple[ArrayPart, str]]) -> Operation:
        with device(task):
            if task not in self._gradients:
                self._gradients[task] = round_gradients(shared_name="parameter_store/gradients", name="gradients")
            values = [each for part, form in parts for each in part.values(form)]
            return round_put(self._gradients[task], self.push, values, name="put")  # type: ignore[no-any-return]

    def _update(self, task: str, parts: Sequence[tuple[ArrayPart, str]], number: Tensor, members: Tensor) -> Operation:
        """Applies the round on one task, if no other step does so."""
        gradients = self._gradients[task]
        with device(task):
            leads, hold = round_lead(gradients, number, members, name="lead")

            def apply() -> Operation:
                types = [t for part, form in parts for t in ([int64] if form == ROWS else []) + [part.whole.dtype]]
                forms = "".join(SPARSE if form == ROWS else DENSE for _, form in parts)
                found = iter(round_begin(gradients, hold, types=types, forms=forms, mean=not self._adds, name="begin"))
                updates = [part.updated_by(_taken(part, form, found)) for part, form in parts]
                with control_dependencies(updates):
                    return round_end(gradients, hold, name="end")  # type: ignore[no-any-return]

            return cond(leads, apply, no_op).op  # type: ignore[no-any-return]

    def take_part(self, session: Session, call: Callable[..., Any], feeds: Sequence[Any]) -> Sequence[Any]:
        """Makes a push, and returns the values that the call reads. A push that failed may be made again."""
        with self._turn:
            if self._has_failed:
                earlier = session.run(self._earlier, {self._failed: self._mine})
                self._mine = self._mine._replace(earlier=int(earlier))
            self._has_failed = True  # until an answer comes; Ctrl-C counts, too
            values = self._push(call, feeds)
            self._has_failed = False
            return values

    def _push(self, call: Callable[..., Any], feeds: Sequence[Any]) -> Sequence[Any]:
        while True:
            self._mine = self._mine._replace(attempt=self._mine.attempt + 1)
            _, values, latest = call(*feeds, np.array(self._mine, np.int64))
            ended, mine = int(latest[1]), self._mine.round
            if ended >= mine:
                self._mine = self._mine._replace(round=ended + 1, earlier=FIRST)
                return values  # type: ignore[no-any-return]
            # This step has applied the round before, which was left. Its gradients were in no round.
            self._mine = self._mine._replace(round=ended + 1, earlier=VOID)


class Leaving:
    """A worker whose process is told to end while the ``with`` block of its store runs (`readiness`).

    It finishes its call, or the shard that a loop has in hand, and then leaves the block. So nobody waits for it, and
    no other worker repeats what it has done.
    """

    def __init__(self) -> None:
        self._may_leave = False
        self._in_hand = 0

    def begin(self) -> None:
        """The block begins."""
        self._may_leave = readiness.begin()

    def check(self) -> None:
        """Leaves the block.

        Raises:
          SystemExit, KeyboardInterrupt: the process was told to end, and no loop has a shard in hand.
        """
        if self._may_leave and not self._in_hand and readiness.is_wanted():
            raise readiness.left()

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """A loop has a shard in hand."""
        self._in_hand += 1
        try:
            yield
        finally:
            self._in_hand -= 1

    @contextmanager
    def ending(self, well: bool) -> Iterator[None]:
        """The block ends, without an error or with one, and closes its store meanwhile."""
        if self._may_leave:
            readiness.last_step_is_over()
        try:
            yield
        finally:
            may_leave, self._may_leave = self._may_leave, False
            if may_leave:
                readiness.end()
        if well and may_leave and readiness.is_wanted():
            raise readiness.left()


def _taken(part: ArrayPart, form: str, values: Any) -> Any:
    """The gradient of a part, from the outputs of ``_RoundBegin``."""
    if form != ROWS:
        dense = next(values)
        dense.set_shape(part.variable.shape)
        return dense
    ids, rows = next(values), next(values)
    ids.set_shape([None])
    rows.set_shape([None, *part.shape[1:]])
    return IndexedSlices(rows, ids)
