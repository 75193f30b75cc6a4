"""Numbers over the last hour in bounded memory: a row per reading at first, and a mean row per interval when they age.

Pure: the caller gives the times. Not safe for use by several threads.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tfmini.runtime.snapshot import SILENT, ClusterSnapshot, EventSnapshot, TaskSnapshot
from tfmini.show.inspection.clusters import short

_NAN = math.nan


@dataclass(frozen=True)
class Limits:
    """What a history holds at most.

    Attributes:
      fine_rows: the newest readings, each as it came.
      coarse_s: older readings become one mean row per interval of this length.
      span_s: rows older than this, counted from the newest, are dropped.
      columns: names; readings of further names are not kept.
    """

    fine_rows: int = 300
    coarse_s: float = 10.0
    span_s: float = 3600.0
    columns: int = 2000

    @property
    def rows(self) -> int:
        """The most rows that there can be."""
        return self.fine_rows + math.ceil(self.span_s / self.coarse_s) + 2


@dataclass
class _Row:
    time: float
    values: array[float]  # by the number of the column; a row from before a column began is shorter

    def value(self, column: int) -> float:
        return self.values[column] if column < len(self.values) else _NAN


@dataclass
class _Interval:
    """The readings of one interval, until it is over."""

    number: int
    time: float = 0.0
    sums: array[float] = field(default_factory=lambda: array("d"))
    counts: array[int] = field(default_factory=lambda: array("L"))

    def add(self, row: _Row) -> None:
        more = len(row.values) - len(self.sums)
        if more > 0:
            self.sums.extend([0.0] * more)
            self.counts.extend([0] * more)
        for column, value in enumerate(row.values):
            if value == value:  # not NaN
                self.sums[column] += value
                self.counts[column] += 1
        self.time = row.time

    def mean(self) -> _Row:
        means = array("d", (total / count if count else _NAN for total, count in zip(self.sums, self.counts)))
        return _Row(self.time, means)


class History:
    """See the module.

    Attributes:
      refused: how many names were not kept because there are too many columns.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.refused = 0
        self._fine: deque[_Row] = deque()
        self._coarse: deque[_Row] = deque()
        self._open: _Interval | None = None
        self._columns: dict[str, int] = {}
        self._free: list[int] = []
        self._written: dict[str, float] = {}  # name -> time of its newest value
        self._lively: set[str] = set()  # the names that have been something else than 0

    def __len__(self) -> int:
        return len(self._coarse) + len(self._fine) + (self._open is not None)

    @property
    def names(self) -> list[str]:
        """The names that have a value in the span."""
        return list(self._columns)

    def is_flat(self, name: str) -> bool:
        """Whether all values of a name have been 0."""
        return name not in self._lively

    def add(self, time: float, values: Mapping[str, float]) -> None:
        """Adds a reading. After a step back of the clock, the rows at and after ``time`` are dropped.

        Args:
          time: in seconds.
          values: by name; NaN and names that are missing count as no value.
        """
        self._forget_after(time)
        self._forget_before(time - self.limits.span_s)
        row = _Row(time, array("d"))
        for name, value in values.items():
            column = self._column(name, time) if value == value else None
            if column is None:
                continue
            if column >= len(row.values):
                row.values.extend([_NAN] * (column + 1 - len(row.values)))
            row.values[column] = value
            self._written[name] = time
            if value:
                self._lively.add(name)
        self._fine.append(row)
        while len(self._fine) > self.limits.fine_rows:
            self._thin(self._fine.popleft())

    def table(self, names: Sequence[str], since: float = -math.inf) -> tuple[list[float], list[list[float | None]]]:
        """The times of the rows after ``since``, and for each name its values, None where it has none."""
        columns = [self._columns.get(name) for name in names]
        rows = [row for row in self._rows() if row.time > since]
        return [row.time for row in rows], [[_value(row, column) for row in rows] for column in columns]

    def _rows(self) -> Iterable[_Row]:
        yield from self._coarse
        if self._open is not None:
            yield self._open.mean()
        yield from self._fine

    def _thin(self, row: _Row) -> None:
        number = math.floor(row.time / self.limits.coarse_s)
        if self._open is not None and self._open.number != number:
            self._coarse.append(self._open.mean())
            self._open = None
        if self._open is None:
            self._open = _Interval(number)
        self._open.add(row)

    def _column(self, name: str, time: float) -> int | None:
        found = self._columns.get(name)
        if found is None:
            if len(self._columns) >= self.limits.columns:
                self._free_unused(time - self.limits.span_s - self.limits.coarse_s)
            if len(self._columns) >= self.limits.columns:
                self.refused += 1
                return None
            found = self._columns[name] = self._free.pop() if self._free else len(self._columns)
        return found

    def _free_unused(self, before: float) -> None:
        """Frees the columns whose newest value is older, so that no row has one of theirs."""
        for name in [name for name, time in self._written.items() if time < before]:
            self._free.append(self._columns.pop(name))
            del self._written[name]
            self._lively.discard(name)

    def _forget_after(self, time: float) -> None:
        if not self._fine or self._fine[-1].time < time:
            return
        self._written = {name: min(when, time) for name, when in self._written.items()}
        while self._fine and self._fine[-1].time >= time:
            self._fine.pop()
        if self._fine or self._open is None or self._open.time < time:
            return
        self._open = None
        while self._coarse and self._coarse[-1].time >= time:
            self._coarse.pop()

    def _forget_before(self, time: float) -> None:
        while self._coarse and self._coarse[0].time < time:
            self._coarse.popleft()
        if self._open is not None and not self._coarse and self._open.time < time:
            self._open = None
        while self._fine and self._open is None and not self._coarse and self._fine[0].time < time:
            self._fine.popleft()


def _value(row: _Row, column: int | None) -> float | None:
    value = _NAN if column is None else row.value(column)
    return value if value == value and abs(value) != math.inf else None


# ---- events ----------------------------------------
# The events of a cluster: tasks that join, are lost, come back or are restarted, and what tasks report themselves.

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


# ---- Rates per second from counters that restart at 0 with their task ----------------------------------------------

LEAST_S = 0.4
"""Readings that follow each other faster have no rates: a task reads its clock and its counters at different times."""


class Rates:
    """The rates of counters by name, between one reading and the next. Pure: the caller gives the times."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}
        self._rates: dict[str, float] = {}

    def add(self, readings: Mapping[str, tuple[float, float]]) -> dict[str, float]:
        """The rates of counters, given as name -> (time in seconds, total).

        A counter that is new or that fell has none. Less than `LEAST_S` after the last one, its rate stays. Absent
        counters are forgotten.
        """
        last, rates = {}, {}
        for name, (time, total) in readings.items():
            then, before = self._last.get(name, (time, total))
            if total < before or time < then or name not in self._last:
                last[name] = (time, total)
                continue
            is_new = time - then >= LEAST_S
            last[name] = (time, total) if is_new else (then, before)
            if is_new:
                rates[name] = (total - before) / (time - then)
            elif name in self._rates:
                rates[name] = self._rates[name]
        self._last, self._rates = last, rates
        return dict(rates)


# ---- The numbers of a snapshot that the page keeps over time, by a name of the form ``measure|line``. Pure ---------

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
    # Without those to clients, as the page itself is one.
    yield f"{BYTES}|{name}", sum(link.sent_bytes_s for link in task.links if link.peer.startswith("/job:"))
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
