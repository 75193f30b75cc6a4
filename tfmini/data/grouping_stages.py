"""Stages that group elements by a key: windows of equal keys, and one reduction per key."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import errors
from tfmini.data.pipeline import Element, Function, FunctionSource, Source, Stage, Transformation, TransformedSource
from tfmini.data.reading import Reading


def _key(function: Function, reading: Reading, element: Element) -> int:
    """The key of an element.

    Raises:
      InvalidArgumentError: when the function returns no scalar.
    """
    (key,) = function(reading, *element)
    if np.ndim(key):
        raise errors.InvalidArgumentError.of("`key_func` must return a scalar int64.")
    return int(key)


class _Windows(Transformation):
    """Collects elements by key, and reads the dataset that ``reduce`` returns for each full window."""

    def __init__(self, upstream: Stage, reading: Reading, key: Function, reduce: Function, size: Function) -> None:
        super().__init__(upstream)
        self._reading = reading
        self._key, self._reduce, self._size = key, reduce, size
        self._groups: dict[int, list[Element]] = {}
        self._sizes: dict[int, int] = {}
        self._result: Stage | None = None
        self._over = False

    def __next__(self) -> Element:
        while True:
            if self._result is not None:
                try:
                    return next(self._result)
                except StopIteration:
                    self._result.close()
                    self._result = None
            self._reading.check()
            if self._over and not self._groups:
                raise StopIteration
            self._collect()

    def _collect(self) -> None:
        """Takes one more element; after the last one, opens the incomplete windows in the order of their keys."""
        try:
            element = next(self.upstream) if not self._over else None
        except StopIteration:
            self._over = True
            element = None
        if element is None:
            if self._groups:
                self._open(min(self._groups))
            return
        key = _key(self._key, self._reading, element)
        if key not in self._sizes:
            self._sizes[key] = self._window_size(key)
        group = self._groups.setdefault(key, [])
        group.append(element)
        if len(group) >= self._sizes[key]:
            self._open(key)

    def _window_size(self, key: int) -> int:
        (size,) = self._size(self._reading, np.int64(key))
        if np.ndim(size) or size <= 0:
            text = f"Window size must be greater than zero, but got {size}."
            raise errors.InvalidArgumentError.of(text)
        return int(size)

    def _open(self, key: int) -> None:
        elements = self._groups.pop(key)
        window = FunctionSource(lambda _: iter(elements))
        (result,) = self._reduce(self._reading, np.int64(key), window)
        self._result = result.open(self._reading)

    def close(self) -> None:
        if self._result is not None:
            self._result.close()
        super().close()


def group_by_window(source: Source, key: Function, reduce: Function, size: Function) -> Source:
    """The elements of the datasets that ``reduce(key, window)`` returns, one dataset after the other."""
    return TransformedSource(source, lambda upstream, reading: _Windows(upstream, reading, key, reduce, size))


def group_by_reducer(
    source: Source, key: Function, init: Function, reduce: Function, finalize: Function
) -> Source:
    """One element per key, in the order of the keys: ``finalize`` of the reduced state."""

    def begin(reading: Reading) -> Any:
        states: dict[int, Element] = {}
        stage = source.open(reading)
        try:
            for element in stage:
                reading.check()
                number = _key(key, reading, element)
                if number not in states:
                    states[number] = init(reading, np.int64(number))
                states[number] = reduce(reading, *states[number], *element)
        finally:
            stage.close()
        for number in sorted(states):
            yield finalize(reading, *states[number])

    return FunctionSource(begin)
