"""Partitions a tensor by partition numbers, and the inverse: ``tf.dynamic_partition``, ``tf.dynamic_stitch``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, AxisLike, DTypeLike, SizesLike, TensorLike
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, name_scope, op, sized
from tfmini.numerics.update_rules import any_outside, first_positions
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import range as range_op
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.kernel_arguments import as_element, as_ndarray, filled, refuse, zero_of
from tfmini.ops.array.shape import expand_dims, reshape, shape, size, squeeze
from tfmini.shapes import RawShape, compatible_raw, format_raw, merge_raw, with_rank

_partition: OpHandle[Any] = op(
    "DynamicPartition(data: T, partitions: int32) -> outputs: num_partitions * T; num_partitions: int >= 1; T: type",
    work="none",
)  # fmt: skip
_stitch = op("DynamicStitch(indices: N * int32, data: N * T) -> merged: T; N: int >= 1; T: type", work="none")
_parallel_stitch = op(
    "ParallelDynamicStitch(indices: N * int32, data: N * T) -> merged: T; N: int >= 1; T: type", work="none"
)


@_partition.shape
def _partition_shape(node: Operation) -> list[RawShape]:
    data, parts = node.inputs[0].raw_shape, node.inputs[1].raw_shape
    count = node.attrs["num_partitions"]
    if data is None or parts is None:
        return [None] * count
    merge_raw(data[: len(parts)], parts)
    return [(None, *data[len(parts) :])] * count


@_partition.kernel("CPU")
def _partition_kernel(data: Array, partitions: Array, *, num_partitions: int) -> tuple[Any, ...]:
    rank = partitions.ndim
    if data.shape[:rank] != partitions.shape:
        refuse(
            f"data.shape must start with partitions.shape, got data.shape = {format_raw(data.shape)},"
            f" partitions.shape = {format_raw(partitions.shape)}"
        )
    outside = (partitions < 0) | (partitions >= num_partitions)
    if outside.any():
        row = np.argwhere(outside)[0]
        where = f"[{','.join(map(str, row))}]" if rank else ""
        refuse(f"partitions{where} = {as_ndarray(partitions)[tuple(row)]} is not in [0, {num_partitions})")
    return tuple(data[partitions == i] for i in range(num_partitions))


@_partition.gradient
def _partition_gradient(node: Operation, *grads: Tensor) -> list[Any]:
    data, partitions = node.inputs
    prefix = shape(partitions)
    order = reshape(range_op(size(partitions)), prefix)
    places = dynamic_partition(order, partitions, node.attrs["num_partitions"])
    return [reshape(dynamic_stitch(places, list(grads)), shape(data)), None]


@all_of(_stitch, _parallel_stitch).shape
def _stitch_shape(node: Operation) -> list[RawShape]:
    count = node.attrs["N"]
    rest: RawShape = None
    highest: int | None = -1
    for indices, data in zip(node.inputs[:count], node.inputs[count:]):
        value = constant_value(indices)
        if value is None:
            highest = None
        elif highest is not None and value.size:
            highest = max(highest, int(value.max()))
        if indices.raw_shape is None or data.raw_shape is None:
            continue
        merge_raw(data.raw_shape[: len(indices.raw_shape)], indices.raw_shape)
        rest = merge_raw(rest, data.raw_shape[len(indices.raw_shape) :])
    return [None if rest is None else (None if highest is None else highest + 1, *rest)]


@all_of(_stitch, _parallel_stitch).kernel("CPU")
def _stitch_kernel(indices: list[Any], data: list[Any]) -> Any:
    values = [as_ndarray(d) for d in data]
    rest = values[0].shape[indices[0].ndim :]
    highest = max((int(i.max()) for i in indices if i.size), default=-1)
    if any(i.size and i.min() < 0 for i in indices):
        refuse("indices of DynamicStitch must not be negative")
    result = filled((highest + 1, *rest), zero_of(values[0].dtype), values[0].dtype)
    for position, value in zip(indices, values):
        if value.shape[: position.ndim] != position.shape or value.shape[position.ndim :] != rest:
            refuse(
                f"data.shape {format_raw(value.shape)} does not start with indices.shape {format_raw(position.shape)}"
            )
        result[position] = as_element(value)
    return result


@all_of(_stitch, _parallel_stitch).gradient
def _stitch_gradient(node: Operation, grad: Tensor) -> list[Any]:
    count = node.attrs["N"]
    return [None] * count + [gather(grad, indices) for indices in node.inputs[:count]]


# ---- Public functions of partition and stitch ----------------------------------------------------------------------


@export("tf.dynamic_partition")
def dynamic_partition(
    data: TensorLike, partitions: TensorLike, num_partitions: int, name: str | None = None
) -> list[Tensor]:
    """``data`` divided into ``num_partitions`` tensors by partition numbers (``tf.dynamic_partition``)."""
    return list(_partition(data, partitions, num_partitions=num_partitions, name=name))


@export("tf.dynamic_stitch")
def dynamic_stitch(indices: TensorLike, data: TensorLike, name: str | None = None) -> Tensor:
    """``merged[indices[m][i]] = data[m][i]`` (``tf.dynamic_stitch``); later values win."""
    return _stitch(indices, data, name=name)


def parallel_dynamic_stitch(indices: TensorLike, data: TensorLike, name: str | None = None) -> Tensor:
    """`dynamic_stitch` whose indices must not repeat (``tf.raw_ops.ParallelDynamicStitch``)."""
    return _parallel_stitch(indices, data, name=name)


# ---- Index vectors and sets: unique, setdiff1d, one_hot, invert_permutation, unravel_index -------------------------

_IDX = "out_idx: {int32, int64} = DT_INT32"
_unique: OpHandle[Any] = op(
    f"Unique(x: T) -> y: T, idx: out_idx; T: type; {_IDX}",
    aggregates=True,
    distinct=True,
    work="none",
    differentiable=None,
)
_unique_counts: OpHandle[Any] = op(
    f"UniqueWithCounts(x: T) -> y: T, idx: out_idx, count: out_idx; T: type; {_IDX}",
    distinct=True,
    differentiable=None,
)
_list_diff: OpHandle[Any] = op(f"ListDiff(x: T, y: T) -> out: T, idx: out_idx; T: type; {_IDX}", differentiable=None)
_list_diff.shape(sized("_, _ -> _, _"))
_one_hot = op(
    "OneHot(indices: TI, depth: int32, on_value: T, off_value: T) -> output: T; axis: int = -1; T: type;"
    " TI: {uint8, int32, int64} = DT_INT64",
    differentiable=False,
)
_invert = op("InvertPermutation(x: T) -> y: T; T: {int32, int64} = DT_INT32", differentiable=False)
_invert.shape(lambda node: [with_rank(node.inputs[0].raw_shape, 1)])
_unravel = op(
    "UnravelIndex(indices: Tidx, dims: Tidx) -> output: Tidx; Tidx: {int32, int64} = DT_INT32", differentiable=False
)


@all_of(_unique, _unique_counts).shape
def _unique_shape(node: Operation) -> list[RawShape]:
    length: RawShape = with_rank(node.inputs[0].raw_shape, 1)
    return [(None,), length, (None,)][: 2 if node.type == "Unique" else 3]


# Integers below this, or below four times their number, are found in a table instead of sorted.
TABLE_SIZE = 1 << 17
# Up to so many elements a dict of Python is quicker than some calls of NumPy.
_SHORT = 64


def _first_seen(x: Array) -> tuple[Any, Any]:
    """Distinct elements in order of first appearance, and the position of each element among them."""
    if x.size <= _SHORT or x.dtype == object:
        places: dict[Any, int] = {}
        numbers = [places.setdefault(element, len(places)) for element in x.tolist()]
        return np.array(list(places), x.dtype), np.array(numbers, np.intp)
    if x.dtype.kind in "iu" and x.size and x.min() >= 0 and (most := int(x.max())) < max(TABLE_SIZE, 4 * x.size):
        seen = first_positions(x, most + 1)
        is_first = seen == np.arange(x.size)
        return x[is_first], (is_first.cumsum() - 1)[seen]
    values, first, ranks = np.unique(x, return_index=True, return_inverse=True, equal_nan=False)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return values[order], place[ranks.reshape(-1)]


@_unique.kernel("CPU")
def _unique_kernel(x: Array, *, out_idx: dtypes.DType) -> tuple[Any, ...]:
    if x.ndim != 1:
        refuse("unique expects a 1D vector.")
    values, numbers = _first_seen(x)
    return values, numbers.astype(out_idx.numpy)


@_unique_counts.kernel("CPU")
def _unique_counts_kernel(x: Array, *, out_idx: dtypes.DType) -> tuple[Any, ...]:
    if x.ndim != 1:
        refuse("unique expects a 1D vector.")
    values, numbers = _first_seen(x)
    counts = np.bincount(numbers, minlength=len(values))
    return values, numbers.astype(out_idx.numpy), counts.astype(out_idx.numpy)


@_list_diff.kernel("CPU")
def _list_diff_kernel(x: Array, y: Array, *, out_idx: dtypes.DType) -> tuple[Any, ...]:
    for name, value in (("x", x), ("y", y)):
        if np.ndim(value) != 1:
            refuse(f"{name} should be a 1D vector.")
    kept = np.flatnonzero(~np.isin(x, y))
    return x[kept], kept.astype(out_idx.numpy)


@_one_hot.shape
def _one_hot_shape(node: Operation) -> list[RawShape]:
    indices, axis = node.inputs[0].raw_shape, node.attrs["axis"]
    depth = constant_value(node.inputs[1])
    if axis < -1:
        raise ValueError(f"axis must be >= -1, but is {axis}")
    if indices is None:
        return [None]
    count = None if depth is None else int(depth.item())
    if count is not None and count < 0:
        raise ValueError(f"depth must be non-negative, not: {count}")
    if axis > len(indices):
        raise ValueError(f"Expected axis to be -1 or between [0, {len(indices) + 1}).  But received: {axis}")
    axis = len(indices) if axis == -1 else axis
    return [(*indices[:axis], count, *indices[axis:])]


@_one_hot.kernel("CPU")
def _one_hot_kernel(indices: Array, depth: Array, on_value: Array, off_value: Array, *, axis: int) -> Any:
    count = int(depth)
    if count < 0:
        refuse(f"depth must be non-negative, got: {count}")
    indices, on, off = as_ndarray(indices), as_ndarray(on_value), as_ndarray(off_value)
    rows = filled((indices.size, count), off, off.dtype)
    flat = indices.reshape(-1)
    # An index outside the depth leaves its row empty.
    inside = ((flat >= 0) & (flat < count)).nonzero()[0]
    rows[inside, flat[inside]] = on[()]
    result = rows.reshape(*indices.shape, count)
    return result if axis in (-1, indices.ndim) else np.moveaxis(result, -1, axis)


@_invert.kernel("CPU")
def _invert_kernel(x: Array) -> Any:
    if any_outside(x, x.size):
        bad = int(x[(x < 0) | (x >= x.size)][0])
        refuse(f"{bad} is not between 0 and {x.size}")
    result = np.full_like(x, -1)
    result[x] = np.arange(x.size, dtype=x.dtype)
    if (result < 0).any():
        values, counts = np.unique(x, return_counts=True)
        refuse(f"{values[counts > 1][0]} is duplicated in the input.")
    return result


@_unravel.shape
def _unravel_shape(node: Operation) -> list[RawShape]:
    indices, dims = node.inputs[0].raw_shape, node.inputs[1].raw_shape
    if indices is None:
        return [None]
    rank = None if dims is None else dims[0]
    if not indices:
        return [(rank,)]
    size = 1
    for dim in indices:
        if dim is None:
            return [(rank, None)]
        size *= dim
    return [(rank, size)]


@_unravel.kernel("CPU")
def _unravel_kernel(indices: Array, dims: Array) -> Any:
    total = int(np.prod(dims, dtype=np.int64))
    if np.size(indices) and int(np.max(indices)) >= total:
        refuse("index is out of bound as with dims")
    found = np.array(np.unravel_index(np.ravel(indices), tuple(dims.tolist())), dims.dtype)
    return found if np.ndim(indices) else found[:, 0]


# ---- Public functions of index vectors and sets --------------------------------------------------------------------


@export("tf.unique")
def unique(x: TensorLike, out_idx: DTypeLike = dtypes.int32, name: str | None = None) -> Any:
    """The distinct elements of a vector, and each element's position among them: (y, idx) (``tf.unique``)."""
    return _unique(x, out_idx=out_idx, name=name)


@export("tf.unique_with_counts")
def unique_with_counts(x: TensorLike, out_idx: DTypeLike = dtypes.int32, name: str | None = None) -> Any:
    """`unique`, and the number of occurrences of each: (y, idx, count) (``tf.unique_with_counts``)."""
    return _unique_counts(x, out_idx=out_idx, name=name)


@export("tf.setdiff1d")
def setdiff1d(x: TensorLike, y: TensorLike, index_dtype: DTypeLike = dtypes.int32, name: str | None = None) -> Any:
    """The elements of ``x`` that are not in ``y``, and their positions: (out, idx) (``tf.setdiff1d``)."""
    return _list_diff(x, y, out_idx=index_dtype, name=name)


@export("tf.one_hot")
def one_hot(
    indices: TensorLike, depth: TensorLike, on_value: TensorLike | None = None, off_value: TensorLike | None = None,
    axis: int | None = None, dtype: DTypeLike | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Vectors of length ``depth`` with one marked position, given by each index (``tf.one_hot``).

    Args:
      indices: integers; those outside [0, depth) mark no position.
      depth: the length of the new axis.
      on_value: the value at the marked position, default 1.
      off_value: all other values, default 0.
      axis: the position of the new axis, default last.
      dtype: default: that of the values, else float32.
      name: of the op.

    Raises:
      TypeError: when the types of the values and ``dtype`` differ.
    """
    with name_scope(name, "one_hot", [indices, depth, on_value, off_value]) as scope:
        wanted = None if dtype is None else dtypes.as_dtype(dtype).base_dtype
        given = [
            convert_to_tensor(v, preferred_dtype=None if hasattr(v, "dtype") else wanted, name=label).dtype.base_dtype
            for v, label in ((on_value, "on_value"), (off_value, "off_value"))
            if v is not None
        ]
        for found, label in zip(given, ["on_value", "off_value"] if on_value is not None else ["off_value"]):
            if wanted is not None and found is not wanted:
                raise TypeError(f"dtype {found!r} of {label} does not match dtype parameter {wanted!r}")
        if len(given) == 2 and given[0] is not given[1]:
            raise TypeError(f"dtype {given[0]!r} of on_value does not match dtype {given[1]!r} of off_value")
        wanted = wanted or (given[0] if given else dtypes.float32)
        on = convert_to_tensor(1 if on_value is None else on_value, wanted, name="on_value")
        off = convert_to_tensor(0 if off_value is None else off_value, wanted, name="off_value")
        return _one_hot(indices, depth, on, off, axis=-1 if axis is None else axis, name=scope)


@export("tf.invert_permutation", "tf.math.invert_permutation")
def invert_permutation(x: TensorLike, name: str | None = None) -> Tensor:
    """``y[x[i]] = i`` (``tf.invert_permutation``)."""
    return _invert(x, name=name)


@export("tf.unravel_index")
def unravel_index(indices: TensorLike, dims: SizesLike, name: str | None = None) -> Tensor:
    """The coordinates of flat indices in an array of shape ``dims``, one column each (``tf.unravel_index``)."""
    return _unravel(indices, dims, name=name)


# ---- Masks and selection by masks: ``tf.where``, ``tf.boolean_mask``, ``tf.sequence_mask`` -------------------------

_where = op("Where(input: T) -> index: int64; T: type = DT_BOOL", raw_names={"input": "condition"})
_where.not_differentiable()


@_where.shape
def _where_shape(node: Operation) -> list[RawShape]:
    raw = node.inputs[0].raw_shape
    return [(None, None if raw is None else len(raw))]


@_where.kernel("CPU")
def _where_kernel(value: Array) -> Any:
    if value.ndim != 1:
        return np.argwhere(value).astype(np.int64, copy=False)
    return value.nonzero()[0].astype(np.int64, copy=False)[:, None]


# ---- Public functions of masks -------------------------------------------------------------------------------------


@export("tf.where")
def where(
    condition: TensorLike, x: TensorLike | None = None, y: TensorLike | None = None, name: str | None = None
) -> Tensor:
    """Coordinates of the true elements; with ``x`` and ``y``, x where true and y elsewhere (``tf.where``).

    Raises:
      ValueError: when only one of ``x`` and ``y`` is given.
    """
    if x is None and y is None:
        with name_scope(name, "Where", [condition]) as scope:
            condition = convert_to_tensor(condition, preferred_dtype=dtypes.bool, name="condition")
            return _where(condition, name=scope)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    return raw_ops.Select(condition, x, y, name=name)


@export("tf.boolean_mask")
def boolean_mask(
    tensor: TensorLike, mask: TensorLike, name: str = "boolean_mask", axis: AxisLike | None = None
) -> Tensor:
    """The slices of ``tensor`` where ``mask`` is true (``tf.boolean_mask``).

    Args:
      tensor: of at least the mask's rank.
      mask: bool, of known rank; its shape matches the tensor's from ``axis`` on.
      name: of the scope.
      axis: the tensor's axis that the mask's first axis belongs to, default 0.

    Raises:
      ValueError: when the mask is a scalar, has unknown rank, or does not match.
    """
    with name_scope(name, values=[tensor, mask]):
        tensor, mask = convert_to_tensor(tensor, name="tensor"), convert_to_tensor(mask, name="mask")
        form = mask.raw_shape
        if form is None:
            raise ValueError(
                "Number of mask dimensions must be specified, even if some dimensions are None.  E.g. shape=[None] is"
                " ok, but shape=None is not."
            )
        if not form:
            raise ValueError("mask cannot be scalar.")
        start = int(constant_value(axis)) if isinstance(axis, Tensor) else int(axis or 0)  # type: ignore[arg-type]
        raw = tensor.raw_shape
        if raw is not None and not compatible_raw(raw[start : start + len(form)], form):
            raise ValueError(f"Shapes {tensor.shape[start : start + len(form)]} and {mask.shape} are incompatible")
        merged = _merge_axes(tensor, start, len(form))
        rows = squeeze(_where(reshape(mask, [-1])), axis=[1])
        return gather(merged, rows, axis=start)


def _merge_axes(tensor: Tensor, start: int, count: int) -> Tensor:
    """``tensor`` with ``count`` axes from ``start`` on merged into one, by the ops that 1.15 makes."""
    size = raw_ops.Prod(shape(tensor)[start : start + count], [0])
    merged = reshape(tensor, concat([shape(tensor)[:start], [size], shape(tensor)[start + count :]], 0))
    if tensor.raw_shape is not None:
        part: int | None = 1
        for dim in tensor.raw_shape[start : start + count]:
            part = None if part is None or dim is None else part * dim
        merged.set_shape((*tensor.raw_shape[:start], part, *tensor.raw_shape[start + count :]))
    return merged


@export("tf.sequence_mask")
def sequence_mask(
    lengths: TensorLike, maxlen: TensorLike | None = None, dtype: DTypeLike = dtypes.bool, name: str | None = None
) -> Tensor:
    """``mask[..., j] = j < lengths[...]`` (``tf.sequence_mask``).

    Args:
      lengths: integers of any shape.
      maxlen: the size of the new last axis; default the largest length.
      dtype: of the result.
      name: of the scope.

    Raises:
      ValueError: when ``maxlen`` is not a scalar.
    """
    with name_scope(name, "SequenceMask", [lengths, maxlen]):
        lengths = convert_to_tensor(lengths)
        if maxlen is None:
            known = lengths.raw_shape
            axes = raw_ops.Range(0, raw_ops.Rank(lengths), 1) if known is None else constant(np.arange(len(known)))
            largest = raw_ops.Max(lengths, axes)
            maxlen = raw_ops.Maximum(constant(0, lengths.dtype), largest)
        else:
            maxlen = convert_to_tensor(maxlen)
        if maxlen.raw_shape not in (None, ()):
            raise ValueError("maxlen must be scalar for sequence_mask")
        row = raw_ops.Range(constant(0, maxlen.dtype), maxlen, constant(1, maxlen.dtype))
        result = raw_ops.Less(row, raw_ops.Cast(expand_dims(lengths, -1), DstT=maxlen.dtype))
        return cast(result, dtype)
