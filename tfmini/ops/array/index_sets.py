"""Index vectors and sets: unique, setdiff1d, one_hot, invert_permutation, unravel_index."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, name_scope, op, sized
from tfmini.machine_memory import check_room
from tfmini.numerics.scatter_rows import first_positions
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import as_ndarray, refuse
from tfmini.shapes import RawShape, with_rank

_IDX = "out_idx: {int32, int64} = DT_INT32"
_unique: OpHandle[Any] = op(
    f"Unique(x: T) -> y: T, idx: out_idx; T: type; {_IDX}",
    aggregates=True,
    distinct=True,
    work="none",
    differentiable=False,
)
_unique_counts: OpHandle[Any] = op(
    f"UniqueWithCounts(x: T) -> y: T, idx: out_idx, count: out_idx; T: type; {_IDX}",
    distinct=True,
    differentiable=False,
)
_list_diff: OpHandle[Any] = op(f"ListDiff(x: T, y: T) -> out: T, idx: out_idx; T: type; {_IDX}", differentiable=False)
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
_TABLE = 1 << 17


def _first_seen(x: Any) -> tuple[Any, Any]:
    """Distinct elements in order of first appearance, and the position of each element among them."""
    if x.dtype.kind in "iu" and x.size and x.min() >= 0 and (most := int(x.max())) < max(_TABLE, 4 * x.size):
        seen = first_positions(x, most + 1)
        is_first = seen == np.arange(x.size)
        return x[is_first], (np.cumsum(is_first) - 1)[seen]
    values, first, numbers = np.unique(x, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return values[order], place[numbers.reshape(-1)]


@_unique.kernel("CPU")
def _unique_kernel(x: Any, *, out_idx: dtypes.DType) -> tuple[Any, ...]:
    if x.ndim != 1:
        refuse("unique expects a 1D vector.")
    values, numbers = _first_seen(x)
    return values, numbers.astype(out_idx.numpy)


@_unique_counts.kernel("CPU")
def _unique_counts_kernel(x: Any, *, out_idx: dtypes.DType) -> tuple[Any, ...]:
    if x.ndim != 1:
        refuse("unique expects a 1D vector.")
    values, numbers = _first_seen(x)
    counts = np.bincount(numbers, minlength=len(values))
    return values, numbers.astype(out_idx.numpy), counts.astype(out_idx.numpy)


@_list_diff.kernel("CPU")
def _list_diff_kernel(x: Any, y: Any, *, out_idx: dtypes.DType) -> tuple[Any, ...]:
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
def _one_hot_kernel(indices: Any, depth: Any, on_value: Any, off_value: Any, *, axis: int) -> Any:
    count = int(depth)
    if count < 0:
        refuse(f"depth must be non-negative, got: {count}")
    indices, on, off = as_ndarray(indices), as_ndarray(on_value), as_ndarray(off_value)
    check_room((indices.size, count), off.itemsize)
    rows = np.full((indices.size, count), off[()], off.dtype)
    flat = indices.reshape(-1)
    # An index outside the depth leaves its row empty.
    inside = np.flatnonzero((flat >= 0) & (flat < count))
    rows[inside, flat[inside]] = on[()]
    result = rows.reshape(*indices.shape, count)
    return result if axis in (-1, indices.ndim) else np.moveaxis(result, -1, axis)


@_invert.kernel("CPU")
def _invert_kernel(x: Any) -> Any:
    if x.size and (x.min() < 0 or x.max() >= x.size):
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
def _unravel_kernel(indices: Any, dims: Any) -> Any:
    total = int(np.prod(dims, dtype=np.int64))
    if np.size(indices) and int(np.max(indices)) >= total:
        refuse("index is out of bound as with dims")
    found = np.array(np.unravel_index(np.ravel(indices), tuple(dims.tolist())), dims.dtype)
    return found if np.ndim(indices) else found[:, 0]


# ---- public functions ---------------------------------------------------------------------------


@export("tf.unique")
def unique(x: Any, out_idx: Any = dtypes.int32, name: str | None = None) -> Any:
    """The distinct elements of a vector, and each element's position among them: (y, idx) (``tf.unique``)."""
    return _unique(x, out_idx=dtypes.as_dtype(out_idx), name=name)


@export("tf.unique_with_counts")
def unique_with_counts(x: Any, out_idx: Any = dtypes.int32, name: str | None = None) -> Any:
    """`unique`, and the number of occurrences of each: (y, idx, count) (``tf.unique_with_counts``)."""
    return _unique_counts(x, out_idx=dtypes.as_dtype(out_idx), name=name)


@export("tf.setdiff1d")
def setdiff1d(x: Any, y: Any, index_dtype: Any = dtypes.int32, name: str | None = None) -> Any:
    """The elements of ``x`` that are not in ``y``, and their positions: (out, idx) (``tf.setdiff1d``)."""
    return _list_diff(x, y, out_idx=dtypes.as_dtype(index_dtype), name=name)


@export("tf.one_hot")
def one_hot(
    indices: Any, depth: Any, on_value: Any = None, off_value: Any = None, axis: int | None = None, dtype: Any = None,
    name: str | None = None,
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
            convert_to_tensor(v, preferred_dtype=wanted, name=label).dtype.base_dtype
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
def invert_permutation(x: Any, name: str | None = None) -> Tensor:
    """``y[x[i]] = i`` (``tf.invert_permutation``)."""
    return _invert(x, name=name)


@export("tf.unravel_index")
def unravel_index(indices: Any, dims: Any, name: str | None = None) -> Tensor:
    """The coordinates of flat indices in an array of shape ``dims``, one column each (``tf.unravel_index``)."""
    return _unravel(indices, dims, name=name)
