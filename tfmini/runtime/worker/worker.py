"""The worker service of a task: registered graphs, running steps, resources.

It knows nothing of sessions' graphs or of placement; it compiles the partition that it is
given, runs it when told to, sends what the program sends and takes in what others send. All
methods can be called directly (by a master in the same process) or come from the network
through `worker_service`.
"""

from __future__ import annotations

import collections
import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.devices import parse, task_of_device
from tfmini.graph.node import Node
from tfmini.placement.placer import DeviceAttributes
from tfmini.rpc.messages import SendTensors
from tfmini.rpc.reactor import get_reactor
from tfmini.runtime.blocking_kernels import several_may_block
from tfmini.runtime.collective_executor import CollectiveExecutor
from tfmini.runtime.dead import DEAD
from tfmini.runtime.early_tensors import EarlyTensors
from tfmini.runtime.program import Program, compile_program
from tfmini.runtime.resources import ResourceManager, Resources
from tfmini.runtime.step_run import Activation, Done, Path, StepRun
from tfmini.runtime.trace import KeptTraces
from tfmini.runtime.trace_stats import task_stats
from tfmini.runtime.traced_run import TracedRun

_log = logging.getLogger("tfmini.runtime")

# A segment that takes longer is run by a pool, so that the thread that owns the sockets can answer.
_LONG_SEGMENT_S = 0.003
_REMEMBERED_STEPS = 10_000
_NOTHING = np.zeros((0,), np.float32)


@dataclass
class RegisteredGraph:
    """A compiled partition, waiting to be run.

    Attributes:
      task: what the worker is called in the session's cluster.
      peers: destination task -> something with ``send(message)``.
      labels: group -> what it carries and from whom, for people.
      senders: group -> the task that sends it.
    """

    handle: int
    session_handle: str
    program: Program
    resources: Resources
    task: str = ""
    peers: dict[str, Any] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    senders: dict[int, str] = field(default_factory=dict)

    def describe_group(self, group: int) -> str:
        return self.labels.get(group, f"group {group}")


@dataclass
class WorkerSession:
    """A master's session as this worker sees it.

    Attributes:
      task: what the worker is called in the session's own cluster, if it has one.
      kernels: those with a state of their own, which the session's programs share.
    """

    handle: str
    resources: Resources
    addresses: Mapping[str, str]
    task: str = ""
    graphs: set[int] = field(default_factory=set)
    kernels: dict[str, Callable[..., Any]] = field(default_factory=dict)


class Worker:
    """See the module.

    Args:
      task: full task name.
      devices: the devices of this task.
      peer_for: (task, address) -> peer to send tensors to; None for a worker without a network.
      pool_size: how many long segments may run at once (``inter_op_parallelism_threads``).
    """

    def __init__(
        self, task: str, devices: Sequence[DeviceAttributes], peer_for: Callable[[str, str], Any] | None = None,
        pool_size: int = 2,
    ) -> None:  # fmt: skip
        self.task = task
        self.devices = list(devices)
        self.incarnation = devices[0].incarnation if devices else secrets.randbits(63)
        self.default_container = parse(task).job or "localhost"
        self.resources = ResourceManager(self.default_container)
        self.sessions: dict[str, WorkerSession] = {}
        self.graphs: dict[int, RegisteredGraph] = {}
        self.steps: dict[int, StepRun] = {}
        self._peer_for = peer_for
        self._handles = itertools.count(1)
        self._lock = threading.Lock()
        self._early = EarlyTensors(task)  # of (group, values, path, when they came)
        self.traces = KeptTraces()
        self._over: collections.OrderedDict[int, None] = collections.OrderedDict()
        self._pool: ThreadPoolExecutor | None = None
        self._pool_size = pool_size
        self._closed = False
        self.collectives = CollectiveExecutor(task)

    # ---- sessions and graphs ----------------------------------------------------------------

    def create_session(self, handle: str, isolate: bool, addresses: Mapping[str, str], task: str = "") -> None:
        """Opens a session.

        Args:
          isolate: gives it resources of its own.
          addresses: of the tasks in its cluster.
          task: what this one is called there, if it is another cluster than the server's own.
        """
        resources = ResourceManager(self.default_container) if isolate else self.resources.for_session(handle)
        with self._lock:
            self.sessions.setdefault(handle, WorkerSession(handle, resources, addresses, task))

    def delete_session(self, handle: str) -> None:
        """Forgets a session and its graphs; its steps are cancelled."""
        with self._lock:
            session = self.sessions.pop(handle, None)
            graphs = session.graphs if session else set()
            for graph in graphs:
                self.graphs.pop(graph, None)
            running = [run for run in self.steps.values() if run.graph.session_handle == handle]
        # A worker without a network serves one session.
        if session is not None and (session.resources is not self.resources or self._peer_for is None):
            session.resources.release()
        for run in running:
            run.abort(errors.CancelledError(None, None, f"The session of step {run.step_id} was closed.", derived=True))
        self.resources.end_session(handle)
        self.traces.forget_session(handle)

    def register_graph(self, session_handle: str, nodes: Sequence[Node], options: Mapping[str, Any]) -> RegisteredGraph:
        """Compiles a partition.

        Args:
          nodes: the nodes of this task, in a topological order.
          options: ``feeds`` and ``fetches`` (tensor names in order), ``fold_constants``, ``traced``.

        Raises:
          AbortedError: when the session is not known here.
          InvalidArgumentError: when an op has no kernel.
        """
        session = self.sessions.get(session_handle)
        if session is None:
            raise errors.AbortedError(
                None,
                None,
                f'Session handle is not found: {session_handle}. Possibly this worker ("{self.task}") just restarted.',
            )
        program = compile_program(
            nodes,
            task_of=task_of_device,
            resources=session.resources,
            feeds=options.get("feeds", ()),
            fetches=options.get("fetches", ()),
            fold_constants=options.get("fold_constants", True),
            traced=options.get("traced", False),
            kernels=session.kernels,
            threads=self._peer_for is not None or several_may_block(nodes, "CPU"),
        )
        graph = RegisteredGraph(
            next(self._handles), session_handle, program, session.resources, session.task or self.task
        )
        for task in set(program.sends.values()):
            graph.peers[task] = self._peer(session, task)
        graph.labels, graph.senders = _received_groups(nodes)
        with self._lock:
            self.graphs[graph.handle] = graph
            session.graphs.add(graph.handle)
        return graph

    def _peer(self, session: WorkerSession, task: str) -> Any:
        if self._peer_for is None or task not in session.addresses:
            raise errors.InternalError(None, None, f"{self.task} does not know the address of {task}")
        return self._peer_for("" if session.task else task, session.addresses[task])

    def deregister_graph(self, handle: int) -> None:
        """Forgets a partition."""
        with self._lock:
            graph = self.graphs.pop(handle, None)
            if graph is not None and graph.session_handle in self.sessions:
                self.sessions[graph.session_handle].graphs.discard(handle)

    def graph(self, handle: int) -> RegisteredGraph:
        """The registered graph of that handle.

        Raises:
          AbortedError: when there is none, as after a restart.
        """
        graph = self.graphs.get(handle)
        if graph is None:
            text = f'Graph handle is not found: {handle:016x}. Possibly, this worker ("{self.task}") just restarted.'
            raise errors.AbortedError(None, None, text)
        return graph

    # ---- steps ------------------------------------------------------------------------------

    def run_graph(self, graph: RegisteredGraph, step_id: int, feeds: Sequence[Any], on_done: Done) -> StepRun:
        """Starts a step; ``on_done`` is called once, possibly before this returns."""
        try:
            graph.program.bind(graph.resources)
        except BaseException:  # even Ctrl-C: what has arrived for a step that never runs would stay for ever
            self.forget_step(step_id)
            raise
        if graph.program.trace is None:
            run = StepRun(self, graph, step_id)
        else:
            run = TracedRun(self, graph, step_id)
            self.traces.keep(step_id, run.trace, graph)
        with self._lock:
            loss: errors.OpError | None = self._early.loss(step_id)
            early = self._early.take(step_id)
            over = step_id in self._over
            self.steps[step_id] = run

        def finished(error: errors.OpError | None, values: list[Any]) -> None:
            with self._lock:
                self.steps.pop(step_id, None)
                if graph.program.arrivals:
                    self._remember(step_id)
            on_done(error, values)

        for group, values, path, arrived_ns in early:
            run.deliver(group, values, path, arrived_ns)
        if over:
            loss = errors.AbortedError(None, None, f"Step {step_id} was aborted before it started.", derived=True)
        if loss is not None:
            run.abort(loss)  # before the start, which then runs nothing
        run.start(feeds, finished)
        return run

    def receive(self, step_id: int, group: int, values: Sequence[Any], dead: int = 0, iteration: str = "") -> None:
        """Takes in tensors from another task; those of a step that is over are dropped."""
        path = tuple(map(int, iteration.split("."))) if iteration else ()
        if dead:
            values = [DEAD if dead >> i & 1 else value for i, value in enumerate(values)]
        with self._lock:
            run = self.steps.get(step_id)
            if run is None:
                if step_id not in self._over:
                    self._early.add(step_id, (group, values, path, time.perf_counter_ns()), values)
                return
        run.deliver(group, values, path)

    def abort_step(self, step_id: int, error: errors.OpError) -> None:
        """Ends a step that failed elsewhere; tensors of it that still arrive are dropped."""
        self.forget_step(step_id)
        run = self.steps.get(step_id)
        if run is not None:
            run.abort(error)

    def forget_step(self, step_id: int) -> None:
        """Drops the tensors that have come for a step, and those that still will."""
        with self._lock:
            self._early.take(step_id)
            self._remember(step_id)

    def step_stats(self, step_id: int) -> bytes:
        """What a traced step recorded here, as a StepStats in this task's wall-clock time; given out once."""
        found = self.traces.take(step_id)
        return b"" if found is None else task_stats(found[1].task, step_id, *found).SerializeToString()

    def peer_lost(self, task: str, why: str, peer: Any = None) -> None:
        """Ends the steps that exchange tensors with a task that cannot be reached any more.

        The master sees the tasks that it talks to itself; the link between two workers only they see.
        """
        self.collectives.peer_lost(task, why)
        with self._lock:
            involved = [
                run
                for run in self.steps.values()
                if task in run.program.sends.values()
                or peer is not None and peer in run.graph.peers.values()  # it may have another name in a session
                or any(run.graph.senders.get(g) == task for g in run.missing | run.program.loop_groups)
            ]
        for run in involved:
            text = f"{task} was lost by {self.task} in step {run.step_id}: {why}"
            self.abort_step(run.step_id, errors.UnavailableError(None, None, text, task=task))

    def _remember(self, step_id: int) -> None:
        self._over[step_id] = None
        while len(self._over) > _REMEMBERED_STEPS:
            self._over.popitem(last=False)

    def send_group(self, run: StepRun, group: int, values: tuple[Any, ...], path: Path) -> None:
        """Pushes a group to the task that expects it."""
        graph = run.graph
        dead = 0
        if group in graph.program.uncertain_sends:
            dead = sum(1 << i for i, value in enumerate(values) if value is DEAD)
            values = tuple(_NOTHING if value is DEAD else value for value in values)
        if bytes in map(type, values):  # a scalar string; messages hold arrays
            values = tuple(np.array(value, object) if type(value) is bytes else value for value in values)
        iteration = ".".join(map(str, path)) if path else ""
        message = SendTensors(run.step_id, iteration, group, dead, values)
        graph.peers[graph.program.sends[group]].send(message, run.abort)

    def schedule(self, activation: Activation, segment: int) -> bool:
        """Hands a long segment to the pool; False: the caller should run it itself."""
        if self._peer_for is None:
            return False
        seconds = activation.level.segments[segment].seconds
        # What has not run yet may take any time. A client's own thread may try it, since the reactor's steward
        # takes over meanwhile; the steward has nobody behind it.
        if seconds < _LONG_SEGMENT_S and (seconds or not get_reactor().is_steward()):
            return False
        return self.run_in_pool(activation.run_later, segment)

    def run_in_pool(self, function: Callable[..., None], *args: Any) -> bool:
        """Calls a function in a thread of the pool, because it takes long; False when this worker is closed."""
        with self._lock:
            if self._closed:
                return False
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._pool_size, thread_name_prefix="tfmini-kernels")
            self._pool.submit(function, *args)
        return True

    def cleanup_all(self, containers: Sequence[str]) -> None:
        """Clears containers (`Session.reset`)."""
        self.resources.clear(containers)

    def close(self) -> None:
        """Cancels what runs and lets the pool go."""
        with self._lock:
            self._closed = True
            running = list(self.steps.values())
            pool, self._pool = self._pool, None
        for run in running:
            run.abort(errors.CancelledError(None, None, f"{self.task} is shutting down."))
        self.collectives.close()
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
        self.resources.release()


def _received_groups(nodes: Sequence[Node]) -> tuple[dict[int, str], dict[int, str]]:
    """What each received group carries, for people, and the task that sends it."""
    found: dict[int, list[str]] = {}
    senders: dict[int, str] = {}
    for node in nodes:
        if node.op == "_Recv" and "_group" in node.attrs:
            name = node.attrs["tensor_name"].decode()
            found.setdefault(node.attrs["_group"], []).append(name.split("_", 2)[-1])
            senders[node.attrs["_group"]] = task_of_device(node.attrs["send_device"].decode())
    labels = {g: ", ".join(names[:4]) + ("…" if len(names) > 4 else "") for g, names in found.items()}
    return {g: f"{label} from {senders[g]}" for g, label in labels.items()}, senders
