"""Max and average pooling over two spatial axes, with their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tfmini.errors import InvalidArgumentError, UnimplementedError
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import op
from tfmini.ops.array_shape import shape
from tfmini.ops.constant_value import constant_value_as_shape
from tfmini.ops.math_broadcast import HALVES
from tfmini.ops.nn_activation import where_else_zero
from tfmini.ops.nn_arguments import either, padding_attrs, spatial_sequence
from tfmini.ops.nn_windows import (
    Array,
    Axis,
    arrange,
    explicit_pair,
    from_nhwc,
    image_axes,
    output_size,
    padded,
    to_nhwc,
    window_axis,
)  # fmt: skip
from tfmini.ops.scoping import name_scope
from tfmini.shapes import RawShape, merge_raw, with_rank

_SIZES = """
    ksize: list(int) >= 4
    strides: list(int) >= 4"""
_MAX_GRAD_ATTRS = (
    _SIZES
    + """
    padding: {'SAME', 'VALID', 'EXPLICIT'}
    explicit_paddings: list(int) = []
    data_format: {'NHWC', 'NCHW'} = 'NHWC'"""
)
_AVG_ATTRS = (
    _SIZES
    + """
    padding: {'SAME', 'VALID'}
    data_format: {'NHWC', 'NCHW'} = 'NHWC'
    T: {half, bfloat16, float, double}"""
)

max_pool_op = op(
    "MaxPool(input: T) -> output: T"
    + "\n    T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = DT_FLOAT"
    + _MAX_GRAD_ATTRS.replace("'NCHW'}", "'NCHW', 'NCHW_VECT_C'}")
)
max_pool_grad_op = op(
    "MaxPoolGrad(orig_input: T, orig_output: T, grad: T) -> output: T"
    + _MAX_GRAD_ATTRS
    + "\n    T: realnumbertype = DT_FLOAT"
)
max_pool_grad_grad_op = op(
    "MaxPoolGradGrad(orig_input: T, orig_output: T, grad: T) -> output: T"
    + _MAX_GRAD_ATTRS.replace(", 'EXPLICIT'", "").replace("    explicit_paddings: list(int) = []\n", "")
    + "\n    T: realnumbertype"
)
avg_pool_op = op("AvgPool(value: T) -> output: T" + _AVG_ATTRS)
avg_pool_grad_op = op("AvgPoolGrad(orig_input_shape: int32, grad: T) -> output: T" + _AVG_ATTRS)


# ---- shapes -------------------------------------------------------------------------------------


@max_pool_op.shape
@avg_pool_op.shape
def _pool_shape(node: Operation) -> list[RawShape]:
    return [pooled_shape(node, node.attrs["ksize"], node.attrs["strides"])]


def pooled_shape(node: Operation, ksize: Sequence[int], strides: Sequence[int]) -> RawShape:
    """The shape of what a pooling op gives for its first input.

    Raises:
      ValueError: for sizes that it cannot take.
    """
    attrs = node.attrs
    image = with_rank(node._inputs[0]._shape, 4)
    for attr, sizes in (("ksize", ksize), ("strides", strides)):
        if len(sizes) != 4:
            raise ValueError(f"{node.type} requires the {attr} attribute to contain 4 values, but got: {len(sizes)}")
    axes = image_axes(attrs["data_format"])
    pixels = [
        output_size(
            image[axis], ksize[axis], strides[axis], 1, attrs["padding"],
            explicit_pair(attrs.get("explicit_paddings"), axis),
        )
        for axis in axes[1:]
    ]  # fmt: skip
    return arrange((image[axes[0]], pixels[0], pixels[1], pixels[2]), attrs["data_format"])


@max_pool_grad_op.shape
def _max_pool_grad_shape(node: Operation) -> list[RawShape]:
    return [with_rank(node._inputs[0]._shape, 4)]


@max_pool_grad_grad_op.shape
def _max_pool_grad_grad_shape(node: Operation) -> list[RawShape]:
    return [merge_raw(node._inputs[1]._shape, _pool_shape(node)[0])]


@avg_pool_grad_op.shape
def _avg_pool_grad_shape(node: Operation) -> list[RawShape]:
    return [with_rank(constant_value_as_shape(node._inputs[0]), 4)]


# ---- kernels ------------------------------------------------------------------------------------


def _check_axes(attrs: Mapping[str, Any], deep: bool) -> None:
    """Windows lie within an image and, unless ``deep``, within a channel."""
    batch, _, _, depth = image_axes(attrs["data_format"])
    if attrs["ksize"][batch] != 1 or attrs["strides"][batch] != 1:
        raise UnimplementedError(None, None, "Pooling is not yet supported on the batch dimension.")
    if not deep and (attrs["ksize"][depth] != 1 or attrs["strides"][depth] != 1):
        raise UnimplementedError(None, None, "Pooling is not yet supported on the depth dimension.")


def _placer(attrs: Mapping[str, Any]) -> Callable[[tuple[int, ...]], tuple[Axis, Axis]]:
    """The function from an NHWC shape to its two window axes."""
    axes = image_axes(attrs["data_format"])[1:3]

    def place(sizes: tuple[int, ...]) -> tuple[Axis, Axis]:
        try:
            rows, columns = (
                window_axis(
                    sizes[i + 1], attrs["ksize"][axis], attrs["strides"][axis], 1, attrs["padding"],
                    explicit_pair(attrs.get("explicit_paddings"), axis),
                )
                for i, axis in enumerate(axes)
            )  # fmt: skip
        except ValueError as error:
            raise InvalidArgumentError(None, None, str(error)) from None
        return rows, columns

    return place


def _lowest(dtype: np.dtype[Any]) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else ml_dtypes.finfo(dtype).min


def _reduce_windows(ufunc: np.ufunc, source: Array, rows: Axis, columns: Axis) -> Array:
    """Reduces each window of a padded image, first along rows (long contiguous runs), then along columns."""
    tall = source[:, rows.offsets(0)]
    for i in range(1, rows.window):
        tall = ufunc(tall, source[:, rows.offsets(i)], out=tall if i > 1 else None)
    result: Array = tall[:, :, columns.offsets(0)]
    if columns.window == 1:
        return result.copy()
    result = ufunc(result, tall[:, :, columns.offsets(1)])
    for j in range(2, columns.window):
        ufunc(result, tall[:, :, columns.offsets(j)], out=result)
    return result


@max_pool_op.kernel_factory("CPU")
def _max_pool_factory(node: Any) -> Callable[..., Array]:
    return max_pool_of(node.attrs)


def max_pool_of(attrs: Mapping[str, Any]) -> Callable[[Array], Array]:
    """The function that pools images as these attrs say."""
    place, layout = _placer(attrs), attrs["data_format"]
    _check_axes(attrs, deep=True)
    depth = image_axes(layout)[3]
    if attrs["ksize"][depth] != 1 or attrs["strides"][depth] != 1:
        return _depthwise_max_pool(attrs)

    def max_pool(image: Array) -> Array:
        image = to_nhwc(image, layout)
        rows, columns = place(image.shape)
        source = padded(image, rows, columns, _lowest(image.dtype) if rows.padded or columns.padded else 0)
        return from_nhwc(_reduce_windows(np.maximum, source, rows, columns), layout)

    return max_pool


def _depthwise_max_pool(attrs: Mapping[str, Any]) -> Callable[[Array], Array]:
    """Maxima of groups of channels."""
    ksize, layout = attrs["ksize"], attrs["data_format"]
    _, row, column, depth = image_axes(layout)
    window = ksize[depth]
    if ksize[row] != 1 or ksize[column] != 1:
        text = "MaxPooling supports exactly one of pooling across depth or pooling across width/height."
        raise UnimplementedError(None, None, text)
    if window != attrs["strides"][depth]:
        text = "Depthwise max pooling requires the depth window to equal the depth stride."
        raise UnimplementedError(None, None, text)

    def max_pool(image: Array) -> Array:
        image = to_nhwc(image, layout)
        if image.shape[3] % window:
            text = "Depthwise max pooling requires the depth window to evenly divide the input depth"
            raise UnimplementedError(None, None, text)
        return from_nhwc(image.reshape(*image.shape[:3], -1, window).max(axis=4), layout)

    return max_pool


def _without_nan(source: Array, result: Array, rows: Axis, columns: Axis) -> tuple[Array, Array]:
    """Images and maxima in which a window whose maximum is no number has its maximum in its first element."""
    source = np.where(np.isnan(source), _lowest(source.dtype), source)
    first = source[:, rows.offsets(0), columns.offsets(0)]
    return source, np.where(np.isnan(result), first, result)


def _first_matches(source: Array, result: Array, rows: Axis, columns: Axis) -> Iterator[tuple[slice, slice, Array]]:
    """Yields, for each window offset in row-major order, where it holds the first maximum of its window."""
    taken = None
    last = (rows.window - 1, columns.window - 1)
    for i in range(rows.window):
        for j in range(columns.window):
            row, column = rows.offsets(i), columns.offsets(j)
            match = np.equal(source[:, row, column], result)
            if taken is None:
                taken = match
            else:
                np.greater(match, taken, out=match)  # match and not taken
                if (i, j) != last:
                    taken = taken | match
            yield row, column, match


def _spread(shape: tuple[int, ...], dtype: Any, rows: Axis, columns: Axis) -> tuple[Array, bool]:
    """A gradient image with its padding, and whether windows tile it (each pixel in exactly one)."""
    height, width = rows.before + rows.size + rows.after, columns.before + columns.size + columns.after
    tiled = all(
        axis.stride == axis.window and axis.out * axis.window == size
        for axis, size in ((rows, height), (columns, width))
    )
    full = (shape[0], height, width, shape[3])
    return (np.empty(full, dtype) if tiled else np.zeros(full, dtype)), tiled


def _cropped(image: Array, rows: Axis, columns: Axis) -> Array:
    return image[:, rows.before : rows.before + rows.size, columns.before : columns.before + columns.size]


@max_pool_grad_op.kernel_factory("CPU")
def _max_pool_grad_factory(node: Any) -> Callable[..., Array]:
    return max_pool_grad_of(node.attrs)


def max_pool_grad_of(attrs: Mapping[str, Any]) -> Callable[[Array, Array, Array], Array]:
    """The function of images, their maxima and gradients of the maxima, as these attrs say."""
    place, layout = _placer(attrs), attrs["data_format"]

    def max_pool_grad(image: Array, result: Array, grad: Array) -> Array:
        image, result = to_nhwc(image, layout), to_nhwc(result, layout)
        grad = np.ascontiguousarray(to_nhwc(grad, layout))
        rows, columns = place(image.shape)
        if grad.shape != result.shape or result.shape[1:3] != (rows.out, columns.out):
            raise InvalidArgumentError(None, None, f"Expected grad shape to be {result.shape}, but got {grad.shape}")
        source = padded(image, rows, columns, _lowest(image.dtype))
        total, tiled = _spread(image.shape, image.dtype, rows, columns)
        if result.dtype.kind not in "iu" and np.isnan(result).any():
            source, result = _without_nan(source, result, rows, columns)
        for row, column, match in _first_matches(source, result, rows, columns):
            share = where_else_zero(match, grad)
            if tiled:
                total[:, row, column] = share
            else:
                total[:, row, column] += share
        return from_nhwc(_cropped(total, rows, columns), layout)

    return max_pool_grad


@max_pool_grad_grad_op.kernel_factory("CPU")
def _max_pool_grad_grad_factory(node: Any) -> Callable[..., Array]:
    return max_pool_grad_grad_of(node.attrs)


def max_pool_grad_grad_of(attrs: Mapping[str, Any]) -> Callable[[Array, Array, Array], Array]:
    """The function of images, their maxima and gradients of the images, as these attrs say."""
    place, layout = _placer(attrs), attrs["data_format"]

    def max_pool_grad_grad(image: Array, result: Array, grad: Array) -> Array:
        image, result, grad = to_nhwc(image, layout), to_nhwc(result, layout), to_nhwc(grad, layout)
        rows, columns = place(image.shape)
        source = padded(image, rows, columns, _lowest(image.dtype), keep=True)
        wide = padded(grad, rows, columns)
        total = np.zeros(result.shape, grad.dtype)
        for row, column, match in _first_matches(source, result, rows, columns):
            total += where_else_zero(match, np.ascontiguousarray(wide[:, row, column]))
        return from_nhwc(total, layout)

    return max_pool_grad_grad


def _counts(rows: Axis, columns: Axis, dtype: Any) -> Array:
    """How many real pixels each window holds, (out rows, out columns, 1)."""

    def along(axis: Axis) -> Array:
        start = np.arange(axis.out) * axis.stride - axis.before
        return np.minimum(start + axis.window, axis.size) - np.maximum(start, 0)

    return np.outer(along(rows), along(columns)).astype(dtype)[:, :, None]


@avg_pool_op.kernel_factory("CPU")
def _avg_pool_factory(node: Any) -> Callable[..., Array]:
    _check_axes(node.attrs, deep=False)
    place, layout = _placer(node.attrs), node.attrs["data_format"]
    dtype = node.attrs["T"].numpy
    wide = np.float32 if node.attrs["T"] in HALVES else dtype

    def avg_pool(image: Array) -> Array:
        image = to_nhwc(image, layout).astype(wide, copy=False)
        rows, columns = place(image.shape)
        result = _reduce_windows(np.add, padded(image, rows, columns), rows, columns)
        result /= _counts(rows, columns, result.dtype)
        return from_nhwc(result.astype(dtype, copy=False), layout)

    return avg_pool


@avg_pool_grad_op.kernel_factory("CPU")
def _avg_pool_grad_factory(node: Any) -> Callable[..., Array]:
    place, layout = _placer(node.attrs), node.attrs["data_format"]
    dtype = node.attrs["T"].numpy
    wide = np.float32 if node.attrs["T"] in HALVES else dtype

    def avg_pool_grad(sizes: Array, grad: Array) -> Array:
        image = tuple(int(sizes[axis]) for axis in image_axes(layout))
        grad = to_nhwc(grad, layout).astype(wide, copy=False)
        rows, columns = place(image)
        share = grad / _counts(rows, columns, grad.dtype)
        total, tiled = _spread(image, grad.dtype, rows, columns)
        for i in range(rows.window):
            for j in range(columns.window):
                if tiled:
                    total[:, rows.offsets(i), columns.offsets(j)] = share
                else:
                    total[:, rows.offsets(i), columns.offsets(j)] += share
        return from_nhwc(_cropped(total, rows, columns).astype(dtype, copy=False), layout)

    return avg_pool_grad


# ---- gradients ----------------------------------------------------------------------------------


def _attrs(node: Operation, *names: str) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("ksize", "strides", "padding", "data_format", *names)}


@max_pool_op.gradient
def _max_pool_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [max_pool_grad_op(node._inputs[0], node._outputs[0], grad, **_attrs(node, "explicit_paddings"))]


@max_pool_grad_op.gradient
def _max_pool_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    image, result, _ = node._inputs
    return [None, None, max_pool_grad_grad_op(image, result, grad, **_attrs(node))]


@max_pool_grad_grad_op.gradient
def _max_pool_grad_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    image, result, _ = node._inputs
    return [None, None, max_pool_grad_op(image, result, grad, **_attrs(node))]


@avg_pool_op.gradient
def _avg_pool_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [avg_pool_grad_op(shape(node._inputs[0]), grad, **_attrs(node))]


@avg_pool_grad_op.gradient
def _avg_pool_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [None, avg_pool_op(grad, **_attrs(node))]


# ---- public functions ---------------------------------------------------------------------------


def max_pool(
    value: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NHWC", name: str | None = None,
    input: Any = None,
) -> Tensor:  # fmt: skip
    """The maximum of each window (``tf.nn.max_pool``).

    Args:
      value: [batch, rows, columns, channels], or channels second for NCHW.
      ksize: the window: one int, two, or four in the layout of ``data_format``.
      strides: as ``ksize``.
      padding: "SAME", "VALID", or four (before, after) pairs.
    """
    with name_scope(name, "MaxPool", [value]) as scope:
        return _pool(max_pool_op, either("input", input, "value", value), ksize, strides, data_format, scope,
                     padding_attrs(padding))  # fmt: skip


def max_pool2d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NHWC", name: str | None = None,
) -> Tensor:  # fmt: skip
    """`max_pool` (``tf.nn.max_pool2d``)."""
    with name_scope(name, "MaxPool2d", [input]) as scope:
        return _pool(max_pool_op, input, ksize, strides, data_format, scope, padding_attrs(padding))


def avg_pool(
    value: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NHWC", name: str | None = None,
    input: Any = None,
) -> Tensor:  # fmt: skip
    """The mean of each window, padding not counted (``tf.nn.avg_pool``, ``tf.nn.avg_pool2d``); see `max_pool`."""
    with name_scope(name, "AvgPool", [value]) as scope:
        return _pool(avg_pool_op, either("input", input, "value", value), ksize, strides, data_format, scope,
                     {"padding": padding})  # fmt: skip


def _pool(
    handle: Any, value: Any, ksize: Any, strides: Any, data_format: str, name: str, padding: dict[str, Any]
) -> Tensor:
    data_format = "NHWC" if data_format is None else data_format
    channels = 1 if data_format == "NCHW" else 3
    return handle(  # type: ignore[no-any-return]
        convert_to_tensor(value, name="value"),
        ksize=spatial_sequence(ksize, 2, channels, "ksize"),
        strides=spatial_sequence(strides, 2, channels, "strides"),
        data_format=data_format,
        name=name,
        **padding,
    )
