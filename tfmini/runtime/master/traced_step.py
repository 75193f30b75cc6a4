"""A traced step, driven by its master: it reads the clocks, runs the step, and collects the tasks' records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.rpc.calls import Outcome
from tfmini.rpc.fan_out import fan_out
from tfmini.rpc.messages import Logging
from tfmini.runtime.master.plan import Part, Plan
from tfmini.runtime.master.step import OnDone, Step
from tfmini.runtime.trace.clocks import OWN, Alignment, ask_clock
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
        self._values: Sequence[Any] = ()

    def start(self, values: Sequence[Any]) -> None:
        self._values = values
        fan_out({i: partial(ask_clock, part.peer) for i, part in self._remote}, self._run)

    def _run(self, alignments: Mapping[int, Outcome[Alignment | None]]) -> None:
        self._alignments = {i: None if isinstance(found, errors.OpError) else found for i, found in alignments.items()}
        self.log.started = clock()
        super().start(self._values)

    def _finish(self, error: errors.OpError | None, values: list[Any]) -> None:
        self.log.finished = clock()
        if error is not None:
            super()._finish(error, values)
        else:
            fan_out({i: partial(self._collect, part) for i, part in self._remote}, partial(self._collected, values))

    def _collect(self, part: Part, answered: Callable[[Any], None]) -> None:
        part.peer.call(Logging(self.step_id), answered, _COLLECT_TIMEOUT_S, part.incarnation)

    def _collected(self, values: list[Any], answers: Mapping[int, Outcome[Any]]) -> None:
        master = self.session.master
        trace = GatheredTrace(master.default_device, self.log)
        for index, part in enumerate(self.plan.parts):
            answer = answers.get(index)
            if answer is None:
                stats = partial(master.worker.step_stats, self.step_id)
                trace.records.append(TaskRecord(part.task, stats, OWN, index))
            elif isinstance(answer, errors.OpError):
                _log.warning("%s did not report its part of step %d: %s", part.task, self.step_id, answer.message)
            else:
                fed = _bytes(self._values[i] for i in part.feed_indices)
                fetched = _bytes(values[i] for i in part.fetch_indices)
                stats = partial(getattr, answer, "stats")
                trace.records.append(TaskRecord(part.task, stats, self._alignments[index], index, fed, fetched))
        self._on_done(None, values, trace)


def _bytes(values: Iterable[Any]) -> int:
    return sum(int(getattr(value, "nbytes", 0)) for value in values)
