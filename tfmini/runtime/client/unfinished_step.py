"""A step that a lost connection has cut off: what it has done, and the same step without that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.graph.omission import is_update
from tfmini.rpc.messages import GetStepOutcome
from tfmini.runtime.client.answer import Answer
from tfmini.runtime.executor.outcome import Outcome
from tfmini.runtime.master.step import Step
from tfmini.runtime.worker.step_outcomes import final_outcome

if TYPE_CHECKING:
    from tfmini.runtime.client.session import BaseSession
    from tfmini.runtime.master.plan import Part

_ASK_S = 30.0


class UnfinishedStep:
    """The ``unfinished`` of the error of such a step. Its session may be closed meanwhile."""

    def __init__(self, step: Step) -> None:
        self._session = step.session.handle
        self._master = step.session.master
        self._parts = step.plan.parts
        self._step_id = step.step_id

    def updates_made(self) -> frozenset[str]:
        """Asks all tasks of the step for the updates that the step has made there; a restarted task has none.

        Raises:
          UnavailableError, DeadlineExceededError: when a task does not answer.
          UnknownError: when a task does not know whether it has made an update.
        """
        made: frozenset[str] = frozenset()
        for part in self._parts:
            outcome = self._outcome(part)
            if outcome.uncertain:
                names = ", ".join(sorted(outcome.uncertain))
                raise errors.UnknownError(None, None, (
                    f"Step {self._step_id} was cut off while {part.task} made its updates ({names}), and nobody knows"
                    " which of them it has made. The step is not repeated, since an update could be made twice. Go on"
                    " from the last checkpoint, or run the step again if that does no harm."
                ), task=part.task)  # fmt: skip
            made |= outcome.made
        return made

    def _outcome(self, part: Part) -> Outcome:
        if part.peer is None:
            return final_outcome(self._master.worker, self._session, self._step_id)
        answer: Answer[Any] = Answer(self._master.reactor)
        part.peer.call(
            GetStepOutcome(self._session, self._step_id), answer.answered, timeout_s=_ASK_S,
            incarnation=part.incarnation, wait_for_ready=True,
        )  # fmt: skip
        try:
            found = answer.result()
        except errors.AbortedError:  # another incarnation
            return Outcome()
        return Outcome(frozenset(found.made), frozenset(found.uncertain))


class FinishedStep:
    """The same for a step that has come to its end, before something failed that follows from it."""

    def __init__(self, session: BaseSession, fetches: Any, feed_dict: Any, omitted: frozenset[str]) -> None:
        plan = session._find_call(fetches, feed_dict)[0].plan
        parts = [] if plan is None else plan.parts
        self._updates = frozenset(node.name for part in parts for node in part.nodes if is_update(node)) | omitted

    def updates_made(self) -> frozenset[str]:
        """All updates of the step."""
        return self._updates


def run_without(
    session: BaseSession, updates: frozenset[str], fetches: Any, feed_dict: Any = None, options: Any = None
) -> Any:
    """`Session.run` of a step without some of its updates, which an earlier attempt has made."""
    call, values = session._find_call(fetches, feed_dict)
    plan = call.plan
    call.plan = session._master.prepare(call.signature, omitted=updates)  # type: ignore[call-arg]
    try:
        return call.result(session._execute(call, values, options, None), values)
    finally:
        call.plan = plan
