"""How a session reaches its master: by a call in the same process, or by messages."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from tfmini import errors
from tfmini.graph.node import Node
from tfmini.placement.placer import DeviceAttributes
from tfmini.rpc import messages as m
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.waiter import Waiter
from tfmini.runtime import wait_reports
from tfmini.runtime.fetches import writable
from tfmini.runtime.forks import check_own
from tfmini.runtime.gathered_trace import GatheredTrace
from tfmini.runtime.inline_step import is_short
from tfmini.runtime.master import Master
from tfmini.runtime.master_session import MasterSession
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.run_options import is_traced, run_metadata, timeout_seconds
from tfmini.runtime.session_cluster import open_session
from tfmini.runtime.session_owners import hold
from tfmini.runtime.traced_step import TracedStep, run_traced_here

Signature = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
_TARGET_TIMEOUT_S = 60.0


class MasterClient(Protocol):
    """What a session asks of its master. Every method blocks until it has the answer."""

    def extend(self, nodes: Sequence[Node]) -> None: ...
    def prepare(self, signature: Signature) -> Any: ...
    def run(self, plan: Any, values: list[Any], timeout_s: float | None) -> list[Any]: ...
    def run_with_metadata(self, signature: Signature, values: list[Any], options: Any) -> tuple[list[Any], Any]: ...
    def list_devices(self) -> list[DeviceAttributes]: ...
    def close(self) -> None: ...


class Blocking:
    """Turns a callback into a wait: the waiting thread drives the reactor itself."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._waiter = Waiter() if reactor is not None else None
        self._event = threading.Event() if reactor is None else None
        self.error: errors.OpError | None = None
        self.value: Any = None

    def done(self, error: errors.OpError | None, value: Any = None) -> None:
        """The callback: keeps the outcome and ends the wait."""
        self.error, self.value = error, value
        if self._waiter is not None:
            self._waiter.set()
        if self._event is not None:
            self._event.set()

    def answered(self, answer: Any) -> None:
        """The callback of an rpc call."""
        if isinstance(answer, errors.OpError):
            self.done(answer)
        else:
            self.done(None, answer)

    def result(
        self, timeout_s: float | None = None, expire: Callable[[], None] | None = None,
        describe: wait_reports.Describe | None = None,
    ) -> Any:  # fmt: skip
        """Waits, then returns the value or raises the error.

        Args:
          timeout_s, expire: without a reactor, which has timers of its own: what to call when, so that
            the outcome comes.
          describe: tells what is waited for, when that takes long.
        """
        if self._waiter is not None and not self._waiter.done:
            self._wait(None, describe)
        # Without a network the wait is for another thread of this process.
        if self._event is not None and not self._wait(timeout_s, describe) and expire is not None:
            expire()
            self._event.wait()
        if self.error is not None:
            raise self.error
        return self.value

    def _wait(self, limit_s: float | None, describe: wait_reports.Describe | None) -> bool:
        """Whether the outcome came within the limit; says what is waited for after 10 s, 20 s, 40 s…"""
        if describe is None:
            return self._sleep(limit_s)
        waited, pause = 0.0, wait_reports.FIRST_S
        while limit_s is None or waited < limit_s:
            if self._sleep(pause if limit_s is None else min(pause, limit_s - waited)):
                return True
            waited += pause
            pause = waited
            if limit_s is None or waited < limit_s:
                wait_reports.report(describe, self._reactor, waited, self._is_done)
        return False

    def _sleep(self, seconds: float | None) -> bool:
        if self._waiter is None:
            assert self._event is not None
            return self._event.wait(seconds)
        return self._reactor.drive(  # type: ignore[no-any-return]
            self._waiter, None if seconds is None else self._reactor.now() + seconds
        )

    def _is_done(self) -> bool:
        return self._event.is_set() if self._event is not None else self._waiter.done  # type: ignore[union-attr]


class DirectMaster:
    """A master in this process: plain calls, and no message for what stays on its task."""

    def __init__(self, master: Master, options: SessionOptions, target: str = "") -> None:
        self._master = master
        self._target = target
        self._options = options
        self._session: MasterSession | None = None
        self._pid = os.getpid() if master.reactor is not None else 0  # 0: any process may go on with its copy

    @property
    def session(self) -> MasterSession:
        """The master session, opened at the first use."""
        if self._session is None:
            self._check_own()
            wait = Blocking(self._master.reactor)
            open_session(self._master, (), self._options, self._target, wait.done)
            self._session = wait.result()
        return self._session

    def extend(self, nodes: Sequence[Node]) -> None:
        wait = Blocking(self._master.reactor)
        self.session.extend_when_known(nodes, wait.done)
        wait.result()

    def prepare(self, signature: Signature, traced: bool = False) -> Any:
        self._check()
        plan = self.session.find_plan(signature, traced)
        if plan is None:
            wait = Blocking(self._master.reactor)
            self.session.prepare(signature, wait.done, traced)
            plan = wait.result()
        return plan

    def run(self, plan: Any, values: list[Any], timeout_s: float | None) -> list[Any]:
        session = self._session
        assert session is not None
        if session.closed or self._pid and self._pid != os.getpid():
            self._check()
        timeout_s = timeout_s or session.options.operation_timeout_s
        if plan.local is not None and (not plan.is_inline or is_short(plan.local.graph.program)):
            return session.run_local(plan, values, timeout_s)
        wait = Blocking(self._master.reactor)
        cancel = session.run(plan, values, wait.done, timeout_s, in_process=True)
        return [writable(v) for v in self._result(wait, cancel, timeout_s)]

    def _result(self, wait: Blocking, cancel: Callable[[errors.OpError], None], timeout_s: float | None) -> Any:
        """Waits for a step that is under way."""
        session = self._session
        assert session is not None
        describe = getattr(cancel, "describe", None)
        try:
            return wait.result(timeout_s, partial(session.expire, cancel, timeout_s), describe)
        except errors.OpError:
            raise
        except BaseException:
            # Ctrl-C in the middle of a step: nobody will take its result.
            if describe is not None:
                wait_reports.report_interrupt(describe, self._master.reactor)
            cancel(errors.CancelledError(None, None, "Step was cancelled by an interrupt of its client."))
            raise

    def run_with_metadata(self, signature: Signature, values: list[Any], options: Any) -> tuple[list[Any], Any]:
        """Runs a step as RunOptions ask for it; returns the values and the RunMetadata."""
        timeout_s = timeout_seconds(options) or self._options.operation_timeout_s
        traced = is_traced(options)
        plan = self.prepare(signature, traced)
        if traced:
            found, trace = self._run_traced(plan, values, timeout_s)
        else:
            found, trace = self.run(plan, values, timeout_s), None
        return found, run_metadata(options, plan, trace)

    def _run_traced(
        self, plan: Any, values: list[Any], timeout_s: float | None
    ) -> tuple[list[Any], GatheredTrace | None]:
        session = self._session
        assert session is not None
        if plan.local is not None:
            return run_traced_here(session, plan, values, timeout_s)
        wait = Blocking(self._master.reactor)
        step = TracedStep(
            session, plan, lambda error, found, trace: wait.done(error, (found, trace)), timeout_s, in_process=True
        )
        step.start(values)
        found, trace = self._result(wait, step.cancel, timeout_s)
        return [writable(v) for v in found], trace

    def _check_own(self) -> None:
        if self._pid:
            check_own(self._pid, f"This session of {self._master.worker.task}")

    def _check(self) -> None:
        self._check_own()
        session = self._session
        if session is not None and session.closed:
            if self._master.sessions.get(session.handle) is None and not session.closed_because.startswith("Step was"):
                raise errors.AbortedError(None, None, session.closed_because)
            raise errors.AbortedError(None, None, f"Session {session.handle} is not found.")

    def list_devices(self) -> list[DeviceAttributes]:
        self._check_own()
        wait = Blocking(self._master.reactor)
        master = self.session.master if self._options.cluster else self._master
        master.list_devices(lambda devices: wait.done(None, devices), self._options.device_filters)
        return wait.result()  # type: ignore[no-any-return]

    def close(self) -> None:
        if self._session is not None and self._pid in (0, os.getpid()):
            self._session.close()


_client: list[Endpoint] = []
_client_pid = 0
_client_lock = threading.Lock()


def _after_fork() -> None:
    global _client_lock
    _client_lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def client_endpoint() -> Endpoint:
    """The endpoint of this process's sessions that have remote masters; a forked child gets its own."""
    global _client_pid
    with _client_lock:
        if not _client or _client[0].closed or _client_pid != os.getpid():
            _client_pid = os.getpid()
            _client[:] = [Endpoint(get_reactor(), "", secrets.randbits(63))]
        return _client[0]


class RemoteMaster:
    """A master in another process."""

    def __init__(self, address: str, config: bytes, options: SessionOptions) -> None:
        self._peer = client_endpoint().peer(address)
        self._pid = os.getpid()
        self._address = address
        self._config = config
        self._options = options
        self._handle = ""
        self._let_go: Callable[[], None] = lambda: None
        self._version = 0
        self._timeout_s = options.operation_timeout_s or min(options.connect_timeout_s, _TARGET_TIMEOUT_S)

    def _call(
        self, request: m.Message, timeout_s: float | None = None, first: bool = False,
        describe: wait_reports.Describe | None = None,
    ) -> Any:  # fmt: skip
        check_own(self._pid, f"This session with {self._address}")
        wait = Blocking(get_reactor())
        handle = self._peer.call(request, wait.answered, timeout_s=timeout_s, wait_for_ready=first)
        try:
            return wait.result(describe=describe)
        except errors.DeadlineExceededError as error:
            if first:
                text = (
                    f"{error.message} Nobody answers at {self._address} ({self._peer.why or self._peer.state.value})."
                    " Start a tf.train.Server there, or correct the session's target."
                )
                raise errors.UnavailableError(None, None, text) from None
            raise
        except errors.OpError:
            raise
        except BaseException:
            if describe is not None:
                wait_reports.report_interrupt(describe, get_reactor())
            handle.cancel()  # an interrupt: the master should not go on for nobody
            raise

    def _run_step(self, request: m.RunStep) -> m.RunStepReply:
        question = m.DescribeWait(self._handle, request.feeds, request.fetches, request.targets)

        def describe(told: wait_reports.Told) -> None:
            def answered(answer: Any) -> None:
                told("" if isinstance(answer, errors.OpError) else answer.text)

            self._peer.call(question, answered, timeout_s=wait_reports.ASK_S + 1.0)

        return self._call(request, describe=describe)  # type: ignore[no-any-return]

    def extend(self, nodes: Sequence[Node]) -> None:
        graph = [n.to_wire() for n in nodes]
        if not self._handle:
            request = m.CreateSession(graph, self._config, self._address)
            reply = self._call(request, self._timeout_s, first=True)
            self._handle, self._version = reply.session_handle, reply.graph_version
            self._let_go = hold(self._peer)
        else:
            reply = self._call(m.ExtendSession(self._handle, graph, self._version))
            self._version = reply.new_graph_version

    def prepare(self, signature: Signature) -> Any:
        return signature

    def run(self, plan: Any, values: list[Any], timeout_s: float | None) -> list[Any]:
        feeds, fetches, targets = plan
        options = b""
        if timeout_s is not None:
            from tfmini import protos

            options = protos.RunOptions(timeout_in_ms=max(1, round(timeout_s * 1000))).SerializeToString()
        request = m.RunStep(self._handle, feeds, tuple(values), fetches, targets, options)
        return [writable(v) for v in self._run_step(request).values]

    def run_with_metadata(self, signature: Signature, values: list[Any], options: Any) -> tuple[list[Any], Any]:
        from tfmini import protos

        feeds, fetches, targets = signature
        data = options.SerializeToString()
        reply = self._run_step(m.RunStep(self._handle, feeds, tuple(values), fetches, targets, data))
        return [writable(v) for v in reply.values], protos.RunMetadata.FromString(reply.metadata)

    def list_devices(self) -> list[DeviceAttributes]:
        reply = self._call(m.ListDevices(self._handle), self._timeout_s, first=True)
        return [DeviceAttributes(*fields) for fields in reply.devices]

    def close(self) -> None:
        if self._handle and self._pid == os.getpid():
            handle, self._handle = self._handle, ""
            self._let_go()
            try:
                self._call(m.CloseSession(handle), 10.0)
            except (errors.UnavailableError, errors.AbortedError, errors.DeadlineExceededError):
                return  # a master that is gone has no session either
