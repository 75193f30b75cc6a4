"""Schedules in which a rank sends a different part of its tensor to each rank: all-to-all and reduce-scatter.

Each part goes straight to its receiver, so a rank sends (N−1)/N of its tensor, as little as a ring would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini.collectives.schedules import MERGES, Send, divide

Array = Any


class Scatter:
    """Base of the schedules: sends one part to each rank and keeps those that come.

    Args:
      parts: this rank's parts, one for each position in ``order``.
      order: the ranks in the order of the parts and of the results, default 0 to N−1.
    """

    def __init__(self, rank: int, size: int, parts: list[Array], order: Sequence[int] | None = None) -> None:
        self._rank, self._size = rank, size
        self._order = list(order or range(size))
        self._for = dict(zip(self._order, parts))
        self._values: list[Array] = [None] * size
        self._values[rank] = self._for[rank]
        self._left = size - 1
        self.done = size == 1

    def begin(self) -> list[Send]:
        # The next rank first, so that no two ranks begin with the same receiver.
        receivers = [(self._rank + i) % self._size for i in range(1, self._size)]
        return [Send(r, 0, self._for[r]) for r in receivers]

    def receive(self, sender: int, tag: int, values: Array) -> list[Send]:
        if self._values[sender] is None:
            self._check(values)
            self._values[sender] = values
            self._left -= 1
            self.done = self._left == 0
        return []

    def _check(self, values: Array) -> None:
        """Raises ValueError for a part that does not fit."""

    def missing(self) -> list[int]:
        return [r for r, value in enumerate(self._values) if value is None]

    def _received(self) -> list[Array]:
        return [self._values[r] for r in self._order]


class AllToAll(Scatter):
    """All-to-all: scatters the rows of every rank's tensor to the ranks, and concatenates what comes.

    The result is (the rows of all ranks for this one in their order, how many came from each).

    Args:
      value: of at least one dimension; all but the first are the same on all ranks.
      splits: how many rows go to each position in ``order``; no rank gets the rows behind their sum.
    """

    def __init__(
        self, rank: int, size: int, value: Array, splits: Sequence[int], order: Sequence[int] | None = None
    ) -> None:
        *ends, rows = np.cumsum(splits)
        super().__init__(rank, size, np.split(np.ascontiguousarray(value)[:rows], ends), order)

    def _check(self, values: Array) -> None:
        own = self._values[self._rank]
        if values.shape[1:] != own.shape[1:]:
            raise ValueError(f"rows of shape {list(values.shape[1:])} came, and this rank has {list(own.shape[1:])}")

    def result(self) -> tuple[Array, Array]:
        parts = self._received()
        return np.concatenate(parts), np.array([len(part) for part in parts], np.int32)


class ReduceScatter(Scatter):
    """Reduce-scatter: reduces a tensor of the same shape on all ranks, and leaves each rank some rows of the result.

    If the rows cannot be divided evenly, the first ranks in ``order`` have one more (see `rows_of`). The parts of the
    ranks are merged in the order of the ranks.

    Args:
      merge, final: as in `schedules.all_reduce`.
    """

    def __init__(
        self, rank: int, size: int, value: Array, merge: str, final: str, order: Sequence[int] | None = None
    ) -> None:
        bounds = [rows_of(i, size, len(value)) for i in range(size)]
        super().__init__(rank, size, [np.ascontiguousarray(value[low:high]) for low, high in bounds], order)
        self._merge, self._final = MERGES[merge], final

    def _check(self, values: Array) -> None:
        own = self._values[self._rank]
        if values.shape != own.shape:
            raise ValueError(f"a part of shape {list(values.shape)} came, and this rank reduces {list(own.shape)}")

    def result(self) -> Array:
        first, *others = self._received()
        total = np.array(first)  # the parts may be read-only
        for value in others:
            self._merge(total, value, out=total)
        return divide(total, self._size, out=total) if self._final == "Div" else total


def rows_of(position: int, size: int, rows: int) -> tuple[int, int]:
    """Returns the first row of a position in a reduce-scatter, and the row behind its last."""
    each, more = divmod(rows, size)
    low = position * each + min(position, more)
    return low, low + each + (position < more)
