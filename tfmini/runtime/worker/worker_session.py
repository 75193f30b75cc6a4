"""What a worker keeps, by session, graph and step: `TaskState`, which is pure; the worker guards it by one lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.runtime.executor.partition_run import PartitionRun, StepOutcome
from tfmini.runtime.executor.registered_graph import RegisteredGraph
from tfmini.runtime.resources import Resources
from tfmini.runtime.trace.record import KeptTraces
from tfmini.runtime.worker.early_tensors import EarlyTensors
from tfmini.runtime.worker.ended_steps import EndedSteps
from tfmini.runtime.worker.part_counts import PartCounts
from tfmini.runtime.worker.step_outcomes import StepOutcomes

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer


@dataclass
class WorkerSession:
    """A master's session on this worker.

    Attributes:
      task: the worker's name in the session's own cluster; "" without one.
      kernels: node -> kernel with a state of its own, which all programs of the session share.
    """

    handle: str
    resources: Resources
    addresses: Mapping[str, str]
    task: str = ""
    graphs: set[int] = field(default_factory=set)
    kernels: dict[str, Callable[..., Any]] = field(default_factory=dict)


class TaskState:
    """The sessions, graphs and steps of one task.

    Attributes:
      runs: step id -> the run on this task. A client's thread that runs a local step alone adds and removes its own.
      early: of (group, values, path, time of arrival).
      sweeps: whether somebody looks after the early tensors.
    """

    def __init__(self, task: str) -> None:
        self.sessions: dict[str, WorkerSession] = {}
        self.graphs: dict[int, RegisteredGraph] = {}
        self.runs: dict[int, PartitionRun] = {}
        self.early, self.ended = EarlyTensors(task), EndedSteps()
        self.traces, self.outcomes, self.counts = KeptTraces(), StepOutcomes(), PartCounts()
        self.sweeps = self.closed = False

    # ---- sessions and graphs ----------------------------------------------------------------

    def open_session(self, session: WorkerSession) -> None:
        """A master opens a session, perhaps again."""
        self.sessions.setdefault(session.handle, session)

    def close_session(self, handle: str) -> tuple[WorkerSession | None, list[PartitionRun]]:
        """Forgets a session, its graphs and its traces; returns it with its runs."""
        self.outcomes.end_session(handle)
        session = self.sessions.pop(handle, None)
        self.counts.end_session(handle)
        self.traces.forget_session(handle)
        for graph in session.graphs if session else ():
            self.counts.forget(self.graphs.pop(graph, None))
        return session, [run for run in list(self.runs.values()) if run.graph.session_handle == handle]

    def register(self, session: WorkerSession, graph: RegisteredGraph) -> bool:
        """Adds a graph; False: its session was closed meanwhile."""
        is_open = self.sessions.get(session.handle) is session
        if is_open:
            self.graphs[graph.handle] = graph
            session.graphs.add(graph.handle)
        return is_open

    def deregister(self, handle: int) -> None:
        """Forgets a graph."""
        self.counts.forget(graph := self.graphs.pop(handle, None))
        if graph is not None and graph.session_handle in self.sessions:
            self.sessions[graph.session_handle].graphs.discard(handle)

    # ---- steps ------------------------------------------------------------------------------

    def begin(self, run: PartitionRun) -> tuple[Iterable[Any], errors.OpError | None]:
        """A run begins: returns the tensors that are here for it, and the reason why it cannot start, if any."""
        step_id = run.step_id
        if run.trace is not None:
            self.traces.keep(step_id, run.trace, run.graph)
        self.runs[step_id] = run
        loss = self.early.loss(step_id)
        if step_id in self.ended:
            loss = errors.AbortedError.of(f"Step {step_id} was aborted before it started.", derived=True)
        return self.early.take(step_id), loss

    def end(self, run: PartitionRun, updates_before: int, has_failed: bool, outcome: Any) -> None:
        """A run has ended.

        Args:
          updates_before: see `PartCounts.over`.
          outcome: for `StepOutcomes.note`; None if the run makes no updates, or has not begun.
        """
        graph = run.graph
        if outcome is not None:
            self.outcomes.note(run, outcome)
        self.counts.over(run, updates_before, has_failed)
        self.runs.pop(run.step_id, None)
        if graph.program.arrivals or graph.peers:
            self.ended.add(run.step_id, graph.session_handle, graph.peers)

    def give_up(self, step_id: int) -> None:
        """A run that could not begin is gone, with the tensors that have come for it."""
        self.runs.pop(step_id, None)
        self.forget(step_id)

    def forget(self, step_id: int) -> None:
        """A step is over: drops its tensors that have come, and those that come later."""
        self.early.take(step_id)
        self.ended.add(step_id)

    # ---- tensors of other tasks -------------------------------------------------------------

    def arrive(self, step_id: int, entry: Any, values: Sequence[Any], sender: Any) -> tuple[PartitionRun | None, bool]:
        """Tensors have come: returns the run that takes them, and whether they are kept and to be swept from now on."""
        run = self.runs.get(step_id)
        if run is not None or step_id in self.ended:
            return run, False
        self.early.add(step_id, entry, values, sender)
        swept, self.sweeps = self.sweeps, not self.closed
        return None, self.sweeps and not swept

    def sweep(self) -> bool:
        """Drops early tensors whose step does not start; returns whether to come again."""
        self.sweeps = self.early.sweep() and not self.closed
        return self.sweeps

    def drop_orphans(self, task: str, why: str, peer: Peer | None) -> None:
        """Drops the early tensors of a task that is gone."""
        self.early.drop_from(peer, task, why)

    def sent_to(self, peer: Peer | None) -> dict[int, str]:
        """The steps that have ended here and whose tensors for a peer may have been in flight, with their sessions."""
        return {} if self.closed else self.ended.sent_to(peer)

    def lose(self, step_id: int, error: errors.OpError) -> PartitionRun | None:
        """Tensors of a step are lost: returns its run; one that has not begun will get the error."""
        run = self.runs.get(step_id)
        if run is None and step_id not in self.ended:
            self.early.drop(step_id, error)
        return run

    # ---- questions --------------------------------------------------------------------------

    def outcome_of(self, session: str, step_id: int) -> StepOutcome | PartitionRun:
        """What a step has done here; see `StepOutcomes.of`."""
        return self.outcomes.of(session, step_id, session in self.sessions)

    def take_trace(self, step_id: int) -> Any:
        """See `KeptTraces.take`."""
        return self.traces.take(step_id)

    def executed(self) -> dict[str, int]:
        """How often clients' threads have run a graph alone, by session; "" for graphs that are gone."""
        found = {"": self.counts.executed}
        for graph in self.graphs.values():
            found[graph.session_handle] = found.get(graph.session_handle, 0) + graph.executed
        return found

    def close(self) -> list[PartitionRun]:
        """The task ends: returns the runs."""
        self.closed = True
        return list(self.runs.values())
