"""Getting a plan onto its tasks: reach each, open the session there, register its part.

A task that is not up yet is waited for, with a line every few seconds that names it and says
why it cannot be reached, and no longer than the session's connect timeout. Only the tasks that
the plan needs are contacted.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.errors import InvalidArgumentError
from tfmini.graph.node import Endpoint, Nodes
from tfmini.graph.prune import enqueues, is_training_step, step_graph
from tfmini.locks import Guarded
from tfmini.memory import collector_at_rest
from tfmini.placement.partition import Partitions, partition
from tfmini.placement.task_graph import TaskGraph
from tfmini.rpc.calls import CallHandle, Outcome
from tfmini.rpc.endpoint import State
from tfmini.rpc.fan_out import FanOut, first_error
from tfmini.rpc.messages import (
    CreateWorkerSession,
    DeleteWorkerSession,
    DeregisterGraph,
    RegisterGraph,
    RegisterGraphReply,
)
from tfmini.rpc.waiter import Timer
from tfmini.runtime.executor.registered_graph import RegisteredGraph
from tfmini.runtime.master.cluster import ClusterView
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.resources import GRACE_S, hold
from tfmini.runtime.worker.departures import Forwarding, VariablesMoved

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer


_log = logging.getLogger("tfmini.runtime")

# ---- The plan for one (feeds, fetches, targets): pruned, placed, and cut into the graphs of tasks ------------------


Signature = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""The names of the feeds, of the tensors to fetch and of the operations to run."""


@dataclass
class Part:
    """The part of one task in a plan.

    Attributes:
      task_graph: what the task runs.
      feed_indices, fetch_indices: the positions of its values among the plan's feeds and fetches.
      graph: registered on the master's own task, else None.
      peer, graph_handle, incarnation: of another task: where to run which registered graph.
    """

    task: str
    task_graph: TaskGraph
    feed_indices: list[int] = field(default_factory=list)
    fetch_indices: list[int] = field(default_factory=list)
    graph: RegisteredGraph | None = None
    peer: Peer = None  # type: ignore[assignment] # set for every part of another task
    graph_handle: int = 0
    incarnation: int = 0

    @property
    def receivers(self) -> Set[str]:
        """The tasks to which it sends."""
        return {end.peer.task for end in self.task_graph.sends.values()}


@dataclass
class Plan:
    """A signature's partitions and the parts that run it.

    Attributes:
      local: the registered graph of a plan that the client's thread runs by itself, else None.
      traced: whether its programs record a trace.
      trains: whether its runs are training steps (`is_training_step`).
      fills: whether its runs only fill queues, as those of queue runners: they take nothing from the client and give
        it nothing.
      omitted: the names of the updates that it leaves out.
      halted: no step of it may begin: variables that it uses move, or have moved and it has to be made anew.
      moves_from: the task that these move away from.
    """

    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    partitions: Partitions
    parts: list[Part]
    local: RegisteredGraph | None = None
    traced: bool = False
    targets: tuple[str, ...] = ()
    trains: bool = True
    fills: bool = False
    omitted: frozenset[str] = frozenset()
    halted: bool = False
    moves_from: str = ""
    _halted_local: RegisteredGraph | None = None

    def halt(self, is_halted: bool) -> None:
        """Lets no step begin, or lets steps begin again. A halted plan is not the client's thread's to run."""
        if is_halted != self.halted:
            self.halted = is_halted
            self.local, self._halted_local = self._halted_local, self.local

    def set_local(self, graph: RegisteredGraph) -> None:
        """Gives the plan to the client's thread to run, as soon as it is not halted."""
        if self.halted:
            self._halted_local = graph
        else:
            self.local = graph

    def judge(self, graph: Set[str], else_all: bool) -> None:
        """Decides whether its runs are training steps.

        Args:
          graph: the op types of the session.
          else_all: whether in a graph without ops that train every step is one that does not only fill queues.
        """
        types = {node.op for part in self.parts for node in part.task_graph.nodes.values()}
        self.fills = not self.feeds and not self.fetches and enqueues(types)
        self.trains = is_training_step(types, graph, else_all and not self.fills)
        if self.local is not None:
            self.local.trains = self.trains


def endpoint_of(tensor_name: str) -> Endpoint:
    """``("x", 0)`` for ``"x:0"``.

    Raises:
      InvalidArgumentError: what follows the colon is no number.
    """
    name, _, index = tensor_name.partition(":")
    if index and not (index.isascii() and index.isdigit() and len(index) < 10):
        raise InvalidArgumentError.of(f"{tensor_name!r:.80} is not a name of a tensor")
    return name, int(index or 0)


def build_plan(
    nodes: Nodes,
    placement: Mapping[str, str],
    feeds: Sequence[str],
    fetches: Sequence[str],
    targets: Sequence[str],
    *,
    traced: bool,
    client_device: str,
    incarnations: Mapping[str, int],
    name_counter: Iterator[int],
) -> Plan:
    """Prunes and cuts a placed graph for one signature.

    Raises:
      NotFoundError, InvalidArgumentError: as `prune` and `partition` do.
    """
    fed, wanted = [endpoint_of(f) for f in feeds], [endpoint_of(f) for f in fetches]
    step = step_graph(nodes, wanted, list(targets), fed, client_device)
    partitions = partition(step, placement, incarnations=incarnations, name_counter=name_counter)
    parts = [
        Part(task, graph, [fed.index(tensor) for tensor in graph.fed],
             [wanted.index(tensor) for _, tensor in graph.fetches])
        for task, graph in partitions.tasks.items()
    ]  # fmt: skip
    return Plan(tuple(feeds), tuple(fetches), partitions, parts, traced=traced, targets=tuple(targets))


# ---- How a plan gets onto its tasks ---------------------------------------------------------------------------------

_PROGRESS_S = 5.0

Answered = Callable[[Outcome[Any]], None]
MakeClosingError = Callable[[], errors.OpError]


def forget_when_unused(plan: Plan, cluster: ClusterView) -> None:
    """Lets the tasks forget the parts of a plan, remote ones when the last step or client has let go of the plan."""
    remote = [(part.peer, part.graph_handle, part.incarnation) for part in plan.parts if part.graph is None]
    for part in plan.parts:
        if part.graph is not None:  # who still has the plan has the graph, too
            cluster.worker.deregister_graph(part.graph.handle)
    if remote:
        # A garbage collection may run anywhere, so the requests are made in the reactor.
        weakref.finalize(plan, cluster.reactor.call_soon, _deregister_all, remote).atexit = False


def _deregister_all(parts: list[tuple[Any, int, int]]) -> None:
    for peer, handle, incarnation in parts:
        peer.call(DeregisterGraph(handle), lambda answer: None, incarnation=incarnation)


class SessionPlaces:
    """Where a session is open, or asked to be, until it is closed. Pure.

    Attributes:
      asked: the tasks that were asked to open it, also if they have not answered.
      opened: those that have opened it -> their incarnation, and the addresses of other tasks that they know.
      ends: functions that are called at the end, such as those that stop reconnecting to those tasks.
      closing_error: makes the error of whatever the end of the session ends; None while it is open.
    """

    def __init__(self) -> None:
        self.asked: dict[str, None] = {}  # ordered: a seed repeats a simulated run exactly
        self.opened: dict[str, tuple[int, Mapping[str, str]]] = {}
        self.ends: list[Callable[[], None]] = []
        self.closing_error: MakeClosingError | None = None

    def ask(self, task: str) -> bool:
        """A task is about to be asked; False if it must not be: the session is closed."""
        if self.closing_error is None:
            self.asked[task] = None
        return self.closing_error is None

    def open_on(self, task: str, incarnation: int, told: Mapping[str, str]) -> tuple[int | None, bool]:
        """A task has opened it: returns the incarnation that did so first, and whether this was the first time.

        The incarnation is None if the session has been closed.
        """
        if self.closing_error is not None:
            return None, False
        first, known = self.opened.get(task, (incarnation, {}))
        is_first = task not in self.opened
        self.opened[task] = first, {**known, **told}
        return first, is_first

    def at_end(self, end: Callable[[], None]) -> bool:
        """Notes what is to be done at the end; False if that has come."""
        if self.closing_error is None:
            self.ends.append(end)
        return self.closing_error is None

    def close(self, closing_error: MakeClosingError) -> tuple[list[str], list[Callable[[], None]]]:
        """Ends it; returns the tasks to tell, and what is to be done."""
        self.closing_error = closing_error
        return list(self.asked), self.ends


class SessionOnTasks:
    """A client session on the tasks of its cluster, until it is closed. Methods may be called from any thread.

    Attributes:
      cluster: as the session sees it.
      in_process: whether the client is in this process; its thread may then run a local plan by itself.
    """

    def __init__(self, cluster: ClusterView, handle: str, options: SessionOptions, in_process: bool = False) -> None:
        self.cluster, self.handle, self.options, self.in_process = cluster, handle, options, in_process
        self._places = Guarded("session tasks", SessionPlaces())

    @property
    def closing_error(self) -> MakeClosingError | None:
        """Makes the error of whatever the end of the session ends; None while it is open."""
        return self._places.state.closing_error

    def incarnation_on(self, task: str) -> int | None:
        """The incarnation of a task that has opened the session; None: no one has."""
        return self._places.state.opened.get(task, (None,))[0]

    def is_open_on(self, peer: Peer, task: str, needed: Mapping[str, str]) -> bool:
        """Whether this incarnation of a task has it open, and knows the addresses that it needs."""
        incarnation, known = self._places.state.opened.get(task, (0, {}))
        return incarnation != 0 and incarnation == peer.incarnation and needed.items() <= known.items()

    def ask(self, task: str) -> None:
        """Notes that a task is about to be asked to open the session.

        Raises:
          OpError: the session has been closed.
        """
        if not self._places(SessionPlaces.ask, task):
            assert self.closing_error is not None
            raise self.closing_error()

    def open_on(self, peer: Peer, task: str, told: Mapping[str, str]) -> int | None:
        """A task has opened the session: keeps the connection, and returns the incarnation that did so first.

        A session that has been closed is deleted there; the incarnation is None.
        """
        known, is_first = self._places(SessionPlaces.open_on, task, peer.incarnation, told)
        if known is None:
            self.delete(task)
        elif is_first:
            self.at_end(hold(peer))
        return known

    def at_end(self, end: Callable[[], None]) -> None:
        """Calls a function when the session is closed: at once if it has been."""
        if not self._places(SessionPlaces.at_end, end):
            end()

    def open_here(self) -> None:
        """Opens the session on the worker of this task.

        Raises:
          OpError: the session was closed meanwhile.
        """
        worker, cluster = self.cluster.worker, self.cluster
        if self.handle not in worker.sessions:
            isolate = self.options.isolate_session_state
            worker.create_session(self.handle, isolate, cluster.addresses(), cluster.worker_name(cluster.task))
            if self.closing_error is not None:  # perhaps `close` was too early to find it there
                worker.delete_session(self.handle, self.closing_error())
                raise self.closing_error()

    def close(self, closing_error: MakeClosingError) -> None:
        """Tells the tasks to forget the session."""
        asked, ends = self._places(SessionPlaces.close, closing_error)
        self.cluster.worker.delete_session(self.handle, closing_error())
        for end in ends:
            end()
        for task in asked:
            self.delete(task)

    def delete(self, task: str) -> None:
        """Closes the session on another task, also when the connection is broken now and returns in time.

        A task that cannot be reached for `GRACE_S` drops the session by itself; a restarted one has forgotten it.
        """
        self.cluster.peer(task).call(
            DeleteWorkerSession(self.handle), lambda answer: None, timeout_s=GRACE_S,
            incarnation=self.incarnation_on(task), wait_for_ready=True,
        )  # fmt: skip


class Registration:
    """Registers all parts of a plan; ``on_done(error)`` is called once."""

    def __init__(self, session: SessionOnTasks, plan: Plan, on_done: Callable[[errors.OpError | None], None]) -> None:
        self.session = session
        self.plan = plan
        self._on_done = on_done
        self._progress: Any = None
        self._openings: dict[str, tuple[CallHandle, Timer]] = {}
        self._compiling: set[str] = set()  # the tasks that have been sent their parts
        self._waited = 0.0
        self._began = session.cluster.worker.now()
        self._is_limited = False
        own = session.cluster.task
        self._remote = {part.task: part for part in plan.parts if part.task != own}
        calls: dict[str, Any] = {task: partial(self._open_session, part) for task, part in self._remote.items()}
        self._wait: FanOut[str, Any] = FanOut({**calls, own: self._register_local}, self._finish, True, self._withdraw)

    def start(self) -> None:
        """Sends the requests; a plan without remote parts is done at once.

        The requests leave first, so that the other tasks compile their parts while this one compiles its own.
        """
        self._wait.begin()
        reactor = self.session.cluster.reactor
        if self._remote and reactor is not None and not self.is_over:
            self._progress = reactor.call_later(_PROGRESS_S, self._report)

    def _register_local(self, answered: Answered) -> None:
        cluster, session = self.session.cluster, self.session
        is_whole = len(self.plan.parts) == 1
        for part in self.plan.parts:
            if part.task == cluster.task:
                session.open_here()
                part.graph = cluster.worker.register_graph(
                    session.handle, part.task_graph, session.options.fold_constants, self.plan.traced,
                    session.in_process, is_whole,
                )  # fmt: skip
                part.incarnation = cluster.worker.incarnation
                part.graph.trains = self.plan.trains
                if part.graph.driver.is_blocking:
                    self.plan.set_local(part.graph)
        answered(None)

    # ---- remote parts -----------------------------------------------------------------------

    def _open_session(self, part: Part, answered: Answered) -> None:
        """Opens the session on the task unless the current incarnation of the task has it, and registers the part."""
        cluster, session = self.session.cluster, self.session
        part.peer = cluster.peer(part.task)
        needed = self._addresses_for(part)
        if session.is_open_on(part.peer, part.task, needed):
            self._register(part, part.peer.incarnation, answered)
            return
        session.ask(part.task)
        isolate, name = session.options.isolate_session_state, cluster.worker_name(part.task)
        request = CreateWorkerSession(session.handle, isolate, needed, name)
        # Without a deadline of its own: a task that opens the session too late must be heard, to delete it there.
        call = part.peer.call(request, partial(self._session_opened, part, needed, answered), wait_for_ready=True)
        limit_s = session.options.operation_timeout_s or session.options.connect_timeout_s
        timer = cluster.reactor.call_later(limit_s, self._open_late, part, call, limit_s, answered)
        self._openings[part.task] = call, timer
        if self.is_over:  # perhaps since before there was a call to withdraw
            self._end_openings()

    def _addresses_for(self, part: Part) -> dict[str, str]:
        """Of the tasks to which a part sends. Those of all would be workers * ps * tasks in a job."""
        addresses = self.session.cluster.addresses()
        return {task: addresses[task] for task in sorted(part.receivers) if task in addresses}

    def _open_late(self, part: Part, call: CallHandle, limit_s: float, answered: Answered) -> None:
        if call.is_open:
            answered(errors.DeadlineExceededError.of(
                f"{call.describe_wait(limit_s)} {part.task} at {part.peer.address} could not be reached. Start that"
                " task, or check its address in the ClusterSpec; tasks that a session does not use need not run.",
                task=part.task,
            ))  # fmt: skip

    def _end_openings(self) -> None:
        """Withdraws the requests that have no answer. One that was sent may still get an answer."""
        for call, timer in list(self._openings.values()):
            timer.cancel()
            call.withdraw()

    def _session_opened(self, part: Part, told: Mapping[str, str], answered: Answered, answer: Any) -> None:
        if isinstance(answer, errors.OpError):
            answered(answer)
            return
        known = self.session.open_on(part.peer, part.task, told)
        if known is None:
            assert self.session.closing_error is not None
            answered(self.session.closing_error())
        elif known != part.peer.incarnation:
            text = f"{part.task} was restarted during this session, so its state is gone. Create a new session."
            answered(errors.AbortedError.of(text, task=part.task))
        elif not self.is_over:
            self._register(part, known, answered)

    def _register(self, part: Part, incarnation: int, answered: Answered) -> None:
        part.incarnation = incarnation
        self._compiling.add(part.task)
        self._limit_time()
        try:
            with collector_at_rest():
                request = RegisterGraph(
                    self.session.handle, part.task_graph.to_wire(), self.session.options.fold_constants,
                    self.plan.traced,
                )  # fmt: skip
                # Without a deadline of its own: an answer that comes late must be heard, to withdraw the graph.
                part.peer.call(request, partial(self._registered, part, answered), incarnation=incarnation)
        except Exception as error:  # noqa: BLE001 - raised in a callback it would leave the client waiting
            text = f"the part of {part.task} cannot be sent: {type(error).__name__}: {error}"
            answered(errors.InternalError.of(text))

    @staticmethod
    def _registered(part: Part, answered: Answered, answer: Outcome[RegisterGraphReply]) -> None:
        """Passes an answer on; one that says where variables have moved is an error."""
        if not isinstance(answer, errors.OpError) and answer.moved:
            try:
                answer = VariablesMoved.from_task(part.task, part.incarnation, Forwarding.from_wire(answer.moved))
            except (TypeError, ValueError) as error:
                answer = errors.InternalError.of(f"{part.task} does not say where its variables are: {error}")
        answered(answer)

    def _limit_time(self) -> None:
        """The session's operation timeout counts from the start of the registration."""
        limit_s, reactor = self.session.options.operation_timeout_s, self.session.cluster.reactor
        if limit_s and reactor is not None and not self._is_limited:
            self._is_limited = True
            left_s = max(0.001, self._began + limit_s - self.session.cluster.worker.now())
            self._wait.limit(reactor, left_s, lambda: self._late(limit_s))

    def _late(self, limit_s: float) -> errors.OpError:
        parts = [self._remote[task] for task in self._wait.waiting if task in self._remote]
        peers = ", ".join(str(part.peer) for part in parts)
        text = f"RegisterGraph to {peers} had no answer within {limit_s:g} s."
        return errors.DeadlineExceededError.of(text, task=parts[0].task if parts else "")

    def _report(self) -> None:
        if self.is_over:
            return
        self._waited += _PROGRESS_S
        options = self.session.options
        for part, why in self._missing():
            is_open = part.task in self._compiling
            limit = options.operation_timeout_s or (0.0 if is_open else options.connect_timeout_s)
            # Without any configuration of logging, Python itself prints warnings.
            _log.warning(
                "%s still waiting for response from worker: %s at %s: %s (%g s%s)",
                "RegisterGraph" if is_open else "CreateSession", part.task, part.peer.address, why, self._waited,
                f"; gives up after {limit:g} s" if limit else "",
            )  # fmt: skip
        reactor = self.session.cluster.reactor
        self._progress = reactor.call_later(_PROGRESS_S, self._report)

    def _missing(self) -> list[tuple[Part, str]]:
        """The parts that other tasks have not registered yet, and why."""
        parts = [part for task in self._wait.waiting if (part := self._remote.get(task)) is not None]
        return [(part, self._why(part)) for part in parts if part.peer is not None]

    def _why(self, part: Part) -> str:
        if part.task in self._compiling and part.peer.state is State.READY:
            return f"it compiles its part of the step, {len(part.task_graph.nodes):,} ops, or its variables are moving"
        return part.peer.why or part.peer.state.value

    def describe_wait(self) -> str:
        """Which tasks have not registered their part yet, and why; "" if all have."""
        tasks = ", ".join(f"{part.task} at {part.peer.address} ({why})" for part, why in self._missing())
        return f"the session waits for {tasks}" if tasks else ""

    @property
    def is_over(self) -> bool:
        """Whether the outcome has been reported."""
        return self._wait.is_over

    def cancel(self, error: errors.OpError) -> None:
        """The session was closed and needs the plan no more."""
        self._wait.cancel(error)

    # ---- the end ----------------------------------------------------------------------------

    def _finish(self, answers: dict[str, Outcome[Any]]) -> None:
        if self._progress is not None:
            self._progress.cancel()
        self._end_openings()
        error = first_error(answers)
        for task, answer in answers.items():
            if error is not None:
                self._withdraw(task, answer)
            elif task in self._remote:
                self._remote[task].graph_handle = answer.graph_handle  # type: ignore[union-attr]
        self._on_done(error)

    def _withdraw(self, task: str, answer: Outcome[Any]) -> None:
        """Lets a task forget its part of a plan that will not be run; its answer may have come after the end."""
        if isinstance(answer, errors.OpError):
            return
        part = self._remote.get(task)
        if part is not None:
            _deregister_all([(part.peer, answer.graph_handle, part.incarnation)])
        for part in self.plan.parts:
            if part.graph is not None and part.task == task:
                self.session.cluster.worker.deregister_graph(part.graph.handle)
