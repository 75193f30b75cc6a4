"""A traced step, driven by its master: it reads the clocks, runs the step, and collects the tasks' records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.rpc.messages import Logging
from tfmini.runtime.master.plan import Part, Plan
from tfmini.runtime.master.step import OnDone, Step
from tfmini.runtime.trace.clocks import OWN, Alignment, ClockReader
from tfmini.runtime.trace.gathered_trace import GatheredTrace, TaskRecord
from tfmini.runtime.trace.record import StepLog, clock

if TYPE_CHECKING:
    from tfmini.runtime.master.master_session import MasterSession

_log = logging.getLogger("tfmini.runtime")
_COLLECT_TIMEOUT_S = 30.0


class TracedStep(Step):
    """One run of a traced plan."""

    log: StepLog

    def __init__(self, session: MasterSession, plan: Plan, on_done: OnDone, timeout_s: float | None) -> None:
        super().__init__(session, plan, on_done, timeout_s, StepLog())
        self._remote = [(i, part) for i, part in enumerate(plan.parts) if part.graph is None]
        self._alignments: dict[int, Alignment | None] = {}
        self._stats: dict[int, Callable[[], bytes]] = {}
        self._values: Sequence[Any] = ()
        self._left = 0

    def start(self, values: Sequence[Any]) -> None:
        self._values = values
        self._for_all(self._read_clock, self._run)

    def _for_all(self, begin: Callable[[int, Part], None], then: Callable[[], None]) -> None:
        """Begins something with each remote part, and continues when all have answered (see `_one_done`)."""
        self._left, self._then = len(self._remote) + 1, then
        for index, part in self._remote:
            begin(index, part)
        self._one_done()

    def _one_done(self) -> None:
        with self._lock:
            self._left -= 1
            finished = self._left == 0
        if finished:
            self._then()

    def _read_clock(self, index: int, part: Part) -> None:
        def aligned(found: Alignment | None) -> None:
            self._alignments[index] = found
            self._one_done()

        ClockReader(part.peer, aligned).ask()

    def _run(self) -> None:
        self.log.started = clock()
        super().start(self._values)

    def _finish(self, error: errors.OpError | None, values: list[Any]) -> None:
        self.log.finished = clock()
        if error is not None:
            super()._finish(error, values)
        else:
            self._for_all(self._collect, lambda: self._on_done(None, values, self._gathered(values)))

    def _collect(self, index: int, part: Part) -> None:
        def answered(answer: Any) -> None:
            if isinstance(answer, errors.OpError):
                _log.warning("%s did not report its part of step %d: %s", part.task, self.step_id, answer.message)
            else:
                self._stats[index] = lambda: answer.stats
            self._one_done()

        part.peer.call(Logging(self.step_id), answered, _COLLECT_TIMEOUT_S, part.incarnation)

    def _gathered(self, values: list[Any]) -> GatheredTrace:
        master = self.session.master
        trace = GatheredTrace(master.default_device, self.log)
        for index, part in enumerate(self.plan.parts):
            if part.graph is not None:
                stats = partial(master.worker.step_stats, self.step_id)
                trace.records.append(TaskRecord(part.task, stats, OWN, index))
            elif index in self._stats:
                fed = _bytes(self._values[i] for i in part.feed_indices)
                fetched = _bytes(values[i] for i in part.fetch_indices)
                record = TaskRecord(part.task, self._stats[index], self._alignments[index], index, fed, fetched)
                trace.records.append(record)
        return trace


def _bytes(values: Iterable[Any]) -> int:
    return sum(int(getattr(value, "nbytes", 0)) for value in values)
