"""``tf.extract_image_patches``: each window of an image as a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.deprecated_arguments import either
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, op
from tfmini.machine_memory import check_room
from tfmini.numerics.windows import Array, padded, patches
from tfmini.ops.array.constant_value import constant_value_as_shape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.nn.window_attrs import Windows, check_lengths
from tfmini.shapes import RawShape, with_rank

_ATTRS = (
    "ksizes: list(int) >= 4; strides: list(int) >= 4; rates: list(int) >= 4;"
    " padding: {'SAME', 'VALID'}; T: realnumbertype"
)
extract_op = op("ExtractImagePatches(images: T) -> patches: T; " + _ATTRS)
extract_op.gradient(
    lambda node, grad: [place_op(shape_of(node.inputs[0]), grad, name="PlaceImagePatches", **_attrs(node))]
)
# TensorFlow has no op for the transpose of the extraction; it builds the gradient of sparse products.
place_op: OpHandle = op("_PlaceImagePatches(sizes: int32, patches: T) -> images: T; " + _ATTRS)
place_op.shape(lambda node: [with_rank(constant_value_as_shape(node.inputs[0]), 4)])
place_op.gradient(lambda node, grad: [None, extract_op(grad, **_attrs(node))])


@extract_op.shape
def _extract_shape(node: Operation) -> list[RawShape]:
    image = with_rank(node.inputs[0].raw_shape, 4)
    window = node.attrs["ksizes"]
    for name in ("ksizes", "strides", "rates"):
        values = node.attrs[name]
        check_lengths(node.type, 4, **{name: values})
        if values[0] != 1 or values[3] != 1:
            raise ValueError(f"Current implementation does not support {name[:-1]} in the batch and depth dimensions.")
    depth = None if image[3] is None else image[3] * window[1] * window[2]
    return [(image[0], *Windows(node.attrs, "rates").out_sizes(image[1:3], window[1:3]), depth)]


@extract_op.kernel_factory("CPU")
def _extract_factory(node: Any) -> Callable[[Array], Array]:
    windows, ksizes = Windows(node.attrs, "rates"), tuple(node.attrs["ksizes"][1:3])

    def extract(image: Array) -> Array:
        axes = windows.axes(image.shape[1:3], ksizes)
        found = patches(padded(np.ascontiguousarray(image), axes), axes)
        return np.array(found).reshape(*found.shape[:3], -1)

    return extract


@place_op.kernel_factory("CPU")
def _place_factory(node: Any) -> Callable[[Array, Array], Array]:
    windows, ksizes = Windows(node.attrs, "rates"), tuple(node.attrs["ksizes"][1:3])

    def place(sizes: Array, values: Array) -> Array:
        batch, *space, channels = sizes.tolist()
        axes = windows.axes(tuple(space), ksizes)
        values = values.reshape(*values.shape[:3], *ksizes, channels)
        check_room((batch, *axes.full, channels), values.itemsize)
        total = np.zeros((batch, *axes.full, channels), values.dtype)
        for (i, j), where in axes.elements():
            total[where] += values[:, :, :, i, j]
        return total[axes.inner]

    return place


def _attrs(node: Operation) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("ksizes", "strides", "rates", "padding")}


@export("tf.extract_image_patches", "tf.image.extract_image_patches")
def extract_image_patches(
    images: Any, ksizes: Any = None, strides: Any = None, rates: Any = None, padding: Any = None,
    name: str | None = None, sizes: Any = None,
) -> Tensor:  # fmt: skip
    """The windows of images [batch, rows, columns, channels] as vectors (``tf.extract_image_patches``).

    Args:
      ksizes: the window, ``[1, rows, columns, 1]``.
      strides: the distances between the beginnings of windows, in the same form.
      rates: the distances between the pixels of a window, in the same form.
      padding: "SAME" or "VALID".

    Returns:
      [batch, out rows, out columns, window rows * window columns * channels].
    """
    return extract_op(
        images, ksizes=either("sizes", sizes, "ksizes", ksizes), strides=strides, rates=rates, padding=padding,
        name=name,
    )  # fmt: skip


@export("tf.image.extract_patches")
def extract_patches(images: Any, sizes: Any, strides: Any, rates: Any, padding: str, name: str | None = None) -> Tensor:
    """`extract_image_patches` (``tf.image.extract_patches``)."""
    return extract_image_patches(images, sizes, strides, rates, padding, name)
