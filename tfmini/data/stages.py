"""Stages without functions: batch, take, skip, shard, repeat, shuffle, zip, concatenate, cache and window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.data import cardinality
from tfmini.data.cardinality import batched, limited, sharded, skipping
from tfmini.data.pipeline import Element, FunctionSource, Source, Stage, Transformation, TransformedSource, batch_of
from tfmini.data.reading import TURN, Reading


class _Batch(Transformation):
    def __init__(
        self, upstream: Stage, reading: Reading, size: int, drop_remainder: bool,
        combine: Callable[[list[Element]], Element], whole: bool,
    ) -> None:  # fmt: skip
        super().__init__(upstream)
        self._reading = reading
        self._size = size
        self._drop = drop_remainder
        self._combine = combine
        self._whole = whole
        self._begun: list[Element] = []
        self._over = False

    def _rows(self) -> list[Element]:
        rows, self._begun = self._begun, []
        failure: errors.OpError | None = None
        for number in range(len(rows), self._size):
            if number % TURN == TURN - 1 and self._reading.stopped:
                self._begun = rows  # the next step goes on with them
                self._reading.check()
            try:
                rows.append(next(self.upstream))
            except StopIteration:
                break
            except errors.OpError as error:
                if not self._whole:
                    raise
                failure = failure or error
        if failure is not None:
            raise failure
        return rows

    def __next__(self) -> Element:
        rows = [] if self._over else self._rows()
        if len(rows) < self._size:
            self._over = True
            if self._drop or not rows:
                raise StopIteration
        return self._combine(rows)


def batch(
    source: Source, size: int, drop_remainder: bool, combine: Callable[[list[Element]], Element] = batch_of,
    whole: bool = False,
) -> Source:  # fmt: skip
    """Combines ``size`` elements at a time with ``combine``.

    Args:
      whole: if an element fails, drop all ``size`` elements of its batch, rather than only those read so far.

    Raises:
      InvalidArgumentError: for a size below 1.
    """
    if size <= 0:
        raise errors.InvalidArgumentError.of("Batch size must be greater than zero.")
    count = batched(size, drop_remainder)
    return TransformedSource(
        source, lambda upstream, reading: _Batch(upstream, reading, size, drop_remainder, combine, whole), count
    )


class _Limit(Transformation):
    """The first ``count`` elements; all of them for a negative count."""

    def __init__(self, upstream: Stage, count: int) -> None:
        super().__init__(upstream)
        self._left = count

    def __next__(self) -> Element:
        if self._left == 0:
            self.upstream.close()  # releases files and threads early
            raise StopIteration
        self._left -= 1
        return next(self.upstream)


def take(source: Source, count: int) -> Source:
    """The first ``count`` elements; all of them for -1."""
    return TransformedSource(source, lambda upstream, _: _Limit(upstream, count), limited(count))


class _Skip(Transformation):
    def __init__(self, upstream: Stage, reading: Reading, count: int) -> None:
        super().__init__(upstream)
        self._reading = reading
        self._count = count

    def __next__(self) -> Element:
        while self._count:
            self._reading.check()
            if self._count < 0:
                raise StopIteration
            self._count -= 1
            next(self.upstream)
        return next(self.upstream)


def skip(source: Source, count: int) -> Source:
    """All but the first ``count`` elements; none for -1."""
    return TransformedSource(source, lambda upstream, reading: _Skip(upstream, reading, count), skipping(count))


class _Shard(Transformation):
    def __init__(self, upstream: Stage, reading: Reading, shards: int, index: int) -> None:
        super().__init__(upstream)
        self._reading = reading
        self._shards = shards
        self._skip = index

    def __next__(self) -> Element:
        for number in range(self._skip):
            if number % TURN == TURN - 1 and self._reading.stopped:
                self._skip -= number  # the next step goes on from here
                self._reading.check()
            next(self.upstream)
        self._skip = self._shards - 1
        return next(self.upstream)


def shard(source: Source, shards: int, index: int) -> Source:
    """Every ``shards``-th element, starting at ``index``.

    Raises:
      InvalidArgumentError: for an index outside ``[0, shards)``.
    """
    if shards <= 0:
        text = f"Number of shards must be greater than zero (currently num_shards = {shards})."
        raise errors.InvalidArgumentError.of(text)
    if not 0 <= index < shards:
        text = f"Index must be between 0 and {shards - 1} (currently index = {index})."
        raise errors.InvalidArgumentError.of(text)
    count = sharded(shards, index)
    return TransformedSource(source, lambda upstream, reading: _Shard(upstream, reading, shards, index), count)


class _Repeat(Stage):
    def __init__(self, source: Source, count: int, reading: Reading) -> None:
        self._source = source
        self._left = count
        self._reading = reading
        self._stage: Stage | None = None

    def __next__(self) -> Element:
        while self._left != 0:
            fresh = self._stage is None
            if self._stage is None:
                self._stage = self._source.open(self._reading)
            try:
                return next(self._stage)
            except StopIteration:
                self._stage.close()
                self._stage = None
                self._left -= 1
                self._reading.check()
                if fresh and self._left < 0:
                    self._left = 0  # the source is empty: do not reopen it without end
        raise StopIteration

    def close(self) -> None:
        if self._stage is not None:
            self._stage.close()


class RepeatSource(Source):
    """A source repeated ``count`` times; without end for a negative count."""

    def __init__(self, source: Source, count: int) -> None:
        self._source = source
        self.count = cardinality.repeated(count)(source.count)
        self._count = count

    def open(self, reading: Reading) -> Stage:
        return _Repeat(self._source, self._count, reading)


class _Shuffle(Transformation):
    def __init__(self, upstream: Stage, reading: Reading, size: int, random: np.random.Generator) -> None:
        super().__init__(upstream)
        self._reading = reading
        self._size = size
        self._random = random
        self._buffer: list[Element] = []
        self._over = False

    def __next__(self) -> Element:
        buffer = self._buffer
        while not self._over and len(buffer) < self._size:
            if len(buffer) % TURN == TURN - 1:
                self._reading.check()
            try:
                buffer.append(next(self.upstream))
            except StopIteration:
                self._over = True
        if not buffer:
            raise StopIteration
        chosen = int(self._random.integers(len(buffer)))
        buffer[chosen], buffer[-1] = buffer[-1], buffer[chosen]
        return buffer.pop()


class ShuffleSource(Source):
    """Elements drawn at random from a buffer of the next ``size`` elements.

    Args:
      size: size of the buffer.
      seeds: two numbers; both 0 for a seed from the operating system.
      reshuffle: whether each reading draws a new order.

    Raises:
      InvalidArgumentError: for a size below 1.
    """

    def __init__(self, source: Source, size: int, seeds: tuple[int, int], reshuffle: bool) -> None:
        if size <= 0:
            raise errors.InvalidArgumentError.of("buffer_size must be greater than zero.")
        self._source = source
        self.count = source.count
        self._size = size
        self._seeds = np.random.SeedSequence(list(seeds) if any(seeds) else None)
        self._reshuffle = reshuffle

    def open(self, reading: Reading) -> Stage:
        seed = self._seeds.spawn(1)[0] if self._reshuffle else self._seeds
        return _Shuffle(self._source.open(reading), reading, self._size, np.random.default_rng(seed))


class _Zip(Stage):
    def __init__(self, stages: list[Stage]) -> None:
        self._stages = stages

    def __next__(self) -> Element:
        element: Element = ()
        for stage in self._stages:
            element += next(stage)
        return element

    def close(self) -> None:
        for stage in self._stages:
            stage.close()


class ZipSource(Source):
    """Elements of several sources side by side; ends with the shortest source."""

    def __init__(self, sources: list[Source]) -> None:
        self._sources = sources
        self.count = cardinality.shortest([source.count for source in sources])

    def open(self, reading: Reading) -> Stage:
        return _Zip([source.open(reading) for source in self._sources])


class _Concatenate(Stage):
    def __init__(self, sources: list[Source], reading: Reading) -> None:
        self._waiting = list(sources)
        self._reading = reading
        self._stage: Stage | None = None

    def __next__(self) -> Element:
        while self._stage is not None or self._waiting:
            if self._stage is None:
                self._stage = self._waiting.pop(0).open(self._reading)
            try:
                return next(self._stage)
            except StopIteration:
                self._stage.close()
                self._stage = None
        raise StopIteration

    def close(self) -> None:
        if self._stage is not None:
            self._stage.close()


class ConcatenateSource(Source):
    """One source after the other."""

    def __init__(self, sources: list[Source]) -> None:
        self._sources = sources
        self.count = cardinality.total([source.count for source in sources])

    def open(self, reading: Reading) -> Stage:
        return _Concatenate(self._sources, reading)


class _Recorder(Transformation):
    """Records the elements that it yields and passes them to ``whole`` at the end."""

    def __init__(self, upstream: Stage, whole: Callable[[list[Element]], None]) -> None:
        super().__init__(upstream)
        self._whole = whole
        self._seen: list[Element] = []

    def __next__(self) -> Element:
        try:
            element = next(self.upstream)
        except StopIteration:
            self._whole(self._seen)
            raise
        self._seen.append(element)
        return element


class CacheSource(Source):
    """A source whose elements are kept in memory after the first complete reading."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.count = source.count
        self._kept: list[Element] | None = None

    def open(self, reading: Reading) -> Stage:
        if self._kept is not None:
            return FunctionSource(lambda _: iter(self._kept or ())).open(reading)
        return _Recorder(self._source.open(reading), self._keep)

    def _keep(self, elements: list[Element]) -> None:
        self._kept = elements


def _source_of(column: tuple[Any, ...]) -> Source:
    return FunctionSource(lambda _: iter([(value,) for value in column]))


class _Window(Transformation):
    """Windows of ``size`` elements; ``stride`` is the distance of elements, ``shift`` that of windows."""

    def __init__(
        self, upstream: Stage, reading: Reading, size: int, shift: int, stride: int, drop_remainder: bool
    ) -> None:
        super().__init__(upstream)
        self._reading = reading
        self._size, self._shift, self._stride = size, shift, stride
        self._drop = drop_remainder
        self._span = (size - 1) * stride + 1
        self._held: list[Element] = []
        self._missing = 0  # number of elements to skip before the next window
        self._over = False

    def __next__(self) -> Element:
        try:
            self._fill()
        except StopIteration:
            self._over = True
        chosen = self._held[: self._span : self._stride]
        if not chosen or self._missing or self._drop and len(chosen) < self._size:
            raise StopIteration
        self._missing = max(0, self._shift - len(self._held))
        del self._held[: self._shift]
        return tuple(_source_of(column) for column in zip(*chosen))

    def _fill(self) -> None:
        while self._missing:
            self._reading.check()
            next(self.upstream)
            self._missing -= 1
        while not self._over and len(self._held) < self._span:
            if len(self._held) % TURN == TURN - 1:
                self._reading.check()
            self._held.append(next(self.upstream))


def window(source: Source, size: int, shift: int, stride: int, drop_remainder: bool) -> Source:
    """Windows of elements; each component of a window is a source of that component's values.

    Raises:
      InvalidArgumentError: when size, shift or stride is below 1.
    """
    for name, value in (("size", size), ("shift", shift), ("stride", stride)):
        if value <= 0:
            raise errors.InvalidArgumentError.of(f"Window {name} must be greater than zero.")
    count = cardinality.windows(size, shift, stride, drop_remainder)
    return TransformedSource(
        source, lambda upstream, reading: _Window(upstream, reading, size, shift, stride, drop_remainder), count
    )
