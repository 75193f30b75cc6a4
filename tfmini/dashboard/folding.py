"""Equal tasks as one box, so that a cluster of 100 tasks is a picture of a few boxes. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tfmini.inspection.clusters import group_label, short
from tfmini.status.snapshot import COMPUTES, OK, SILENT, TaskSnapshot

FOLD_ABOVE = 8  # a job with more tasks is folded
LONG_S = 5.0  # a task that waits for longer is shown by itself
OUTLIER = 2.0  # and one whose rate differs from the median of its job by this factor
_LONE_LIMIT = 8  # exceptional tasks of a kind that are shown by themselves; more of them are a box, too

WAITS = "waits"


@dataclass(frozen=True)
class Box:
    """One box of the picture.

    Attributes:
      name: ``worker/0``, or of several tasks such as ``worker/0…7 ×8``.
      tasks: their full names, in order.
      state: that of its tasks, or `WAITS` where they are well and wait for long.
      kind: ``slow`` or ``fast``, compared with the others of the job; else "".
    """

    name: str
    tasks: tuple[str, ...]
    state: str
    kind: str = ""


def state_of(task: TaskSnapshot) -> str:
    """The state of a task, or `WAITS`."""
    waits = any(wait.since_s >= LONG_S for wait in task.waits if wait.kind != COMPUTES)
    return WAITS if waits and task.state == OK else task.state


def job_of(task: str) -> str:
    """The job of a full task name."""
    return short(task).partition("/")[0]


def fold(tasks: Sequence[TaskSnapshot], rates: Mapping[str, float], alone: Collection[str] = ()) -> list[Box]:
    """The boxes of tasks.

    Args:
      rates: task -> steps or bytes per second, by which tasks of a job are compared.
      alone: tasks that share no box.
    """
    jobs: dict[str, list[TaskSnapshot]] = {}
    for task in tasks:
        jobs.setdefault(job_of(task.task), []).append(task)
    found: list[Box] = []
    for members in jobs.values():
        if len(members) <= FOLD_ABOVE:
            found += [Box(short(task.task), (task.task,), state_of(task)) for task in members]
        else:
            found += _folded(members, _kinds(members, rates), alone)
    return found


def _kinds(members: Sequence[TaskSnapshot], rates: Mapping[str, float]) -> Callable[[TaskSnapshot], str]:
    """A function that says by what a task differs from the others of its job."""
    known = [rates[task.task] for task in members if task.task in rates]
    median = statistics.median(known) if known else 0.0

    def kind(task: TaskSnapshot) -> str:
        rate = rates.get(task.task)
        if rate is None or median <= 0 or task.state == SILENT:
            return ""
        return "slow" if rate * OUTLIER < median else "fast" if rate > median * OUTLIER else ""

    return kind


def _folded(
    members: Sequence[TaskSnapshot], kind_of: Callable[[TaskSnapshot], str], alone: Collection[str]
) -> list[Box]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for task in members:
        lone = task.task if task.task in alone else ""
        groups.setdefault((state_of(task), kind_of(task), lone), []).append(task.task)
    largest = max(map(len, groups.values()))
    found = []
    for (state, kind, _), names in groups.items():
        if len(names) < largest and len(names) <= _LONE_LIMIT:
            found += [Box(short(name), (name,), state, kind) for name in names]
        else:
            found.append(Box(group_name(names), tuple(names), state, kind))
    return found


def group_name(names: Sequence[str]) -> str:
    """The name for full task names of a job: ``worker/0…7 ×8``, or ``worker/0, 2…7 ×7``; long lists are cut."""
    return group_label(job_of(names[0]), (int(short(name).partition("/")[2]) for name in names))
