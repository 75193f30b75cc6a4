"""Rates: what counters have gained since somebody asked before. Who does not ask costs nothing."""

from __future__ import annotations

import collections
from collections.abc import Mapping

_WINDOW_S, _LEAST_S, _SAMPLES = 10.0, 0.3, 40


class Rates:
    """The latest readings of a set of counters, oldest first."""

    def __init__(self) -> None:
        self._samples: collections.deque[tuple[float, Mapping[str, float]]] = collections.deque(maxlen=_SAMPLES)

    def read(self, now: float, counters: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        """Returns (the window in seconds, rate per second by counter); (0.0, {}) the first time.

        Args:
          now: seconds.
          counters: their values now. One that was not there before counts from 0; one that has fallen has begun anew.
        """
        samples = self._samples
        while len(samples) > 1 and now - samples[0][0] > _WINDOW_S:
            samples.popleft()
        window_s, before = (now - samples[0][0], samples[0][1]) if samples else (0.0, {})
        if not samples or now - samples[-1][0] >= _LEAST_S:
            samples.append((now, dict(counters)))
        if window_s < _LEAST_S:
            return 0.0, {}
        gained = {name: value - before.get(name, 0.0) for name, value in counters.items()}
        return window_s, {name: max(0.0, more) / window_s for name, more in gained.items()}
