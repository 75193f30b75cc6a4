"""Rates per second from counters that restart at 0 with their task."""

from __future__ import annotations

from collections.abc import Mapping

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
