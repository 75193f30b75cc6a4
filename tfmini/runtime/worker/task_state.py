"""What a worker keeps, by session, graph and step: `TaskState`, which is pure; the worker guards it by one lock."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini import errors
from tfmini.core_types import TensorLike
from tfmini.rpc.messages import Acknowledged, LostTensors
from tfmini.runtime.executor.registered_graph import PartitionRun, RegisteredGraph, StepOutcome
from tfmini.runtime.resources import Resources
from tfmini.runtime.trace import KeptTraces

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer

STEP_LIMIT = 10_000
BYTE_LIMIT = 4 << 30  # bytes; the latest step may exceed it alone
KEEP_S = 300.0  # seconds between two calls of `sweep`
ORPHAN_S = 10.0  # seconds from the loss of a sender to `drop_from`
ENTRY_BYTES = 256  # the size of an entry beside its values
_REPORT_S = 300.0  # seconds for which a worker tries to tell the receiver, and then the master
BUCKETS = 12  # 0, 1, 2-3, 4-7, …; the last one has all above
_MOST = 4096  # a larger staleness counts as this one, which bounds the memory
_STEPS, _ENDED_SESSIONS = 50, 2000  # sessions: many clients may end theirs at once, when a link breaks
_FORGOTTEN = (
    "This task has forgotten the session of step {step_id}, which was closed long ago, and does not know which updates"
    " the step has made. The step is not repeated, since an update could be made twice. Go on from the last checkpoint,"
    " or run the step again if that does no harm."
)


class _Kept:
    """The tensors of one step."""

    __slots__ = ("bytes", "entries", "is_old")

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.bytes: collections.Counter[Any] = collections.Counter()  # by sender
        self.is_old = False


class EarlyTensors:
    """Tensors that arrive before their step: the sender was started first, or the RunGraph is still in flight.

    They are kept by step until the step takes them. A step that never starts must not keep memory for ever. So
    steps and bytes are bounded, a step that does not start is dropped after a while, and so are the tensors of a
    task that is gone. Beyond the bytes, the sender that takes most of them loses its oldest step first. If a
    dropped step starts after all, it fails with the reason instead of waiting for the dropped tensors.

    Args:
      task: the one that keeps them, for messages.
    """

    def __init__(self, task: str, step_limit: int = STEP_LIMIT, byte_limit: int = BYTE_LIMIT) -> None:
        self._task = task
        self._step_limit = step_limit
        self._byte_limit = byte_limit
        self._steps: collections.OrderedDict[int, _Kept] = collections.OrderedDict()  # oldest first
        self._by_sender: collections.Counter[Any] = collections.Counter()  # bytes
        self._dropped: collections.OrderedDict[int, errors.OpError] = collections.OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        """How many steps have tensors here."""
        return len(self._steps)

    def add(self, step_id: int, entry: Any, values: Sequence[Any], sender: Any = None) -> None:
        """Keeps ``entry``, which holds ``values`` of that sender, for a step."""
        if step_id in self._dropped:
            return  # the step has lost some already
        size = ENTRY_BYTES + sum(_size(value) for value in values)
        kept = self._steps.setdefault(step_id, _Kept())
        kept.entries.append(entry)
        kept.bytes[sender] += size
        self._by_sender[sender] += size
        self.bytes += size
        while len(self._steps) > self._step_limit or self.bytes > self._byte_limit and len(self._steps) > 1:
            oldest = next(iter(self._steps)) if len(self._steps) > self._step_limit else self._victim(step_id)
            self.drop(oldest, self._over_limit(oldest))

    def _victim(self, latest: int) -> int:
        """The oldest step of the sender that takes most bytes, but not the latest step."""
        greedy = max(self._by_sender, key=self._by_sender.__getitem__)
        older = [step_id for step_id, kept in self._steps.items() if greedy in kept.bytes and step_id != latest]
        return older[0] if older else next(step_id for step_id in self._steps if step_id != latest)

    def _over_limit(self, step_id: int) -> errors.OpError:
        return errors.ResourceExhaustedError.of(
            f"Tensors for step {step_id} came to {self._task} long before the step did and were dropped, because"
            f" {self._byte_limit} bytes or {self._step_limit} steps of such tensors were waiting here. Is the master"
            " of the step overloaded or cut off?"
        )

    def drop(self, step_id: int, error: errors.OpError) -> None:
        """Drops what has come for a step; if the step starts after all, it gets the error."""
        self.take(step_id)
        self._dropped[step_id] = error
        while len(self._dropped) > self._step_limit:
            self._dropped.popitem(last=False)

    def sweep(self) -> bool:
        """Drops the steps that were here at the last sweep already; returns whether any are left."""
        for step_id in [step_id for step_id, kept in self._steps.items() if kept.is_old]:
            text = (
                f"Tensors for step {step_id} came to {self._task} more than {KEEP_S:g} s before the step did and were"
                " dropped. Is the master of the step overloaded or cut off?"
            )
            self.drop(step_id, errors.ResourceExhaustedError.of(text))
        for kept in self._steps.values():
            kept.is_old = True
        return bool(self._steps)

    def drop_from(self, sender: Any, task: str, why: str) -> None:
        """Drops the steps that have tensors of a sender that is gone.

        Args:
          task: the sender's name.
          why: it is gone.
        """
        for step_id in [step_id for step_id, kept in self._steps.items() if sender in kept.bytes]:
            text = f"{task} was lost by {self._task} after it had sent tensors for step {step_id}, not begun yet: {why}"
            self.drop(step_id, errors.UnavailableError.of(text, task=task))

    def take(self, step_id: int) -> Iterable[Any]:
        """Takes out the tensors of a step."""
        kept = self._steps.pop(step_id, None)
        if kept is None:
            return ()
        for sender, size in kept.bytes.items():
            self.bytes -= size
            self._by_sender[sender] -= size
            if not self._by_sender[sender]:
                del self._by_sender[sender]
        return kept.entries

    def loss(self, step_id: int) -> errors.OpError | None:
        """The error of a step whose tensors have been dropped, or None."""
        return self._dropped.pop(step_id, None)


def _size(value: TensorLike) -> int:
    """The bytes of a value; strings are objects, of which an array has only the addresses."""
    if not isinstance(value, np.ndarray):
        return 0
    return value.nbytes + sum(map(len, value.flat)) if value.dtype == object else value.nbytes


class EndedSteps:
    """The latest steps that have ended, with their sessions and the peers that they could send to."""

    def __init__(self) -> None:
        self._steps: collections.OrderedDict[int, tuple[str, Mapping[str, Any]]] = collections.OrderedDict()

    def __contains__(self, step_id: int) -> bool:
        return step_id in self._steps

    def add(self, step_id: int, session: str = "", peers: Mapping[str, Any] = types.MappingProxyType({})) -> None:
        """Remembers a step.

        Args:
          session: the handle of its session.
          peers: as `RegisteredGraph.peers`.
        """
        self._steps[step_id] = session, peers
        while len(self._steps) > STEP_LIMIT:
            self._steps.popitem(last=False)

    def sent_to(self, peer: Peer | None) -> dict[int, str]:
        """The steps that had tensors to send to a peer, with their sessions."""
        return {step_id: session for step_id, (session, peers) in self._steps.items() if peer in peers.values()}


class LossReports:
    """Tells others of tensors that are lost.

    A worker sends tensors without waiting for an answer. If the connection breaks, tensors in flight are lost. A
    run that waits for them ends when its own worker notices the loss. But the receiver's run may begin later, and
    the sender's may have ended already; then only the sender's worker knows that the run may wait for lost tensors,
    and it tells the receiver (`Worker.peer_lost`). If the receiver cannot be told, or the tensors were never sent
    for want of a connection (`Worker._unsent`), the sender's worker tells the masters of these steps, which end
    them. If the sender's process has died after its part of a step had ended, the master tells the tasks that have
    not answered (`Step.task_lost`). Otherwise the receiver would wait without end.

    Args:
      masters_of: handle of a session -> the connections of its master's task; none for the master of this task.
      on_undelivered: tells the master of this task, as `tensors_undelivered` of `Master`.
    """

    def __init__(
        self, task: str, masters_of: Callable[[str], Sequence[Any]] = lambda session: (),
        on_undelivered: Callable[[Sequence[int], str, str, str], Any] = lambda *_: None,
    ) -> None:  # fmt: skip
        self._task = task
        self._masters_of = masters_of
        self.on_undelivered = on_undelivered

    def report(self, peer: Peer | None, steps: Mapping[int, str], why: str) -> None:
        """Tells a peer of steps that have ended here and whose tensors it may not have got.

        Args:
          steps: step id -> handle of its session.
        """

        def answered(answer: Any) -> None:
            if not isinstance(answer, errors.CancelledError | Acknowledged):  # cancelled: this task shuts down
                self.tell_masters(peer, steps, f"{why}. For {_REPORT_S:g} s it could not be told")

        # To any incarnation: a dead link may have gone to the one before that which waits.
        if steps and peer is not None:
            peer.call(LostTensors(list(steps), why, "", ""), answered, _REPORT_S, wait_for_ready=True)

    def tell_masters(self, receiver: Any, steps: Mapping[int, str], why: str) -> None:
        """Tells the masters of steps that tensors for a receiver are lost, and that the receiver does not know it."""
        name = receiver.task or str(receiver)  # without a name: the session has its own cluster
        by_session: dict[str, list[int]] = {}
        for step_id, session in steps.items():
            by_session.setdefault(session, []).append(step_id)
        for session, step_ids in by_session.items():
            masters = self._masters_of(session)
            if masters:  # a master in another task that has lost this one has ended its steps already
                masters[0].call(LostTensors(step_ids, why, name, ""), lambda _: None, _REPORT_S)
            else:
                self.on_undelivered(step_ids, self._task, name, why)


class Staleness:
    """The staleness of the updates of one session: a few operations per step, and sums when somebody asks.

    Attributes:
      latest: of the latest update.
      counts: staleness -> how many updates had it.
    """

    __slots__ = ("latest", "counts")

    def __init__(self) -> None:
        self.latest = 0
        self.counts: dict[int, int] = {}

    def summary(self) -> tuple[int, float, int, tuple[int, ...]]:
        """(number of updates, mean, maximum, how many had a staleness of 0, 1, 2-3, 4-7, …)."""
        counts = dict(self.counts)
        buckets = [0] * BUCKETS
        for between, count in counts.items():
            buckets[min(between.bit_length(), BUCKETS - 1)] += count
        updates = sum(counts.values())
        total = sum(between * count for between, count in counts.items())
        return updates, total / updates if updates else 0.0, max(counts, default=0), tuple(buckets)


class PartCounts:
    """What a worker counts of the parts of steps that it runs: how many, and how stale their updates were.

    The staleness of an update is the number of updates by other steps that ended here while its step ran here:
    about so much newer were the variables that it changed than those that it had read. Parts that change no
    variable do not count.

    Attributes:
      parts, failed: parts that have ended; those of them that ended with an error.
      updates: parts that have changed variables.
      executed: how often graphs that are gone were run by a client's thread alone; ``trained``: as training steps.
      staleness: by the session's handle.
    """

    __slots__ = ("parts", "failed", "updates", "executed", "trained", "staleness")

    def __init__(self) -> None:
        self.parts = self.failed = self.updates = self.executed = self.trained = 0
        self.staleness: dict[str, Staleness] = {}

    def over(self, run: PartitionRun, updates_before: int, has_failed: bool) -> None:
        """A part has ended. ``updates_before``: the value of `updates` when it began."""
        self.parts += 1
        if has_failed:
            self.failed += 1
        elif run.graph.is_training:
            found = self.staleness.get(run.graph.session_handle)
            if found is None:
                found = self.staleness[run.graph.session_handle] = Staleness()
            found.latest = between = min(self.updates - updates_before, _MOST)
            found.counts[between] = found.counts.get(between, 0) + 1
            self.updates += 1

    def forget(self, graph: RegisteredGraph | None) -> None:
        """A graph is gone."""
        if graph is not None:
            self.executed += graph.executed
            self.trained += graph.executed * graph.trains

    def end_session(self, handle: str) -> None:
        """A session was closed."""
        self.staleness.pop(handle, None)


_Outcomes = collections.OrderedDict[int, "StepOutcome | PartitionRun"]
"""Step id -> its outcome, or a run that has failed and still computes."""


class StepOutcomes:
    """The outcomes of the latest steps that had updates, per session; also of sessions that were closed lately."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Outcomes] = {}
        self._ended: collections.OrderedDict[str, _Outcomes] = collections.OrderedDict()

    def note(self, run: PartitionRun, outcome: StepOutcome | PartitionRun) -> None:
        """Notes the end of a run that has begun: its outcome, or itself as long as it still computes."""
        session = run.graph.session_handle
        steps = self._ended.get(session)
        if steps is None:
            steps = self._sessions.setdefault(session, collections.OrderedDict())
        steps[run.step_id] = outcome
        if len(steps) > _STEPS:
            steps.popitem(last=False)

    def end_session(self, session: str) -> None:
        """A session was closed; it may be closed again."""
        self._ended.setdefault(session, self._sessions.pop(session, collections.OrderedDict()))
        if len(self._ended) > _ENDED_SESSIONS:
            self._ended.popitem(last=False)

    def of(self, session: str, step_id: int, is_open: bool) -> StepOutcome | PartitionRun:
        """The outcome of a step, or its run while it still computes; a step that has not begun here has done nothing.

        Args:
          is_open: whether the session is open on this task, perhaps without any step so far.

        Raises:
          UnknownError: if the session ended long ago, so that its steps are forgotten.
        """
        steps = self._ended.get(session) or self._sessions.get(session)
        if steps is None and session not in self._ended and not is_open:
            raise errors.UnknownError.of(_FORGOTTEN.format(step_id=step_id))
        return StepOutcome() if steps is None else steps.get(step_id, StepOutcome())


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
        """A master opens a session, or tells an open one more addresses."""
        known = self.sessions.setdefault(session.handle, session)
        if known is not session:  # a new table, since others may read the old one
            known.addresses = {**known.addresses, **session.addresses}

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

    def sent_to(self, peer: Peer | None) -> dict[int, str]:
        """The steps that have ended here and whose tensors for a peer may have been in flight, with their sessions."""
        return {} if self.closed else self.ended.sent_to(peer)

    def lose(self, step_id: int, error: errors.OpError) -> PartitionRun | None:
        """Tensors of a step are lost: returns its run; one that has not begun will get the error."""
        run = self.runs.get(step_id)
        if run is None and step_id not in self.ended:
            self.early.drop(step_id, error)
        return run

    def close(self) -> list[PartitionRun]:
        """The task ends: returns the runs."""
        self.closed = True
        return list(self.runs.values())
