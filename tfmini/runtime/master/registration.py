"""Getting a plan onto its tasks: reach each, open the session there, register its part.

A task that is not up yet is waited for, with a line every few seconds that names it and says
why it cannot be reached, and no longer than the session's connect timeout. Only the tasks that
the plan needs are contacted.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.collector import collector_at_rest
from tfmini.rpc.messages import CreateWorkerSession, DeregisterGraph, RegisterGraph
from tfmini.runtime.master.plan import Part, Plan
from tfmini.runtime.session_owners import hold

if TYPE_CHECKING:
    from tfmini.runtime.master.master import Master
    from tfmini.runtime.master.master_session import MasterSession

_log = logging.getLogger("tfmini.runtime")
_PROGRESS_S = 5.0


def forget_when_unused(plan: Plan, master: Master) -> None:
    """Lets the tasks forget the parts of a plan, remote ones when the last step or client has let go of the plan."""
    remote = [(part.peer, part.graph_handle, part.incarnation) for part in plan.parts if part.graph is None]
    for part in plan.parts:
        if part.graph is not None:  # who still has the plan has the graph, too
            master.worker.deregister_graph(part.graph.handle)
    if remote:
        # A garbage collection may run anywhere, so the requests are made in the reactor.
        weakref.finalize(plan, master.reactor.call_soon, _deregister_all, remote).atexit = False


def _deregister_all(parts: list[tuple[Any, int, int]]) -> None:
    for peer, handle, incarnation in parts:
        peer.call(DeregisterGraph(handle), lambda answer: None, incarnation=incarnation)


class Registration:
    """Registers all parts of a plan; ``on_done(error)`` is called once."""

    def __init__(self, session: MasterSession, plan: Plan, on_done: Callable[[errors.OpError | None], None]) -> None:
        self.session = session
        self.plan = plan
        self._on_done: Callable[[errors.OpError | None], None] | None = on_done
        self._left = 0
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        self._progress: Any = None
        self._waited = 0.0
        self._began = session.master.worker.now()
        self._timers: list[Any] = []

    def start(self) -> None:
        """Sends the requests; a plan without remote parts is done at once.

        The requests leave first, so that the other tasks compile their parts while this one compiles its own.
        """
        master = self.session.master
        remote = [p for p in self.plan.parts if p.task != master.task]
        self._left = len(remote) + 1
        try:
            for part in remote:
                part.peer = master.peer(part.task)
        except errors.OpError as error:
            self._finish(error)
            return
        for part in remote:
            self._open_session(part)
        if self.is_over:  # a task has failed at once
            return
        try:
            self._register_local()
        except errors.OpError as error:
            self._finish(error)
            return
        except BaseException as error:  # even Ctrl-C: the other tasks must not keep their parts
            self._finish(errors.InternalError.of(f"{type(error).__name__}: {error}"))
            raise
        if self.is_over:  # another task has failed meanwhile, and this one's part may have been too late to withdraw
            self._withdraw_local()
        elif remote and master.reactor is not None:
            self._progress = master.reactor.call_later(_PROGRESS_S, self._report)
        self._one_done()

    def _register_local(self) -> None:
        master, session = self.session.master, self.session
        is_whole = len(self.plan.parts) == 1
        for part in self.plan.parts:
            if part.task == master.task:
                master.open_local_session(session)
                part.graph = master.worker.register_graph(
                    session.handle, part.task_graph, session.options.fold_constants, self.plan.traced,
                    session.in_process, is_whole,
                )  # fmt: skip
                part.incarnation = master.worker.incarnation
                if part.graph.driver.is_blocking:
                    self.plan.local = part.graph

    # ---- remote parts -----------------------------------------------------------------------

    def _open_session(self, part: Part) -> None:
        """Opens the session on the task unless the current incarnation of the task has it."""
        master, session = self.session.master, self.session
        with self._lock:
            self._waiting.add(part.task)
        if session.registered_tasks.get(part.task) == part.peer.incarnation and part.peer.incarnation:
            self._register(part, part.peer.incarnation)
            return
        session.asked_tasks[part.task] = None  # also one that answers too late or never
        isolate, name = session.options.isolate_session_state, master.worker_name(part.task)
        request = CreateWorkerSession(session.handle, isolate, master.addresses(), name)
        part.peer.call(
            request,
            lambda answer: self._session_opened(part, answer),
            timeout_s=session.options.operation_timeout_s or session.options.connect_timeout_s,
            wait_for_ready=True,
        )

    def _session_opened(self, part: Part, answer: Any) -> None:
        if isinstance(answer, errors.OpError):
            self._finish(self._unreachable(part, answer))
            return
        if self.session.closed:
            self.session.master.delete_worker_session(self.session, part.task)
            self._finish(self.session.closing_error())
            return
        if part.task not in self.session.registered_tasks:
            self.session.holds.append(hold(part.peer))
        known = self.session.registered_tasks.setdefault(part.task, part.peer.incarnation)
        if known != part.peer.incarnation:
            text = f"{part.task} was restarted during this session, so its state is gone. Create a new session."
            self._finish(errors.AbortedError.of(text, task=part.task))
            return
        if not self.is_over:
            self._register(part, known)

    def _register(self, part: Part, incarnation: int) -> None:
        part.incarnation = incarnation
        self._limit_time(part)
        try:
            with collector_at_rest():
                request = RegisterGraph(
                    self.session.handle, part.task_graph.to_wire(), self.session.options.fold_constants,
                    self.plan.traced,
                )  # fmt: skip
                # Without a deadline of its own: an answer that comes late must be heard, to withdraw the graph.
                part.peer.call(request, lambda answer: self._registered(part, answer), incarnation=incarnation)
        except Exception as error:  # noqa: BLE001 - raised in a callback it would leave the client waiting
            text = f"the part of {part.task} cannot be sent: {type(error).__name__}: {error}"
            self._finish(errors.InternalError.of(text))

    def _limit_time(self, part: Part) -> None:
        """The session's operation timeout counts from the start of the registration."""
        limit_s, reactor = self.session.options.operation_timeout_s, self.session.master.reactor
        if limit_s and reactor is not None:
            left_s = max(0.001, self._began + limit_s - self.session.master.worker.now())
            self._timers.append(reactor.call_later(left_s, self._expire, part, limit_s))

    def _expire(self, part: Part, limit_s: float) -> None:
        text = f"RegisterGraph to {part.peer} had no answer within {limit_s:g} s."
        self._finish(errors.DeadlineExceededError.of(text, task=part.task))

    def _registered(self, part: Part, answer: Any) -> None:
        if isinstance(answer, errors.OpError):
            self._finish(answer)
            return
        with self._lock:
            self._waiting.discard(part.task)
            part.graph_handle = answer.graph_handle
            is_late = self._on_done is None
        if is_late:  # the plan has failed on another task, and its registrations so far have been withdrawn
            self._deregister(part)
        else:
            self._one_done()

    def _unreachable(self, part: Part, error: errors.OpError) -> errors.OpError:
        if error.error_code != errors.DEADLINE_EXCEEDED:
            return error
        return errors.DeadlineExceededError.of(
            f"{error.message} {part.task} at {part.peer.address} could not be reached. Start that task, or check its"
            " address in the ClusterSpec; tasks that a session does not use need not run.", task=part.task,
        )  # fmt: skip

    def _report(self) -> None:
        with self._lock:
            waiting = sorted(self._waiting)
            over = self._on_done is None
        if over:
            return
        self._waited += _PROGRESS_S
        limit = self.session.options.operation_timeout_s or self.session.options.connect_timeout_s
        for part in self.plan.parts:
            if part.task in waiting and part.peer is not None:
                why = part.peer.why or part.peer.state.value
                # Without any configuration of logging, Python itself prints warnings.
                _log.warning(
                    "CreateSession still waiting for response from worker: %s at %s: %s (%g s; gives up after %g s)",
                    part.task, part.peer.address, why, self._waited, limit,
                )  # fmt: skip
        reactor = self.session.master.reactor
        self._progress = reactor.call_later(_PROGRESS_S, self._report)

    def describe_wait(self) -> str:
        """Which tasks have not registered their part yet, and why; "" if all have."""
        with self._lock:
            waiting = set(self._waiting)
        peers = [part for part in self.plan.parts if part.task in waiting and part.peer is not None]
        tasks = ", ".join(f"{p.task} at {p.peer.address} ({p.peer.why or p.peer.state.value})" for p in peers)
        return f"the session waits for {tasks}" if tasks else ""

    @property
    def is_over(self) -> bool:
        """Whether the outcome has been reported."""
        return self._on_done is None

    def cancel(self, error: errors.OpError) -> None:
        """The session was closed and needs the plan no more."""
        self._finish(error)

    # ---- the end ----------------------------------------------------------------------------

    def _one_done(self) -> None:
        with self._lock:
            self._left -= 1
            finished = self._left == 0
        if finished:
            self._finish(None)

    def _finish(self, error: errors.OpError | None) -> None:
        with self._lock:
            done, self._on_done = self._on_done, None
        for timer in (self._progress, *self._timers):
            if timer is not None:
                timer.cancel()
        if done is None:
            return
        if error is not None:
            self._withdraw()
        done(error)

    def _withdraw(self) -> None:
        """Lets the tasks forget the parts of a plan that will not be run."""
        for part in self.plan.parts:
            if part.graph is None and part.graph_handle:
                self._deregister(part)
        self._withdraw_local()

    def _withdraw_local(self) -> None:
        for part in self.plan.parts:
            if part.graph is not None:
                self.session.master.worker.deregister_graph(part.graph.handle)

    def _deregister(self, part: Part) -> None:
        _deregister_all([(part.peer, part.graph_handle, part.incarnation)])
