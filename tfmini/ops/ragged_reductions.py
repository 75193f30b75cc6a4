"""``tf.reduce_sum`` and the other reductions over the axes of a ragged tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import AxisLike, DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph.families import OpHandle, Tensor, convert_to_tensor, name_scope
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.gather import gather, scatter_nd
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.slicing import getitem
from tfmini.ops.math import reductions, segments
from tfmini.ops.math.broadcast import sum_op

_OF_SEGMENTS: dict[OpHandle, Callable[..., Any]] = {
    sum_op: segments.unsorted_segment_sum,
    reductions.prod_op: segments.unsorted_segment_prod,
    reductions.max_op: segments.unsorted_segment_max,
    reductions.min_op: segments.unsorted_segment_min,
}
_OF_BOOLS = {reductions.all_op: reductions.prod_op, reductions.any_op: sum_op}


def reduce_ragged(ragged: Any, handle: OpHandle, axis: AxisLike | None, keep: bool, name: str | None) -> Any:
    """A ragged tensor reduced over ``axis`` (None: all axes) by the op of a reduction.

    Empty rows give what the op gives for no elements: 0, 1, the dtype's extremes; their mean is NaN.

    Raises:
      ValueError: for ``keep``, and for axes that are not known when the graph is built.
      NotImplementedError: for an axis outside of another ragged one.
    """
    if keep:
        raise ValueError("keepdims=True is not supported for RaggedTensors.")
    if axis is None:
        return reductions.reduce(handle, ragged.flat_values, None, False, name)
    if handle is reductions.mean_op:
        return _mean(ragged, axis, name)
    with name_scope(name, "RaggedReduce", [ragged.row_splits]):
        for one in sorted(_axes(axis, ragged.shape.ndims), reverse=True):
            ragged = _over(ragged, handle, one)
        return ragged


def _mean(ragged: Any, axis: AxisLike, name: str | None) -> Any:
    """The sum over all these axes by the number of their elements."""
    with name_scope(name, "RaggedReduceMean", [ragged.row_splits]):
        ones = ragged.with_flat_values(array_filling.ones_like(ragged.flat_values))
        total, count = (reduce_ragged(part, sum_op, axis, False, None) for part in (ragged, ones))
        if isinstance(total, Tensor):
            return total / count
        return total.with_flat_values(total.flat_values / count.flat_values)


def _axes(axis: AxisLike, rank: int | None) -> list[int]:
    known = constant_value(axis) if isinstance(axis, Tensor) else np.asarray(axis)
    if known is None:
        raise ValueError("axis must be known at graph construction time.")
    axes = [int(one) for one in np.atleast_1d(known)]
    if any(one < 0 for one in axes) and rank is None:
        raise ValueError("axis may only be negative if ndims is statically known.")
    return [one + rank if one < 0 and rank is not None else one for one in axes]


def _over(ragged: Any, handle: OpHandle, axis: int) -> Any:
    """The reduction over one axis; after it fewer axes may be ragged, or none."""
    if isinstance(ragged, Tensor):
        return reductions.reduce(handle, ragged, axis, False, None)
    if axis > 1:
        return ragged.with_values(_over(ragged.values, handle, axis - 1))
    if not isinstance(ragged.values, Tensor):
        raise NotImplementedError(
            f"axis {axis} holds ragged rows: reduce over the innermost ragged axis first, or use to_tensor()."
        )
    if axis:
        ids, count = ragged.value_rowids(), ragged.nrows()
    else:
        ids, count = columns_of(ragged), longest_row(ragged)
    return _of_segments(handle, ragged.values, ids, count)


def _of_segments(handle: OpHandle, values: Tensor, ids: Tensor, count: Tensor) -> Tensor:
    if handle in _OF_BOOLS:
        return cast(_of_segments(_OF_BOOLS[handle], cast(values, dtypes.int32), ids, count), dtypes.bool)
    return _OF_SEGMENTS[handle](values, ids, count)  # type: ignore[no-any-return]


def longest_row(ragged: Any) -> Tensor:
    """The length of the longest row, 0 if there is no row."""
    lengths = ragged.row_lengths()
    return reductions.reduce_max(concat([lengths, constant([0], lengths.dtype.base_dtype)], 0))


def columns_of(ragged: Any) -> Tensor:
    """The position of each value in its row."""
    rowids = ragged.value_rowids()
    places = array_filling.range(array_shape.size(rowids, out_type=rowids.dtype.base_dtype))
    return places - gather(ragged.row_starts(), rowids)


# ---- row splits as the row of each value, and back ----------------------------------------------------------------


@export("tf.ragged.row_splits_to_segment_ids")
def row_splits_to_segment_ids(splits: TensorLike, name: str | None = None, out_type: DTypeLike | None = None) -> Tensor:
    """The row of each value: ``[0, 3, 3, 5]`` gives ``[0, 0, 0, 2, 2]`` (``tf.ragged.row_splits_to_segment_ids``).

    Args:
      splits: a sorted vector, int32 or int64, that begins with 0.
      name: of the scope.
      out_type: int32 or int64; default: that of ``splits``.

    Raises:
      ValueError: ``splits`` is empty, no vector, or of another dtype.
    """
    with name_scope(name, "RaggedSplitsToSegmentIds", [splits]):
        vector = _known_vector(splits)
        if vector.dtype.base_dtype not in (dtypes.int32, dtypes.int64):
            raise ValueError("splits must have dtype int32 or int64")
        if vector.shape.as_list() == [0]:
            raise ValueError("Invalid row_splits: []")
        return _as_index(rows_of(vector), out_type)


@export("tf.ragged.segment_ids_to_row_splits")
def segment_ids_to_row_splits(
    segment_ids: TensorLike, num_segments: TensorLike | None = None, out_type: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The row splits of values whose rows are known: ``[0, 0, 2]`` gives ``[0, 2, 2, 3]``.

    Args:
      segment_ids: a vector of whole numbers; values of one row stand together.
      num_segments: the number of rows; default: the greatest row and one.
      out_type: int32 or int64; default: that of ``segment_ids``, or int64.
      name: of the scope.

    Raises:
      ValueError: ``segment_ids`` is no vector.
      TypeError: they are no whole numbers.
    """
    with name_scope(name, "SegmentIdsToRaggedSplits", [segment_ids]):
        ids = _known_vector(segment_ids)
        if not ids.dtype.is_integer:
            raise TypeError(f"segment_ids must be an integer tensor; dtype={ids.dtype.base_dtype!r}")
        if ids.dtype.base_dtype not in (dtypes.int32, dtypes.int64):
            ids = cast(ids, dtypes.int64)
        ones = array_filling.ones_like(ids)
        empty = constant([-1], ids.dtype.base_dtype)
        rows = reductions.reduce_max(concat([empty, ids], 0)) + 1 if num_segments is None else num_segments
        lengths = segments.unsorted_segment_sum(ones, ids, cast(rows, ids.dtype.base_dtype))
        return _as_index(concat([empty + 1, reductions.cumsum(lengths)], 0), out_type)


def _known_vector(values: Any) -> Tensor:
    """A vector; whole numbers of Python become int64."""
    if not isinstance(values, Tensor):
        array = np.asarray(values)
        values = array.astype(np.int64) if array.dtype == np.int64 or not array.size else values
    tensor = convert_to_tensor(values)
    tensor.shape.assert_has_rank(1)
    return tensor


def _as_index(values: Tensor, out_type: DTypeLike | None) -> Tensor:
    return values if out_type is None else cast(values, out_type)


def rows_of(splits: Tensor) -> Tensor:
    """The row of each value between row splits."""
    inner = getitem(splits, slice(1, -1))
    count = array_shape.reshape(getitem(splits, -1), [1]) + 1
    places = array_shape.expand_dims(inner, -1)
    steps = scatter_nd(places, array_filling.ones_like(inner), cast(count, splits.dtype.base_dtype))
    return getitem(reductions.cumsum(steps), slice(None, -1))


def bounding_shape(ragged: Any, axis: TensorLike | None, name: str | None, out_type: DTypeLike | None) -> Tensor:
    """The smallest dense shape that holds a ragged tensor, or its sizes at ``axis``; by default of the splits' type."""
    with name_scope(name, "RaggedBoundingBox", [ragged.row_splits]):
        sizes, inner = [ragged.nrows()], ragged
        while not isinstance(inner, Tensor):
            sizes.append(longest_row(inner))
            inner = inner.values
        uniform = getitem(array_shape.shape(inner, out_type=sizes[0].dtype.base_dtype), slice(1, None))
        found = cast(concat([stack(sizes), uniform], 0), out_type or sizes[0].dtype.base_dtype)
        return found if axis is None else gather(found, axis)
