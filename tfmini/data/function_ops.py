"""Dataset ops with a function, which is an attr of the node (`FunctionBody`)."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.data import function_stages
from tfmini.data.dataset_ops import TYPES, dataset_op, element_shapes
from tfmini.data.pipeline import Element, Source, compiled
from tfmini.data.reading import Reading
from tfmini.data.stages import batch
from tfmini.graph.node import FunctionBody
from tfmini.graph.registry import OpHandle, all_of, op
from tfmini.ops.array.kernel_arguments import check_components
from tfmini.ops.kept_values import own_all

_ON = "input_dataset: variant, other_arguments: Targuments"
_F = f"f: func; Targuments: list(type) >= 0; {TYPES}"
_KEEPS = "preserve_cardinality: bool = false"

map_dataset = dataset_op("MapDataset", _ON, f"{_F}; use_inter_op_parallelism: bool = true; {_KEEPS}")
parallel_map_dataset = dataset_op(
    "ParallelMapDataset",
    f"{_ON}, num_parallel_calls: int32",
    f"{_F}; use_inter_op_parallelism: bool = true; sloppy: bool = false; {_KEEPS}",
    waits=True,
)
map_and_batch_dataset = dataset_op(
    "MapAndBatchDataset",
    f"{_ON}, batch_size: int64, num_parallel_calls: int64, drop_remainder: bool",
    f"{_F}; {_KEEPS}",
    waits=True,
)
filter_dataset = dataset_op("FilterDataset", _ON, f"predicate: func; Targuments: list(type) >= 0; {TYPES}")
flat_map_dataset = dataset_op("FlatMapDataset", _ON, _F)
flat_map_dataset.kernel("CPU")(
    lambda source, captured, *, f, resources: function_stages.flat_map(source, compiled(f, resources, captured))
)
interleave_dataset = dataset_op("InterleaveDataset", f"{_ON}, cycle_length: int64, block_length: int64", _F)
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
cardinality_op.kernel("CPU")(lambda source: np.int64(source.count))
all_of(reduce_dataset, single_element, cardinality_op).not_differentiable()

_AUTOTUNED_CALLS = 4


@map_dataset.kernel("CPU")
def _map(
    source: Source, captured: list[Any], *, f: FunctionBody, preserve_cardinality: bool, resources: Any
) -> Source:
    function = compiled(f, resources, captured)
    return function_stages.map_elements(source, function, keeps_count=preserve_cardinality)


@parallel_map_dataset.kernel("CPU")
def _parallel_map(
    source: Source, captured: list[Any], calls: Any, *, f: FunctionBody, preserve_cardinality: bool, resources: Any
) -> Source:
    function = compiled(f, resources, captured)
    return function_stages.map_elements(source, function, _width(calls), preserve_cardinality)


def _width(calls: Any) -> int:
    if calls < -1 or calls == 0:
        raise errors.InvalidArgumentError.of("num_parallel_calls must be greater than zero.")
    return _AUTOTUNED_CALLS if calls < 0 else int(calls)


@map_and_batch_dataset.kernel("CPU")
def _map_and_batch(
    source: Source, captured: list[Any], size: Any, calls: Any, drop_remainder: Any, *, f: FunctionBody,
    preserve_cardinality: bool, resources: Any,
) -> Source:  # fmt: skip
    function = compiled(f, resources, captured)
    mapped = function_stages.map_elements(source, function, _width(calls), preserve_cardinality)
    return batch(mapped, int(size), bool(drop_remainder), whole=True)


@filter_dataset.kernel("CPU")
def _filter(source: Source, captured: list[Any], *, predicate: FunctionBody, resources: Any) -> Source:
    return function_stages.filter_elements(source, compiled(predicate, resources, captured))


@interleave_dataset.kernel("CPU")
def _interleave(
    source: Source, captured: list[Any], cycle: Any, block: Any, *, f: FunctionBody, resources: Any
) -> Source:
    width = (os.cpu_count() or 1) if cycle == -1 else int(cycle)
    return function_stages.interleave(source, compiled(f, resources, captured), width, int(block))


@scan_dataset.kernel("CPU")
def _scan(source: Source, state: list[Any], captured: list[Any], *, f: FunctionBody, resources: Any) -> Source:
    return function_stages.scan(source, compiled(f, resources, captured), list(own_all(state)))


@reduce_dataset.kernel("CPU")
def _reduce(
    step: Any, source: Source, state: list[Any], captured: list[Any], *, f: FunctionBody, resources: Any
) -> Element:
    return function_stages.reduce_elements(source, compiled(f, resources, captured), state, Reading(step.owner, step))


@single_element.kernel("CPU")
def _single(step: Any, source: Source, *, output_types: Any, output_shapes: Any) -> Element:
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
