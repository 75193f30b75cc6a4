"""Partitions a tensor by partition numbers, and the inverse: ``tf.dynamic_partition``, ``tf.dynamic_stitch``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, op
from tfmini.machine_memory import check_room
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import range as range_op
from tfmini.ops.array.gather import gather
from tfmini.ops.array.kernel_arguments import as_ndarray, refuse
from tfmini.ops.array.shape import reshape, shape, size
from tfmini.shapes import RawShape, format_raw, merge_raw

_partition: OpHandle[Any] = op(
    "DynamicPartition(data: T, partitions: int32) -> outputs: num_partitions * T; num_partitions: int >= 1; T: type",
    work="none",
)  # fmt: skip
_stitch = op("DynamicStitch(indices: N * int32, data: N * T) -> merged: T; N: int >= 1; T: type", work="none")
_parallel_stitch = op(
    "ParallelDynamicStitch(indices: N * int32, data: N * T) -> merged: T; N: int >= 1; T: type", work="none"
)


@_partition.shape
def _partition_shape(node: Operation) -> list[RawShape]:
    data, parts = node.inputs[0].raw_shape, node.inputs[1].raw_shape
    count = node.attrs["num_partitions"]
    if data is None or parts is None:
        return [None] * count
    merge_raw(data[: len(parts)], parts)
    return [(None, *data[len(parts) :])] * count


@_partition.kernel("CPU")
def _partition_kernel(data: Any, partitions: Any, *, num_partitions: int) -> tuple[Any, ...]:
    rank = partitions.ndim
    if data.shape[:rank] != partitions.shape:
        refuse(
            f"data.shape must start with partitions.shape, got data.shape = {format_raw(data.shape)},"
            f" partitions.shape = {format_raw(partitions.shape)}"
        )
    outside = (partitions < 0) | (partitions >= num_partitions)
    if outside.any():
        row = np.argwhere(outside)[0]
        where = f"[{','.join(map(str, row))}]" if rank else ""
        refuse(f"partitions{where} = {as_ndarray(partitions)[tuple(row)]} is not in [0, {num_partitions})")
    return tuple(data[partitions == i] for i in range(num_partitions))


@_partition.gradient
def _partition_gradient(node: Operation, *grads: Any) -> list[Any]:
    data, partitions = node.inputs
    prefix = shape(partitions)
    order = reshape(range_op(size(partitions)), prefix)
    places = dynamic_partition(order, partitions, node.attrs["num_partitions"])
    return [reshape(dynamic_stitch(places, list(grads)), shape(data)), None]


@all_of(_stitch, _parallel_stitch).shape
def _stitch_shape(node: Operation) -> list[RawShape]:
    count = node.attrs["N"]
    rest: RawShape = None
    highest: int | None = -1
    for indices, data in zip(node.inputs[:count], node.inputs[count:]):
        value = constant_value(indices)
        if value is None:
            highest = None
        elif highest is not None and value.size:
            highest = max(highest, int(value.max()))
        if indices.raw_shape is None or data.raw_shape is None:
            continue
        merge_raw(data.raw_shape[: len(indices.raw_shape)], indices.raw_shape)
        rest = merge_raw(rest, data.raw_shape[len(indices.raw_shape) :])
    return [None if rest is None else (None if highest is None else highest + 1, *rest)]


@all_of(_stitch, _parallel_stitch).kernel("CPU")
def _stitch_kernel(indices: list[Any], data: list[Any]) -> Any:
    values = [as_ndarray(d) for d in data]
    rest = values[0].shape[indices[0].ndim :]
    highest = max((int(i.max()) for i in indices if i.size), default=-1)
    if any(i.size and i.min() < 0 for i in indices):
        refuse("indices of DynamicStitch must not be negative")
    check_room((highest + 1, *rest), values[0].itemsize)
    result = np.zeros((highest + 1, *rest), values[0].dtype)
    for position, value in zip(indices, values):
        if value.shape[: position.ndim] != position.shape or value.shape[position.ndim :] != rest:
            refuse(
                f"data.shape {format_raw(value.shape)} does not start with indices.shape {format_raw(position.shape)}"
            )
        result[position] = value
    return result


@all_of(_stitch, _parallel_stitch).gradient
def _stitch_gradient(node: Operation, grad: Any) -> list[Any]:
    count = node.attrs["N"]
    return [None] * count + [gather(grad, indices) for indices in node.inputs[:count]]


# ---- public functions ---------------------------------------------------------------------------


@export("tf.dynamic_partition")
def dynamic_partition(data: Any, partitions: Any, num_partitions: int, name: str | None = None) -> list[Tensor]:
    """``data`` divided into ``num_partitions`` tensors by partition numbers (``tf.dynamic_partition``)."""
    return list(_partition(data, partitions, num_partitions=num_partitions, name=name))


@export("tf.dynamic_stitch")
def dynamic_stitch(indices: Any, data: Any, name: str | None = None) -> Tensor:
    """``merged[indices[m][i]] = data[m][i]`` (``tf.dynamic_stitch``); later values win."""
    return _stitch(indices, data, name=name)


def parallel_dynamic_stitch(indices: Any, data: Any, name: str | None = None) -> Tensor:
    """`dynamic_stitch` whose indices must not repeat (``tf.raw_ops.ParallelDynamicStitch``)."""
    return _parallel_stitch(indices, data, name=name)
