"""Tensors computed from a rule: fill, zeros, ones, range, linspace."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, DTypeLike, Scalar, SizesLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, convert_to_tensor, name_scope, op, same_shape
from tfmini.graph.node import Node
from tfmini.memory import check_room
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape
from tfmini.ops.array.identity import cast
from tfmini.ops.array.kernel_arguments import as_ndarray, filled, refuse, zero_of
from tfmini.ops.array.shape import reshape, shape_internal
from tfmini.shapes import RawShape, as_raw, with_rank

_fill = op("Fill(dims: index_type, value: T) -> output: T; T: type; index_type: {int32, int64} = DT_INT32", work="none")
_fill.gradient(lambda node, grad: [None, raw_ops.Sum(grad, raw_ops.Range(0, raw_ops.Rank(grad), 1))])
_zeros_like = op("ZerosLike(x: T) -> y: T; T: type", shape=same_shape, work="none", differentiable=False)
_ones_like = op(
    "OnesLike(x: T) -> y: T; T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, int64,"
    " complex64, complex128, bool}",
    shape=same_shape,
    work="none",
    differentiable=False,
)
_ones_like.kernel("CPU")(lambda x: np.ones(x.shape, x.dtype))
_range = op(
    "Range(start: Tidx, limit: Tidx, delta: Tidx) -> output: Tidx;"
    " Tidx: {bfloat16, float, double, int32, int64} = DT_INT32",
    work="none",
    differentiable=False,
)
_lin_space = op(
    "LinSpace(start: T, stop: T, num: Tidx) -> output: T; T: {bfloat16, float, double};"
    " Tidx: {int32, int64} = DT_INT32",
    differentiable=False,
)

# Longer constants would make every GraphDef large; they become a Fill.
_MAX_CONSTANT = 1000


@_fill.shape
def _fill_shape(node: Operation) -> list[RawShape]:
    dims = node.inputs[0].raw_shape
    if dims is not None and len(dims) > 1:
        raise ValueError(f"Shape must be rank 1 but is rank {len(dims)}")
    with_rank(node.inputs[1].raw_shape, 0)
    known = constant_value(node.inputs[0])
    if known is not None and (known < 0).any():
        raise ValueError(f"Fill dimensions must be >= 0, got {known.tolist()}")
    return [constant_value_as_shape(node.inputs[0])]


@_fill.kernel_factory("CPU")
def _fill_kernel(node: Node) -> Any:
    dtype = node.attrs["T"].numpy

    def run(dims: Array, value: Any) -> Any:
        sizes = _fill_sizes(dims, value)
        return filled(sizes, value.item() if dtype.kind == "O" and hasattr(value, "item") else value, dtype)

    return run


def _fill_sizes(dims: Array, value: Any) -> tuple[int, ...]:
    if dims.ndim != 1:
        refuse(f"dims must be a vector, got shape {list(dims.shape)}")
    if np.ndim(value):
        refuse(f"value must be a scalar, got shape {list(value.shape)}")
    sizes: tuple[int, ...] = tuple(dims.tolist())
    for i, size in enumerate(sizes):
        if size < 0:
            refuse(f"Dimension {i} must be >= 0")
    return sizes


@_fill.into
def _fill_into(node: Node) -> Callable[..., Any] | None:
    dtype = node.attrs["T"].numpy
    if dtype.kind == "O":
        return None

    def run(new: Callable[..., Any], dims: Array, value: Array) -> Any:
        sizes = _fill_sizes(dims, value)
        check_room(sizes, dtype.itemsize)
        array = new(sizes, dtype)
        np.copyto(array, value)
        return array

    return run


@_zeros_like.kernel("CPU")
def _zeros_like_kernel(x: Any) -> Any:
    if hasattr(x, "zeros_like"):  # a list of tensors
        return x.zeros_like()
    x = as_ndarray(x)
    return filled(x.shape, zero_of(x.dtype), x.dtype)


def _range_size(start: Any, limit: Any, delta: Any) -> int:
    """The number of elements; of floats, as TensorFlow counts them in their own type.

    Raises:
      ValueError: for a step of zero or of the wrong sign.
    """
    if start.dtype.kind == "i":
        start, limit, delta = start.item(), limit.item(), delta.item()
    if delta == 0:
        raise ValueError("Requires delta != 0")
    if delta > 0 and start > limit:
        raise ValueError(f"Requires start <= limit when delta > 0: {start}/{limit}")
    if delta < 0 and start < limit:
        raise ValueError(f"Requires start >= limit when delta < 0: {start}/{limit}")
    count = -((start - limit) // delta) if isinstance(delta, int) else math.ceil(abs((limit - start) / delta))
    return int(count)


@_range.shape
def _range_shape(node: Operation) -> list[RawShape]:
    for name, tensor in zip(("start", "limit", "delta"), node.inputs):
        if tensor.raw_shape:
            raise ValueError(f"Shape must be rank 0 but is rank {len(tensor.raw_shape)} ({name})")
    values = [constant_value(t) for t in node.inputs]
    return [(None,)] if any(v is None for v in values) else [(_range_size(*values),)]


@_range.kernel("CPU")
def _range_kernel(start: Array, limit: Array, delta: Array) -> Any:
    for role, value in (("start", start), ("limit", limit), ("delta", delta)):
        if np.ndim(value):
            refuse(f"{role} must be a scalar, not shape {list(value.shape)}")
    try:
        count = _range_size(start, limit, delta)
    except ValueError as error:
        refuse(str(error))
    dtype = start.dtype
    check_room((count,), 8)  # NumPy would return an empty array
    if dtype.kind == "i":
        return np.arange(start, limit, delta, dtype)  # type: ignore[call-overload]
    found = np.full(count, delta, dtype)
    found[:1] = start
    # As in TensorFlow, each is the rounded sum of the one before and delta.
    return np.add.accumulate(found, dtype=dtype)


@_lin_space.shape
def _lin_space_shape(node: Operation) -> list[RawShape]:
    num = constant_value(node.inputs[2])
    if num is None:
        return [(None,)]
    if num.item() <= 0:
        raise ValueError(f"Requires num > 0: {num.item()}")
    return [(int(num.item()),)]


@_lin_space.kernel("CPU")
def _lin_space_kernel(start: Array, stop: Array, num: Array) -> Any:
    count = int(num)
    if count <= 0:
        refuse(f"Requires num > 0: {count}")
    check_room((count,), 8)
    if count == 1:
        return np.full(1, start, start.dtype)
    step = (stop - start) / start.dtype.type(count - 1)
    return start + step * np.arange(count).astype(start.dtype)  # rounded in each step, as in TensorFlow


# ---- public functions ---------------------------------------------------------------------------


@export("tf.fill")
def fill(dims: SizesLike, value: TensorLike, name: str | None = None) -> Tensor:
    """A tensor of shape ``dims`` that holds ``value`` everywhere (``tf.fill``)."""
    return _fill(dims, value, name=name)


def _filled_with(value: Scalar, shape: SizesLike, dtype: dtypes.DType, name: str | None, default_name: str) -> Tensor:
    with name_scope(name, default_name, [shape]) as scope:
        if not isinstance(shape, Tensor):
            sizes = _static_sizes(shape)
            if sizes is not None and math.prod(sizes) < _MAX_CONSTANT:
                return constant(np.full(sizes, value, dtype.numpy), dtype, name=scope)
            if sizes is not None:
                shape = constant(np.array(sizes, _index_type(sizes)), name="shape_as_tensor")
            else:
                shape = convert_to_tensor(shape, dtype=dtypes.int32)
        if shape.raw_shape is None or len(shape.raw_shape) != 1:
            shape = reshape(shape, [-1])
        return _fill(shape, constant(value, dtype=dtype), name=scope)


def _static_sizes(shape: SizesLike) -> tuple[int, ...] | None:
    try:
        raw = as_raw(shape)
    except (TypeError, ValueError):
        return None
    return None if raw is None or None in raw else raw  # type: ignore[return-value]


def _index_type(sizes: tuple[int, ...]) -> Any:
    return np.int64 if any(s > np.iinfo(np.int32).max for s in sizes) else np.int32


@export("tf.zeros")
def zeros(shape: SizesLike, dtype: DTypeLike = dtypes.float32, name: str | None = None) -> Tensor:
    """A tensor of zeros, False or empty strings (``tf.zeros``).

    Args:
      shape: a list of ints, a `TensorShape`, or an int tensor.
      dtype: the element type.
      name: of the op.

    Returns:
      A tensor of that shape and dtype.
    """
    dtype = dtypes.as_dtype(dtype).base_dtype
    zero: Any = "" if dtype is dtypes.string else False if dtype is dtypes.bool else 0
    return _filled_with(zero if zero != "" else b"", shape, dtype, name, "zeros")


def zeros_as(tensor: Tensor) -> Tensor:
    """Make zeros of a tensor's shape and dtype by the ops that TensorFlow's gradients make: a shape, then a fill."""
    return zeros(shape_internal(tensor), tensor.dtype)


@export("tf.ones")
def ones(shape: SizesLike, dtype: DTypeLike = dtypes.float32, name: str | None = None) -> Tensor:
    """A tensor of ones or True (``tf.ones``).

    Args:
      shape: a list of ints, a `TensorShape`, or an int tensor.
      dtype: the element type, a number or bool.
      name: of the op.

    Returns:
      A tensor of that shape and dtype.
    """
    dtype = dtypes.as_dtype(dtype).base_dtype
    return _filled_with(True if dtype is dtypes.bool else 1, shape, dtype, name, "ones")


@export("tf.zeros_like")
def zeros_like(
    tensor: TensorLike, dtype: DTypeLike | None = None, name: str | None = None, optimize: bool = True
) -> Tensor:
    """Zeros in the shape of ``tensor``, of its type unless ``dtype`` is given (``tf.zeros_like``)."""
    with name_scope(name, "zeros_like", [tensor]) as scope:
        tensor = convert_to_tensor(tensor, name="tensor")
        is_known = optimize and tensor.shape.is_fully_defined()
        if is_known and isinstance(dtype, (int, str)) and not dtype:  # False, which TensorFlow bears here alone
            dtype = None
        wanted = dtypes.as_dtype(tensor.dtype if dtype is None else dtype).base_dtype
        if is_known and wanted is not dtypes.variant:
            return zeros(tensor.raw_shape, wanted, name=scope)
        if wanted is not tensor.dtype.base_dtype:
            return zeros(shape_internal(tensor, optimize=optimize), wanted, name=scope)
        return _zeros_like(tensor, name=scope)


@export("tf.ones_like")
def ones_like(
    tensor: TensorLike, dtype: DTypeLike | None = None, name: str | None = None, optimize: bool = True
) -> Tensor:
    """Ones in the shape of ``tensor``, of its type unless ``dtype`` is given (``tf.ones_like``)."""
    with name_scope(name, "ones_like", [tensor]) as scope:
        tensor = convert_to_tensor(tensor, name="tensor")
        wanted = dtypes.as_dtype(tensor.dtype if dtype is None else dtype).base_dtype
        result = ones(shape_internal(tensor, optimize=optimize), wanted, name=scope)
        result.set_shape(tensor.shape)
        return result


_RANGE_TYPES = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)


@export("tf.range")
def range(
    start: TensorLike, limit: TensorLike | None = None, delta: TensorLike = 1, dtype: DTypeLike | None = None,
    name: str = "range",
) -> Tensor:  # fmt: skip
    """The numbers from ``start`` to ``limit`` (excluded) in steps of ``delta`` (``tf.range``).

    ``tf.range(n)`` starts at 0. The type is the widest of the arguments' types unless ``dtype`` is given.
    """
    if limit is None:
        start, limit = 0, start
    wanted = None if dtype is None else dtypes.as_dtype(dtype)
    with name_scope(name, "Range", [start, limit, delta]) as scope:
        bounds = [
            convert_to_tensor(v, dtype=wanted if not isinstance(v, Tensor) else None, name=label)
            for v, label in ((start, "start"), (limit, "limit"), (delta, "delta"))
        ]
        if wanted is None:
            found = [b.dtype.base_dtype for b in bounds]
            wanted = max(found, key=_RANGE_TYPES.index) if all(f in _RANGE_TYPES for f in found) else found[0]
        return _range(*[cast(b, wanted) for b in bounds], name=scope)


@export("tf.linspace")
def linspace(start: TensorLike, stop: TensorLike, num: TensorLike, name: str | None = None) -> Tensor:
    """``num`` evenly spaced numbers from ``start`` to ``stop``, both included (``tf.linspace``, ``tf.lin_space``)."""
    return _lin_space(start, stop, num, name=name)


lin_space = linspace

export_names("tf", "lin_space")
