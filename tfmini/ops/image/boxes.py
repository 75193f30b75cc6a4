"""Boxes in images: non-maximum suppression, and crops resized to one size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfmini.core_types import Array, TensorLike
from tfmini.export import either, export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, name_scope, op, sized
from tfmini.graph.node import Node
from tfmini.memory import check_room
from tfmini.numerics.philox import PhiloxGenerator, float32_of
from tfmini.numerics.update_rules import any_outside
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.image.regions import chosen_from_heap
from tfmini.shapes import RawShape, merge_dims, with_rank

_BOXES = "(boxes: T, scores: T, max_output_size: int32, iou_threshold: T_threshold, score_threshold: T_threshold)"
_KINDS = "T: {half, float} = DT_FLOAT; T_threshold: {half, float} = DT_FLOAT"
nms_op = op(f"NonMaxSuppressionV3{_BOXES} -> selected_indices: int32; {_KINDS}", differentiable=False)
nms_padded_op: OpHandle[Any] = op(
    f"NonMaxSuppressionV4{_BOXES} -> selected_indices: int32, valid_outputs: int32; {_KINDS}"
    "; pad_to_max_output_size: bool = false",
    differentiable=False,
)
nms_soft_op: OpHandle[Any] = op(
    "NonMaxSuppressionV5(boxes: T, scores: T, max_output_size: int32, iou_threshold: T, score_threshold: T,"
    " soft_nms_sigma: T) -> selected_indices: int32, selected_scores: T, valid_outputs: int32"
    "; T: {half, float} = DT_FLOAT; pad_to_max_output_size: bool = false",
    differentiable=False,
)
nms_overlaps_op = op(
    "NonMaxSuppressionWithOverlaps(overlaps: float, scores: float, max_output_size: int32,"
    " overlap_threshold: float, score_threshold: float) -> selected_indices: int32",
    differentiable=False,
)
all_of(nms_op, nms_overlaps_op).shape(sized("_ _, _ -> _"))
crop_op = op(
    "CropAndResize(image: T, boxes: float, box_ind: int32, crop_size: int32) -> crops: float"
    "; T: {uint8, uint16, int8, int16, int32, int64, half, float, double}"
    "; method: {'bilinear', 'nearest'} = 'bilinear'; extrapolation_value: float = 0"
)
crop_grad_op = op(
    "CropAndResizeGradImage(grads: float, boxes: float, box_ind: int32, image_size: int32) -> output: T"
    "; T: {float, half, double}; method: {'bilinear', 'nearest'} = 'bilinear'",
    differentiable=None,
)
crop_grad_boxes_op = op(
    "CropAndResizeGradBoxes(grads: float, image: T, boxes: float, box_ind: int32) -> output: float"
    "; T: {uint8, uint16, int8, int16, int32, int64, half, float, double}; method: {'bilinear'} = 'bilinear'",
    differentiable=None,
    shape=lambda node: [node.inputs[2].raw_shape],
)


@nms_padded_op.shape
def _padded(node: Operation) -> list[RawShape]:
    count = constant_value(node.inputs[2])
    known = node.attrs["pad_to_max_output_size"] and count is not None
    return [(int(count) if known else None,), ()]  # type: ignore[arg-type]


@nms_soft_op.shape
def _soft(node: Operation) -> list[RawShape]:
    indices, count = _padded(node)
    return [indices, indices, count]


@crop_op.shape
def _crops(node: Operation) -> list[RawShape]:
    image, boxes = with_rank(node.inputs[0].raw_shape, 4), with_rank(node.inputs[1].raw_shape, 2)
    size = constant_value(node.inputs[3])
    height, width = (None, None) if size is None else size.tolist()
    return [(merge_dims(boxes[0], with_rank(node.inputs[2].raw_shape, 1)[0]), height, width, image[3])]


@crop_grad_op.shape
def _image(node: Operation) -> list[RawShape]:
    size = constant_value(node.inputs[3])
    return [(None,) * 4 if size is None else tuple(size.tolist())]


# ---- suppression --------------------------------------------------------------------------------


def overlap_with(boxes: Array) -> Callable[[int], Array]:
    """Returns a function of a box's number that gives its intersection over union with every box."""
    wide = boxes.astype(np.float32)
    top, bottom = np.minimum(wide[:, 0], wide[:, 2]), np.maximum(wide[:, 0], wide[:, 2])
    left, right = np.minimum(wide[:, 1], wide[:, 3]), np.maximum(wide[:, 1], wide[:, 3])
    areas = (bottom - top) * (right - left)

    def overlaps(i: int) -> Array:
        height = np.maximum(np.minimum(bottom, bottom[i]) - np.maximum(top, top[i]), 0)
        width = np.maximum(np.minimum(right, right[i]) - np.maximum(left, left[i]), 0)
        shared = height * width
        union = areas + areas[i] - shared
        positive = (areas > 0) & (areas[i] > 0)
        return np.where(positive, shared / np.where(positive, union, 1), 0)

    return overlaps


def suppressed(
    overlaps: Callable[[int], Array],
    scores: Array,
    count: int,
    threshold: float,
    least: float,
    sigma: float = 0.0,
    keeps_equal: bool = False,
) -> tuple[list[int], list[float]]:
    """The chosen boxes, best first; with ``sigma``, overlaps below the threshold reduce the scores of boxes.

    Args:
      keeps_equal: whether a box stays that overlaps with a chosen one just by the threshold.
    """
    if count < 0:
        refuse("max_output_size must be non-negative")
    if not 0 <= threshold <= 1:
        refuse("iou_threshold must be in [0, 1]")
    left = scores.astype(np.float32)
    open_ = left > least
    if not sigma and not keeps_equal and np.unique(left[open_]).size < np.count_nonzero(open_):
        return chosen_from_heap(overlaps, left, open_, count, threshold)
    chosen: list[int] = []
    values: list[float] = []
    while len(chosen) < count and open_.any():
        best = int(np.argmax(np.where(open_, left, -np.inf)))
        chosen.append(best)
        values.append(float(left[best]))
        open_[best] = False
        shared = overlaps(best)
        if sigma > 0:
            left = left * np.exp(-0.5 / sigma * shared * shared).astype(np.float32)
            open_ &= left > least
        open_ &= (shared <= threshold) if keeps_equal else (shared < threshold)
    return chosen, values


def _check_boxes(boxes: Array, scores: Array) -> None:
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        refuse(f"boxes must be 2-D with 4 columns, got shape {list(boxes.shape)}")
    if scores.shape != boxes.shape[:1]:
        refuse(f"scores has incompatible shape {list(scores.shape)}")


@nms_op.kernel("CPU")
def _nms(boxes: Array, scores: Array, count: np.ndarray, threshold: np.ndarray, least: np.ndarray) -> Array:
    _check_boxes(boxes, scores)
    chosen, _ = suppressed(overlap_with(boxes), scores, int(count), float(threshold), float(least))
    return np.array(chosen, np.int32)


@nms_padded_op.kernel("CPU")
def _nms_padded(
    boxes: Array,
    scores: Array,
    count: np.ndarray,
    threshold: np.ndarray,
    least: np.ndarray,
    *,
    pad_to_max_output_size: bool,
) -> tuple[Array, Any]:
    chosen = _nms(boxes, scores, count, threshold, least)
    missing = int(count) - len(chosen) if pad_to_max_output_size else 0
    check_room((missing,), 4)
    return np.pad(chosen, (0, missing)), np.int32(len(chosen))


@nms_soft_op.kernel("CPU")
def _nms_soft(
    boxes: Array,
    scores: Array,
    count: np.ndarray,
    threshold: np.ndarray,
    least: np.ndarray,
    sigma: Array,
    *,
    pad_to_max_output_size: bool,
) -> tuple[Array, Array, Any]:
    _check_boxes(boxes, scores)
    chosen, values = suppressed(overlap_with(boxes), scores, int(count), float(threshold), float(least), float(sigma))
    missing = (0, int(count) - len(chosen) if pad_to_max_output_size else 0)
    check_room(missing[1:], 8)
    return (
        np.pad(np.array(chosen, np.int32), missing), np.pad(np.array(values, scores.dtype), missing),
        np.int32(len(chosen)),
    )  # fmt: skip


@nms_overlaps_op.kernel("CPU")
def _nms_overlaps(overlaps: Array, scores: Array, count: np.ndarray, threshold: np.ndarray, least: np.ndarray) -> Array:
    if overlaps.ndim != 2 or overlaps.shape[0] != overlaps.shape[1]:
        refuse(f"overlaps must be square, got shape {list(overlaps.shape)}")
    chosen, _ = suppressed(lambda i: overlaps[:, i], scores, int(count), float(threshold), float(least))
    return np.array(chosen, np.int32)


# ---- crops --------------------------------------------------------------------------------------


def _positions(low: np.float32, high: np.float32, size: int, count: int) -> Array:
    """The positions of a crop's samples along an axis of the image; a single sample is in the middle.

    They are rounded as TensorFlow rounds them, since the last bit decides what is outside the image.
    """
    if count == 1:
        return np.array([0.5 * float(low + high) * (size - 1)], np.float32)
    step = (high - low) * np.float32(size - 1) / np.float32(count - 1)
    return low * np.float32(size - 1) + np.arange(count, dtype=np.float32) * step


def _check_crops(boxes: Array, box_ind: Array, batch: int) -> None:
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        refuse(f"boxes must have 4 columns, got shape {list(boxes.shape)}")
    if box_ind.shape != boxes.shape[:1]:
        refuse(f"box_index has incompatible shape {list(box_ind.shape)}")
    if any_outside(box_ind, batch):
        refuse("box_index has values outside [0, batch_size)")


def _weights(
    box: Array, size: tuple[int, int], crop: tuple[int, int], nearest: bool
) -> tuple[Array, Array, Array, Array]:
    """Matrices (crop rows, image rows) and (crop columns, image columns), and masks of the samples inside the image."""
    found = []
    for low, high, length, count in ((box[0], box[2], size[0], crop[0]), (box[1], box[3], size[1], crop[1])):
        places = _positions(low, high, length, count)
        inside = (places >= 0) & (places <= length - 1)
        safe = np.where(inside, places, 0)
        check_room((count, length), 4)
        matrix = np.zeros((count, length), np.float32)
        rows = np.arange(count)
        if nearest:
            matrix[rows, np.floor(safe.astype(np.float64) + 0.5).astype(int)] = 1
        else:
            below = np.floor(safe).astype(int)
            share = safe - below
            np.add.at(matrix, (rows, below), 1 - share)
            np.add.at(matrix, (rows, np.minimum(below + 1, length - 1)), share)
        found += [matrix, inside]
    return found[0], found[2], found[1], found[3]


@crop_op.kernel("CPU")
def _crop(
    image: Array, boxes: Array, box_ind: Array, crop_size: Array, *, method: bytes, extrapolation_value: float
) -> Array:
    _check_crops(boxes, box_ind, len(image))
    height, width = crop_size.tolist()
    if height <= 0 or width <= 0:
        refuse("crop dimensions must be positive")
    check_room((len(boxes), height, width, image.shape[3]), 4)
    out = np.full((len(boxes), height, width, image.shape[3]), extrapolation_value, np.float32)
    for i, (box, which) in enumerate(zip(boxes, box_ind.tolist())):
        rows, columns, in_rows, in_columns = _weights(box, image.shape[1:3], (height, width), method == b"nearest")
        values = np.einsum("ay,bx,yxc->abc", rows, columns, image[which].astype(np.float32), optimize=True)
        inside = in_rows[:, None] & in_columns
        out[i][inside] = values[inside]
    return out


@crop_grad_op.kernel("CPU")
def _crop_grad(grads: Array, boxes: Array, box_ind: Array, image_size: Array, *, method: bytes, node: Node) -> Array:
    batch, height, width, depth = image_size.tolist()
    _check_crops(boxes, box_ind, batch)
    check_room((batch, height, width, depth), 8)
    dtype = node.attrs["T"].numpy
    out = np.zeros((batch, height, width, depth), np.float64 if dtype == np.float64 else np.float32)
    for grad, box, which in zip(grads, boxes, box_ind.tolist()):
        rows, columns, in_rows, in_columns = _weights(box, (height, width), grad.shape[:2], method == b"nearest")
        kept = np.where((in_rows[:, None] & in_columns)[:, :, None], grad, out.dtype.type(0))
        out[which] += np.einsum("ay,bx,abc->yxc", rows, columns, kept, optimize=True)
    return out.astype(dtype, copy=False)


@crop_grad_boxes_op.kernel("CPU")
def _crop_grad_boxes(grads: Array, image: Array, boxes: Array, box_ind: Array, *, method: bytes) -> Array:
    """The slope of bilinear interpolation at each sample, by how far the sample moves with each edge of its box."""
    _check_crops(boxes, box_ind, len(image))
    out = np.zeros(boxes.shape, np.float32)
    for i, (grad, box, which) in enumerate(zip(grads, boxes, box_ind.tolist())):
        size, crop = image.shape[1:3], grad.shape[:2]
        rows, columns, in_rows, in_columns = _weights(box, size, crop, nearest=False)
        kept = np.where((in_rows[:, None] & in_columns)[:, :, None], grad, np.float32(0))
        pixels = image[which].astype(np.float32)
        down, right = _slopes(box[0], box[2], size[0], crop[0]), _slopes(box[1], box[3], size[1], crop[1])
        dy = np.einsum("ay,bx,yxc,abc->a", down, columns, pixels, kept, optimize=True)
        dx = np.einsum("ay,bx,yxc,abc->b", rows, right, pixels, kept, optimize=True)
        (low_y, high_y), (low_x, high_x) = _moves(size[0], crop[0]), _moves(size[1], crop[1])
        out[i] = dy @ low_y, dx @ low_x, dy @ high_y, dx @ high_x
    return out


def _slopes(low: np.float32, high: np.float32, length: int, count: int) -> Array:
    """A matrix (samples, pixels) whose product with the pixels is the slope at each sample."""
    places = _positions(low, high, length, count)
    safe = np.where((places >= 0) & (places <= length - 1), places, 0)
    matrix = np.zeros((count, length), np.float32)
    rows = np.arange(count)
    np.add.at(matrix, (rows, np.floor(safe).astype(int)), -1)
    np.add.at(matrix, (rows, np.ceil(safe).astype(int)), 1)
    return matrix


def _moves(length: int, count: int) -> tuple[Array, Array]:
    """How far each sample moves, in pixels, when the low or the high edge of its box moves by 1."""
    if count == 1:
        half = np.array([0.5 * (length - 1)], np.float32)
        return half, half
    high = np.arange(count, dtype=np.float32) * np.float32((length - 1) / (count - 1))
    return length - 1 - high, high


@crop_op.gradient
def _crop_gradient(node: Operation, grad: Tensor) -> list[Any]:
    image, boxes, box_ind, _ = node.inputs
    for_image = None
    if image.dtype.is_floating:
        kind = {"method": node.attrs["method"], "T": image.dtype.base_dtype}
        for_image = crop_grad_op(grad, boxes, box_ind, shape_of(image), **kind)
    return [for_image, crop_grad_boxes_op(grad, image, boxes, box_ind), None, None]


# ---- Public functions of crops and suppression ---------------------------------------------------------------------


@export("tf.image.crop_and_resize")
def crop_and_resize(
    image: TensorLike, boxes: TensorLike, box_ind: TensorLike | None = None, crop_size: TensorLike | None = None,
    method: str = "bilinear", extrapolation_value: float = 0, name: str | None = None,
    box_indices: TensorLike | None = None,
) -> Tensor:  # fmt: skip
    """Parts of images, resized to one size (``tf.image.crop_and_resize``); float32.

    Args:
      image: (batch, rows, columns, channels).
      boxes: (count, 4), ``[y1, x1, y2, x2]`` in units of the image, from 0 to 1.
      box_ind: (count,), the image of each box.
      crop_size: ``[rows, columns]``.
      method: "bilinear" or "nearest".
      extrapolation_value: the value of pixels outside the image.
    """
    return crop_op(
        image, boxes, either("box_indices", box_indices, "box_ind", box_ind), crop_size, method=method,
        extrapolation_value=extrapolation_value, name=name,
    )  # fmt: skip


@export("tf.image.non_max_suppression")
def non_max_suppression(
    boxes: TensorLike,
    scores: TensorLike,
    max_output_size: TensorLike,
    iou_threshold: TensorLike = 0.5,
    score_threshold: TensorLike = float("-inf"),
    name: str | None = None,
) -> Tensor:
    """The numbers of the best boxes that do not overlap a better one (``tf.image.non_max_suppression``).

    Args:
      boxes: (count, 4), ``[y1, x1, y2, x2]``.
      scores: (count,).
      max_output_size: the most boxes to return.
      iou_threshold: the intersection over union above which two boxes overlap.
      score_threshold: boxes with this score or less are ignored.
    """
    with name_scope(name, "non_max_suppression"):
        return nms_op(boxes, scores, max_output_size, iou_threshold, score_threshold)


@export("tf.image.non_max_suppression_padded")
def non_max_suppression_padded(
    boxes: TensorLike,
    scores: TensorLike,
    max_output_size: TensorLike,
    iou_threshold: TensorLike = 0.5,
    score_threshold: TensorLike = float("-inf"),
    pad_to_max_output_size: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """`non_max_suppression`, padded to ``max_output_size`` if requested, and the number of boxes."""
    with name_scope(name, "non_max_suppression_padded"):
        return nms_padded_op(  # type: ignore[no-any-return]
            boxes, scores, max_output_size, iou_threshold, score_threshold,
            pad_to_max_output_size=pad_to_max_output_size,
        )  # fmt: skip


@export("tf.image.non_max_suppression_with_scores")
def non_max_suppression_with_scores(
    boxes: TensorLike,
    scores: TensorLike,
    max_output_size: TensorLike,
    iou_threshold: TensorLike = 0.5,
    score_threshold: TensorLike = float("-inf"),
    soft_nms_sigma: TensorLike = 0.0,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """`non_max_suppression` with scores, which overlaps reduce if ``soft_nms_sigma`` > 0."""
    with name_scope(name, "non_max_suppression_with_scores"):
        indices, values, _ = nms_soft_op(boxes, scores, max_output_size, iou_threshold, score_threshold, soft_nms_sigma)
        return indices, values


@export("tf.image.non_max_suppression_overlaps")
def non_max_suppression_overlaps(
    overlaps: TensorLike, scores: TensorLike, max_output_size: TensorLike, overlap_threshold: TensorLike = 0.5,
    score_threshold: TensorLike = float("-inf"), name: str | None = None,
) -> Tensor:  # fmt: skip
    """`non_max_suppression` by a matrix of overlaps (``tf.image.non_max_suppression_overlaps``)."""
    with name_scope(name, "non_max_suppression_overlaps"):
        return nms_overlaps_op(convert_to_tensor(overlaps), scores, max_output_size, overlap_threshold, score_threshold)


# ---- distortion ----------------------------------------
# Random crops that show enough of an object (``sample_distorted_bounding_box``), and ``draw_bounding_boxes``.

_SEEDS = """
    T: {uint8, int8, int16, int32, int64}
    seed: int = 0
    seed2: int = 0"""
_SETTINGS = """
    aspect_ratio_range: list(float) = [0.75, 1.33]
    area_range: list(float) = [0.05, 1]
    max_attempts: int = 100
    use_image_if_no_bounding_boxes: bool = false"""
sample_op = op(
    "SampleDistortedBoundingBox(image_size: T, bounding_boxes: float) -> begin: T, size: T, bboxes: float"
    + _SEEDS + "\n    min_object_covered: float = 0.1" + _SETTINGS,
    stateful=True,
)  # fmt: skip
sample_v2_op = op(
    "SampleDistortedBoundingBoxV2(image_size: T, bounding_boxes: float, min_object_covered: float)"
    " -> begin: T, size: T, bboxes: float" + _SEEDS + _SETTINGS,
    stateful=True,
)
all_of(sample_op, sample_v2_op).shape(sized("_, _ _ _ -> 3, 3, 1 1 4"))
draw_op = op("DrawBoundingBoxes(images: T, boxes: float) -> output: T; T: {float, half} = DT_FLOAT")
draw_v2_op = op("DrawBoundingBoxesV2(images: T, boxes: float, colors: float) -> output: T; T: {float, half} = DT_FLOAT")
all_of(draw_op, draw_v2_op).shape(sized("a b c d, _ _ _ -> a b c d"))
all_of(sample_op, sample_v2_op, draw_op).not_differentiable()
draw_v2_op.without_gradient()

# ---- sampling -----------------------------------------------------------------------------------


class _Box(NamedTuple):
    """A rectangle of whole pixels; the upper ends are excluded."""

    left: int
    top: int
    right: int
    bottom: int

    def area(self) -> int:
        return (self.right - self.left) * (self.bottom - self.top)

    def shared_with(self, other: _Box) -> int:
        """The area of the intersection."""
        left, top = max(self.left, other.left), max(self.top, other.top)
        right, bottom = min(self.right, other.right), min(self.bottom, other.bottom)
        return 0 if left > right or top > bottom else (right - left) * (bottom - top)


class _Words:
    """TensorFlow's stream of random 32-bit words."""

    def __init__(self, generator: PhiloxGenerator, blocks: int) -> None:
        self._words = self._stream(generator, generator.reserve(blocks))

    @staticmethod
    def _stream(generator: PhiloxGenerator, start: int) -> Iterator[int]:
        while True:
            yield from generator.words(start, 16).ravel().tolist()
            start += 16

    def fraction(self) -> float:
        """A number in [0, 1)."""
        return float(float32_of(np.array([next(self._words)], np.uint32))[0])

    def below(self, count: int) -> int:
        """An integer in [0, count); words that would favour small numbers are skipped."""
        if count & (count - 1) == 0:
            return next(self._words) & (count - 1)
        favoured = 0xFFFFFFFF % count + 1
        while True:
            word = next(self._words)
            if word >= favoured:
                return word % count


def _nearest(value: float) -> int:
    return round(value)  # Rounds half to even, like C's lrintf.


def _random_crop(width: int, height: int, area_range: Sequence[float], ratio: float, words: _Words) -> _Box | None:
    """A random crop with an area in the range and about this ratio of width to height; None if there is none."""
    if width <= 0 or height <= 0 or area_range[0] > area_range[1]:
        return None
    least, most = area_range[0] * width * height, area_range[1] * width * height
    rows, most_rows = _nearest(math.sqrt(least / ratio)), _nearest(math.sqrt(most / ratio))
    if _nearest(most_rows * ratio) > width:
        most_rows = int((width + 0.5 - 1e-7) / ratio)
    most_rows = min(most_rows, height)
    rows = min(rows, most_rows)
    if rows < most_rows:
        rows += words.below(most_rows - rows + 1)
    # Rounding may leave the range by one row.
    if rows * _nearest(rows * ratio) < least:
        rows += 1
    if rows * _nearest(rows * ratio) > most:
        rows -= 1
    columns = _nearest(rows * ratio)
    if not (least <= rows * columns <= most and 0 < columns <= width and 0 < rows <= height):
        return None
    top = words.below(height - rows) if rows < height else 0
    left = words.below(width - columns) if columns < width else 0
    return _Box(left, top, left + columns, top + rows)


def _covers(crop: _Box, boxes: Sequence[_Box], share: float) -> bool:
    """Whether the crop contains at least that share of the area of one of the boxes."""
    return crop.area() >= 1 and any(box.area() >= 1 and crop.shared_with(box) / box.area() >= share for box in boxes)


def _given_boxes(image_size: Array, bounding_boxes: Array, use_image: bool) -> tuple[_Box, list[_Box]]:
    """Returns (the whole image, the boxes in pixels)."""
    if image_size.shape != (3,):
        refuse("image_size must contain 3 elements")
    if bounding_boxes.ndim != 3 or bounding_boxes.shape[2] != 4:
        refuse(f"bounding boxes must have shape [4] or [*, 4], got {list(bounding_boxes.shape)}")
    height, width = int(image_size[0]), int(image_size[1])
    corners = bounding_boxes.reshape(-1, 4)
    outside = ~((corners >= 0) & (corners <= 1))
    if outside.any():
        refuse(f"All bounding box coordinates must be in [0.0, 1.0]: {corners[outside][0]:g}")
    pixels = (corners * np.array([height, width, height, width], np.float32)).astype(np.int32).tolist()
    whole = _Box(0, 0, width, height)
    if not pixels and not use_image:
        refuse(
            "No bounding boxes provided as input. One must enable use_image_if_no_bounding_boxes if you wish to not"
            " provide any bounding boxes."
        )
    return whole, [_Box(x1, y1, x2, y2) for y1, x1, y2, x2 in pixels] or [whole]


def _check_settings(attrs: dict[str, Any]) -> None:
    """Refuses ranges without two positive numbers, and areas above 1."""
    for name, text in (("aspect_ratio_range", "Aspect ratio range"), ("area_range", "Area range")):
        limits = attrs[name]
        if len(limits) != 2:
            refuse(f"{text} field must specify 2 dimensions")
        if min(limits) <= 0:
            refuse(f"{text} must be non-negative: [{limits[0]:g}, {limits[1]:g}]")
    if max(attrs["area_range"]) > 1:
        refuse("Area range must be less then or equal to 1.0: [{:g}, {:g}]".format(*attrs["area_range"]))
    if attrs["max_attempts"] <= 0:
        refuse(f"Max attempts must be non-negative: {attrs['max_attempts']}")


@all_of(sample_op, sample_v2_op).kernel_factory("CPU")
def _sampler(node: Node) -> Callable[..., tuple[Array, ...]]:
    attrs = node.attrs
    _check_settings(attrs)
    seed, seed2 = attrs["seed"], attrs["seed2"]
    if not (seed or seed2):
        seed, seed2 = np.random.SeedSequence().generate_state(2, np.uint64).tolist()
    generator, dtype = PhiloxGenerator(seed, seed2), attrs["T"].numpy
    low, high = attrs["aspect_ratio_range"]

    def kernel(image_size: Array, bounding_boxes: Array, min_object_covered: Array | None = None) -> tuple[Array, ...]:
        share = float(attrs["min_object_covered"] if min_object_covered is None else min_object_covered)
        if share < 0:
            refuse(f"Min object covered must be non-negative: {share:g}")
        whole, boxes = _given_boxes(image_size, bounding_boxes, attrs["use_image_if_no_bounding_boxes"])
        words, chosen = _Words(generator, attrs["max_attempts"]), whole
        for _ in range(attrs["max_attempts"]):
            ratio = words.fraction() * (high - low) + low
            crop = _random_crop(whole.right, whole.bottom, attrs["area_range"], ratio, words)
            if crop is not None and _covers(crop, boxes, share):
                chosen = crop
                break
        corners = np.array([chosen.top, chosen.left, chosen.bottom, chosen.right], np.float32)
        corners /= np.array([whole.bottom, whole.right] * 2, np.float32)
        size = np.array([chosen.bottom - chosen.top, chosen.right - chosen.left, -1]).astype(dtype)
        return np.array([chosen.top, chosen.left, 0], dtype), size, corners.reshape(1, 1, 4)

    return kernel


# ---- drawing ------------------------------------------------------------------------------------

# Yellow, blue, red, lime, purple, olive, maroon, navy, aqua, fuchsia; opaque.
_COLOURS = np.array(
    [[1, 1, 0, 1], [0, 0, 1, 1], [1, 0, 0, 1], [0, 1, 0, 1], [0.5, 0, 0.5, 1], [0.5, 0.5, 0, 1], [0.5, 0, 0, 1],
     [0, 0, 0.5, 1], [0, 1, 1, 1], [1, 0, 1, 1]], np.float32,
)  # fmt: skip


@all_of(draw_op, draw_v2_op).kernel("CPU")
def _draw(images: Array, boxes: Array, colors: Array | None = None) -> Array:
    depth = images.shape[3]
    if len(images) != len(boxes):
        refuse("The batch sizes should be the same")
    if depth not in (1, 3, 4):
        refuse("Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA)")
    if boxes.shape[2] != 4:
        refuse(f"The size of the third dimension of the box must be 4. Received: {boxes.shape[2]}")
    if colors is None or colors.size == 0:
        colors = _COLOURS.copy()
        colors[:, 0] = 1 if depth == 1 else colors[:, 0]
    elif colors.ndim != 2 or colors.shape[1] < depth:
        refuse(f"colors must have equal or more channels than the image provided: {list(colors.shape)}")
    canvas = images.copy()
    limits = np.array([images.shape[1] - 1, images.shape[2] - 1] * 2, np.float32)
    for image, corners in zip(canvas, (boxes * limits).astype(np.int64).tolist(), strict=True):
        for i, box in enumerate(corners):
            _outline(image, box, colors[i % len(colors), :depth].astype(images.dtype))
    return canvas


def _outline(image: Array, box: Sequence[int], colour: Array) -> None:
    """Draws the sides of one box that are in the image; ignores a box whose ends are in the wrong order."""
    top, left, bottom, right = box
    height, width = image.shape[:2]
    if top > bottom or left > right or top >= height or bottom < 0 or left >= width or right < 0:
        return
    rows, columns = slice(max(top, 0), min(bottom, height - 1) + 1), slice(max(left, 0), min(right, width - 1) + 1)
    for row in (row for row in (top, bottom) if 0 <= row < height):
        image[row, columns] = colour
    for column in (column for column in (left, right) if 0 <= column < width):
        image[rows, column] = colour


# ---- Public functions of sampled and drawn boxes -------------------------------------------------------------------


@export("tf.image.sample_distorted_bounding_box")
def sample_distorted_bounding_box(
    image_size: TensorLike, bounding_boxes: TensorLike, seed: int | None = None, seed2: int | None = None,
    min_object_covered: TensorLike = 0.1, aspect_ratio_range: Sequence[float] | None = None,
    area_range: Sequence[float] | None = None, max_attempts: int | None = None,
    use_image_if_no_bounding_boxes: bool | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """A random part of an image that shows enough of an object: (begin, size, bboxes).

    TF name: ``tf.image.sample_distorted_bounding_box``. ``begin`` and ``size``, (3,), are for `tf.slice`;
    ``bboxes``, (1, 1, 4), is for `draw_bounding_boxes`.

    Args:
      image_size: (3,), ``[height, width, channels]``.
      bounding_boxes: (batch, count, 4), ``[y1, x1, y2, x2]`` in units of the image, from 0 to 1.
      seed, seed2: of the random numbers; without them they differ from run to run.
      min_object_covered: the share of the area of one of the boxes that must be shown.
      aspect_ratio_range: of width to height, default ``[0.75, 1.33]``.
      area_range: as shares of the image, default ``[0.05, 1]``.
      max_attempts: after this many attempts (default 100) the result is the whole image.
      use_image_if_no_bounding_boxes: take the whole image as the box if there are none; else that is an error.
    """
    settings = {
        "seed": seed,
        "seed2": seed2,
        "aspect_ratio_range": aspect_ratio_range,
        "area_range": area_range,
        "max_attempts": max_attempts,
        "use_image_if_no_bounding_boxes": use_image_if_no_bounding_boxes,
    }
    given = {key: value for key, value in settings.items() if value is not None}
    with name_scope(name, "sample_distorted_bounding_box"):
        return sample_v2_op(image_size, bounding_boxes, min_object_covered, name=name, **given)


@export("tf.image.draw_bounding_boxes")
def draw_bounding_boxes(
    images: TensorLike, boxes: TensorLike, name: str | None = None, colors: TensorLike | None = None
) -> Tensor:
    """Copies of images with the outlines of boxes (``tf.image.draw_bounding_boxes``).

    Args:
      images: (batch, rows, columns, channels), floats from 0 to 1.
      boxes: (batch, count, 4), ``[y1, x1, y2, x2]`` in units of the image.
      colors: (count, channels), used in turn; default ten colours.
    """
    if colors is None:
        return draw_op(images, boxes, name=name)
    return draw_v2_op(images, boxes, colors, name=name)
