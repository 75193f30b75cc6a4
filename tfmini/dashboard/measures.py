"""The numbers of a snapshot that the page keeps over time, by a name of the form ``measure|line``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tfmini.dashboard.rates import Rates
from tfmini.inspection.clusters import short
from tfmini.status.snapshot import SILENT, ClusterSnapshot, TaskSnapshot

STEPS, BYTES, COLLECTIVES, MEMORY, CPU, STALENESS, QUEUE, SCALAR = (
    *("steps", "bytes", "collectives", "memory", "cpu", "staleness", "queue", "scalar"),
)
SEPARATOR = "|"


class Measures:
    """Turns snapshots into numbers. It remembers the counters of the last one, whose differences it needs."""

    def __init__(self) -> None:
        self._rates = Rates()

    def take(self, cluster: ClusterSnapshot) -> dict[str, float]:
        """The numbers of a snapshot; silent tasks have none."""
        tasks = [task for task in cluster.tasks if task.state != SILENT]
        rates = self._rates.add({name: each for task in tasks for name, each in _counters(task)})
        found = {name: value for task in tasks for name, value in _gauges(task)}
        for task in tasks:
            for measure in (CPU, COLLECTIVES):
                if (rate := rates.get(f"{measure}|{task.task}{task.incarnation}")) is not None:
                    found[f"{measure}|{short(task.task)}"] = rate
        return found | _staleness(tasks, rates)


def _gauges(task: TaskSnapshot) -> Iterator[tuple[str, float]]:
    name = short(task.task)
    if task.steps or task.steps_in_flight:
        yield f"{STEPS}|{name}", task.steps_s
    yield f"{BYTES}|{name}", sum(link.sent_bytes_s for link in task.links)
    yield f"{MEMORY}|{name}", task.memory_bytes
    for queue in task.queues:
        yield f"{QUEUE}|{queue.name} on {name}", queue.length
    for scalar in task.scalars:
        yield f"{SCALAR}|{scalar.tag}|{name}", scalar.value


def _counters(task: TaskSnapshot) -> Iterator[tuple[str, tuple[float, float]]]:
    # With the incarnation: a restarted task's counters are others.
    own = f"{task.task}{task.incarnation}"
    yield f"{CPU}|{own}", (task.taken_s, task.cpu_s)
    if task.collectives:
        yield f"{COLLECTIVES}|{own}", (task.taken_s, sum(group.bytes for group in task.collectives))
    for stale in task.staleness:
        key = f"{own}|{stale.worker}"
        yield f"updates|{key}", (task.taken_s, stale.updates)
        yield f"stale|{key}", (task.taken_s, stale.updates * stale.mean)


def _staleness(tasks: list[TaskSnapshot], rates: Mapping[str, float]) -> dict[str, float]:
    """The mean staleness of the updates since the last snapshot, by worker: the largest of its tasks'."""
    found: dict[str, float] = {}
    for task in tasks:
        for stale in task.staleness:
            key = f"{task.task}{task.incarnation}|{stale.worker}"
            updates, sums = rates.get(f"updates|{key}", 0.0), rates.get(f"stale|{key}", 0.0)
            if updates > 0:
                name = f"{STALENESS}|{short(stale.worker)}"
                found[name] = max(found.get(name, 0.0), sums / updates)
    return found
