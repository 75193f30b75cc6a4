"""Pooling in three spatial dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import op
from tfmini.ops.array_shape import shape
from tfmini.ops.constant_value import constant_value_as_shape
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
from tfmini.shapes import RawShape, with_rank

_POOL = f"; ksize: list(int) >= 5; {SLIDE}; {FORMAT}"
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


@max_pool3d_op.shape
@avg_pool3d_op.shape
def _pool3d_shape(node: Operation) -> list[RawShape]:
    check_lists(node, "ksize", "strides")
    data_format = node.attrs["data_format"]
    batch, space, channels = parts_of(with_rank(node._inputs[0]._shape, 5), data_format)
    windows, steps = (spatial(node.attrs[n], data_format) for n in ("ksize", "strides"))
    sizes = [output_size(size, k, s, 1, node.attrs["padding"]) for size, k, s in zip(space, windows, steps)]
    return [arranged(batch, sizes, channels, data_format)]


@max_pool3d_grad_op.shape
def _max_pool3d_grad_shape(node: Operation) -> list[RawShape]:
    return [with_rank(node._inputs[0]._shape, 5)]


@max_pool3d_grad_grad_op.shape
def _max_pool3d_grad_grad_shape(node: Operation) -> list[RawShape]:
    return [with_rank(node._inputs[1]._shape, 5)]


@avg_pool3d_grad_op.shape
def _avg_pool3d_grad_shape(node: Operation) -> list[RawShape]:
    return [with_rank(constant_value_as_shape(node._inputs[0]), 5)]


def _pool_axes(node: Any, volume: Array) -> list[Axis]:
    return axes_of(node, volume.shape[1:4], spatial(node.attrs["ksize"], node.attrs["data_format"]))


def _max_of(volume: Array, axes: list[Axis]) -> tuple[Array, Array]:
    """The maximum of each window, and the number of the first offset that has it."""
    source = padded(volume, axes, -np.inf)
    best = np.full((volume.shape[0], *(a.out for a in axes), volume.shape[4]), -np.inf, volume.dtype)
    first = np.zeros(best.shape, np.int32)
    for number, (_, where) in enumerate(offsets_of(axes)):
        here = source[where]
        better = here > best
        np.copyto(best, here, where=better)
        first[better] = number
    return best, first


@max_pool3d_op.kernel_factory("CPU")
def _max_pool3d_factory(node: Any) -> Callable[..., Array]:
    def kernel(volume: Array) -> Array:
        volume = inward(volume, node)
        return outward(_max_of(volume, _pool_axes(node, volume))[0], node)

    return kernel


@max_pool3d_grad_op.kernel_factory("CPU")
def _max_pool3d_grad_factory(node: Any) -> Callable[..., Array]:
    def kernel(volume: Array, _: Array, grad: Array) -> Array:
        volume, grad = inward(volume, node), inward(grad, node)
        axes = _pool_axes(node, volume)
        _, first = _max_of(volume, axes)
        total = blank(volume.shape[0], axes, volume.shape[4], grad.dtype)
        for number, (_place, where) in enumerate(offsets_of(axes)):
            total[where] += np.where(first == number, grad, 0)
        return outward(cut(total, axes), node)

    return kernel


@max_pool3d_grad_grad_op.kernel_factory("CPU")
def _max_pool3d_grad_grad_factory(node: Any) -> Callable[..., Array]:
    def kernel(volume: Array, _: Array, grad: Array) -> Array:
        volume, grad = inward(volume, node), inward(grad, node)
        axes = _pool_axes(node, volume)
        _, first = _max_of(volume, axes)
        source = padded(grad, axes)
        found = np.zeros(first.shape, grad.dtype)
        for number, (_place, where) in enumerate(offsets_of(axes)):
            np.copyto(found, source[where], where=first == number)
        return outward(found, node)

    return kernel


def _counts(axes: list[Axis]) -> Array:
    """How many elements of each window lie inside the volume."""
    inside = padded(np.ones((1, *(a.size for a in axes), 1)), axes)
    total = np.zeros((1, *(a.out for a in axes), 1))
    for _, where in offsets_of(axes):
        total += inside[where]
    return total


@avg_pool3d_op.kernel_factory("CPU")
def _avg_pool3d_factory(node: Any) -> Callable[..., Array]:
    def kernel(volume: Array) -> Array:
        volume = inward(volume, node)
        axes = _pool_axes(node, volume)
        source = padded(volume, axes)
        total = np.zeros((volume.shape[0], *(a.out for a in axes), volume.shape[4]), volume.dtype)
        for _, where in offsets_of(axes):
            total += source[where]
        total /= _counts(axes).astype(total.dtype)
        return outward(total, node)

    return kernel


@avg_pool3d_grad_op.kernel_factory("CPU")
def _avg_pool3d_grad_factory(node: Any) -> Callable[..., Array]:
    def kernel(sizes: Array, grad: Array) -> Array:
        grad = inward(grad, node)
        batch, space, channels = parts_of(tuple(int(s) for s in sizes), node.attrs["data_format"])
        axes = axes_of(node, space, spatial(node.attrs["ksize"], node.attrs["data_format"]))
        share = grad / _counts(axes).astype(grad.dtype)
        total = blank(batch, axes, channels, grad.dtype)
        for _, where in offsets_of(axes):
            total[where] += share
        return outward(cut(total, axes), node)

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


def _pool(handle: Any, default_name: str, input: Any, ksize: Any, strides: Any, padding: Any, data_format: Any,
          name: str | None) -> Tensor:  # fmt: skip
    data_format = "NDHWC" if data_format is None else data_format
    with name_scope(name, default_name, [input]) as scope:
        return handle(  # type: ignore[no-any-return]
            input, ksize=five(ksize, data_format, "ksize"), strides=five(strides, data_format, "strides"),
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
