"""Sums of many tensors (``tf.add_n``), and `IndexedSlices` as dense tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.conversion import (
    IndexedSlices,
    convert_n_to_tensor_or_indexed_slices,
    convert_to_tensor,
    register_tensor_conversion_function,
)
from tfmini.graph.families import Operation, Tensor, all_of, op
from tfmini.graph.op_types import INTO_FROM
from tfmini.ops.array import identity as array_identity
from tfmini.ops.array.slicing import getitem
from tfmini.ops.math.segments import unsorted_sum_op
from tfmini.shapes import RawShape, TensorShape, as_raw, merge_raw

add_n_op = op(
    "AddN(inputs: N * T) -> sum: T; N: int >= 1; T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16,"
    " half, uint32, uint64, complex64, complex128, qint8, quint8, qint32, variant}",
    aggregates=True,
)
accumulate_op = op("AccumulateNV2(inputs: N * T) -> sum: T; N: int >= 1; T: numbertype; shape: shape")


@add_n_op.shape
def _add_n_shape(node: Operation) -> list[RawShape]:
    merged: RawShape = None
    for i, tensor in enumerate(node.inputs):
        try:
            merged = merge_raw(merged, tensor.raw_shape)
        except ValueError as error:
            raise ValueError(f"{error}\n\tFrom merging shape {i - 1} with other shapes.") from None
    return [merged]


accumulate_op.shape(lambda node: [merge_raw(node.attrs["shape"], _add_n_shape(node)[0])])


@all_of(add_n_op, accumulate_op).kernel("CPU")
def _sum_kernel(values: list[Any]) -> Any:
    return _sum(values, None)


def _sum(values: list[Any], total: Any) -> Any:
    if len(values) == 1:
        return values[0]
    total = np.add(values[0], values[1], out=total)
    for value in values[2:]:
        total += value
    return total


@all_of(add_n_op, accumulate_op).into
def _sum_into(node: Any) -> Callable[..., Any]:
    def run(new: Callable[..., Any], values: list[Any]) -> Any:
        first = values[0]
        is_large = len(values) > 1 and first.nbytes >= INTO_FROM
        alike = is_large and all(value.shape == first.shape for value in values)
        return _sum(values, new(first.shape, first.dtype) if alike else None)

    return run


@all_of(add_n_op, accumulate_op).gradient
def _sum_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [grad] * len(node.inputs)


@export("tf.add_n", "tf.math.add_n")
def add_n(inputs: Any, name: str | None = None) -> Tensor:
    """The sum of tensors or `IndexedSlices` of one type and shape (``tf.add_n``).

    Raises:
      ValueError: for an empty list or inputs that do not match.
    """
    message = "inputs must be an iterable of at least one Tensor/IndexedSlices with the same dtype and shape"
    if isinstance(inputs, (str, bytes, Tensor)) or not hasattr(inputs, "__iter__") or not (inputs := list(inputs)):
        raise ValueError(message)
    found = convert_n_to_tensor_or_indexed_slices(inputs)
    if not all(isinstance(x, (Tensor, IndexedSlices)) for x in found):
        raise ValueError(message)
    if len(found) == 1:
        value = convert_to_tensor(found[0]) if isinstance(found[0], IndexedSlices) else found[0]
        return array_identity.identity(value, name=name) if name else value
    return add_n_op(found, name=name)


@export("tf.accumulate_n", "tf.math.accumulate_n")
def accumulate_n(inputs: Any, shape: Any = None, tensor_dtype: Any = None, name: str | None = None) -> Tensor:
    """The sum of tensors of one type and shape; ``shape`` and ``tensor_dtype`` state what is expected.

    Raises:
      ValueError: for an empty list or inputs that do not match.
      TypeError: when ``tensor_dtype`` is another type.
    """
    message = "inputs must be a list of at least one Tensor with the same dtype and shape"
    if not inputs or not isinstance(inputs, (list, tuple)):
        raise ValueError(message)
    found = convert_n_to_tensor_or_indexed_slices(inputs)
    first = found[0].dtype.base_dtype
    if not all(isinstance(x, Tensor) and x.dtype.base_dtype is first for x in found):
        raise ValueError(message)
    if tensor_dtype is not None and dtypes.as_dtype(tensor_dtype) is not first:
        raise TypeError(f"tensor_dtype is {tensor_dtype}, but input is of type {first}")
    known = TensorShape.from_raw(as_raw(shape))
    for tensor in found:
        known = known.merge_with(tensor.shape)
    if len(found) == 1 and tensor_dtype is None:
        return array_identity.identity(found[0], name=name) if name else found[0]
    return accumulate_op(found, shape=known, name=name)


def _dense(value: IndexedSlices, dtype: Any = None, name: str | None = None, as_ref: bool = False) -> Tensor:
    if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
        raise ValueError(
            f"Tensor conversion requested dtype {dtypes.as_dtype(dtype).name} for IndexedSlices with dtype"
            f" {value.dtype.name}"
        )
    if value.dense_shape is None:
        raise ValueError(f"Tensor conversion requested for IndexedSlices without dense_shape: {value}")
    rows = getitem(value.dense_shape, 0)
    return unsorted_sum_op(value.values, value.indices, rows, name=name)


register_tensor_conversion_function(IndexedSlices, _dense)
