"""Convolutions and their gradients: ``Conv2D``, ``DepthwiseConv2dNative`` and ``Conv3D``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfmini.core_types import Array
from tfmini.errors import UnimplementedError
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, op
from tfmini.graph.node import Node
from tfmini.memory import check_room
from tfmini.numerics import convolution as kernels
from tfmini.numerics.windows import Axes, arranged, channels_last, in_layout
from tfmini.ops.array.constant_value import constant_value_as_shape
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.shape import shape, shape_n
from tfmini.ops.nn.windows import Windows, check_lengths
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
_VOLUME_ATTRS = """
    strides: list(int) >= 5
    padding: {'SAME', 'VALID'}
    data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'
    dilations: list(int) = [1, 1, 1, 1, 1]
    T: {half, bfloat16, float, double}"""
_FORWARD = "(input: T, filter: T) -> output: T"
_INPUT = "(input_sizes: int32, filter: T, out_backprop: T) -> output: T"
_FILTER = "(input: T, filter_sizes: int32, out_backprop: T) -> output: T"

conv2d_op = op(f"Conv2D{_FORWARD}{_ATTRS}", work="convolution")
backprop_input_op = op(f"Conv2DBackpropInput{_INPUT}{_ATTRS}", work="convolution")
backprop_filter_op = op(f"Conv2DBackpropFilter{_FILTER}{_ATTRS}", work="convolution")
depthwise_op = op(f"DepthwiseConv2dNative{_FORWARD}{_DEPTHWISE_ATTRS}")
depthwise_backprop_input_op = op(f"DepthwiseConv2dNativeBackpropInput{_INPUT}{_DEPTHWISE_ATTRS}")
depthwise_backprop_filter_op = op(f"DepthwiseConv2dNativeBackpropFilter{_FILTER}{_DEPTHWISE_ATTRS}")
conv3d_op = op(f"Conv3D{_FORWARD}{_VOLUME_ATTRS}", work="convolution")
conv3d_input_op = op(
    f"Conv3DBackpropInputV2{_INPUT.replace('int32', 'Tshape')}{_VOLUME_ATTRS}; Tshape: {{int32, int64}} = DT_INT32",
    work="convolution",
)
conv3d_filter_op = op(f"Conv3DBackpropFilterV2{_FILTER}{_VOLUME_ATTRS}", work="convolution")


# ---- shapes -------------------------------------------------------------------------------------


def _windows_of(node: Operation) -> Windows:
    """The node's attrs, checked.

    Raises:
      ValueError: for attrs that a convolution cannot have.
    """
    windows = Windows(node.attrs)
    rank = len(windows.positions)
    for name in ("strides", "dilations"):
        values = node.attrs[name]
        check_lengths(node.type, rank, **{name: values})
        if values[0] != 1 or values[windows.positions[-1]] != 1:
            raise ValueError(f"Current implementation does not support {name} in the batch and depth dimensions.")
        if min(values) < 1:
            raise ValueError(f"{node.type} requires {name} > 0")
    if windows.padding == b"EXPLICIT" and len(node.attrs["explicit_paddings"]) != 2 * rank:
        raise ValueError("explicit_paddings attribute must contain 8 values with EXPLICIT padding")
    return windows


def _shapes_of(node: Operation) -> tuple[Windows, tuple[Any, ...], tuple[Any, ...]]:
    """The windows, the image's shape with the channels last, and the filters' shape."""
    windows = _windows_of(node)
    image, filters = (with_rank(tensor.raw_shape, len(windows.positions)) for tensor in node.inputs)
    return windows, tuple(image[axis] for axis in windows.positions), filters


@all_of(conv2d_op, conv3d_op).shape
def _conv_shape(node: Operation) -> list[RawShape]:
    windows, image, filters = _shapes_of(node)
    depth, wanted = image[-1], filters[-2]
    if depth is not None and wanted and depth % wanted:
        raise ValueError(f"Depth of input ({depth}) is not a multiple of input depth of filter ({wanted})")
    pixels = windows.out_sizes(image[1:-1], filters[:-2])
    return [arranged((image[0], *pixels, filters[-1]), windows.data_format)]


@depthwise_op.shape
def _depthwise_shape(node: Operation) -> list[RawShape]:
    windows, image, filters = _shapes_of(node)
    depth = filters[2] if image[3] is None else image[3]
    if filters[2] is not None and depth != filters[2]:
        raise ValueError(f"Dimensions must be equal, but are {depth} and {filters[2]}")
    count = None if depth is None or filters[3] is None else depth * filters[3]
    pixels = windows.out_sizes(image[1:-1], filters[:-2])
    return [arranged((image[0], *pixels, count), windows.data_format)]


@all_of(backprop_input_op, depthwise_backprop_input_op, conv3d_input_op).shape
def _input_sizes_shape(node: Operation) -> list[RawShape]:
    windows = _windows_of(node)
    sizes, rank = constant_value_as_shape(node.inputs[0]), len(windows.positions)
    if sizes is not None and len(sizes) == 2 and rank == 4:
        # Only rows and columns are given; the other sizes follow from the other inputs.
        filters, grad = (with_rank(tensor.raw_shape, 4) for tensor in node.inputs[1:])
        return [arranged((grad[0], sizes[0], sizes[1], filters[2]), windows.data_format)]
    return [with_rank(sizes, rank)]


@all_of(backprop_filter_op, depthwise_backprop_filter_op, conv3d_filter_op).shape
def _filter_sizes_shape(node: Operation) -> list[RawShape]:
    return [with_rank(constant_value_as_shape(node.inputs[1]), len(_windows_of(node).positions))]


# ---- kernels ------------------------------------------------------------------------------------


def _widened(function: Callable[..., Array], node: Node) -> Callable[..., Array]:
    """Computes half-precision types in float32, because BLAS does not support them, and rounds once."""
    dtype = node.attrs["T"].numpy
    if dtype.itemsize > 2:
        return function

    def compute(*values: Array) -> Array:
        wide = [v.astype(np.float32) if v.dtype == dtype else v for v in values]
        return function(*wide).astype(dtype)

    return compute


def _check_rank(windows: Windows, **shapes: Sequence[int]) -> None:
    rank = len(windows.positions)
    for name, found in shapes.items():
        if len(found) != rank:
            refuse(f"{name} must be {rank}-dimensional: {list(found)}")


def _check_depth(image: Sequence[int], filters: Sequence[int]) -> None:
    """Compares the channels of an image with those of its filters."""
    depth, wanted = image[-1], filters[-2]
    if depth == wanted:
        return
    if wanted and depth % wanted == 0:
        raise UnimplementedError.of("Generic conv implementation does not support grouped convolutions for now.")
    refuse(f"input depth must be evenly divisible by filter depth: {depth} vs {wanted}")


def _check_depthwise(image: Sequence[int], filters: Sequence[int]) -> None:
    if image[-1] != filters[-2]:
        refuse(f"input and filter must have the same depth: {image[-1]} vs {filters[-2]}")


def _check_grad(grad: Sequence[int], batch: int, axes: Axes, depth: int) -> None:
    """Compares the gradient's whole shape with that of the convolution's result: kernels rely on it."""
    if grad[-1] != depth:
        refuse(f"filter and out_backprop must have the same out_depth: {depth} vs {grad[-1]}")
    wanted = (batch, *axes.out)
    if tuple(grad[:-1]) != wanted:
        actual, computed = ("x".join(map(str, sizes)) for sizes in (grad[:-1], wanted))
        refuse(f"Size of out_backprop doesn't match computed: actual = {actual}, computed = {computed}")


class _Form(NamedTuple):
    """What differs between plain and depthwise convolutions: the check of channels, and how many a result has."""

    check_depth: Callable[[Sequence[int], Sequence[int]], None]
    depth: Callable[[Sequence[int]], int]


_PLAIN = _Form(_check_depth, lambda filters: filters[-1])
_DEPTHWISE = _Form(_check_depthwise, lambda filters: filters[-2] * filters[-1])


def _conv_kernel(compute: Callable[..., Array], form: _Form) -> Callable[[Any], Callable[..., Array]]:
    def factory(node: Node) -> Callable[..., Array]:
        windows = Windows(node.attrs)
        data_format = windows.data_format

        def convolve(image: Array, filters: Array) -> Array:
            _check_rank(windows, input=image.shape, filter=filters.shape)
            image = channels_last(image, data_format)
            form.check_depth(image.shape, filters.shape)
            axes = windows.axes(image.shape[1:-1], filters.shape[:-2])
            check_room((image.shape[0], *axes.out, form.depth(filters.shape)), image.itemsize)
            return in_layout(compute(image, filters, axes), data_format)

        return _widened(convolve, node)

    return factory


def _input_kernel(compute: Callable[..., Array], form: _Form) -> Callable[[Any], Callable[..., Array]]:
    def factory(node: Node) -> Callable[..., Array]:
        windows = Windows(node.attrs)
        data_format = windows.data_format

        def backprop(sizes: Array, filters: Array, grad: Array) -> Array:
            _check_rank(windows, filter=filters.shape, out_backprop=grad.shape)
            grad = channels_last(grad, data_format)
            check_room(image := _image_shape(windows, sizes, filters, grad), grad.itemsize)
            form.check_depth(image, filters.shape)
            axes = windows.axes(image[1:-1], filters.shape[:-2])
            _check_grad(grad.shape, image[0], axes, form.depth(filters.shape))
            return in_layout(compute(grad, filters, axes), data_format)

        return _widened(backprop, node)

    return factory


def _image_shape(windows: Windows, sizes: Array, filters: Array, grad: Array) -> tuple[int, ...]:
    """The shape, channels last, that an ``input_sizes`` input describes."""
    values, rank = _sizes("input_sizes", sizes), len(windows.positions)
    if len(values) == 2 and rank == 4:
        return (grad.shape[0], *values, filters.shape[-2])
    if len(values) != rank:
        refuse(
            f"Conv{rank - 2}DBackpropInput: input_sizes must have {'2 or ' if rank == 4 else ''}{rank} values,"
            f" but got {len(values)}"
        )
    return tuple(values[axis] for axis in windows.positions)


def _sizes(name: str, values: Array) -> tuple[int, ...]:
    if values.ndim != 1 or (values < 0).any():
        refuse(f"{name} must be a vector of sizes, got {values.tolist()!r:.80}")
    check_room(found := tuple(values.tolist()), 4)
    return found


def _filter_kernel(compute: Callable[..., Array], form: _Form) -> Callable[[Any], Callable[..., Array]]:
    def factory(node: Node) -> Callable[..., Array]:
        windows = Windows(node.attrs)
        data_format = windows.data_format

        def backprop(image: Array, sizes: Array, grad: Array) -> Array:
            filters = _sizes("filter_sizes", sizes)
            _check_rank(windows, input=image.shape, filter_sizes=filters, out_backprop=grad.shape)
            image, grad = channels_last(image, data_format), channels_last(grad, data_format)
            form.check_depth(image.shape, filters)
            axes = windows.axes(image.shape[1:-1], filters[:-2])
            _check_grad(grad.shape, image.shape[0], axes, form.depth(filters))
            return compute(image, grad, filters, axes)

        return _widened(backprop, node)

    return factory


def _plain_filter(image: Array, grad: Array, shape: tuple[int, ...], axes: Axes) -> Array:
    return kernels.backprop_filter(image, grad, axes)


for _forward, _input, _filter in (
    (conv2d_op, backprop_input_op, backprop_filter_op), (conv3d_op, conv3d_input_op, conv3d_filter_op)
):  # fmt: skip
    _forward.kernel_factory("CPU")(_conv_kernel(kernels.forward, _PLAIN))
    _input.kernel_factory("CPU")(_input_kernel(kernels.backprop_input, _PLAIN))
    _filter.kernel_factory("CPU")(_filter_kernel(_plain_filter, _PLAIN))
depthwise_op.kernel_factory("CPU")(_conv_kernel(kernels.depthwise_forward, _DEPTHWISE))
depthwise_backprop_input_op.kernel_factory("CPU")(_input_kernel(kernels.depthwise_backprop_input, _DEPTHWISE))
depthwise_backprop_filter_op.kernel_factory("CPU")(_filter_kernel(kernels.depthwise_backprop_filter, _DEPTHWISE))


# ---- gradients ----------------------------------------------------------------------------------

_WINDOW_ATTRS = ("strides", "padding", "explicit_paddings", "data_format", "dilations", "use_cudnn_on_gpu")


def _attrs(node: Operation) -> dict[str, Any]:
    return {name: node.attrs[name] for name in _WINDOW_ATTRS if name in node.attrs}


def _derive(
    forward: OpHandle, backprop_input: OpHandle, backprop_filter: OpHandle,
    shapes: Callable[[list[Tensor]], Sequence[Tensor]] = shape_n,
) -> None:  # fmt: skip
    """Attaches the gradients of a convolution and of its two gradient ops, which are expressed by each other."""

    @forward.gradient
    def _forward_gradient(node: Operation, grad: Tensor) -> list[Any]:
        image, filters = node.inputs
        sizes, attrs = shapes([image, filters]), _attrs(node)
        return [backprop_input(sizes[0], filters, grad, **attrs), backprop_filter(image, sizes[1], grad, **attrs)]

    @backprop_input.gradient
    def _input_gradient(node: Operation, grad: Tensor) -> list[Any]:
        _, filters, back = node.inputs
        attrs = _attrs(node)
        return [None, backprop_filter(grad, shape(filters), back, **attrs), forward(grad, filters, **attrs)]

    @backprop_filter.gradient
    def _filter_gradient(node: Operation, grad: Tensor) -> list[Any]:
        image, _, back = node.inputs
        attrs = _attrs(node)
        return [backprop_input(shape(image), grad, back, **attrs), None, forward(image, grad, **attrs)]


_derive(conv2d_op, backprop_input_op, backprop_filter_op)
_derive(conv3d_op, conv3d_input_op, conv3d_filter_op)
_derive(
    depthwise_op, depthwise_backprop_input_op, depthwise_backprop_filter_op,
    lambda tensors: [shape(tensor) for tensor in tensors],
)  # fmt: skip
