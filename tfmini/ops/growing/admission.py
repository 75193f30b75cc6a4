"""Which unknown ids of a table get a row: those that have come often enough, or some by chance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfmini.core_types import Array
from tfmini.numerics.id_rows import IdRows
from tfmini.numerics.philox import rows_of_ids

_FREQS = "freqs"
_NONE = np.empty(0, np.int64)


class Admission:
    """Decides who is admitted, under the lock of its table."""

    @staticmethod
    def of(settings: Any) -> Admission | None:
        """What the settings of a table ask for; None: every id is admitted."""
        if settings.filter_freq > 1 and settings.filter_size:
            return _SketchedCounts(settings.filter_freq, settings.filter_size, settings.false_positives)
        if settings.filter_freq > 1:
            return _Counts(settings.filter_freq)
        if settings.admit_probability < 1:
            return _Chance(settings.admit_probability, settings.seed)
        return None

    def admit(self, ids: Array, times: Array) -> tuple[Array, Array]:
        """Counts distinct ids that have no row.

        Args:
          ids: int64 [n].
          times: how often each has come now.

        Returns:
          Bools that say which are admitted, and how often each had come before; [n].
        """
        raise NotImplementedError

    def export(self) -> tuple[Array, Array]:
        """What is counted, for a checkpoint: ids and numbers, int64; the numbers may be for no ids."""
        raise NotImplementedError

    def load(self, ids: Array, numbers: Array) -> None:
        """Takes what `export` has given."""
        raise NotImplementedError


class _Counts(Admission):
    """Counts all ids that are not admitted, each on its own."""

    def __init__(self, needed: int) -> None:
        self._needed = needed
        self._rows = IdRows()
        self._rows.add_column(_FREQS, (), np.int32)
        self._admitted = 0  # rows that are no longer needed

    def admit(self, ids: Array, times: Array) -> tuple[Array, Array]:
        places = self._rows.index.find(ids)
        places[places == 0] = self._rows.add(ids[places == 0])
        freqs = self._rows.columns[_FREQS]
        before = freqs[places]
        allowed = before + times >= self._needed
        # An admitted id that is evicted begins again.
        freqs[places] = np.where(allowed, 0, before + times)
        self._admitted += int(np.count_nonzero(allowed))
        if self._admitted > max(1024, len(self._rows) // 2):
            self._rows.keep(np.flatnonzero(freqs[1 : len(self._rows) + 1]) + 1)
            self._admitted = 0
        return allowed, before

    def export(self) -> tuple[Array, Array]:
        freqs = self._rows.all(_FREQS).astype(np.int64)
        return self._rows.index.ids()[freqs > 0], freqs[freqs > 0]

    def load(self, ids: Array, numbers: Array) -> None:
        self.__init__(self._needed)  # type: ignore[misc]
        self._rows.columns[_FREQS][self._rows.add(ids)] = numbers


class _SketchedCounts(Admission):
    """Counts in a Bloom filter: a fixed number of counters, of which each id has some. A count is never too small."""

    def __init__(self, needed: int, size: int, false_positives: float) -> None:
        self._needed = needed
        counters = max(8, math.ceil(-size * math.log(false_positives) / math.log(2) ** 2))
        self._hashes = max(1, round(counters / size * math.log(2)))
        self._counters = np.zeros(counters, np.uint32)

    def _places(self, ids: Array) -> Array:
        """The counters of each id: [n, hashes]."""
        words = rows_of_ids(0, ids, 2, "uniform").view(np.uint32).astype(np.uint64)
        steps = np.arange(self._hashes, dtype=np.uint64)
        first, step = words[:, :1] * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20), words[:, 1:] | np.uint64(1)
        return ((first + steps * step) % np.uint64(len(self._counters))).astype(np.int64)

    def admit(self, ids: Array, times: Array) -> tuple[Array, Array]:
        places = self._places(ids)
        before = self._counters[places].min(axis=1, initial=np.iinfo(np.uint32).max).astype(np.int64)
        after = before + times
        # Only counters below the new count are raised, so that ids which share some disturb each other less.
        np.maximum.at(self._counters, places, after[:, None].astype(np.uint32))
        return after >= self._needed, before

    def export(self) -> tuple[Array, Array]:
        return _NONE, self._counters.astype(np.int64)

    def load(self, ids: Array, numbers: Array) -> None:
        self._counters[:] = 0
        if len(numbers) % len(self._counters) == 0:  # of several parts, if the table was cut in another way
            merged = numbers.reshape(-1, len(self._counters)).max(axis=0, initial=0)
            self._counters[:] = merged


class _Chance(Admission):
    """Admits each unknown id with a probability, each time that it comes. The draws follow from the seed."""

    def __init__(self, probability: float, seed: int) -> None:
        self._probability, self._seed = probability, seed
        self._draws = 0

    def admit(self, ids: Array, times: Array) -> tuple[Array, Array]:
        self._draws += 1
        draw = rows_of_ids(self._seed + self._draws, ids, 1, "uniform")[:, 0]
        allowed = draw >= (1 - self._probability) ** times
        return allowed, np.zeros(len(ids), np.int64)

    def export(self) -> tuple[Array, Array]:
        return _NONE, np.array([self._draws], np.int64)

    def load(self, ids: Array, numbers: Array) -> None:
        self._draws = int(numbers.max(initial=0))
