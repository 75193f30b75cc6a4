"""Joins tensors along an axis, and takes stacks apart: concat, stack, unstack."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, AxisLike, DTypeLike, TensorLike
from tfmini.errors import InvalidArgumentError
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor, register_tensor_conversion_function
from tfmini.graph.families import Operation, OpHandle, Tensor, name_scope, op
from tfmini.graph.scoping import count_ops
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.identity import identity
from tfmini.ops.array.kernel_arguments import as_ndarray, check_axis, refuse
from tfmini.ops.array.shape import expand_dims, reshape, shape, shape_n
from tfmini.shapes import RawShape, at_least_rank, format_raw, merge_raw, with_rank

_concat_v2 = op(
    "ConcatV2(values: N * T, axis: Tidx) -> output: T; N: int >= 2; T: type; Tidx: {int32, int64} = DT_INT32",
    aggregates=True, work="none",
)  # fmt: skip
_concat_v2.shape(lambda node: _concat_shapes([t.raw_shape for t in node.inputs[:-1]], node.inputs[-1]))
_concat_v2.gradient(lambda node, grad: [*_concat_gradients(node.inputs[:-1], node.inputs[-1], grad), None])
_concat_v1 = op(
    "Concat(concat_dim: int32, values: N * T) -> output: T; N: int >= 2; T: type", aggregates=True, work="none"
)
_concat_v1.shape(lambda node: _concat_shapes([t.raw_shape for t in node.inputs[1:]], node.inputs[0]))
_concat_v1.gradient(lambda node, grad: [None, *_concat_gradients(node.inputs[1:], node.inputs[0], grad)])
_concat_offset: OpHandle[Any] = op(
    "ConcatOffset(concat_dim: int32, shape: N * int32) -> offset: N * int32; N: int >= 2", differentiable=False
)
_concat_offset.shape(lambda node: [t.raw_shape for t in node.inputs[1:]])
_pack = op("Pack(values: N * T) -> output: T; N: int >= 1; T: type; axis: int = 0", aggregates=True, work="none")
_unpack: OpHandle[Any] = op("Unpack(value: T) -> output: num * T; num: int >= 0; T: type; axis: int = 0", work="none")


# ---- Concat -------------------------------------------------------------------------------------


def _concat_shapes(shapes: list[RawShape], axis_tensor: Tensor) -> list[RawShape]:
    known = [s for s in shapes if s is not None]
    if not known:
        return [None]
    rank = len(known[0])
    for s in known[1:]:
        with_rank(s, rank)
    if not rank:
        raise ValueError("Can't concatenate scalars (use tf.stack instead)")
    value = constant_value(axis_tensor)
    if value is None:
        return [(None,) * rank]
    axis = int(value.item())
    at_least_rank(known[0], axis + 1 if axis >= 0 else -axis)
    axis %= rank
    head: RawShape = known[0][:axis]
    tail: RawShape = known[0][axis + 1 :]
    for s in known[1:]:
        head, tail = _merged(head, s[:axis]), _merged(tail, s[axis + 1 :])
    sizes = [None if s is None else s[axis] for s in shapes]
    return [(*head, None if None in sizes else sum(sizes), *tail)]  # type: ignore[misc,arg-type]


def _merged(a: RawShape, b: RawShape) -> RawShape:
    """`merge_raw` with the message of TensorFlow's concat and stack."""
    try:
        return merge_raw(a, b)
    except ValueError:
        if a is None or b is None or len(a) != len(b):
            raise
    i = next(i for i, (x, y) in enumerate(zip(a, b)) if x != y and None not in (x, y))
    raise ValueError(
        f"Dimension {i} in both shapes must be equal, but are {a[i]} and {b[i]}."
        f" Shapes are {format_raw(a)} and {format_raw(b)}."
    )


@_concat_v2.kernel("CPU")
def _concat_kernel(values: list[Any], axis: Array) -> Any:
    if axis.ndim:
        refuse(f"axis tensor should be a scalar integer, but got shape {list(axis.shape)}")
    try:
        return np.concatenate(values, int(axis.item()))
    except ValueError:
        return _refuse_concat(values, int(axis.item()))


_concat_v1.kernel("CPU")(lambda concat_dim, values: _concat_kernel(values, concat_dim))


def _refuse_concat(values: list[Any], axis: int) -> Any:
    shapes = [np.shape(v) for v in values]
    rank = len(shapes[0])
    if not -rank <= axis < rank:
        refuse(f"ConcatOp : Expected concatenating dimensions in the range [{-rank}, {rank}), but got {axis}")
    for i, other in enumerate(shapes[1:], 1):
        first, second = format_raw(shapes[0]), format_raw(other)
        if len(other) != rank:
            refuse(f"ConcatOp : Ranks of all input tensors should match: shape[0] = {first} vs. shape[{i}] = {second}")
        if any(a != b for j, (a, b) in enumerate(zip(shapes[0], other)) if j != axis % rank):
            refuse(f"ConcatOp : Dimensions of inputs should match: shape[0] = {first} vs. shape[{i}] = {second}")
    raise AssertionError("numpy refused shapes that match")


def _concat_gradients(values: Sequence[Tensor], axis: Tensor, grad: Tensor) -> list[Any]:
    if isinstance(grad, IndexedSlices):
        return _slices_gradients(values, axis, grad)
    known = constant_value(axis)
    sizes = [None if t.raw_shape is None or known is None else t.raw_shape[int(known.item())] for t in values]
    if None not in sizes:
        assert known is not None
        return _parts(grad, convert_to_tensor(sizes), int(known.item()), len(sizes))
    axis = raw_ops.FloorMod(axis, raw_ops.Rank(values[0]))
    shapes = shape_n(values)
    offsets = concat_offset(axis, shapes)
    return [raw_ops.Slice(grad, begin, size) for begin, size in zip(offsets, shapes)]


def _parts(value: Tensor, sizes: Tensor, axis: int, count: int) -> list[Any]:
    return list(raw_ops.SplitV(value, sizes, axis, num_split=count, name="split"))


def _slices_gradients(values: Sequence[Tensor], axis: Tensor, grad: IndexedSlices) -> list[Any]:
    """The parts of a sparse gradient: along axis 0 by the range of the row numbers, along other axes by a split."""
    known = constant_value(axis)
    if known is None:
        raise ValueError("Can only compute IndexedSlices gradient with statically-known concat_dim")
    position = int(known.item())
    if values[0].raw_shape is not None:
        position %= len(values[0].raw_shape)
    elif position < 0:
        raise ValueError("The gradient of a gather after concat with a negative axis needs values of known rank.")
    sizes = [shape(t)[position] for t in values]
    if position:
        parts = _parts(grad.values, stack(sizes), position, len(values))
        return [IndexedSlices(p, grad.indices, shape(t)) for p, t in zip(parts, values)]
    start: Any = constant(0, dtypes.int32)
    found = []
    for tensor, size in zip(values, sizes):
        low = raw_ops.Cast(start, DstT=grad.indices.dtype)
        high = raw_ops.Cast(start + size, DstT=grad.indices.dtype)
        above, below = raw_ops.GreaterEqual(grad.indices, low), raw_ops.Less(grad.indices, high)
        rows = reshape(raw_ops.Where(raw_ops.LogicalAnd(above, below)), [-1])
        taken = [raw_ops.GatherV2(x, rows, 0) for x in (grad.values, grad.indices)]
        found.append(IndexedSlices(taken[0], taken[1] - low, shape(tensor)))
        start = start + size
    return found


@_concat_offset.kernel("CPU")
def _concat_offset_kernel(concat_dim: Array, shapes: list[Any]) -> tuple[Any, ...]:
    axis = _checked_offsets(int(concat_dim), shapes)
    starts = accumulate([int(s[axis]) for s in shapes[:-1]], initial=0)
    found = []
    for s, start in zip(shapes, starts):
        offset = np.zeros_like(s)
        offset[axis] = start
        found.append(offset)
    return tuple(found)


def _checked_offsets(axis: int, shapes: list[Any]) -> int:
    """The axis, not negative; refuses shapes that cannot be joined along it."""
    for i, one in enumerate(shapes):
        if np.ndim(one) != 1:
            refuse(f"input {i} should be a vector, but got shape {list(np.shape(one))}")
    rank = len(shapes[0])
    if not -rank <= axis < rank:
        refuse(f"Concat dim is out of range: {axis} vs. {rank}")
    axis %= rank
    for i, one in enumerate(shapes[1:], 1):
        if len(one) != rank:
            refuse(f"input {i} should contain {rank} elements, but got {len(one)}")
        if any(a != b for j, (a, b) in enumerate(zip(shapes[0], one)) if j != axis):
            texts = [" ".join(map(str, shape.tolist())) for shape in (one, shapes[0])]
            refuse(
                f"All dimensions except {axis} must match. Input {i} has shape [{texts[0]}] and doesn't match input 0"
                f" with shape [{texts[1]}]."
            )
    return axis


# ---- Pack, Unpack -------------------------------------------------------------------------------


@_pack.shape
def _pack_shape(node: Operation) -> list[RawShape]:
    merged: RawShape = None
    for tensor in node.inputs:
        try:
            merged = _merged(merged, tensor.raw_shape)
        except ValueError as error:
            raise ValueError(f"{error}\n\tFrom merging shape 0 with other shapes.") from None
    if merged is None:
        return [None]
    axis = check_axis(node.attrs["axis"], len(merged) + 1)
    return [(*merged[:axis], node.attrs["N"], *merged[axis:])]


@_pack.kernel("CPU")
def _pack_kernel(values: list[Any], *, axis: int) -> Any:
    arrays = [as_ndarray(value) for value in values]
    shape = arrays[0].shape  # there is at least one, by the declaration
    rank = len(shape) + 1
    axis = check_axis(axis, rank, f"axis = {axis} not in [{-rank}, {rank})")
    for i, array in enumerate(arrays):
        if array.shape != shape:
            shapes = f"values[0].shape = {format_raw(shape)} != values[{i}].shape = {format_raw(array.shape)}"
            refuse(f"Shapes of all inputs must match: {shapes}")
    one = (*shape[:axis], 1, *shape[axis:])
    return np.concatenate([array.reshape(one) for array in arrays], axis)


@_unpack.shape
def _unpack_shape(node: Operation) -> list[RawShape]:
    before, count = node.inputs[0].raw_shape, node.attrs["num"]
    if before is None:
        return [None] * count
    axis = check_axis(node.attrs["axis"], len(before))
    if before[axis] not in (None, count):
        raise ValueError(f"Dimension must be {count} but is {before[axis]}")
    return [before[:axis] + before[axis + 1 :]] * count


@_unpack.kernel("CPU")
def _unpack_kernel(value: Array, *, num: int, axis: int) -> tuple[Any, ...]:
    if value.shape[axis] != num:
        refuse(f"Input shape axis {axis} must equal {num}, got shape {format_raw(value.shape)}")
    return tuple(np.moveaxis(value, axis, 0))


# ---- public functions ---------------------------------------------------------------------------


@export("tf.concat")
def concat(values: TensorLike, axis: AxisLike, name: str = "concat") -> Tensor:
    """Tensors joined along an existing axis (``tf.concat``).

    Args:
      values: a list of tensors of one dtype and rank; all axes but ``axis`` have equal sizes.
      axis: an int; negative ones count from the end.
      name: of the op.

    Returns:
      A tensor whose size in ``axis`` is the sum of theirs.

    Raises:
      ValueError: when their other dimensions differ, they are scalars, or there are none.
    """
    if not isinstance(values, (list, tuple)):
        values = [values]
    if not values:
        raise ValueError("tf.concat needs at least one tensor; got an empty list.")
    if len(values) > 1:
        return _concat_v2(values, axis, name=name)
    with name_scope(name):
        position = convert_to_tensor(axis, name="concat_dim", dtype=dtypes.int32)
        if position.raw_shape not in (None, ()):
            raise ValueError(f"Shape {position.shape} must have rank 0: that of the axis in tf.concat(values, axis).")
        return identity(values[0], name=name)


def concat_offset(concat_dim: TensorLike, shapes: list[Tensor], name: str | None = None) -> list[Tensor]:
    """Where each of the concatenated shapes starts."""
    return list(_concat_offset(concat_dim, shapes, name=name))


@export("tf.stack")
def stack(values: Any, axis: int = 0, name: str = "stack") -> Tensor:
    """Tensors of one shape joined along a new axis (``tf.stack``).

    Along axis 0, ``values`` may also be a tensor or a variable, which is the stack of its rows.

    Raises:
      ValueError: when the shapes differ or the axis is out of range.
      TypeError: for a tensor along another axis.
    """
    if axis == 0:
        try:
            return convert_to_tensor(values, name=name)  # numbers beside tensors take the tensors' dtype
        except (TypeError, ValueError):  # the op says better what is wrong
            pass
    first = convert_to_tensor(values[0], name=name)  # for its rank alone: without a dtype, the op's inputs agree on one
    if first.raw_shape is not None and not -len(first.raw_shape) - 1 <= axis <= len(first.raw_shape):
        raise ValueError(f"axis = {axis} not in [{-len(first.raw_shape) - 1}, {len(first.raw_shape) + 1})")
    return _pack(values, axis=axis, name=name)


_unpack.gradient(lambda node, *grads: [stack(list(grads), axis=node.attrs["axis"])])


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_tensors, value))
    return isinstance(value, Tensor) or hasattr(value, "_as_graph_element")


@export("tf.unstack")
def unstack(value: TensorLike, num: int | None = None, axis: int = 0, name: str = "unstack") -> list[Tensor]:
    """The slices of ``value`` along ``axis``, without that axis (``tf.unstack``).

    Args:
      value: a tensor with at least one axis.
      num: the size of ``axis``, where the static shape does not say it.
      axis: an int; negative ones count from the end.
      name: of the ops.

    Raises:
      ValueError: when ``num`` is not given and the static size is unknown.
    """
    value = convert_to_tensor(value)
    if num is None:
        raw = value.raw_shape
        if raw is not None:
            if not -len(raw) <= axis < len(raw):
                raise ValueError(f"axis = {axis} not in [{-len(raw)}, {len(raw)})")
            num = raw[axis]
        if num is None:
            raise ValueError(f"Cannot infer num from shape {value.shape}")
    return list(_unpack(value, num=num, axis=axis, name=name))


_pack.gradient(lambda node, grad: list(unstack(grad, num=node.attrs["N"], axis=node.attrs["axis"])))


# ---- lists that hold tensors --------------------------------------------------------------------


def _dtype_within(value: Any) -> dtypes.DType | None:
    if isinstance(value, (list, tuple)):
        return next((d for d in map(_dtype_within, value) if d is not None), None)
    return value.dtype.base_dtype if _holds_tensors(value) else None


def _packed(values: Any, dtype: dtypes.DType, name: str) -> Tensor:
    parts = []
    with name_scope(name) as scope:
        for i, value in enumerate(values):
            if isinstance(value, (list, tuple)):
                value = _packed(value, dtype, str(i)) if _holds_tensors(value) else constant(value, dtype, name=str(i))
            elif _holds_tensors(value):
                value = convert_to_tensor(value)
                if value.dtype.base_dtype is not dtype:
                    raise TypeError(
                        "Cannot convert a list containing a tensor of dtype"
                        f" {value.dtype!r} to {dtype!r} (Tensor is: {value!r})"
                    )
            else:
                value = constant(value, dtype, name=str(i))
            parts.append(value)
        return _pack(parts, axis=0, name=scope)


def _pack_conversion(
    value: Sequence[Any], dtype: DTypeLike | None = None, name: str | None = None, as_ref: bool = False
) -> Any:
    if as_ref:
        return NotImplemented
    found = _dtype_within(value)
    if found is None:
        return NotImplemented
    if dtype is None or dtypes.as_dtype(dtype) is found:
        return _packed(value, found, name or "packed")
    return _packed(_cast_tensors(value, dtypes.as_dtype(dtype)), dtypes.as_dtype(dtype), name or "packed")


def _cast_tensors(value: Any, dtype: dtypes.DType) -> Any:
    """A nested list with the tensors in it cast."""
    if isinstance(value, (list, tuple)):
        return [_cast_tensors(item, dtype) for item in value]
    return raw_ops.Cast(value, DstT=dtype) if _holds_tensors(value) else value


register_tensor_conversion_function((list, tuple), _pack_conversion, 99)


# ---- Splits tensors along an axis: into equal pieces, or into pieces of given sizes --------------------------------

_split: OpHandle[Any] = op(
    "Split(split_dim: int32, value: T) -> output: num_split * T; num_split: int >= 1; T: type", work="none",
    raw_names={"split_dim": "axis"},
)  # fmt: skip
_split.gradient(lambda node, *grads: [None, concat(list(grads), node.inputs[0])])
_split_v: OpHandle[Any] = op(
    "SplitV(value: T, size_splits: Tlen, split_dim: int32) -> output: num_split * T;"
    " num_split: int >= 1; T: type; Tlen: {int32, int64} = DT_INT64",
    work="none",
    raw_names={"split_dim": "axis"},
)
_split_v.gradient(lambda node, *grads: [concat(list(grads), node.inputs[2]), None, None])


@_split.shape
def _split_shape(node: Operation) -> list[RawShape]:
    before, count = node.inputs[1].raw_shape, node.attrs["num_split"]
    value = constant_value(node.inputs[0])
    if before is None:
        return [None] * count
    if value is None:
        return [(None,) * len(before)] * count
    axis = check_axis(int(value.item()), len(before))
    size = before[axis]
    if size is not None and size % count:
        raise ValueError(
            f"Dimension size must be evenly divisible by {count} but is {size}"
            "\n\tNumber of ways to split should evenly divide the split dimension"
        )
    return [(*before[:axis], None if size is None else size // count, *before[axis + 1 :])] * count


@_split.kernel("CPU")
def _split_kernel(split_dim: Array, value: Array, *, num_split: int) -> tuple[Any, ...]:
    axis, rank = int(split_dim.item()), value.ndim
    if not -rank <= axis < rank:
        refuse(f"-input rank(-{rank}) <= split_dim < input rank ({rank}), but got {axis}")
    size = value.shape[axis]
    if size % num_split:
        refuse(
            "Number of ways to split should evenly divide the split dimension, but got split_dim"
            f" {axis % rank} (size = {size}) and num_split {num_split}"
        )
    return _cut(value, axis % rank, [size // num_split] * num_split)


def _cut(value: Array, axis: int, sizes: list[int]) -> tuple[Any, ...]:
    ends = list(accumulate(sizes))
    prefix = (slice(None),) * axis
    return tuple(value[(*prefix, slice(end - size, end))] for end, size in zip(ends, sizes))


@_split_v.shape
def _split_v_shape(node: Operation) -> list[RawShape]:
    before, count = node.inputs[0].raw_shape, node.attrs["num_split"]
    sizes, axis_value = constant_value(node.inputs[1]), constant_value(node.inputs[2])
    if before is None:
        return [None] * count
    if axis_value is None:
        return [(None,) * len(before)] * count
    axis = check_axis(int(axis_value.item()), len(before))
    if sizes is not None and len(sizes) != count:
        raise ValueError("Length of size_splits should be equal to num_outputs")
    known: list[int | None] = [None] * count if sizes is None else _sizes_of(sizes.tolist(), before[axis])
    return [(*before[:axis], size, *before[axis + 1 :]) for size in known]


def _sizes_of(sizes: list[int], total: int | None) -> list[int | None]:
    """The sizes with -1 replaced by the rest of ``total``."""
    for index, size in enumerate(sizes):
        if size < -1:
            raise ValueError(f"Split size at index {index} must be >= 0. Got: {size}")
    given = sum(s for s in sizes if s >= 0)
    fits = total is None or given == total or given < total and sizes.count(-1) == 1
    if sizes.count(-1) > 1 or not fits:
        raise ValueError(f"can't split axis of size {total} into pieces of size [{','.join(map(str, sizes))}]")
    return [s if s >= 0 else None if total is None else total - given for s in sizes]


@_split_v.kernel("CPU")
def _split_v_kernel(value: Array, size_splits: Array, split_dim: Array, *, num_split: int) -> tuple[Any, ...]:
    axis, rank = int(split_dim.item()), value.ndim
    if not -rank <= axis < rank:
        refuse(f"-input rank(-{rank}) <= split_dim < input rank ({rank}), but got {axis}")
    if len(size_splits) != num_split:
        refuse(
            "size of the split_tensor must be 1-D and have the same elements as outputs got"
            f" {size_splits.ndim} -D and {size_splits.size} elements"
        )
    try:
        sizes: Any = _sizes_of(size_splits.tolist(), value.shape[axis])
    except ValueError as error:
        if str(error).startswith("Split size"):
            refuse(str(error))
        total, given = value.shape[axis], int(size_splits.sum())
        raise InvalidArgumentError.of(
            "Determined shape must either match input shape along split_dim exactly if fully specified, or be"
            f" less than the size of the input along split_dim if not fully specified.  Got: {given} for size {total}"
        ) from None
    return _cut(value, axis % rank, sizes)


@export("tf.split")
def split(
    value: TensorLike, num_or_size_splits: Any, axis: AxisLike = 0, num: int | None = None, name: str = "split"
) -> list[Tensor]:
    """``value`` cut along ``axis`` (``tf.split``).

    Args:
      value: the tensor.
      num_or_size_splits: the number of equal pieces, or the size of each; one may be -1.
      axis: an int or int32 scalar.
      num: the number of pieces, if the sizes are a tensor of unknown length.
      name: of the op.

    Raises:
      ValueError: when the number of pieces is unknown or the sizes do not fit.
    """
    sizes_given = isinstance(num_or_size_splits, np.ndarray) and num_or_size_splits.ndim  # it has __index__ as well
    if hasattr(num_or_size_splits, "__index__") and not sizes_given:
        count_ops(1)  # the number as a tensor
        return list(_split(axis, value, num_split=int(num_or_size_splits), name=name))
    sizes = convert_to_tensor(num_or_size_splits)
    if sizes.raw_shape == ():
        raise ValueError(
            "Rank-0 tensors are not supported as the num_or_size_splits argument to split. Argument provided:"
            f" {num_or_size_splits}"
        )
    if num is None and sizes.raw_shape is not None:
        num = sizes.raw_shape[0]
    if num is None:
        raise ValueError("Cannot infer num from shape " + str(num_or_size_splits))
    return list(_split_v(value, sizes, axis, num_split=num, name=name))


# ---- ``tf.parallel_stack``: stacking along a new first axis where all shapes are known -----------------------------

parallel_concat_op = op("ParallelConcat(values: N * T) -> output: T; N: int >= 1; T: type; shape: shape")
parallel_concat_op.without_gradient()


@parallel_concat_op.shape
def _parallel_concat_shape(node: Operation) -> list[RawShape]:
    shape = node.attrs["shape"]
    if shape is None or None in shape:
        raise ValueError("shape attr must be fully defined")
    joined: RawShape = None
    for value in node.inputs:
        if value.raw_shape is None or None in value.raw_shape:
            raise ValueError("All input shapes must be fully defined.")
        if value.raw_shape[0] != 1:
            raise ValueError("Size of first dimension must be 1.")
        joined = merge_raw(joined, value.raw_shape)
    return [merge_raw((len(node.inputs), *(joined or ())[1:]), shape)]


@parallel_concat_op.kernel("CPU")
def _parallel_concat_kernel(values: list[Any], *, shape: tuple[int, ...]) -> Any:
    result = np.concatenate(values, 0)
    if result.shape != tuple(shape):
        refuse(f"Expected shape {format_raw(shape)}, got {format_raw(result.shape)}")
    return result


@export("tf.parallel_stack")
def parallel_stack(values: Any, name: str = "parallel_stack") -> Tensor:
    """Tensors of one known shape joined along a new first axis (``tf.parallel_stack``). Only `stack` has gradients."""
    with name_scope(name):
        first = convert_to_tensor(values[0])
        shape = (len(values), *first.shape.as_list())
        return parallel_concat_op([expand_dims(value, 0) for value in values], shape=shape)
