"""Random crops that show enough of an object (``sample_distorted_bounding_box``), and ``draw_bounding_boxes``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfmini.export import export
from tfmini.graph.families import Tensor, all_of, name_scope, op, sized
from tfmini.numerics.philox import PhiloxGenerator, float32_of
from tfmini.ops.array.kernel_arguments import refuse

Array = np.ndarray[Any, Any]

_SETTINGS = """
    T: {uint8, int8, int16, int32, int64}
    seed: int = 0
    seed2: int = 0
    aspect_ratio_range: list(float) = [0.75, 1.33]
    area_range: list(float) = [0.05, 1]
    max_attempts: int = 100
    use_image_if_no_bounding_boxes: bool = false"""
sample_op = op(
    "SampleDistortedBoundingBox(image_size: T, bounding_boxes: float) -> begin: T, size: T, bboxes: float"
    + "\n    min_object_covered: float = 0.1" + _SETTINGS,
    stateful=True,
)  # fmt: skip
sample_v2_op = op(
    "SampleDistortedBoundingBoxV2(image_size: T, bounding_boxes: float, min_object_covered: float)"
    " -> begin: T, size: T, bboxes: float" + _SETTINGS,
    stateful=True,
)
all_of(sample_op, sample_v2_op).shape(sized("_, _ _ _ -> 3, 3, 1 1 4"))
draw_op = op("DrawBoundingBoxes(images: T, boxes: float) -> output: T; T: {float, half} = DT_FLOAT")
draw_v2_op = op("DrawBoundingBoxesV2(images: T, boxes: float, colors: float) -> output: T; T: {float, half} = DT_FLOAT")
all_of(draw_op, draw_v2_op).shape(sized("a b c d, _ _ _ -> a b c d"))
all_of(sample_op, sample_v2_op, draw_op, draw_v2_op).not_differentiable()

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


def _check_settings(attrs: Any) -> None:
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
def _sampler(node: Any) -> Callable[..., tuple[Array, ...]]:
    attrs = node.attrs
    _check_settings(attrs)
    seed, seed2 = attrs["seed"], attrs["seed2"]
    if not (seed or seed2):
        seed, seed2 = np.random.SeedSequence().generate_state(2, np.uint64).tolist()
    generator, dtype = PhiloxGenerator(seed, seed2), attrs["T"].numpy
    low, high = attrs["aspect_ratio_range"]

    def kernel(image_size: Array, bounding_boxes: Array, min_object_covered: Any = None) -> tuple[Array, ...]:
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


# ---- public functions ---------------------------------------------------------------------------


@export("tf.image.sample_distorted_bounding_box")
def sample_distorted_bounding_box(
    image_size: Any, bounding_boxes: Any, seed: int | None = None, seed2: int | None = None,
    min_object_covered: Any = 0.1, aspect_ratio_range: Sequence[float] | None = None,
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
def draw_bounding_boxes(images: Any, boxes: Any, name: str | None = None, colors: Any = None) -> Tensor:
    """Copies of images with the outlines of boxes (``tf.image.draw_bounding_boxes``).

    Args:
      images: (batch, rows, columns, channels), floats from 0 to 1.
      boxes: (batch, count, 4), ``[y1, x1, y2, x2]`` in units of the image.
      colors: (count, channels), used in turn; default ten colours.
    """
    if colors is None:
        return draw_op(images, boxes, name=name)
    return draw_v2_op(images, boxes, colors, name=name)
