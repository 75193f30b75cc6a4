"""Sums of many tensors (``tf.add_n``), and `IndexedSlices` as dense tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, AxisLike, DTypeLike, ShapeLike, TensorLike
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.conversion import (
    IndexedSlices,
    convert_n_to_tensor_or_indexed_slices,
    convert_to_tensor,
    register_tensor_conversion_function,
)
from tfmini.graph.families import Operation, Tensor, all_of, colocate_with, name_scope, op
from tfmini.graph.node import Node
from tfmini.graph.op_types import INTO_FROM
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import identity as array_identity
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import stack
from tfmini.ops.array.slicing import getitem
from tfmini.ops.math.comparison import select_op
from tfmini.ops.math.elementwise import maximum_op, minimum_op
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.math.segments import unsorted_sum_op
from tfmini.ops.math.unary import is_finite_op, rsqrt_op, sqrt_op
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


def _sum(values: list[Any], total: Array | None) -> Any:
    if len(values) == 1:
        return values[0]
    total = np.add(values[0], values[1], out=total)
    for value in values[2:]:
        total += value
    return total


@all_of(add_n_op, accumulate_op).into
def _sum_into(node: Node) -> Callable[..., Any]:
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
def add_n(inputs: Iterable[TensorLike], name: str | None = None) -> Tensor:
    """The sum of tensors or `IndexedSlices` of one type and shape (``tf.add_n``).

    Args:
      inputs: a list of tensors of numbers, or of `IndexedSlices`.
      name: of the op.

    Returns:
      A tensor of the same dtype and shape; `IndexedSlices` if all inputs are.

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
def accumulate_n(
    inputs: TensorLike, shape: ShapeLike = None, tensor_dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor:
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


def _dense(
    value: IndexedSlices, dtype: DTypeLike | None = None, name: str | None = None, as_ref: bool = False
) -> Tensor:
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


# ---- Conversion of `IndexedSlices` to dense tensors ----------------------------------------------------------------

_LARGE = 100_000_000


def to_dense(
    value: IndexedSlices, dtype: DTypeLike | None = None, name: str | None = None, as_ref: bool = False
) -> Tensor:
    """``value`` as a dense tensor; rows with the same index are added up.

    Raises:
      ValueError: when the dense shape or the type does not allow it.
    """
    if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
        raise ValueError(
            f"Tensor conversion requested dtype {dtypes.as_dtype(dtype).name} for IndexedSlices with dtype"
            f" {value.dtype.name}"
        )
    if value.dense_shape is None:
        raise ValueError(
            f"Tensor conversion requested for IndexedSlices without dense_shape: {value!s}; give it a dense_shape"
        )
    _warn_of_size(value.dense_shape)
    rows = value.dense_shape[0]
    return raw_ops.UnsortedSegmentSum(value.values, value.indices, rows, name=name)


def _warn_of_size(dense_shape: Tensor) -> None:
    sizes = constant_value(dense_shape)
    if sizes is None:
        warnings.warn(
            "Converting sparse IndexedSlices to a dense Tensor of unknown shape. This may consume a large amount of"
            " memory.",
            stacklevel=6,
        )
    elif (count := int(sizes.prod(dtype="int64"))) >= _LARGE:
        warnings.warn(
            f"Converting sparse IndexedSlices to a dense Tensor with {count} elements. This may consume a large amount"
            " of memory.",
            stacklevel=6,
        )


register_tensor_conversion_function(IndexedSlices, to_dense)


# ---- Clipping of values and norms (``tf.clip_by_*``) ---------------------------------------------------------------


def _values_of(t: TensorLike, name: str) -> Tensor:
    return convert_to_tensor(t.values if isinstance(t, IndexedSlices) else t, name=name)


def _like(t: TensorLike, values: Tensor) -> Any:
    """``values``, as `IndexedSlices` if ``t`` is."""
    return IndexedSlices(values, t.indices, t.dense_shape) if isinstance(t, IndexedSlices) else values


@export("tf.clip_by_value")
def clip_by_value(
    t: TensorLike, clip_value_min: TensorLike, clip_value_max: TensorLike, name: str | None = None
) -> Any:
    """``t`` with its values limited to [clip_value_min, clip_value_max] (``tf.clip_by_value``).

    Args:
      t: a tensor of real numbers, or `IndexedSlices`.
      clip_value_min, clip_value_max: numbers, or tensors that broadcast to ``t``.
      name: of the op.

    Returns:
      What ``t`` is, with the same dtype and shape.

    Raises:
      ValueError: when the limits would broadcast the result to a larger shape.
    """
    with name_scope(name, "clip_by_value", [_graph_value(t), clip_value_min, clip_value_max]) as scope:
        values = _values_of(t, "t")
        lowered = minimum_op(values, clip_value_max)
        merge_raw(values.raw_shape, lowered.raw_shape)
        raised = maximum_op(lowered, clip_value_min, name=scope)
        merge_raw(values.raw_shape, raised.raw_shape)
        return _like(t, raised)


def _graph_value(t: TensorLike) -> Any:
    return t.values if isinstance(t, IndexedSlices) else t


@export("tf.clip_by_norm")
def clip_by_norm(t: TensorLike, clip_norm: TensorLike, axes: AxisLike | None = None, name: str | None = None) -> Any:
    """``t`` scaled down, if needed, so that its L2 norm over ``axes`` is at most ``clip_norm``."""
    with name_scope(name, "clip_by_norm", [_graph_value(t), clip_norm]) as scope:
        values = _values_of(t, "t")
        square = reduce_sum(values * values, axis=axes, keepdims=True)
        # Avoids the square root of 0, whose gradient is infinite.
        positive = square > 0
        safe = select_op(positive, square, array_filling.ones_like(square))
        norm = select_op(positive, sqrt_op(safe), square)
        scaled = values * clip_norm
        merge_raw(values.raw_shape, scaled.raw_shape)
        clipped = array_identity.identity(scaled / maximum_op(norm, clip_norm), name=scope)
        return _like(t, clipped)


@export("tf.clip_by_average_norm")
def clip_by_average_norm(t: TensorLike, clip_norm: TensorLike, name: str | None = None) -> Tensor:
    """``t`` scaled down, if needed, so that its L2 norm per element is at most ``clip_norm``."""
    with name_scope(name, "clip_by_average_norm", [t, clip_norm]) as scope:
        t = convert_to_tensor(t, name="t")
        count = cast(array_shape.size(t), t.dtype.base_dtype)
        inverse = rsqrt_op(reduce_sum(t * t, axis=array_filling.range(array_shape.rank(t))))
        clipped = t * clip_norm * minimum_op(inverse * count, _one(t.dtype) / clip_norm)
        return array_identity.identity(clipped, name=scope)


def _one(dtype: dtypes.DType) -> Tensor:
    return constant(1, dtype.base_dtype)


@export("tf.global_norm", "tf.linalg.global_norm")
def global_norm(t_list: Iterable[Any], name: str | None = None) -> Tensor | None:
    """The L2 norm of all tensors together; None entries are skipped (``tf.global_norm``).

    Raises:
      TypeError: when ``t_list`` is not a sequence.
    """
    _check_sequence(t_list)
    present = [t for t in t_list if t is not None]
    with name_scope(name, "global_norm", [_graph_value(t) for t in present]):
        halves = []
        for i, t in enumerate(present):
            values = _values_of(t, f"t_{i}")
            with colocate_with(values):
                halves.append(raw_ops.L2Loss(values))
        if not halves:
            return None
        total = reduce_sum(stack(halves))
        return sqrt_op(total * constant(2, total.dtype), name="global_norm")


def _check_sequence(t_list: Iterable[Any]) -> None:
    if not isinstance(t_list, Sequence) or isinstance(t_list, (str, bytes)):
        raise TypeError("t_list should be a sequence")


@export("tf.clip_by_global_norm")
def clip_by_global_norm(
    t_list: Iterable[Any], clip_norm: TensorLike, use_norm: Tensor | None = None, name: str | None = None
) -> tuple[list[Any], Any]:
    """The tensors, scaled by one factor so that their `global_norm` is at most ``clip_norm``; and the norm.

    A norm that is not finite makes all results NaN. None entries stay None.

    Raises:
      TypeError: when ``t_list`` is not a sequence.
    """
    _check_sequence(t_list)
    if use_norm is None:
        use_norm = global_norm(t_list, name)
    if use_norm is None:
        return list(t_list), None
    present = [_graph_value(t) for t in t_list if t is not None]
    with name_scope(name, "clip_by_global_norm", [*present, clip_norm]) as scope:
        dtype = use_norm.dtype.base_dtype
        factor = clip_norm * minimum_op(1.0 / use_norm, _one(dtype) / clip_norm)
        factor = select_op(is_finite_op(use_norm), factor, constant(np.nan, dtype))
        clipped = []
        for i, t in enumerate(t_list):
            clipped.append(None if t is None else _scaled(t, factor, f"{scope}_{i}"))
        return clipped, use_norm


def _scaled(t: Any, factor: Tensor, name: str) -> Any:
    values = _values_of(t, "t")
    with colocate_with(values):
        return _like(t, array_identity.identity(values * factor, name=name))
