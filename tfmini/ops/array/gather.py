"""Elements picked by index: ``tf.gather``, ``tf.gather_nd``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, AxisLike, DTypeLike, SizesLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.families import (
    IndexedSlices,
    Operation,
    OpHandle,
    Tensor,
    all_of,
    colocate_with,
    convert_to_tensor,
    name_scope,
    op,
    same_shape,
)
from tfmini.numerics.update_rules import any_outside, as_rows, scatter_rows
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape, given_shape
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.kernel_arguments import as_ndarray, filled, refuse, zero_of
from tfmini.ops.array.shape import expand_dims, reshape, shape, size, squeeze
from tfmini.shapes import RawShape, at_least_rank, format_raw, merge_raw

_gather_v1 = op(
    "Gather(params: Tparams, indices: Tindices) -> output: Tparams; validate_indices: bool = true; Tparams: type;"
    " Tindices: {int32,int64}",
    looks_up=True,
)
_gather_v1.kernel("CPU")(lambda params, indices: _gathered(params, indices, 0))
_gather_v1.gradient(lambda node, grad: [_row_slices(node.inputs[0], node.inputs[1], grad), None])
_gather_v2 = op(
    "GatherV2(params: Tparams, indices: Tindices, axis: Taxis) -> output: Tparams; batch_dims: int = 0; Tparams: type;"
    " Tindices: {int32,int64}; Taxis: {int32,int64}",
    looks_up=True,
    aggregates=True,
)
_gather_nd = op(
    "GatherNd(params: Tparams, indices: Tindices) -> output: Tparams; Tparams: type; Tindices: {int32,int64}",
    looks_up=True,
)  # fmt: skip


# ---- Gather and GatherV2 -------------------------------------------------------------------------------------------


@_gather_v1.shape
def _gather_v1_shape(node: Operation) -> list[RawShape]:
    params, indices = at_least_rank(node.inputs[0].raw_shape, 1), node.inputs[1].raw_shape
    return [None if params is None or indices is None else indices + params[1:]]


@_gather_v2.shape
def _gather_v2_shape(node: Operation) -> list[RawShape]:
    params, indices = at_least_rank(node.inputs[0].raw_shape, 1), node.inputs[1].raw_shape
    batch, value = node.attrs["batch_dims"], constant_value(node.inputs[2])
    if params is None or indices is None:
        return [None]
    batch += len(indices) if batch < 0 else 0
    if value is None:
        return [(None,) * (len(params) - 1 + len(indices) - batch)]
    axis = int(value.item())
    at_least_rank(params, axis + 1 if axis >= 0 else -axis)
    axis %= len(params)
    if axis < batch:
        raise ValueError(f"batch_dims ({batch}) must be less than or equal to axis ({axis})")
    shared = merge_raw(params[:batch], indices[:batch])
    return [(*shared, *params[batch:axis], *indices[batch:], *params[axis + 1 :])]  # type: ignore[misc]


@_gather_v2.kernel("CPU")
def _gather_v2_kernel(params: Array, indices: Array, axis: Array, *, batch_dims: int) -> Any:
    position = int(axis.item())
    if not -params.ndim <= position < params.ndim:
        refuse(f"Expected axis in the range [{-params.ndim}, {params.ndim}), but got {position}")
    position %= params.ndim
    batch = batch_dims + indices.ndim if batch_dims < 0 else batch_dims
    if not batch:
        return _gathered(params, indices, position)
    head = params.shape[:batch]
    if batch > indices.ndim or batch > position or indices.shape[:batch] != head:
        shapes = f"params {list(params.shape)} and indices {list(indices.shape)}"
        refuse(f"The first {batch} dimensions of {shapes} must match")
    count = int(np.prod(head))
    rows = params.reshape(count, *params.shape[batch:])
    picks = indices.reshape(count, *indices.shape[batch:])
    found = [_gathered(row, pick, position - batch) for row, pick in zip(rows, picks)]
    tail = (*params.shape[batch:position], *indices.shape[batch:], *params.shape[position + 1 :])
    return np.array(found, params.dtype).reshape(head + tail)


def _gathered(params: Array, indices: Array, axis: int) -> Any:
    limit = params.shape[axis]
    if any_outside(indices, limit):
        bad = np.argwhere((indices < 0) | (indices >= limit))[0]
        where = ",".join(map(str, bad))
        refuse(f"indices{f'[{where}]' if where else ''} = {as_ndarray(indices)[tuple(bad)]} is not in [0, {limit})")
    # The bounds are checked already: "clip" saves numpy's own check and a buffer.
    return params.take(indices, axis, mode="clip") if limit else params.take(indices, axis)


def _row_slices(params: Tensor, indices: Tensor, grad: Tensor) -> IndexedSlices:
    """The gradient of gathering rows, as slices: only the gathered rows have one."""
    with colocate_with(params):
        whole = shape(params, out_type=dtypes.int64)
        whole = cast(whole, dtypes.int32)
    count = expand_dims(size(indices), 0)
    values = reshape(grad, concat([count, whole[1:]], 0))
    return IndexedSlices(values, reshape(indices, count), whole)


@_gather_v2.gradient
def _gather_v2_gradient(node: Operation, grad: Tensor) -> list[Any]:
    params, indices, axis_tensor = node.inputs
    axis = constant_value(axis_tensor)
    if axis is not None and axis.item() == 0 and not node.attrs["batch_dims"]:
        return [_row_slices(params, indices, grad), None, None]
    if node.attrs["batch_dims"] or axis is None or params.raw_shape is None or indices.raw_shape is None:
        return [_folded_gradient(node, grad), None, None]
    position, count = int(axis.item()) % len(params.raw_shape), len(indices.raw_shape)
    # Bring the gathered axes to the front, add up by index, and put the axis back.
    rank = len(params.raw_shape) + count - 1
    gathered = list(range(position, position + count))
    rest = [i for i in range(rank) if i not in gathered]
    moved = raw_ops.Transpose(grad, gathered + rest)
    sizes = shape(params)
    total = raw_ops.UnsortedSegmentSum(moved, indices, sizes[position])
    back = [*range(1, position + 1), 0, *range(position + 1, len(params.raw_shape))]
    return [raw_ops.Transpose(total, back), None, None]


def _folded_gradient(node: Operation, grad: Tensor) -> Tensor:
    """The gradient of a gather within batches, or of one whose axis or ranks the graph does not know.

    With its axes folded into (batch, outer, gathered, inner) it is one unsorted segment sum over all batches.
    """
    params, indices, axis = node.inputs
    sizes, picked, batch = shape(params), shape(indices), node.attrs["batch_dims"]
    position = raw_ops.FloorMod(raw_ops.Cast(axis, DstT=dtypes.int32), size(sizes))
    batch = batch if batch >= 0 else size(picked) + batch
    length, count = sizes[position], _product(picked[batch:])
    heads, outer, inner = (_product(part) for part in (sizes[:batch], sizes[batch:position], sizes[position + 1 :]))
    starts = expand_dims(raw_ops.Mul(raw_ops.Range(0, heads, 1), length), 1)
    rows = raw_ops.AddV2(reshape(raw_ops.Cast(indices, DstT=dtypes.int32), [heads, count]), starts)
    moved = raw_ops.Transpose(reshape(grad, [heads, outer, count, inner]), [0, 2, 1, 3])
    total = raw_ops.UnsortedSegmentSum(moved, rows, raw_ops.Mul(heads, length))
    back = raw_ops.Transpose(reshape(total, [heads, length, outer, inner]), [0, 2, 1, 3])
    return reshape(back, sizes)


def _product(sizes: Tensor) -> Tensor:
    product: Tensor = raw_ops.Prod(sizes, [0])
    return product


# ---- GatherNd -----------------------------------------------------------------------------------


@_gather_nd.shape
def _gather_nd_shape(node: Operation) -> list[RawShape]:
    params, indices = node.inputs[0].raw_shape, at_least_rank(node.inputs[1].raw_shape, 1)
    if params is None or indices is None or indices[-1] is None:
        return [None]
    if indices[-1] > len(params):
        raise ValueError(
            "indices.shape[-1] must be <= params.rank, but saw indices shape: "
            f"{format_raw(indices)} and params shape: {format_raw(params)}"
        )
    return [indices[:-1] + params[indices[-1] :]]


def nd_index(indices: Array, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """The numpy index of rows of coordinates, checked against the array's shape.

    Raises:
      InvalidArgumentError: naming the first row that is outside.
    """
    index = tuple(indices[..., i] for i in range(indices.shape[-1]))
    if len(index) > len(sizes):
        refuse(f"index innermost dimension length must be <= params rank; saw: {len(index)} vs. {len(sizes)}")
    if any(map(any_outside, index, sizes)):
        bounds = np.array(sizes[: len(index)], indices.dtype)
        row = np.argwhere(((indices < 0) | (indices >= bounds)).any(-1))[0]
        where, found = ",".join(map(str, row)), ", ".join(map(str, indices[tuple(row)]))
        refuse(f"indices[{where}] = [{found}] does not index into param shape {format_raw(sizes)}")
    return index


@_gather_nd.kernel("CPU")
def _gather_nd_kernel(params: Array, indices: Array) -> Any:
    index = nd_index(indices, params.shape)
    if not index:
        return np.broadcast_to(as_ndarray(params), indices.shape[:-1] + params.shape)
    return params[index]


@_gather_nd.gradient
def _gather_nd_gradient(node: Operation, grad: Tensor) -> list[Any]:
    params, indices = node.inputs
    whole = shape(params, out_type=indices.dtype.base_dtype)
    if indices.raw_shape is not None and len(indices.raw_shape) == 2 and indices.raw_shape[-1] == 1:
        return [IndexedSlices(grad, squeeze(indices, -1), whole), None]
    return [raw_ops.ScatterNd(indices, grad, whole), None]


# ---- Public functions of gathers -----------------------------------------------------------------------------------


@export("tf.gather")
def gather(
    params: TensorLike, indices: TensorLike, validate_indices: bool | None = None, name: str | None = None,
    axis: AxisLike | None = None, batch_dims: int = 0,
) -> Tensor:  # fmt: skip
    """The slices of ``params`` along ``axis`` at ``indices`` (``tf.gather``).

    Args:
      params: of rank at least 1.
      indices: integers of any shape, within the axis.
      validate_indices: without effect; indices are always checked.
      name: of the op.
      axis: default 0, or ``batch_dims`` when that is given.
      batch_dims: leading dimensions that params and indices share.
    """
    if axis is None:
        axis = batch_dims
    if isinstance(axis, (int, np.integer)) and axis == 0 and hasattr(params, "sparse_read"):
        return params.sparse_read(indices, name=name)  # type: ignore[no-any-return]
    return _gather_v2(params, indices, axis, batch_dims=batch_dims, name=name)


@export("tf.batch_gather")
def batch_gather(params: TensorLike, indices: TensorLike, name: str | None = None) -> Tensor:
    """`gather` along the last axis of ``indices``; its other axes are batch dimensions (``tf.batch_gather``)."""
    indices = convert_to_tensor(indices, name="indices")
    if indices.raw_shape is None:
        raise ValueError("batch_gather does not allow indices with unknown shape.")
    depth = len(indices.raw_shape) - 1
    return gather(params, indices, name=name, axis=depth, batch_dims=depth)


@export("tf.gather_nd", "tf.manip.gather_nd")
def gather_nd(params: TensorLike, indices: TensorLike, name: str | None = None, batch_dims: int | Tensor = 0) -> Tensor:
    """The elements or slices at rows of coordinates (``tf.gather_nd``).

    Args:
      batch_dims: the number of leading axes that ``params`` and ``indices`` share, an int or a constant.

    Raises:
      TypeError: ``batch_dims`` is neither.
      ValueError: ``batch_dims`` is negative, or not less than both ranks.
    """
    if isinstance(batch_dims, Tensor) and (known := constant_value(batch_dims)) is not None:
        batch_dims = int(known)
    if not isinstance(batch_dims, (int, np.integer)):
        raise TypeError(f"batch_dims must be an int, but got {batch_dims!r}")
    if batch_dims:
        return _batched_gather_nd(params, indices, batch_dims, name)
    if hasattr(params, "gather_nd"):
        return params.gather_nd(indices, name=name)  # type: ignore[no-any-return]
    return _gather_nd(params, indices, name=name)


def _batched_gather_nd(params: TensorLike, indices: Any, batch_dims: int, name: str | None) -> Tensor:
    """`gather_nd` with the batch coordinates put before the given ones."""
    with name_scope(name, "BatchGatherND") as scope:
        params, indices = convert_to_tensor(params), convert_to_tensor(indices)
        _check_batch_dims(params, indices, batch_dims)
        dtype, rank = indices.dtype, len(indices.raw_shape)
        batch, sizes = shape(params, out_type=dtype)[:batch_dims], shape(indices, out_type=dtype)
        target = concat([batch, sizes[batch_dims:-1], cast([1], dtype)], 0)
        parts = []
        for i in range(batch_dims):
            lane = raw_ops.Range(cast(0, dtype), batch[i], cast(1, dtype))
            form = [1] * rank
            form[i] = -1
            parts.append(raw_ops.BroadcastTo(reshape(lane, form), target))
        return _gather_nd(params, concat([*parts, indices], -1), name=scope)


def _check_batch_dims(params: Tensor, indices: Tensor, batch_dims: int) -> None:
    if batch_dims < 0:
        raise ValueError("tf.gather_nd does not allow negative batch_dims.")
    for tensor, role in ((indices, "indices"), (params, "params")):
        if tensor.raw_shape is not None and batch_dims >= len(tensor.raw_shape):
            raise ValueError(f"batch_dims = {batch_dims} must be less than rank({role}) = {len(tensor.raw_shape)}")
    if indices.raw_shape is None:
        raise ValueError("The rank of indices must be known where batch_dims is not 0.")


# ---- Writes elements by index: ``tf.scatter_nd`` and the tensor_scatter functions ----------------------------------

_TYPES = "T: type; Tindices: {int32, int64}"
_scatter_nd = op(f"ScatterNd(indices: Tindices, updates: T, shape: Tindices) -> output: T; {_TYPES}")
_scatter_nd.gradient(lambda node, grad: [None, gather_nd(grad, node.inputs[0]), None])
_update = op(f"TensorScatterUpdate(tensor: T, indices: Tindices, updates: T) -> output: T; {_TYPES}")
_update.kernel("CPU")(lambda tensor, indices, updates: _apply("update", tensor.copy(), indices, updates))
_add = op(f"TensorScatterAdd(tensor: T, indices: Tindices, updates: T) -> output: T; {_TYPES}")
_sub = op(f"TensorScatterSub(tensor: T, indices: Tindices, updates: T) -> output: T; {_TYPES}")
_sub.kernel("CPU")(lambda tensor, indices, updates: _apply("sub", tensor.copy(), indices, updates))
_sub.gradient(lambda node, grad: [grad, None, raw_ops.Neg(gather_nd(grad, node.inputs[1]))])
_non_aliasing_add = op(f"ScatterNdNonAliasingAdd(input: T, indices: Tindices, updates: T) -> output: T; {_TYPES}")


@_scatter_nd.shape
def _scatter_nd_shape(node: Operation) -> list[RawShape]:
    result = constant_value_as_shape(node.inputs[2])
    _check_emptiness(node.inputs[0].raw_shape, node.inputs[1].raw_shape, result)
    _check_updates(node.inputs[0].raw_shape, node.inputs[1].raw_shape, result)
    return [result]


def _check_emptiness(indices: RawShape, updates: RawShape, whole: RawShape) -> None:
    """Raises ValueError where something is to be written into a result that is known to be empty."""
    given = [s for s in (indices, updates) if s is not None and None not in s]
    if whole is not None and 0 in whole and any(0 not in s for s in given):
        raise ValueError("Indices and updates specified for empty output shape")


def _check_updates(indices: RawShape, updates: RawShape, whole: RawShape) -> None:
    if indices is None or updates is None or whole is None or not indices or indices[-1] is None:
        return
    try:
        merge_raw(updates, indices[:-1] + whole[indices[-1] :])
    except ValueError:
        raise ValueError(
            f"Must have updates.shape = indices.shape[:-1] + shape[indices.shape[-1]:], got updates.shape"
            f" {format_raw(updates)}, indices.shape {format_raw(indices)}, shape {format_raw(whole)}"
        ) from None


@all_of(_update, _add, _sub, _non_aliasing_add).shape
def _same_shape(node: Operation) -> list[RawShape]:
    whole, indices, updates = (t.raw_shape for t in node.inputs)
    _check_updates(indices, updates, whole)
    return [whole]


def _apply(operation: str, result: Array, indices: Array, updates: Array) -> Any:
    depth = indices.shape[-1]
    if np.shape(updates) != indices.shape[:-1] + result.shape[depth:]:
        refuse(
            "Must have updates.shape = indices.shape[:-1] + params_shape[indices.shape[-1]:], got updates.shape"
            f" {format_raw(np.shape(updates))}, indices.shape {format_raw(indices.shape)}, params_shape"
            f" {format_raw(result.shape)}"
        )
    if not np.size(updates):
        return result
    if not (indices.size and result.size):
        refuse("Indices and updates specified for empty output shape")
    nd_index(indices, result.shape)
    rows, numbers = as_rows(result, indices)
    scatter_rows(operation, rows, numbers, np.reshape(updates, (len(numbers), *rows.shape[1:])))
    return result


@_scatter_nd.kernel("CPU")
def _scatter_nd_kernel(indices: Array, updates: Array, shape: Array) -> Any:
    result = filled(tuple(shape.tolist()), zero_of(updates.dtype), updates.dtype)
    return _apply("add", result, indices, updates)


@all_of(_add, _non_aliasing_add).kernel("CPU")
def _add_kernel(tensor: Array, indices: Array, updates: Array) -> Any:
    return _apply("add", tensor.copy(), indices, updates)


@_update.gradient
def _update_gradient(node: Operation, grad: Tensor) -> list[Any]:
    _, indices, updates = node.inputs
    kept = _update(grad, indices, raw_ops.ZerosLike(updates))
    return [kept, None, gather_nd(grad, indices)]


@all_of(_add, _non_aliasing_add).gradient
def _add_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [grad, None, gather_nd(grad, node.inputs[1])]


# ---- Public functions of scatters ----------------------------------------------------------------------------------


@export("tf.scatter_nd", "tf.manip.scatter_nd")
def scatter_nd(indices: TensorLike, updates: TensorLike, shape: SizesLike, name: str | None = None) -> Tensor:
    """Zeros of ``shape`` with ``updates`` added at rows of coordinates (``tf.scatter_nd``)."""
    return _scatter_nd(indices, updates, shape, name=name)


@export("tf.tensor_scatter_update")
def tensor_scatter_update(
    tensor: TensorLike, indices: TensorLike, updates: TensorLike, name: str | None = None
) -> Tensor:
    """``tensor`` with the elements at ``indices`` replaced (``tf.tensor_scatter_update``)."""
    return _update(tensor, indices, updates, name=name)


@export("tf.tensor_scatter_add")
def tensor_scatter_add(tensor: TensorLike, indices: TensorLike, updates: TensorLike, name: str | None = None) -> Tensor:
    """``tensor`` with ``updates`` added at ``indices`` (``tf.tensor_scatter_add``)."""
    return _add(tensor, indices, updates, name=name)


@export("tf.tensor_scatter_sub")
def tensor_scatter_sub(tensor: TensorLike, indices: TensorLike, updates: TensorLike, name: str | None = None) -> Tensor:
    """``tensor`` with ``updates`` subtracted at ``indices`` (``tf.tensor_scatter_sub``)."""
    return _sub(tensor, indices, updates, name=name)


tensor_scatter_nd_update, tensor_scatter_nd_add, tensor_scatter_nd_sub = (
    tensor_scatter_update,
    tensor_scatter_add,
    tensor_scatter_sub,
)

export_names("tf", "tensor_scatter_nd_add tensor_scatter_nd_sub tensor_scatter_nd_update")


# ---- Updates of rows: ``InplaceUpdate``, ``InplaceAdd``, ``InplaceSub``; and ``DeepCopy``, ``Empty`` ---------------
# TensorFlow writes into its input. Here other ops may share the input, so the result is a copy.

_ROWS = "(x: T, i: int32, v: T) -> y: T; T: type"
update_op, add_op, sub_op = (op(f"Inplace{kind}{_ROWS}", shape=same_shape) for kind in ("Update", "Add", "Sub"))
deep_copy_op = op("DeepCopy(x: T) -> y: T; T: type", stateful=True, shape=same_shape)
deep_copy_op.kernel("CPU")(lambda x: x.copy() if isinstance(x, np.ndarray) else x)
empty_op = op("Empty(shape: int32) -> output: dtype; dtype: type; init: bool = false", stateful=True, shape=given_shape)
all_of(update_op, add_op, sub_op, deep_copy_op).without_gradient()
empty_op.not_differentiable()


def _attach(handle: OpHandle, change: Callable[[Any, Any, Any], None]) -> None:
    @handle.kernel("CPU")
    def _kernel(x: Array, i: Array, v: Array) -> Any:
        rows = np.asarray(i)
        if rows.ndim != 1:
            refuse("i must be a vector. ")
        if rows.size != len(v):
            refuse(f"i and x shape doesn't match at dimension 0: {rows.size} vs. {len(v)}")
        if x.shape[1:] != v.shape[1:]:
            refuse(f"x and v shape doesn't match: {list(x.shape)} {list(v.shape)}")
        result = x.copy()
        change(result, rows % max(len(x), 1), v)  # As in TensorFlow, a row number past the end starts again at 0.
        return result


def _assign(x: Array, rows: Array, v: Array) -> None:
    x[rows] = v


_attach(update_op, _assign)
_attach(add_op, np.add.at)
_attach(sub_op, np.subtract.at)


@empty_op.kernel("CPU")
def _empty(shape: Array, *, dtype: dtypes.DType, init: bool) -> Any:
    # Zeroed even without ``init``: uninitialised memory may hold data of other steps.
    return filled(tuple(shape.tolist()), zero_of(dtype.numpy), dtype.numpy)


# ---- Paths through the beams of a search: ``GatherTree`` ------------------------------------------------------------

_gather_tree = op(
    "GatherTree(step_ids: T, parent_ids: T, max_sequence_lengths: int32, end_token: T) -> beams: T; T: {int32}",
    shape=same_shape,
    differentiable=False,
)


@_gather_tree.kernel("CPU")
def _gather_tree_kernel(step_ids: Array, parent_ids: Array, lengths: Array, end_token: Array) -> Array:
    if step_ids.ndim != 3 or parent_ids.shape != step_ids.shape:
        refuse(f"step_ids must be a 3-tensor and parent_ids as large, saw {step_ids.shape} and {parent_ids.shape}")
    steps, batch, width = step_ids.shape
    if lengths.shape != (batch,) or end_token.ndim:
        refuse(f"max_sequence_lengths must be a vector of {batch} and end_token a scalar, saw {lengths.shape}")
    beams = np.full_like(step_ids, end_token)
    ends, rows = np.minimum(lengths, steps), np.arange(batch)[:, None]
    beam = np.broadcast_to(np.arange(width), (batch, width))
    for step in range(steps - 1, -1, -1):
        inside = (ends > step)[:, None]
        if ((beam < 0) | (beam >= width))[inside[:, 0]].any():
            refuse(f"Saw invalid parent id in step {step + 1}: parents are beams, 0 to {width - 1}")
        at = np.where(inside, beam, 0)
        beams[step] = np.where(inside, step_ids[step, rows, at], end_token)
        beam = np.where(inside, parent_ids[step, rows, at], beam)
    ended = np.maximum.accumulate(beams == end_token, axis=0) if steps else np.zeros_like(beams, bool)
    return np.where(ended, end_token, beams)


@export("tf.contrib.seq2seq.gather_tree")
def gather_tree(
    step_ids: TensorLike, parent_ids: TensorLike, max_sequence_lengths: TensorLike, end_token: TensorLike,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The ids on the path to each final beam (``tf.contrib.seq2seq.gather_tree``).

    Args:
      step_ids, parent_ids: int32 ``[steps, batch, beams]``: the ids of each step, and the beam that each extends.
      max_sequence_lengths: int32 ``[batch]``; what lies beyond is ``end_token``, as is all that follows one.

    Returns:
      int32 ``[steps, batch, beams]``.
    """
    return _gather_tree(step_ids, parent_ids, max_sequence_lengths, end_token, name=name)


# ---- The row updates that old scripts import from ``tensorflow.python.ops.inplace_ops`` ----------------------------


def inplace_update(x: TensorLike, i: TensorLike, v: TensorLike) -> Tensor:
    """``x`` with the rows ``i`` replaced by ``v``; ``i`` may be one number, or None for all rows."""
    return _on_rows(update_op, x, i, v)


def inplace_add(x: TensorLike, i: TensorLike, v: TensorLike) -> Tensor:
    """``x`` with ``v`` added to the rows ``i``; see `inplace_update`."""
    return _on_rows(add_op, x, i, v)


def inplace_sub(x: TensorLike, i: TensorLike, v: TensorLike) -> Tensor:
    """``x`` with ``v`` subtracted from the rows ``i``; see `inplace_update`."""
    return _on_rows(sub_op, x, i, v)


alias_inplace_update, alias_inplace_add, alias_inplace_sub = inplace_update, inplace_add, inplace_sub


def _on_rows(handle: OpHandle, x: TensorLike, i: TensorLike, v: TensorLike) -> Tensor:
    x = convert_to_tensor(x)
    v = convert_to_tensor(v, x.dtype.base_dtype)
    if i is None:  # All elements, as one row.
        flat = handle(reshape(x, [1, -1]), [0], reshape(v, [1, -1]))
        return reshape(flat, shape(x))
    rows = convert_to_tensor(i, dtypes.int32)
    if rows.shape.ndims == 0:
        return handle(x, reshape(rows, [1]), expand_dims(v, 0))
    return handle(x, rows, v)


def empty(shape: SizesLike, dtype: DTypeLike, init: bool = False) -> Tensor:
    """A tensor of the given shape with unspecified content."""
    return empty_op(shape, dtype=dtypes.as_dtype(dtype), init=init)


def empty_like(x: TensorLike, init: bool | None = None) -> Tensor:
    """A tensor of the shape and type of ``x`` with unspecified content."""
    x = convert_to_tensor(x)
    return empty(shape(x), x.dtype, bool(init))
