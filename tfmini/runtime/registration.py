"""Getting a plan onto its tasks: reach each, open the session there, register its part.

A task that is not up yet is waited for, with a line every few seconds that names it and says
why it cannot be reached, and no longer than the session's connect timeout. Only the tasks that
the plan needs are contacted.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.rpc.messages import CreateWorkerSession, DeleteWorkerSession, DeregisterGraph, RegisterGraph
from tfmini.runtime.inline_step import can_run_inline
from tfmini.runtime.plan import Part, Plan

if TYPE_CHECKING:
    from tfmini.runtime.master_session import MasterSession

_log = logging.getLogger("tfmini.runtime")
_PROGRESS_S = 5.0


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

    def start(self) -> None:
        """Sends the requests; a plan without remote parts is done at once."""
        master = self.session.master
        remote = [p for p in self.plan.parts if p.task != master.worker.task]
        self._left = len(remote) + 1
        try:
            self._register_local()
            for part in remote:
                part.peer = master.peer(part.task)
        except errors.OpError as error:
            self._finish(error)
            return
        if remote and master.reactor is not None:
            self._progress = master.reactor.call_later(_PROGRESS_S, self._report)
        for part in remote:
            self._open_session(part)
        self._one_done()

    def _register_local(self) -> None:
        master = self.session.master
        for part in self.plan.parts:
            if part.task == master.worker.task:
                master.open_local_session(self.session)
                part.graph = master.worker.register_graph(self.session.handle, part.nodes, self._options(part))
                part.incarnation = master.worker.incarnation
        first = self.plan.parts[0] if len(self.plan.parts) == 1 else None
        if first is None or first.graph is None:
            return
        self.plan.is_inline = master.reactor is not None and can_run_inline(first.graph.program)
        if first.graph.program.is_simple or self.plan.is_inline:
            self.plan.local = first
            feeds, fetches = list(range(len(self.plan.feeds))), list(range(len(self.plan.fetches)))
            if first.feed_indices != feeds or first.fetch_indices != fetches:
                self._reorder(first)

    def _reorder(self, part: Part) -> None:
        """Gives a local program the order of the plan, so that a step passes lists through."""
        program = part.graph.program
        slots = dict(zip(part.feed_indices, program.feeds))
        spare = len(program.template)
        program.feeds = [slots.get(i, spare) for i in range(len(self.plan.feeds))]
        program.template.append(None)  # where values go that nothing reads
        fetches = dict(zip(part.fetch_indices, zip(program.fetches, program.copies)))
        program.fetches = [fetches[i][0] for i in range(len(self.plan.fetches))]
        program.copies = [fetches[i][1] for i in range(len(self.plan.fetches))]
        part.feed_indices, part.fetch_indices = list(range(len(self.plan.feeds))), list(range(len(self.plan.fetches)))

    def _options(self, part: Part) -> dict[str, Any]:
        return {"feeds": part.feeds, "fetches": part.fetches, "fold_constants": self.session.options.fold_constants}

    # ---- remote parts -----------------------------------------------------------------------

    def _open_session(self, part: Part) -> None:
        """Opens the session on the task unless this life of it has it already."""
        master, session = self.session.master, self.session
        with self._lock:
            self._waiting.add(part.task)
        if session.registered_tasks.get(part.task) == part.peer.incarnation and part.peer.incarnation:
            self._register(part, part.peer.incarnation)
            return
        request = CreateWorkerSession(session.handle, session.options.isolate_session_state, master.addresses())
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
            part.peer.call(DeleteWorkerSession(self.session.handle), lambda answer: None)
            return
        known = self.session.registered_tasks.setdefault(part.task, part.peer.incarnation)
        if known != part.peer.incarnation:
            text = f"{part.task} was restarted during this session, so its state is gone. Create a new session."
            self._finish(errors.AbortedError(None, None, text, task=part.task))
            return
        self._register(part, known)

    def _register(self, part: Part, incarnation: int) -> None:
        part.incarnation = incarnation
        try:
            request = RegisterGraph(self.session.handle, [n.to_wire() for n in part.nodes], self._options(part))
            part.peer.call(request, lambda answer: self._registered(part, answer), incarnation=incarnation)
        except Exception as error:  # noqa: BLE001 - raised in a callback it would leave the client waiting
            text = f"the part of {part.task} cannot be sent: {type(error).__name__}: {error}"
            self._finish(errors.InternalError(None, None, text))

    def _registered(self, part: Part, answer: Any) -> None:
        if isinstance(answer, errors.OpError):
            self._finish(answer)
            return
        part.graph_handle = answer.graph_handle
        with self._lock:
            self._waiting.discard(part.task)
        self._one_done()

    def _unreachable(self, part: Part, error: errors.OpError) -> errors.OpError:
        if error.error_code != errors.DEADLINE_EXCEEDED:
            return error
        text = (
            f"{part.task} at {part.peer.address} could not be reached ({part.peer.why or part.peer.state.value})."
            " Start that task, or check its address in the ClusterSpec; tasks that a session does not use need not run."
        )
        return errors.DeadlineExceededError(None, None, f"{error.message} {text}", task=part.task)

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
                line = (
                    f"CreateSession still waiting for response from worker: {part.task} at {part.peer.address}: {why}"
                    f" ({self._waited:.0f} s; gives up after {limit:g} s)"
                )
                _log.warning("%s", line)
                if not _log.handlers and not logging.getLogger().handlers:
                    print(line, file=sys.stderr, flush=True)
        reactor = self.session.master.reactor
        self._progress = reactor.call_later(_PROGRESS_S, self._report)

    @property
    def is_over(self) -> bool:
        """Whether the outcome has been reported."""
        return self._on_done is None

    def cancel(self, error: errors.OpError) -> None:
        """The session was closed: nobody needs the plan any more."""
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
        if self._progress is not None:
            self._progress.cancel()
        if done is None:
            return
        if error is not None:
            self._withdraw()
        done(error)

    def _withdraw(self) -> None:
        """Lets the tasks forget the parts of a plan that will not be run."""
        for part in self.plan.parts:
            if part.graph is not None:
                self.session.master.worker.deregister_graph(part.graph.handle)
            elif part.graph_handle:
                request = DeregisterGraph(self.session.handle, part.graph_handle)
                part.peer.call(request, lambda answer: None, incarnation=part.incarnation)
