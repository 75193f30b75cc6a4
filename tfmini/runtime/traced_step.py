"""A traced step as its master drives it: read the clocks, run the step, collect what the tasks recorded."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.rpc.messages import Logging
from tfmini.runtime.clocks import OWN, Alignment, ClockReader
from tfmini.runtime.gathered_trace import GatheredTrace, TaskRecord
from tfmini.runtime.plan import Part, Plan
from tfmini.runtime.trace import StepLog, clock

if TYPE_CHECKING:
    from tfmini.runtime.master_session import MasterSession

_log = logging.getLogger("tfmini.runtime")
_COLLECT_TIMEOUT_S = 30.0

OnTraced = Callable[[errors.OpError | None, list[Any], GatheredTrace | None], None]


def run_traced_here(
    session: MasterSession, plan: Plan, values: Sequence[Any], timeout_s: float | None
) -> tuple[list[Any], GatheredTrace]:
    """Runs a traced plan that stays on the master's task; see `MasterSession.run_local`."""
    log = StepLog()
    log.called[0] = log.started
    found, log.step_id = session.run_traced(plan, values, timeout_s)
    log.finished = log.answered[0] = clock()
    worker = session.master.worker
    record = TaskRecord(session.master.task, partial(worker.step_stats, log.step_id), OWN)
    return found, GatheredTrace(session.master.default_device, log, [record])


class TracedStep:
    """One run of a traced plan.

    Args:
      on_done: called once with the error, or with the fetched values and the records.
      in_process: as in `MasterSession.run`.
    """

    def __init__(
        self, session: MasterSession, plan: Plan, on_done: OnTraced, timeout_s: float | None, in_process: bool = False
    ) -> None:
        self.session = session
        self.plan = plan
        self.log = StepLog()
        self._on_done = on_done
        self._timeout_s = timeout_s
        self._in_process = in_process
        self._remote = [(i, part) for i, part in enumerate(plan.parts) if part.graph is None]
        self._alignments: dict[int, Alignment | None] = {}
        self._stats: dict[int, Callable[[], bytes]] = {}
        self._values: Sequence[Any] = ()
        self._found: list[Any] = []
        self._lock = threading.Lock()
        self._left = 0
        self._cancelled: errors.OpError | None = None
        self._cancel: Callable[[errors.OpError], None] | None = None

    def start(self, values: Sequence[Any]) -> None:
        """Begins; ``values`` are one per feed of the plan."""
        self._values = values
        self._for_all(self._read_clock, self._run)

    def cancel(self, error: errors.OpError) -> None:
        """Ends the step for the reason given."""
        with self._lock:
            self._cancelled = self._cancelled or error
            cancel = self._cancel
        if cancel is not None:
            cancel(error)

    def _for_all(self, begin: Callable[[int, Part], None], then: Callable[[], None]) -> None:
        """Does something with each remote part, and goes on when all have answered (see `_one_done`)."""
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
        ClockReader(part.peer, lambda found: self._aligned(index, found)).ask()

    def _aligned(self, index: int, found: Alignment | None) -> None:
        self._alignments[index] = found
        self._one_done()

    def _run(self) -> None:
        if self._cancelled is not None:
            self._on_done(self._cancelled, [], None)
            return
        self.log.started = clock()
        cancel = self.session.run(
            self.plan, self._values, self._ran, self._timeout_s, in_process=self._in_process, log=self.log
        )
        with self._lock:
            self._cancel, late = cancel, self._cancelled
        if late is not None:
            cancel(late)

    def _ran(self, error: errors.OpError | None, values: list[Any]) -> None:
        self.log.finished = clock()
        if error is not None:
            self._on_done(error, [], None)
            return
        self._found = values
        self._for_all(self._collect, self._finish)

    def _collect(self, index: int, part: Part) -> None:
        def answered(answer: Any) -> None:
            if isinstance(answer, errors.OpError):
                _log.warning("%s did not say what it did in step %d: %s", part.task, self.log.step_id, answer.message)
            else:
                self._stats[index] = lambda: answer.stats
            self._one_done()

        part.peer.call(Logging(self.log.step_id), answered, _COLLECT_TIMEOUT_S, part.incarnation)

    def _finish(self) -> None:
        trace = GatheredTrace(self.session.master.default_device, self.log)
        for index, part in enumerate(self.plan.parts):
            if part.graph is not None:
                stats = partial(self.session.master.worker.step_stats, self.log.step_id)
                trace.records.append(TaskRecord(part.task, stats, OWN, index))
            elif index in self._stats:
                fed = _bytes(self._values[i] for i in part.feed_indices)
                fetched = _bytes(self._found[i] for i in part.fetch_indices)
                record = TaskRecord(part.task, self._stats[index], self._alignments[index], index, fed, fetched)
                trace.records.append(record)
        self._on_done(None, self._found, trace)


def _bytes(values: Any) -> int:
    return sum(int(getattr(value, "nbytes", 0)) for value in values)
