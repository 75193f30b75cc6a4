"""``tensorflow.python.eager.monitoring``: counters and gauges in which libraries note how they are used.

They stay in this process: nothing collects them. A metric has a cell for each tuple of labels.
"""

from __future__ import annotations

import bisect
import threading
from typing import Any, ClassVar

from tfmini import errors
from tfmini.export import export_names


class _Cell:
    """One number, flag or text."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._lock = threading.Lock()

    def set(self, value: Any) -> None:
        """Sets a gauge."""
        self._value = value

    def increase_by(self, value: int) -> None:
        """Adds to a counter; ``value`` is not negative."""
        with self._lock:
            self._value += value

    def value(self) -> Any:
        """The value now."""
        return self._value


class _Metric:
    """Cells by labels.

    Args:
      name: ``/library/what``, unique in the process.
      description: what it measures.
      labels: the names of the labels.

    Raises:
      AlreadyExistsError: when a metric with that name exists.
    """

    first: ClassVar[Any] = 0
    _names: ClassVar[set[str]] = set()

    def __init__(self, name: str, description: str, *labels: str) -> None:
        if name in self._names:
            raise errors.AlreadyExistsError.of(f"Another metric with the same name already exists: {name}")
        self._names.add(name)
        self.name, self.description, self._labels = name, description, labels
        self._cells: dict[tuple[str, ...], Any] = {}

    def get_cell(self, *labels: str) -> Any:
        """Returns the cell of some labels, which is made on first use.

        Raises:
          ValueError: for another number of labels than the metric has.
        """
        if len(labels) != len(self._labels):
            raise ValueError(f"The metric {self.name} expects taking {len(self._labels)} labels, got {labels}")
        return self._cells.setdefault(labels, self._new_cell())

    def _new_cell(self) -> Any:
        return _Cell(self.first)


class Counter(_Metric):
    """Counts: ``get_cell(…).increase_by(1)``."""


class IntGauge(_Metric):
    """A number: ``get_cell(…).set(3)``."""


class StringGauge(_Metric):
    """A text: ``get_cell(…).set("x")``."""

    first = ""


class BoolGauge(_Metric):
    """A flag: ``get_cell(…).set(True)``."""

    first = False


class ExponentialBuckets:
    """The limits ``scale * growth_factor ** i`` of ``bucket_count`` buckets."""

    def __init__(self, scale: float, growth_factor: float, bucket_count: int) -> None:
        self.limits = [scale * growth_factor**i for i in range(bucket_count)]


class _Histogram:
    def __init__(self, limits: list[float]) -> None:
        self._limits = limits
        self._counts = [0] * (len(limits) + 1)

    def add(self, sample: float) -> None:
        """Counts a sample in its bucket."""
        self._counts[bisect.bisect_right(self._limits, sample)] += 1

    def value(self) -> list[int]:
        """The counts below the first limit, between two, and from the last on."""
        return list(self._counts)


class Sampler(_Metric):
    """A histogram: ``get_cell(…).add(0.5)``; ``value()`` is its list of counts."""

    def __init__(self, name: str, buckets: ExponentialBuckets, description: str, *labels: str) -> None:
        super().__init__(name, description, *labels)
        self._limits = buckets.limits

    def _new_cell(self) -> _Histogram:
        return _Histogram(self._limits)


export_names(
    "tensorflow.python.eager.monitoring",
    "Counter IntGauge StringGauge BoolGauge Sampler ExponentialBuckets",
)
