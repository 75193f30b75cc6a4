"""How a session reaches its master: by a call in the same process, or by messages."""

from __future__ import annotations

import contextlib
import copy
import os
import sys
from _thread import start_new_thread
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tfmini import errors
from tfmini.graph.node import Node, Nodes
from tfmini.locks import lock
from tfmini.placement.placer import DeviceAttributes
from tfmini.protos import RunOptions
from tfmini.rpc import messages as m
from tfmini.rpc.calls import CallHandle
from tfmini.rpc.endpoint import Endpoint
from tfmini.rpc.fan_out import FanOut
from tfmini.rpc.peer import State
from tfmini.runtime import process as this_process
from tfmini.runtime.client.answer import Answer, Describe, PendingAnswers, report_interrupt
from tfmini.runtime.client.call import RemoteStep, UnfinishedStep
from tfmini.runtime.client.fetches import writable
from tfmini.runtime.gathered_trace import GatheredTrace
from tfmini.runtime.master.master import Master, is_traced, open_session, run_metadata, timeout_seconds
from tfmini.runtime.master.master_session import CLOSED_BY_CLIENT, MasterSession
from tfmini.runtime.master.registration import Plan, Signature
from tfmini.runtime.master.step import ASK_S, OnDone, Step, Told
from tfmini.runtime.options import SessionOptions, check_own
from tfmini.runtime.process import address_of_target, current_process
from tfmini.runtime.resources import hold

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer


TARGET_TIMEOUT_S = 60.0
_ANSWER_S = 10.0
_GRACE_S = 1.0  # a master that answers ends a step at its deadline, and says better what it waited for


class MasterClient(Protocol):
    """What a session asks of its master. Every method blocks until it has the answer."""

    def extend(self, nodes: Sequence[Node], timeout_s: float | None = None) -> None: ...
    def prepare(self, signature: Signature, timeout_s: float | None = None) -> Any: ...
    def run(self, plan: Any, values: list[Any], timeout_s: float | None) -> list[Any]: ...
    def run_with_metadata(
        self, signature: Signature, values: list[Any], options: RunOptions
    ) -> tuple[list[Any], Any]: ...
    def list_devices(self) -> list[DeviceAttributes]: ...
    def close(self) -> None: ...

    def drop(self) -> None:
        """Closes a session that nobody has any more. A garbage collection calls it, in any thread and at any moment:
        it takes no lock and waits for nobody, and hands the rest over to another thread."""


class DirectMaster:
    """A master in this process: plain calls, and no message for what stays on its task."""

    def __init__(self, master: Master, options: SessionOptions, target: str = "") -> None:
        self.master = master
        self._target = target
        self._options = options
        self._session: MasterSession | None = None
        self._version = 0  # of the graph, as far as this client has waited for it
        self._opening = lock("client open")
        self._pending = PendingAnswers(master.reactor, _closed)
        self._pid = os.getpid() if master.reactor is not None else 0  # 0: any process may go on with its copy

    @property
    def session(self) -> MasterSession:
        """The master session, opened at the first use."""
        if self._session is None:
            self._check_own()
            with self._opening:
                if self._session is None:
                    self._open()
        session = self._session
        assert session is not None
        return session

    def _open(self) -> None:
        with self._pending.new() as answer:

            def opened(error: errors.OpError | None, session: MasterSession | None) -> None:
                def keep() -> None:
                    self._session = session

                is_late = not self._pending.unless_over(keep)
                if is_late and session is not None:
                    session.close()
                answer.done(_closed() if is_late else error)

            open_session(self.master, (), self._options, self._target, opened, in_process=True)
            answer.result(describe=_describe_listing)

    def extend(self, nodes: Sequence[Node], timeout_s: float | None = None) -> None:
        with self._pending.new() as answer:
            session = self.session
            session.extend_when_known(nodes, answer.done, self._version)
            answer.result(describe=_describe_extension)
            self._version = session.graph_version

    def prepare(
        self, signature: Signature, timeout_s: float | None = None, omitted: frozenset[str] = frozenset()
    ) -> Plan:
        self._check()
        plan = None if omitted else self.session.find_plan(signature)
        if plan is None:
            answer: Answer[Plan] = Answer(self.master.reactor)
            self.session.prepare(signature, answer.done, False, timeout_s, omitted)
            plan = answer.result()
        return plan

    def run(self, plan: Any, values: list[Any], timeout_s: float | None) -> list[Any]:
        session = self._session
        assert session is not None
        if session.book.closed or self._pid and self._pid != os.getpid():
            self._check()
        timeout_s = timeout_s or session.options.operation_timeout_s
        request = self.master.trace_request
        if request is not None and request.wants(session, plan):
            signature = plan.feeds, plan.fetches, plan.targets
            begin = partial(session.run, signature, values, timeout_s, timeout_s, True, request)
            return self._run_step(begin, timeout_s)[0]
        if plan.local is not None:
            return self.master.worker.execute(plan.local, values, timeout_s)
        return self._run_step(partial(session.start_step, plan, values, timeout_s), timeout_s)[0]

    def run_with_metadata(self, signature: Signature, values: list[Any], options: RunOptions) -> tuple[list[Any], Any]:
        """Runs a step as RunOptions ask for it; returns the values and the RunMetadata."""
        limit_s = timeout_seconds(options)
        timeout_s = limit_s or self._options.operation_timeout_s
        if is_traced(options):
            self._check()
            begin = partial(self.session.run, signature, values, timeout_s, limit_s, True, None)
            found, plan, trace = self._run_step(begin, timeout_s)
        else:
            plan = self.prepare(signature, limit_s)
            found, trace = self.run(plan, values, timeout_s), None
        return found, run_metadata(options, plan, trace, self._options.build_cost_model)

    def _run_step(
        self, begin: Callable[[OnDone, Callable[[Step], None]], None], timeout_s: float | None
    ) -> tuple[list[Any], Plan, GatheredTrace | None]:
        """Begins a step and waits for it; returns the fetched values, its plan and the trace."""
        answer: Answer[tuple[list[Any], GatheredTrace | None]] = Answer(self.master.reactor)
        steps: list[Step] = []  # none as long as the plan is made

        def done(error: errors.OpError | None, found: list[Any], trace: GatheredTrace | None) -> None:
            answer.done(error, (found, trace))

        def describe(told: Told) -> None:
            if steps:
                steps[0].describe(told)
            else:
                told("")

        try:
            begin(done, steps.append)
            found, trace = answer.result(timeout_s, lambda: steps[0].expire(), describe)
        except (errors.AbortedError, errors.UnavailableError, errors.CancelledError) as error:
            if not steps:
                raise
            found_error = copy.copy(error)  # a lost connection gives several steps one error
            found_error.unfinished = UnfinishedStep(steps[0])
            raise found_error from None
        except errors.OpError:
            raise
        except BaseException:  # Ctrl-C: the client will not take the values
            report_interrupt(describe, self.master.reactor)
            for step in steps:
                step.cancel(errors.CancelledError.of("Step was cancelled by an interrupt of its client."))
            raise
        return [writable(v) for v in found], steps[0].plan, trace

    def _check_own(self) -> None:
        if self._pid:
            check_own(self._pid, f"This session of {self.master.worker.task}")

    def _check(self) -> None:
        self._check_own()
        session = self._session
        if session is not None and session.closed:
            if session.closed_because == CLOSED_BY_CLIENT:
                raise _closed()
            raise errors.AbortedError.of(session.closed_because)

    def list_devices(self) -> list[DeviceAttributes]:
        self._check_own()
        cluster = self.session.cluster if self._options.cluster else self.master
        with self._pending.new() as answer:
            cluster.list_devices(answer.done, self._options.device_filters, self._options.patience_s)
            found: list[DeviceAttributes] = answer.result(describe=_describe_listing)
        return found

    def reset(self, containers: Sequence[str]) -> None:
        """Clears containers of the master's own task, unless the session's are its own, and closes the session."""
        if not self._options.isolate_session_state:
            self.master.worker.cleanup_all(containers)
        if self._session is not None:
            self._session.close("This session was reset by its own process. Make a new one.", errors.AbortedError.of)

    def close(self) -> None:
        if self._pid in (0, os.getpid()):
            self._pending.end()
            if self._session is not None:
                self._session.close()

    def drop(self) -> None:
        if self.master.reactor is not None:
            is_own = self.master.worker.process.is_real and self._pid == os.getpid()
            _drop_soon(is_own, self.master.reactor, self.close)
        elif self._session is not None and not sys.is_finalizing():  # this thread may be inside one of its locks
            with contextlib.suppress(RuntimeError):  # the interpreter is about to exit
                start_new_thread(self.close, ())


def _drop_soon(may: bool, reactor: Any, close: Callable[[], None]) -> None:
    """Closes a session from the reactor, unless the process ends."""
    if may and not sys.is_finalizing():  # the end of the process ends its sessions
        reactor.call_soon(close)


def _closed() -> errors.OpError:
    return errors.CancelledError.of(CLOSED_BY_CLIENT)


def _describe_listing(told: Told) -> None:
    told("list_devices waits for tasks that are not up yet; ConfigProto(device_filters=...) can leave them out")


def _describe_extension(told: Told) -> None:
    told("the master places new ops of the graph, and asks tasks for devices that the ops name and it does not know")


_client_lock = lock("client endpoint")


def _after_fork() -> None:
    global _client_lock
    _client_lock = lock("client endpoint")


os.register_at_fork(after_in_child=_after_fork)


def client_endpoint() -> Endpoint:
    """The endpoint of this process's sessions that have remote masters; a forked child gets its own."""
    process = current_process()
    with _client_lock:
        pid, endpoint = process.client or (0, None)
        if endpoint is None or endpoint.closed or pid != os.getpid():
            endpoint = process.endpoint("", process.randbits(63))
            process.client = os.getpid(), endpoint
        return endpoint


class _RemotePlan(tuple[Any, ...]):
    """The signature of a plan that another process has. Its master replaces it when that has to be."""

    __slots__ = ()
    halted = False


class RemoteMaster:
    """A master in another process."""

    def __init__(self, address: str, config: bytes, options: SessionOptions) -> None:
        endpoint = client_endpoint()
        self._peer, self._reactor = endpoint.peer(address), endpoint.reactor
        self._pid, self._is_real = os.getpid(), current_process().is_real
        self._address = address
        self._config = config
        self.options = options
        self._handle = ""
        self._nodes: Nodes = {}
        self._opening = lock("client open")
        self._pending = PendingAnswers(self._reactor, _closed)
        self._let_go: Callable[[], None] = lambda: None
        self._version = 0
        self._timeout_s = options.operation_timeout_s or min(options.connect_timeout_s, TARGET_TIMEOUT_S)

    def _call(self, request: m.Message, timeout_s: float | None = None, describe: Describe | None = None) -> Any:
        """Sends a request and waits for its answer, or until the session is closed."""
        check_own(self._pid, f"This session with {self._address}")
        with self._pending.new() as answer:
            return self._answer(request, answer, timeout_s, describe)

    def _answer(
        self, request: m.Message, answer: Answer[Any], timeout_s: float | None, describe: Describe | None
    ) -> Any:
        handle = self._peer.call(request, answer.answered, timeout_s=timeout_s)
        try:
            return answer.result(describe=describe)
        except errors.OpError:
            raise
        except BaseException:  # Ctrl-C: the client does not wait for the answer any more
            if describe is not None:
                report_interrupt(describe, self._reactor)
            handle.cancel()
            raise

    def _run_step(self, request: m.RunStep, timeout_s: float | None) -> m.RunStepReply:
        limit_s = timeout_s or self.options.operation_timeout_s
        question = m.DescribeWait(self._handle, request.feeds, request.fetches, request.targets)

        def describe(told: Told) -> None:
            def answered(answer: Any) -> None:
                told("" if isinstance(answer, errors.OpError) else answer.text)

            self._peer.call(question, answered, timeout_s=ASK_S + 1.0)

        was_ready = self._peer.state is State.READY  # else the request may never have been sent
        try:
            reply: m.RunStepReply = self._call(request, limit_s and limit_s + _GRACE_S, describe=describe)
        except (errors.UnavailableError, errors.CancelledError) as error:
            found = copy.copy(error)  # a lost connection gives several steps one error
            if was_ready:
                found.unfinished = self.unknown_step((request.feeds, request.fetches, request.targets), error.message)
            raise found from None
        return reply

    def unknown_step(self, signature: Signature, what: str) -> RemoteStep:
        """The ``unfinished`` of a step after an event that leaves open what it has done."""
        return RemoteStep(self._nodes, signature, what)

    def extend(self, nodes: Sequence[Node], timeout_s: float | None = None) -> None:
        self._nodes.update((node.name, node) for node in nodes)
        graph = [n.to_wire() for n in nodes]
        if not self._open(graph, timeout_s):
            request = m.ExtendSession(self._handle, graph, self._version)
            reply = self._call(request, self.options.operation_timeout_s, describe=_describe_extension)
            self._version = reply.new_graph_version

    def _open(self, graph: list[Any], timeout_s: float | None = None) -> bool:
        """Opens the session with its first graph, in the time of the run that needs it; False if it is open already."""
        with self._opening:
            if self._handle:
                return False
            check_own(self._pid, f"This session with {self._address}")
            with self._pending.new() as answer:
                self._create(m.CreateSession(graph, self._config, self._address), answer, timeout_s)
            return True

    def _create(self, request: m.CreateSession, answer: Answer[Any], timeout_s: float | None) -> None:
        """Waits until the master has created the session. One that it creates later is closed."""
        calls: list[CallHandle] = []

        def ask(answered: Callable[[Any], None]) -> None:
            # Without a deadline of its own, so that an answer that comes late is heard.
            calls.append(self._peer.call(request, answered, wait_for_ready=True))

        limit_s = min(self._timeout_s, timeout_s or self._timeout_s)

        def late() -> errors.OpError:
            remedy = "Start a tf.train.Server there, or correct the session's target."
            error = errors.UnavailableError if limit_s == self._timeout_s else errors.DeadlineExceededError
            return error.of(f"{calls[0].describe_wait(limit_s)} {remedy}")

        def over(outcomes: dict[str, Any]) -> None:
            self._opened(outcomes["session"])
            answer.answered(outcomes["session"])

        wait = FanOut({"session": ask}, over, late=lambda _, reply: self._close_late(reply))
        try:
            wait.begin()
            wait.limit(self._reactor, limit_s, late)
            answer.result(describe=self._describe_opening)
        except BaseException as error:
            if not isinstance(error, errors.OpError):  # Ctrl-C
                report_interrupt(self._describe_opening, self._reactor)
            wait.cancel(_closed())
            for call in calls:
                call.withdraw()
            raise

    def _opened(self, reply: Any) -> None:
        if isinstance(reply, errors.OpError):
            return
        let_go = hold(self._peer)

        def keep() -> None:
            self._version, self._handle, self._let_go = reply.graph_version, reply.session_handle, let_go

        if not self._pending.unless_over(keep):
            let_go()
            self._close_late(reply)

    def _close_late(self, reply: Any) -> None:
        """Closes a session that was created when nobody waited for it any more."""
        if not isinstance(reply, errors.OpError):
            self._peer.call(m.CloseSession(reply.session_handle), lambda _: None, _ANSWER_S)

    def _describe_opening(self, told: Told) -> None:
        why = "has not answered yet" if self._peer.state is State.READY else f"cannot be reached ({self._peer.trouble})"
        told(f"its session has not been created, as {self._peer} {why}; it gives up after {self._timeout_s:g} s")

    def prepare(self, signature: Signature, timeout_s: float | None = None) -> Any:
        return _RemotePlan(signature)

    def run(self, plan: Any, values: list[Any], timeout_s: float | None) -> list[Any]:
        feeds, fetches, targets = plan
        options = b""
        if timeout_s is not None:
            from tfmini import protos

            options = protos.RunOptions(timeout_in_ms=max(1, round(timeout_s * 1000))).SerializeToString()
        request = m.RunStep(self._handle, feeds, tuple(values), fetches, targets, options)
        return [writable(v) for v in self._run_step(request, timeout_s).values]

    def run_with_metadata(self, signature: Signature, values: list[Any], options: RunOptions) -> tuple[list[Any], Any]:
        from tfmini import protos

        feeds, fetches, targets = signature
        request = m.RunStep(self._handle, feeds, tuple(values), fetches, targets, options.SerializeToString())
        reply = self._run_step(request, timeout_seconds(options))
        return [writable(v) for v in reply.values], protos.RunMetadata.FromString(reply.metadata)

    def list_devices(self) -> list[DeviceAttributes]:
        self._open([])  # the session's filters count
        # The master gives up first, and says which task is missing.
        limit_s = self.options.patience_s + _ANSWER_S
        reply = self._call(m.ListDevices(self._handle), limit_s, describe=_describe_listing)
        return [DeviceAttributes(*fields) for fields in reply.devices]

    def close(self) -> None:
        if self._pid != os.getpid():
            return
        self._pending.stop()
        handle, self._handle = self._handle, ""
        if not handle:
            self._pending.end()
            return
        self._let_go()
        answer: Answer[Any] = Answer(self._reactor)
        try:
            self._answer(m.CloseSession(handle), answer, _ANSWER_S, None)
        except (errors.UnavailableError, errors.AbortedError, errors.DeadlineExceededError):
            return  # a master that is gone has no session either
        finally:
            self._pending.end()  # after the master has had its say: it tells the steps why they end

    def drop(self) -> None:
        _drop_soon(self._is_real and self._pid == os.getpid(), self._reactor, self._close_unasked)

    def _close_unasked(self) -> None:
        """Closes the session without waiting for the answer."""
        self._pending.end()
        handle, self._handle = self._handle, ""
        if handle:
            self._let_go()
            self._peer.call(m.CloseSession(handle), lambda answer: None, _ANSWER_S)


# ---- The tasks that a session's master can reach, for reports of what a session waits for --------------------------

# The job whose first task initialises the model, by convention; the first that the cluster has.
CHIEF_JOBS = ("chief", "master", "worker")


class Reachability(NamedTuple):
    """The reachability of a task.

    Attributes:
      task: its full name.
      address: ``host:port``.
      connected: there is a connection.
      was_connected: there has been one.
      why: the reason why it cannot be reached, in words; "" when connected.
    """

    task: str
    address: str
    connected: bool
    was_connected: bool
    why: str

    def __str__(self) -> str:
        return f"{self.task} at {self.address}"


def task_of(target: str) -> str:
    """The full name of a target's task; "" for a target in another process."""
    master = _master_of(target)
    return "" if master is None else str(master.task)


def chief_of(target: str) -> str | None:
    """The full name of the chief of a target's cluster; None without a cluster, or when the target is the chief."""
    master = _master_of(target)
    if master is None:
        return None
    for job in CHIEF_JOBS:
        task = f"/job:{job}/replica:0/task:0"
        if task in master.addresses() or task == master.task:
            return None if task == master.task else task
    return None


def reach(target: str, task: str) -> Reachability | None:
    """Starts connecting to a task where that is needed, and says how things stand; None without a cluster."""
    master = _master_of(target)
    if master is None or task not in master.addresses():
        return None
    peer = master.peer(task)
    peer.connect()
    return _describe(peer, task)


def unreachable(target: str) -> list[Reachability]:
    """The tasks that somebody wants to reach and cannot, as far as the target's server is in this process."""
    master = _master_of(target)
    if master is None:
        return []
    found = [_describe(master.peer(task), task) for task in list(master.addresses()) if task != master.task]
    return [each for each in found if not each.connected and each.why != State.IDLE.value]


def _master_of(target: str) -> Any:
    server = this_process.server_at(address_of_target(target)) if target else None
    return None if server is None else server.master


def _describe(peer: Peer, task: str) -> Reachability:
    connected = peer.state is State.READY
    why = "" if connected else peer.why or peer.state.value
    return Reachability(task, peer.address, connected, peer.incarnation != 0, why)
