"""What the steps of a task wait for, and what they have still to do to its queues, accumulators and locks.

Nothing here waits for a step: a lock that is not free in `_LOCK_S` is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tfmini.devices import parse
from tfmini.graph.names import MODEL_RECORD
from tfmini.graph.node import Node
from tfmini.graph.omission import STAND_IN
from tfmini.graph.op_types import ops_with
from tfmini.ops.growing.state import GrowingTableState
from tfmini.ops.queues.accumulator_state import AccumulatorState
from tfmini.ops.queues.barrier import MutexState
from tfmini.ops.queues.queue_state import UNBOUNDED, QueueState
from tfmini.ops.variables.state import VariableState
from tfmini.ops.waiting_line import Attempt, WaitingState
from tfmini.runtime.compiler.kernels import FUNCTION_RETURNS
from tfmini.runtime.executor.dataflow_run import DataflowRun
from tfmini.runtime.executor.registered_graph import PartitionRun, RegisteredGraph
from tfmini.runtime.executor.waiting_run import NodeWait, WaitingRun
from tfmini.runtime.resources import ResourceManager
from tfmini.runtime.snapshot import (
    COLLECTIVE,
    COMPUTES,
    ELEMENT,
    GRADIENT,
    ITERATOR,
    OTHER,
    PUT,
    RELEASE,
    ROOM,
    TAKE,
    TENSOR,
    TOKEN,
    AccumulatorSnapshot,
    ContributionSnapshot,
    PendingSnapshot,
    QueueSnapshot,
    VariableSnapshot,
    WaitSnapshot,
)
from tfmini.runtime.worker.worker import Worker
from tfmini.runtime.worker.worker_service import computing_steps

# ---- The state that a task holds: variables, queues and gradient accumulators --------------------------------------

_LOCK_S = 0.02


def contents(worker: Worker) -> Iterator[Any]:
    """All resources of a worker, those of isolated sessions included."""
    own = [session.resources for session in list(worker.sessions.values())]
    managers = [worker.resources, *(found for found in own if isinstance(found, ResourceManager))]
    seen: set[int] = set()
    for manager in managers:
        for _, _, _, found in manager.contents():
            if id(found) not in seen:
                seen.add(id(found))
                yield found


def variable_snapshots(worker: Worker) -> list[VariableSnapshot]:
    """The variables of models, and the tables that grow, the largest first."""
    found = []
    for state in contents(worker):
        if isinstance(state, (VariableState, GrowingTableState)) and not (
            getattr(state, "moved_text", "") or state.name.endswith(MODEL_RECORD)
        ):
            shape, nbytes = state.extent()
            found.append(VariableSnapshot(state.name, state.dtype.name, tuple(map(int, shape)), int(nbytes)))
    return sorted(found, key=lambda each: (-each.bytes, each.name))


def queue_snapshots(worker: Worker) -> list[QueueSnapshot]:
    """The queues, by name. It takes no lock."""
    found = []
    for state in contents(worker):
        if isinstance(state, QueueState):
            capacity = -1 if state.capacity == UNBOUNDED else state.capacity
            lines = len(state.enqueuers), len(state.dequeuers)
            found.append(QueueSnapshot(state.name, state.kind, state.size(), capacity, *lines, state.is_closed))
    return sorted(found, key=lambda each: each.name)


def accumulator_snapshots(worker: Worker) -> list[AccumulatorSnapshot]:
    """The ledger of the accumulators, by name."""
    found = [_accumulator(state) for state in contents(worker) if isinstance(state, AccumulatorState)]
    return sorted(found, key=lambda each: each.name)


def _accumulator(state: AccumulatorState) -> AccumulatorSnapshot:
    applied, stale = dict(state.applied_by), dict(state.stale_by)
    tasks = sorted({who for who in (*applied, *stale) if who})
    contributions = tuple(ContributionSnapshot(task_of(who), applied.get(who, 0), stale.get(who, 0)) for who in tasks)
    required = max((attempt.required for attempt in list(state.takers)), default=0)  # type: ignore[attr-defined]
    return AccumulatorSnapshot(
        state.name, state.count, required, int(state.step), state.applied, state.stale, contributions,
        tuple(task_of(who) for who in contributed(state)),
    )  # fmt: skip


def contributed(state: AccumulatorState) -> list[str]:
    """Whose gradients are in the accumulator now, as far as they have told."""
    if not state.lock.acquire(timeout=_LOCK_S):
        return []
    try:
        return sorted(state.ledger.waiting()) if state.count else []
    finally:
        state.lock.release()


def task_of(device: str) -> str:
    """The full name of the task of a device, which may leave the replica out."""
    try:
        found = parse(device)
    except ValueError:
        return device
    if found.job is None or found.task is None:
        return device
    return found._replace(replica=found.replica or 0).task_name


# ---- What steps wait for -------------------------------------------------------------------------------------------

_COLLECTIVES = ops_with("collective")
_ITERATORS = ops_with("iterates")
OwnerOf = Callable[[str], str]
"""The handle of a session -> full name of the task that runs it, or who else opened it."""


class Waits:
    """The waits of a worker's steps at one time.

    Args:
      owner_of: see `OwnerOf`.
    """

    def __init__(self, worker: Worker, owner_of: OwnerOf) -> None:
        self._worker = worker
        self._owner_of = owner_of
        self._now = worker.now()
        self._states = [state for state in contents(worker) if isinstance(state, WaitingState)]
        self._attempts = dict(self._waiting_attempts())
        self._names = _private_names(worker)
        self._computing: dict[int, str] | None = None
        self._actors: dict[tuple[str, str], set[str]] | None = None

    def _waiting_attempts(self) -> Iterator[tuple[int, tuple[WaitingState, Attempt]]]:
        """By the identity of the wait: the object whose line it stands in, and its attempt."""
        for state in self._states:
            if state.lock.acquire(timeout=_LOCK_S):
                try:
                    attempts = [attempt for line in state.lines for attempt in line]
                finally:
                    state.lock.release()
                for attempt in attempts:
                    yield id(_unwrapped(attempt.wait)), (state, attempt)

    # ---- waits ------------------------------------------------------------------------------

    def waits(self) -> list[WaitSnapshot]:
        """The waits of all runs, the longest first."""
        found = [wait for run in list(self._worker.runs.values()) for wait in self._of_run(run)]
        return sorted(found, key=lambda wait: -wait.since_s)

    def _of_run(self, run: PartitionRun) -> list[WaitSnapshot]:
        groups: list[int] = []
        waits: list[NodeWait] = []
        since_s = 0.0
        if isinstance(run, WaitingRun):
            since_s = self._now - run.started_at
            groups, waits = sorted(run.missing_groups()), list(run.waits)
        found = [self._of_group(run, group, since_s) for group in groups] + [self._of_node(run, w) for w in waits]
        if not found or (run.step_id in self._computing_steps() and all(wait.kind != COMPUTES for wait in found)):
            found.append(self._of_kernel(run, since_s))  # beside the waits of the other ops, too
        return found

    def _of_group(self, run: PartitionRun, group: int, since_s: float) -> WaitSnapshot:
        graph = run.graph
        sender, text = graph.senders.get(group, ""), graph.describe_group(group)
        return self._snapshot(
            run, TENSOR, text, since_s, on=text.removesuffix(f" from {sender}"), from_tasks=(sender,) if sender else ()
        )

    def _of_node(self, run: PartitionRun, wait: NodeWait) -> WaitSnapshot:
        node, since_s = wait.node, self._now - wait.since
        text = wait.cause.removesuffix(f" (node {node.name})")
        state, attempt = self._attempts.get(id(wait), (None, None))
        if state is not None and attempt is not None:
            kind = TOKEN if STAND_IN in node.attrs else attempt.kind
            return self._snapshot(
                run, kind, attempt.cause(), since_s, node.name, state.name, self._who_may_end(run, kind, state)
            )
        if node.op in _COLLECTIVES:
            on, absent = self._collective(wait)
            return self._snapshot(run, COLLECTIVE, text, since_s, node.name, on, absent)
        if text == FUNCTION_RETURNS:
            return self._snapshot(run, COMPUTES, f"computes a Python function (node {node.name})", since_s, node.name)
        return self._snapshot(run, ITERATOR if node.op in _ITERATORS else OTHER, text, since_s, node.name)

    def _computing_steps(self) -> dict[int, str]:
        if self._computing is None:
            self._computing = computing_steps()
        return self._computing

    def _of_kernel(self, run: PartitionRun, since_s: float) -> WaitSnapshot:
        text = self._computing_steps().get(run.step_id)
        where = "computes" if text is None else f"computes {text}" if text else "computes a step"
        return self._snapshot(run, COMPUTES, where, since_s)

    def _snapshot(
        self, run: PartitionRun, kind: str, text: str, since_s: float, node: str = "", on: str = "",
        from_tasks: tuple[str, ...] = (),
    ) -> WaitSnapshot:  # fmt: skip
        session = run.graph.session_handle[:8]
        return WaitSnapshot(
            str(run.step_id), session, kind, text, max(0.0, since_s), node, on, self._worker.task, from_tasks
        )

    def _collective(self, wait: NodeWait) -> tuple[str, tuple[str, ...]]:
        """The group, and the tasks that the call still needs something from."""
        for member in self._worker.collectives.waiting():
            on = f"group {member.group_key}"
            for exchange in list(member.exchanges.values()):
                if _unwrapped(exchange.call.wait) is wait:
                    missing = list(exchange.schedule.missing()) if exchange.schedule is not None else []
                    absent = [rank for rank in missing if rank not in exchange.present] or missing
                    return on, tuple(dict.fromkeys(member.tasks[rank] for rank in absent))
            if any(_unwrapped(call.wait) is wait for call in list(member.queued)):
                return on, ()
        return "", ()

    def _who_may_end(self, run: PartitionRun, kind: str, state: WaitingState) -> tuple[str, ...]:
        """The tasks whose sessions put into the object, or take from it; those whose gradients are in it are done."""
        if kind not in (ELEMENT, TOKEN, GRADIENT, ROOM):
            return ()
        action = TAKE if kind == ROOM else PUT
        done = {task_of(who) for who in contributed(state)} if isinstance(state, AccumulatorState) else set()
        if self._actors is None:
            self._actors = self._find_actors()
        return tuple(sorted(self._actors.get((action, state.name), set()) - done))

    def _find_actors(self) -> dict[tuple[str, str], set[str]]:
        """(action, name of an object) -> the tasks whose sessions do so, for all waits at once."""
        found: dict[tuple[str, str], set[str]] = {}
        for graph in list(self._worker.graphs.values()):
            for effect in graph.effects:
                who = task_of(effect.contributor) if effect.contributor else self._owner_of(graph.session_handle)
                found.setdefault((effect.action, self._object(graph, effect.handle)), set()).add(who)
        return found

    # ---- what is still to be done -----------------------------------------------------------

    def pending(self) -> list[PendingSnapshot]:
        """What the running steps have still to do to objects that steps may wait for."""
        found = []
        for run in list(self._worker.runs.values()):
            for effect in run.graph.effects:
                if not _is_done(run, effect.node):
                    on = self._object(run.graph, effect.handle)
                    found.append(PendingSnapshot(str(run.step_id), effect.action, on, effect.node))
        for state in self._states:
            if isinstance(state, MutexState) and state.is_locked:
                found.append(PendingSnapshot(str(state.holder), RELEASE, state.name))
        return found

    def _object(self, graph: RegisteredGraph, handle: Node) -> str:
        """The name of the object that a node stands for."""
        shared = handle.attrs.get("shared_name", b"").decode()
        return shared or self._names.get(f"{graph.session_handle}/{handle.name}", handle.name)


def _unwrapped(wait: Any) -> Any:
    """The wait of the runtime, inside those that check or convert the answer."""
    while (inner := getattr(wait, "_wait", None)) is not None:
        wait = inner
    return wait


def _private_names(worker: Worker) -> dict[str, str]:
    """Key of an object without a shared name -> the name that messages give it."""
    return {
        key: found.name
        for _, kind, key, found in worker.resources.contents()
        if kind.startswith("private ") and isinstance(found, WaitingState)
    }


def _is_done(run: PartitionRun, node: str) -> bool:
    """Whether a node has run for certain."""
    if not isinstance(run, DataflowRun):
        return False
    for key, waiting in run.program.waits.items():
        if waiting.name == node:
            return key in run.answered
    unfinished = set(run.unfinished)
    for index, segment in enumerate(run.program.segments):
        if node in segment.updates:
            return index not in unfinished
    return False
