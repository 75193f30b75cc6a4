"""Two-dimensional convolutions and their gradients (``Conv2D`` and ``DepthwiseConv2dNative``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.errors import InvalidArgumentError, UnimplementedError
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import op
from tfmini.ops import nn_conv_kernels as kernels
from tfmini.ops.array_shape import shape, shape_n
from tfmini.ops.constant_value import constant_value_as_shape
from tfmini.ops.nn_windows import (
    Array,
    Axis,
    arrange,
    explicit_pair,
    from_nhwc,
    image_axes,
    output_size,
    to_nhwc,
    window_axis,
)  # fmt: skip
from tfmini.shapes import RawShape, with_rank

_ATTRS = """
    T: {half, bfloat16, float, double}
    strides: list(int)
    use_cudnn_on_gpu: bool = true
    padding: {'SAME', 'VALID', 'EXPLICIT'}
    explicit_paddings: list(int) = []
    data_format: {'NHWC', 'NCHW'} = 'NHWC'
    dilations: list(int) = [1, 1, 1, 1]"""
_DEPTHWISE_ATTRS = _ATTRS.replace("    use_cudnn_on_gpu: bool = true\n", "")

conv2d_op = op("Conv2D(input: T, filter: T) -> output: T" + _ATTRS)
backprop_input_op = op("Conv2DBackpropInput(input_sizes: int32, filter: T, out_backprop: T) -> output: T" + _ATTRS)
backprop_filter_op = op("Conv2DBackpropFilter(input: T, filter_sizes: int32, out_backprop: T) -> output: T" + _ATTRS)
depthwise_op = op("DepthwiseConv2dNative(input: T, filter: T) -> output: T" + _DEPTHWISE_ATTRS)
depthwise_backprop_input_op = op(
    "DepthwiseConv2dNativeBackpropInput(input_sizes: int32, filter: T, out_backprop: T) -> output: T"
    + _DEPTHWISE_ATTRS
)
depthwise_backprop_filter_op = op(
    "DepthwiseConv2dNativeBackpropFilter(input: T, filter_sizes: int32, out_backprop: T) -> output: T"
    + _DEPTHWISE_ATTRS
)


# ---- shapes -------------------------------------------------------------------------------------


def _check_attrs(node: Operation) -> None:
    for attr, what in (("strides", "strides"), ("dilations", "dilations")):
        values = node.attrs[attr]
        if len(values) != 4:
            raise ValueError(
                f"{node.type} requires the {what[:-1]} attribute to contain 4 values, but got: {len(values)}"
            )
        batch, _, _, channels = image_axes(node.attrs["data_format"])
        if values[batch] != 1 or values[channels] != 1:
            raise ValueError(f"Current implementation does not support {what} in the batch and depth dimensions.")
        if min(values) < 1:
            raise ValueError(f"{node.type} requires {what} > 0")
    if node.attrs["padding"] == b"EXPLICIT" and len(node.attrs["explicit_paddings"]) != 8:
        raise ValueError("explicit_paddings attribute must contain 8 values with EXPLICIT padding")


def _output_pixels(node: Operation, image: tuple[Any, ...], filters: tuple[Any, ...]) -> tuple[Any, Any]:
    attrs = node.attrs
    _, rows, columns, _ = image_axes(attrs["data_format"])
    return tuple(  # type: ignore[return-value]
        output_size(
            image[axis], window, attrs["strides"][axis], attrs["dilations"][axis], attrs["padding"],
            explicit_pair(attrs["explicit_paddings"], axis),
        )
        for axis, window in ((rows, filters[0]), (columns, filters[1]))
    )  # fmt: skip


@conv2d_op.shape
def _conv2d_shape(node: Operation) -> list[RawShape]:
    _check_attrs(node)
    image, filters = with_rank(node._inputs[0]._shape, 4), with_rank(node._inputs[1]._shape, 4)
    batch, _, _, channels = image_axes(node.attrs["data_format"])
    depth, wanted = image[channels], filters[2]
    if depth is not None and wanted and depth % wanted:
        raise ValueError(f"Depth of input ({depth}) is not a multiple of input depth of filter ({wanted})")
    pixels = _output_pixels(node, image, filters)
    return [arrange((image[batch], *pixels, filters[3]), node.attrs["data_format"])]


@depthwise_op.shape
def _depthwise_shape(node: Operation) -> list[RawShape]:
    _check_attrs(node)
    image, filters = with_rank(node._inputs[0]._shape, 4), with_rank(node._inputs[1]._shape, 4)
    batch, _, _, channels = image_axes(node.attrs["data_format"])
    depth = filters[2] if image[channels] is None else image[channels]
    if filters[2] is not None and depth != filters[2]:
        raise ValueError(f"Dimensions must be equal, but are {depth} and {filters[2]}")
    count = None if depth is None or filters[3] is None else depth * filters[3]
    pixels = _output_pixels(node, image, filters)
    return [arrange((image[batch], *pixels, count), node.attrs["data_format"])]


def _image_sizes_shape(node: Operation) -> list[RawShape]:
    _check_attrs(node)
    sizes = constant_value_as_shape(node._inputs[0])
    if sizes is not None and len(sizes) == 2:
        # Only rows and columns were given; the rest follows from the other inputs.
        filters, grad = with_rank(node._inputs[1]._shape, 4), with_rank(node._inputs[2]._shape, 4)
        batch = grad[image_axes(node.attrs["data_format"])[0]]
        return [arrange((batch, sizes[0], sizes[1], filters[2]), node.attrs["data_format"])]
    return [with_rank(sizes, 4)]


def _filter_sizes_shape(node: Operation) -> list[RawShape]:
    _check_attrs(node)
    return [with_rank(constant_value_as_shape(node._inputs[1]), 4)]


backprop_input_op.shape(_image_sizes_shape)
depthwise_backprop_input_op.shape(_image_sizes_shape)
backprop_filter_op.shape(_filter_sizes_shape)
depthwise_backprop_filter_op.shape(_filter_sizes_shape)


# ---- kernels ------------------------------------------------------------------------------------


class _Layout:
    """What a node's attrs say about windows, applied to the shapes of a step."""

    __slots__ = ("_axes", "_dilations", "_explicit", "_known", "_padding", "_strides", "data_format")

    def __init__(self, node: Any) -> None:
        attrs = node.attrs
        self.data_format: bytes = attrs["data_format"]
        self._padding: bytes = attrs["padding"]
        self._axes = image_axes(self.data_format)[1:3]
        self._strides = [attrs["strides"][axis] for axis in self._axes]
        self._dilations = [attrs["dilations"][axis] for axis in self._axes]
        self._explicit = [explicit_pair(attrs["explicit_paddings"], axis) for axis in self._axes]
        self._known: dict[tuple[int, ...], tuple[Axis, Axis]] = {}

    def axes(self, sizes: tuple[int, ...], windows: tuple[int, ...]) -> tuple[Axis, Axis]:
        """The two window axes for an NHWC image of ``sizes`` and a filter of ``windows``."""
        key = (sizes[1], sizes[2], windows[0], windows[1])
        found = self._known.get(key)
        if found is None:
            try:
                found = self._place(key)
            except ValueError as error:
                raise InvalidArgumentError(None, None, str(error)) from None
            if len(self._known) > 64:
                self._known.clear()
            self._known[key] = found
        return found

    def _place(self, key: tuple[int, ...]) -> tuple[Axis, Axis]:
        rows, columns = (
            window_axis(
                key[i], key[i + 2], self._strides[i], self._dilations[i], self._padding, self._explicit[i]
            )
            for i in (0, 1)
        )  # fmt: skip
        return rows, columns

    def image_sizes(self, sizes: Array, batch: int, channels: int) -> tuple[int, ...]:
        """The NHWC shape that an ``input_sizes`` input describes."""
        values = [int(v) for v in sizes]
        if len(values) == 2:
            return (batch, values[0], values[1], channels)
        if len(values) != 4:
            raise InvalidArgumentError(
                None, None, f"Conv2DBackpropInput: input_sizes must have 2 or 4 values, but got {len(values)}"
            )
        return tuple(values[axis] for axis in image_axes(self.data_format))


def _widened(function: Callable[..., Array], node: Any) -> Callable[..., Array]:
    """Half-precision types have no BLAS: compute in float32 and round once."""
    dtype = node.attrs["T"].numpy
    if dtype.itemsize > 2:
        return function

    def compute(*values: Array) -> Array:
        wide = [v.astype(np.float32) if v.dtype == dtype else v for v in values]
        return function(*wide).astype(dtype)

    return compute


def _check_depth(image: Array, filters: Array) -> None:
    if image.shape[3] == filters.shape[2]:
        return
    if filters.shape[2] and image.shape[3] % filters.shape[2] == 0:
        raise UnimplementedError(
            None, None, "Generic conv implementation does not support grouped convolutions for now."
        )
    raise InvalidArgumentError(
        None, None, f"input depth must be evenly divisible by filter depth: {image.shape[3]} vs {filters.shape[2]}"
    )


def _check_grad(grad: Array, rows: Axis, columns: Axis) -> None:
    if grad.shape[1:3] != (rows.out, columns.out):
        raise InvalidArgumentError(
            None,
            None,
            "Size of out_backprop doesn't match computed: "
            f"actual = {grad.shape[1]}x{grad.shape[2]}, computed = {rows.out}x{columns.out}",
        )


@conv2d_op.kernel_factory("CPU")
def _conv2d_kernel(node: Any) -> Callable[..., Array]:
    layout = _Layout(node)

    def convolve(image: Array, filters: Array) -> Array:
        image = to_nhwc(image, layout.data_format)
        _check_depth(image, filters)
        rows, columns = layout.axes(image.shape, filters.shape)
        return from_nhwc(kernels.forward(image, filters, rows, columns), layout.data_format)

    return _widened(convolve, node)


@depthwise_op.kernel_factory("CPU")
def _depthwise_kernel(node: Any) -> Callable[..., Array]:
    layout = _Layout(node)

    def convolve(image: Array, filters: Array) -> Array:
        image = to_nhwc(image, layout.data_format)
        rows, columns = layout.axes(image.shape, filters.shape)
        return from_nhwc(kernels.depthwise_forward(image, filters, rows, columns), layout.data_format)

    return _widened(convolve, node)


def _input_kernel(compute: Callable[..., Array]) -> Callable[[Any], Callable[..., Array]]:
    def factory(node: Any) -> Callable[..., Array]:
        layout = _Layout(node)

        def backprop(sizes: Array, filters: Array, grad: Array) -> Array:
            grad = to_nhwc(grad, layout.data_format)
            shape = layout.image_sizes(sizes, grad.shape[0], filters.shape[2])
            rows, columns = layout.axes(shape, filters.shape)
            _check_grad(grad, rows, columns)
            return from_nhwc(compute(grad, filters, rows, columns), layout.data_format)

        return _widened(backprop, node)

    return factory


def _filter_kernel(
    compute: Callable[[Array, Array, tuple[int, ...], Axis, Axis], Array],
) -> Callable[[Any], Callable[..., Array]]:
    def factory(node: Any) -> Callable[..., Array]:
        layout = _Layout(node)

        def backprop(image: Array, sizes: Array, grad: Array) -> Array:
            image, grad = to_nhwc(image, layout.data_format), to_nhwc(grad, layout.data_format)
            shape = tuple(int(v) for v in sizes)
            rows, columns = layout.axes(image.shape, shape)
            _check_grad(grad, rows, columns)
            return compute(image, grad, shape, rows, columns)

        return _widened(backprop, node)

    return factory


def _plain_filter(image: Array, grad: Array, shape: tuple[int, ...], rows: Axis, columns: Axis) -> Array:
    return kernels.backprop_filter(image, grad, rows, columns)


backprop_input_op.kernel_factory("CPU")(_input_kernel(kernels.backprop_input))
depthwise_backprop_input_op.kernel_factory("CPU")(_input_kernel(kernels.depthwise_backprop_input))
backprop_filter_op.kernel_factory("CPU")(_filter_kernel(_plain_filter))
depthwise_backprop_filter_op.kernel_factory("CPU")(_filter_kernel(kernels.depthwise_backprop_filter))


# ---- gradients ----------------------------------------------------------------------------------

_WINDOW_ATTRS = ("strides", "padding", "explicit_paddings", "data_format", "dilations")


def _attrs(node: Operation) -> dict[str, Any]:
    names = _WINDOW_ATTRS + (("use_cudnn_on_gpu",) if "use_cudnn_on_gpu" in node.attrs else ())
    return {name: node.attrs[name] for name in names}


@conv2d_op.gradient
def _conv2d_gradient(node: Operation, grad: Tensor) -> list[Any]:
    image, filters = node._inputs
    sizes = shape_n([image, filters])
    attrs = _attrs(node)
    return [
        backprop_input_op(sizes[0], filters, grad, **attrs),
        backprop_filter_op(image, sizes[1], grad, **attrs),
    ]


@backprop_input_op.gradient
def _backprop_input_gradient(node: Operation, grad: Tensor) -> list[Any]:
    _, filters, out_backprop = node._inputs
    attrs = _attrs(node)
    return [None, backprop_filter_op(grad, shape(filters), out_backprop, **attrs), conv2d_op(grad, filters, **attrs)]


@backprop_filter_op.gradient
def _backprop_filter_gradient(node: Operation, grad: Tensor) -> list[Any]:
    image, _, out_backprop = node._inputs
    attrs = _attrs(node)
    return [backprop_input_op(shape(image), grad, out_backprop, **attrs), None, conv2d_op(image, grad, **attrs)]


@depthwise_op.gradient
def _depthwise_gradient(node: Operation, grad: Tensor) -> list[Any]:
    image, filters = node._inputs
    attrs = _attrs(node)
    return [
        depthwise_backprop_input_op(shape(image), filters, grad, **attrs),
        depthwise_backprop_filter_op(image, shape(filters), grad, **attrs),
    ]


@depthwise_backprop_input_op.gradient
def _depthwise_backprop_input_gradient(node: Operation, grad: Tensor) -> list[Any]:
    _, filters, out_backprop = node._inputs
    attrs = _attrs(node)
    return [
        None,
        depthwise_backprop_filter_op(grad, shape(filters), out_backprop, **attrs),
        depthwise_op(grad, filters, **attrs),
    ]


@depthwise_backprop_filter_op.gradient
def _depthwise_backprop_filter_gradient(node: Operation, grad: Tensor) -> list[Any]:
    image, _, out_backprop = node._inputs
    attrs = _attrs(node)
    return [
        depthwise_backprop_input_op(shape(image), grad, out_backprop, **attrs),
        None,
        depthwise_op(image, grad, **attrs),
    ]
