"""Convolution in three spatial dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import op
from tfmini.ops.array_shape import shape
from tfmini.ops.array_values import refuse
from tfmini.ops.constant_value import constant_value_as_shape
from tfmini.ops.nn_arguments import either
from tfmini.ops.nn_volume_windows import (
    FORMAT,
    SLIDE,
    arranged,
    axes_of,
    blank,
    check_lists,
    cut,
    five,
    inward,
    offsets_of,
    outward,
    padded,
    parts_of,
    spatial,
)
from tfmini.ops.nn_windows import Array, Axis, output_size
from tfmini.ops.scoping import name_scope
from tfmini.shapes import RawShape, merge_dims, with_rank

_CONV = f"; {SLIDE}; {FORMAT}; dilations: list(int) = [1, 1, 1, 1, 1]; T: {{half, bfloat16, float, double}}"
conv3d_op = op("Conv3D(input: T, filter: T) -> output: T" + _CONV)
conv3d_input_op = op(
    "Conv3DBackpropInputV2(input_sizes: Tshape, filter: T, out_backprop: T) -> output: T" + _CONV
    + "; Tshape: {int32, int64} = DT_INT32"
)  # fmt: skip
conv3d_filter_op = op("Conv3DBackpropFilterV2(input: T, filter_sizes: int32, out_backprop: T) -> output: T" + _CONV)


# ---- shapes ---------------------------------------------------------------------------------


@conv3d_op.shape
def _conv3d_shape(node: Operation) -> list[RawShape]:
    check_lists(node, "strides", "dilations")
    data_format = node.attrs["data_format"]
    batch, space, channels = parts_of(with_rank(node._inputs[0]._shape, 5), data_format)
    filters = with_rank(node._inputs[1]._shape, 5)
    merge_dims(channels, filters[3])
    steps, holes = (spatial(node.attrs[n], data_format) for n in ("strides", "dilations"))
    sizes = [output_size(*at, node.attrs["padding"]) for at in zip(space, filters[:3], steps, holes)]
    return [arranged(batch, sizes, filters[4], data_format)]


@conv3d_input_op.shape
def _conv3d_input_shape(node: Operation) -> list[RawShape]:
    return [with_rank(constant_value_as_shape(node._inputs[0]), 5)]


@conv3d_filter_op.shape
def _conv3d_filter_shape(node: Operation) -> list[RawShape]:
    return [with_rank(constant_value_as_shape(node._inputs[1]), 5)]




# ---- convolution ----------------------------------------------------------------------------


@conv3d_op.kernel_factory("CPU")
def _conv3d_factory(node: Any) -> Callable[..., Array]:
    def kernel(volume: Array, filters: Array) -> Array:
        volume = inward(volume, node)
        filters = filters.astype(volume.dtype, copy=False)
        if volume.shape[-1] != filters.shape[3]:
            refuse(f"Conv3D: input depth {volume.shape[-1]} and filter depth {filters.shape[3]} must be equal")
        axes = axes_of(node, volume.shape[1:4], filters.shape[:3])
        source = padded(volume, axes)
        total = np.zeros((volume.shape[0] * axes[0].out * axes[1].out * axes[2].out, filters.shape[4]), volume.dtype)
        for place, where in offsets_of(axes):
            total += source[where].reshape(-1, volume.shape[4]) @ filters[place]
        return outward(total.reshape(volume.shape[0], *(a.out for a in axes), filters.shape[4]), node)

    return kernel


@conv3d_input_op.kernel_factory("CPU")
def _conv3d_input_factory(node: Any) -> Callable[..., Array]:
    def kernel(sizes: Array, filters: Array, grad: Array) -> Array:
        grad = inward(grad, node)
        filters = filters.astype(grad.dtype, copy=False)
        batch, space, channels = parts_of(tuple(int(s) for s in sizes), node.attrs["data_format"])
        axes = axes_of(node, space, filters.shape[:3])
        _check_grad(grad, batch, axes)
        total = blank(batch, axes, channels, grad.dtype)
        flat = grad.reshape(-1, grad.shape[4])
        for place, where in offsets_of(axes):
            total[where] += (flat @ filters[place].T).reshape(*grad.shape[:4], channels)
        return outward(cut(total, axes), node)

    return kernel


def _check_grad(grad: Array, batch: int, axes: list[Axis]) -> None:
    wanted = (batch, *(a.out for a in axes))
    if grad.shape[:4] != wanted:
        refuse(f"Conv3D: the gradient has batch and spatial sizes {list(grad.shape[:4])}, not {list(wanted)}")


@conv3d_filter_op.kernel_factory("CPU")
def _conv3d_filter_factory(node: Any) -> Callable[..., Array]:
    def kernel(volume: Array, sizes: Array, grad: Array) -> Array:
        volume, grad = inward(volume, node), inward(grad, node)
        axes = axes_of(node, volume.shape[1:4], tuple(int(s) for s in sizes[:3]))
        _check_grad(grad, volume.shape[0], axes)
        source = padded(volume, axes)
        found = np.empty(tuple(int(s) for s in sizes), grad.dtype)
        flat = grad.reshape(-1, grad.shape[4])
        for place, where in offsets_of(axes):
            found[place] = source[where].reshape(-1, volume.shape[4]).T @ flat
        return found.astype(node.attrs["T"].numpy, copy=False)

    return kernel


def _conv_attrs(node: Operation) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("strides", "padding", "data_format", "dilations")}


@conv3d_op.gradient
def _conv3d_gradient(node: Operation, grad: Tensor) -> list[Any]:
    volume, filters = node._inputs
    attrs = _conv_attrs(node)
    return [
        conv3d_input_op(shape(volume), filters, grad, **attrs),
        conv3d_filter_op(volume, shape(filters), grad, **attrs),
    ]


@conv3d_input_op.gradient
def _conv3d_input_gradient(node: Operation, grad: Tensor) -> list[Any]:
    _, filters, back = node._inputs
    attrs = _conv_attrs(node)
    return [None, conv3d_filter_op(grad, shape(filters), back, **attrs), conv3d_op(grad, filters, **attrs)]


@conv3d_filter_op.gradient
def _conv3d_filter_gradient(node: Operation, grad: Tensor) -> list[Any]:
    volume, _, back = node._inputs
    attrs = _conv_attrs(node)
    return [conv3d_input_op(shape(volume), grad, back, **attrs), None, conv3d_op(volume, grad, **attrs)]




# ---- public functions -----------------------------------------------------------------------


def conv3d(
    input: Any, filter: Any = None, strides: Any = None, padding: Any = None, data_format: str = "NDHWC",
    dilations: Any = (1, 1, 1, 1, 1), name: str | None = None, filters: Any = None,
) -> Tensor:  # fmt: skip
    """Convolves volumes [batch, depth, rows, columns, channels] (``tf.nn.conv3d``).

    Args:
      filter: [depth, rows, columns, channels in, channels out].
      strides: five ints in the layout of ``data_format``.
      dilations: five ints.
    """
    return conv3d_op(  # type: ignore[no-any-return]
        input, either("filters", filters, "filter", filter), strides=list(strides), padding=padding,
        data_format=data_format, dilations=list(dilations), name=name,
    )  # fmt: skip


def conv3d_backprop_filter(
    input: Any, filter_sizes: Any, out_backprop: Any, strides: Any, padding: Any, data_format: str = "NDHWC",
    dilations: Any = (1, 1, 1, 1, 1), name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `conv3d` for its filter (``tf.nn.conv3d_backprop_filter``)."""
    return conv3d_filter_op(  # type: ignore[no-any-return]
        input, filter_sizes, out_backprop, strides=list(strides), padding=padding, data_format=data_format,
        dilations=list(dilations), name=name,
    )  # fmt: skip


def conv3d_transpose(
    value: Any, filter: Any = None, output_shape: Any = None, strides: Any = None, padding: str = "SAME",
    data_format: str = "NDHWC", name: str | None = None, input: Any = None, filters: Any = None,
    dilations: Any = None,
) -> Tensor:  # fmt: skip
    """The transpose of `conv3d` (``tf.nn.conv3d_transpose``).

    Args:
      value: [batch, depth, rows, columns, channels in].
      filter: [depth, rows, columns, channels out, channels in].
      output_shape: of the result.
    """
    filter = either("filters", filters, "filter", filter)
    value = either("input", input, "value", value)
    with name_scope(name, "conv3d_transpose", [value, filter, output_shape]) as scope:
        return conv3d_input_op(  # type: ignore[no-any-return]
            output_shape, filter, value, strides=five(strides, data_format, "strides"), padding=padding,
            data_format=data_format, dilations=five(dilations, data_format, "dilations"), name=scope,
        )  # fmt: skip
