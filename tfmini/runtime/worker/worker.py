"""The worker of a task: registered graphs, their runs, and resources.

A worker knows neither whole graphs nor placement. It compiles the partition that a master registers, runs it on
request, sends its tensors to other workers and receives theirs. A master in the same process calls the methods
directly; `worker_service` calls them for messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini import errors
from tfmini.devices import parse
from tfmini.locks import Guarded
from tfmini.memory import collector_at_rest
from tfmini.placement.placer import DeviceAttributes
from tfmini.placement.task_graph import TaskGraph
from tfmini.rpc.messages import SendTensors
from tfmini.runtime.collectives.executor import CollectiveExecutor, RankCluster
from tfmini.runtime.compiler.kernels import several_may_block
from tfmini.runtime.compiler.levels import Program
from tfmini.runtime.compiler.lowering import DEAD
from tfmini.runtime.compiler.program import compile_program
from tfmini.runtime.executor.dataflow_run import DataflowRun
from tfmini.runtime.executor.dispatch import BlockingRun, TaskThreads, can_block
from tfmini.runtime.executor.registered_graph import Done, FunctionRun, PartitionRun, Path, RegisteredGraph, StepOutcome
from tfmini.runtime.gathered_trace import task_stats
from tfmini.runtime.process import Process, current_process
from tfmini.runtime.resources import ResourceManager
from tfmini.runtime.trace import clock
from tfmini.runtime.worker.departures import Departures
from tfmini.runtime.worker.task_state import KEEP_S, ORPHAN_S, LossReports, TaskState, WorkerSession

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer

_NOTHING = np.zeros((0,), np.float32)


_log = logging.getLogger("tfmini.runtime")


class Worker:
    """See the module.

    Args:
      task: full task name.
      devices: the devices of this task.
      peer_for: (task, address) -> peer to send tensors to; None for a worker without a network.
      pool_size: how many long segments may run at once (``inter_op_parallelism_threads``).
      reactor: of the process; None without a network.
      process: the process that the worker belongs to; None: the current one.
      losses: whom to tell of lost tensors; None: a worker without a network loses none.
      ranks: the cluster of its collectives; None: this task is alone.

    Attributes:
      sessions, graphs, runs, early, traces, outcomes, counts: those of its `TaskState`, which alone changes them.
      threads: those that run long segments.
      departures: what has moved away from here.
      cleanups: how often containers were cleared.
      now: the clock of the process, in seconds.
      new_step_id: makes a number that no other step of the cluster has.
    """

    def __init__(
        self, task: str, devices: Sequence[DeviceAttributes], peer_for: Callable[[str, str], Any] | None = None,
        pool_size: int = 2, reactor: Any = None, process: Process | None = None, losses: LossReports | None = None,
        ranks: RankCluster | None = None,
    ) -> None:  # fmt: skip
        self.process = process = process or current_process()
        self.now, self.new_step_id = process.now, process.new_step_id
        self.task = task
        self.devices = list(devices)
        self.incarnation = devices[0].incarnation if devices else process.randbits(63)
        self.default_container = parse(task).job or "localhost"
        self.resources = ResourceManager(self.default_container)
        self.departures = Departures(task, self.incarnation, self.resources)
        self.reactor = reactor
        self.threads = TaskThreads(process, reactor, pool_size)
        self.losses = losses or LossReports(task)
        self._peer_for = peer_for
        self._state = Guarded("task", state := TaskState(task))
        self.sessions, self.graphs, self.runs = state.sessions, state.graphs, state.runs
        self.early, self.traces, self.outcomes, self.counts = state.early, state.traces, state.outcomes, state.counts
        self._sweep_timer: Any = None
        self.cleanups = 0
        most_ranks = len(devices) if peer_for is None else None
        self.collectives = CollectiveExecutor(task, process, ranks, self.runs.values, self.incarnation, most_ranks)

    # ---- sessions and graphs ----------------------------------------------------------------

    def create_session(self, handle: str, isolate: bool, addresses: Mapping[str, str], task: str = "") -> None:
        """Opens a session.

        Args:
          isolate: gives it resources of its own.
          addresses: of the tasks in its cluster.
          task: the name of this task in that cluster, if it is not the server's own cluster.
        """
        resources = ResourceManager(self.default_container) if isolate else self.resources.for_session(handle)
        self._state(TaskState.open_session, WorkerSession(handle, resources, addresses, task))

    def delete_session(self, handle: str, error: errors.OpError | None = None) -> None:
        """Forgets a session and its graphs, and aborts its runs.

        Args:
          error: of the runs that have not been aborted yet.
        """
        session, running = self._state(TaskState.close_session, handle)
        # Other sessions use what is not isolated, but a worker without a network serves one session.
        if session is not None and (isinstance(session.resources, ResourceManager) or self._peer_for is None):
            session.resources.release()
        for run in running:
            run.abort(error or _session_closed(run.step_id))
        self.resources.end_session(handle)

    def register_graph(
        self, session_handle: str, task_graph: TaskGraph, fold_constants: bool = True, traced: bool = False,
        for_client: bool = False, is_whole: bool = False,
    ) -> RegisteredGraph:  # fmt: skip
        """Compiles a partition and chooses the driver of its runs.

        Args:
          fold_constants: compute constant parts now.
          traced: note when each node runs.
          for_client: whether the fetched values go to a client in this process.
          is_whole: whether the partition is the only part of its plan.

        Raises:
          AbortedError: when the session is not known here.
          InvalidArgumentError: when an op has no kernel.
          VariablesMoved: when it names variables that are on other tasks now.
        """
        session = self.sessions.get(session_handle)
        if session is None:
            raise errors.AbortedError.of(
                f'Session handle is not found: {session_handle}. Possibly this worker ("{self.task}") just restarted.',
            )
        self.departures.check(session.resources, task_graph.nodes.values())
        with collector_at_rest():
            program = compile_program(
                task_graph, resources=session.resources, fold_constants=fold_constants, traced=traced,
                kernels=session.kernels, model=self.process.kernel_model,
                threads=self._peer_for is not None or several_may_block(task_graph.nodes.values(), "CPU"),
            )  # fmt: skip
        graph = RegisteredGraph(
            self.process.randbits(63) | 1, session_handle, program, session.resources, session.task or self.task,
            choose_driver(program, for_client and is_whole, self.reactor is not None), for_client,
            {task: self._peer(session, task) for task in set(program.sends.values())}, task_graph,
        )  # fmt: skip
        if not self._state(TaskState.register, session, graph):
            raise errors.AbortedError.of(f"Session {session_handle} was closed while its graph was compiled.")
        return graph

    def _peer(self, session: WorkerSession, task: str) -> Any:
        if self._peer_for is None or task not in session.addresses:
            raise errors.InternalError.of(f"{self.task} does not know the address of {task}")
        return self._peer_for("" if session.task else task, session.addresses[task])

    def deregister_graph(self, handle: int) -> None:
        """Forgets a partition."""
        self._state(TaskState.deregister, handle)

    def graph(self, handle: int) -> RegisteredGraph:
        """The registered graph of that handle.

        Raises:
          AbortedError: when there is none, as after a restart.
        """
        graph = self.graphs.get(handle)
        if graph is None:
            text = f'Graph handle is not found: {handle:016x}. Possibly, this worker ("{self.task}") just restarted.'
            raise errors.AbortedError.of(text)
        return graph

    # ---- steps ------------------------------------------------------------------------------

    def execute(self, graph: RegisteredGraph, feeds: Sequence[Any], timeout_s: float | None = None) -> list[Any]:
        """Runs a local step, of a graph with a blocking driver, in the calling thread; returns the fetched values.

        Args:
          timeout_s: seconds after which a loop or a wait ends with DeadlineExceededError.

        Raises:
          OpError: the failure of the run.
        """
        if graph.program.generation != graph.resources.generation:  # a comparison here saves a call in most steps
            graph.program.bind(graph.resources)
        step_id = self.new_step_id()
        graph.executed += 1
        run = self.runs[step_id] = graph.driver(self, graph, step_id, feeds, timeout_s)
        try:
            if graph.session_handle not in self.sessions:  # else `delete_session` will find the run
                run.abort(_session_closed(step_id))
            return run.execute()
        finally:
            del self.runs[step_id]

    def run_graph(
        self, graph: RegisteredGraph, step_id: int, feeds: Sequence[Any], on_done: Done, timeout_s: float | None = None
    ) -> PartitionRun:
        """Starts a run; ``on_done`` is called once, possibly before this returns.

        Args:
          timeout_s: the limit for loops, and for a run with a blocking driver.

        Raises:
          InvalidArgumentError: the fed values are not those that the graph expects.
        """
        graph.check_feeds(feeds)
        updates_before = self.counts.updates
        try:
            run, loss = self._new_run(graph, step_id, feeds, timeout_s)
        except BaseException:  # even Ctrl-C: neither the run nor tensors that arrive for it may stay for ever
            self._state(TaskState.give_up, step_id)
            raise

        def finished(error: errors.OpError | None, values: list[Any]) -> None:
            if run.trace is not None:
                run.trace.finished = clock()
            self.run_over(run, updates_before, error, loss is None)
            on_done(error, values)

        if loss is not None:
            run.abort(loss)  # before the start, which then runs nothing
        run.start(finished)
        return run

    def _new_run(
        self, graph: RegisteredGraph, step_id: int, feeds: Sequence[Any], timeout_s: float | None
    ) -> tuple[PartitionRun, errors.OpError | None]:
        """A run that has the tensors which arrived before it, and the reason why it cannot start, if any."""
        graph.program.bind(graph.resources)
        run = graph.driver(self, graph, step_id, feeds, timeout_s)
        with self._state.lock:
            early, loss = self._state.state.begin(run)
        for group, values, path, arrived_ns in early:
            graph.check_group(group, values)
            run.deliver(group, values, path, arrived_ns)
        return run, loss

    def run_over(self, run: PartitionRun, updates_before: int, error: errors.OpError | None, has_begun: bool) -> None:
        """Notes that a run has ended.

        Args:
          updates_before: see `PartCounts.over`.
          has_begun: false if it could not start.
        """
        outcome: StepOutcome | PartitionRun | None = None
        if run.graph.complete.made and has_begun:
            outcome = run.graph.complete if error is None else run.outcome() if run.is_settled else run
        with self._state.lock:
            self._state.state.end(run, updates_before, error is not None, outcome)

    def outcome_of(self, session: str, step_id: int) -> StepOutcome | PartitionRun:
        """What a step has done here, or its run while that still computes; see `StepOutcomes.of`."""
        return self._state(lambda state: state.outcomes.of(session, step_id, session in state.sessions))

    def final_outcome(self, session: str, step_id: int, told: Callable[[StepOutcome], None]) -> None:
        """Calls back with what a step has done here.

        The step is aborted if it runs, and cannot begin any more. Nobody knows what a kernel will have done that runs
        now: the call waits for its end.

        Raises:
          UnknownError: see `StepOutcomes.of`.
        """
        self.abort_step(step_id, errors.CancelledError.of(f"Step {step_id} has failed elsewhere.", derived=True))
        found = self.outcome_of(session, step_id)
        if isinstance(found, StepOutcome):
            told(found)
        else:
            run = found
            run.when_settled(lambda: told(run.outcome()))

    def receive(
        self, step_id: int, group: int, values: Sequence[Any], dead: bytes = b"", iteration: str = "",
        sender: Any = None,
    ) -> None:  # fmt: skip
        """Takes in tensors from another task; tensors of a step that is over are dropped.

        Raises:
          InvalidArgumentError: the step runs, and expects tensors of other types.
        """
        values, path = unpacked(values, dead, iteration)
        run = self.runs.get(step_id)
        if run is None:
            entry = group, values, path, clock()
            run, sweeps = self._state(TaskState.arrive, step_id, entry, values, sender)
            if sweeps and self.reactor is not None:
                self._sweep_later()
        if run is not None:
            run.graph.check_group(group, values)
            run.deliver(group, values, path)

    def _sweep_later(self) -> None:
        self._sweep_timer = self.reactor.call_later(KEEP_S, self._sweep)
        if self._state.state.closed:  # meanwhile
            self._sweep_timer.cancel()

    def _sweep(self) -> None:
        """Drops early tensors whose step does not start."""
        if self._state(TaskState.sweep):
            self._sweep_later()

    def abort_step(self, step_id: int, error: errors.OpError) -> None:
        """Aborts the run of a step that failed elsewhere; its tensors that still arrive are dropped."""
        self.forget_step(step_id)
        run = self.runs.get(step_id)
        if run is not None:
            run.abort(error)

    def forget_step(self, step_id: int) -> None:
        """Drops the tensors that have arrived for a step, and those that arrive later."""
        self._state(TaskState.forget, step_id)

    def step_stats(self, step_id: int) -> bytes:
        """The serialized StepStats of a traced step on this task, in its wall-clock time; b"" when asked again."""
        found = self._state(lambda state: state.traces.take(step_id))
        return b"" if found is None else task_stats(found[1].task, step_id, *found).SerializeToString()

    def peer_lost(self, task: str, why: str, peer: Peer | None = None) -> None:
        """Aborts the runs that exchange tensors with a task that can no longer be reached.

        A master watches only the tasks that it calls itself. Only this worker watches its links to other workers.
        """
        self.collectives.peer_lost(task, why, 0 if peer is None else peer.incarnation)
        for run in list(self.runs.values()):
            if run.needs(task, peer):
                text = f"{task} was lost by {self.task} in step {run.step_id}: {why}"
                self.abort_step(run.step_id, errors.UnavailableError.of(text, task=task))
        if self.early and self.reactor is not None:  # the step of a task that has done its part may start soon
            self.reactor.call_later(ORPHAN_S, self._state, lambda state: state.early.drop_from(peer, task, why))
        self.losses.report(peer, self._state(TaskState.sent_to, peer), why)

    def tensors_lost(self, step_ids: Sequence[int], task: str, why: str, peer: Peer | None) -> None:
        """Ends the steps that need tensors which a task sent before it, or its connection to this one, was lost."""
        for step_id in step_ids:
            text = f"Tensors of {task} for step {step_id} were lost on their way to {self.task}: {why}"
            error = errors.UnavailableError.of(text, task=task)
            run = self._state(TaskState.lose, step_id, error)
            if run is not None and run.awaits_from(task, peer):
                self.abort_step(step_id, error)

    def send_group(self, run: PartitionRun, group: int, values: tuple[Any, ...], path: Path) -> None:
        """Pushes a group to the task that expects it."""
        graph = run.graph
        message = packed(graph.program, run.step_id, group, values, path)
        peer = graph.peers[graph.program.sends[group]]
        peer.send(message, lambda error: self._unsent(run, peer, error))

    def _unsent(self, run: PartitionRun, peer: Peer, error: errors.OpError) -> None:
        """A group was dropped for want of a connection. If its run is over, only the master can end the step."""
        is_over = self.runs.get(run.step_id) is not run
        run.abort(error)
        if is_over and not self._state.state.closed:
            self.losses.tell_masters(peer, {run.step_id: run.graph.session_handle}, error.message)

    def cleanup_all(self, containers: Sequence[str], who: str = "") -> None:
        """Clears containers (`Session.reset`); ``who`` asks for it, "" for this process."""
        self.cleanups += 1
        if who:
            _log.warning("%s: %s clears containers: %s", self.task, who, list(containers) or "the default one")
        self.resources.clear(containers)

    def close(self) -> None:
        """Aborts all runs and ends the pool."""
        running = self._state(TaskState.close)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self.threads.close()
        for run in running:
            run.abort(errors.shutting_down(self.task))
        self.collectives.close()
        self.resources.release()


def _session_closed(step_id: int) -> errors.OpError:
    return errors.CancelledError.of(f"The session of step {step_id} was closed.", derived=True)


def packed(program: Program, step_id: int, group: int, values: tuple[Any, ...], path: Path) -> SendTensors:
    """The message that sends a group. Dead values travel as bits."""
    dead = b""
    if group in program.uncertain_sends:
        bits = sum(1 << i for i, value in enumerate(values) if value is DEAD)
        dead = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        values = tuple(_NOTHING if value is DEAD else value for value in values)
    if bytes in map(type, values):  # a scalar string; messages hold arrays
        values = tuple(np.array(value, object) if type(value) is bytes else value for value in values)
    iteration = ".".join(map(str, path)) if path else ""
    return SendTensors(step_id, iteration, group, dead, values)


def unpacked(values: Sequence[Any], dead: bytes, iteration: str) -> tuple[Sequence[Any], Path]:
    """The values of a message, with the dead ones among them, and the path of its iteration."""
    path = tuple(map(int, iteration.split("."))) if iteration else ()
    if dead:
        bits = int.from_bytes(dead, "little")
        values = [DEAD if bits >> i & 1 else value for i, value in enumerate(values)]
    return values, path


def choose_driver(program: Program, in_caller: bool, has_network: bool) -> type[PartitionRun]:
    """The driver for all runs of a program; it is chosen once, at registration.

    Args:
      in_caller: whether the thread of the client may run the program: the client is in this process, and the
        program is the only part of its plan.
    """
    if not in_caller:
        return DataflowRun
    if program.is_simple:
        return FunctionRun
    return BlockingRun if has_network and can_block(program) else DataflowRun
