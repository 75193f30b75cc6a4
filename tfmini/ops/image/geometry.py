"""``tf.image``: resizing, cropping, padding, flipping; windows as vectors; the best boxes of several classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tfmini.core_types import Array, TensorLike
from tfmini.export import either, export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, name_scope, op
from tfmini.graph.node import Node
from tfmini.graph.scoping import count_ops
from tfmini.memory import check_room
from tfmini.numerics.windows import padded, patches
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.layout import pad, reverse, transpose
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.slicing import slice as slice_of
from tfmini.ops.flow.cond import smart_cond
from tfmini.ops.flow.functional import switch_case
from tfmini.ops.image.boxes import overlap_with, suppressed
from tfmini.ops.image.resize import INTS, ResizeMethod, batched, resize_images, size_of, unbatched
from tfmini.ops.math.comparison import greater, less, where
from tfmini.ops.math.elementwise import maximum, minimum
from tfmini.ops.math.unary import floor
from tfmini.ops.nn.windows import Windows, check_lengths
from tfmini.ops.random_functions import random_uniform
from tfmini.shapes import RawShape, merge_dims, merge_raw, with_rank


@export("tf.image.crop_to_bounding_box")
def crop_to_bounding_box(
    image: Any, offset_height: TensorLike, offset_width: TensorLike, target_height: TensorLike, target_width: TensorLike
) -> Any:
    """The part of each image with the given corner and size (``tf.image.crop_to_bounding_box``).

    Raises:
      ValueError: when static sizes show that it is not inside the image.
    """
    with name_scope(None, "crop_to_bounding_box", [image]):
        image, single = batched(image, unknown_is_one=True)
        rows, columns = size_of(image)
        for what, start, length, limit in (
            ("height", offset_height, target_height, rows), ("width", offset_width, target_width, columns),
        ):  # fmt: skip
            _check_inside(what, start, length, limit)
        cropped = slice_of(image, [0, offset_height, offset_width, 0], [-1, target_height, target_width, -1])
        sizes = [v if isinstance(v, INTS) else None for v in (target_height, target_width)]
        cropped.set_shape([image.shape.as_list()[0], *sizes, image.shape.as_list()[3]])
        return unbatched(cropped, single)


def _check_inside(what: str, start: object, length: Any, limit: Any) -> None:
    if isinstance(start, INTS) and start < 0:
        raise ValueError(f"offset_{what} must be >= 0.")
    if isinstance(length, INTS) and length <= 0:
        raise ValueError(f"target_{what} must be > 0.")
    if all(isinstance(v, INTS) for v in (start, length, limit)) and start + length > limit:
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
        image, single = batched(image, unknown_is_one=True)
        rows, columns = size_of(image)
        below, right = target_height - offset_height - rows, target_width - offset_width - columns
        for what, value in (("height", below), ("width", right)):
            if isinstance(value, INTS) and value < 0:
                raise ValueError(f"{what} must be <= target - offset")
        padded = pad(image, [[0, 0], [offset_height, below], [offset_width, right], [0, 0]])
        sizes = [v if isinstance(v, INTS) else None for v in (target_height, target_width)]
        padded.set_shape([image.shape.as_list()[0], *sizes, image.shape.as_list()[3]])
        return unbatched(padded, single)


def _least(a: TensorLike, b: TensorLike) -> Any:
    return min(a, b) if isinstance(a, INTS) and isinstance(b, INTS) else minimum(a, b)


def _half_excess(a: Any, b: Any) -> Any:
    """Half of ``max(a - b, 0)``."""
    return max(a - b, 0) // 2 if isinstance(a, INTS) and isinstance(b, INTS) else maximum(a - b, 0) // 2


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
        batch, single = batched(image, unknown_is_one=True)
        rows, columns = size_of(batch)
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
        return unbatched(padded, single)


@export("tf.image.resize_image_with_pad")
def resize_image_with_pad(
    image: TensorLike, target_height: Any, target_width: Any, method: int = ResizeMethod.BILINEAR,
    align_corners: bool = False,
) -> Any:  # fmt: skip
    """The largest image of the same proportions in a frame of zeros (``tf.image.resize_image_with_pad``).

    Args:
      image: [rows, columns, channels], or a batch of such.
      target_height, target_width: of the frame: positive.
      method, align_corners: of `resize_images`.

    Raises:
      ValueError: for a frame without pixels, or an image of another rank.
    """
    with name_scope(None, "resize_image_with_pad", [image]):
        image = convert_to_tensor(image, name="image")
        if image.shape.ndims is None:
            image = identity(image)
            image.set_shape([None] * 3)
        for what, value in (("height", target_height), ("width", target_width)):
            if isinstance(value, INTS) and value <= 0:
                raise ValueError(f"target_{what} must be > 0.")
        batch, single = batched(image)
        targets = (target_height, target_width)
        sizes, starts = _inscribed(size_of(batch), targets)
        resized = resize_images(batch, sizes, method, align_corners=align_corners)
        return unbatched(pad_to_bounding_box(resized, starts[0], starts[1], *targets), single)


def _inscribed(sizes: Sequence[Any], targets: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The rows and columns of the largest image of these proportions in a frame, and where it begins."""
    if all(isinstance(value, INTS) for value in (*sizes, *targets)):
        ratio = max(size / target for size, target in zip(sizes, targets))
        exact = [size / ratio for size in sizes]
        return [int(size) for size in exact], [max(0, int((t - size) // 2)) for t, size in zip(targets, exact)]
    lengths, frame = ([cast(value, "float64") for value in values] for values in (sizes, targets))
    scale = maximum(lengths[1] / frame[1], lengths[0] / frame[0])
    found = [length / scale for length in lengths]
    starts = [maximum(0, cast(floor((t - size) / 2), "int32")) for t, size in zip(frame, found)]
    return [cast(floor(size), "int32") for size in found], starts


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
        batch, single = batched(image)
        starts, lengths = [], []
        for length in size_of(batch):
            if isinstance(length, INTS):
                start = int((length - length * central_fraction) / 2)
            else:
                start = cast((cast(length, "float64") - cast(length, "float64") * central_fraction) / 2, "int32")
            starts.append(start)
            lengths.append(length - start * 2)
        return unbatched(crop_to_bounding_box(batch, *starts, *lengths), single)


@export("tf.image.flip_left_right")
def flip_left_right(image: Any) -> Any:
    """Each image with its columns reversed (``tf.image.flip_left_right``)."""
    image = _one_or_several(image)
    return reverse(image, [(image.shape.ndims or 3) - 2])


@export("tf.image.flip_up_down")
def flip_up_down(image: Any) -> Any:
    """Each image with its rows reversed (``tf.image.flip_up_down``)."""
    image = _one_or_several(image)
    return reverse(image, [(image.shape.ndims or 3) - 3])


def _one_or_several(image: TensorLike) -> Tensor:
    tensor = convert_to_tensor(image, name="image")
    if tensor.shape.ndims not in (None, 3, 4):
        raise ValueError(f"'image' must have either 3 or 4 dimensions, got the shape {tensor.shape}.")
    return tensor


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
    tensor = _one_or_several(image)
    count_ops(1 if tensor.shape.is_fully_defined() else 23)  # the image after a check of its sizes
    order = [0, 2, 1, 3] if tensor.shape.ndims == 4 else [1, 0, 2]  # an unknown image is one, as in TensorFlow
    return transpose(tensor, order, name=name or "transpose_image")


@export("tf.image.rot90")
def rot90(image: TensorLike, k: int | Tensor = 1, name: str | None = None) -> Any:
    """Each image rotated counter-clockwise by ``k`` times 90 degrees (``tf.image.rot90``)."""
    with name_scope(name, "rot90", [image, k]):
        tensor = _one_or_several(image)
        times = constant_value(k) if isinstance(k, Tensor) else k
        if times is None:
            return switch_case(k % 4, [partial(_turned, tensor, i) for i in range(4)])
        return _turned(tensor, int(times) % 4)


def _turned(image: Tensor, times: int) -> Tensor:
    if times == 2:  # also of several images of unknown rank, as in TensorFlow
        return flip_up_down(flip_left_right(image)) if image.shape.ndims else reverse(image, [-3, -2])
    for _ in range(times):
        image = flip_up_down(transpose_image(image))
    return identity(image)


# ---- ``tf.extract_image_patches``: each window of an image, or of a volume, as a vector ----------------------------

_ATTRS = (
    "ksizes: list(int) >= 4; strides: list(int) >= 4; rates: list(int) >= 4;"
    " padding: {'SAME', 'VALID'}; T: realnumbertype"
)
_VOLUME = "ksizes: list(int) >= 5; strides: list(int) >= 5; T: realnumbertype; padding: {'SAME', 'VALID'}"
extract_op = op("ExtractImagePatches(images: T) -> patches: T; " + _ATTRS)
extract_volume_op = op("ExtractVolumePatches(input: T) -> patches: T; " + _VOLUME)
# TensorFlow has no op for the transpose of the extraction; it builds the gradient of sparse products.
place_op: OpHandle = op("_PlaceImagePatches(sizes: int32, patches: T) -> images: T; " + _ATTRS)
place_volume_op: OpHandle = op("_PlaceVolumePatches(sizes: int32, patches: T) -> volumes: T; " + _VOLUME)
all_of(place_op, place_volume_op).shape(
    lambda node: [with_rank(constant_value_as_shape(node.inputs[0]), len(node.attrs["ksizes"]))]
)


def _derive_patches(extract: OpHandle, place: OpHandle) -> None:
    """Attaches the gradients of an extraction and of its transpose."""
    extract.gradient(
        lambda node, grad: [place(shape_of(node.inputs[0]), grad, name=place.name.lstrip("_"), **_attrs(node))]
    )
    place.gradient(lambda node, grad: [None, extract(grad, **_attrs(node))])


_derive_patches(extract_op, place_op)
_derive_patches(extract_volume_op, place_volume_op)


@all_of(extract_op, extract_volume_op).shape
def _extract_shape(node: Operation) -> list[RawShape]:
    attrs, rank = _attrs(node), 4 if node.type == extract_op.name else 5
    image, window = with_rank(node.inputs[0].raw_shape, rank), attrs["ksizes"][1:-1]
    for name, values in attrs.items():
        if name != "padding":
            check_lengths(node.type, rank, **{name: values})
            if values[0] != 1 or values[-1] != 1:
                text = "Current implementation does not support {} in the batch and depth dimensions."
                raise ValueError(text.format(name[:-1]))
    depth = None if image[-1] is None else image[-1] * math.prod(window)
    return [(image[0], *_windows(attrs).out_sizes(image[1:-1], window), depth)]


def _windows(attrs: Mapping[str, Any]) -> Windows:
    return Windows({**attrs, "data_format": b"NHWC" if len(attrs["ksizes"]) == 4 else b"NDHWC"}, "rates")


@all_of(extract_op, extract_volume_op).kernel_factory("CPU")
def _extract_factory(node: Node) -> Callable[[Array], Array]:
    windows, ksizes = _windows(node.attrs), tuple(node.attrs["ksizes"][1:-1])

    def extract(image: Array) -> Array:
        if image.ndim != len(ksizes) + 2:
            refuse(f"input must be {len(ksizes) + 2}-dimensional, got shape {list(image.shape)}")
        axes = windows.axes(image.shape[1:-1], ksizes)
        found = patches(padded(np.ascontiguousarray(image), axes), axes)
        return np.array(found).reshape(*found.shape[: image.ndim - 1], math.prod(ksizes) * image.shape[-1])

    return extract


@all_of(place_op, place_volume_op).kernel_factory("CPU")
def _place_factory(node: Node) -> Callable[[Array, Array], Array]:
    windows, ksizes = _windows(node.attrs), tuple(node.attrs["ksizes"][1:-1])

    def place(sizes: Array, values: Array) -> Array:
        batch, *space, channels = sizes.tolist()
        axes = windows.axes(tuple(space), ksizes)
        values = values.reshape(*values.shape[: len(ksizes) + 1], *ksizes, channels)
        check_room((batch, *axes.full, channels), values.itemsize)
        total = np.zeros((batch, *axes.full, channels), values.dtype)
        for element, inside in axes.elements():
            total[inside] += values[(slice(None),) * (len(ksizes) + 1) + element]
        return total[axes.inner]

    return place


def _attrs(node: Operation) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("ksizes", "strides", "rates", "padding") if name in node.attrs}


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


@export("tf.extract_volume_patches")
def extract_volume_patches(
    input: TensorLike, ksizes: Sequence[int], strides: Sequence[int], padding: str, name: str | None = None
) -> Tensor:
    """The windows of volumes [batch, planes, rows, columns, channels] as vectors (``tf.extract_volume_patches``).

    Args:
      ksizes: the window, ``[1, planes, rows, columns, 1]``.
      strides: the distances between the beginnings of windows, in the same form.
      padding: "SAME" or "VALID".

    Returns:
      [batch, out planes, out rows, out columns, window planes * window rows * window columns * channels].
    """
    return extract_volume_op(input, ksizes=ksizes, strides=strides, padding=padding, name=name)


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


# ---- ``tf.image.combined_non_max_suppression``: the best boxes of each image, over all classes ----------------------

_combined: OpHandle[Any] = op(
    "CombinedNonMaxSuppression(boxes: float, scores: float, max_output_size_per_class: int32, max_total_size: int32,"
    " iou_threshold: float, score_threshold: float)"
    " -> nmsed_boxes: float, nmsed_scores: float, nmsed_classes: float, valid_detections: int32"
    "; pad_per_class: bool = false; clip_boxes: bool = true",
    differentiable=False,
)


@_combined.shape
def _combined_shape(node: Operation) -> list[RawShape]:
    boxes, scores = with_rank(node.inputs[0].raw_shape, 4), with_rank(node.inputs[1].raw_shape, 3)
    for scalar in node.inputs[2:]:
        with_rank(scalar.raw_shape, 0)
    merge_dims(boxes[1], scores[1])
    merge_dims(boxes[3], 4)
    if boxes[2] != 1 and None not in (boxes[2], scores[2]):
        merge_dims(boxes[2], scores[2])
    batch = merge_dims(boxes[0], scores[0])
    per_class, total = (constant_value(tensor) for tensor in node.inputs[2:4])
    if per_class is not None and per_class < node.attrs["pad_per_class"] or total is not None and total < 1:
        wanted = "max_total_size > 0 and max_output_size_per_class >= 0, or > 0 with pad_per_class"
        raise ValueError(f"Wanted are {wanted}; got {total} and {per_class}.")
    known = total is not None and not (node.attrs["pad_per_class"] and (per_class is None or scores[2] is None))
    size = _found_per_image(node.attrs["pad_per_class"], per_class, total, scores[2]) if known else None
    return [(batch, size, 4), (batch, size), (batch, size), (batch,)]


def _found_per_image(pad_per_class: bool, per_class: Any, total: Any, classes: int | None) -> int:
    return min(int(total), int(per_class) * (classes or 0)) if pad_per_class else int(total)


@_combined.kernel("CPU")
def _combined_kernel(
    boxes: Array, scores: Array, per_class: Array, total: Array, threshold: Array, least: Array, *, pad_per_class: bool,
    clip_boxes: bool,
) -> tuple[Array, ...]:  # fmt: skip
    _check_combined(boxes, scores, [per_class, total, threshold, least])
    classes = scores.shape[2]
    size = _found_per_image(pad_per_class, per_class, total, classes)
    check_room((len(boxes), size, 4), 4)
    shape = (len(boxes), size)
    found, counts = (
        (np.zeros((*shape, 4), np.float32), *np.zeros((2, *shape), np.float32)),
        np.zeros(len(boxes), np.int32),
    )
    for image in range(len(boxes)):
        best: list[tuple[float, int, int]] = []
        for kind in range(classes):
            own = boxes[image, :, min(kind, boxes.shape[2] - 1)]
            limit = min(int(per_class), len(own))
            chosen, values = suppressed(
                overlap_with(own), scores[image, :, kind], limit, float(threshold), float(least), keeps_equal=True
            )
            best += [(value, kind, place) for place, value in zip(chosen, values)]
        best.sort(key=lambda each: -each[0])
        counts[image] = min(len(best), size)
        for at, (value, kind, place) in enumerate(best[:size]):
            box = boxes[image, place, min(kind, boxes.shape[2] - 1)]
            found[0][image, at] = np.clip(box, 0, 1) if clip_boxes else box
            found[1][image, at], found[2][image, at] = value, kind
    return *found, counts


def _check_combined(boxes: Array, scores: Array, scalars: Sequence[Array]) -> None:
    if boxes.ndim != 4 or boxes.shape[3] != 4 or scores.ndim != 3 or boxes.shape[:2] != scores.shape[:2]:
        refuse(f"boxes must be [batch, boxes, classes or 1, 4] and scores [batch, boxes, classes], got shapes "
               f"{list(boxes.shape)} and {list(scores.shape)}")  # fmt: skip
    if boxes.shape[2] not in (1, scores.shape[2]):
        refuse(f"third dimension of boxes must be either 1 or num classes, got {boxes.shape[2]}")
    if any(map(np.ndim, scalars)):
        refuse(f"sizes and thresholds must be 0-D, got shapes {[list(np.shape(value)) for value in scalars]}")
    if scalars[0] < 0 or scalars[1] < 1:
        refuse(
            f"max_size_per_class must not be negative and max_total_size positive, got {scalars[0]} and {scalars[1]}"
        )
    if not 0 <= scalars[2] <= 1:
        refuse(f"iou_threshold must be in [0, 1], got {scalars[2]}")


@export("tf.image.combined_non_max_suppression")
def combined_non_max_suppression(
    boxes: TensorLike, scores: TensorLike, max_output_size_per_class: TensorLike, max_total_size: TensorLike,
    iou_threshold: TensorLike = 0.5, score_threshold: TensorLike = float("-inf"), pad_per_class: bool = False,
    clip_boxes: bool = True, name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The best boxes of each image that overlap little within a class (``tf.image.combined_non_max_suppression``).

    Args:
      boxes: [images, boxes, classes or 1, 4], the (y, x) of two corners; 1 for the same boxes of all classes.
      scores: [images, boxes, classes].
      max_output_size_per_class, max_total_size: how many boxes are chosen of a class, and of all.
      iou_threshold: the overlap from which a worse box is dropped.
      score_threshold: boxes of this score or less are dropped.
      pad_per_class: the results have ``max_output_size_per_class * classes`` rows if these are fewer than
        ``max_total_size``.
      clip_boxes: to [0, 1].
      name: of the scope.

    Returns:
      Boxes, scores, classes (float32; zeros behind the last), and how many there are of each image.
    """
    with name_scope(name, "combined_non_max_suppression"):
        thresholds = [
            convert_to_tensor(value, np.float32, name=word)
            for value, word in ((iou_threshold, "iou_threshold"), (score_threshold, "score_threshold"))
        ]
        return _combined(  # type: ignore[no-any-return]
            boxes, scores, max_output_size_per_class, max_total_size, *thresholds, pad_per_class=pad_per_class,
            clip_boxes=clip_boxes,
        )  # fmt: skip
