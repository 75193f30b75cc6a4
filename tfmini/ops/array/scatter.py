"""Writes elements by index: ``tf.scatter_nd`` and the tensor_scatter functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, all_of, op
from tfmini.ops.array.constant_value import constant_value_as_shape
from tfmini.ops.array.gather import gather_nd, nd_index
from tfmini.ops.array.kernel_arguments import filled, refuse, zero_of
from tfmini.shapes import RawShape, format_raw, merge_raw

_TYPES = "T: type; Tindices: {int32, int64}"
_scatter_nd = op(f"ScatterNd(indices: Tindices, updates: T, shape: Tindices) -> output: T; {_TYPES}")
_scatter_nd.gradient(lambda node, grad: [None, gather_nd(grad, node.inputs[0]), None])
_update = op(f"TensorScatterUpdate(tensor: T, indices: Tindices, updates: T) -> output: T; {_TYPES}")
_update.kernel("CPU")(lambda tensor, indices, updates: _apply(None, tensor.copy(), indices, updates))
_add = op(f"TensorScatterAdd(tensor: T, indices: Tindices, updates: T) -> output: T; {_TYPES}")
_sub = op(f"TensorScatterSub(tensor: T, indices: Tindices, updates: T) -> output: T; {_TYPES}")
_sub.kernel("CPU")(lambda tensor, indices, updates: _apply(np.subtract, tensor.copy(), indices, updates))
_sub.gradient(lambda node, grad: [grad, None, raw_ops.Neg(gather_nd(grad, node.inputs[1]))])
_non_aliasing_add = op(f"ScatterNdNonAliasingAdd(input: T, indices: Tindices, updates: T) -> output: T; {_TYPES}")


@_scatter_nd.shape
def _scatter_nd_shape(node: Operation) -> list[RawShape]:
    result = constant_value_as_shape(node.inputs[2])
    _check_updates(node.inputs[0].raw_shape, node.inputs[1].raw_shape, result)
    return [result]


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


def _apply(ufunc: Any, result: Any, indices: Any, updates: Any) -> Any:
    depth = indices.shape[-1]
    if np.shape(updates) != indices.shape[:-1] + result.shape[depth:]:
        refuse(
            "Must have updates.shape = indices.shape[:-1] + params_shape[indices.shape[-1]:], got updates.shape"
            f" {format_raw(np.shape(updates))}, indices.shape {format_raw(indices.shape)}, params_shape"
            f" {format_raw(result.shape)}"
        )
    if np.size(updates) and not (indices.size and result.size):
        refuse("Indices and updates specified for empty output shape")
    index = nd_index(indices, result.shape)
    if ufunc is None:
        result[index] = updates
    else:
        ufunc.at(result, index, updates)
    return result


@_scatter_nd.kernel("CPU")
def _scatter_nd_kernel(indices: Any, updates: Any, shape: Any) -> Any:
    result = filled(tuple(shape.tolist()), zero_of(updates.dtype), updates.dtype)
    return _apply(np.add, result, indices, updates)


@all_of(_add, _non_aliasing_add).kernel("CPU")
def _add_kernel(tensor: Any, indices: Any, updates: Any) -> Any:
    return _apply(np.add, tensor.copy(), indices, updates)


@_update.gradient
def _update_gradient(node: Operation, grad: Any) -> list[Any]:
    _, indices, updates = node.inputs
    kept = _update(grad, indices, raw_ops.ZerosLike(updates))
    return [kept, None, gather_nd(grad, indices)]


@all_of(_add, _non_aliasing_add).gradient
def _add_gradient(node: Operation, grad: Any) -> list[Any]:
    return [grad, None, gather_nd(grad, node.inputs[1])]


# ---- public functions ---------------------------------------------------------------------------


@export("tf.scatter_nd", "tf.manip.scatter_nd")
def scatter_nd(indices: Any, updates: Any, shape: Any, name: str | None = None) -> Tensor:
    """Zeros of ``shape`` with ``updates`` added at rows of coordinates (``tf.scatter_nd``)."""
    return _scatter_nd(indices, updates, shape, name=name)


@export("tf.tensor_scatter_update")
def tensor_scatter_update(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Tensor:
    """``tensor`` with the elements at ``indices`` replaced (``tf.tensor_scatter_update``)."""
    return _update(tensor, indices, updates, name=name)


@export("tf.tensor_scatter_add")
def tensor_scatter_add(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Tensor:
    """``tensor`` with ``updates`` added at ``indices`` (``tf.tensor_scatter_add``)."""
    return _add(tensor, indices, updates, name=name)


@export("tf.tensor_scatter_sub")
def tensor_scatter_sub(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Tensor:
    """``tensor`` with ``updates`` subtracted at ``indices`` (``tf.tensor_scatter_sub``)."""
    return _sub(tensor, indices, updates, name=name)


tensor_scatter_nd_update, tensor_scatter_nd_add, tensor_scatter_nd_sub = (
    tensor_scatter_update,
    tensor_scatter_add,
    tensor_scatter_sub,
)

export_names("tf", "tensor_scatter_nd_add tensor_scatter_nd_sub tensor_scatter_nd_update")
