"""Max pooling that also returns the position of each maximum (``tf.nn.max_pool_with_argmax``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.deprecated_arguments import either
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, op
from tfmini.numerics.windows import Array, padded
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.nn.window_attrs import Windows, check_lengths
from tfmini.shapes import RawShape, with_rank

_ATTRS = (
    "; ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'};"
    " include_batch_in_index: bool = false; Targmax: {int32, int64}"
)
argmax_op: OpHandle[Any] = op(
    "MaxPoolWithArgmax(input: T) -> output: T, argmax: Targmax" + _ATTRS + " = DT_INT64; T: realnumbertype"
)
argmax_op.gradient(lambda node, grad, _: [argmax_grad_op(node.inputs[0], grad, node.outputs[1], **_attrs(node))])
argmax_grad_op: OpHandle = op(
    "MaxPoolGradWithArgmax(input: T, grad: T, argmax: Targmax) -> output: T" + _ATTRS + "; T: realnumbertype"
)
argmax_grad_op.shape(lambda node: [with_rank(node.inputs[0].raw_shape, 4)])
argmax_grad_op.gradient(
    lambda node, grad: [None, argmax_grad_grad_op(node.inputs[0], grad, node.inputs[2], **_attrs(node)), None]
)
argmax_grad_grad_op: OpHandle = op(
    "MaxPoolGradGradWithArgmax(input: T, grad: T, argmax: Targmax) -> output: T" + _ATTRS + "; T: realnumbertype"
)
argmax_grad_grad_op.shape(lambda node: [with_rank(node.inputs[2].raw_shape, 4)])
argmax_grad_grad_op.gradient(
    lambda node, grad: [None, argmax_grad_op(node.inputs[0], grad, node.inputs[2], **_attrs(node)), None]
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
def _argmax_factory(node: Any) -> Callable[[Array], tuple[Array, Array]]:
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


def _flat_places(node: Any, places: Array, image: Array) -> Array:
    """Positions in the whole batch, checked."""
    if image.ndim != 4 or places.ndim != 4 or len(places) != len(image):
        refuse(f"Expected 4-dimensional images and positions, got {list(image.shape)} and {list(places.shape)}")
    if not node.attrs["include_batch_in_index"]:
        places = (
            places
            + (np.arange(len(image), dtype=places.dtype) * (image.size // max(len(image), 1)))[:, None, None, None]
        )
    if places.size and (places.min() < 0 or places.max() >= image.size):
        refuse(f"Invalid argmax: positions must be in [0, {image.size})")
    return places


@argmax_grad_op.kernel_factory("CPU")
def _argmax_grad_factory(node: Any) -> Callable[[Array, Array, Array], Array]:
    def spread(image: Array, grad: Array, places: Array) -> Array:
        if grad.shape != places.shape:
            refuse(f"Expected grad shape to be {list(places.shape)}, but got {list(grad.shape)}")
        total = np.zeros(image.size, grad.dtype)
        np.add.at(total, _flat_places(node, places, image).ravel(), grad.ravel())
        return total.reshape(image.shape)

    return spread


@argmax_grad_grad_op.kernel_factory("CPU")
def _argmax_grad_grad_factory(node: Any) -> Callable[[Array, Array, Array], Array]:
    def collect(image: Array, grad: Array, places: Array) -> Array:
        if grad.shape != image.shape:
            refuse(f"Expected grad shape to be {list(image.shape)}, but got {list(grad.shape)}")
        return grad.ravel()[_flat_places(node, places, image)]

    return collect


def _attrs(node: Operation) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("ksize", "strides", "padding", "include_batch_in_index")}


@export("tf.nn.max_pool_with_argmax")
def max_pool_with_argmax(
    input: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NHWC", Targmax: Any = None,
    name: str | None = None, output_dtype: Any = None, include_batch_in_index: bool = False,
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
