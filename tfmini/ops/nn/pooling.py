"""Max and average pooling over two or three spatial axes, with their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import DTypeLike, PaddingLike, TensorLike
from tfmini.errors import InvalidArgumentError, UnimplementedError
from tfmini.export import either, export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, name_scope, op
from tfmini.graph.node import Node
from tfmini.memory import check_room
from tfmini.numerics import onednn_kernels
from tfmini.numerics import windows as kernels
from tfmini.numerics.update_rules import any_outside
from tfmini.numerics.windows import (
    Array,
    Axes,
    arranged,
    channels_last,
    explicit_pair,
    in_layout,
    layout_axes,
    output_size,
    padded,
)
from tfmini.ops.array.constant_value import constant_value_as_shape
from tfmini.ops.array.filling import zeros_as
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.shape import shape
from tfmini.ops.math.broadcast import HALVES
from tfmini.ops.nn.activation import where_else_zero
from tfmini.ops.nn.windows import Windows, check_lengths, padding_attrs, spatial_sequence
from tfmini.shapes import RawShape, merge_raw, with_rank

_SIZES = "ksize: list(int) >= 4; strides: list(int) >= 4; "
_PADDING = "padding: {'SAME', 'VALID'}; "
_EXPLICIT = "padding: {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = []; "
_FORMAT = "data_format: {'NHWC', 'NCHW'} = 'NHWC'; "
_VOLUME = f"ksize: list(int) >= 5; strides: list(int) >= 5; {_PADDING}data_format: {{'NDHWC', 'NCDHW'}} = 'NDHWC'; "
_GRAD = "(orig_input: T, orig_output: T, grad: T) -> output: T; "
_FLOATS = "T: {half, bfloat16, float, double}"
_HALVES_AND_FLOAT = "{half, bfloat16, float}"

max_pool_op = op(
    "MaxPool(input: T) -> output: T"
    "; T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = DT_FLOAT; "
    + _SIZES + _EXPLICIT + _FORMAT.replace("'NCHW'}", "'NCHW', 'NCHW_VECT_C'}")
)  # fmt: skip
max_pool_op.gradient(
    lambda node, grad: [max_pool_grad_op(node.inputs[0], node.outputs[0], grad, **_attrs(node, "explicit_paddings"))]
)
max_pool_grad_op: OpHandle = op(f"MaxPoolGrad{_GRAD}{_SIZES}{_EXPLICIT}{_FORMAT}T: realnumbertype = DT_FLOAT")
max_pool_grad_grad_op = op(f"MaxPoolGradGrad{_GRAD}{_SIZES}{_PADDING}{_FORMAT}T: realnumbertype")
avg_pool_op = op(f"AvgPool(value: T) -> output: T; {_SIZES}{_PADDING}{_FORMAT}{_FLOATS}")
avg_pool_grad_op = op(
    f"AvgPoolGrad(orig_input_shape: int32, grad: T) -> output: T; {_SIZES}{_PADDING}{_FORMAT}{_FLOATS}"
)
max_pool3d_op = op(f"MaxPool3D(input: T) -> output: T; {_VOLUME}T: {_HALVES_AND_FLOAT}")
all_of(max_pool_op, max_pool3d_op).kernel_factory("CPU")(lambda node: max_pool_of(node.attrs))
max_pool3d_op.gradient(lambda node, grad: [max_pool3d_grad_op(node.inputs[0], node.outputs[0], grad, **_attrs(node))])
max_pool3d_grad_op: OpHandle = op(
    f"MaxPool3DGrad(orig_input: TInput, orig_output: TInput, grad: T) -> output: T; {_VOLUME}"
    f"T: {_HALVES_AND_FLOAT} = DT_FLOAT; TInput: {_HALVES_AND_FLOAT} = DT_FLOAT"
)
all_of(max_pool_grad_op, max_pool3d_grad_op).kernel_factory("CPU")(lambda node: max_pool_grad_of(node.attrs))
max_pool3d_grad_grad_op = op(f"MaxPool3DGradGrad{_GRAD}{_VOLUME}T: realnumbertype")
avg_pool3d_op = op(f"AvgPool3D(input: T) -> output: T; {_VOLUME}{_FLOATS}")
avg_pool3d_grad_op = op(f"AvgPool3DGrad(orig_input_shape: int32, grad: T) -> output: T; {_VOLUME}{_FLOATS}")


# ---- shapes -------------------------------------------------------------------------------------


@all_of(max_pool_op, avg_pool_op, max_pool3d_op, avg_pool3d_op).shape
def _pool_shape(node: Operation) -> list[RawShape]:
    return [pooled_shape(node, node.attrs)]


def pooled_shape(node: Operation, attrs: Mapping[str, Any]) -> RawShape:
    """The output shape of a pooling op.

    Raises:
      ValueError: for sizes that it does not support.
    """
    data_format = attrs["data_format"]
    positions = layout_axes(data_format)
    image = with_rank(node.inputs[0].raw_shape, len(positions))
    check_lengths(node.type, len(positions), ksize=attrs["ksize"], strides=attrs["strides"])
    explicit = attrs.get("explicit_paddings")
    sizes = [
        output_size(
            image[axis], attrs["ksize"][axis], attrs["strides"][axis], 1, attrs["padding"],
            explicit_pair(explicit, axis),
        )
        for axis in positions[1:]
    ]  # fmt: skip
    return arranged((image[0], *sizes), data_format)


@all_of(max_pool_grad_op, max_pool3d_grad_op).shape
def _max_pool_grad_shape(node: Operation) -> list[RawShape]:
    return [with_rank(node.inputs[0].raw_shape, len(node.attrs["ksize"]))]


@all_of(max_pool_grad_grad_op, max_pool3d_grad_grad_op).shape
def _max_pool_grad_grad_shape(node: Operation) -> list[RawShape]:
    return [merge_raw(node.inputs[1].raw_shape, _pool_shape(node)[0])]


@all_of(avg_pool_grad_op, avg_pool3d_grad_op).shape
def _avg_pool_grad_shape(node: Operation) -> list[RawShape]:
    return [with_rank(constant_value_as_shape(node.inputs[0]), len(node.attrs["ksize"]))]


# ---- kernels ------------------------------------------------------------------------------------


def _check_axes(attrs: Mapping[str, Any], deep: bool) -> None:
    """Refuses windows over several images and, unless ``deep``, over several channels."""
    if attrs["ksize"][0] != 1 or attrs["strides"][0] != 1:
        raise UnimplementedError.of("Pooling is not yet supported on the batch dimension.")
    if not deep and _is_deep(attrs):
        raise UnimplementedError.of("Pooling is not yet supported on the depth dimension.")


def _placer(attrs: Mapping[str, Any]) -> Callable[[tuple[int, ...]], Axes]:
    """A function of a shape with the channels last that returns its windows."""
    windows = Windows(attrs)
    rank = len(windows.positions)
    ksize = tuple(attrs["ksize"][axis] for axis in windows.positions[1:-1])

    def place(shape: tuple[int, ...]) -> Axes:
        if len(shape) != rank:
            refuse(f"tensor_in must be {rank}-dimensional: {list(shape)}")
        return windows.axes(shape[1:-1], ksize)

    return place


def _check_shapes(image: tuple[int, ...], axes: Axes, **pooled: tuple[int, ...]) -> None:
    """Compares whole shapes, batch and channels too, with that of the pooled image: kernels rely on them."""
    wanted = (image[0], *axes.out, image[-1])
    for name, found in pooled.items():
        if found != wanted:
            raise _wrong_shape(name, wanted, found)


def _wrong_shape(name: str, wanted: tuple[int, ...], found: tuple[int, ...]) -> InvalidArgumentError:
    return InvalidArgumentError.of(f"Expected {name} shape to be {list(wanted)}, but got {list(found)}")


def _channels_last(layout: bytes, *values: Array) -> list[Array]:
    """Views with the channels last."""
    rank = len(layout_axes(layout))
    for value in values:
        if value.ndim != rank:
            refuse(f"The tensors must be {rank}-dimensional, but got {list(value.shape)}")
    return [channels_last(value, layout) for value in values]


def _wide(attrs: Mapping[str, Any]) -> Any:
    """The type in which sums are formed: half-precision numbers are added in float32."""
    return np.float32 if attrs["T"] in HALVES else attrs["T"].numpy


def max_pool_of(attrs: Mapping[str, Any]) -> Callable[[Array], Array]:
    """A function that pools images, for these attrs."""
    place, layout = _placer(attrs), attrs["data_format"]
    _check_axes(attrs, deep=len(attrs["ksize"]) == 4)
    if _is_deep(attrs):
        return _depthwise_max_pool(attrs)

    def max_pool(image: Array) -> Array:
        (image,) = _channels_last(layout, image)
        axes = place(image.shape)
        source = padded(image, axes, kernels.lowest(image.dtype))
        return in_layout(kernels.reduce_windows(np.maximum, source, axes), layout)

    return max_pool


def _depthwise_max_pool(attrs: Mapping[str, Any]) -> Callable[[Array], Array]:
    """A function that computes the maxima of groups of channels."""
    window, layout = _depth_window(attrs), attrs["data_format"]

    def max_pool(image: Array) -> Array:
        (image,) = _channels_last(layout, image)
        return in_layout(_depth_groups(image, window).max(axis=4), layout)

    return max_pool


def _depth_window(attrs: Mapping[str, Any]) -> int:
    """The channels of a window over channels only."""
    ksize = attrs["ksize"]
    _, row, column, depth = layout_axes(attrs["data_format"])
    window: int = ksize[depth]
    if ksize[row] != 1 or ksize[column] != 1:
        text = "MaxPooling supports exactly one of pooling across depth or pooling across width/height."
        raise UnimplementedError.of(text)
    if window != attrs["strides"][depth]:
        text = "Depthwise max pooling requires the depth window to equal the depth stride."
        raise UnimplementedError.of(text)
    return window


def _depth_groups(image: Array, window: int) -> Array:
    """Images (N, rows, columns, C) as (N, rows, columns, windows, channels of a window)."""
    if image.shape[3] % window:
        text = "Depthwise max pooling requires the depth window to evenly divide the input depth"
        raise UnimplementedError.of(text)
    return image.reshape(*image.shape[:3], image.shape[3] // window, window)


def _depthwise_max_pool_grad(attrs: Mapping[str, Any]) -> Callable[[Array, Array, Array], Array]:
    """A function that gives the gradient of each group of channels to its first maximum."""
    window, layout = _depth_window(attrs), attrs["data_format"]

    def max_pool_grad(image: Array, result: Array, grad: Array) -> Array:
        image, result, grad = _channels_last(layout, image, result, grad)
        groups = _depth_groups(image, window)
        for name, value in (("orig_output", result), ("grad", grad)):
            if value.shape != groups.shape[:-1]:
                raise _wrong_shape(name, groups.shape[:-1], value.shape)
        total = np.zeros(groups.shape, grad.dtype)
        np.put_along_axis(total, groups.argmax(axis=4)[..., None], grad[..., None], axis=4)
        return in_layout(total.reshape(image.shape), layout)

    return max_pool_grad


def _is_deep(attrs: Mapping[str, Any]) -> bool:
    depth = layout_axes(attrs["data_format"])[-1]
    return bool(attrs["ksize"][depth] != 1 or attrs["strides"][depth] != 1)


def _above_borders(image: Array) -> Array:
    """``image`` in a type whose smallest number, that of the border, it does not have: 0 is the smallest of bytes."""
    return image.astype(np.int64) if image.dtype.kind in "iu" else image


def max_pool_grad_of(attrs: Mapping[str, Any]) -> Callable[[Array, Array, Array], Array]:
    """A function of images, their maxima and gradients of the maxima, for these attrs."""
    place, layout, wide = _placer(attrs), attrs["data_format"], _wide(attrs)
    _check_axes(attrs, deep=len(attrs["ksize"]) == 4)
    if _is_deep(attrs):
        return _depthwise_max_pool_grad(attrs)
    # As in TensorFlow, where a maximum stands several times: of volumes each gets the gradient, of images the first.
    is_volume = len(attrs["ksize"]) == 5
    matches = kernels.every_match if is_volume and attrs["T"].name != "float16" else kernels.first_matches

    def max_pool_grad(image: Array, result: Array, grad: Array) -> Array:
        image, result, grad = _channels_last(layout, image, result, grad)
        grad = np.ascontiguousarray(grad)
        axes = place(image.shape)
        _check_shapes(image.shape, axes, orig_output=result.shape, grad=grad.shape)
        has_nan = result.dtype.kind not in "iu" and bool(np.isnan(result).any())
        if not has_nan and not is_volume and (found := onednn_kernels.max_gradient(image, grad, axes)) is not None:
            return in_layout(found, layout)
        image, result = _above_borders(image), _above_borders(result)
        source = padded(image, axes, kernels.lowest(image.dtype))
        total, tiled = kernels.spread(image.shape[0], axes, image.shape[-1], wide)
        if has_nan:
            source, result = kernels.without_nan(source, result, axes)
        for where, match in matches(source, result, axes):
            share = where_else_zero(match, grad)
            if tiled:
                total[where] = share
            else:
                total[where] += share
        return in_layout(total[axes.inner].astype(grad.dtype, copy=False), layout)

    return max_pool_grad


def max_pool_grad_grad_of(attrs: Mapping[str, Any]) -> Callable[[Array, Array, Array], Array]:
    """A function of images, their maxima and gradients of the images, for these attrs."""
    place, layout = _placer(attrs), attrs["data_format"]
    _check_axes(attrs, deep=False)

    def max_pool_grad_grad(image: Array, result: Array, grad: Array) -> Array:
        image, result, grad = _channels_last(layout, image, result, grad)
        axes = place(image.shape)
        _check_shapes(image.shape, axes, orig_output=result.shape)
        if grad.shape != image.shape:
            raise _wrong_shape("grad", image.shape, grad.shape)
        image, result = _above_borders(image), _above_borders(result)
        source = padded(image, axes, kernels.lowest(image.dtype), keep=True)
        wide = padded(grad, axes)
        total = np.zeros(result.shape, grad.dtype)
        for where, match in kernels.first_matches(source, result, axes):
            total += where_else_zero(match, np.ascontiguousarray(wide[where]))
        return in_layout(total, layout)

    return max_pool_grad_grad


for _handle in (max_pool_grad_grad_op, max_pool3d_grad_grad_op):
    _handle.kernel_factory("CPU")(lambda node: max_pool_grad_grad_of(node.attrs))


@all_of(avg_pool_op, avg_pool3d_op).kernel_factory("CPU")
def _avg_pool_factory(node: Node) -> Callable[..., Array]:
    _check_axes(node.attrs, deep=False)
    place, layout, wide = _placer(node.attrs), node.attrs["data_format"], _wide(node.attrs)
    dtype = node.attrs["T"].numpy

    def avg_pool(image: Array) -> Array:
        (image,) = _channels_last(layout, image)
        image, axes = image.astype(wide, copy=False), place(image.shape)
        result = kernels.reduce_windows(np.add, padded(image, axes), axes)
        result /= kernels.counts(axes, result.dtype)
        return in_layout(result.astype(dtype, copy=False), layout)

    return avg_pool


@all_of(avg_pool_grad_op, avg_pool3d_grad_op).kernel_factory("CPU")
def _avg_pool_grad_factory(node: Node) -> Callable[..., Array]:
    _check_axes(node.attrs, deep=False)
    place, layout, wide = _placer(node.attrs), node.attrs["data_format"], _wide(node.attrs)
    dtype = node.attrs["T"].numpy

    def avg_pool_grad(sizes: Array, grad: Array) -> Array:
        if sizes.shape != (len(layout_axes(layout)),):
            refuse(f"orig_input_shape must be {len(layout_axes(layout))} sizes")
        image = tuple(int(sizes[axis]) for axis in layout_axes(layout))
        check_room(image, np.dtype(wide).itemsize)
        (grad,) = _channels_last(layout, grad)
        grad, axes = grad.astype(wide, copy=False), place(image)
        _check_shapes(image, axes, grad=grad.shape)
        share = grad / kernels.counts(axes, grad.dtype)
        total, tiled = kernels.spread(image[0], axes, image[-1], grad.dtype)
        for _, where in axes.elements():
            if tiled:
                total[where] = share
            else:
                total[where] += share
        return in_layout(total[axes.inner].astype(dtype, copy=False), layout)

    return avg_pool_grad


# ---- gradients ----------------------------------------------------------------------------------


def _attrs(node: Operation, *names: str) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("ksize", "strides", "padding", "data_format", *names)}


def _derive_from(handle: OpHandle, other: OpHandle) -> None:
    """Attaches the gradient of a max pooling gradient, which is the other of `MaxPoolGrad` and `MaxPoolGradGrad`."""

    @handle.gradient
    def _gradient(node: Operation, grad: Tensor) -> list[Any]:
        return [zeros_as(node.inputs[0]), zeros_as(node.inputs[1]), other(*node.inputs[:2], grad, **_attrs(node))]


_derive_from(max_pool_grad_op, max_pool_grad_grad_op)
_derive_from(max_pool_grad_grad_op, max_pool_grad_op)
_derive_from(max_pool3d_grad_op, max_pool3d_grad_grad_op)
_derive_from(max_pool3d_grad_grad_op, max_pool3d_grad_op)


def _derive_average(forward: OpHandle, backprop: OpHandle) -> None:
    """Attaches the gradients of average pooling and of its gradient."""

    @forward.gradient
    def _gradient(node: Operation, grad: Tensor) -> list[Any]:
        return [backprop(shape(node.inputs[0]), grad, **_attrs(node))]

    @backprop.gradient
    def _backprop_gradient(node: Operation, grad: Tensor) -> list[Any]:
        return [None, forward(grad, **_attrs(node))]


_derive_average(avg_pool_op, avg_pool_grad_op)
_derive_average(avg_pool3d_op, avg_pool3d_grad_op)


# ---- public functions ---------------------------------------------------------------------------


@export("tf.nn.max_pool")
def max_pool(
    value: TensorLike, ksize: int | Sequence[int], strides: int | Sequence[int], padding: PaddingLike,
    data_format: str = "NHWC", name: str | None = None, input: TensorLike | None = None,
) -> Tensor:  # fmt: skip
    """The maximum of each window (``tf.nn.max_pool``).

    Args:
      value: [batch, rows, columns, channels], or channels second for NCHW.
      ksize: the window: one int, two, or four in the layout of ``data_format``.
      strides: as ``ksize``.
      padding: "SAME", "VALID", or four (before, after) pairs.
      data_format: "NHWC" or "NCHW".
      name: of the op.
      input: another name for ``value``.

    Returns:
      [batch, rows out, columns out, channels], or channels second for NCHW.
    """
    with name_scope(name, "MaxPool", [value]) as scope:
        return _pool(max_pool_op, either("input", input, "value", value), ksize, strides, data_format, scope,
                     padding_attrs(padding))  # fmt: skip


@export("tf.nn.max_pool2d")
def max_pool2d(
    input: TensorLike, ksize: int | Sequence[int], strides: int | Sequence[int], padding: PaddingLike,
    data_format: str = "NHWC", name: str | None = None,
) -> Tensor:  # fmt: skip
    """`max_pool` (``tf.nn.max_pool2d``)."""
    with name_scope(name, "MaxPool2d", [input]) as scope:
        return _pool(max_pool_op, input, ksize, strides, data_format, scope, padding_attrs(padding))


@export("tf.nn.avg_pool", "tf.nn.avg_pool2d")
def avg_pool(
    value: TensorLike,
    ksize: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str,
    data_format: str = "NHWC",
    name: str | None = None,
    input: TensorLike | None = None,
) -> Tensor:
    """The mean of each window, without padding (``tf.nn.avg_pool``, ``tf.nn.avg_pool2d``); see `max_pool`."""
    with name_scope(name, "AvgPool", [value]) as scope:
        return _pool(avg_pool_op, either("input", input, "value", value), ksize, strides, data_format, scope,
                     {"padding": padding})  # fmt: skip


@export("tf.nn.max_pool3d")
def max_pool3d(
    input: TensorLike, ksize: int | Sequence[int], strides: int | Sequence[int], padding: PaddingLike,
    data_format: str = "NDHWC", name: str | None = None,
) -> Tensor:  # fmt: skip
    """The maximum of each window of volumes (``tf.nn.max_pool3d``)."""
    with name_scope(name, "MaxPool3D", [input]) as scope:
        return _pool(max_pool3d_op, input, ksize, strides, data_format or "NDHWC", scope, {"padding": padding})


@export("tf.nn.avg_pool3d")
def avg_pool3d(
    input: TensorLike, ksize: int | Sequence[int], strides: int | Sequence[int], padding: PaddingLike,
    data_format: str = "NDHWC", name: str | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of volumes (``tf.nn.avg_pool3d``)."""
    with name_scope(name, "AvgPool3D", [input]) as scope:
        return _pool(avg_pool3d_op, input, ksize, strides, data_format or "NDHWC", scope, {"padding": padding})


def _pool(
    handle: OpHandle,
    value: TensorLike,
    ksize: int | Sequence[int],
    strides: int | Sequence[int],
    data_format: str,
    name: str,
    padding: dict[str, Any],
) -> Tensor:
    data_format = "NHWC" if data_format is None else data_format
    count = 3 if "D" in data_format else 2
    channels = 1 if data_format in ("NCHW", "NCDHW") else count + 1
    return handle(
        value,
        ksize=spatial_sequence(ksize, count, channels, "ksize"),
        strides=spatial_sequence(strides, count, channels, "strides"),
        data_format=data_format,
        name=name,
        **padding,
    )


# ---- Max pooling that also returns the position of each maximum (``tf.nn.max_pool_with_argmax``) -------------------

_ATTRS = (
    "; ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'}; T: realnumbertype;"
    " Targmax: {int32, int64}%s; include_batch_in_index: bool = false"
)
argmax_op: OpHandle[Any] = op("MaxPoolWithArgmax(input: T) -> output: T, argmax: Targmax" + _ATTRS % " = DT_INT64")
argmax_op.gradient(
    lambda node, grad, _: [argmax_grad_op(node.inputs[0], grad, node.outputs[1], **_max_argmax_attrs(node))]
)
argmax_grad_op: OpHandle = op("MaxPoolGradWithArgmax(input: T, grad: T, argmax: Targmax) -> output: T" + _ATTRS % "")
argmax_grad_op.shape(lambda node: [with_rank(node.inputs[0].raw_shape, 4)])
argmax_grad_op.gradient(
    lambda node, grad: [
        None,
        argmax_grad_grad_op(node.inputs[0], grad, node.inputs[2], **_max_argmax_attrs(node)),
        None,
    ]
)
argmax_grad_grad_op: OpHandle = op(
    "MaxPoolGradGradWithArgmax(input: T, grad: T, argmax: Targmax) -> output: T" + _ATTRS % ""
)
argmax_grad_grad_op.shape(lambda node: [with_rank(node.inputs[2].raw_shape, 4)])
argmax_grad_grad_op.gradient(
    lambda node, grad: [None, argmax_grad_op(node.inputs[0], grad, node.inputs[2], **_max_argmax_attrs(node)), None]
)


@argmax_op.shape
def _argmax_shape(node: Operation) -> list[RawShape]:
    image = with_rank(node.inputs[0].raw_shape, 4)
    ksize, strides = node.attrs["ksize"], node.attrs["strides"]
    check_lengths(node.type, 4, ksize=ksize, strides=strides)
    if any(values[axis] != 1 for values in (ksize, strides) for axis in (0, 3)):
        raise ValueError("Pooling is not yet supported on the batch or depth dimension.")
    return [(image[0], *Windows(node.attrs).out_sizes(image[1:3], ksize[1:3]), image[3])] * 2


@argmax_op.kernel_factory("CPU")
def _argmax_factory(node: Node) -> Callable[[Array], tuple[Array, Array]]:
    kind = node.attrs["Targmax"].numpy
    windows, ksize = Windows(node.attrs), tuple(node.attrs["ksize"][1:3])

    def max_pool(image: Array) -> tuple[Array, Array]:
        if image.ndim != 4:
            refuse(f"tensor_in must be 4-dimensional: {list(image.shape)}")
        size = math.prod(image.shape[1:])
        axes = windows.axes(image.shape[1:3], ksize)
        source = padded(image, axes, np.iinfo(image.dtype).min if image.dtype.kind in "iu" else -np.inf)
        places = padded(np.arange(size, dtype=kind).reshape(1, *image.shape[1:]), axes, -1, keep=True)
        best: Any = None
        for _, where in axes.elements():
            here, place = source[where], places[where]
            if best is None:
                best, found = here.copy(), np.repeat(place, len(image), axis=0)
                continue
            better = (here > best) | ((found < 0) & (place >= 0))  # The border is never the maximum.
            np.copyto(best, here, where=better)
            np.copyto(found, place, where=better)
        if node.attrs["include_batch_in_index"]:
            found += (np.arange(len(image), dtype=kind) * size)[:, None, None, None]
        return best, found

    return max_pool


def _flat_places(node: Node, places: Array, image: Array) -> Array:
    """Positions in the whole batch, checked."""
    if image.ndim != 4 or places.ndim != 4 or len(places) != len(image):
        refuse(f"Expected 4-dimensional images and positions, got {list(image.shape)} and {list(places.shape)}")
    if not node.attrs["include_batch_in_index"]:
        places = (
            places
            + (np.arange(len(image), dtype=places.dtype) * (image.size // max(len(image), 1)))[:, None, None, None]
        )
    if any_outside(places, image.size):
        refuse(f"Invalid argmax: positions must be in [0, {image.size})")
    return places


@argmax_grad_op.kernel_factory("CPU")
def _argmax_grad_factory(node: Node) -> Callable[[Array, Array, Array], Array]:
    def spread(image: Array, grad: Array, places: Array) -> Array:
        if grad.shape != places.shape:
            refuse(f"Expected grad shape to be {list(places.shape)}, but got {list(grad.shape)}")
        total = np.zeros(image.size, grad.dtype)
        np.add.at(total, _flat_places(node, places, image).ravel(), grad.ravel())
        return total.reshape(image.shape)

    return spread


@argmax_grad_grad_op.kernel_factory("CPU")
def _argmax_grad_grad_factory(node: Node) -> Callable[[Array, Array, Array], Array]:
    def collect(image: Array, grad: Array, places: Array) -> Array:
        if grad.shape != image.shape:
            refuse(f"Expected grad shape to be {list(image.shape)}, but got {list(grad.shape)}")
        return grad.ravel()[_flat_places(node, places, image)]

    return collect


def _max_argmax_attrs(node: Operation) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("ksize", "strides", "padding", "include_batch_in_index")}


@export("tf.nn.max_pool_with_argmax")
def max_pool_with_argmax(
    input: TensorLike, ksize: int | Sequence[int], strides: int | Sequence[int], padding: str,
    data_format: str = "NHWC", Targmax: DTypeLike | None = None, name: str | None = None,
    output_dtype: DTypeLike | None = None, include_batch_in_index: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The maximum of each window and its position (``tf.nn.max_pool_with_argmax``).

    Args:
      input: [batch, rows, columns, channels].
      ksize, strides: ``[1, rows, columns, 1]``.
      Targmax: the type of positions, int64 or int32.
      include_batch_in_index: count positions from the start of the batch instead of each image's.

    Raises:
      ValueError: for another data format.
    """
    if data_format != "NHWC":
        raise ValueError("Data formats other than 'NHWC' are not yet supported")
    kind = either("output_dtype", output_dtype, "Targmax", Targmax)
    return argmax_op(  # type: ignore[no-any-return]
        input, ksize=ksize, strides=strides, padding=padding, Targmax=dtypes.int64 if kind is None else kind,
        include_batch_in_index=include_batch_in_index, name=name,
    )  # fmt: skip
