"""Convolution and pooling in three spatial dimensions.

Kernels work on NDHWC. A three-dimensional window is a loop over its few depth slices (or all its offsets) around
large numpy calls: what is vectorised is the volume, never the window.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import op
from tfmini.ops.array_shape import shape
from tfmini.ops.array_values import refuse
from tfmini.ops.constant_value import constant_value_as_shape
from tfmini.ops.nn_arguments import either, spatial_sequence
from tfmini.ops.nn_windows import Array, Axis, output_size, window_axis
from tfmini.ops.scoping import name_scope
from tfmini.shapes import RawShape, merge_dims, with_rank

_FORMAT = "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'"
_SLIDE = "strides: list(int) >= 5; padding: {'SAME', 'VALID'}"
_CONV = f"; {_SLIDE}; {_FORMAT}; dilations: list(int) = [1, 1, 1, 1, 1]; T: {{half, bfloat16, float, double}}"
_POOL = f"; ksize: list(int) >= 5; {_SLIDE}; {_FORMAT}"
conv3d_op = op("Conv3D(input: T, filter: T) -> output: T" + _CONV)
conv3d_input_op = op(
    "Conv3DBackpropInputV2(input_sizes: Tshape, filter: T, out_backprop: T) -> output: T" + _CONV
    + "; Tshape: {int32, int64} = DT_INT32"
)  # fmt: skip
conv3d_filter_op = op("Conv3DBackpropFilterV2(input: T, filter_sizes: int32, out_backprop: T) -> output: T" + _CONV)
max_pool3d_op = op("MaxPool3D(input: T) -> output: T" + _POOL + "; T: {half, bfloat16, float}")
max_pool3d_grad_op = op(
    "MaxPool3DGrad(orig_input: TInput, orig_output: TInput, grad: T) -> output: T" + _POOL
    + "; T: {half, bfloat16, float} = DT_FLOAT; TInput: {half, bfloat16, float} = DT_FLOAT"
)  # fmt: skip
max_pool3d_grad_grad_op = op(
    "MaxPool3DGradGrad(orig_input: T, orig_output: T, grad: T) -> output: T" + _POOL + "; T: realnumbertype"
)
avg_pool3d_op = op("AvgPool3D(input: T) -> output: T" + _POOL + "; T: {half, bfloat16, float, double}")
avg_pool3d_grad_op = op(
    "AvgPool3DGrad(orig_input_shape: int32, grad: T) -> output: T" + _POOL + "; T: {half, bfloat16, float, double}"
)


# ---- shapes ---------------------------------------------------------------------------------


def _spatial(values: Any, data_format: bytes) -> tuple[Any, ...]:
    """The three spatial entries of a list in the layout of the data."""
    return tuple(values[2:5]) if data_format == b"NCDHW" else tuple(values[1:4])


def _arranged(batch: Any, space: Any, channels: Any, data_format: bytes) -> tuple[Any, ...]:
    return (batch, channels, *space) if data_format == b"NCDHW" else (batch, *space, channels)


def _parts(sizes: tuple[Any, ...], data_format: bytes) -> tuple[Any, tuple[Any, ...], Any]:
    """(batch, spatial sizes, channels) of a five-dimensional shape."""
    return sizes[0], _spatial(sizes, data_format), sizes[1] if data_format == b"NCDHW" else sizes[4]


def _check_lists(node: Operation, *names: str) -> None:
    for name in names:
        values = node.attrs[name]
        if len(values) != 5:
            raise ValueError(f"{node.type} requires the {name} attribute to contain 5 values, but got: {len(values)}")


@conv3d_op.shape
def _conv3d_shape(node: Operation) -> list[RawShape]:
    _check_lists(node, "strides", "dilations")
    data_format = node.attrs["data_format"]
    batch, space, channels = _parts(with_rank(node._inputs[0]._shape, 5), data_format)
    filters = with_rank(node._inputs[1]._shape, 5)
    merge_dims(channels, filters[3])
    steps, holes = (_spatial(node.attrs[n], data_format) for n in ("strides", "dilations"))
    sizes = [output_size(*at, node.attrs["padding"]) for at in zip(space, filters[:3], steps, holes)]
    return [_arranged(batch, sizes, filters[4], data_format)]


@conv3d_input_op.shape
def _conv3d_input_shape(node: Operation) -> list[RawShape]:
    return [with_rank(constant_value_as_shape(node._inputs[0]), 5)]


@conv3d_filter_op.shape
def _conv3d_filter_shape(node: Operation) -> list[RawShape]:
    return [with_rank(constant_value_as_shape(node._inputs[1]), 5)]


@max_pool3d_op.shape
@avg_pool3d_op.shape
def _pool3d_shape(node: Operation) -> list[RawShape]:
    _check_lists(node, "ksize", "strides")
    data_format = node.attrs["data_format"]
    batch, space, channels = _parts(with_rank(node._inputs[0]._shape, 5), data_format)
    windows, steps = (_spatial(node.attrs[n], data_format) for n in ("ksize", "strides"))
    sizes = [output_size(size, k, s, 1, node.attrs["padding"]) for size, k, s in zip(space, windows, steps)]
    return [_arranged(batch, sizes, channels, data_format)]


@max_pool3d_grad_op.shape
def _max_pool3d_grad_shape(node: Operation) -> list[RawShape]:
    return [with_rank(node._inputs[0]._shape, 5)]


@max_pool3d_grad_grad_op.shape
def _max_pool3d_grad_grad_shape(node: Operation) -> list[RawShape]:
    return [with_rank(node._inputs[1]._shape, 5)]


@avg_pool3d_grad_op.shape
def _avg_pool3d_grad_shape(node: Operation) -> list[RawShape]:
    return [with_rank(constant_value_as_shape(node._inputs[0]), 5)]


# ---- windows over volumes -------------------------------------------------------------------


def _axes(node: Any, space: Any, windows: Any) -> list[Axis]:
    attrs = node.attrs
    steps = _spatial(attrs["strides"], attrs["data_format"])
    holes = _spatial(attrs.get("dilations", (1,) * 5), attrs["data_format"])
    try:
        return [window_axis(n, k, s, d, attrs["padding"]) for n, k, s, d in zip(space, windows, steps, holes)]
    except ValueError as error:
        refuse(str(error))


def _inward(value: Array, node: Any) -> Array:
    """As NDHWC, in a type that numpy multiplies quickly."""
    if node.attrs["data_format"] == b"NCDHW":
        value = np.moveaxis(value, 1, -1)
    return value.astype(np.float32) if value.dtype.itemsize == 2 else value


def _outward(value: Array, node: Any) -> Array:
    value = value.astype(node.attrs["T"].numpy, copy=False)
    return np.ascontiguousarray(np.moveaxis(value, -1, 1)) if node.attrs["data_format"] == b"NCDHW" else value


def _padded(volume: Array, axes: list[Axis], value: Any = 0) -> Array:
    if not any(a.padded for a in axes):
        return volume
    widths = [(0, 0), *((a.before, a.after) for a in axes), (0, 0)]
    return np.pad(volume, widths, constant_values=value)


def _offsets(axes: list[Axis]) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
    """Each position in the window, and where it meets the padded volume."""
    for place in itertools.product(*(range(a.window) for a in axes)):
        yield place, (slice(None), *(a.offsets(k) for a, k in zip(axes, place)))


def _cut(volume: Array, axes: list[Axis]) -> Array:
    return volume[(slice(None), *(slice(a.before, a.before + a.size) for a in axes))]


def _blank(batch: int, axes: list[Axis], channels: int, dtype: Any) -> Array:
    """A padded volume of zeros, large enough for every window."""
    sizes = [a.before + a.size + a.after for a in axes]
    return np.zeros((batch, *sizes, channels), dtype)


# ---- convolution ----------------------------------------------------------------------------


@conv3d_op.kernel_factory("CPU")
def _conv3d_factory(node: Any) -> Callable[..., Array]:
    def kernel(volume: Array, filters: Array) -> Array:
        volume = _inward(volume, node)
        filters = filters.astype(volume.dtype, copy=False)
        if volume.shape[-1] != filters.shape[3]:
            refuse(f"Conv3D: input depth {volume.shape[-1]} and filter depth {filters.shape[3]} must be equal")
        axes = _axes(node, volume.shape[1:4], filters.shape[:3])
        source = _padded(volume, axes)
        total = np.zeros((volume.shape[0] * axes[0].out * axes[1].out * axes[2].out, filters.shape[4]), volume.dtype)
        for place, where in _offsets(axes):
            total += source[where].reshape(-1, volume.shape[4]) @ filters[place]
        return _outward(total.reshape(volume.shape[0], *(a.out for a in axes), filters.shape[4]), node)

    return kernel


@conv3d_input_op.kernel_factory("CPU")
def _conv3d_input_factory(node: Any) -> Callable[..., Array]:
    def kernel(sizes: Array, filters: Array, grad: Array) -> Array:
        grad = _inward(grad, node)
        filters = filters.astype(grad.dtype, copy=False)
        batch, space, channels = _parts(tuple(int(s) for s in sizes), node.attrs["data_format"])
        axes = _axes(node, space, filters.shape[:3])
        _check_grad(grad, batch, axes)
        total = _blank(batch, axes, channels, grad.dtype)
        flat = grad.reshape(-1, grad.shape[4])
        for place, where in _offsets(axes):
            total[where] += (flat @ filters[place].T).reshape(*grad.shape[:4], channels)
        return _outward(_cut(total, axes), node)

    return kernel


def _check_grad(grad: Array, batch: int, axes: list[Axis]) -> None:
    wanted = (batch, *(a.out for a in axes))
    if grad.shape[:4] != wanted:
        refuse(f"Conv3D: the gradient has batch and spatial sizes {list(grad.shape[:4])}, not {list(wanted)}")


@conv3d_filter_op.kernel_factory("CPU")
def _conv3d_filter_factory(node: Any) -> Callable[..., Array]:
    def kernel(volume: Array, sizes: Array, grad: Array) -> Array:
        volume, grad = _inward(volume, node), _inward(grad, node)
        axes = _axes(node, volume.shape[1:4], tuple(int(s) for s in sizes[:3]))
        _check_grad(grad, volume.shape[0], axes)
        source = _padded(volume, axes)
        found = np.empty(tuple(int(s) for s in sizes), grad.dtype)
        flat = grad.reshape(-1, grad.shape[4])
        for place, where in _offsets(axes):
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


# ---- pooling --------------------------------------------------------------------------------


def _pool_axes(node: Any, volume: Array) -> list[Axis]:
    return _axes(node, volume.shape[1:4], _spatial(node.attrs["ksize"], node.attrs["data_format"]))


def _max_of(volume: Array, axes: list[Axis]) -> tuple[Array, Array]:
    """The maximum of each window, and the number of the first offset that has it."""
    source = _padded(volume, axes, -np.inf)
    best = np.full((volume.shape[0], *(a.out for a in axes), volume.shape[4]), -np.inf, volume.dtype)
    first = np.zeros(best.shape, np.int32)
    for number, (_, where) in enumerate(_offsets(axes)):
        here = source[where]
        better = here > best
        np.copyto(best, here, where=better)
        first[better] = number
    return best, first


@max_pool3d_op.kernel_factory("CPU")
def _max_pool3d_factory(node: Any) -> Callable[..., Array]:
    def kernel(volume: Array) -> Array:
        volume = _inward(volume, node)
        return _outward(_max_of(volume, _pool_axes(node, volume))[0], node)

    return kernel


@max_pool3d_grad_op.kernel_factory("CPU")
def _max_pool3d_grad_factory(node: Any) -> Callable[..., Array]:
    def kernel(volume: Array, _: Array, grad: Array) -> Array:
        volume, grad = _inward(volume, node), _inward(grad, node)
        axes = _pool_axes(node, volume)
        _, first = _max_of(volume, axes)
        total = _blank(volume.shape[0], axes, volume.shape[4], grad.dtype)
        for number, (_place, where) in enumerate(_offsets(axes)):
            total[where] += np.where(first == number, grad, 0)
        return _outward(_cut(total, axes), node)

    return kernel


@max_pool3d_grad_grad_op.kernel_factory("CPU")
def _max_pool3d_grad_grad_factory(node: Any) -> Callable[..., Array]:
    def kernel(volume: Array, _: Array, grad: Array) -> Array:
        volume, grad = _inward(volume, node), _inward(grad, node)
        axes = _pool_axes(node, volume)
        _, first = _max_of(volume, axes)
        source = _padded(grad, axes)
        found = np.zeros(first.shape, grad.dtype)
        for number, (_place, where) in enumerate(_offsets(axes)):
            np.copyto(found, source[where], where=first == number)
        return _outward(found, node)

    return kernel


def _counts(axes: list[Axis]) -> Array:
    """How many elements of each window lie inside the volume."""
    inside = _padded(np.ones((1, *(a.size for a in axes), 1)), axes)
    total = np.zeros((1, *(a.out for a in axes), 1))
    for _, where in _offsets(axes):
        total += inside[where]
    return total


@avg_pool3d_op.kernel_factory("CPU")
def _avg_pool3d_factory(node: Any) -> Callable[..., Array]:
    def kernel(volume: Array) -> Array:
        volume = _inward(volume, node)
        axes = _pool_axes(node, volume)
        source = _padded(volume, axes)
        total = np.zeros((volume.shape[0], *(a.out for a in axes), volume.shape[4]), volume.dtype)
        for _, where in _offsets(axes):
            total += source[where]
        total /= _counts(axes).astype(total.dtype)
        return _outward(total, node)

    return kernel


@avg_pool3d_grad_op.kernel_factory("CPU")
def _avg_pool3d_grad_factory(node: Any) -> Callable[..., Array]:
    def kernel(sizes: Array, grad: Array) -> Array:
        grad = _inward(grad, node)
        batch, space, channels = _parts(tuple(int(s) for s in sizes), node.attrs["data_format"])
        axes = _axes(node, space, _spatial(node.attrs["ksize"], node.attrs["data_format"]))
        share = grad / _counts(axes).astype(grad.dtype)
        total = _blank(batch, axes, channels, grad.dtype)
        for _, where in _offsets(axes):
            total[where] += share
        return _outward(_cut(total, axes), node)

    return kernel


def _pool_attrs(node: Operation) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("ksize", "strides", "padding", "data_format")}


@max_pool3d_op.gradient
def _max_pool3d_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [max_pool3d_grad_op(node._inputs[0], node._outputs[0], grad, **_pool_attrs(node))]


@max_pool3d_grad_op.gradient
def _max_pool3d_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [None, None, max_pool3d_grad_grad_op(*node._inputs[:2], grad, **_pool_attrs(node))]


@max_pool3d_grad_grad_op.gradient
def _max_pool3d_grad_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [None, None, max_pool3d_grad_op(*node._inputs[:2], grad, **_pool_attrs(node))]


@avg_pool3d_op.gradient
def _avg_pool3d_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [avg_pool3d_grad_op(shape(node._inputs[0]), grad, **_pool_attrs(node))]


@avg_pool3d_grad_op.gradient
def _avg_pool3d_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [None, avg_pool3d_op(grad, **_pool_attrs(node))]


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
            output_shape, filter, value, strides=_five(strides, data_format, "strides"), padding=padding,
            data_format=data_format, dilations=_five(dilations, data_format, "dilations"), name=scope,
        )  # fmt: skip


def _five(values: Any, data_format: str, name: str) -> list[int]:
    return spatial_sequence(values, 3, 1 if data_format == "NCDHW" else 4, name)


def _pool(handle: Any, default_name: str, input: Any, ksize: Any, strides: Any, padding: Any, data_format: Any,
          name: str | None) -> Tensor:  # fmt: skip
    data_format = "NDHWC" if data_format is None else data_format
    with name_scope(name, default_name, [input]) as scope:
        return handle(  # type: ignore[no-any-return]
            input, ksize=_five(ksize, data_format, "ksize"), strides=_five(strides, data_format, "strides"),
            padding=padding, data_format=data_format, name=scope,
        )  # fmt: skip


def max_pool3d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NDHWC", name: str | None = None
) -> Tensor:
    """The maximum of each window of volumes (``tf.nn.max_pool3d``)."""
    return _pool(max_pool3d_op, "MaxPool3D", input, ksize, strides, padding, data_format, name)


def avg_pool3d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NDHWC", name: str | None = None
) -> Tensor:
    """The mean of each window of volumes (``tf.nn.avg_pool3d``)."""
    return _pool(avg_pool3d_op, "AvgPool3D", input, ksize, strides, padding, data_format, name)
