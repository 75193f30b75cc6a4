"""Dataset ops without functions, each with its stage: batch, take, skip, shard, repeat, shuffle, cache, window …"""

from __future__ import annotations

import collections
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.core_types import Array, TensorLike
from tfmini.data.dataset_ops import TYPES, FileCacheSource, dataset_op, stages_of
from tfmini.data.pipeline import (
    INFINITE,
    TURN,
    Element,
    FunctionSource,
    Reading,
    Seeds,
    Source,
    Stage,
    Transformation,
    batch_of,
    batched,
    count_rows,
    limited,
    repeated,
    rows_of,
    sharded,
    sizes_text,
    skipping,
    windows,
)
from tfmini.data.prefetching import prefetched
from tfmini.numerics.philox import PhiloxGenerator, WordStream
from tfmini.ops.array.kernel_arguments import as_element, filled

_COUNT = "input_dataset: variant, count: int64"


def _refuse_unless_positive(text: str, value: int) -> None:
    if value <= 0:
        raise errors.InvalidArgumentError.of(f"{text} must be greater than zero.")


# ---- batches --------------------------------------------------------------------------------

batch_dataset = dataset_op(
    "BatchDatasetV2",
    "input_dataset: variant, batch_size: int64, drop_remainder: bool",
    f"parallel_copy: bool = false; {TYPES}",
)
padded_batch_dataset = dataset_op(
    "PaddedBatchDatasetV2",
    "input_dataset: variant, batch_size: int64, padded_shapes: N * int64, padding_values: Toutput_types,"
    " drop_remainder: bool",
    "parallel_copy: bool = false; Toutput_types: list(type) >= 1; output_shapes: list(shape) >= 1; N: int >= 1",
)
window_dataset = dataset_op(
    "WindowDataset", "input_dataset: variant, size: int64, shift: int64, stride: int64, drop_remainder: bool"
)
sliding_window_dataset = dataset_op(
    "SlidingWindowDataset", "input_dataset: variant, window_size: int64, window_shift: int64, window_stride: int64"
)
unbatch_dataset = dataset_op("UnbatchDataset", "input_dataset: variant")


@stages_of(batch_dataset, batched)
@dataclass(eq=False)
class Batch(Transformation):
    """Combines ``batch_size`` elements at a time.

    Attributes:
      whole: if an element fails, drop all elements of its batch, rather than only those read so far. So it is
        behind a map, too, since TensorFlow makes one op of both.
    """

    batch_size: int
    drop_remainder: bool
    _begun: list[Element] = field(default_factory=list, init=False)
    _over: bool = field(default=False, init=False)
    whole = False

    @staticmethod
    def check(*, batch_size: int, **others: Any) -> None:
        _refuse_unless_positive("Batch size", batch_size)

    def __post_init__(self) -> None:
        self.whole = self.whole or type(self) is Batch and self.upstream.is_map

    def combined(self, rows: Sequence[Element]) -> Element:
        """The elements of a batch as one."""
        try:
            return batch_of(rows)
        except errors.InvalidArgumentError:
            if self.whole:
                _refuse_other_counts(rows)
            raise

    def _rows(self) -> list[Element]:
        rows, self._begun = self._begun, []
        failure: errors.OpError | None = None
        for number in range(len(rows), self.batch_size):
            if number % TURN == TURN - 1 and self.reading.stopped:
                self._begun = rows  # the next step goes on with them
                self.reading.check()
            try:
                rows.append(next(self.upstream))
            except StopIteration:
                break
            except errors.OpError as error:
                if not self.whole:
                    raise
                failure = failure or error
        if failure is not None:
            raise failure
        return rows

    def __next__(self) -> Element:
        rows = [] if self._over else self._rows()
        if len(rows) < self.batch_size:
            self._over = True
            if self.drop_remainder or not rows:
                raise StopIteration
        return self.combined(rows)


def _refuse_other_counts(rows: Sequence[Element]) -> None:
    """Raises what TensorFlow's op of a map and a batch does for tensors of different sizes."""
    for column in zip(*rows):
        first, *others = (np.shape(value) for value in column)
        for other in others:
            if np.prod(other) != np.prod(first):
                raise errors.InvalidArgumentError.of(
                    "Cannot add tensor to the batch: number of elements does not match. Shapes are: [tensor]:"
                    f" {sizes_text(other)}, [batch]: {sizes_text(first)}"
                )


@stages_of(padded_batch_dataset, batched)
@dataclass(eq=False)
class PaddedBatch(Batch):
    """Batches of elements of different sizes, each padded to one shape.

    Attributes:
      padded_shapes: a padded shape per component; -1 means the largest size in the batch.
      padding_values: a padding value per component.
    """

    padded_shapes: list[Any]
    padding_values: list[Any]

    @staticmethod
    def check(*, batch_size: int, **others: Any) -> None:
        Batch.check(batch_size=batch_size)
        for size in (size for shape in others["padded_shapes"] for size in shape if size < -1):
            raise errors.InvalidArgumentError.of(f"Dimension {size} must be >= -1")

    def combined(self, rows: Sequence[Element]) -> Element:
        columns = zip(zip(*rows), self.padded_shapes, self.padding_values)
        return tuple(_padded(column, shape, value) for column, shape, value in columns)


def _padded(rows: Sequence[Any], wanted: Array, value: TensorLike) -> Any:
    sizes = [() if isinstance(row, bytes) else np.shape(row) for row in rows]
    full = []
    for size in sizes:
        if len(size) != len(wanted):
            raise errors.InvalidArgumentError.of(
                f"All elements in a batch must have the same rank as the padded shape for component"
                f" 0: expected rank {len(wanted)} but got element with rank {len(size)}"
            )
    for axis, dimension in enumerate(wanted):
        longest = max(size[axis] for size in sizes)
        if dimension >= 0 and longest > dimension:
            raise errors.DataLossError.of(
                "Attempted to pad to a smaller size than the input element."
                f" Dimension {axis} has {longest} elements, the padded shape {dimension}."
            )
        full.append(longest if dimension < 0 else int(dimension))
    first = rows[0]
    dtype = object if isinstance(first, bytes) else first.dtype
    out = filled((len(rows), *full), value, np.dtype(dtype))
    for i, (row, size) in enumerate(zip(rows, sizes)):
        place: Any = (i, *(slice(0, n) for n in size))
        out[place] = as_element(row)
    return out


@dataclass(eq=False)
class _Windows(Transformation):
    """Windows of elements: ``settings`` says how many, the distance of windows, and that of a window's elements."""

    _held: list[Element | errors.OpError] = field(default_factory=list, init=False)  # an error in place of an element
    _missing: int = field(default=0, init=False)  # number of elements to skip before the next window
    _over: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._size, self._shift, self._stride, self._drop = self.settings()
        self._span = (self._size - 1) * self._stride + 1

    def settings(self) -> tuple[int, int, int, bool]:
        raise NotImplementedError

    def combined(self, rows: Sequence[Element]) -> Element:
        """The elements of a window as one."""
        return tuple(_source_of(column) for column in zip(*rows))

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
        rows: list[Element] = []
        for row in chosen:
            if isinstance(row, errors.OpError):
                raise row
            rows.append(row)
        return self.combined(rows)

    def _fill(self) -> None:
        while self._missing:
            self.reading.check()
            self._next()
            self._missing -= 1
        while not self._over and len(self._held) < self._span:
            if len(self._held) % TURN == TURN - 1:
                self.reading.check()
            self._held.append(self._next())

    def _next(self) -> Element | errors.OpError:
        """The next element or the error in its place, which only the windows that have it raise."""
        try:
            return next(self.upstream)
        except errors.OpError as error:
            self.reading.check()
            return error


@stages_of(window_dataset, windows)
@dataclass(eq=False)
class _Window(_Windows):
    """Windows of ``size`` elements; each component of a window is a source of that component's values."""

    size: int
    shift: int
    stride: int
    drop_remainder: bool

    @staticmethod
    def check(*, size: int, shift: int, stride: int, **others: Any) -> None:
        for name, value in (("size", size), ("shift", shift), ("stride", stride)):
            _refuse_unless_positive(f"Window {name}", value)

    def settings(self) -> tuple[int, int, int, bool]:
        return self.size, self.shift, self.stride, self.drop_remainder


@stages_of(
    sliding_window_dataset,
    lambda window_size, window_shift, window_stride: windows(window_size, window_shift, window_stride, True),
)
@dataclass(eq=False)
class _SlidingWindow(_Windows):
    """Batches of the elements of whole windows."""

    window_size: int
    window_shift: int
    window_stride: int

    @staticmethod
    def check(*, window_size: int, window_shift: int, window_stride: int, **others: Any) -> None:
        _Window.check(size=window_size, shift=window_shift, stride=window_stride)

    def settings(self) -> tuple[int, int, int, bool]:
        return self.window_size, self.window_shift, self.window_stride, True

    def combined(self, rows: Sequence[Element]) -> Element:
        return batch_of(rows)


def _source_of(column: tuple[Any, ...]) -> Source:
    return FunctionSource(lambda _: iter([(value,) for value in column]))


@stages_of(unbatch_dataset)
@dataclass(eq=False)
class _Unbatch(Transformation):
    """The rows of each element, one after the other."""

    _rows: Any = field(default=iter(()), init=False)

    def __next__(self) -> Element:
        while True:
            for element in self._rows:
                return element  # type: ignore[no-any-return]
            self.reading.check()  # there may be batches of no row without an end
            self._rows = _rows(next(self.upstream))


def _rows(element: Element) -> Any:
    lengths = {count_rows(component) for component in element}
    if len(lengths) > 1:
        text = f"Input element must have the same batch size in each component, not {sorted(lengths)}."
        raise errors.InvalidArgumentError.of(text)
    return zip(*[rows_of(component) for component in element])


# ---- selection ------------------------------------------------------------------------------

take_dataset = dataset_op("TakeDataset", _COUNT)
skip_dataset = dataset_op("SkipDataset", _COUNT)
shard_dataset = dataset_op("ShardDataset", "input_dataset: variant, num_shards: int64, index: int64")
ignore_errors_dataset = dataset_op("IgnoreErrorsDataset", "input_dataset: variant")


@stages_of(take_dataset, limited)
@dataclass(eq=False)
class _Take(Transformation):
    """The first ``count`` elements; all of them for a negative count. An error is no element."""

    count: int

    def __next__(self) -> Element:
        if self.count == 0:
            self.upstream.close()  # releases files and threads early
            raise StopIteration
        element = next(self.upstream)
        self.count -= 1
        return element


@stages_of(skip_dataset, skipping)
@dataclass(eq=False)
class _Skip(Transformation):
    """All but the first ``count`` elements; none for a negative count. An error is no element."""

    count: int

    def __next__(self) -> Element:
        while self.count:
            self.reading.check()
            if self.count < 0:
                raise StopIteration
            next(self.upstream)
            self.count -= 1
        return next(self.upstream)


@stages_of(shard_dataset, sharded)
@dataclass(eq=False)
class Shard(Transformation):
    """Every ``num_shards``-th element, starting at ``index``. An error is no element."""

    num_shards: int
    index: int  # later the number of elements before the next one to yield

    @staticmethod
    def check(*, num_shards: int, index: int) -> None:
        if num_shards <= 0:
            text = f"Number of shards must be greater than zero (currently num_shards = {num_shards})."
            raise errors.InvalidArgumentError.of(text)
        if not 0 <= index < num_shards:
            text = f"Index must be between 0 and {num_shards - 1} (currently index = {index})."
            raise errors.InvalidArgumentError.of(text)

    def __next__(self) -> Element:
        while self.index:
            if not self.index % TURN:
                self.reading.check()
            next(self.upstream)
            self.index -= 1
        element = next(self.upstream)
        self.index = self.num_shards - 1
        return element


@stages_of(ignore_errors_dataset)
class _IgnoreErrors(Transformation):
    """Drops the elements whose computation fails."""

    def __next__(self) -> Element:
        while True:
            self.reading.check()
            try:
                return next(self.upstream)
            except errors.OpError:
                continue


# ---- repetition and order -------------------------------------------------------------------

repeat_dataset = dataset_op("RepeatDataset", _COUNT)
shuffle_dataset = dataset_op(
    "ShuffleDataset",
    "input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64",
    f"reshuffle_each_iteration: bool = true; {TYPES}",
)
cache_dataset = dataset_op("CacheDataset", "input_dataset: variant, filename: string")
prefetch_dataset = dataset_op(
    "PrefetchDataset", "input_dataset: variant, buffer_size: int64", f"{TYPES}; slack_period: int = 0", waits=True
)


class _Repeat(Stage):
    """A source repeated ``count`` times; without end for a negative count."""

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


@repeat_dataset.kernel("CPU")
def _repeat(source: Source, count: np.ndarray) -> Source:
    times = int(count)
    if isinstance(source, _Shuffled) and times:
        return source.repeated(times)
    return Source(lambda reading: _Repeat(source, times, reading), repeated(times)(source.count))


_MOST_EPOCHS = 3  # of which a buffer has elements


class _Shuffle(Stage):
    """Draws from a buffer of the next ``size`` elements of some epochs, first all those of the first epoch.

    The order is TensorFlow's. Each epoch has a slice of the buffer, [begin, end), counted from the first element on.
    The buffer is a ring, which grows up to ``size``.

    Attributes:
      buffer: the ring; ``()`` where nothing is.
    """

    def __init__(self, source: Source, epochs: int, size: int, words: WordStream, reading: Reading) -> None:
        self._source, self._size, self._reading = source, size, reading
        self._left, self._is_first = epochs, True  # epochs that have not ended; below 0: without end
        self._upstream: Stage | None = None
        self._words = iter(words)
        self.buffer: list[Element] = []
        self._slices = collections.deque([[0, 0]])
        self._count = 0

    def __next__(self) -> Element:
        if self._left and self._count < self._size:
            self._fill()
        if not self._count:
            raise StopIteration
        if self._slices[0][0] == self._slices[0][1]:
            self._drop_empty_slices()
        first, ring = self._slices[0], self.buffer
        begin, end = first
        size = len(ring)
        chosen, vacated = (begin + next(self._words) % (end - begin)) % size, begin % size
        element, ring[chosen] = ring[chosen], ring[vacated]
        ring[vacated] = ()
        first[0] = begin + 1
        self._count -= 1
        return element

    def _drop_empty_slices(self) -> None:
        slices = self._slices
        while slices[0][0] == slices[0][1] and len(slices) > 1:
            slices.popleft()

    def _fill(self) -> None:
        """Reads until the buffer is full. Where this raises, the next call goes on from there."""
        while self._left and self._count < self._size and len(self._slices) <= _MOST_EPOCHS:
            if self._upstream is None:
                self._reading.check()
                self._upstream = self._source.open(self._reading)
                if not self._is_first:
                    self._slices.append([self._slices[-1][1]] * 2)
            if self._count % TURN == TURN - 1:
                self._reading.check()
            try:
                element = next(self._upstream)
            except StopIteration:
                self._end_epoch()
                continue
            if self._count == len(self.buffer):
                self._grow()
            last, ring = self._slices[-1], self.buffer
            ring[last[1] % len(ring)] = element
            last[1] += 1
            self._count += 1

    def _end_epoch(self) -> None:
        assert self._upstream is not None
        self._upstream.close()
        self._upstream = None
        self._left -= 1
        begin, end = self._slices[-1]
        if self._is_first and self._left < 0 and begin == end == 0:
            self._left = 0  # the source is empty: do not reopen it without end
        self._is_first = False
        self._drop_empty_slices()

    def _grow(self) -> None:
        old, begin, end = self.buffer, self._slices[0][0], self._slices[-1][1]
        ring: list[Element] = [()] * min(self._size, max(16, 2 * len(old)))
        for at in range(begin, end):
            ring[at % len(ring)] = old[at % len(old)]
        self.buffer = ring

    def close(self) -> None:
        if self._upstream is not None:
            self._upstream.close()


class _Shuffled(Source):
    """A shuffled dataset.

    Args:
      source: what is shuffled, in a buffer of ``size`` elements.
      seeds: as the op's.
      reshuffles: whether each pass has another order.
    """

    def __init__(self, source: Source, size: int, seeds: Seeds, reshuffles: bool) -> None:
        super().__init__(self._open, source.count)
        self._source, self._size, self._seeds, self._reshuffles = source, size, seeds, reshuffles
        self._seeding, self._lock = WordStream(PhiloxGenerator(*seeds)), threading.Lock()

    def _open(self, reading: Reading) -> Stage:
        return self._stage(1, reading.drawn(self._next_seeds), reading)

    def _next_seeds(self) -> Seeds:
        if not self._reshuffles:
            return self._seeds
        with self._lock:  # iterators of one dataset may be read in several threads
            first, second = self._seeding.take(2).tolist()
        return first, second

    def repeated(self, count: int) -> Source:
        """The dataset repeated: as in TensorFlow, which makes one stage of both, where each pass has another order."""
        if count == 1:
            return self
        total = repeated(count)(self.count)
        if not self._reshuffles:
            return Source(lambda reading: _Repeat(self, count, reading), total)
        return Source(lambda reading: self._stage(count, reading.drawn(lambda: self._seeds), reading), total)

    def _stage(self, epochs: int, seeds: Seeds, reading: Reading) -> Stage:
        return _Shuffle(self._source, epochs, self._size, WordStream(PhiloxGenerator(*seeds)), reading)


@shuffle_dataset.kernel("CPU")
def _shuffle(
    source: Source, buffer_size: np.ndarray, seed: np.ndarray, seed2: Array, *, reshuffle_each_iteration: bool
) -> Source:
    _refuse_unless_positive("buffer_size", int(buffer_size))
    return _Shuffled(source, int(buffer_size), _given_or_any(seed, seed2), reshuffle_each_iteration)


def _given_or_any(seed: Array, seed2: Array) -> Seeds:
    """The seeds; in place of two zeros those of the operating system."""
    given = int(seed), int(seed2)
    return given if any(given) else (secrets.randbits(64), secrets.randbits(64))


random_dataset = dataset_op("RandomDataset", "seed: int64, seed2: int64")


@random_dataset.kernel("CPU")
def _random(seed: Array, seed2: Array) -> Source:
    seeds = _given_or_any(seed, seed2)
    return FunctionSource(lambda reading: _numbers(*reading.drawn(lambda: seeds)), INFINITE)


def _numbers(*seeds: int) -> Iterator[Element]:
    return ((np.int64(word),) for word in WordStream(PhiloxGenerator(*seeds)))


@dataclass(eq=False)
class _Recorder(Transformation):
    """Records the elements that it yields and passes them to ``keep`` at the end."""

    keep: Callable[[list[Element]], None]
    _seen: list[Element] = field(default_factory=list, init=False)

    def __next__(self) -> Element:
        try:
            element = next(self.upstream)
        except StopIteration:
            self.keep(self._seen)
            raise
        self._seen.append(element)
        return element


class _CacheSource(Source):
    """A source whose elements are kept in memory after the first complete reading."""

    def __init__(self, source: Source) -> None:
        super().__init__(self._begin, source.count)
        self._source = source
        self._kept: list[list[Element]] = []  # empty until a reading is complete

    def _begin(self, reading: Reading) -> Stage:
        kept: list[list[Element]] = reading.own(self, list) if reading.repeats else self._kept
        if kept:
            return FunctionSource(lambda _: iter(kept[0])).open(reading)
        return _Recorder(self._source.open(reading), reading, kept.append)


@cache_dataset.kernel("CPU")
def _cache(source: Source, filename: np.ndarray, *, output_types: list[Any]) -> Source:
    path = np.asarray(filename, object).item().decode()
    return FileCacheSource(source, path, len(output_types)) if path else _CacheSource(source)


@prefetch_dataset.kernel("CPU")
def _prefetch(source: Source, size: np.ndarray) -> Source:
    if size < -1:
        raise errors.InvalidArgumentError.of("buffer_size must be >= 0 or set buffer_size to be -1.")
    return prefetched(source, int(size))
