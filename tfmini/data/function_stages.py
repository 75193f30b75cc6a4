"""Dataset ops with a function, each with its stage: map, filter, flat_map, interleave and scan; and the reductions.

The function is an attr of the node (`FunctionBody`).
"""

from __future__ import annotations

import collections
import os
import weakref
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from tfmini import errors
from tfmini.data.dataset_ops import TYPES, dataset_op, element_shapes, stages_of
from tfmini.data.pipeline import (
    TURN,
    Element,
    Function,
    GeneratorStage,
    Reading,
    Source,
    Stage,
    Transformation,
    batched,
    compiled,
    unchanged,
)
from tfmini.data.prefetching import MapCall, MapCalls
from tfmini.data.stages import Batch
from tfmini.dtypes import DType
from tfmini.graph.node import FunctionBody
from tfmini.graph.op_types import RunningStep
from tfmini.graph.registry import OpHandle, op
from tfmini.memory import check_room
from tfmini.ops.array.kernel_arguments import check_components
from tfmini.runtime.resources import Resources
from tfmini.shapes import RawShape

ON = "input_dataset: variant, other_arguments: Targuments"
_F = f"f: func; Targuments: list(type) >= 0; {TYPES}"
PREDICATE = f"predicate: func; Targuments: list(type) >= 0; {TYPES}"
_KEEPS = "preserve_cardinality: bool = false"

map_dataset = dataset_op("MapDataset", ON, f"{_F}; use_inter_op_parallelism: bool = true; {_KEEPS}")
parallel_map_dataset = dataset_op(
    "ParallelMapDataset",
    f"{ON}, num_parallel_calls: int32",
    f"{_F}; use_inter_op_parallelism: bool = true; sloppy: bool = false; {_KEEPS}",
    waits=True,
)
map_and_batch_dataset = dataset_op(
    "MapAndBatchDataset",
    f"{ON}, batch_size: int64, num_parallel_calls: int64, drop_remainder: bool",
    f"{_F}; {_KEEPS}",
    waits=True,
)
filter_dataset = dataset_op("FilterDataset", ON, PREDICATE)
flat_map_dataset = dataset_op("FlatMapDataset", ON, _F)
interleave_dataset = dataset_op("InterleaveDataset", f"{ON}, cycle_length: int64, block_length: int64", _F)
parallel_interleave_dataset = dataset_op(
    "ParallelInterleaveDatasetV2",
    f"{ON}, cycle_length: int64, block_length: int64, num_parallel_calls: int64",
    f"{_F}; sloppy: bool = false",
)
scan_dataset = dataset_op(
    "ScanDataset",
    "input_dataset: variant, initial_state: Tstate, other_arguments: Targuments",
    f"f: func; Tstate: list(type) >= 1; Targuments: list(type) >= 0; {TYPES}; {_KEEPS}",
)
reduce_dataset: OpHandle[Any] = op(
    "ReduceDataset(input_dataset: variant, initial_state: Tstate, other_arguments: Targuments)"
    " -> components: output_types; f: func; Tstate: list(type) >= 1; Targuments: list(type) >= 0;"
    f" {TYPES}; use_inter_op_parallelism: bool = true",
    stateful=True, waits=True, shape=element_shapes,
)  # fmt: skip
single_element: OpHandle[Any] = op(
    f"DatasetToSingleElement(dataset: variant) -> components: output_types; {TYPES}",
    stateful=True, waits=True, shape=element_shapes,
)  # fmt: skip
cardinality_op = op("DatasetCardinality(input_dataset: variant) -> cardinality: int64", stateful=True, shape=[()])
for _handle in (reduce_dataset, single_element, cardinality_op):
    _handle.not_differentiable()

_AUTOTUNED_CALLS = 4
_MOST_THREADS = 1024  # of one parallel map; more calls than that wait for a thread


@stages_of(map_dataset, unchanged, attrs=["preserve_cardinality"])
@dataclass(eq=False)
class _Map(Transformation):
    """``f`` of each element.

    Attributes:
      preserve_cardinality: whether OutOfRangeError from ``f`` is an error of its element, not the dataset's end.
    """

    f: Function
    preserve_cardinality: bool
    is_map = True

    def __next__(self) -> Element:
        element = next(self.upstream)
        try:
            return self.f(self.reading, *element)
        except errors.OutOfRangeError as error:
            self._end(error)

    def _end(self, error: errors.OutOfRangeError) -> NoReturn:
        """OutOfRangeError ends the dataset, as StopIteration ends a Python iterator."""
        if not self.preserve_cardinality:
            raise StopIteration from None
        text = f"Function invocation produced OutOfRangeError: {error.message}"
        raise errors.InvalidArgumentError.of(text) from None


@stages_of(parallel_map_dataset, unchanged, attrs=["preserve_cardinality"])
@dataclass(eq=False)
class _ParallelMap(_Map):
    """Runs up to ``num_parallel_calls`` calls at a time (`prefetching.MapCalls`); the order is kept."""

    num_parallel_calls: int
    _calls: MapCalls | None = field(default=None, init=False)
    _under_way: collections.deque[MapCall] = field(default_factory=collections.deque, init=False)
    _over: bool = field(default=False, init=False)

    @staticmethod
    def check(*, num_parallel_calls: int, **others: Any) -> None:
        if num_parallel_calls < -1 or num_parallel_calls == 0:
            raise errors.InvalidArgumentError.of("num_parallel_calls must be greater than zero.")

    def __post_init__(self) -> None:
        self._width = _AUTOTUNED_CALLS if self.num_parallel_calls < 0 else self.num_parallel_calls

    def __next__(self) -> Element:
        if self._width == 1:
            return super().__next__()
        calls = self._calls or self._begin()
        try:
            if calls.are_helped or self._under_way:
                return calls.finish(self._oldest(calls))
            return calls.make(next(self.upstream))
        except errors.OutOfRangeError as error:
            self._end(error)

    def _oldest(self, calls: MapCalls) -> MapCall:
        """The oldest call under way, after as many have been added as there may be."""
        while not self._over and len(self._under_way) < self._width:
            if len(self._under_way) % TURN == TURN - 1:
                self.reading.check()
            self._add(calls)
        if not self._under_way:
            self._end_calls()
            raise StopIteration
        return self._under_way.popleft()

    def _begin(self) -> MapCalls:
        self._calls = calls = MapCalls(self.f, self.reading, min(self._width, _MOST_THREADS), self.f.may_block)
        # A session that is dropped without being closed must not leave the threads behind.
        self._end_calls = weakref.finalize(self, calls.close)
        return calls

    def _add(self, calls: MapCalls) -> None:
        """Adds the call for the next element, if there is one."""
        try:
            call = MapCall(next(self.upstream))
        except StopIteration:
            self._over = True
            return
        except errors.OpError as error:
            call = MapCall((), error)
        else:
            calls.add(call)
        self._under_way.append(call)

    def close(self) -> None:
        self._over = True
        self._under_way.clear()
        if self._calls is not None:
            self._end_calls()
        super().close()


@stages_of(map_and_batch_dataset, batched, attrs=["preserve_cardinality"])
@dataclass(eq=False)
class _MapAndBatch(Batch):
    """A map and then batches; an element that fails makes its whole batch fail."""

    f: Function
    num_parallel_calls: int
    preserve_cardinality: bool
    whole = True

    @staticmethod
    def check(*, batch_size: int, **others: Any) -> None:
        _ParallelMap.check(**others)
        Batch.check(batch_size=batch_size)

    def __post_init__(self) -> None:
        f, calls = self.f, self.num_parallel_calls
        self.upstream = _ParallelMap(self.upstream, self.reading, f, self.preserve_cardinality, calls)


@stages_of(filter_dataset)
@dataclass(eq=False)
class _Filter(Transformation):
    """The elements for which ``predicate`` is true."""

    predicate: Function

    def __next__(self) -> Element:
        for element in self.upstream:
            self.reading.check()
            (keep,) = self.predicate(self.reading, *element)
            if np.ndim(keep):
                text = "Filter predicate must return a scalar bool."
                raise errors.InvalidArgumentError.of(text)
            if keep:
                return element
        raise StopIteration


@stages_of(interleave_dataset)
@dataclass(eq=False)
class _Interleave(Transformation):
    """Reads ``cycle_length`` of the datasets that ``f`` returns in turn, ``block_length`` elements at a time."""

    f: Function
    cycle_length: int
    block_length: int
    _at: int = field(default=0, init=False)
    _taken: int = field(default=0, init=False)
    _over: bool = field(default=False, init=False)

    @staticmethod
    def check(*, cycle_length: int, block_length: int, **others: Any) -> None:
        for name, value in (("cycle_length", _cycle(cycle_length)), ("block_length", block_length)):
            if value <= 0:
                raise errors.InvalidArgumentError.of(f"{name} must be greater than zero.")
        check_room((_cycle(cycle_length),), 8)

    def __post_init__(self) -> None:
        self._stages: list[Stage | None] = [None] * _cycle(self.cycle_length)

    def __next__(self) -> Element:
        while not self._over or any(stage is not None for stage in self._stages):
            self.reading.check()
            try:
                stage = self._stages[self._at] or self._begin()
                element = None if stage is None else next(stage, None)
            except errors.OpError:
                self.reading.check()
                self._failed()
                raise
            if element is not None:
                self._took()
                return element
            if stage is not None:
                stage.close()
                self._stages[self._at] = None
            self._turn()
        raise StopIteration

    def _took(self) -> None:
        self._taken += 1
        if self._taken >= self.block_length:
            self._turn()

    def _failed(self) -> None:
        """Goes on behind an error: here with the next element at the same place."""

    def _turn(self) -> None:
        self._at = (self._at + 1) % len(self._stages)
        self._taken = 0

    def _begin(self) -> Stage | None:
        """Opens the dataset of the next element in the free slot; None when no element is left."""
        if self._over:
            return None
        try:
            (source,) = self.f(self.reading, *next(self.upstream))
        except StopIteration:
            self._over = True
            return None
        stage = self._stages[self._at] = source.open(self.reading)
        return stage  # type: ignore[no-any-return]

    def close(self) -> None:
        for stage in self._stages:
            if stage is not None:
                stage.close()
        super().close()


def _cycle(cycle_length: int) -> int:
    if cycle_length != -1:
        return cycle_length
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@stages_of(parallel_interleave_dataset)
@dataclass(eq=False)
class _ParallelInterleave(_Interleave):
    """An interleave whose errors take their turn: that of a failed call is the only element of its dataset."""

    num_parallel_calls: int

    @staticmethod
    def check(*, cycle_length: int, block_length: int, **others: Any) -> None:
        calls = others["num_parallel_calls"]
        _ParallelMap.check(num_parallel_calls=calls)
        if calls > _cycle(cycle_length):
            raise errors.InvalidArgumentError.of("num_parallel_calls must less than or equal to cycle_length.")
        _Interleave.check(cycle_length=cycle_length, block_length=block_length)

    def _failed(self) -> None:
        self._stages[self._at] = self._stages[self._at] or GeneratorStage(iter(()))
        self._took()


@stages_of(flat_map_dataset)
@dataclass(eq=False)
class _FlatMap(_Interleave):
    """The elements of the datasets that ``f`` returns, one dataset after the other."""

    cycle_length: int = 1
    block_length: int = 1

    @staticmethod
    def check(**arguments: Any) -> None:
        pass

    def _turn(self) -> None:
        pass


@stages_of(scan_dataset)
@dataclass(eq=False)
class _Scan(Transformation):
    """The results of ``f(state, element) -> (state, result)``, called for each element in turn."""

    f: Function
    initial_state: list[Any]

    def __post_init__(self) -> None:
        self._state = self.initial_state

    def __next__(self) -> Element:
        element = next(self.upstream)
        try:
            results = self.f(self.reading, *self._state, *element)
        except errors.OutOfRangeError as error:
            text = f"Function invocation produced OutOfRangeError: {error.message}"
            raise errors.InvalidArgumentError.of(text) from None
        count = len(self._state)
        self._state = list(results[:count])
        return results[count:]


# ---- ops that read a whole dataset ------------------------------------------------------------


@cardinality_op.kernel("CPU")
def _cardinality(source: Source) -> Any:
    return np.int64(source.count)


@reduce_dataset.kernel("CPU")
def _reduce(
    step: RunningStep, source: Source, state: list[Any], captured: list[Any], *, f: FunctionBody,
    output_types: list[DType], output_shapes: list[RawShape], resources: Resources,
) -> Element:  # fmt: skip
    """The final state after ``f(state, element) -> state`` ran for every element."""
    function, reading = compiled(f, resources, captured), Reading(step.owner, step)
    stage = source.open(reading)
    result = tuple(state)
    try:
        for element in stage:
            reading.check()
            result = function(reading, *result, *element)
    finally:
        stage.close()
    check_components(result, output_types, output_shapes)
    return result


@single_element.kernel("CPU")
def _single(step: RunningStep, source: Source, *, output_types: list[DType], output_shapes: list[RawShape]) -> Element:
    stage = source.open(Reading(step.owner, step))
    try:
        element = next(stage, None)
        if element is None:
            raise errors.InvalidArgumentError.of("Dataset was empty.")
        if next(stage, None) is not None:
            raise errors.InvalidArgumentError.of("Dataset had more than one element.")
    finally:
        stage.close()
    check_components(element, output_types, output_shapes)
    return element
