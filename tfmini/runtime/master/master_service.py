"""The master's methods as answers to messages of remote clients."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tfmini import errors
from tfmini.graph.node import Node
from tfmini.rpc import messages as m
from tfmini.runtime.gathered_trace import GatheredTrace
from tfmini.runtime.master import Master
from tfmini.runtime.master_session import MasterSession
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.run_options import is_traced, parsed, run_metadata, timeout_seconds, wants_metadata
from tfmini.runtime.session_cluster import open_session
from tfmini.runtime.session_owners import SessionOwners
from tfmini.runtime.traced_step import TracedStep


def master_handlers(master: Master, owners: SessionOwners) -> dict[type[Any], Callable[..., Any]]:
    """Message kind -> handler, for `Endpoint.serve`."""
    service = _MasterService(master, owners)
    return {
        m.CreateSession: service.create_session,
        m.ExtendSession: service.answer(service.extend_session),
        m.RunStep: service.answer(service.run_step),
        m.MakeCallable: service.answer(service.make_callable),
        m.RunCallable: service.answer(service.run_callable),
        m.ReleaseCallable: service.answer(service.release_callable),
        m.CloseSession: service.answer(service.close_session),
        m.ListDevices: service.answer(service.list_devices),
        m.Reset: service.answer(service.reset),
        m.DescribeWait: service.answer(service.describe_wait),
    }


class _MasterService:
    def __init__(self, master: Master, owners: SessionOwners) -> None:
        self.master = master
        self._owners = owners
        self._callables: dict[int, tuple[str, Any]] = {}
        self._numbers = itertools.count(1)

    @staticmethod
    def answer(method: Callable[[Any, Any], None]) -> Callable[[Any, Any, Any], None]:
        """A handler that answers with the error that a method raises."""

        def handler(peer: Any, request: Any, respond: Any) -> None:
            try:
                method(request, respond)
            except errors.OpError as error:
                respond(error)

        return handler

    def create_session(self, peer: Any, request: m.CreateSession, respond: Any) -> None:
        nodes = [Node.from_wire(fields) for fields in request.graph]

        def opened(error: errors.OpError | None, session: MasterSession | None) -> None:
            if session is None:
                respond(error)
                return
            self._owners.adopt(session.handle, peer, lambda why: self._close(session, why))
            respond(m.CreateSessionReply(session.handle, session.graph_version))

        try:
            open_session(self.master, nodes, SessionOptions.from_bytes(request.config), request.target, opened)
        except errors.OpError as error:
            respond(error)

    def extend_session(self, request: m.ExtendSession, respond: Any) -> None:
        session = self.master.session(request.session_handle)
        if session.graph_version != request.current_graph_version:
            text = f"Current version is {session.graph_version} but caller expected {request.current_graph_version}."
            raise errors.AbortedError(None, None, text)

        def extended(error: errors.OpError | None) -> None:
            respond(m.ExtendSessionReply(session.graph_version) if error is None else error)

        session.extend_when_known([Node.from_wire(fields) for fields in request.graph], extended)

    def run_step(self, request: m.RunStep, respond: Any) -> None:
        session = self.master.session(request.session_handle)
        signature = (request.feeds, request.fetches, request.targets)
        self._run(session, signature, request.feed_values, request.options, respond)

    def make_callable(self, request: m.MakeCallable, respond: Any) -> None:
        session = self.master.session(request.session_handle)
        signature = (request.feeds, request.fetches, request.targets)

        def prepared(error: errors.OpError | None, plan: Any) -> None:
            if error is not None:
                respond(error)
                return
            number = next(self._numbers)
            self._callables[number] = (session.handle, signature)
            respond(m.MakeCallableReply(number))

        session.prepare(signature, prepared)

    def run_callable(self, request: m.RunCallable, respond: Any) -> None:
        found = self._callables.get(request.handle)
        if found is None or found[0] != request.session_handle:
            raise errors.InvalidArgumentError(None, None, f"No such callable handle: {request.handle}")
        session = self.master.session(request.session_handle)
        self._run(session, found[1], request.feed_values, request.options, respond)

    def release_callable(self, request: m.ReleaseCallable, respond: Any) -> None:
        self._callables.pop(request.handle, None)
        respond(m.ReleaseCallableReply())

    def _run(self, session: MasterSession, signature: Any, values: Any, options: bytes, respond: Any) -> None:
        asked = parsed(options)
        timeout = timeout_seconds(asked) or session.options.operation_timeout_s
        traced = is_traced(asked)

        def prepared(error: errors.OpError | None, plan: Any) -> None:
            if error is not None:
                respond(error)
                return

            def done(error: errors.OpError | None, found: list[Any], trace: GatheredTrace | None = None) -> None:
                if error is not None:
                    respond(error)
                elif not wants_metadata(asked):
                    respond(m.RunStepReply(tuple(found), b""))
                elif not self.master.worker.run_in_pool(_reply, found, asked, plan, trace, respond):
                    respond(errors.CancelledError(None, None, f"{self.master.task} is shutting down."))

            cancel: Callable[[errors.OpError], None]
            if traced:
                step = TracedStep(session, plan, done, timeout)
                cancel = step.cancel
                step.start(values)
            else:
                cancel = session.run(plan, values, done, timeout)
            if respond.is_open:
                text = "Step was cancelled by its client."
                respond.on_cancel(lambda: cancel(errors.CancelledError(None, None, text)))

        session.prepare(signature, prepared, traced)

    def close_session(self, request: m.CloseSession, respond: Any) -> None:
        self._owners.release(request.session_handle)
        self._close(self.master.session(request.session_handle))
        respond(m.CloseSessionReply())

    def describe_wait(self, request: m.DescribeWait, respond: Any) -> None:
        session = self.master.session(request.session_handle)
        signature = (request.feeds, request.fetches, request.targets)
        session.describe_wait(signature, lambda text: respond(m.DescribeWaitReply(text)))

    def _close(self, session: MasterSession, why: str = "") -> None:
        session.closed_because = why or session.closed_because
        session.close()
        self._callables = {n: c for n, c in self._callables.items() if c[0] != session.handle}

    def list_devices(self, request: m.ListDevices, respond: Any) -> None:
        def done(devices: list[Any]) -> None:
            respond(m.ListDevicesReply([[d.name, d.device_type, d.memory_limit, d.incarnation] for d in devices]))

        session = self.master.sessions.get(request.session_handle)
        master = session.master if session else self.master
        master.list_devices(done, session.options.device_filters if session else ())

    def reset(self, request: m.Reset, respond: Any) -> None:
        def done(error: errors.OpError | None) -> None:
            respond(error if error is not None else m.ResetReply())

        self.master.reset(request.containers, request.device_filters, done)


def _reply(found: list[Any], options: Any, plan: Any, trace: GatheredTrace | None, respond: Any) -> None:
    """Answers with a RunMetadata, which takes long for many ops."""
    try:
        respond(m.RunStepReply(tuple(found), run_metadata(options, plan, trace).SerializeToString()))
    except Exception as error:  # noqa: BLE001 - in a pool it would be lost, and the client wait for ever
        text = f"the RunMetadata cannot be made: {type(error).__name__}: {error}"
        respond(errors.InternalError(None, None, text))
