"""What the time of a running job goes to, seen by many looks: a slow ps, a straggler, input. Pure.

One look says little about a job that moves. Of many looks, the share in which the training steps of a task come down to
another task is about the share of the time that they wait for it, and the share in which the task runs no training step
is about the share of the time that its script is outside `Session.run`.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from tfmini.runtime.snapshot import ELEMENT, ITERATOR, SILENT, ClusterSnapshot, TaskSnapshot
from tfmini.show.status.explanation import Explainer, short

LOOKS = 30
LEAST_LOOKS = 5  # fewer say nothing
LEAST_SHARE = 0.5
_AHEAD = 1.25  # by how much the share of a bottleneck is larger than that of any other task
_NAMES = 3  # of tasks in a sentence
_COUNTS = re.compile(r" \([^()]*\)$")  # of the elements of a queue


@dataclass(frozen=True)
class Bottleneck:
    """The steps of other tasks waited for ``task`` (its full name) in this share of the looks; ``waiting``: whose."""

    task: str
    share: float
    waiting: tuple[str, ...]


@dataclass(frozen=True)
class InputBound:
    """Tasks whose training steps do not get their input fast enough.

    Attributes:
      tasks: full names.
      share: of the looks at them, in which they were outside `Session.run`, or waited in it for ``source``.
      source: what their steps wait for, such as ``an element of iterator "I"``; "": the tasks are outside.
    """

    tasks: tuple[str, ...]
    share: float
    source: str = ""


@dataclass(frozen=True)
class TimeUse:
    """What the looks have found; both may be true, of different tasks."""

    bottleneck: Bottleneck | None = None
    input: InputBound | None = None

    def lines(self) -> list[str]:
        """Sentences for people."""
        slow = [] if self.bottleneck is None else [share_text(self.bottleneck)]
        return slow if self.input is None else [*slow, input_text(self.input)]

    def words(self, task: str) -> str:
        """What a box of the picture says of a task; "" if nothing."""
        if self.bottleneck is not None and task == self.bottleneck.task:
            return f"others wait for it {_of_the_time(self.bottleneck.share)}"
        if self.input is not None and task in self.input.tasks:
            what = "waits for input" if self.input.source else "outside Session.run"
            return f"{what} {_of_the_time(self.input.share)}"
        return ""


@dataclass
class _Look:
    """What was seen of a task that trains: whom its training steps came down to; whether it ran none (``outside``); the
    input that they waited for (``source``)."""

    outside: bool
    blamed: set[str] = field(default_factory=set)
    source: str = ""


class Looks:
    """The newest `LOOKS` looks at a cluster."""

    def __init__(self) -> None:
        self._looks: collections.deque[dict[str, _Look]] = collections.deque(maxlen=LOOKS)
        self._busy: collections.deque[set[str]] = collections.deque(maxlen=LOOKS)

    def __len__(self) -> int:
        return len(self._looks)

    def take(self, cluster: ClusterSnapshot) -> None:
        """The next look."""
        explainer = Explainer(cluster, 0.0)
        self._looks.append({task.task: _look(task, explainer) for task in cluster.tasks if _trains(task)})
        self._busy.append({task.task for task in cluster.tasks if task.waits or task.running})

    def busy(self, task: str) -> int:
        """In how many looks a step, or a part of one, ran on a task."""
        return sum(task in look for look in self._busy)

    def time_use(self) -> TimeUse:
        """What takes at least `LEAST_SHARE` of the time."""
        if len(self._looks) < LEAST_LOOKS:
            return TimeUse()
        seen: dict[str, list[_Look]] = collections.defaultdict(list)
        for looks in self._looks:
            for task, look in looks.items():
                seen[task].append(look)
        hungry = {task: looks for task, looks in seen.items() if _share(looks) >= LEAST_SHARE}
        fed = {task: looks for task, looks in seen.items() if task not in hungry}
        return TimeUse(_bottleneck(fed), _input_bound(hungry))


def _trains(task: TaskSnapshot) -> bool:
    """Whether the master of a task has a client that trains."""
    is_training = any(step.trains for step in task.running)
    return task.state != SILENT and (is_training or bool(task.steps and task.sessions))


def _look(task: TaskSnapshot, explainer: Explainer) -> _Look:
    steps = [step for step in task.running if step.trains]
    found = _Look(outside=not steps)
    for step in steps:
        for end, way in explainer.ends_of(step.step_id).items():
            if end != task.task:
                found.blamed.add(end)
            for wait in way if end == task.task else ():
                if wait.kind in (ELEMENT, ITERATOR):
                    found.source = _COUNTS.sub("", short(wait.text))
    return found


def _share(looks: list[_Look]) -> float:
    """In which share of the looks a task lacked input."""
    return sum(look.outside or bool(look.source) for look in looks) / len(looks)


def _bottleneck(seen: dict[str, list[_Look]]) -> Bottleneck | None:
    """The task that steps wait for at least `LEAST_SHARE` of the time, clearly more than for any other one.

    Args:
      seen: the looks at the tasks that do not lack input.
    """
    waiting: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for master, looks in seen.items():
        for look in looks:
            for task in look.blamed:
                waiting[task][master] += 1
    asked = {task: sum(len(looks) for master, looks in seen.items() if master != task) for task in waiting}
    shares = {task: who.total() / asked[task] for task, who in waiting.items()}
    first, second = [*sorted(shares, key=lambda task: -shares[task]), None, None][:2]
    if first is None or shares[first] < max(LEAST_SHARE, _AHEAD * shares.get(second or "", 0.0)):
        return None
    return Bottleneck(first, shares[first], tuple(sorted(waiting[first])))


def _input_bound(seen: dict[str, list[_Look]]) -> InputBound | None:
    """The tasks that lack input, and where most of them lack it."""
    if not seen:
        return None
    looks = [look for found in seen.values() for look in found]
    inside = collections.Counter(look.source for look in looks if look.source)
    outside = sum(look.outside for look in looks)
    source = inside.most_common(1)[0][0] if inside.total() > outside else ""
    return InputBound(tuple(sorted(seen)), max(outside, inside.total()) / len(looks), source)


# ---- In words ------------------------------------------------------------------------------------------------------


def _list(tasks: Iterable[str]) -> str:
    names = [*map(short, tasks)]
    more = [f"{len(names) - _NAMES} more"] if len(names) > _NAMES else []
    return ", ".join([*names[:_NAMES], *more])


def _of_the_time(share: float) -> str:
    return f"{100 * share:.0f} % of the time"


def share_text(found: Bottleneck) -> str:
    """``ps/1 is the bottleneck: steps of worker/0, worker/1 wait for it 83 % of the time``."""
    share = _of_the_time(found.share)
    return f"{short(found.task)} is the bottleneck: steps of {_list(found.waiting)} wait for it {share}"


def input_text(found: InputBound) -> str:
    """``worker/0, worker/1 are outside Session.run 85 % of the time: …``, or what their steps wait for in it."""
    share = _of_the_time(found.share)
    if found.source:
        return f"input: steps of {_list(found.tasks)} wait for {found.source} {share}"
    verb = "is" if len(found.tasks) == 1 else "are"
    return f"{_list(found.tasks)} {verb} outside Session.run {share}: input, or other work of the script between steps"
