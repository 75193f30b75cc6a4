"""``tf.image``: resizing, cropping, padding, flipping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tfmini.core_types import Array, TensorLike
from tfmini.export import either, export
from tfmini.graph.families import Operation, OpHandle, Tensor, convert_to_tensor, name_scope, op
from tfmini.graph.node import Node
from tfmini.graph.scoping import count_ops
from tfmini.memory import check_room
from tfmini.numerics.windows import padded, patches
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.layout import pad, reverse, transpose
from tfmini.ops.array.shape import expand_dims, squeeze
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.slicing import slice as slice_of
from tfmini.ops.flow.cond import smart_cond
from tfmini.ops.flow.functional import switch_case
from tfmini.ops.image.resize import resize_area, resize_bicubic, resize_bilinear, resize_nearest_neighbor
from tfmini.ops.math.comparison import greater, less, where
from tfmini.ops.math.elementwise import maximum, minimum
from tfmini.ops.nn.windows import Windows, check_lengths
from tfmini.ops.random_functions import random_uniform
from tfmini.shapes import RawShape, merge_dims, merge_raw, with_rank

_INTS = (int, np.integer)


@export("tf.image.ResizeMethod")
class ResizeMethod:
    """How `resize_images` interpolates (``tf.image.ResizeMethod``)."""

    BILINEAR = 0
    NEAREST_NEIGHBOR = 1
    BICUBIC = 2
    AREA = 3


def _batched(image: TensorLike) -> tuple[Any, bool]:
    """The image as a batch, and whether it was one image.

    Raises:
      ValueError: for another rank than 3 or 4.
    """
    image = convert_to_tensor(image, name="image")
    if image.shape.ndims == 3:
        return expand_dims(image, 0), True
    if image.shape.ndims in (4, None):
        return image, False
    raise ValueError("'image' must have either 3 or 4 dimensions.")


def _unbatched(image: TensorLike, single: bool) -> Any:
    return squeeze(image, [0]) if single else image


def _size(image: Any) -> tuple[Any, Any]:
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
    with name_scope(name, "resize", [images, size]):
        images, single = _batched(images)
        wanted = constant_value(convert_to_tensor(size)) if not isinstance(size, (list, tuple)) else size
        if preserve_aspect_ratio:
            if wanted is None:
                raise ValueError("preserve_aspect_ratio needs a size that is known when the graph is built.")
            size = wanted = _within(images, [int(v) for v in wanted])
        known = images.shape.as_list()[1:3]
        if (
            wanted is not None
            and all(isinstance(v, _INTS) or v.dtype.kind in "iu" for v in wanted if v is not None)
            and (known == [int(v) for v in wanted])
        ):
            return _unbatched(images, single)
        return _unbatched(functions[method](images, size, align_corners=align_corners), single)


def _within(images: Any, size: list[int]) -> list[int]:
    known = images.shape.as_list()[1:3]
    if None in known:
        raise ValueError("preserve_aspect_ratio needs images whose size is known when the graph is built.")
    scale = min(size[0] / known[0], size[1] / known[1])
    return [round(scale * length) for length in known]


@export("tf.image.crop_to_bounding_box")
def crop_to_bounding_box(
    image: Any, offset_height: TensorLike, offset_width: TensorLike, target_height: TensorLike, target_width: TensorLike
) -> Any:
    """The part of each image with the given corner and size (``tf.image.crop_to_bounding_box``).

    Raises:
      ValueError: when static sizes show that it is not inside the image.
    """
    with name_scope(None, "crop_to_bounding_box", [image]):
        image, single = _batched(image)
        rows, columns = _size(image)
        for what, start, length, limit in (
            ("height", offset_height, target_height, rows), ("width", offset_width, target_width, columns),
        ):  # fmt: skip
            _check_inside(what, start, length, limit)
        cropped = slice_of(image, [0, offset_height, offset_width, 0], [-1, target_height, target_width, -1])
        sizes = [v if isinstance(v, _INTS) else None for v in (target_height, target_width)]
        cropped.set_shape([image.shape.as_list()[0], *sizes, image.shape.as_list()[3]])
        return _unbatched(cropped, single)


def _check_inside(what: str, start: object, length: Any, limit: Any) -> None:
    if isinstance(start, _INTS) and start < 0:
        raise ValueError(f"offset_{what} must be >= 0.")
    if isinstance(length, _INTS) and length <= 0:
        raise ValueError(f"target_{what} must be > 0.")
    if all(isinstance(v, _INTS) for v in (start, length, limit)) and start + length > limit:
        raise ValueError(f"{what} must be >= target + offset.")


@export("tf.image.pad_to_bounding_box")
def pad_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Any:
    """Pads each image with zeros to a given size, with the image at an offset (``tf.image.pad_to_bounding_box``).

    Raises:
      ValueError: when static sizes show that it does not fit.
    """
    with name_scope(None, "pad_to_bounding_box", [image]):
        image, single = _batched(image)
        rows, columns = _size(image)
        below, right = target_height - offset_height - rows, target_width - offset_width - columns
        for what, value in (("height", below), ("width", right)):
            if isinstance(value, _INTS) and value < 0:
                raise ValueError(f"{what} must be <= target - offset")
        padded = pad(image, [[0, 0], [offset_height, below], [offset_width, right], [0, 0]])
        sizes = [v if isinstance(v, _INTS) else None for v in (target_height, target_width)]
        padded.set_shape([image.shape.as_list()[0], *sizes, image.shape.as_list()[3]])
        return _unbatched(padded, single)


def _least(a: TensorLike, b: TensorLike) -> Any:
    return min(a, b) if isinstance(a, _INTS) and isinstance(b, _INTS) else minimum(a, b)


def _half_excess(a: Any, b: Any) -> Any:
    """Half of ``max(a - b, 0)``."""
    return max(a - b, 0) // 2 if isinstance(a, _INTS) and isinstance(b, _INTS) else maximum(a - b, 0) // 2


@export("tf.image.resize_image_with_crop_or_pad", "tf.image.resize_with_crop_or_pad")
def resize_image_with_crop_or_pad(image: TensorLike, target_height: TensorLike, target_width: TensorLike) -> Any:
    """Crops each image around its center, or pads it with zeros (``tf.image.resize_image_with_crop_or_pad``).

    Args:
      image: [rows, columns, channels], or a batch of such.
      target_height, target_width: positive ints.

    Returns:
      Images of that size.
    """
    with name_scope(None, "resize_image_with_crop_or_pad", [image]):
        batch, single = _batched(image)
        rows, columns = _size(batch)
        cropped = crop_to_bounding_box(
            batch,
            _half_excess(rows, target_height),
            _half_excess(columns, target_width),
            _least(target_height, rows),
            _least(target_width, columns),
        )
        padded = pad_to_bounding_box(
            cropped, _half_excess(target_height, rows), _half_excess(target_width, columns), target_height, target_width
        )
        return _unbatched(padded, single)


@export("tf.image.central_crop")
def central_crop(image: TensorLike, central_fraction: float) -> Any:
    """The central part of an image or of each of a batch (``tf.image.central_crop``).

    Raises:
      ValueError: for a fraction outside (0, 1].
    """
    if not 0.0 < central_fraction <= 1.0:
        raise ValueError("central_fraction must be within (0, 1]")
    if central_fraction == 1.0:
        return image
    with name_scope(None, "central_crop", [image]):
        batch, single = _batched(image)
        starts, lengths = [], []
        for length in _size(batch):
            if isinstance(length, _INTS):
                start = int((length - length * central_fraction) / 2)
            else:
                start = cast((cast(length, "float64") - cast(length, "float64") * central_fraction) / 2, "int32")
            starts.append(start)
            lengths.append(length - start * 2)
        return _unbatched(crop_to_bounding_box(batch, *starts, *lengths), single)


@export("tf.image.flip_left_right")
def flip_left_right(image: Any) -> Any:
    """Each image with its columns reversed (``tf.image.flip_left_right``)."""
    image = convert_to_tensor(image, name="image")
    return reverse(image, [(image.shape.ndims or 3) - 2])


@export("tf.image.flip_up_down")
def flip_up_down(image: Any) -> Any:
    """Each image with its rows reversed (``tf.image.flip_up_down``)."""
    image = convert_to_tensor(image, name="image")
    return reverse(image, [(image.shape.ndims or 3) - 3])


def _randomly(image: object, seed: int | None, flip: Any, scope: str) -> Any:
    with name_scope(None, scope, [image]):
        image = convert_to_tensor(image, name="image")
        count_ops(1 if image.shape.is_fully_defined() else 23)  # the image after a check of its sizes
        if image.shape.ndims == 4:
            count_ops(1)
            chosen = greater(random_uniform(shape_of(image)[:1], 0, 1.0, seed=seed), 0.5)  # as in TensorFlow
            count_ops(8)
            return where(chosen, flip(image), image)
        chosen = less(random_uniform([], 0, 1.0, seed=seed), 0.5)
        result = smart_cond(chosen, lambda: flip(image), lambda: image)
        result.set_shape(image.shape)
        return result


@export("tf.image.random_flip_left_right")
def random_flip_left_right(image: TensorLike, seed: int | None = None) -> Any:
    """`flip_left_right` of each image with probability 1/2 (``tf.image.random_flip_left_right``).

    Args:
      image: [rows, columns, channels], or a batch of such.
      seed: an int, for the same choices in each run.

    Returns:
      An image of the same dtype and shape.
    """
    return _randomly(image, seed, flip_left_right, "random_flip_left_right")


@export("tf.image.random_flip_up_down")
def random_flip_up_down(image: TensorLike, seed: int | None = None) -> Any:
    """`flip_up_down` of each image with probability 1/2 (``tf.image.random_flip_up_down``)."""
    return _randomly(image, seed, flip_up_down, "random_flip_up_down")


@export("tf.image.transpose", "tf.image.transpose_image")
def transpose_image(image: TensorLike, name: str | None = None) -> Any:
    """Each image with its rows and columns exchanged (``tf.image.transpose_image``)."""
    image = convert_to_tensor(image, name="image")
    order = [1, 0, 2] if image.shape.ndims == 3 else [0, 2, 1, 3]
    return transpose(image, order, name=name or "transpose_image")


@export("tf.image.rot90")
def rot90(image: TensorLike, k: int | Tensor = 1, name: str | None = None) -> Any:
    """Each image rotated counter-clockwise by ``k`` times 90 degrees (``tf.image.rot90``)."""
    with name_scope(name, "rot90", [image, k]):
        image = convert_to_tensor(image)
        times = constant_value(k) if isinstance(k, Tensor) else k
        if times is None:
            return switch_case(k % 4, [partial(_turned, image, i) for i in range(4)])
        return _turned(image, int(times) % 4)


def _turned(image: Tensor, times: int) -> Tensor:
    for _ in range(times):
        image = flip_up_down(transpose_image(image))
    return identity(image)


# ---- ``tf.extract_image_patches``: each window of an image as a vector ---------------------------------------------

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
def _extract_factory(node: Node) -> Callable[[Array], Array]:
    windows, ksizes = Windows(node.attrs, "rates"), tuple(node.attrs["ksizes"][1:3])

    def extract(image: Array) -> Array:
        axes = windows.axes(image.shape[1:3], ksizes)
        found = patches(padded(np.ascontiguousarray(image), axes), axes)
        return np.array(found).reshape(*found.shape[:3], -1)

    return extract


@place_op.kernel_factory("CPU")
def _place_factory(node: Node) -> Callable[[Array, Array], Array]:
    windows, ksizes = Windows(node.attrs, "rates"), tuple(node.attrs["ksizes"][1:3])

    def place(sizes: Array, values: Array) -> Array:
        batch, *space, channels = sizes.tolist()
        axes = windows.axes(tuple(space), ksizes)
        values = values.reshape(*values.shape[:3], *ksizes, channels)
        check_room((batch, *axes.full, channels), values.itemsize)
        total = np.zeros((batch, *axes.full, channels), values.dtype)
        for (i, j), inside in axes.elements():
            total[inside] += values[:, :, :, i, j]
        return total[axes.inner]

    return place


def _attrs(node: Operation) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("ksizes", "strides", "rates", "padding")}


@export("tf.extract_image_patches", "tf.image.extract_image_patches")
def extract_image_patches(
    images: TensorLike, ksizes: Sequence[int] | None = None, strides: Sequence[int] | None = None,
    rates: Sequence[int] | None = None, padding: str | None = None, name: str | None = None,
    sizes: Sequence[int] | None = None,
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
def extract_patches(
    images: TensorLike, sizes: Sequence[int], strides: Sequence[int], rates: Sequence[int], padding: str,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """`extract_image_patches` (``tf.image.extract_patches``)."""
    return extract_image_patches(images, sizes, strides, rates, padding, name)


# ---- ``tf.image.extract_glimpse``: a window of each image, with noise around it ------------------------------------

_glimpse = op(
    "ExtractGlimpse(input: float, size: int32, offsets: float) -> glimpse: float; centered: bool = true;"
    ' normalized: bool = true; uniform_noise: bool = true; noise: string = "uniform"',
    stateful=False,
    differentiable=False,
)


@_glimpse.shape
def _glimpse_shape(node: Operation) -> list[RawShape]:
    images, offsets = with_rank(node.inputs[0].raw_shape, 4), with_rank(node.inputs[2].raw_shape, 2)
    size = constant_value_as_shape(node.inputs[1]) or (None, None)
    images, offsets = images or (None,) * 4, merge_raw(offsets, (None, 2)) or (None, 2)
    return [(merge_dims(images[0], offsets[0]), *size, images[3])]


@_glimpse.kernel("CPU")
def _glimpse_kernel(
    images: Array, size: Array, offsets: Array, *, centered: bool, normalized: bool, uniform_noise: bool, noise: bytes
) -> Any:
    rows, columns = images.shape[1:3]
    if size.shape != (2,) or offsets.shape != (len(images), 2) or (size < 0).any():
        refuse(f"input must be a vector of size 2 and offsets one pair for each image, got {size}, {offsets.shape}")
    check_room((len(images), *size.tolist(), images.shape[3]), 4)
    whole = np.array([rows, columns], np.float32)
    corners = offsets * whole if normalized else offsets
    corners = corners / 2 + whole / 2 if centered else corners
    corners = np.clip(np.nan_to_num(corners - size / np.float32(2)), -(2.0**40), 2.0**40).astype(np.int64)
    kind = "zero" if noise == b"zero" else "uniform" if uniform_noise else "gaussian"
    return (
        np.stack([_glimpse_of(*each, size, kind) for each in zip(images, corners)])
        if len(images)
        else np.empty((0, *size, images.shape[3]), np.float32)
    )


def _glimpse_of(image: Array, corner: Array, size: Array, noise: str) -> Array:
    """The window of one image at a corner; what it has outside of the image is noise like the image's numbers."""
    shape, random = (*size.tolist(), image.shape[2]), np.random.default_rng()
    if noise == "zero" or not image.size:
        found = np.zeros(shape, np.float32)
    elif noise == "uniform":
        found = random.uniform(image.min(), image.max(), shape).astype(np.float32)
    else:
        found = random.normal(image.mean(), image.std(), shape).astype(np.float32)
    low, high = np.maximum(corner, 0), np.minimum(corner + size, image.shape[:2])
    if (low < high).all():
        (top, left), (bottom, right), (y, x) = low, high, low - corner
        found[y : y + bottom - top, x : x + right - left] = image[top:bottom, left:right]
    return found


@export("tf.image.extract_glimpse")
def extract_glimpse(
    input: TensorLike, size: TensorLike, offsets: TensorLike, centered: bool = True, normalized: bool = True,
    uniform_noise: bool = True, name: str | None = None,
) -> Tensor:  # fmt: skip
    """A window of each image [batch, rows, columns, channels] (``tf.image.extract_glimpse``).

    Args:
      size: the height and the width of the windows.
      offsets: [batch, 2], the rows and columns of their middles.
      centered: count offsets from the middle of the image.
      normalized: offsets from -1 to 1 (from 0 to 1 unless ``centered``); False: pixels.
      uniform_noise: fill what is outside of the image with uniform, else with Gaussian noise.
      name: of the op.
    """
    attrs = {"centered": centered, "normalized": normalized, "uniform_noise": uniform_noise}
    return _glimpse(input, size, offsets, **attrs, name=name)
