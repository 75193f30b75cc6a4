"""Numbers over the last hour in bounded memory: a row per reading at first, and a mean row per interval when they age.

Pure: the caller gives the times. Not safe for use by several threads.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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

    def __len__(self) -> int:
        return len(self._coarse) + len(self._fine) + (self._open is not None)

    @property
    def names(self) -> list[str]:
        """The names that have a value in the span."""
        return list(self._columns)

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
