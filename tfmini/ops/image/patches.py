"""``tf.extract_image_patches``: each window of an image as a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import op
from tfmini.ops.array_shape import shape as shape_of
from tfmini.ops.array_values import refuse
from tfmini.ops.constant_value import constant_value_as_shape
from tfmini.ops.nn_arguments import either
from tfmini.ops.nn_windows import Array, Axis, output_size, padded, patches, window_axis
from tfmini.shapes import RawShape, with_rank

_ATTRS = (
    "ksizes: list(int) >= 4; strides: list(int) >= 4; rates: list(int) >= 4;"
    " padding: {'SAME', 'VALID'}; T: realnumbertype"
)
extract_op = op("ExtractImagePatches(images: T) -> patches: T; " + _ATTRS)
# The transpose of the extraction has no op of TensorFlow's own: it builds it of sparse products.
place_op = op("_PlaceImagePatches(sizes: int32, patches: T) -> images: T; " + _ATTRS)


@extract_op.shape
def _extract_shape(node: Operation) -> list[RawShape]:
    image = with_rank(node._inputs[0]._shape, 4)
    windows = node.attrs["ksizes"]
    for name in ("ksizes", "strides", "rates"):
        values = node.attrs[name]
        if len(values) != 4:
            raise ValueError(
                f"ExtractImagePatches requires the {name} attribute to contain 4 values, but got: {len(values)}"
            )
        if values[0] != 1 or values[3] != 1:
            raise ValueError(
                f"Current implementation does not support {name[:-1]} in the batch and depth dimensions."
            )
    rows, columns = (
        output_size(image[i], windows[i], node.attrs["strides"][i], node.attrs["rates"][i], node.attrs["padding"])
        for i in (1, 2)
    )
    depth = None if image[3] is None else image[3] * windows[1] * windows[2]
    return [(image[0], rows, columns, depth)]


@place_op.shape
def _place_shape(node: Operation) -> list[RawShape]:
    return [with_rank(constant_value_as_shape(node._inputs[0]), 4)]


def _axes(node: Any, sizes: Any) -> tuple[Axis, Axis]:
    attrs = node.attrs
    try:
        rows, columns = (
            window_axis(int(sizes[i]), attrs["ksizes"][i], attrs["strides"][i], attrs["rates"][i], attrs["padding"])
            for i in (1, 2)
        )
    except ValueError as error:
        refuse(str(error))
    return rows, columns


@extract_op.kernel_factory("CPU")
def _extract_factory(node: Any) -> Callable[[Array], Array]:
    def extract(image: Array) -> Array:
        rows, columns = _axes(node, image.shape)
        found = patches(padded(np.ascontiguousarray(image), rows, columns), rows, columns)
        return np.array(found).reshape(image.shape[0], rows.out, columns.out, -1)

    return extract


@place_op.kernel_factory("CPU")
def _place_factory(node: Any) -> Callable[[Array, Array], Array]:
    def place(sizes: Array, values: Array) -> Array:
        rows, columns = _axes(node, sizes)
        batch, height, width, channels = (int(n) for n in sizes)
        values = values.reshape(batch, rows.out, columns.out, rows.window, columns.window, channels)
        total = np.zeros((batch, rows.before + height + rows.after, columns.before + width + columns.after, channels),
                         values.dtype)  # fmt: skip
        for i in range(rows.window):
            for j in range(columns.window):
                total[:, rows.offsets(i), columns.offsets(j)] += values[:, :, :, i, j]
        return total[:, rows.before : rows.before + height, columns.before : columns.before + width]

    return place


def _attrs(node: Operation) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("ksizes", "strides", "rates", "padding")}


@extract_op.gradient
def _extract_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [place_op(shape_of(node._inputs[0]), grad, name="PlaceImagePatches", **_attrs(node))]


@place_op.gradient
def _place_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return [None, extract_op(grad, **_attrs(node))]


def extract_image_patches(
    images: Any, ksizes: Any = None, strides: Any = None, rates: Any = None, padding: Any = None,
    name: str | None = None, sizes: Any = None,
) -> Tensor:  # fmt: skip
    """The windows of images [batch, rows, columns, channels] as vectors (``tf.extract_image_patches``).

    Args:
      ksizes: the window, ``[1, rows, columns, 1]``.
      strides: how far apart windows begin, in the same form.
      rates: how far apart a window's pixels are, in the same form.
      padding: "SAME" or "VALID".

    Returns:
      [batch, out rows, out columns, window rows * window columns * channels].
    """
    return extract_op(  # type: ignore[no-any-return]
        images, ksizes=either("sizes", sizes, "ksizes", ksizes), strides=strides, rates=rates, padding=padding,
        name=name,
    )  # fmt: skip


def extract_patches(
    images: Any, sizes: Any, strides: Any, rates: Any, padding: str, name: str | None = None
) -> Tensor:
    """`extract_image_patches` (``tf.image.extract_patches``)."""
    return extract_image_patches(images, sizes, strides, rates, padding, name)
