"""Max pooling whose window and strides are tensors (``MaxPoolV2``); dilation and erosion of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfmini.core_types import Array, PaddingLike, TensorLike
from tfmini.export import either, export
from tfmini.graph.families import Operation, Tensor, name_scope, op, same_shape, second_shape
from tfmini.graph.node import Node
from tfmini.numerics.windows import Axes, padded
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.layout import reverse
from tfmini.ops.math.elementwise import negative
from tfmini.ops.nn.pooling import max_pool_grad_grad_of, max_pool_grad_of, max_pool_of, pooled_shape
from tfmini.ops.nn.windows import Windows, check_lengths
from tfmini.shapes import RawShape, merge_dims, merge_raw, with_rank

_POOL_ATTRS = "; padding: {'SAME', 'VALID'}; data_format: {'NHWC', 'NCHW'} = 'NHWC'; T: realnumbertype"
_GRAD = "(orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32) -> output: T"

max_pool_v2_op = op(
    "MaxPoolV2(input: T, ksize: int32, strides: int32) -> output: T"
    "; T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = DT_FLOAT"
    "; padding: {'SAME', 'VALID'}; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"
)
max_pool_v2_op.kernel_factory("CPU")(
    lambda node: lambda image, ksize, strides: max_pool_of(_sized(node.attrs, ksize, strides))(image)
)
max_pool_grad_v2_op = op("MaxPoolGradV2" + _GRAD + _POOL_ATTRS + " = DT_FLOAT")
max_pool_grad_v2_op.shape(lambda node: [with_rank(node.inputs[0].raw_shape, 4)])
max_pool_grad_grad_v2_op = op("MaxPoolGradGradV2" + _GRAD + _POOL_ATTRS)
max_pool_grad_grad_v2_op.shape(lambda node: [merge_raw(with_rank(node.inputs[1].raw_shape, 4), None)])


@max_pool_v2_op.shape
def _shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[0].raw_shape, 4)
    sizes = [constant_value(t) for t in node.inputs[1:]]
    if any(size is None for size in sizes):
        return [(None,) * 4]
    attrs = {**node.attrs, "ksize": sizes[0].tolist(), "strides": sizes[1].tolist()}  # type: ignore[union-attr]
    return [pooled_shape(node, attrs)]


def _sized(attrs: Mapping[str, Any], ksize: Array, strides: Array) -> dict[str, Any]:
    """The attrs of the op with fixed window and strides."""
    for name, sizes in (("ksize", ksize), ("strides", strides)):
        if sizes.shape != (4,):
            refuse(f"Sliding window {name} field must specify 4 dimensions")
    return {**attrs, "ksize": ksize.tolist(), "strides": strides.tolist()}


@max_pool_grad_v2_op.kernel_factory("CPU")
def _grad_kernel(node: Node) -> Callable[..., Array]:
    def grad_kernel(image: Array, result: Array, grad: Array, ksize: Array, strides: Array) -> Array:
        return max_pool_grad_of(_sized(node.attrs, ksize, strides))(image, result, grad)

    return grad_kernel


@max_pool_grad_grad_v2_op.kernel_factory("CPU")
def _grad_grad_kernel(node: Node) -> Callable[..., Array]:
    def grad_grad_kernel(image: Array, result: Array, grad: Array, ksize: Array, strides: Array) -> Array:
        return max_pool_grad_grad_of(_sized(node.attrs, ksize, strides))(image, result, grad)

    return grad_grad_kernel


def _attrs(node: Operation) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("padding", "data_format")}


@max_pool_v2_op.gradient
def _gradient(node: Operation, grad: Tensor) -> list[Any]:
    image, ksize, strides = node.inputs
    return [max_pool_grad_v2_op(image, node.outputs[0], grad, ksize, strides, **_attrs(node)), None, None]


@max_pool_grad_v2_op.gradient
def _grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    image, result, _, ksize, strides = node.inputs
    return [None, None, max_pool_grad_grad_v2_op(image, result, grad, ksize, strides, **_attrs(node)), None, None]


@max_pool_grad_grad_v2_op.gradient
def _grad_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    image, result, _, ksize, strides = node.inputs
    return [None, None, max_pool_grad_v2_op(image, result, grad, ksize, strides, **_attrs(node)), None, None]


# ---- Grey-scale dilation and erosion of images ---------------------------------------------------------------------

_DILATION_ATTRS = "; T: realnumbertype; strides: list(int) >= 4; rates: list(int) >= 4; padding: {'SAME', 'VALID'}"
dilation_op = op("Dilation2D(input: T, filter: T) -> output: T" + _DILATION_ATTRS)
dilation_input_op = op(
    "Dilation2DBackpropInput(input: T, filter: T, out_backprop: T) -> in_backprop: T" + _DILATION_ATTRS,
    shape=same_shape,
    differentiable=None,
)
dilation_filter_op = op(
    "Dilation2DBackpropFilter(input: T, filter: T, out_backprop: T) -> filter_backprop: T" + _DILATION_ATTRS,
    shape=second_shape,
    differentiable=None,
)


@dilation_op.shape
def _dilation_shape(node: Operation) -> list[RawShape]:
    image, window = with_rank(node.inputs[0].raw_shape, 4), with_rank(node.inputs[1].raw_shape, 3)
    for name in ("strides", "rates"):
        values = node.attrs[name]
        check_lengths(node.type, 4, **{name: values})
        if values[0] != 1 or values[3] != 1:
            raise ValueError(f"Current implementation does not yet support {name} in the batch and depth dimensions.")
    pixels = Windows(node.attrs, "rates").out_sizes(image[1:3], window[:2])
    return [(image[0], *pixels, merge_dims(image[3], window[2]))]


def _placer(node: Node) -> Callable[..., tuple[Array, Axes]]:
    """A function of image, filter and gradient: it checks them, and returns the image with its border and windows."""
    windows = Windows(node.attrs, "rates")

    def place(image: Array, window: Array, grad: Array | None = None) -> tuple[Array, Axes]:
        if image.ndim != 4 or window.ndim != 3:
            shapes = f"{list(image.shape)} and {list(window.shape)}"
            refuse(f"input must be 4-dimensional and filter 3-dimensional, got {shapes}")
        if image.shape[3] != window.shape[2]:
            refuse(f"input and filter must have the same depth: {image.shape[3]} vs {window.shape[2]}")
        axes = windows.axes(image.shape[1:3], window.shape[:2])
        wanted = (len(image), *axes.out, image.shape[3])
        if grad is not None and grad.shape != wanted:
            refuse(f"out_backprop has incompatible size: {list(grad.shape)}, {list(wanted)} is expected")
        return padded(image, axes, np.iinfo(image.dtype).min if image.dtype.kind in "iu" else -np.inf), axes

    return place


def _largest(source: Array, window: Array, axes: Axes) -> tuple[Array, Array]:
    """The largest sum of each window, and the number of the first offset that has it."""
    best: Any = None
    for number, (place, where) in enumerate(axes.elements()):
        here = source[where] + window[place]
        if best is None:
            best, first = here, np.zeros(here.shape, np.int32)
            continue
        better = here > best
        np.copyto(best, here, where=better)
        first[better] = number
    return best, first


@dilation_op.kernel_factory("CPU")
def _dilation_factory(node: Node) -> Callable[[Array, Array], Array]:
    place = _placer(node)

    def dilation(image: Array, window: Array) -> Array:
        source, axes = place(image, window)
        return _largest(source, window, axes)[0]

    return dilation


@dilation_input_op.kernel_factory("CPU")
def _input_factory(node: Node) -> Callable[[Array, Array, Array], Array]:
    place = _placer(node)

    def backprop(image: Array, window: Array, grad: Array) -> Array:
        source, axes = place(image, window, grad)
        _, first = _largest(source, window, axes)
        total = np.zeros(source.shape, grad.dtype)
        for number, (_, where) in enumerate(axes.elements()):
            total[where] += np.where(first == number, grad, 0)
        return total[axes.inner]

    return backprop


@dilation_filter_op.kernel_factory("CPU")
def _filter_factory(node: Node) -> Callable[[Array, Array, Array], Array]:
    place = _placer(node)

    def backprop(image: Array, window: Array, grad: Array) -> Array:
        source, axes = place(image, window, grad)
        _, first = _largest(source, window, axes)
        total = np.zeros_like(window)
        for number, (element, _) in enumerate(axes.elements()):
            total[element] = np.where(first == number, grad, 0).sum(axis=(0, 1, 2))
        return total

    return backprop


@dilation_op.gradient
def _dilation_gradient(node: Operation, grad: Tensor) -> list[Any]:
    attrs = {name: node.attrs[name] for name in ("strides", "rates", "padding")}
    return [dilation_input_op(*node.inputs, grad, **attrs), dilation_filter_op(*node.inputs, grad, **attrs)]


@export("tf.nn.dilation2d")
def dilation2d(
    input: TensorLike, filter: TensorLike | None = None, strides: int | Sequence[int] | None = None,
    rates: TensorLike | None = None, padding: PaddingLike | None = None, name: str | None = None,
    filters: TensorLike | None = None, dilations: int | Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The maximum of pixel plus filter over each window, channel by channel (``tf.nn.dilation2d``).

    Args:
      input: [batch, rows, columns, channels].
      filter: [rows, columns, channels].
      strides, rates: ``[1, rows, columns, 1]``.
      padding: "SAME" or "VALID".
    """
    return dilation_op(
        input, either("filters", filters, "filter", filter), strides=strides,
        rates=either("dilations", dilations, "rates", rates), padding=padding, name=name,
    )  # fmt: skip


@export("tf.nn.erosion2d")
def erosion2d(
    value: TensorLike, kernel: TensorLike, strides: int | Sequence[int], rates: TensorLike, padding: PaddingLike,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The minimum of pixel minus kernel over each window (``tf.nn.erosion2d``); see `dilation2d`."""
    with name_scope(name, "erosion2d", [value, kernel]) as scope:
        mirrored = reverse(kernel, [0, 1])
        dilated = dilation_op(negative(value), mirrored, strides=strides, rates=rates, padding=padding)
        return negative(dilated, name=scope)
