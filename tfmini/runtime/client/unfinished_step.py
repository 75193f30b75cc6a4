"""A step that a lost connection has cut off: what it has done, and the same step without that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.graph.node import Endpoint, Nodes
from tfmini.graph.omission import is_update
from tfmini.graph.prune import prune
from tfmini.rpc.messages import GetStepOutcome
from tfmini.rpc.peer import State
from tfmini.runtime.client.answer import Answer
from tfmini.runtime.client.call import Signature
from tfmini.runtime.executor.partition_run import StepOutcome
from tfmini.runtime.master.step import Step

if TYPE_CHECKING:
    from tfmini.runtime.client.session import BaseSession
    from tfmini.runtime.master.plan import Part

_ASK_S = 30.0
_COMPUTES_S = 600.0  # seconds for which a task that answers otherwise may compute on before nobody waits any more


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

    def _outcome(self, part: Part) -> StepOutcome:
        """The outcome of one part. A task that still computes the step answers when it has done so."""
        now, reactor = self._master.worker.now, self._master.reactor
        end = now() + _COMPUTES_S
        while True:
            answer: Answer[StepOutcome] = Answer(reactor)
            self._ask(part, answer)
            try:
                return answer.result(describe=lambda told: told(
                    f"step {self._step_id} was cut off, and {part.task} has not ended its part; its updates must be"
                    " known before the step is repeated"
                ))  # fmt: skip
            except errors.AbortedError:  # another incarnation
                return StepOutcome()
            except errors.DeadlineExceededError:
                if part.peer.state is not State.READY or now() > end:
                    raise

    def _ask(self, part: Part, answer: Answer[StepOutcome]) -> None:
        def answered(reply: Any) -> None:
            if isinstance(reply, errors.OpError):
                answer.done(reply)
            else:
                answer.done(None, StepOutcome(frozenset(reply.made), frozenset(reply.uncertain)))

        if part.peer is None:
            self._master.worker.final_outcome(self._session, self._step_id, lambda found: answer.done(None, found))
            return
        part.peer.call(
            GetStepOutcome(self._session, self._step_id), answered, timeout_s=_ASK_S, incarnation=part.incarnation,
            wait_for_ready=True,
        )  # fmt: skip


class FinishedStep:
    """The same for a step that has come to its end, before something failed that follows from it."""

    def __init__(self, session: BaseSession, fetches: Any, feed_dict: Any, omitted: frozenset[str]) -> None:
        plan = session._find_call(fetches, feed_dict)[0].plan
        parts = [] if plan is None else plan.parts
        nodes = [node for part in parts for node in part.task_graph.nodes.values()]
        self._updates = frozenset(node.name for node in nodes if is_update(node)) | omitted

    def updates_made(self) -> frozenset[str]:
        """All updates of the step."""
        return self._updates


class RemoteStep:
    """The same for a step whose master is in another process, which does not tell what the step has done.

    Args:
      nodes: the nodes of the session's graph, by name.
      what: the event after which nobody knows.
    """

    def __init__(self, nodes: Nodes, signature: Signature, what: str) -> None:
        self._nodes = nodes
        self._signature = signature
        self._what = what

    def updates_made(self) -> frozenset[str]:
        """Nothing for a step without updates.

        Raises:
          UnknownError: for others; it names the tasks and the updates.
        """
        feeds, fetches, targets = self._signature
        needed = prune(self._nodes, [_endpoint(t) for t in fetches], targets, [_endpoint(t) for t in feeds])
        updates = [node for node in needed.values() if is_update(node)]
        if not updates:
            return frozenset()
        places = sorted({node.device or "a task that its master chose" for node in updates})
        names = sorted(node.name for node in updates)
        raise errors.UnknownError(None, None, (
            f"A step was cut off ({self._what}), and nobody knows which of its updates it has made on"
            f" {', '.join(places)}: {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}. Its master is in"
            " another process, which does not tell. The step is not repeated, since an update could be made twice."
            " Go on from the last checkpoint. A script with the target of its own tf.train.Server recovers by itself."
        ))  # fmt: skip


def _endpoint(name: str) -> Endpoint:
    node, _, index = name.rpartition(":")
    return node, int(index)


def of_finished(session: BaseSession, fetches: Any, feed_dict: Any, omitted: frozenset[str]) -> Any:
    """The `FinishedStep` or `RemoteStep` of a step that has come to its end."""
    remote = getattr(session._master, "unknown_step", None)
    if remote is None:
        return FinishedStep(session, fetches, feed_dict, omitted)
    signature = session._find_call(fetches, feed_dict)[0].signature
    return remote(signature, "a hook failed after it")


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
