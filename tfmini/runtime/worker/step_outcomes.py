"""What the latest steps of each session have done on one task, for a master that lost its connection meanwhile."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfmini import errors
from tfmini.runtime.executor.outcome import Outcome
from tfmini.runtime.executor.partition_run import PartitionRun

if TYPE_CHECKING:
    from tfmini.runtime.worker.worker import Worker

_STEPS, _ENDED_SESSIONS = 50, 2000  # sessions: many clients may end theirs at once, when a link breaks
_FORGOTTEN = (
    "This task has forgotten the session of step {step_id}, which was closed long ago, and does not know which updates"
    " the step has made. The step is not repeated, since an update could be made twice. Go on from the last checkpoint,"
    " or run the step again if that does no harm."
)
_Outcomes = collections.OrderedDict[int, "Outcome | PartitionRun"]
"""Step id -> its outcome, or a run that has failed and still computes."""


class StepOutcomes:
    """The outcomes of the latest steps that had updates, per session; also of sessions that were closed lately."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, _Outcomes] = {}
        self._ended: collections.OrderedDict[str, _Outcomes] = collections.OrderedDict()

    def note(self, run: PartitionRun, error: errors.OpError | None) -> None:
        """Notes the end of a run that has begun."""
        outcome: Outcome | PartitionRun = run.graph.complete
        if error is not None:
            outcome = run.outcome() if run.is_settled else run
        session = run.graph.session_handle
        with self._lock:
            steps = self._ended.get(session)
            if steps is None:
                steps = self._sessions.setdefault(session, collections.OrderedDict())
            steps[run.step_id] = outcome
            if len(steps) > _STEPS:
                steps.popitem(last=False)

    def end_session(self, session: str) -> None:
        """A session was closed; it may be closed again."""
        with self._lock:
            self._ended.setdefault(session, self._sessions.pop(session, collections.OrderedDict()))
            if len(self._ended) > _ENDED_SESSIONS:
                self._ended.popitem(last=False)

    def of(self, session: str, step_id: int, is_open: bool) -> Outcome | PartitionRun:
        """The outcome of a step, or its run while it still computes; a step that has not begun here has done nothing.

        Args:
          is_open: whether the session is open on this task, perhaps without any step so far.

        Raises:
          UnknownError: if the session ended long ago, so that its steps are forgotten.
        """
        with self._lock:
            steps = self._ended.get(session) or self._sessions.get(session)
            if steps is None and session not in self._ended and not is_open:
                raise errors.UnknownError.of(_FORGOTTEN.format(step_id=step_id))
            return Outcome() if steps is None else steps.get(step_id, Outcome())


def final_outcome(worker: Worker, session: str, step_id: int, told: Callable[[Outcome], None]) -> None:
    """Calls back with what a step has done on a worker's task.

    The step is aborted if it runs, and cannot begin any more. Nobody knows what a kernel will have done that runs now:
    the call waits for its end.

    Raises:
      UnknownError: see `StepOutcomes.of`.
    """
    worker.abort_step(step_id, errors.CancelledError.of(f"Step {step_id} has failed elsewhere.", derived=True))
    found = worker.outcomes.of(session, step_id, session in worker.sessions)
    if isinstance(found, Outcome):
        told(found)
    else:
        run = found
        run.when_settled(lambda: told(run.outcome()))
