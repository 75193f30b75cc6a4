"""A request from outside to trace one step of a task's master: which step that is, and the answer.

While there is no request, a step costs one look at an attribute of the master. Only one request is open at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.graph.node import Node
from tfmini.graph.prune import training_ops
from tfmini.locks import Once
from tfmini.rpc.messages import TraceStep, TraceStepReply
from tfmini.rpc.waiter import Clock
from tfmini.runtime.gathered_trace import GatheredTrace

if TYPE_CHECKING:
    from tfmini.rpc.calls import Responder
    from tfmini.rpc.peer import Peer
    from tfmini.runtime.master.master import Master
    from tfmini.runtime.master.master_session import MasterSession
    from tfmini.runtime.master.registration import Plan

_MOST_S = 600.0


def trains(step: Iterable[Node], graph: Iterable[Node]) -> bool:
    """Whether a step runs one of the `training_ops` of its graph. In a graph that has none every step counts.

    Args:
      step: the nodes that the step runs.
      graph: all nodes of the session.
    """
    wanted = training_ops({node.op for node in graph})
    return not wanted or not wanted.isdisjoint({node.op for node in step})


class TraceRequest:
    """One request.

    Args:
      answer: called once, with the error or the record of the step.

    Attributes:
      timer: of its deadline; it would keep the plans that the request has seen.
    """

    def __init__(self, answer: Callable[[errors.OpError | None, GatheredTrace | None], None]) -> None:
        self._answer = answer
        self.timer: Any = None
        self._taken, self._over = Once(), Once()
        self._trains: dict[int, tuple[Plan, bool]] = {}  # by the plan's identity, with the plan to keep it alive

    def wants(self, session: MasterSession, plan: Plan) -> bool:
        """Whether this run of a plan is the one to trace; True once."""
        if self._taken.is_over or not (plan.fetches or plan.targets):
            return False
        signature = plan.feeds, plan.fetches, plan.targets
        if session.find_plan(signature) is not plan:  # one that leaves out updates; the traced plan would make them
            return False
        if id(plan) not in self._trains:
            nodes = [node for part in plan.parts for node in part.task_graph.nodes.values()]
            self._trains[id(plan)] = plan, trains(nodes, list(session.nodes.values()))
        return self._trains[id(plan)][1] and self._taken()

    def limit(self, reactor: Clock, seconds: float, late: errors.OpError) -> None:
        """Sets the deadline of a request that may be over by now."""
        self.timer = reactor.call_later(seconds, self.done, late)
        if self._over.is_over:
            self.timer.cancel()

    def done(self, error: errors.OpError | None, trace: GatheredTrace | None = None) -> bool:
        """Answers, unless that has been done."""
        self._taken()
        is_first = self._over()
        if is_first:
            if self.timer is not None:
                self.timer.cancel()
            self._answer(error, trace)
        return is_first


def trace_handlers(master: Master) -> dict[type[Any], Callable[..., Any]]:
    """Message kind -> handler, for `Endpoint.serve`."""

    def trace_step(peer: Peer, asked: TraceStep, respond: Responder) -> None:
        request = TraceRequest(lambda error, trace: _answer(master, error, trace, respond))
        if not master.open_trace_request(request):
            respond(errors.UnavailableError.of(f"Another step of {master.task} is being traced; ask again later."))
            return
        seconds = min(max(asked.timeout_ms / 1000, 0.0), _MOST_S)
        late = errors.DeadlineExceededError.of(
            f"No training step of {master.task} began and ended within {seconds:g} s. Only steps that its own sessions "
            f"run can be traced: choose a worker or the chief."
        )
        request.limit(master.reactor, seconds, late)
        respond.on_cancel(lambda: request.done(errors.CancelledError.of("The request for a trace was cancelled.")))

    return {TraceStep: trace_step}


def _answer(master: Master, error: errors.OpError | None, trace: GatheredTrace | None, respond: Responder) -> None:
    master.trace_request = None
    if trace is None:
        respond(error or errors.InternalError.of("The step has no record."))
    elif not master.worker.threads.run_in_pool(_reply, trace, respond):
        respond(errors.shutting_down(master.task))


def _reply(trace: GatheredTrace, respond: Responder) -> None:
    """Answers with the StepStats, which take long for many ops."""
    try:
        respond(TraceStepReply(trace.step_stats().SerializeToString()))
    except Exception as error:  # noqa: BLE001 - in a pool it would be lost, and whoever asked would wait
        respond(errors.InternalError.of(f"The trace cannot be written: {type(error).__name__}: {error}"))
