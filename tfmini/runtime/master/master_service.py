"""The master's methods as answers to messages of remote clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.graph.node import Node
from tfmini.protos import RunOptions
from tfmini.rpc import messages as m
from tfmini.runtime.gathered_trace import GatheredTrace
from tfmini.runtime.master.master import (
    Master,
    is_traced,
    open_session,
    parsed,
    run_metadata,
    timeout_seconds,
    wants_metadata,
)
from tfmini.runtime.master.master_session import MasterSession
from tfmini.runtime.master.registration import Plan
from tfmini.runtime.master.step import Step, TraceRequest
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.resources import SessionOwners

if TYPE_CHECKING:
    from tfmini.rpc.calls import Responder
    from tfmini.rpc.peer import Peer

_UNREAD_LIMIT = 1 << 30  # bytes of answers to a client that it has not read


def master_handlers(master: Master, owners: SessionOwners) -> dict[type[Any], Callable[..., Any]]:
    """Message kind -> handler, for `Endpoint.serve`."""
    service = _MasterService(master, owners)
    return {
        m.CreateSession: service.create_session,
        m.ExtendSession: service.answer(service.extend_session),
        m.RunStep: service.run_step,
        m.CloseSession: service.answer(service.close_session),
        m.ListDevices: service.list_devices,
        m.Reset: service.reset,
        m.DescribeWait: service.answer(service.describe_wait),
    }


class _MasterService:
    def __init__(self, master: Master, owners: SessionOwners) -> None:
        self.master = master
        self._owners = owners
        self._run_step = self.answer(self._start_step)

    def answer(self, method: Callable[[MasterSession, Any, Any], None]) -> Callable[[Any, Any, Any], None]:
        """A handler that finds the session and its owner, and answers with the error that a method raises."""

        def handler(peer: Peer, request: Any, respond: Responder) -> None:
            try:
                session = self.master.session(request.session_handle)
                self._owners.check(session.handle, peer)
                method(session, request, respond)
            except errors.OpError as error:
                respond(error)

        return handler

    def create_session(self, peer: Peer, request: m.CreateSession, respond: Responder) -> None:
        self._owners.check_session_limits(peer, self.master.task)
        nodes = [Node.from_wire(fields) for fields in request.graph]

        def opened(error: errors.OpError | None, session: MasterSession | None) -> None:
            if session is None:
                assert error is not None
                respond(error)
                return
            if respond.cancelled:
                session.close()
                respond(errors.CancelledError.of("The session was cancelled by its client."))
                return
            self._owners.adopt(session.handle, peer, session.close)
            session.tasks.at_end(lambda: self._owners.release(session.handle))
            respond(m.CreateSessionReply(session.handle, session.graph_version))

        try:
            open_session(self.master, nodes, SessionOptions.from_bytes(request.config), request.target, opened)
        except errors.OpError as error:
            respond(error)

    def extend_session(self, session: MasterSession, request: m.ExtendSession, respond: Responder) -> None:
        def extended(error: errors.OpError | None) -> None:
            respond(m.ExtendSessionReply(session.graph_version) if error is None else error)

        nodes = [Node.from_wire(fields) for fields in request.graph]
        session.extend_when_known(nodes, extended, request.current_graph_version)

    def run_step(self, peer: Peer, request: m.RunStep, respond: Responder) -> None:
        if peer.backlog > _UNREAD_LIMIT:
            text = f"{peer.backlog} bytes of answers wait for {peer}. Read them before you run another step."
            respond(errors.ResourceExhaustedError.of(text))
        else:
            self._run_step(peer, request, respond)

    def _start_step(self, session: MasterSession, request: m.RunStep, respond: Responder) -> None:
        asked, costs = parsed(request.options), session.options.build_cost_model
        signature = (request.feeds, request.fetches, request.targets)
        cancelled = errors.CancelledError.of("Step was cancelled by its client.")

        plans: list[Plan] = []

        def begun(step: Step) -> None:
            if respond.cancelled:
                raise cancelled
            plans.append(step.plan)
            respond.on_cancel(lambda: step.cancel(cancelled))

        def done(error: errors.OpError | None, found: list[Any], trace: GatheredTrace | None) -> None:
            if error is not None:
                respond(error)
            elif not wants_metadata(asked):
                respond(m.RunStepReply(tuple(found), b""))
            elif not self.master.worker.threads.run_in_pool(_reply, found, asked, plans[0], trace, costs, respond):
                respond(errors.shutting_down(self.master.task))

        limit_s = timeout_seconds(asked)
        session.run(
            signature, request.feed_values, limit_s or session.options.operation_timeout_s, limit_s,
            is_traced(asked), self._trace_request(session, signature), done, begun,
        )  # fmt: skip

    def _trace_request(self, session: MasterSession, signature: Any) -> TraceRequest | None:
        """The open request for a trace, if it wants this step."""
        request = self.master.trace_request
        plan = session.find_plan(signature) if request is not None else None
        return request if request is not None and plan is not None and request.wants(session, plan) else None

    def close_session(self, session: MasterSession, request: m.CloseSession, respond: Responder) -> None:
        self._owners.release(session.handle)
        session.close()
        respond(m.Acknowledged())

    def describe_wait(self, session: MasterSession, request: m.DescribeWait, respond: Responder) -> None:
        signature = (request.feeds, request.fetches, request.targets)
        session.describe_wait(signature, lambda text: respond(m.DescribeWaitReply(text)))

    def list_devices(self, peer: Peer, request: m.ListDevices, respond: Responder) -> None:
        def done(error: errors.OpError | None, devices: list[Any]) -> None:
            if error is not None:
                respond(error)
                return
            respond(m.ListDevicesReply([[d.name, d.device_type, d.memory_limit, d.incarnation] for d in devices]))

        session = self.master.sessions.get(request.session_handle)
        if session is not None:
            self._owners.check(session.handle, peer)
        cluster = session.cluster if session else self.master
        options = session.options if session else SessionOptions()
        cluster.list_devices(done, options.device_filters, options.patience_s)

    def reset(self, peer: Peer, request: m.Reset, respond: Responder) -> None:
        def done(error: errors.OpError | None) -> None:
            respond(error if error is not None else m.Acknowledged())

        self.master.reset(request.containers, request.device_filters, done, peer.describe())


def _reply(
    found: list[Any], options: RunOptions, plan: Any, trace: GatheredTrace | None, with_costs: bool, respond: Responder
) -> None:
    """Answers with a RunMetadata, which takes long for many ops."""
    try:
        metadata = run_metadata(options, plan, trace, with_costs)
        respond(m.RunStepReply(tuple(found), metadata.SerializeToString()))
    except Exception as error:  # noqa: BLE001 - in a pool it would be lost, and the client wait for ever
        text = f"the RunMetadata cannot be made: {type(error).__name__}: {error}"
        respond(errors.InternalError.of(text))


# ---- Requests to trace a step ---------------------------------------------------------------------------------------

_LONGEST_TRACE_S = 600.0


def trace_handlers(master: Master) -> dict[type[Any], Callable[..., Any]]:
    """Message kind -> handler, for `Endpoint.serve`."""

    def trace_step(peer: Peer, asked: m.TraceStep, respond: Responder) -> None:
        request = TraceRequest(lambda error, trace: _answer_trace(master, error, trace, respond))
        if not master.open_trace_request(request):
            respond(errors.UnavailableError.of(f"Another step of {master.task} is being traced; ask again later."))
            return
        seconds = min(max(asked.timeout_ms / 1000, 0.0), _LONGEST_TRACE_S)
        late = errors.DeadlineExceededError.of(
            f"No training step of {master.task} began and ended within {seconds:g} s. Only steps that its own sessions "
            f"run can be traced: choose a worker or the chief."
        )
        request.limit(master.reactor, seconds, late)
        respond.on_cancel(lambda: request.done(errors.CancelledError.of("The request for a trace was cancelled.")))

    return {m.TraceStep: trace_step}


def _answer_trace(
    master: Master, error: errors.OpError | None, trace: GatheredTrace | None, respond: Responder
) -> None:
    master.end_trace_request()
    if trace is None:
        respond(error or errors.InternalError.of("The step has no record."))
    elif not master.worker.threads.run_in_pool(_reply_trace, trace, respond):
        respond(errors.shutting_down(master.task))


def _reply_trace(trace: GatheredTrace, respond: Responder) -> None:
    """Answers with the StepStats, which take long for many ops."""
    try:
        respond(m.TraceStepReply(trace.step_stats().SerializeToString()))
    except Exception as error:  # noqa: BLE001 - in a pool it would be lost, and whoever asked would wait
        respond(errors.InternalError.of(f"The trace cannot be written: {type(error).__name__}: {error}"))
