"""Stages that call a function for each element: map, filter, flat_map, interleave, scan and reduce."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tfmini import errors
from tfmini.data.cardinality import same
from tfmini.data.pipeline import Element, Function, Source, Stage, Transformation, TransformedSource, rows_of
from tfmini.data.reading import TURN, Reading
from tfmini.machine_memory import check_room

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_MOST_THREADS = 1024  # of one parallel map; more calls than that wait for a thread


class _Map(Transformation):
    def __init__(self, upstream: Stage, reading: Reading, function: Function, keeps_count: bool = False) -> None:
        super().__init__(upstream)
        self._reading = reading
        self._function = function
        self._keeps_count = keeps_count

    def __next__(self) -> Element:
        element = next(self.upstream)
        try:
            return self._function(self._reading, *element)
        except errors.OutOfRangeError as error:
            self._end(error)

    def _end(self, error: errors.OutOfRangeError) -> NoReturn:
        """OutOfRangeError ends the dataset, as StopIteration ends a Python iterator."""
        if not self._keeps_count:
            raise StopIteration from None
        text = f"Function invocation produced OutOfRangeError: {error.message}"
        raise errors.InvalidArgumentError.of(text) from None


class _ParallelMap(_Map):
    """Runs up to ``width`` calls at a time in a thread pool; the order is kept."""

    def __init__(
        self, upstream: Stage, reading: Reading, function: Function, width: int, keeps_count: bool
    ) -> None:
        super().__init__(upstream, reading, function, keeps_count)
        self._width = width
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: collections.deque[Future[Element]] = collections.deque()
        self._over = False

    def __next__(self) -> Element:
        from concurrent.futures import Future, ThreadPoolExecutor  # late: `import tfmini` saves some ms

        if self._pool is None:
            self._pool = ThreadPoolExecutor(min(self._width, _MOST_THREADS), thread_name_prefix="tfmini-map")
        while not self._over and len(self._under_way) < self._width:
            if len(self._under_way) % TURN == TURN - 1:
                self._reading.check()
            try:
                element = next(self.upstream)
            except StopIteration:
                self._over = True
            except errors.OpError as error:
                failed: Future[Element] = Future()
                failed.set_exception(error)
                self._under_way.append(failed)
            else:
                self._under_way.append(self._submit(self._pool, element))
        if not self._under_way:
            self._stop()
            raise StopIteration
        try:
            return self._under_way.popleft().result()
        except errors.OutOfRangeError as error:
            self._end(error)

    def _submit(self, pool: ThreadPoolExecutor, element: Element) -> Future[Element]:
        try:
            return pool.submit(self._function, self._reading, *element)
        except RuntimeError as error:
            from tfmini.runtime.process import is_at_exit  # here, since importing tfmini must not load it

            if not is_at_exit(error):
                raise
            # The threads of queue runners may read on while Python exits.
            raise errors.CancelledError.of("The dataset is not read any more: the process ends.") from None

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def close(self) -> None:
        self._over = True
        self._under_way.clear()
        self._stop()
        super().close()


def map_elements(source: Source, function: Function, width: int = 1, keeps_count: bool = False) -> Source:
    """``function`` of each element, ``width`` calls at a time.

    Args:
      keeps_count: whether OutOfRangeError from ``function`` is an error of its element, rather than the dataset's end.
    """

    def begin(upstream: Stage, reading: Reading) -> Stage:
        if width <= 1:
            return _Map(upstream, reading, function, keeps_count)
        return _ParallelMap(upstream, reading, function, width, keeps_count)

    return TransformedSource(source, begin, same)


class _Filter(_Map):
    def __next__(self) -> Element:
        for element in self.upstream:
            self._reading.check()
            (keep,) = self._function(self._reading, *element)
            if np.ndim(keep):
                text = "Filter predicate must return a scalar bool."
                raise errors.InvalidArgumentError.of(text)
            if keep:
                return element
        raise StopIteration


def filter_elements(source: Source, predicate: Function) -> Source:
    """The elements for which ``predicate`` is true."""
    return TransformedSource(source, lambda upstream, reading: _Filter(upstream, reading, predicate))


class _Interleave(_Map):
    """Reads ``cycle`` datasets in turn, ``block`` elements of each at a time."""

    def __init__(self, upstream: Stage, reading: Reading, function: Function, cycle: int, block: int) -> None:
        super().__init__(upstream, reading, function)
        self._block = block
        self._stages: list[Stage | None] = [None] * cycle
        self._at = 0
        self._taken = 0
        self._over = False

    def __next__(self) -> Element:
        while not self._over or any(stage is not None for stage in self._stages):
            self._reading.check()
            stage = self._stages[self._at] or self._begin()
            if stage is None:
                self._turn()
                continue
            try:
                element = next(stage)
            except StopIteration:
                stage.close()
                self._stages[self._at] = None
                self._turn()
                continue
            self._taken += 1
            if self._taken >= self._block:
                self._turn()
            return element
        raise StopIteration

    def _turn(self) -> None:
        self._at = (self._at + 1) % len(self._stages)
        self._taken = 0

    def _begin(self) -> Stage | None:
        """Opens the dataset of the next element in the free slot; None when no element is left."""
        if self._over:
            return None
        try:
            (source,) = self._function(self._reading, *next(self.upstream))
        except StopIteration:
            self._over = True
            return None
        stage = self._stages[self._at] = source.open(self._reading)
        return stage  # type: ignore[no-any-return]

    def close(self) -> None:
        for stage in self._stages:
            if stage is not None:
                stage.close()
        super().close()


def interleave(source: Source, function: Function, cycle: int, block: int) -> Source:
    """The elements of the datasets that ``function`` returns, taken from ``cycle`` datasets in turn.

    Raises:
      InvalidArgumentError: when ``cycle`` or ``block`` is below 1.
      ResourceExhaustedError: when there is no room for so many datasets.
    """
    for name, value in (("cycle_length", cycle), ("block_length", block)):
        if value <= 0:
            raise errors.InvalidArgumentError.of(f"{name} must be greater than zero.")
    check_room((cycle,), 8)
    return TransformedSource(source, lambda upstream, reading: _Interleave(upstream, reading, function, cycle, block))


class _FlatMap(_Interleave):
    def _turn(self) -> None:
        pass


def flat_map(source: Source, function: Function) -> Source:
    """The elements of the datasets that ``function`` returns, one dataset after the other."""
    return TransformedSource(source, lambda upstream, reading: _FlatMap(upstream, reading, function, 1, 1))


class _Unbatch(Transformation):
    def __init__(self, upstream: Stage, reading: Reading) -> None:
        super().__init__(upstream)
        self._reading = reading
        self._rows: Any = iter(())

    def __next__(self) -> Element:
        while True:
            for element in self._rows:
                return element  # type: ignore[no-any-return]
            self._reading.check()  # there may be batches of no row without an end
            self._rows = _rows(next(self.upstream))


def _rows(element: Element) -> Any:
    lengths = {int(c.dense_shape[0]) if hasattr(c, "dense_shape") else len(c) for c in element}
    if len(lengths) > 1:
        text = f"Input element must have the same batch size in each component, not {sorted(lengths)}."
        raise errors.InvalidArgumentError.of(text)
    return zip(*[rows_of(component) for component in element])


def unbatch(source: Source) -> Source:
    """The rows of each element, one after the other."""
    return TransformedSource(source, _Unbatch)


class _IgnoreErrors(Transformation):
    def __init__(self, upstream: Stage, reading: Reading) -> None:
        super().__init__(upstream)
        self._reading = reading

    def __next__(self) -> Element:
        while True:
            self._reading.check()
            try:
                return next(self.upstream)
            except errors.OpError:
                continue


def ignore_errors(source: Source) -> Source:
    """Drops the elements whose computation fails."""
    return TransformedSource(source, _IgnoreErrors)


class _Scan(_Map):
    """Passes a state of ``len(state)`` components from call to call."""

    def __init__(self, upstream: Stage, reading: Reading, function: Function, state: list[Any]) -> None:
        super().__init__(upstream, reading, function)
        self._state = state

    def __next__(self) -> Element:
        results = self._function(self._reading, *self._state, *next(self.upstream))
        count = len(self._state)
        self._state = list(results[:count])
        return results[count:]


def scan(source: Source, function: Function, state: list[Any]) -> Source:
    """The results of ``function(state, element) -> (state, result)``, called for each element in turn."""
    return TransformedSource(source, lambda upstream, reading: _Scan(upstream, reading, function, list(state)))


def reduce_elements(source: Source, function: Function, state: list[Any], reading: Reading) -> Element:
    """The final state after ``function(state, element) -> state`` ran for every element."""
    stage = source.open(reading)
    result = tuple(state)
    try:
        for element in stage:
            reading.check()
            result = function(reading, *result, *element)
    finally:
        stage.close()
    return result
