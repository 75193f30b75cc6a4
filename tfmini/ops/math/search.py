"""Order and search: sorted bounds, sort, histograms, buckets, unique slices along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, name_scope, op, sized
from tfmini.machine_memory import check_room
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.casting import cast
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.joining import concat
from tfmini.ops.array.kernel_arguments import as_ndarray, refuse
from tfmini.ops.array.slicing import getitem
from tfmini.ops.array.transpose import transpose
from tfmini.ops.math.clip import clip_by_value
from tfmini.ops.math.topk import top_k
from tfmini.ops.math.unary import floor
from tfmini.shapes import RawShape, with_rank

_BOUND = "(sorted_inputs: T, values: T) -> output: out_type; T: type; out_type: {int32, int64} = DT_INT32"
_IDX = "Taxis: {int32, int64} = DT_INT64; out_idx: {int32, int64} = DT_INT32"
lower_bound_op = op("LowerBound" + _BOUND)
lower_bound_op.kernel("CPU")(lambda sequence, values, *, out_type: _bounds("left", sequence, values, out_type))
upper_bound_op = op("UpperBound" + _BOUND)
all_of(lower_bound_op, upper_bound_op).shape(sized("n _, n values -> n values"))
upper_bound_op.kernel("CPU")(lambda sequence, values, *, out_type: _bounds("right", sequence, values, out_type))
unique_v2_op: OpHandle[Any] = op(f"UniqueV2(x: T, axis: Taxis) -> y: T, idx: out_idx; T: type; {_IDX}")
unique_counts_v2_op: OpHandle[Any] = op(
    f"UniqueWithCountsV2(x: T, axis: Taxis) -> y: T, idx: out_idx, count: out_idx; T: type; {_IDX}"
)
histogram_op = op(
    "HistogramFixedWidth(values: T, value_range: T, nbins: int32) -> out: dtype; T: {int32, int64, float, double};"
    " dtype: {int32, int64} = DT_INT32"
)
bucketize_op = op("Bucketize(input: T) -> output: int32; T: {int32, int64, float, double}; boundaries: list(float)")
for _handle in (lower_bound_op, upper_bound_op, unique_v2_op, unique_counts_v2_op, histogram_op, bucketize_op):
    _handle.not_differentiable()


# ---- sorted bounds --------------------------------------------------------------------------


def _bounds(side: str, sequence: Any, values: Any, out_type: dtypes.DType) -> Any:
    if sequence.ndim != 2 or values.ndim != 2:
        refuse(f"sorted_inputs and values must be matrices, got {list(sequence.shape)} and {list(values.shape)}")
    if sequence.shape[0] != values.shape[0]:
        refuse("Leading dim_size of both tensors must match.")
    if out_type is dtypes.int32 and sequence.shape[1] > np.iinfo(np.int32).max:
        refuse("values tensor size must less than INT_MAX")
    found = np.empty(values.shape, out_type.numpy)
    for row, (have, want) in enumerate(zip(sequence, values)):
        found[row] = np.searchsorted(have, want, side)  # type: ignore[call-overload]
    return found


# ---- unique ---------------------------------------------------------------------------------


@all_of(unique_v2_op, unique_counts_v2_op).shape
def _unique_shape(node: Operation) -> list[RawShape]:
    x, axis = node.inputs[0].raw_shape, constant_value(node.inputs[1])
    y: RawShape = None
    count: int | None = None
    if x is not None and axis is not None:
        at = int(axis[0]) % len(x) if axis.size else 0
        y = tuple(None if i == at else size for i, size in enumerate(x))
        count = x[at]
    return [y, (count,), (None,)][: len(node.op_def.outputs)]


def _unique(x: Any, axis: Any) -> tuple[Any, Any, Any]:
    """Distinct slices in order of first appearance, the position of each slice among them, and their counts."""
    axis = np.ravel(axis)
    if axis.size > 1:
        refuse(f"axis does not support input tensors larger than 1 elements, got {axis.size}")
    if not axis.size and x.ndim != 1:
        refuse("unique expects a 1D vector.")
    at = int(axis[0]) if axis.size else 0
    if not -x.ndim <= at < x.ndim:
        refuse(f"axis has to be between [0, {x.ndim})")
    rows = np.moveaxis(x, at, 0)
    flat = rows.reshape(rows.shape[0], -1)
    keys = flat[:, 0] if flat.shape[1] == 1 else np.unique(flat, axis=0, return_inverse=True)[1].reshape(-1)
    _, first, numbers, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return np.moveaxis(rows[first[order]], 0, at), place[numbers.reshape(-1)], counts[order]


@unique_v2_op.kernel("CPU")
def _unique_kernel(x: Any, axis: Any, *, out_idx: dtypes.DType) -> tuple[Any, ...]:
    values, numbers, _ = _unique(x, axis)
    return values, numbers.astype(out_idx.numpy)


@unique_counts_v2_op.kernel("CPU")
def _unique_counts_kernel(x: Any, axis: Any, *, out_idx: dtypes.DType) -> tuple[Any, ...]:
    values, numbers, counts = _unique(x, axis)
    return values, numbers.astype(out_idx.numpy), counts.astype(out_idx.numpy)


# ---- histograms -----------------------------------------------------------------------------


@histogram_op.shape
def _histogram_shape(node: Operation) -> list[RawShape]:
    ends = with_rank(node.inputs[1].raw_shape, 1)[0]
    if ends not in (2, None):
        raise ValueError(f"Dimension must be 2 but is {ends}")
    with_rank(node.inputs[2].raw_shape, 0)
    bins = constant_value(node.inputs[2])
    if bins is not None and int(bins) <= 0:
        raise ValueError(f"Requires nbins > 0: {int(bins)}")
    return [(None if bins is None else int(bins),)]


def _bins(values: Any, low: Any, high: Any, count: int) -> Any:
    step = (float(high) - float(low)) / count
    return np.clip(np.floor((values.astype(np.float64) - float(low)) / step), 0, count - 1).astype(np.int64)


@histogram_op.kernel("CPU")
def _histogram_kernel(values: Any, value_range: Any, nbins: Any, *, dtype: dtypes.DType) -> Any:
    if np.shape(value_range) != (2,):
        refuse(f"value_range should be a vector of 2 elements, got shape {list(np.shape(value_range))}")
    low, high = value_range
    if not low < high:
        refuse(f"value_range should satisfy value_range[0] < value_range[1], but got '[{low:g}, {high:g}]'")
    if np.isnan(values).any():
        refuse("Histogram values must not contain NaN")
    if int(nbins) <= 0:
        refuse(f"nbins should be a positive number, but got '{int(nbins)}'")
    check_room((int(nbins),), 8)
    found = _bins(np.ravel(values), low, high, int(nbins))
    return np.bincount(found, minlength=int(nbins)).astype(dtype.numpy)


@bucketize_op.shape
def _bucketize_shape(node: Operation) -> list[RawShape]:
    bounds = node.attrs["boundaries"]
    if sorted(bounds) != list(bounds):
        raise ValueError("Expected sorted boundaries")
    return [node.inputs[0].raw_shape]


@bucketize_op.kernel("CPU")
def _bucketize_kernel(values: Any, *, boundaries: list[float]) -> Any:
    found = np.searchsorted(np.array(boundaries, np.float32), as_ndarray(values), "right")
    return np.asarray(found, np.int32)


# ---- public functions -----------------------------------------------------------------------


@export("tf.searchsorted")
def searchsorted(
    sorted_sequence: Any, values: Any, side: str = "left", out_type: Any = dtypes.int32, name: str | None = None
) -> Tensor:
    """The positions at which values would be inserted in sorted rows (``tf.searchsorted``).

    Args:
      sorted_sequence: rows sorted along the last axis.
      values: of the same leading axes.
      side: ``"left"`` or ``"right"`` of equal elements.
      out_type: int32 or int64.
      name: of the scope.
    """
    handle = {"left": lower_bound_op, "right": upper_bound_op}.get(side)
    if handle is None:
        raise ValueError(f"side must be either 'right' or 'left'.  Saw: {side}.")
    with name_scope(name, "searchsorted", [sorted_sequence, values]):
        sequence = convert_to_tensor(sorted_sequence)
        values = convert_to_tensor(values)
        length = getitem(array_shape.shape(sequence), -1)
        rows = array_shape.reshape(sequence, concat([[-1], array_shape.reshape(length, [1])], 0))
        count = getitem(array_shape.shape(values), -1)
        wanted = array_shape.reshape(values, concat([[-1], array_shape.reshape(count, [1])], 0))
        found = handle(rows, wanted, out_type=dtypes.as_dtype(out_type))
        return array_shape.reshape(found, array_shape.shape(values))


@export("tf.sort")
def sort(values: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """Sorts along an axis (``tf.sort``)."""
    with name_scope(name, "sort"):
        return _sorted(values, axis, direction, positions=False)


@export("tf.argsort")
def argsort(
    values: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False, name: str | None = None
) -> Tensor:
    """The int32 positions that sort along an axis; equal elements keep their order (``tf.argsort``)."""
    with name_scope(name, "argsort"):
        return _sorted(values, axis, direction, positions=True)


def _sorted(values: Any, axis: int, direction: str, positions: bool) -> Tensor:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"{direction} should be one of: ASCENDING, DESCENDING")
    values = convert_to_tensor(values, name="values")
    rank = values.shape.ndims
    if rank is None and axis != -1:
        raise ValueError("sort along another axis than the last needs a tensor of known rank")
    if rank is not None and not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is not in [{-rank}, {rank})")
    order = None
    if rank is not None and axis % rank != rank - 1:
        order = list(range(rank))
        order[axis], order[-1] = order[-1], order[axis]
        values = transpose(values, order)
    found = _last_axis_sorted(values, direction == "ASCENDING", positions)
    return found if order is None else transpose(found, order)


def _last_axis_sorted(values: Tensor, ascending: bool, positions: bool) -> Tensor:
    count = getitem(array_shape.shape(values), -1)
    dtype = values.dtype.base_dtype
    if not ascending:
        return top_k(values, count)[int(positions)]  # type: ignore[no-any-return]
    if dtype.is_unsigned:
        # Mirrored instead of negated, because unsigned integers have no negative numbers.
        mirrored = dtype.max - values
        found = top_k(mirrored, count)
        return found[1] if positions else dtype.max - found[0]  # type: ignore[no-any-return]
    if dtype.is_integer:
        found = top_k(-values - 1, count)  # The lowest integer cannot be negated.
        return found[1] if positions else -(found[0] + 1)  # type: ignore[no-any-return]
    found = top_k(-values, count)
    return found[1] if positions else -found[0]  # type: ignore[no-any-return]


@export("tf.histogram_fixed_width")
def histogram_fixed_width(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = dtypes.int32, name: str | None = None
) -> Tensor:
    """The numbers of values in ``nbins`` equal parts of a range (``tf.histogram_fixed_width``)."""
    with name_scope(name, "histogram_fixed_width", [values, value_range, nbins]) as scope:
        return histogram_op(values, value_range, nbins, dtype=dtypes.as_dtype(dtype), name=scope)


@export("tf.histogram_fixed_width_bins")
def histogram_fixed_width_bins(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = dtypes.int32, name: str | None = None
) -> Tensor:
    """The number of the part of the range that contains each value (``tf.histogram_fixed_width_bins``)."""
    with name_scope(name, "histogram_fixed_width_bins", [values, value_range, nbins]):
        values = convert_to_tensor(values, name="values")
        shape = array_shape.shape(values)
        flat = array_shape.reshape(values, [-1])
        bounds = convert_to_tensor(value_range, values.dtype.base_dtype, name="value_range")
        wide = dtypes.float64
        low, high = (cast(getitem(bounds, i), wide) for i in (0, 1))
        count = cast(convert_to_tensor(nbins, dtypes.int32, name="nbins"), wide)
        place = floor((cast(flat, wide) - low) / (high - low) * count)
        inside = clip_by_value(place, cast(0.0, wide), count - cast(1.0, wide))
        return array_shape.reshape(cast(inside, dtypes.as_dtype(dtype)), shape)
