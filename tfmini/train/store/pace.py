"""The pace of the stores of several workers: bounded staleness, barriers, and updates that all make together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfmini import dtypes
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import control_dependencies, device
from tfmini.ops.array.identity import placeholder
from tfmini.ops.control import no_op
from tfmini.ops.flow.cond import cond
from tfmini.ops.math.comparison import greater
from tfmini.ops.queues.accumulators import ConditionalAccumulator
from tfmini.ops.queues.pace import (
    clock_enter,
    clock_leave,
    clock_tick,
    clock_wait,
    clocks,
    round_end,
    round_enter,
    round_lead,
    round_leave,
    round_read,
    rounds,
)
from tfmini.runtime.client.session import Session
from tfmini.train.store.arrays import ArrayPart, DeclaredArray


class Clocks:
    """The clocks of the workers of one store (`tfmini.ops.queues.pace`), and the ops of one worker on them."""

    def __init__(self, name: str, worker: int, workers: int, staleness: int) -> None:
        handle = clocks(workers=workers, shared_name=name, name="clocks")
        self._handle, self._worker, self._staleness = handle, worker, staleness
        self.enter: Operation = clock_enter(handle, worker, name="enter").op
        self.leave: Operation = clock_leave(handle, worker, name="leave")
        self.meet = self.wait_after([self.tick_after([])])

    def tick_after(self, updates: Sequence[Operation]) -> Operation:
        """Ends a round of this worker."""
        with control_dependencies(updates):
            return clock_tick(self._handle, self._worker, name="tick").op  # type: ignore[no-any-return]

    def wait_after(self, ticks: Sequence[Operation]) -> Operation:
        """Waits until nobody has fallen back too far."""
        with control_dependencies(ticks):
            return clock_wait(self._handle, self._worker, self._staleness, name="pace").op  # type: ignore[no-any-return]


class Rounds:
    """Synchronous updates, by rounds (`tfmini.ops.queues.pace`).

    A push sends its gradients to accumulators beside the arrays and arrives. The step that leads the round takes their
    means, makes the update and ends the round, for which the others wait. No thread and no worker is special.

    Attributes:
      ended: reads how many rounds have ended.
      update, after: of a push: its operation, and how many rounds have ended then.
    """

    def __init__(self, task: str, worker: int, workers: int, backup: int) -> None:
        self._task, self._worker = task, worker
        with device(task):
            self._handle = rounds(workers=workers, spare=backup, shared_name="parameter_store/rounds", name="rounds")
            self.leave: Operation = round_leave(self._handle, worker, name="leave")
            self.ended: Tensor = round_read(self._handle, name="ended")
            self._round = placeholder(dtypes.int64, [], "round")
        self._seen = 0  # the rounds that had ended when this worker got its values
        self._stamps: dict[str, Tensor] = {}  # device -> the placeholder of that number for its accumulators
        self.update: Operation | None = None
        self.after: Tensor

    def add_push(self, arrays: Sequence[DeclaredArray]) -> None:
        """Adds the operation of a push."""
        self._parts = [part for array in arrays for part in array.parts]
        sums = {part: self._accumulator(part) for part in self._parts}
        sent = [sums[part].apply_grad(part.whole, self._stamps[part.variable.device]) for part in self._parts]
        with device(self._task), control_dependencies(sent):
            leads, lead = round_lead(self._handle, self._worker, self._round, name="lead")

        def make_update() -> Operation:
            updates = [_update_of_round(part, sums[part]) for part in self._parts]
            with control_dependencies(updates):
                return round_end(self._handle, lead, name="end")  # type: ignore[no-any-return]

        with device(self._task):
            self.update = cond(leads, make_update, no_op).op
            self._enter = round_enter(self._handle, self._worker, ", ".join(sorted(map(str, arrays))), name="enter")
            with control_dependencies([self.update]):
                self.after = round_read(self._handle, name="after")

    def _accumulator(self, part: ArrayPart) -> ConditionalAccumulator:
        """Where a part's gradients come together."""
        variable = part.variable
        with device(variable.device):
            if variable.device not in self._stamps:
                self._stamps[variable.device] = placeholder(dtypes.int64, [], "stamp")
            return ConditionalAccumulator(part.whole.dtype, variable.shape, f"parameter_store/{variable.op.name}")

    def start(self, session: Session) -> None:
        """Begins the part of this worker. One that was killed and has arrived already waits for the update."""
        ended, has_arrived = session.run(self._enter)
        if has_arrived:
            stale = dict.fromkeys(self._stamps.values(), -1)  # so that the accumulators drop what this step brings
            zeros = {part.whole: np.zeros(part.shape) for part in self._parts}
            self.see(session.run(self.after, {**stale, **zeros, self._round: ended}))

    def see(self, ended: int) -> None:
        """This worker gets values that are of at least so many rounds."""
        self._seen = int(ended)

    @property
    def inputs(self) -> list[Tensor]:
        """The placeholders of a push, beside the gradients."""
        return [*self._stamps.values(), self._round]

    def values(self) -> list[int]:
        """The values of `inputs`."""
        return [self._seen] * (len(self._stamps) + 1)


def _update_of_round(part: ArrayPart, gradients: ConditionalAccumulator) -> Operation:
    """The update of a part by the mean of its gradients.

    There are none where a step has led this round before and was cut after it had taken them.
    """
    with device(part.variable.device):
        has_any = greater(gradients.num_accumulated(), 0)
        done = cond(has_any, lambda: part.updated_by(gradients.take_grad(1)), no_op)
    return done.op  # type: ignore[no-any-return]
