"""Rows that are found by int64 ids and come and go: the storage of tables that grow.

Memory: a row costs what its columns hold, 8 bytes for its id, 4 for its chain and 3 to 5 for the heads of the chains.
Arrays grow by a sixty-fourth, so that at most 2 % of them are spare. On Linux the allocator moves pages then, not
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfmini.core_types import Array, DTypeLike

_FIRST = 64  # rows
_SPARE = 64  # one row of so many is spare after growth
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio: neighbours in number are far apart in the product
_HALF = np.uint64(32)
_PASS = 1 << 16  # rows that are moved at once


def _resize(array: Array, rows: int) -> None:
    """Gives an array, of which there must be no view, another number of rows; new ones are zeros."""
    # realloc, which copies nothing where the system can move pages; refcheck would count the names of the callers.
    array.resize((rows, *array.shape[1:]), refcheck=False)


class IdIndex:
    """Places 1, 2, … of distinct int64 ids, in the order in which they were added; 0 is the place of an unknown id.

    Ids whose hash has the same leading bits form a chain. All ids of a lookup go along their chains together, so the
    number of numpy calls is the length of the longest chain on the way, about seven, whatever the number of ids.
    """

    def __init__(self) -> None:
        self.size = 0
        self._ids = np.zeros(_FIRST, np.int64)  # by place
        self._next = np.zeros(_FIRST, np.int32)  # the place behind each one in its chain, 0 at the end
        self._bits = 6
        self._heads = np.zeros(1 << self._bits, np.int32)

    @property
    def capacity(self) -> int:
        """The number of places in memory, the unused place 0 included."""
        return min(len(self._ids), len(self._next))  # they differ when memory was short

    @property
    def nbytes(self) -> int:
        """The memory in bytes."""
        return self._ids.nbytes + self._next.nbytes + self._heads.nbytes

    def ids(self) -> Array:
        """The ids in the order of their places: int64 of shape [size], a copy."""
        return self._ids[1 : self.size + 1].copy()

    def find(self, ids: Array) -> Array:
        """The places of ids of shape [n]: int64 of shape [n], 0 where an id is unknown."""
        places: Array = self._heads.take(self._chains(ids)).astype(np.int64)
        left = np.flatnonzero(self._ids.take(places) != ids)
        wanted: Array = ids[left]
        at: Array = places[left]
        while at.any():  # place 0 follows itself, so those who find nothing wait there for the others
            at = self._next.take(at)
            places[left] = at
            wrong = np.flatnonzero(self._ids.take(at) != wanted)
            left, wanted, at = left[wrong], wanted[wrong], at[wrong]
        return places

    # Memory may end anywhere. What is known stays right then: all that takes memory comes before the change.

    def reserve(self, count: int) -> None:
        """Takes the memory for so many more ids."""
        size = self.size + count
        if size >= self.capacity:
            self._resize(size + 1 + max(_FIRST, size // _SPARE))

    def add(self, ids: Array) -> Array:
        """Gives places to distinct ids that have none: int64 of shape [n]."""
        self.reserve(len(ids))
        first, size = self.size + 1, self.size + len(ids)
        places = np.arange(first, size + 1)
        self._ids[first : size + 1] = ids
        if size > 1.5 * len(self._heads):
            self._chain_all(self._ids[1 : size + 1])
        else:
            self._chain(ids, first)
        self.size = size
        return places

    def keep(self, chosen: Array) -> None:
        """Forgets the ids that are not at the places ``chosen``, which are ascending; the others move together."""
        ids = self._ids[chosen]
        self._chain_all(ids)
        self._ids[1 : len(ids) + 1] = ids
        self.size = len(ids)
        rows = self.size + 1 + max(_FIRST, self.size // _SPARE)
        if rows < self.capacity:
            self._resize(rows)

    def _resize(self, rows: int) -> None:
        _resize(self._ids, rows)
        _resize(self._next, rows)

    def _chains(self, ids: Array) -> Array:
        """The number of the chain of each id. Ids that differ only in high bits, as hashes may, are spread, too."""
        mixed = ids.view(np.uint64)
        mixed = mixed ^ (mixed >> _HALF)
        mixed *= _FACTOR
        mixed >>= np.uint64(64 - self._bits)
        return mixed.view(np.int64)

    def _chain(self, ids: Array, first: int) -> None:
        """Puts ids, whose places begin at ``first``, at the heads of their chains."""
        chains = self._chains(ids)
        order = np.argsort(chains, kind="stable")
        chains, places = chains[order], (order + first).astype(np.int32)
        is_last = np.empty(len(ids), np.bool_)  # of the new ids of its chain
        is_last[-1:] = True
        np.not_equal(chains[1:], chains[:-1], out=is_last[:-1])
        behind = np.empty(len(ids), np.int32)
        behind[:-1] = places[1:]
        ends = np.flatnonzero(is_last)
        behind[ends] = self._heads[chains[ends]]
        self._next[places] = behind
        is_first = np.empty(len(ids), np.bool_)
        is_first[:1] = True
        is_first[1:] = is_last[:-1]
        begins = np.flatnonzero(is_first)
        self._heads[chains[begins]] = places[begins]

    def _chain_all(self, ids: Array) -> None:
        """Makes the chains anew, for ids whose places are 1, 2, …"""
        before = self._bits, self._heads, self._next
        try:
            self._bits = max(6, (len(ids) - 1).bit_length())
            self._heads, self._next = np.zeros(1 << self._bits, np.int32), np.zeros(len(self._next), np.int32)
            for start in range(0, len(ids), _PASS):  # by parts, for the arrays that this takes
                self._chain(ids[start : start + _PASS], start + 1)
        except MemoryError:
            self._bits, self._heads, self._next = before
            raise


class IdRows:
    """Rows of several columns, found by ids. Row 0 of each column belongs to no id.

    Attributes:
      index: the places of the ids.
      fills: name of a column -> what a new row has there.
      columns: name -> array whose row ``p`` belongs to the id at place ``p``. Nobody keeps a view of one.
    """

    def __init__(self) -> None:
        self.index = IdIndex()
        self.columns: dict[str, Array] = {}
        self.fills: dict[str, Any] = {}

    def __len__(self) -> int:
        return self.index.size

    @property
    def nbytes(self) -> int:
        """The memory in bytes. Any thread may ask, while another adds columns."""
        return self.index.nbytes + sum(column.nbytes for column in list(self.columns.values()))

    def add_column(self, name: str, shape: tuple[int, ...], dtype: DTypeLike, fill: float = 0) -> None:
        """Adds a column, filled in all rows, also in those that come later."""
        self.columns[name] = np.zeros((self.index.capacity, *shape), dtype)
        self.fills[name] = fill
        if fill:
            self.columns[name][: len(self) + 1] = fill

    def set_column(self, name: str, shape: tuple[int, ...], dtype: DTypeLike, fill: float) -> None:
        """Adds a column, or changes what new rows have in the one of that name."""
        if name not in self.columns:
            self.add_column(name, shape, dtype, fill)
        self.fills[name] = fill

    def add(self, ids: Array) -> Array:
        """Adds rows for distinct unknown ids; returns their places."""
        self.index.reserve(len(ids))
        first = len(self) + 1
        for name, column in self.columns.items():
            if len(column) < self.index.capacity:
                _resize(column, self.index.capacity)
            column[first : first + len(ids)] = self.fills[name]
        return self.index.add(ids)

    def keep(self, chosen: Array) -> None:
        """Drops the rows that are not at the ascending places ``chosen``. All places change."""
        most = min(len(chosen), _PASS)
        moved = [np.empty((most, *column.shape[1:]), column.dtype) for column in self.columns.values()]
        self.index.keep(chosen)
        for column, rows in zip(self.columns.values(), moved):
            for target, part in _parts(chosen):
                column[target] = column.take(part, 0, rows[: len(part)], "clip")
            if len(column) > self.index.capacity:
                _resize(column, self.index.capacity)

    def all(self, name: str) -> Array:
        """A column in the order of the places, without row 0: a copy."""
        return self.columns[name][1 : len(self) + 1].copy()


def _parts(chosen: Array) -> Iterator[tuple[slice, Array]]:
    """Where rows go to, and where they are, few at a time. None goes where one of a later part still is."""
    for start in range(0, len(chosen), _PASS):
        part = chosen[start : start + _PASS]
        yield slice(start + 1, start + 1 + len(part)), part
