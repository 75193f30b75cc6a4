"""Predictions for several numbers of workers, and where more workers stop to help."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfmini.inspection.exchanges import COLLECTIVES
from tfmini.inspection.findings import Inspection
from tfmini.simulation.links import Topology
from tfmini.simulation.prediction import Prediction
from tfmini.simulation.predictor import StepModel, chief_update, tasks_of
from tfmini.simulation.profile import Profile

MOST_STEPS = 5000  # of all workers together. With two ps they take about 20 s of CPU.
_LEAST_STEPS = 3  # of a worker: its first and its last do not count
_HALF = 0.5  # of the throughput per worker at the first point


@dataclass(frozen=True)
class Point:
    """The prediction for a number of workers."""

    workers: int
    prediction: Prediction

    def efficiency(self, first: Point) -> float:
        """The throughput per worker, beside that of the first point."""
        each = self.prediction.throughput / self.workers
        return each / (first.prediction.throughput / first.workers)


def worker_counts(text: str) -> list[int]:
    """``8`` is 8; ``1..100`` is 1, 2, 4, … and 100.

    Raises:
      ValueError: it is neither.
    """
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text)
    if found is None or int(found[1]) < 1 or found[2] is not None and int(found[2]) < int(found[1]):
        raise ValueError(f"{text!r} is no number of workers: give one, such as 8, or a rising range, such as 1..128.")
    last = int(found[2] or found[1])
    counts = [int(found[1])]
    while counts[-1] * 2 <= last:
        counts.append(counts[-1] * 2)
    return counts if counts[-1] == last else [*counts, last]


def mode_of(found: Inspection) -> str:
    """How a graph trains: ``sync``, ``allreduce`` or ``async``."""
    if chief_update(found.nodes) is not None:
        return "sync"
    return "allreduce" if any(node.op in COLLECTIVES for node in found.nodes.values()) else "async"


def steps_each(counts: Sequence[int], steps: int) -> int:
    """The steps of each worker: at most ``steps``, and fewer where all of a sweep would be more than `MOST_STEPS`."""
    return min(steps, max(_LEAST_STEPS, MOST_STEPS // sum(counts)))


def sweep(
    counts: Sequence[int], inspected: Callable[[int], Inspection], profile: Profile, link: str = "", steps: int = 10,
    seed: int = 0,
) -> list[Point]:  # fmt: skip
    """Predicts a run for each number of workers.

    Args:
      inspected: number of workers -> the graph of one of them in a cluster of so many.
      link: between machines, one for each task; "": all tasks are on one machine.
      steps, seed: see `StepModel`.
    """
    points = []
    for count in counts:
        found = inspected(count)
        cluster = Topology.of(tasks_of(found), profile, link)
        points.append(Point(count, StepModel(found, cluster, profile, count, steps, seed).predict()))
    return points


def knee(points: Sequence[Point]) -> Point | None:
    """The first point at which a worker gives less than half of what it gives at the first point; None without one."""
    return next((point for point in points if point.efficiency(points[0]) < _HALF), None)
