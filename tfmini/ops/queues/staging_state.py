"""Staging areas: small buffers between two parts of a training step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.graph.op_types import Wait
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.waiting_line import OVER, STUCK, Attempt, WaitingState, own_all


def size_in_bytes(values: Sequence[Any]) -> int:
    """The size of a tuple of values, for the memory limit."""
    return sum(len(v) if isinstance(v, bytes) else np.asarray(v).nbytes for v in values if v is not None)


class _Try(Attempt):
    """Waits until ``function`` returns something other than None; ``undo`` puts back what it has returned."""

    __slots__ = ("function", "text", "undo")

    def __init__(
        self, wait: Wait, function: Callable[[], Any], text: str, undo: Callable[[Any], None] | None = None
    ) -> None:
        super().__init__(wait)
        self.function = function
        self.text = text
        self.undo = undo

    def cause(self) -> str:
        return self.text

    def advance(self) -> int:
        try:
            result = self.function()
        except errors.OpError as error:
            return self.fail(error)
        if result is None:
            return STUCK
        self.result = result
        return OVER

    def give_back(self) -> None:
        if self.undo is not None and self.result:
            self.undo(self.result)
            self.result = ()


class _Area(WaitingState):
    """Base of both kinds of areas: limits, and clearing.

    Attributes:
      capacity: the most tuples; 0 for no limit.
      memory_limit: the most bytes; 0 for no limit.
    """

    def __init__(self, name: str, capacity: int, memory_limit: int) -> None:
        super().__init__(3, unordered=(1, 2))
        self.putters, self.takers, self.peekers = self.lines
        self.name = name
        self.capacity = capacity
        self.memory_limit = memory_limit
        self.bytes = 0

    def has_room(self, count: int, more: int) -> bool:
        """Whether a tuple of ``more`` bytes may be added to ``count`` tuples."""
        fits = not self.memory_limit or self.bytes + more <= self.memory_limit
        return fits and (not self.capacity or count < self.capacity)

    def check_limit(self, size: int) -> None:
        """Refuses a tuple that can never fit.

        Raises:
          ResourceExhaustedError: when ``size`` exceeds the memory limit.
        """
        if self.memory_limit and size > self.memory_limit:
            raise errors.ResourceExhaustedError.of(
                f"Attempted to insert tensors with combined size of '{size}' bytes into Staging Area with a memory"
                f" limit of '{self.memory_limit}'."
            )

    def drop(self) -> None:
        """Removes all tuples, under the lock."""
        raise NotImplementedError

    def empty(self) -> None:
        """Removes all tuples, which answers the ops that wait for room."""
        with self.lock:
            self.drop()
            self.bytes = 0
        self.changed()

    def clear(self) -> None:
        """Called when the task removes the area; fails all waiting ops."""
        with self.lock:
            self.drop()
        text = f"Staging area '{self.name}' was deleted by a reset of its container."
        self.fail_all(errors.CancelledError.of(text))


class StageState(_Area):
    """A first-in, first-out staging area."""

    def __init__(self, name: str, capacity: int, memory_limit: int) -> None:
        super().__init__(name, capacity, memory_limit)
        self._tuples: deque[tuple[Any, ...]] = deque()

    def size(self) -> int:
        """The number of tuples."""
        return len(self._tuples)

    def drop(self) -> None:
        self._tuples.clear()

    def put(self, wait: Wait, values: list[Any]) -> None:
        """Adds a tuple when there is room."""
        size = size_in_bytes(values)
        self.check_limit(size)
        kept = own_all(values)

        def put() -> Any:
            if not self.has_room(len(self._tuples), size):
                return None
            self._tuples.append(kept)
            self.bytes += size
            return ()

        self.submit(self.putters, _Try(wait, put, f'room in staging area "{self.name}"'))

    def get(self, wait: Wait, count: int) -> None:
        """Takes the oldest tuple, which must have ``count`` values."""

        def get() -> Any:
            if not self._tuples:
                return None
            values = _checked(self._tuples[0], count)
            del self._tuples[0]
            self.bytes -= size_in_bytes(values)
            return values

        def put_back(values: tuple[Any, ...]) -> None:
            self._tuples.appendleft(values)
            self.bytes += size_in_bytes(values)

        self.submit(self.takers, _Try(wait, get, f'a tuple in staging area "{self.name}"', put_back))

    def peek(self, wait: Wait, index: int, count: int) -> None:
        """Returns the tuple at ``index`` without taking it."""

        def peek() -> Any:
            return _checked(self._tuples[index], count) if index < len(self._tuples) else None

        self.submit(self.peekers, _Try(wait, peek, f'tuple {index} in staging area "{self.name}"'))


def _checked(values: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    if len(values) != count:
        refuse(f"Mismatch stage/unstage: {len(values)} vs. {count}")
    return values


class MapStageState(_Area):
    """A staging area by key, whose tuples may be put and taken in parts.

    Args:
      width: the number of values of a tuple.
      ordered: whether taking without a key returns the smallest key first.
    """

    def __init__(self, name: str, capacity: int, memory_limit: int, width: int, ordered: bool) -> None:
        super().__init__(name, capacity, memory_limit)
        self.width = width
        self.ordered = ordered
        self.complete: dict[int, list[Any]] = {}
        self.incomplete: dict[int, list[Any]] = {}

    def drop(self) -> None:
        self.complete.clear()
        self.incomplete.clear()

    def put(self, wait: Wait, key: int, indices: list[int], values: list[Any]) -> None:
        """Adds values to the tuple of a key when there is room."""
        _check_order(indices)
        size = size_in_bytes(values)
        self.check_limit(size)
        whole = len(indices) == self.width
        kept = own_all(values)

        def put() -> Any:
            if not self.has_room(len(self.complete) if whole else -1, size):
                return None
            self._put(key, indices, kept)
            self.bytes += size
            return ()

        self.submit(self.putters, _Try(wait, put, f'room in staging area "{self.name}"'))

    def _put(self, key: int, indices: list[int], values: Sequence[Any]) -> None:
        if len(indices) == self.width:
            self.complete.setdefault(key, list(values))
            return
        parts = self.incomplete.get(key) or []
        parts += [None] * (self.width - len(parts))  # an op with more types may have come since
        for index, value in zip(indices, values):
            self._check_index(key, index, self.width)
            if parts[index] is not None:
                refuse(f"The tensor for index '{index}' for key '{key}' was already initialized '{self.width}'.")
            parts[index] = value
        if any(part is None for part in parts):
            self.incomplete[key] = parts
        else:
            self.incomplete.pop(key, None)
            self.complete.setdefault(key, parts)

    def _check_index(self, key: int, index: int, width: int) -> None:
        if not 0 <= index < width:
            refuse(f"Index '{index}' for key '{key}' was out of bounds '{width}'.")

    def _values(self, key: int, indices: list[int], remove: bool) -> tuple[Any, ...]:
        parts = self.complete[key]
        for index in indices:
            self._check_index(key, index, len(parts))  # the width when the tuple was put
            if parts[index] is None:
                refuse(f"Tensor at index '{index}' for key '{key}' has already been removed.")
        found = tuple(parts[index] for index in indices)
        if remove:
            for index in indices:
                parts[index] = None
            if all(part is None for part in parts):
                del self.complete[key]
            self.bytes -= size_in_bytes(found)
        return found

    def _put_back(self, key: int, indices: list[int], values: Sequence[Any]) -> None:
        parts = self.complete.setdefault(key, [None] * self.width)
        for index, value in zip(indices, values):
            parts[index] = value
        self.bytes += size_in_bytes(values)

    def get(self, wait: Wait, key: int, indices: list[int], remove: bool) -> None:
        """Returns values of the tuple of a key, and removes them if requested; waits for the key."""
        _check_order(indices)

        def get() -> Any:
            return self._values(key, indices, remove) if key in self.complete else None

        def put_back(values: tuple[Any, ...]) -> None:
            self._put_back(key, indices, values)

        line = self.takers if remove else self.peekers
        self.submit(line, _Try(wait, get, self._cause(f"key {key}"), put_back if remove else None))

    def get_any(self, wait: Wait, indices: list[int]) -> None:
        """Takes values of some tuple; returns (key, list of values)."""
        _check_order(indices)

        def get() -> Any:
            if not self.complete:
                return None
            key = min(self.complete) if self.ordered else next(iter(self.complete))
            return (np.int64(key), *self._values(key, indices, True))

        def put_back(found: tuple[Any, ...]) -> None:
            self._put_back(int(found[0]), indices, found[1:])

        self.submit(self.takers, _Try(wait, get, self._cause("any key"), put_back))

    def _cause(self, what: str) -> str:
        return f'{what} in staging area "{self.name}"'


def _check_order(indices: list[int]) -> None:
    if not indices:
        refuse("Indices are empty")
    if any(a >= b for a, b in zip(indices, indices[1:])):
        refuse("Indices are not strictly ordered")
