"""What the latest steps of each session have done on one task, for a master that lost its connection meanwhile."""

from __future__ import annotations

import collections

from tfmini import errors
from tfmini.runtime.executor.partition_run import PartitionRun, StepOutcome

_STEPS, _ENDED_SESSIONS = 50, 2000  # sessions: many clients may end theirs at once, when a link breaks
_FORGOTTEN = (
    "This task has forgotten the session of step {step_id}, which was closed long ago, and does not know which updates"
    " the step has made. The step is not repeated, since an update could be made twice. Go on from the last checkpoint,"
    " or run the step again if that does no harm."
)
_Outcomes = collections.OrderedDict[int, "StepOutcome | PartitionRun"]
"""Step id -> its outcome, or a run that has failed and still computes."""


class StepOutcomes:
    """The outcomes of the latest steps that had updates, per session; also of sessions that were closed lately."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Outcomes] = {}
        self._ended: collections.OrderedDict[str, _Outcomes] = collections.OrderedDict()

    def note(self, run: PartitionRun, outcome: StepOutcome | PartitionRun) -> None:
        """Notes the end of a run that has begun: its outcome, or itself as long as it still computes."""
        session = run.graph.session_handle
        steps = self._ended.get(session)
        if steps is None:
            steps = self._sessions.setdefault(session, collections.OrderedDict())
        steps[run.step_id] = outcome
        if len(steps) > _STEPS:
            steps.popitem(last=False)

    def end_session(self, session: str) -> None:
        """A session was closed; it may be closed again."""
        self._ended.setdefault(session, self._sessions.pop(session, collections.OrderedDict()))
        if len(self._ended) > _ENDED_SESSIONS:
            self._ended.popitem(last=False)

    def of(self, session: str, step_id: int, is_open: bool) -> StepOutcome | PartitionRun:
        """The outcome of a step, or its run while it still computes; a step that has not begun here has done nothing.

        Args:
          is_open: whether the session is open on this task, perhaps without any step so far.

        Raises:
          UnknownError: if the session ended long ago, so that its steps are forgotten.
        """
        steps = self._ended.get(session) or self._sessions.get(session)
        if steps is None and session not in self._ended and not is_open:
            raise errors.UnknownError.of(_FORGOTTEN.format(step_id=step_id))
        return StepOutcome() if steps is None else steps.get(step_id, StepOutcome())
