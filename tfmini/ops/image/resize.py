"""Resizing images: ``ResizeBilinear``, ``ResizeNearestNeighbor``, ``ResizeBicubic``, ``ResizeArea``; ``Resampler``.

Each op of resizing is a weighted sum along rows and then along columns, given by one matrix per axis: the value
is ``rows @ image @ columns^T``, and the gradient uses the transposed matrices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.errors import UnimplementedError
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, op, second_shape
from tfmini.graph.node import Node
from tfmini.graph.scoping import name_scope
from tfmini.memory import check_room
from tfmini.numerics.update_rules import scatter_rows
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.shape import shape as shape_of
from tfmini.shapes import RawShape, format_raw, with_rank

_TYPES = "{int8, uint8, int16, uint16, int32, int64, half, float, double}"
_ATTRS = "\n    align_corners: bool = False\n    half_pixel_centers: bool = False"

bilinear_op = op(
    "ResizeBilinear(images: T, size: int32) -> resized_images: float\n"
    f"    T: {_TYPES.replace('half', 'bfloat16, half')}{_ATTRS}"
)
bilinear_op.gradient(lambda node, grad: [bilinear_grad_op(grad, node.inputs[0], **_attrs(node)), None])
bicubic_op = op(f"ResizeBicubic(images: T, size: int32) -> resized_images: float\n    T: {_TYPES}{_ATTRS}")


@bicubic_op.gradient
def _bicubic_gradient(node: Operation, grad: Tensor) -> list[Any]:
    image = node.inputs[0]
    known = image.dtype in (dtypes.float32, dtypes.float64)  # as in TensorFlow; other images get none
    return [bicubic_grad_op(grad, image, **_attrs(node)) if known else None, None]


nearest_op = op(f"ResizeNearestNeighbor(images: T, size: int32) -> resized_images: T\n    T: {_TYPES}{_ATTRS}")
nearest_op.gradient(lambda node, grad: [nearest_grad_op(grad, shape_of(node.inputs[0])[1:3], **_attrs(node)), None])
area_op = op(
    f"ResizeArea(images: T, size: int32) -> resized_images: float\n    T: {_TYPES}\n    align_corners: bool = False",
    differentiable=None,
)
bilinear_grad_op: OpHandle = op(
    "ResizeBilinearGrad(grads: float, original_image: T) -> output: T\n    T: {float, bfloat16, half, double}" + _ATTRS,
    shape=second_shape,
    differentiable=None,
)
bicubic_grad_op: OpHandle = op(
    "ResizeBicubicGrad(grads: float, original_image: T) -> output: T\n    T: {float, double}" + _ATTRS,
    shape=second_shape,
    differentiable=None,
)
nearest_grad_op: OpHandle = op(
    "ResizeNearestNeighborGrad(grads: T, size: int32) -> output: T\n"
    "    T: {uint8, int8, int32, half, float, double}" + _ATTRS,
    differentiable=None,
)


# ---- shapes ---------------------------------------------------------------------------------


@all_of(bilinear_op, bicubic_op, nearest_op, area_op, nearest_grad_op).shape
def _resized_shape(node: Operation) -> list[RawShape]:
    images = with_rank(node.inputs[0].raw_shape, 4)
    size = constant_value(node.inputs[1])
    rows, columns = (None, None) if size is None else (int(size[0]), int(size[1]))
    return [(images[0], rows, columns, images[3])]


# ---- weights --------------------------------------------------------------------------------

Weights = Callable[[int, int, bool, bool], np.ndarray]
# Of the sizes that were asked for last: a program resizes to few sizes.
_kept = functools.lru_cache(8)


def _places(length: int, new: int, align: bool, centers: bool) -> np.ndarray:
    """The position in the original image of each new row or column."""
    check_room((new,), 8)
    scale = (length - 1) / (new - 1) if align and new > 1 else length / new
    places = np.arange(new, dtype=np.float32)
    if centers:
        return (places + np.float32(0.5)) * np.float32(scale) - np.float32(0.5)
    return places * np.float32(scale)


def _matrix(length: int, new: int, columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    check_room((new, length), 4)
    weights = np.zeros((new, length), np.float32)
    rows = np.broadcast_to(np.arange(new)[:, None], columns.shape)
    np.add.at(weights, (rows, np.clip(columns, 0, length - 1)), values)
    return weights


@_kept
def _linear(length: int, new: int, align: bool, centers: bool) -> np.ndarray:
    places = _places(length, new, align, centers)
    low = np.floor(places)
    part = places - low
    columns = np.stack([low, low + 1], 1).astype(np.int64)
    return _matrix(length, new, columns, np.stack([1 - part, part], 1))


@_kept
def _nearest(length: int, new: int, align: bool, centers: bool) -> np.ndarray:
    places = _places(length, new, align, centers)
    chosen = np.floor(places + 0.5) if align or centers else np.floor(places)
    return _matrix(length, new, chosen.astype(np.int64)[:, None], np.ones((new, 1), np.float32))


@_kept
def _cubic(length: int, new: int, align: bool, centers: bool) -> np.ndarray:
    """Keys' kernel with a = -0.75 (-0.5 and renormalised with half-pixel centers), as TensorFlow tabulates it."""
    places = _places(length, new, align, centers)
    low = np.floor(places)
    part = np.round((places - low) * 1024) / 1024
    offsets = np.array([-1, 0, 1, 2])
    distance = np.abs(part[:, None] - offsets)
    a = -0.5 if centers else -0.75
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    values = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
    columns = (low[:, None] + offsets).astype(np.int64)
    if centers:
        values = np.where((columns >= 0) & (columns < length), values, 0.0)
        values /= values.sum(axis=1, keepdims=True)
    return _matrix(length, new, columns, values)


@_kept
def _area(length: int, new: int, align: bool, centers: bool) -> Any:
    scale = (length - 1) / (new - 1) if align and new > 1 else length / new
    starts = np.arange(new) * scale
    cells = np.arange(max(length, int(np.ceil(starts[-1] + scale))))
    overlap = np.minimum(cells + 1, (starts + scale)[:, None]) - np.maximum(cells, starts[:, None])
    shares = (np.clip(overlap, 0, None) / scale).astype(np.float32)
    # With aligned corners the last areas extend beyond the edge, whose pixels repeat there.
    shares[:, length - 1] += shares[:, length:].sum(axis=1)
    return shares[:, :length]


_METHODS: dict[str, Weights] = {"Bilinear": _linear, "Bicubic": _cubic, "Area": _area, "NearestNeighbor": _nearest}


def matrices(node: Node, old: Sequence[int], new: Sequence[int]) -> list[np.ndarray]:
    """The matrices of rows and of columns with which an op turns images of one size into another."""
    align, centers = node.attrs["align_corners"], node.attrs.get("half_pixel_centers", False)
    _refuse_both(align, centers)
    weights = _METHODS[node.op.removeprefix("Resize").removesuffix("Grad")]
    return [weights(before, after, align, centers) for before, after in zip(old, new)]


# ---- kernels --------------------------------------------------------------------------------


def _check(images: Array, size: Array) -> tuple[int, int]:
    if np.ndim(images) != 4:
        refuse(f"images must be 4-dimensional, got shape {list(np.shape(images))}")
    if np.shape(size) != (2,):
        refuse(f"shape_t must have two elements, got shape {list(np.shape(size))}")
    rows, columns = (int(v) for v in size)
    if rows <= 0 or columns <= 0:
        refuse("output dimensions must be positive")
    check_room((images.shape[0], rows, columns, images.shape[3]), 8)
    return rows, columns


def _refuse_both(align: bool, centers: bool) -> None:
    """Refuses two rules for the coordinates at once."""
    if align and centers:
        refuse("If half_pixel_centers is True, align_corners must be False.")


def _weigh(images: Array, rows: np.ndarray, columns: np.ndarray) -> Any:
    """``rows @ image @ columns^T`` for each image and channel."""
    stretched = np.tensordot(rows, images, (1, 1))  # new rows, batch, columns, channels
    return np.ascontiguousarray(np.tensordot(columns, stretched, (1, 2)).transpose(2, 1, 0, 3))


def _attach(handle: OpHandle, weights: Weights) -> None:
    @handle.kernel_factory("CPU")
    def _factory(node: Node) -> Callable[..., Any]:
        align, centers = node.attrs["align_corners"], node.attrs.get("half_pixel_centers", False)

        def resize(images: Array, size: Array) -> Any:
            _refuse_both(align, centers)
            new = _check(images, size)
            values = images.astype(np.float32, copy=False)
            if new == images.shape[1:3] and weights is not _area:
                return values
            return _weigh(values, *(weights(old, n, align, centers) for old, n in zip(images.shape[1:3], new)))

        return resize


def _attach_gradient(handle: OpHandle, weights: Weights) -> None:
    @handle.kernel_factory("CPU")
    def _factory(node: Node) -> Callable[..., Any]:
        align, centers = node.attrs["align_corners"], node.attrs["half_pixel_centers"]

        def gradient(grads: Array, original: Array) -> Any:
            _refuse_both(align, centers)
            pairs = zip(original.shape[1:3], grads.shape[1:3])
            rows, columns = (weights(old, new, align, centers) for old, new in pairs)
            return _weigh(grads, rows.T, columns.T).astype(original.dtype, copy=False)

        return gradient


_attach(bilinear_op, _linear)
_attach(bicubic_op, _cubic)
_attach(area_op, _area)
_attach_gradient(bilinear_grad_op, _linear)
_attach_gradient(bicubic_grad_op, _cubic)


@nearest_op.kernel_factory("CPU")
def _nearest_factory(node: Node) -> Callable[..., Any]:
    align, centers = node.attrs["align_corners"], node.attrs["half_pixel_centers"]

    def resize(images: Array, size: Array) -> Any:
        _refuse_both(align, centers)
        new = _check(images, size)
        rows, columns = (np.argmax(_nearest(old, n, align, centers), axis=1) for old, n in zip(images.shape[1:3], new))
        return images[:, rows[:, None], columns[None, :]]

    return resize


@nearest_grad_op.kernel_factory("CPU")
def _nearest_grad_factory(node: Node) -> Callable[..., Any]:
    align, centers = node.attrs["align_corners"], node.attrs["half_pixel_centers"]

    def gradient(grads: Array, size: Array) -> Any:
        _refuse_both(align, centers)
        old = _check(grads, size)
        wide = np.float64 if grads.dtype in (np.float64, np.int32) else np.float32  # which adds them exactly enough
        rows, columns = (_nearest(o, n, align, centers).T.astype(wide) for o, n in zip(old, grads.shape[1:3]))
        return _weigh(grads.astype(wide, copy=False), rows, columns).astype(grads.dtype, copy=False)

    return gradient


# ---- gradients ------------------------------------------------------------------------------


def _attrs(node: Operation) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("align_corners", "half_pixel_centers")}


# ---- public functions ---------------------------------------------------------------------------


def _resize(handle: OpHandle, images: TensorLike, size: TensorLike, name: str | None, **attrs: object) -> Any:
    images = convert_to_tensor(images, name="images")
    return handle(images, convert_to_tensor(size, dtype=dtypes.int32, name="size"), name=name, **attrs)


@export("tf.image.resize_bilinear")
def resize_bilinear(
    images: TensorLike, size: TensorLike, align_corners: bool = False, name: str | None = None,
    half_pixel_centers: bool = False,
) -> Any:  # fmt: skip
    """``[batch, rows, columns, channels]`` resized by linear interpolation, float32 (``tf.image.resize_bilinear``).

    Args:
      size: two ints.
      align_corners: whether the centers of the corner pixels stay at the corners.
      half_pixel_centers: whether coordinates refer to the centers of pixels.
    """
    return _resize(bilinear_op, images, size, name, align_corners=align_corners, half_pixel_centers=half_pixel_centers)


@export("tf.image.resize_bicubic")
def resize_bicubic(
    images: TensorLike, size: TensorLike, align_corners: bool = False, name: str | None = None,
    half_pixel_centers: bool = False,
) -> Any:  # fmt: skip
    """`resize_bilinear` by cubic interpolation (``tf.image.resize_bicubic``)."""
    return _resize(bicubic_op, images, size, name, align_corners=align_corners, half_pixel_centers=half_pixel_centers)


@export("tf.image.resize_nearest_neighbor")
def resize_nearest_neighbor(
    images: TensorLike, size: TensorLike, align_corners: bool = False, name: str | None = None,
    half_pixel_centers: bool = False,
) -> Any:  # fmt: skip
    """`resize_bilinear` by the nearest pixel, of the images' type (``tf.image.resize_nearest_neighbor``)."""
    return _resize(nearest_op, images, size, name, align_corners=align_corners, half_pixel_centers=half_pixel_centers)


@export("tf.image.resize_area")
def resize_area(images: TensorLike, size: TensorLike, align_corners: bool = False, name: str | None = None) -> Any:
    """`resize_bilinear` by the mean of the area that a new pixel covers (``tf.image.resize_area``)."""
    return _resize(area_op, images, size, name, align_corners=align_corners)


# ---- the values of an image at any places (``tf.contrib.resampler``) -------------------------------------------------

_RESAMPLED = "T: {half, float, double}"
resampler_op = op(f"Resampler(data: T, warp: T) -> output: T\n    {_RESAMPLED}")
resampler_grad_op = op(
    f"ResamplerGrad(data: T, warp: T, grad_output: T) -> grad_data: T, grad_warp: T\n    {_RESAMPLED}",
    differentiable=None,
)
resampler_op.gradient(lambda node, grad: list(resampler_grad_op(*node.inputs, grad)))


@resampler_op.shape
def _resampler_shape(node: Operation) -> list[RawShape]:
    data, warp = (t.raw_shape for t in node.inputs)
    if warp is None:
        return [None]
    return [(*warp[:-1], with_rank(data, 4)[3] if data is None or len(data) == 4 else None)]


@resampler_grad_op.shape
def _resampler_grad_shape(node: Operation) -> list[RawShape]:
    return [t.raw_shape for t in node.inputs[:2]]


class _Neighbours:
    """The four elements of an image around each place, and their parts of its value; those outside of it are 0.

    Attributes:
      batch: [places], the image of each place.
      dx, dy: [places, 1], how near a place is to the left and upper neighbours: 1 on them.
    """

    def __init__(self, data: Array, warp: Array) -> None:
        sizes = [f"[{','.join(map(str, array.shape))}]" for array in (data, warp)]
        if data.ndim != 4:
            _refuse_places(f"[batch_size, data_height, data_width, data_channels] of the data, but is: {sizes[0]}")
        if warp.ndim < 2:
            refuse(f"warp should be at least a matrix, got shape {sizes[1]}")
        if warp.shape[-1] != 2:
            _refuse_places(f"2 at the end of the coordinates (warp), but is: {sizes[1]}")
        if data.shape[0] != warp.shape[0]:
            refuse(f"Batch size of data and warp tensor must be the same, but input shapes are: {', '.join(sizes)}")
        count, height, width, channels = data.shape
        self._sizes, self._rows = (height, width), data.reshape(-1, channels)
        flat = warp.reshape(-1, 2)
        self.batch = np.repeat(np.arange(count), len(flat) // max(count, 1))
        x, y = flat[:, 0], flat[:, 1]
        with np.errstate(invalid="ignore"):  # NaN is outside
            used = (x > -1) & (y > -1) & (x < width) & (y < height)
        x, y = np.where(used, x, -1), np.where(used, y, -1)
        left, upper = np.floor(x), np.floor(y)
        self.dx, self.dy = (left + 1 - x)[:, None], (upper + 1 - y)[:, None]
        self._left, self._upper, self._used = left.astype(np.int64), upper.astype(np.int64), used

    def corner(self, right: int, lower: int) -> tuple[Array, Array]:
        """The rows (of the images, one behind the other) of one neighbour, and which places have it."""
        height, width = self._sizes
        x, y = self._left + right, self._upper + lower
        there = self._used & (x >= 0) & (x < width) & (y >= 0) & (y < height)
        return np.where(there, (self.batch * height + y) * width + x, 0), there

    def values(self, right: int, lower: int) -> Any:
        """The elements of one neighbour, [places, channels]."""
        rows, there = self.corner(right, lower)
        found = np.zeros((len(rows), self._rows.shape[1]), self._rows.dtype)
        found[there] = self._rows[rows[there]]
        return found

    def part(self, right: int, lower: int) -> Any:
        """What one neighbour counts in the value of each place, [places, 1]."""
        return (1 - self.dx if right else self.dx) * (1 - self.dy if lower else self.dy)


_CORNERS = ((0, 0), (1, 0), (0, 1), (1, 1))


def _refuse_places(why: str) -> NoReturn:
    raise UnimplementedError.of(f"Only bilinear interpolation is supported. The shape must be {why}")


@resampler_op.kernel("CPU")
def _resampler_kernel(data: Array, warp: Array) -> Any:
    around = _Neighbours(data, warp)
    check_room((*warp.shape[:-1], data.shape[3]), 4 * data.dtype.itemsize)
    found: Array = sum(around.part(*corner) * around.values(*corner) for corner in _CORNERS)
    return found.astype(data.dtype, copy=False).reshape(*warp.shape[:-1], data.shape[3])


@resampler_grad_op.kernel("CPU")
def _resampler_grad_kernel(data: Array, warp: Array, grad_output: Array) -> tuple[Any, Any]:
    around = _Neighbours(data, warp)
    if grad_output.shape != (*warp.shape[:-1], data.shape[3]):
        refuse(f"grad_output shape is not consistent with data and warp shapes: {format_raw(grad_output.shape)}")
    grad, of_data = grad_output.reshape(-1, data.shape[3]), np.zeros_like(data)
    for corner in _CORNERS:
        rows, there = around.corner(*corner)
        updates = (around.part(*corner) * grad)[there].astype(data.dtype, copy=False)
        scatter_rows("add", of_data.reshape(-1, data.shape[3]), rows[there], updates)
    across = around.dy * (around.values(1, 0) - around.values(0, 0))
    across = across + (1 - around.dy) * (around.values(1, 1) - around.values(0, 1))
    down = around.dx * (around.values(0, 1) - around.values(0, 0))
    down = down + (1 - around.dx) * (around.values(1, 1) - around.values(1, 0))
    of_warp = np.stack([(grad * across).sum(1), (grad * down).sum(1)], 1)
    return of_data, of_warp.astype(warp.dtype, copy=False).reshape(warp.shape)


@export("tf.contrib.resampler.resampler")
def resampler(data: TensorLike, warp: TensorLike, name: str | None = "resampler") -> Tensor:
    """The values of images at any places, between their four neighbours (``tf.contrib.resampler.resampler``).

    Args:
      data: (batch, height, width, channels), of a floating type; around it is 0.
      warp: (batch, ..., 2), the column and the row of each place, of the type of ``data``.

    Returns:
      (batch, ..., channels). It has gradients for both.

    Raises:
      UnimplementedError, InvalidArgumentError: when it runs, for other shapes.
    """
    with name_scope(name, "resampler", [data, warp]):
        made: Tensor = resampler_op(convert_to_tensor(data, name="data"), convert_to_tensor(warp, name="warp"))
        return made
