"""Splits tensors along an axis: into equal pieces, or into pieces of given sizes."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from tfmini.errors import InvalidArgumentError
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, convert_to_tensor, op
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.joining import concat
from tfmini.ops.array.kernel_arguments import check_axis, refuse
from tfmini.shapes import RawShape

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
def _split_kernel(split_dim: Any, value: Any, *, num_split: int) -> tuple[Any, ...]:
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


def _cut(value: Any, axis: int, sizes: list[int]) -> tuple[Any, ...]:
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
def _split_v_kernel(value: Any, size_splits: Any, split_dim: Any, *, num_split: int) -> tuple[Any, ...]:
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
    value: Any, num_or_size_splits: Any, axis: Any = 0, num: int | None = None, name: str = "split"
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
    if isinstance(num_or_size_splits, (int, np.integer)) or hasattr(num_or_size_splits, "__index__"):
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
