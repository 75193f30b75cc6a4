"""Resizing images: ``ResizeBilinear`` and its kin, ``ScaleAndTranslate``, ``Resampler``; ``tf.image.resize_images``.

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
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.identity import cast
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.shape import expand_dims, squeeze
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


scale_and_translate_op: OpHandle = op(
    "ScaleAndTranslate(images: T, size: int32, scale: float, translation: float) -> resized_images: float\n"
    f"    T: {_TYPES.replace('half', 'bfloat16, half')}\n"
    '    kernel_type: string = "lanczos3"\n    antialias: bool = true'
)
scale_and_translate_grad_op: OpHandle = op(
    "ScaleAndTranslateGrad(grads: T, original_image: T, scale: float, translation: float) -> output: T\n"
    '    T: {float}\n    kernel_type: string = "lanczos3"\n    antialias: bool = true',
    shape=second_shape,
    differentiable=None,
)


@scale_and_translate_op.gradient
def _scaled_gradient(node: Operation, grad: Tensor) -> list[Any]:
    attrs = {name: node.attrs[name] for name in ("kernel_type", "antialias")}
    image, _, scale, translation = node.inputs
    return [scale_and_translate_grad_op(grad, image, scale, translation, **attrs), None, None, None]


# ---- shapes ---------------------------------------------------------------------------------


@all_of(bilinear_op, bicubic_op, nearest_op, area_op, nearest_grad_op, scale_and_translate_op).shape
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


# ---- filters of any width: ``ScaleAndTranslate`` -------------------------------------------------------------------


def _lanczos(radius: float, x: Array) -> Any:
    near = np.pi * np.maximum(x, np.float32(1e-3))
    values = radius * np.sin(near) * np.sin(near / radius) / (near * near)
    return np.where(x <= np.float32(1e-3), 1, np.where(x > radius, 0, values))


def _polynomial(x: Array, inner: Sequence[float], outer: Sequence[float]) -> Any:
    return np.where(x >= 2, 0, np.where(x >= 1, np.polyval(outer, x), np.polyval(inner, x)))


# Name -> radius, and the weight of a pixel at a distance from the place.
_FILTERS: dict[str, tuple[float, Callable[[Array], Any]]] = {
    **{f"lanczos{radius}": (radius, functools.partial(_lanczos, float(radius))) for radius in (1, 3, 5)},
    "gaussian": (1.5, lambda x: np.where(x >= 1.5, 0, np.exp(-2 * x * x))),
    "box": (0.5, lambda x: np.where(x < 0.5, 1, np.where(x == 0.5, 0.5, 0))),
    "triangle": (1, lambda x: np.maximum(1 - x, 0)),
    "keyscubic": (2, lambda x: _polynomial(x, (1.5, -2.5, 0, 1), (-0.5, 2.5, -4, 2))),
    "mitchellcubic": (2, lambda x: _polynomial(x, (7 / 6, -2, 0, 8 / 9), (-7 / 18, 2, -10 / 3, 16 / 9))),
}


def _filter_matrix(node: Node, length: int, new: int, scale: Any, translation: Any) -> Any:
    """The weight of each old row, or column, in each new one; a new one beyond the image is zeros."""
    kernel = node.attrs["kernel_type"].decode()
    if kernel not in _FILTERS:
        refuse(f"Unrecognized kernel type: {kernel}")
    if not scale > 0:
        refuse("Scale must be greater than zero.")
    check_room((new, length), 32)  # the matrix, and what it is made of
    radius, weigh = _FILTERS[kernel]
    step = np.float32(1) / np.float32(scale)
    width = max(step, np.float32(1)) if node.attrs["antialias"] else np.float32(1)
    places = (np.arange(new, dtype=np.float32) + np.float32(0.5)) * step - step * np.float32(translation)
    first = np.clip(np.ceil(places - radius * width - np.float32(0.5)), 0, length - 1)
    last = np.clip(np.floor(places + radius * width - np.float32(0.5)), 0, length - 1)
    first[(places < 0) | (places > length)] = length
    numbers = np.arange(length, dtype=np.float32)
    inside = (numbers >= first[:, None]) & (numbers <= last[:, None])
    distances = np.abs((numbers + np.float32(0.5) - places[:, None]) / width)
    weights = np.where(inside, weigh(distances), 0).astype(np.float32)
    totals = weights.sum(1, keepdims=True)
    return weights / np.where(np.abs(totals) < 1000 * np.finfo(np.float32).tiny, np.inf, totals)


def _filter_matrices(node: Node, old: Sequence[int], new: Sequence[int], scale: Array, translation: Array) -> list[Any]:
    for what, value in (("scale", scale), ("translation", translation)):
        if np.shape(value) != (2,):
            refuse(f"{what} must be a vector of two numbers, got shape {list(np.shape(value))}")
    return [_filter_matrix(node, *sizes) for sizes in zip(old, new, scale, translation)]


@scale_and_translate_op.kernel_factory("CPU")
def _filter_factory(node: Node) -> Callable[..., Any]:
    def resize(images: Array, size: Array, scale: Array, translation: Array) -> Any:
        new = _check(images, size)
        return _weigh(
            images.astype(np.float32, copy=False), *_filter_matrices(node, images.shape[1:3], new, scale, translation)
        )

    return resize


@scale_and_translate_grad_op.kernel_factory("CPU")
def _filter_grad_factory(node: Node) -> Callable[..., Any]:
    def gradient(grads: Array, original: Array, scale: Array, translation: Array) -> Any:
        if np.ndim(grads) != 4 or np.ndim(original) != 4:
            refuse("grads and original_image must be 4-dimensional")
        rows, columns = _filter_matrices(node, original.shape[1:3], grads.shape[1:3], scale, translation)
        return _weigh(grads, rows.T, columns.T)

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


# ---- an image, or a batch of images, by any method ------------------------------------------------------------------

INTS = (int, np.integer)


@export("tf.image.ResizeMethod")
class ResizeMethod:
    """How `resize_images` interpolates (``tf.image.ResizeMethod``)."""

    BILINEAR = 0
    NEAREST_NEIGHBOR = 1
    BICUBIC = 2
    AREA = 3


def batched(image: TensorLike, unknown_is_one: bool = False) -> tuple[Any, bool]:
    """The image as a batch, and whether it was one image.

    Args:
      unknown_is_one: whether one of unknown rank is one image, as where TensorFlow takes it for one.

    Raises:
      ValueError: for another rank than 3 or 4.
    """
    image = convert_to_tensor(image, name="image")
    if image.shape.ndims == 3:
        return expand_dims(image, 0), True
    if image.shape.ndims is None and unknown_is_one:
        batch = expand_dims(image, 0)
        batch.set_shape([None] * 4)
        return batch, True
    if image.shape.ndims in (4, None):
        return image, False
    raise ValueError("'image' must have either 3 or 4 dimensions.")


def unbatched(image: TensorLike, single: bool) -> Any:
    return squeeze(image, [0]) if single else image


def size_of(image: Any) -> tuple[Any, Any]:
    """Rows and columns of a batch: ints where they are known, scalars otherwise."""
    known, sizes = image.shape.as_list(), shape_of(image)
    rows, columns = (sizes[i] if known[i] is None else known[i] for i in (1, 2))
    return rows, columns


@export("tf.image.resize", "tf.image.resize_images")
def resize_images(
    images: Any,
    size: TensorLike,
    method: int = ResizeMethod.BILINEAR,
    align_corners: bool = False,
    preserve_aspect_ratio: bool = False,
    name: str | None = None,
) -> Any:
    """Resizes an image or a batch (``tf.image.resize_images``): float32, but for equal sizes and nearest pixels.

    Args:
      size: the new (rows, columns), ints or an int32 tensor.
      method: one of `ResizeMethod`, or its name in lower case.
      align_corners: whether the centers of the corner pixels stay at the corners.
      preserve_aspect_ratio: make the largest image of the same proportions that fits.

    Raises:
      ValueError: for another method, or images of another rank.
    """
    functions = {
        0: resize_bilinear, "bilinear": resize_bilinear, 1: resize_nearest_neighbor, "nearest": resize_nearest_neighbor,
        2: resize_bicubic, "bicubic": resize_bicubic, 3: resize_area, "area": resize_area,
    }  # fmt: skip
    if method not in functions:
        raise ValueError("Resize method is not implemented.")
    resizer = functools.partial(functions[method], align_corners=align_corners)
    return _resized(images, size, resizer, preserve_aspect_ratio, name, keeps_equal=True)


@export("tf.compat.v2.image.ResizeMethod")
class ResizeMethodV2:
    """How `resize_images_v2` interpolates (``tf.compat.v2.image.ResizeMethod``)."""

    BILINEAR, NEAREST_NEIGHBOR, BICUBIC, AREA = "bilinear", "nearest", "bicubic", "area"
    LANCZOS3, LANCZOS5, GAUSSIAN, MITCHELLCUBIC = "lanczos3", "lanczos5", "gaussian", "mitchellcubic"


_PLAIN: dict[str, Callable[..., Any]] = {
    "bilinear": functools.partial(resize_bilinear, half_pixel_centers=True),
    "bicubic": functools.partial(resize_bicubic, half_pixel_centers=True),
    "nearest": functools.partial(resize_nearest_neighbor, half_pixel_centers=True),
    "area": resize_area,
}
_SMOOTH = {"bilinear": "triangle", "bicubic": "keyscubic"}  # the kernels of those that have another way, too


@export("tf.compat.v2.image.resize")
def resize_images_v2(
    images: TensorLike, size: TensorLike, method: str = ResizeMethodV2.BILINEAR, preserve_aspect_ratio: bool = False,
    antialias: bool = False, name: str | None = None,
) -> Any:  # fmt: skip
    """Resizes an image or a batch (``tf.compat.v2.image.resize``): float32, but for nearest pixels.

    Pixels have their centers at halves, other than in `resize_images`.

    Args:
      size: the new (rows, columns), ints or an int32 tensor.
      method: one of `ResizeMethodV2`.
      preserve_aspect_ratio: make the largest image of the same proportions that fits.
      antialias: whether the filter becomes wider where the image becomes smaller; "nearest" and "area" have none.

    Raises:
      ValueError: for another method, or images of another rank.
    """
    plain = _PLAIN.get(method)
    if plain is None and method not in ("lanczos3", "lanczos5", "gaussian", "mitchellcubic"):
        raise ValueError("Resize method is not implemented.")

    def filtered(images: Tensor, size: TensorLike) -> Any:
        size = convert_to_tensor(size, dtype=dtypes.int32)
        scale = cast(size, dtypes.float32) / cast(shape_of(images)[1:3], dtypes.float32)
        kernel = _SMOOTH.get(method, method)
        return scale_and_translate_op(images, size, scale, zeros([2]), kernel_type=kernel, antialias=antialias)

    uses_filter = plain is None or antialias and method in _SMOOTH
    resizer = filtered if uses_filter or plain is None else plain
    return _resized(images, size, resizer, preserve_aspect_ratio, name, keeps_equal=False)


def _resized(
    images: TensorLike, size: Any, resizer: Callable[..., Any], preserves: bool, name: str | None, *, keeps_equal: bool
) -> Any:
    """A batch, or one image, through ``resizer(batch, size)``; with ``keeps_equal`` not if it has that size."""
    with name_scope(name, "resize", [images, size]):
        batch, single = batched(images)
        is_known = isinstance(size, (list, tuple)) and not any(isinstance(v, Tensor) for v in size)
        size = [getattr(v, "value", v) for v in size] if is_known else size
        wanted: Any = size if is_known else constant_value(convert_to_tensor(size))
        if wanted is not None and np.shape(wanted) != (2,):
            raise ValueError("'size' must be a 1-D Tensor of 2 elements: new_height, new_width")
        if is_known and not all(np.asarray(v).dtype.kind in "iu" for v in wanted):
            raise ValueError("'size' must be a 1-D int32 Tensor")
        if preserves:
            if wanted is None:
                raise ValueError("preserve_aspect_ratio needs a size that is known when the graph is built.")
            size = wanted = _within(batch, [int(v) for v in wanted])
        if keeps_equal and wanted is not None and batch.shape.as_list()[1:3] == [int(v) for v in wanted]:
            return unbatched(batch, single)
        return unbatched(resizer(batch, size), single)


def _within(images: Any, size: list[int]) -> list[int]:
    known = images.shape.as_list()[1:3]
    if None in known:
        raise ValueError("preserve_aspect_ratio needs images whose size is known when the graph is built.")
    scale = min(size[0] / known[0], size[1] / known[1])
    return [round(scale * length) for length in known]


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
