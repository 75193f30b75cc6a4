"""Partitioners: functions ``(shape, dtype)`` -> number of parts per axis, for `get_variable`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.ops.variables.scope import get_partitioned_variable, variable_scope
from tfmini.shapes import TensorShape

Partitioner = Callable[..., list[int]]


@export("tf.fixed_size_partitioner")
def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Partitioner:
    """Always ``num_shards`` parts, or one per row if there are fewer rows (``tf.fixed_size_partitioner``).

    Args:
      num_shards: the number of parts.
      axis: the axis that is divided.

    Returns:
      A function of a shape and a dtype, for ``partitioner=`` of `get_variable` and `variable_scope`.
    """

    def partitioner(shape: TensorShape, **_: object) -> list[int]:
        rows: int = shape.as_list()[axis]  # type: ignore[assignment]
        return _along(axis, len(shape), min(num_shards, rows))

    return partitioner


@export("tf.variable_axis_size_partitioner")
def variable_axis_size_partitioner(
    max_shard_bytes: int, axis: int = 0, bytes_per_string_element: int = 16, max_shards: int | None = None
) -> Partitioner:
    """The fewest parts of at most ``max_shard_bytes`` each (``tf.variable_axis_size_partitioner``).

    Raises:
      ValueError: for sizes that are not positive; when called, for a shape that is not fully known.
    """
    if max_shard_bytes < 1 or bytes_per_string_element < 1:
        raise ValueError("Both max_shard_bytes and bytes_per_string_element must be positive.")
    if max_shards and max_shards < 1:
        raise ValueError("max_shards must be positive.")

    def partitioner(shape: TensorShape, dtype: dtypes.DType) -> list[int]:
        if not isinstance(shape, TensorShape):
            raise ValueError(f"shape is not a TensorShape: {shape}")
        if not shape.is_fully_defined():
            raise ValueError(f"shape is not fully defined: {shape}")
        if not isinstance(dtype, dtypes.DType):
            raise ValueError(f"dtype is not a DType: {dtype}")
        rows: int = shape.as_list()[axis]  # type: ignore[assignment]
        slice_bytes = (shape.num_elements() or 0) / max(rows, 1) * _element_size(dtype, bytes_per_string_element)
        per_shard = max(1, math.floor(max_shard_bytes / slice_bytes)) if slice_bytes else max(rows, 1)
        shards = math.ceil(rows / per_shard)
        return _along(axis, len(shape), min(max_shards, shards) if max_shards else shards)

    return partitioner


@export("tf.min_max_variable_partitioner")
def min_max_variable_partitioner(
    max_partitions: int = 1, axis: int = 0, min_slice_size: int = 256 << 10, bytes_per_string_element: int = 16
) -> Partitioner:
    """Up to ``max_partitions`` parts of at least ``min_slice_size`` bytes (``tf.min_max_variable_partitioner``).

    Raises (when called):
      ValueError: when the shape has no such axis.
    """

    def partitioner(shape: TensorShape, dtype: dtypes.DType) -> list[int]:
        if axis >= len(shape):
            raise ValueError(f"Can not partition variable along axis {axis} when shape is only {shape}")
        total = (shape.num_elements() or 0) * _element_size(dtype, bytes_per_string_element)
        rows: int = shape.as_list()[axis]  # type: ignore[assignment]
        return _along(axis, len(shape), max(1, min(rows, max_partitions, math.ceil(total / min_slice_size))))

    return partitioner


def _along(axis: int, rank: int, count: int) -> list[int]:
    partitions = [1] * rank
    partitions[axis] = count
    return partitions


def _element_size(dtype: dtypes.DType, string_size: int) -> int:
    return string_size if dtype.base_dtype is dtypes.string else dtype.base_dtype.numpy.itemsize


def _check_slicing(shape: Sequence[int], slicing: Sequence[int]) -> None:
    """Refuses partitions of several axes, and of an axis into more parts than it has elements."""
    if any(count <= 0 for count in slicing):
        raise ValueError(f"A partitioned Variable must be cut into at least one part along each axis: {slicing}")
    if sum(count > 1 for count in slicing) > 1:
        raise ValueError(f"Can only slice a variable along one dimension: shape: {shape}, partitioning: {slicing}")
    for size, count in zip(shape, slicing):
        if count > size:
            raise ValueError(f"Cannot cut {size} elements into {count} parts: shape: {shape}, slicing: {slicing}")


@export("tf.create_partitioned_variables")
def create_partitioned_variables(
    shape: Sequence[int],
    slicing: Sequence[int],
    initializer: Callable[..., Any] | TensorLike,
    dtype: Any = dtypes.float32,
    trainable: bool = True,
    collections: str | Sequence[str] | None = None,
    name: str | None = None,
    reuse: bool | None | None = None,
) -> list[Any]:
    """The parts of a variable that is partitioned by ``slicing`` (``tf.create_partitioned_variables``).

    Raises:
      ValueError: when ``shape`` and ``slicing`` differ in length or are empty.
    """
    if len(shape) != len(slicing):
        raise ValueError(
            "The 'shape' and 'slicing' of a partitioned Variable must have the length: shape: "
            f"{shape}, slicing: {slicing}"
        )
    if len(shape) < 1:
        raise ValueError(f"A partitioned Variable must have rank at least 1: shape: {shape}")
    _check_slicing(shape, slicing)
    with variable_scope(name, "PartitionedVariable", reuse=reuse):
        whole = get_partitioned_variable(
            None, shape, dtype, initializer, trainable, lambda **_: list(slicing), collections
        )
    return list(whole)
