"""The state that a task holds: variables, queues and gradient accumulators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfmini.devices import parse
from tfmini.ops.queues.accumulator_state import AccumulatorState
from tfmini.ops.queues.queue_state import UNBOUNDED, QueueState
from tfmini.ops.variables.state import VariableState
from tfmini.runtime.resources import ResourceManager
from tfmini.runtime.worker.worker import Worker
from tfmini.status.snapshot import AccumulatorSnapshot, ContributionSnapshot, QueueSnapshot, VariableSnapshot

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
    """The variables, the largest first."""
    found = []
    for state in contents(worker):
        if isinstance(state, VariableState):
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
    return f"/job:{found.job}/replica:{found.replica or 0}/task:{found.task}"
