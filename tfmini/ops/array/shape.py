"""Shapes as values, and changes of shape: reshape, squeeze, broadcast."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, AxisLike, DTypeLike, SizesLike, TensorLike
from tfmini.export import either, export
from tfmini.graph import raw_ops
from tfmini.graph.conversion import SparseComponents, SparseTensorValue, convert_to_tensor
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, name_scope, op
from tfmini.graph.node import Node
from tfmini.memory import check_room
from tfmini.ops.array.constant import constant_in
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape
from tfmini.ops.array.identity import cast
from tfmini.ops.array.kernel_arguments import as_ndarray, refuse
from tfmini.shapes import (
    RawShape,
    TensorShape,
    at_least_rank,
    at_most_rank,
    broadcast_raw,
    format_raw,
    merge_dims,
    num_elements_raw,
)

_INT = "{int32, int64} = DT_INT32"
_shape_op = op(f"Shape(input: T) -> output: out_type; T: type; out_type: {_INT}", shape_only=True)
_shape_n: OpHandle[Any] = op(
    f"ShapeN(input: N * T) -> output: N * out_type; N: int; T: type; out_type: {_INT}", shape_only=True
)
_shape_n.kernel("CPU")(lambda values, *, out_type: tuple(np.array(np.shape(v), out_type.numpy) for v in values))
_size = op(f"Size(input: T) -> output: out_type; T: type; out_type: {_INT}", shape=[()], shape_only=True)
_size.kernel("CPU")(lambda value, *, out_type: out_type.numpy.type(1 if isinstance(value, bytes) else value.size))
_rank = op("Rank(input: T) -> output: int32; T: type", shape=[()], shape_only=True)
_rank.kernel("CPU")(lambda value: np.int32(0 if isinstance(value, bytes) else value.ndim))
_reshape = op(
    f"Reshape(tensor: T, shape: Tshape) -> output: T; T: type; Tshape: {_INT}", checks=True, forwards="elements"
)
_expand_dims = op(
    f"ExpandDims(input: T, dim: Tdim) -> output: T; T: type; Tdim: {_INT}",
    forwards="elements", raw_names={"dim": "axis"},
)  # fmt: skip
_squeeze = op(
    "Squeeze(input: T) -> output: T; T: type; squeeze_dims: list(int) >= 0 = []",
    forwards="elements", raw_names={"squeeze_dims": "axis"},
)  # fmt: skip
_broadcast_to = op(f"BroadcastTo(input: T, shape: Tidx) -> output: T; T: type; Tidx: {_INT}", work="none")
_broadcast_args = op(f"BroadcastArgs(s0: T, s1: T) -> r0: T; T: {_INT}")
_gradient_args: OpHandle[Any] = op(
    f"BroadcastGradientArgs(s0: T, s1: T) -> r0: T, r1: T; T: {_INT}", shape=[(None,), (None,)]
)
all_of(_shape_op, _shape_n, _size, _rank, _broadcast_args, _gradient_args).not_differentiable()

# ---- shapes as values ---------------------------------------------------------------------------


@all_of(_shape_op, _shape_n).shape
def _shape_shape(node: Operation) -> list[RawShape]:
    return [(None if t.raw_shape is None else len(t.raw_shape),) for t in node.inputs]


@_shape_op.kernel_factory("CPU")
def _shape_kernel(node: Node) -> Any:
    dtype = node.attrs["out_type"].numpy
    return lambda value: np.array(() if isinstance(value, bytes) else value.shape, dtype)


# ---- Reshape ------------------------------------------------------------------------------------


@_reshape.shape
def _reshape_shape(node: Operation) -> list[RawShape]:
    before = node.inputs[0].raw_shape
    after = constant_value_as_shape(node.inputs[1])
    count = num_elements_raw(before)
    if after is None or count is None:
        return [after]
    known = 1
    for dim in after:
        known *= 1 if dim is None else dim
    unknown = after.count(None)
    if not unknown:
        if known != count:
            sizes = ",".join(map(str, after))
            raise ValueError(f"Cannot reshape a tensor with {count} elements to shape [{sizes}] ({known} elements)")
        return [after]
    if unknown > 1 or known == 0:
        return [after]
    if count % known:
        raise ValueError(f"Dimension size must be evenly divisible by {known} but is {count}")
    return [tuple(count // known if d is None else d for d in after)]


@_reshape.kernel("CPU")
def _reshape_kernel(value: Array, shape: Array) -> Any:
    sizes = shape.tolist()
    if isinstance(value, bytes):
        value = as_ndarray(value)
    try:
        # numpy reads any negative size as -1.
        if sizes and min(sizes) < -1:
            raise ValueError
        if not value.size and -1 in sizes and 0 in sizes:
            sizes = _size_beside_zeros(value.shape, sizes)
        return value.reshape(sizes)
    except (ValueError, TypeError):
        return _refuse_reshape(value.size, sizes)


def _size_beside_zeros(before: tuple[int, ...], sizes: list[int]) -> list[int]:
    """The sizes of an empty tensor with -1 replaced: by the quotient of the sizes that are not 0."""
    count = math.prod(d for d in before if d)
    known = math.prod(s for s in sizes if s > 0)
    if sizes.count(-1) > 1 or count % known:
        raise ValueError
    return [count // known if s == -1 else s for s in sizes]


def _refuse_reshape(count: int, sizes: Array) -> Any:
    if not isinstance(sizes, list):
        refuse("sizes input must be 1-D, not []")
    unknown = [i for i, s in enumerate(sizes) if s == -1]
    for i, size in enumerate(sizes):
        if size < -1:
            refuse(f"Size {i} must be non-negative, not {size}")
    if len(unknown) > 1:
        refuse(f"Only one input size may be -1, not both {unknown[0]} and {unknown[1]}")
    known = int(np.prod([s for s in sizes if s != -1], dtype=np.int64))
    if not unknown:
        refuse(f"Input to reshape is a tensor with {count} values, but the requested shape has {known}")
    if known == 0:
        refuse(
            "reshape cannot infer the missing input size for an empty tensor"
            " unless all specified input sizes are non-zero"
        )
    return refuse(
        f"Input to reshape is a tensor with {count} values, but the requested shape requires a multiple of {known}"
    )


@all_of(_reshape, _expand_dims).gradient
def _reshape_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [reshape(grad, shape(node.inputs[0])), None]


# ---- ExpandDims, Squeeze ------------------------------------------------------------------------


@_expand_dims.shape
def _expand_dims_shape(node: Operation) -> list[RawShape]:
    before = node.inputs[0].raw_shape
    value = constant_value(node.inputs[1])
    if before is None:
        return [None]
    if value is None:
        return [(None,) * (len(before) + 1)]
    if value.size != 1:
        raise ValueError(f"'dim' input must be a tensor with a single value, not {value.size}")
    rank, axis = len(before), int(value.item())
    if not -rank - 1 <= axis <= rank:
        raise ValueError(f"dim {axis} not in the interval [{-rank - 1}, {rank}].")
    axis %= rank + 1
    return [(*before[:axis], 1, *before[axis:])]


@_expand_dims.kernel("CPU")
def _expand_dims_kernel(value: Array, dim: Array) -> Any:
    value = as_ndarray(value)
    axis, rank = int(dim.item()), value.ndim
    if not -rank - 1 <= axis <= rank:
        refuse(f"Tried to expand dim index {axis} for tensor with {rank} dimensions.")
    axis %= rank + 1
    return value.reshape((*value.shape[:axis], 1, *value.shape[axis:]))


@_squeeze.shape
def _squeeze_shape(node: Operation) -> list[RawShape]:
    before, axes = node.inputs[0].raw_shape, node.attrs["squeeze_dims"]
    if before is None:
        return [None]
    rank = len(before)
    if not axes:
        return [None if None in before else tuple(d for d in before if d != 1)]
    for i, axis in enumerate(axes):
        if not -rank <= axis < rank:
            raise ValueError(f"squeeze_dims[{i}] not in [{-rank},{rank}).")
    wanted = {a % rank for a in axes}
    for axis in sorted(wanted):
        if before[axis] not in (None, 1):
            raise ValueError(f"Can not squeeze dim[{axis}], expected a dimension of 1, got {before[axis]}")
    return [tuple(d for i, d in enumerate(before) if i not in wanted)]


@_squeeze.kernel("CPU")
def _squeeze_kernel(value: Array, *, squeeze_dims: list[int]) -> Any:
    value = as_ndarray(value)
    rank = value.ndim
    for axis in squeeze_dims:
        if not -rank <= axis < rank:
            refuse(f"Tried to squeeze dim index {axis} for tensor with {rank} dimensions.")
        if value.shape[axis] != 1:
            refuse(f"Can not squeeze dim[{axis % rank}], expected a dimension of 1, got {value.shape[axis]}")
    return value.squeeze(tuple({a % rank for a in squeeze_dims})) if squeeze_dims else value.squeeze()


# ---- broadcasting -------------------------------------------------------------------------------


@_broadcast_to.shape
def _broadcast_to_shape(node: Operation) -> list[RawShape]:
    before, after = node.inputs[0].raw_shape, constant_value_as_shape(node.inputs[1])
    if before is None or after is None:
        return [after]
    at_most_rank(before, len(after))
    added = len(after) - len(before)
    return [after[:added] + tuple(new if old in (None, 1) else merge_dims(old, new)
                                  for old, new in zip(before, after[added:]))]  # fmt: skip


_COPIED = 4096  # bytes of a result; a copy of so few takes a quarter of the time of a view


@_broadcast_to.kernel("CPU")
def _broadcast_to_kernel(value: Array, shape: Array) -> Any:
    value, sizes = as_ndarray(value), tuple(shape.tolist())
    try:
        if value.ndim <= len(sizes) and 0 <= math.prod(sizes) * value.itemsize <= _COPIED:
            result = np.empty(sizes, value.dtype)
            result[...] = value
            return result
        check_room(sizes, value.itemsize)  # the view takes none, but what is made of it does
        return np.broadcast_to(value, sizes)
    except ValueError:
        return refuse(f"Incompatible shapes: {format_raw(value.shape)} vs. {format_raw(sizes)}")


@_broadcast_to.gradient
def _broadcast_to_gradient(node: Operation, grad: Tensor) -> list[Any]:
    value = node.inputs[0]
    before = shape(value, out_type=dtypes.int64)
    axes = broadcast_gradient_args(shape(grad, out_type=dtypes.int64), before)[1]
    return [reshape(raw_ops.Sum(grad, axes, keep_dims=True), before), None]


@_broadcast_args.shape
def _broadcast_args_shape(node: Operation) -> list[RawShape]:
    a, b = (at_least_rank(t.raw_shape, 1) for t in node.inputs)
    if a is None or b is None or a[0] is None or b[0] is None:
        return [(None,)]
    return [(max(a[0], b[0]),)]


@_broadcast_args.kernel("CPU")
def _broadcast_args_kernel(a: Array, b: Array) -> Any:
    for i, value in enumerate((a, b)):
        if np.ndim(value) != 1:
            refuse(f"In[{i}] must be a vector, got shape {list(np.shape(value))}")
    left, right = _padded(a.tolist(), b.tolist())
    return np.array([y if x == 1 else x for x, y in zip(left, right)], a.dtype)


@_gradient_args.kernel("CPU")
def _gradient_args_kernel(a: Array, b: Array) -> tuple[Any, Any]:
    find = _known_axes if a.size + b.size <= _MOST_SIZES else _reduced_axes
    return find(tuple(a.tolist()), tuple(b.tolist()), a.dtype)


def _reduced_axes(a: tuple[int, ...], b: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """The axes over which the gradients of two operands that broadcast are summed, as read-only vectors."""
    if a == b:
        left = right = [0] * len(a)
    else:
        left, right = _padded(list(a), list(b))
    axes = tuple(np.array([i for i, s in enumerate(side) if s == 1], dtype) for side in (left, right))
    for each in axes:
        each.flags.writeable = False
    return axes  # type: ignore[return-value]


_MOST_SIZES = 32  # of a pair that is remembered
_known_axes = functools.lru_cache(256)(_reduced_axes)  # a training step has the same shapes again and again


def _padded(a: list[int], b: list[int]) -> tuple[list[int], list[int]]:
    """Both shapes at the larger rank, with ones in front."""
    rank = max(len(a), len(b))
    left, right = [1] * (rank - len(a)) + a, [1] * (rank - len(b)) + b
    if any(x != y and 1 not in (x, y) for x, y in zip(left, right)):
        refuse(f"Incompatible shapes: {format_raw(tuple(a))} vs. {format_raw(tuple(b))}")
    return left, right


# ---- public functions ---------------------------------------------------------------------------


def _is_sparse(value: object) -> bool:
    return isinstance(value, (SparseComponents, SparseTensorValue))


@export("tf.shape")
def shape(input: TensorLike, name: str | None = None, out_type: DTypeLike = dtypes.int32) -> Tensor:
    """The shape of ``input`` as an integer vector (``tf.shape``); a constant when it is known statically.

    Args:
      input: a tensor, or a `SparseTensor`.
      name: of the op.
      out_type: int32 or int64.

    Returns:
      A vector of ``out_type`` with one element per axis.
    """
    return shape_internal(input, name, True, out_type)


def shape_internal(
    input: Any, name: str | None = None, optimize: bool = True, out_type: DTypeLike = dtypes.int32
) -> Tensor:
    """`shape`; without ``optimize`` always a Shape op."""
    out_type = dtypes.as_dtype(out_type or dtypes.int32)
    if _is_sparse(input):
        return cast(input.dense_shape, out_type, name)  # type: ignore[no-any-return]
    if type(input) is not Tensor:
        with name_scope(name, "Shape", [input]) as scope:
            input, name = convert_to_tensor(input), scope
    raw = input.raw_shape
    if optimize and raw is not None and None not in raw:
        return constant_in(input.graph, np.array(raw, out_type.numpy), name=name or "Shape")
    return _shape_op(input, out_type=out_type, name=name)


@export("tf.shape_n")
def shape_n(input: Iterable[TensorLike], out_type: DTypeLike = dtypes.int32, name: str | None = None) -> list[Tensor]:
    """The shapes of several tensors (``tf.shape_n``)."""
    return list(_shape_n(input, out_type=out_type, name=name))


@export("tf.size")
def size(input: TensorLike, name: str | None = None, out_type: DTypeLike = dtypes.int32) -> Tensor:
    """The number of elements (``tf.size``); a constant when it is known statically."""
    return size_internal(input, name, True, out_type)


def size_internal(
    input: Any, name: str | None = None, optimize: bool = True, out_type: DTypeLike = dtypes.int32
) -> Tensor:
    """`size`; without ``optimize`` always a Size op."""
    out_type = dtypes.as_dtype(out_type or dtypes.int32)
    if _is_sparse(input):
        with name_scope(name, "Size", [input.dense_shape]) as scope:
            return raw_ops.Prod(cast(input.dense_shape, out_type), 0, name=scope)
    if type(input) is not Tensor:
        with name_scope(name, "Size", [input]) as scope:
            input, name = convert_to_tensor(input), scope
    count = num_elements_raw(input.raw_shape)
    if optimize and count is not None:
        return constant_in(input.graph, np.array(count, out_type.numpy), name=name or "Size")
    return _size(input, out_type=out_type, name=name)


@export("tf.rank")
def rank(input: TensorLike, name: str | None = None) -> Tensor:
    """The number of dimensions, int32 (``tf.rank``); a constant when it is known statically."""
    return rank_internal(input, name, True)


def rank_internal(input: Any, name: str | None = None, optimize: bool = True) -> Tensor:
    """`rank`; without ``optimize`` always a Rank op."""
    if _is_sparse(input):
        return size_internal(input.dense_shape, name or "Rank")
    if type(input) is not Tensor:
        with name_scope(name, "Rank", [input]) as scope:
            input, name = convert_to_tensor(input), scope
    if optimize and input.raw_shape is not None:
        return constant_in(input.graph, np.array(len(input.raw_shape), np.int32), name=name or "Rank")
    return _rank(input, name=name)


@export("tf.reshape", "tf.manip.reshape")
def reshape(tensor: TensorLike, shape: SizesLike, name: str | None = None) -> Tensor:
    """The same elements in another shape (``tf.reshape``).

    Args:
      tensor: of any shape.
      shape: integers; one may be -1, which stands for the remaining elements.

    Raises:
      ValueError: when the numbers of elements are known and differ.
    """
    return _reshape(tensor, shape, name=name)


_squeeze.gradient(lambda node, grad: [reshape(grad, shape(node.inputs[0]))])


@export("tf.expand_dims")
def expand_dims(
    input: TensorLike, axis: AxisLike | None = None, name: str | None = None, dim: AxisLike | None = None
) -> Tensor:
    """``input`` with a dimension of size 1 inserted at ``axis`` (``tf.expand_dims``; ``dim`` is its old name).

    Args:
      input: a tensor.
      axis: where the new dimension goes; negative ones count from the end (-1: behind the last).
      name: of the op.
      dim: an older name of ``axis``.

    Returns:
      A tensor with the same elements.

    Raises:
      ValueError: when neither or both are given, or the axis is out of range.
    """
    axis = either("axis", axis, "dim", dim)
    if axis is None:
        raise ValueError("Must specify an axis argument to tf.expand_dims()")
    return _expand_dims(input, axis, name=name)


@export("tf.squeeze")
def squeeze(input: TensorLike, axis: Any = None, name: str | None = None, squeeze_dims: Any = None) -> Tensor:
    """``input`` without its dimensions of size 1, or without those in ``axis`` (``tf.squeeze``).

    Args:
      input: a tensor.
      axis: the axes to drop, one or a list; default: all of size 1.
      name: of the op.
      squeeze_dims: an older name of ``axis``.

    Returns:
      A tensor with the same elements.

    Raises:
      ValueError: when a named dimension has another size.
    """
    axis = either("axis", axis, "squeeze_dims", squeeze_dims)
    axis = [] if axis is None else axis
    return _squeeze(input, squeeze_dims=[axis] if np.isscalar(axis) else list(axis), name=name)


@export("tf.broadcast_to")
def broadcast_to(input: TensorLike, shape: SizesLike, name: str | None = None) -> Tensor:
    """``input`` repeated to ``shape`` by numpy's rule (``tf.broadcast_to``)."""
    return _broadcast_to(input, shape, name=name)


@export("tf.broadcast_dynamic_shape")
def broadcast_dynamic_shape(shape_x: SizesLike, shape_y: SizesLike) -> Tensor:
    """The shape of an element-wise operation on tensors of two shapes (``tf.broadcast_dynamic_shape``)."""
    return _broadcast_args(shape_x, shape_y)


@export("tf.broadcast_static_shape")
def broadcast_static_shape(shape_x: TensorShape, shape_y: TensorShape) -> TensorShape:
    """`broadcast_dynamic_shape` on static shapes (``tf.broadcast_static_shape``).

    Raises:
      ValueError: when they cannot be broadcast together.
    """
    try:
        return TensorShape.from_raw(broadcast_raw(shape_x.raw, shape_y.raw))
    except ValueError:
        raise ValueError(f"Incompatible shapes for broadcasting: {shape_x} and {shape_y}") from None


def broadcast_gradient_args(s0: TensorLike, s1: TensorLike, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The axes over which the gradients of a broadcast operation on two shapes are summed."""
    return _gradient_args(s0, s1, name=name)  # type: ignore[no-any-return]
