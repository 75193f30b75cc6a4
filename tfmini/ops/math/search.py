"""Order and search: sorted bounds, sort, histograms, buckets, unique slices along an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, name_scope, op, sized
from tfmini.graph.node import Node
from tfmini.memory import check_room
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import range as number_range
from tfmini.ops.array.gather import gather, scatter_nd
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.kernel_arguments import as_ndarray, refuse
from tfmini.ops.array.layout import transpose
from tfmini.ops.array.shape import expand_dims, rank, reshape, shape, size
from tfmini.ops.array.slicing import getitem
from tfmini.ops.math.broadcast import sum_op
from tfmini.ops.math.comparison import equal
from tfmini.ops.math.elementwise import add, div, floordiv, multiply, subtract
from tfmini.ops.math.sums import clip_by_value
from tfmini.ops.math.unary import floor
from tfmini.shapes import RawShape, at_least_rank, with_rank

# ---- The largest elements: ``TopKV2``, ``InTopKV2``, ``NthElement`` ------------------------------------------------

top_k_op: OpHandle[Any] = op(
    "TopKV2(input: T, k: int32) -> values: T, indices: int32; sorted: bool = true; T: realnumbertype",
    hints=("Tk", "index_type"),  # TensorFlow 2 has indices of other types
)
in_top_k_op = op("InTopKV2(predictions: float, targets: T, k: T) -> precision: bool; T: {int32, int64} = DT_INT32")
in_top_k_op.not_differentiable()
in_top_k_v1_op = op(
    "InTopK(predictions: float, targets: T) -> precision: bool; k: int; T: {int32, int64} = DT_INT32",
    differentiable=False,
)
all_of(in_top_k_op, in_top_k_v1_op).shape(sized("n _, n -> n"))
nth_element_op = op("NthElement(input: T, n: int32) -> values: T; reverse: bool = false; T: realnumbertype")


@top_k_op.shape
def _top_k_shape(node: Operation) -> list[RawShape]:
    static = node.inputs[0].raw_shape
    if static is None:
        return [None, None]
    if not static:
        raise ValueError("input must have rank >= 1 but is rank 0")
    k = constant_value(node.inputs[1])
    if k is not None and int(k) < 0:
        raise ValueError(f"Need k >= 0, got {int(k)}")
    if k is not None and static[-1] is not None and static[-1] < int(k):
        raise ValueError(f"input must have last dimension >= k = {int(k)} but is {static[-1]}")
    result = static[:-1] + (None if k is None else int(k),)
    return [result, result]


@nth_element_op.shape
def _nth_shape(node: Operation) -> list[RawShape]:
    static, place = node.inputs[0].raw_shape, node.inputs[1].raw_shape
    if place:
        raise ValueError(f"Dimension size, given by scalar input 1 must be a scalar but has rank {len(place)}")
    if static is None:
        return [None]
    at_least_rank(static, 1)
    n = constant_value(node.inputs[1])
    if n is not None and int(n) < 0:
        raise ValueError(f"Dimension size, given by scalar input 1, must be non-negative but is {int(n)}")
    if n is not None and static[-1] is not None and static[-1] <= int(n):
        raise ValueError(f"Input must have last dimension > n = {int(n)} but is {static[-1]}")
    return [static[:-1]]


@top_k_op.kernel("CPU")
def _top_k(values: Array, k: Array) -> tuple[Array, Array]:
    count = int(k)
    if count < 0:
        refuse(f"Need k >= 0, got {count}")
    if values.ndim < 1:
        refuse("input must be >= 1-D, got shape []")
    if values.shape[-1] < count:
        refuse(f"input must have at least k columns. Had {values.shape[-1]}, needed {count}")
    width = values.shape[-1]
    if count == 1:
        best = values.argmax(axis=-1)[..., None]
    elif 1 < count < width // 2 and values.size == width:
        least = np.partition(values.reshape(-1), width - count)[width - count]
        few = np.flatnonzero(~(values.reshape(-1) < least))  # also those that are no number, as in a sort
        best = few[_descending(values.reshape(-1)[few], count)].reshape(*values.shape[:-1], count)
    else:
        best = _descending(values, count)
    return np.take_along_axis(values, best, axis=-1), best.astype(np.int32)


def _descending(values: Array, count: int) -> Array:
    """The places of the largest elements of each row, with the lower one first among equal elements."""
    # A stable sort of the reversed rows, reversed.
    best: Array = values.shape[-1] - 1 - np.argsort(values[..., ::-1], axis=-1, kind="stable")[..., ::-1][..., :count]
    return best


def _in_top_k(predictions: Array, targets: Array, k: Array) -> Array:
    """Whether fewer than ``k`` classes have higher scores than the target; false where the scores are not finite."""
    if predictions.ndim != 2 or targets.ndim != 1:
        shapes = f"{list(predictions.shape)} and {list(targets.shape)}"
        refuse(f"predictions must be 2-dimensional and targets 1-dimensional, got {shapes}")
    if predictions.shape[0] != targets.shape[0]:
        refuse(f"First dimension of predictions {predictions.shape[0]} must match length of targets {targets.shape[0]}")
    classes = predictions.shape[1]
    valid = (targets >= 0) & (targets < classes)
    score = predictions[np.arange(targets.shape[0]), np.where(valid, targets, 0)][:, None]
    valid &= np.isfinite(score[:, 0])
    better = (predictions > score).sum(axis=1)
    # A score that is not finite makes the row's order undefined.
    valid &= np.isfinite(predictions).all(axis=1)
    hits: Array = valid & (better < k)
    return hits


in_top_k_op.kernel("CPU")(_in_top_k)


@in_top_k_v1_op.kernel_factory("CPU")
def _in_top_k_factory(node: Node) -> Any:
    k = node.attrs["k"]
    return lambda predictions, targets: _in_top_k(predictions, targets, k)


@nth_element_op.kernel_factory("CPU")
def _nth_factory(node: Node) -> Any:
    reverse = node.attrs["reverse"]

    def nth(values: Array, n: Array) -> Array:
        if not values.ndim:
            refuse(f"Input must be >= 1-D, got shape {values.shape}")
        if n < 0:
            refuse(f"Need n >= 0, got {int(n)}")
        position, width = int(n), values.shape[-1]
        if not 0 <= position < width:
            refuse(f"Input must have at least n+1 columns. Had {width}, needed {position + 1}")
        if reverse:
            position = width - 1 - position
        return np.partition(values, position, axis=-1)[..., position]

    return nth


@top_k_op.gradient
def _top_k_gradient(node: Operation, grad: Tensor, _: Tensor | None) -> list[Any]:
    """Scatters the gradient to the positions of the values, on flattened rows."""
    values, indices = node.inputs[0], node.outputs[1]
    sizes, count = shape(values), size(values)
    width = gather(sizes, subtract(rank(values), 1))
    lines = reshape(indices, [-1, gather(shape(indices), subtract(rank(indices), 1))])
    starts = multiply(number_range(floordiv(count, width)), width)
    places = reshape(add(lines, expand_dims(starts, -1)), [-1])
    flat = scatter_nd(expand_dims(places, -1), reshape(grad, [-1]), reshape(count, [1]))
    return [reshape(flat, sizes), None]


@nth_element_op.gradient
def _nth_gradient(node: Operation, grad: Tensor) -> list[Any]:
    """The gradient is shared by all elements that equal the selected one."""
    values = node.inputs[0]
    chosen = cast(equal(expand_dims(node.outputs[0], -1), values), grad.dtype.base_dtype)
    shares = div(expand_dims(grad, -1), sum_op(chosen, [-1], keep_dims=True))
    return [multiply(shares, chosen), None]


@export("tf.math.top_k", "tf.nn.top_k")
def top_k(input: TensorLike, k: TensorLike = 1, sorted: bool = True, name: str | None = None) -> Any:
    """Values and int32 indices of the ``k`` largest elements of each row (``tf.nn.top_k``, ``tf.math.top_k``)."""
    return top_k_op(input, k, sorted=sorted, name=name)


@export("tf.math.in_top_k", "tf.nn.in_top_k")
def in_top_k(predictions: TensorLike, targets: TensorLike, k: TensorLike, name: str | None = None) -> Tensor:
    """Whether the target is among the ``k`` best predictions of each row (``tf.nn.in_top_k``).

    Args:
      predictions: float32, [batch, classes].
      targets: int classes, [batch].
      k: an int.
      name: of the op.

    Returns:
      Bools, [batch].
    """
    with name_scope(name, "in_top_k") as scope:
        return in_top_k_op(predictions, targets, k, name=scope)


@export("tf.contrib.nn.nth_element")
def nth_element(input: TensorLike, n: TensorLike, reverse: bool = False, name: str | None = None) -> Tensor:
    """The ``n``-th smallest (or largest) element of each row."""
    return nth_element_op(input, n, reverse=reverse, name=name)


# ---- Declarations of bounds, histograms, buckets and unique slices -------------------------------------------------

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
all_of(lower_bound_op, upper_bound_op, histogram_op, bucketize_op).not_differentiable()
all_of(unique_v2_op, unique_counts_v2_op).without_gradient()


# ---- sorted bounds --------------------------------------------------------------------------


def _bounds(side: str, sequence: Array, values: Array, out_type: dtypes.DType) -> Any:
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
    return [y, (count,), (None,)][: len(node.handle.op_def.outputs)]


def _unique(x: Array, axis: Array) -> tuple[Any, Any, Any]:
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
    keys = _row_keys(rows.reshape(rows.shape[0], math.prod(rows.shape[1:])))
    _, first, numbers, counts = np.unique(keys, True, True, True, equal_nan=False)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return np.moveaxis(rows[first[order]], 0, at), place[numbers.reshape(-1)], counts[order]


def _row_keys(rows: Array) -> Any:
    """A key for each row: equal rows have equal ones."""
    if rows.shape[1] == 1:
        return rows[:, 0]
    if not rows.size:
        return np.zeros(rows.shape[0], np.intp)
    if rows.dtype == object:
        keys: dict[tuple[Any, ...], int] = {}
        return np.array([keys.setdefault(tuple(row), len(keys)) for row in rows.tolist()])
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)


@unique_v2_op.kernel("CPU")
def _unique_kernel(x: Array, axis: Array, *, out_idx: dtypes.DType) -> tuple[Any, ...]:
    values, numbers, _ = _unique(x, axis)
    return values, numbers.astype(out_idx.numpy)


@unique_counts_v2_op.kernel("CPU")
def _unique_counts_kernel(x: Array, axis: Array, *, out_idx: dtypes.DType) -> tuple[Any, ...]:
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


def _bins(values: Array, low: Array, high: Array, count: int) -> Any:
    step = (float(high) - float(low)) / count
    return np.clip(np.floor((values.astype(np.float64) - float(low)) / step), 0, count - 1).astype(np.int64)


@histogram_op.kernel("CPU")
def _histogram_kernel(values: Array, value_range: Array, nbins: Array, *, dtype: dtypes.DType) -> Any:
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
def _bucketize_kernel(values: Array, *, boundaries: list[float]) -> Any:
    found = np.searchsorted(np.array(boundaries, np.float32), as_ndarray(values), "right")
    return np.asarray(found, np.int32)


# ---- public functions -----------------------------------------------------------------------


@export("tf.searchsorted")
def searchsorted(
    sorted_sequence: TensorLike, values: TensorLike, side: str = "left", out_type: DTypeLike = dtypes.int32,
    name: str | None = None,
) -> Tensor:  # fmt: skip
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
        found = handle(rows, wanted, out_type=out_type)
        return array_shape.reshape(found, array_shape.shape(values))


@export("tf.sort", "tf.contrib.framework.sort")
def sort(values: TensorLike, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """Sorts along an axis (``tf.sort``)."""
    with name_scope(name, "sort"):
        return _sorted(values, axis, direction, positions=False)


@export("tf.argsort", "tf.contrib.framework.argsort")
def argsort(
    values: TensorLike, axis: int = -1, direction: str = "ASCENDING", stable: bool = False, name: str | None = None
) -> Tensor:
    """The int32 positions that sort along an axis; equal elements keep their order (``tf.argsort``)."""
    with name_scope(name, "argsort"):
        return _sorted(values, axis, direction, positions=True)


def _sorted(values: TensorLike, axis: int, direction: str, positions: bool) -> Tensor:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"{direction} should be one of: ASCENDING, DESCENDING")
    values = convert_to_tensor(values, name="values")
    rank = values.shape.ndims
    if rank is None and axis != -1:
        raise ValueError("sort along another axis than the last needs a tensor of known rank")
    if rank is not None and not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is not in [{-rank}, {rank})")
    order: Any = None
    if rank is not None and axis % rank != rank - 1:
        order = list(range(rank))
        order[axis], order[-1] = order[-1], order[axis]
        order = constant(order, dtypes.int32, name="transposition")
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
    values: TensorLike, value_range: TensorLike, nbins: TensorLike = 100, dtype: DTypeLike = dtypes.int32,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The numbers of values in ``nbins`` equal parts of a range (``tf.histogram_fixed_width``)."""
    with name_scope(name, "histogram_fixed_width", [values, value_range, nbins]) as scope:
        return histogram_op(values, value_range, nbins, dtype=dtypes.as_dtype(dtype), name=scope)


@export("tf.histogram_fixed_width_bins")
def histogram_fixed_width_bins(
    values: TensorLike, value_range: TensorLike, nbins: TensorLike = 100, dtype: DTypeLike = dtypes.int32,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The number of the part of the range that contains each value (``tf.histogram_fixed_width_bins``), as int32.

    Args:
      dtype: without effect, as in TensorFlow 1.15.
    """
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
        return array_shape.reshape(cast(inside, dtypes.int32), shape)
