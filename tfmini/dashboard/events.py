"""The events of a cluster: tasks that join, are lost, come back or are restarted, and what tasks report themselves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tfmini.inspection.clusters import short
from tfmini.status.snapshot import SILENT, ClusterSnapshot, EventSnapshot, TaskSnapshot

LIMIT = 200
_MEMBERSHIP = ("joined", "lost", "restarted")
LOST_AFTER_S = 2.5  # a task may miss one answer under load
_SAME_S = 10.0  # several tasks report the loss of one, each at its own time


class EventLog:
    """The newest events, oldest first. Pure: the times are those of the snapshots.

    Attributes:
      kept: at most `LIMIT`.
      count: how many there were in all, so that a reader knows what is new.
      lost: full name of a task -> the time since which it has not answered, after `LOST_AFTER_S`.
    """

    def __init__(self) -> None:
        self.kept: deque[EventSnapshot] = deque(maxlen=LIMIT)
        self.count = 0
        self.lost: dict[str, float] = {}
        self._silent: dict[str, float] = {}
        self._incarnations: dict[str, str] = {}
        self._began: float | None = None

    def take(self, cluster: ClusterSnapshot) -> None:
        """Adds what has happened since the last snapshot."""
        if self._began is None:
            self._began = cluster.taken_s
        for event in sorted(self._reported(cluster), key=lambda event: event.time_s):
            if not self._is_known(event):
                self._add(event)
        for event in self._changes(cluster):
            self._add(event)

    def _add(self, event: EventSnapshot) -> None:
        self.kept.append(event)
        self.count += 1

    def since(self, count: int) -> list[EventSnapshot]:
        """The kept events after the first ``count``."""
        new = min(len(self.kept), self.count - count)
        return list(self.kept)[len(self.kept) - new :]

    def _reported(self, cluster: ClusterSnapshot) -> Iterator[EventSnapshot]:
        """What tasks report. The page sees itself who joins and is lost; of before it began only tasks can tell."""
        for task in cluster.tasks:
            for event in task.events:
                if event.kind not in _MEMBERSHIP or event.time_s < (self._began or 0.0):
                    yield event

    def _is_known(self, event: EventSnapshot) -> bool:
        return any(
            (known.kind, known.subject) == (event.kind, event.subject)
            and (known.time_s == event.time_s or known.kind in _MEMBERSHIP)
            and abs(known.time_s - event.time_s) < _SAME_S
            for known in self.kept
        )

    def _changes(self, cluster: ClusterSnapshot) -> Iterator[EventSnapshot]:
        now = cluster.taken_s
        tasks = {task.task: task for task in cluster.tasks}
        for task in tasks.values():
            if task.state != SILENT:
                yield from self._seen(now, task)
        for name in self._incarnations:
            task_now = tasks.get(name)
            if task_now is None or task_now.state == SILENT:
                since = self._silent.setdefault(name, now)
                if name not in self.lost and now - since >= LOST_AFTER_S:
                    self.lost[name] = since
                    yield EventSnapshot(since, "lost", name, task_now.why if task_now else "no task knows it any more")

    def _seen(self, now: float, task: TaskSnapshot) -> Iterator[EventSnapshot]:
        name = task.task
        before, lost, silent = self._incarnations.get(name), self.lost.pop(name, None), self._silent.pop(name, None)
        away = "" if silent is None else f"after {now - silent:.0f} s"
        if before is None:
            yield EventSnapshot(now, "joined", name, f"at {task.address}")
        elif task.incarnation != before:
            yield EventSnapshot(now, "restarted", name, " ".join(filter(None, ["another process has its place", away])))
        elif lost is not None:
            yield EventSnapshot(now, "back", name, f"it answers again {away}")
        self._incarnations[name] = task.incarnation


def sentence(event: EventSnapshot) -> str:
    """An event without its time and kind, for people."""
    subject = short(event.subject) if event.subject.startswith("/job:") else event.subject
    return f"{subject}: {event.text}" if event.text else subject
