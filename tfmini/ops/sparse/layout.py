"""Ops that move the elements of sparse tensors without changing them: reorder, reshape, slice, split, concat…"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfmini.core_types import Array
from tfmini.graph.families import OpHandle, op, sized
from tfmini.graph.operation import Operation, Tensor
from tfmini.memory import check_room
from tfmini.numerics.update_rules import any_outside
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import gather as array_gather
from tfmini.ops.array import partition as array_partition
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape
from tfmini.ops.array.kernel_arguments import as_ndarray, filled, refuse
from tfmini.ops.array.slicing import getitem
from tfmini.ops.composites import SparseTensor, SparseTensorValue
from tfmini.ops.math.broadcast import sum_op
from tfmini.shapes import RawShape, merge_dims, with_rank

# ---- Sparse tensors inside kernels: checks with TensorFlow's messages, row-major order, merging of indices ---------


def is_sparse(value: object) -> bool:
    """Whether ``value`` is a sparse tensor or the value of one."""
    return isinstance(value, (SparseTensor, SparseTensorValue))


def as_sparse(value: object) -> SparseTensor:
    """``value`` as a `SparseTensor`.

    Raises:
      TypeError: when it is neither a sparse tensor nor the value of one.
    """
    if isinstance(value, SparseTensorValue):
        return SparseTensor.from_value(value)
    if not isinstance(value, SparseTensor):
        raise TypeError("Input must be a SparseTensor.")
    return value


def parts(sparse: SparseTensor) -> tuple[Tensor, Tensor, Tensor]:
    """Indices, values and dense shape: the three inputs that most sparse ops take."""
    return sparse.indices, sparse.values, sparse.dense_shape


def merged_shapes(node: Operation, first: int = 0) -> tuple[int | None, int | None]:
    """(number of elements, rank) by the static shapes of the three inputs from ``first`` on."""
    indices = with_rank(node.inputs[first].raw_shape, 2)
    count = merge_dims(indices[0], with_rank(node.inputs[first + 1].raw_shape, 1)[0])
    return count, merge_dims(indices[1], with_rank(node.inputs[first + 2].raw_shape, 1)[0])


def sparse_shape(count: int | None, rank: int | None) -> list[RawShape]:
    """The static shapes of a sparse result."""
    return [(count, rank), (count,), (rank,)]


def check_parts(indices: Array, values: Array, shape: Array) -> None:
    """Refuses parts whose ranks and sizes contradict each other."""
    if np.ndim(indices) != 2:
        refuse(f"Input indices should be a matrix but received shape {list(np.shape(indices))}")
    if np.ndim(values) != 1:
        refuse(f"Input values should be a vector but received shape {list(np.shape(values))}")
    if np.ndim(shape) != 1:
        refuse(f"Input shape should be a vector but received shape {list(np.shape(shape))}")
    if indices.shape[0] != values.shape[0]:
        refuse(f"Expected {indices.shape[0]} non-empty input values, got {values.shape[0]}")
    if indices.shape[1] != shape.shape[0]:
        refuse(f"Expected rank {indices.shape[1]} of the dense shape, got {shape.shape[0]}")


def _text(row: Array) -> str:
    return "[" + ",".join(str(int(i)) for i in row) + "]"


def check_bounds(indices: Array, shape: Array) -> None:
    """Refuses indices outside of the dense shape."""
    outside = (indices < 0) | (indices >= shape)
    if np.count_nonzero(outside):
        row = int(outside.any(axis=1).argmax())
        refuse(f"indices[{row}] = {_text(indices[row])} is out of bounds: need 0 <= index < {_text(shape)}")


def check_order(indices: Array) -> None:
    """Refuses indices that are not in strict row-major order."""
    if indices.shape[0] < 2:
        return
    before, after = indices[:-1], indices[1:]
    different = before != after
    some = different.any(axis=1)
    first = different.argmax(axis=1)
    position = np.arange(len(first))
    falling = some & (before[position, first] > after[position, first])
    bad = (falling | ~some).nonzero()[0]
    if not bad.size:
        return
    row = int(bad[0]) + 1
    if not some[row - 1]:
        refuse(f"indices[{row}] = {_text(indices[row])} is repeated")
    refuse(
        f"indices[{row}] = {_text(indices[row])} is out of order. Many sparse ops require sorted indices.\n"
        "    Use `tf.sparse.reorder` to create a correctly ordered copy.\n\n"
    )


def row_major(indices: Array) -> Any:
    """The permutation that sorts the indices in row-major order; equal indices keep their order."""
    if indices.shape[1] == 0:
        return np.arange(indices.shape[0])
    keys = _row_keys(indices)
    # Runs that are in order already, as those of tensors that are added, are merged without a search.
    return np.lexsort(indices.T[::-1]) if keys is None else np.argsort(keys, kind="stable")


def _row_keys(indices: Array) -> Any:
    """A number for each index, ordered as the indices are in row-major order; None where int64 has too few of them."""
    if not indices.size:
        return None
    lowest = [int(column.min()) for column in indices.T]
    sizes = [int(column.max()) + 1 - low for column, low in zip(indices.T, lowest)]
    if math.prod(sizes) >= 1 << 63:
        return None
    keys = np.zeros(len(indices), np.int64)
    for column, low, size in zip(indices.T, lowest, sizes):
        keys *= size
        keys += column.astype(np.int64, copy=False) - low
    return keys


def distinct(indices: Array) -> tuple[Any, Any]:
    """Distinct indices in row-major order, and the position of each given index among them."""
    order = row_major(indices)
    ordered = indices[order]
    starts = np.zeros(len(order), np.bool_)
    starts[:1] = True
    for column in ordered.T:
        starts[1:] |= column[1:] != column[:-1]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(starts) - 1
    return ordered[starts], numbers


def flat_positions(indices: Array, shape: Any) -> Any:
    """The position of each index in the flattened dense tensor."""
    strides = np.ones(len(shape), np.int64)
    if len(shape) > 1:
        strides[:-1] = np.cumprod(np.asarray(shape, np.int64)[:0:-1])[::-1]
    return indices @ strides


# ---- The declarations of the ops -----------------------------------------------------------------------------------


def _fill_empty_rows_grad_shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[1].raw_shape, 1)
    return [with_rank(node.inputs[0].raw_shape, 1), ()]


reorder_op: OpHandle[Any] = op(
    "SparseReorder(input_indices: int64, input_values: T, input_shape: int64)"
    " -> output_indices: int64, output_values: T; T: type",
    shape=sized("n rank, n, rank -> n rank, n"),
)
reshape_op: OpHandle[Any] = op(
    "SparseReshape(input_indices: int64, input_shape: int64, new_shape: int64)"
    " -> output_indices: int64, output_shape: int64",
    differentiable=False,
    shape=sized("n _, *, rank -> n rank, rank"),
)
_RESULT = "output_indices: int64, output_values: T, output_shape: int64"
slice_op: OpHandle[Any] = op(
    f"SparseSlice(indices: int64, values: T, shape: int64, start: int64, size: int64) -> {_RESULT}; T: type"
)
slice_op.shape(sized("n rank, n, rank, rank, rank -> _ rank, _, rank"))
slice_grad_op = op(
    "SparseSliceGrad(backprop_val_grad: T, input_indices: int64, input_start: int64, output_indices: int64)"
    " -> val_grad: T; T: numbertype",
    differentiable=None,
)
slice_grad_op.shape(lambda node: [(with_rank(node.inputs[1].raw_shape, 2)[0],)])
split_op: OpHandle[Any] = op(
    "SparseSplit(split_dim: int64, indices: int64, values: T, shape: int64) -> output_indices: num_split * int64,"
    " output_values: num_split * T, output_shape: num_split * int64; num_split: int >= 1; T: type",
    differentiable=None,
)
concat_op: OpHandle[Any] = op(
    f"SparseConcat(indices: N * int64, values: N * T, shapes: N * int64) -> {_RESULT};"
    " concat_dim: int; N: int >= 2; T: type",
    differentiable=False,
)
to_dense_op = op(
    "SparseToDense(sparse_indices: Tindices, output_shape: Tindices, sparse_values: T, default_value: T)"
    " -> dense: T; validate_indices: bool = true; T: type; Tindices: {int32, int64}"
)
fill_rows_op: OpHandle[Any] = op(
    "SparseFillEmptyRows(indices: int64, values: T, dense_shape: int64, default_value: T) -> output_indices: int64,"
    " output_values: T, empty_row_indicator: bool, reverse_index_map: int64; T: type"
)
fill_rows_grad_op: OpHandle[Any] = op(
    "SparseFillEmptyRowsGrad(reverse_index_map: int64, grad_values: T) -> d_values: T, d_default_value: T; T: type",
    differentiable=None,
    shape=_fill_empty_rows_grad_shape,
)


# ---- reorder and reshape --------------------------------------------------------------------


@reorder_op.kernel("CPU")
def _reorder_kernel(indices: Array, values: Array, shape: Array) -> tuple[Any, Any]:
    check_parts(indices, values, shape)
    order = row_major(indices)
    return indices[order], values[order]


@reorder_op.gradient
def _reorder_gradient(node: Operation, _: object, grad: Tensor) -> list[Any]:
    indices, _, shape = node.inputs
    count = getitem(array_shape.shape(indices), 0)
    numbers = array_filling.range(count)
    _, places = reorder_op(indices, numbers, shape)
    return [None, array_gather.gather(grad, array_partition.invert_permutation(places)), None]


@reshape_op.kernel("CPU")
def _reshape_kernel(indices: Array, shape: Array, new_shape: Array) -> tuple[Any, Any]:
    if np.ndim(indices) != 2:
        refuse(f"Input indices should be a matrix but received shape {list(np.shape(indices))}")
    for what, value in (("Input", shape), ("Target", new_shape)):
        if np.ndim(value) != 1:
            refuse(f"{what} shape should be a vector but received shape {list(np.shape(value))}")
    same = shape.tolist() == new_shape.tolist()
    sizes = shape if same else _target_sizes(shape, new_shape)
    if same and indices.shape[0]:
        check_bounds(indices, shape)
        return indices, shape
    if indices.shape[0] == 0:
        return np.empty((0, len(sizes)), np.int64), sizes
    check_bounds(indices, shape)
    flat = np.ravel_multi_index(tuple(indices.T), tuple(shape.tolist()))
    return np.stack(np.unravel_index(flat, tuple(sizes.tolist())), axis=1).astype(np.int64), sizes


def _target_sizes(shape: Array, new_shape: Array) -> Any:
    total = int(np.prod(shape, dtype=np.int64))
    sizes = np.array(new_shape, np.int64)
    open_axes = np.flatnonzero(sizes == -1)
    if open_axes.size > 1:
        refuse(f"only one output dimension may be -1, not both {open_axes[0]} and {open_axes[1]}")
    if (sizes < -1).any():
        axis = int(np.flatnonzero(sizes < -1)[0])
        refuse(f"size {axis} must be non-negative, not {sizes[axis]}")
    known = int(np.prod(sizes[sizes != -1], dtype=np.int64))
    if open_axes.size:
        if known <= 0:
            refuse(
                "reshape cannot infer the missing input size for an empty tensor unless all specified input sizes"
                " are non-zero"
            )
        if total % known:
            refuse(
                f"Input to reshape is a SparseTensor with {total} dense values, but the requested shape requires"
                f" a multiple of {known}. input_shape={shape.tolist()} output_shape={sizes.tolist()}"
            )
        sizes[open_axes[0]] = total // known
    elif known != total:
        refuse(
            f"Input to reshape is a tensor with {total} dense values, but the requested shape has {known}."
            f" input_shape={shape.tolist()} output_shape={sizes.tolist()}"
        )
    return sizes


# ---- slice, split, concat -------------------------------------------------------------------


def _window(indices: Array, values: Array, start: Array, size: Array) -> tuple[Any, Any]:
    inside = ((indices >= start) & (indices < start + size)).all(axis=1)
    return indices[inside] - start, values[inside]


@slice_op.kernel("CPU")
def _slice_kernel(indices: Array, values: Array, shape: Array, start: Array, size: Array) -> tuple[Any, Any, Any]:
    check_parts(indices, values, shape)
    for what, value in (("start", start), ("size", size)):
        if np.ndim(value) != 1 or value.shape[0] != shape.shape[0]:
            refuse(f"Expected {what} to be a vector of length {shape.shape[0]} but got shape {list(np.shape(value))}")
    if (size < 0).any():
        refuse("Expected size to be non-negative, got " + str(size.tolist()))
    found, kept = _window(indices, values, start, size)
    return found, kept, np.maximum(np.minimum(size, shape - start), 0)


@slice_op.gradient
def _slice_gradient(node: Operation, _: object, grad: Tensor, __: object) -> list[Any]:
    indices, start = node.inputs[0], node.inputs[3]
    return [None, slice_grad_op(grad, indices, start, node.outputs[0]), None, None, None]


@slice_grad_op.kernel("CPU")
def _slice_grad_kernel(grad: Array, indices: Array, start: Array, kept: Array) -> Any:
    out = np.zeros(indices.shape[0], grad.dtype)
    _, numbers = distinct(np.concatenate([indices, kept + start]))
    place = np.full(numbers.max() + 1 if numbers.size else 0, -1)
    place[numbers[: len(indices)]] = np.arange(len(indices))
    found = place[numbers[len(indices) :]]
    if (found < 0).any():
        used = int((found >= 0).sum())
        refuse(f"Elements of backprop_val_grad aren't all propagated. Num elements:{found.size}, used: {used}")
    out[found] = grad
    return out


@split_op.shape
def _split_shape(node: Operation) -> list[RawShape]:
    _, rank = merged_shapes(node, 1)
    count = node.attrs["num_split"]
    shapes: list[RawShape] = [(None, rank)] * count + [(None,)] * count
    return shapes + [(rank,)] * count


@split_op.kernel("CPU")
def _split_kernel(split_dim: Array, indices: Array, values: Array, shape: Array, *, num_split: int) -> tuple[Any, ...]:
    axis = int(split_dim)
    if not 0 <= axis < len(shape):
        refuse(f"Input split_dim should be between 0 and rank ({len(shape)}), got {axis}")
    extent = int(shape[axis])
    if not 1 <= num_split <= extent:
        refuse(f"Input num_split should be between 1 and the splitting dimension size ({extent}), got {num_split}")
    # The first ``rest`` pieces are longer by one.
    length, rest = divmod(extent, num_split)
    bounds = np.cumsum([0] + [length + (i < rest) for i in range(num_split)])
    pieces: list[tuple[Any, Any, Any]] = []
    for low, high in zip(bounds, bounds[1:]):
        start, size = np.zeros_like(shape), np.array(shape)
        start[axis], size[axis] = low, high - low
        pieces.append((*_window(indices, values, start, size), size))
    return tuple(part for kind in zip(*pieces) for part in kind)


@concat_op.shape
def _concat_shape(node: Operation) -> list[RawShape]:
    count = node.attrs["N"]
    rank: int | None = None
    total: int | None = 0
    for tensor in node.inputs[:count]:
        shape = with_rank(tensor.raw_shape, 2)
        total = None if total is None or shape[0] is None else total + shape[0]
        rank = merge_dims(rank, shape[1])
    for tensor in node.inputs[2 * count :]:
        rank = merge_dims(rank, with_rank(tensor.raw_shape, 1)[0])
    return sparse_shape(total, rank)


@concat_op.kernel("CPU")
def _concat_kernel(indices: list[Any], values: list[Any], shapes: list[Any], *, concat_dim: int) -> tuple[Any, ...]:
    rank = len(shapes[0])
    if not -rank <= concat_dim < rank:
        refuse(f"Concat dimension must be in range [{-rank}, {rank}), got {concat_dim}")
    axis = concat_dim % rank
    size = np.array(shapes[0])
    shifted = []
    offset = 0
    for number, (rows, shape) in enumerate(zip(indices, shapes)):
        if len(shape) != rank:
            refuse(f"Ranks of all input tensors must match: expected {rank} but got {len(shape)} at position {number}")
        others = np.arange(rank) != axis
        if (shape != size)[others].any():
            bad = int(np.flatnonzero((shape != size) & others)[0])
            refuse(
                f"Input shapes must match: expected {size[bad]} for dimension {bad} but got {shape[bad]}"
                f" at position {number}"
            )
        moved = np.array(rows)
        moved[:, axis] += offset
        shifted.append(moved)
        offset += int(shape[axis])
    size[axis] = offset
    joined, joined_values = np.concatenate(shifted), np.concatenate(values)
    order = row_major(joined)
    joined, joined_values = joined[order], joined_values[order]
    return joined, joined_values, size


# ---- to dense -------------------------------------------------------------------------------


@to_dense_op.shape
def _to_dense_shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[1].raw_shape, 1)
    return [constant_value_as_shape(node.inputs[1])]


@to_dense_op.kernel("CPU")
def _to_dense_kernel(indices: Array, shape: Array, values: Array, default: Array, *, validate_indices: bool) -> Any:
    indices, values = as_ndarray(indices), as_ndarray(values)
    rows = _index_rows(indices)
    if np.ndim(shape) != 1:
        refuse(f"output_shape must be rank 1, got shape {list(np.shape(shape))}")
    if rows.shape[1] != len(shape):
        refuse(f"output_shape has incorrect number of elements: {len(shape)} should be: {rows.shape[1]}")
    if values.ndim > 1 or values.ndim == 1 and values.shape[0] != rows.shape[0]:
        refuse(f"sparse_values has incorrect shape {list(values.shape)}, should be [] or [{rows.shape[0]}]")
    if np.ndim(default):
        refuse("default_value should be a scalar.")
    check_bounds(rows, shape)
    if validate_indices:
        check_order(rows)
    out = filled(tuple(shape.tolist()), default, values.dtype)
    out[tuple(rows.T)] = values[()] if values.ndim == 0 else values
    return out


def _index_rows(indices: Array) -> Any:
    """A scalar is the index of one element of a vector, a vector holds several, a matrix has one index per row."""
    if indices.ndim > 2:
        refuse(f"sparse_indices should be a scalar, vector, or matrix, got shape {list(indices.shape)}")
    if indices.ndim == 2:
        return indices
    return indices.reshape(-1, 1)


@to_dense_op.gradient
def _to_dense_gradient(node: Operation, grad: Tensor) -> list[Any]:
    indices = node.inputs[0]
    values_grad = array_gather.gather_nd(grad, indices)
    rest = _total(grad) - _total(values_grad)
    return [None, None, values_grad, rest]


def _total(tensor: Tensor) -> Tensor:
    return sum_op(tensor, array_filling.range(array_shape.rank(tensor)))


# ---- fill empty rows ------------------------------------------------------------------------


@fill_rows_op.shape
def _fill_rows_shape(node: Operation) -> list[RawShape]:
    count, rank = merged_shapes(node)
    with_rank(node.inputs[3].raw_shape, 0)
    known = constant_value(node.inputs[2])
    rows = None if known is None else int(known[0])
    return [(None, rank), (None,), (rows,), (count,)]


@fill_rows_op.kernel("CPU")
def _fill_rows_kernel(indices: Array, values: Array, shape: Array, default: Array) -> tuple[Any, ...]:
    if np.ndim(shape) != 1:
        refuse(f"dense_shape must be a vector, saw: {list(np.shape(shape))}")
    if np.ndim(indices) != 2:
        refuse(f"indices must be a matrix, saw: {list(np.shape(indices))}")
    if np.ndim(values) != 1:
        refuse(f"values must be a vector, saw: {list(np.shape(values))}")
    if np.ndim(default):
        refuse(f"default_value must be a scalar, saw: {list(np.shape(default))}")
    count, rows = indices.shape[0], int(shape[0])
    if rows == 0 and count:
        refuse(f"Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = {count}")
    used = indices[:, 0]
    if any_outside(used, rows):
        bad = np.flatnonzero((used < 0) | (used >= rows))
        refuse(f"indices({bad[0]}, 0) is invalid: {used[bad[0]]} >= {rows}")
    check_room((max(rows, 0),), 8 * (4 + indices.shape[1]))
    empty = np.bincount(used, minlength=rows) == 0 if rows else np.zeros(0, np.bool_)
    gaps = empty.nonzero()[0]
    if not gaps.size and not np.count_nonzero(used[1:] < used[:-1]):  # nothing to fill and nothing to sort
        return indices, values, empty, np.arange(count)
    added = np.zeros((gaps.size, indices.shape[1]), np.int64)
    added[:, 0] = gaps
    fillers = filled((len(added),), default, values.dtype)
    order = np.argsort(np.concatenate([used, added[:, 0]]), kind="stable")
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return np.concatenate([indices, added])[order], np.concatenate([values, fillers])[order], empty, places[:count]


@fill_rows_op.gradient
def _fill_rows_gradient(node: Operation, _: object, grad: Tensor, __: object, ___: object) -> list[Any]:
    values_grad, default_grad = fill_rows_grad_op(node.outputs[3], grad)
    return [None, values_grad, None, default_grad]


@fill_rows_grad_op.kernel("CPU")
def _fill_rows_grad_kernel(places: Array, grad: Array) -> tuple[Any, Any]:
    if np.ndim(places) != 1 or np.ndim(grad) != 1:
        shapes = f"{list(np.shape(places))} and {list(np.shape(grad))}"
        refuse(f"reverse_index_map and grad_values must be vectors, saw: {shapes}")
    if any_outside(places, grad.shape[0]):
        refuse(f"Elements in reverse index must be in [0, {grad.shape[0]})")
    rest = np.ones(grad.shape[0], np.bool_)
    rest[places] = False
    return grad[places], grad[rest].sum(dtype=grad.dtype)
