"""``tf.contrib.image``: images turned, shifted, or seen from elsewhere, by projective transforms."""

from __future__ import annotations

from functools import reduce
from typing import Any

from tfmini import dtypes
from tfmini.core_types import ShapeLike, TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.filling import ones, ones_like, zeros_like
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.gather import gather_nd
from tfmini.ops.array.identity import cast, stop_gradient
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.layout import meshgrid
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import broadcast_to, expand_dims, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.custom_gradient import custom_gradient
from tfmini.ops.linear_systems import matrix_inverse
from tfmini.ops.math.comparison import greater_equal, less, logical_and
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.sums import clip_by_value
from tfmini.ops.math.unary import abs as absolute
from tfmini.ops.math.unary import cos, floor, sign, sin

_IMAGE_TYPES = (dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.float16, dtypes.float32, dtypes.float64)
_FLOAT = dtypes.float32


def _rows(transforms: TensorLike) -> Any:
    """Transforms as rows, [n, 8]."""
    found = convert_to_tensor(transforms, _FLOAT, name="transforms")
    if found.shape.ndims not in (1, 2):
        raise ValueError(f"Transforms should be 1D or 2D, got: {transforms!r}")
    if not found.shape[-1:].is_compatible_with([8]):
        raise ValueError(f"Transforms should have 8 numbers each, got: {transforms!r}")
    return found[None] if found.shape.ndims == 1 else found


@export("tf.contrib.image.flat_transforms_to_matrices")
def flat_transforms_to_matrices(transforms: TensorLike) -> Any:
    """The matrices of transforms, [n, 3, 3] (``tf.contrib.image.flat_transforms_to_matrices``).

    Args:
      transforms: [8], or [n, 8]; see `transform`.
    """
    with name_scope("flat_transforms_to_matrices"):
        rows = reshape(_rows(transforms), [-1, 8])
        return reshape(concat([rows, ones([shape_of(rows)[0], 1])], 1), [-1, 3, 3])


@export("tf.contrib.image.matrices_to_flat_transforms")
def matrices_to_flat_transforms(transform_matrices: TensorLike) -> Any:
    """The transforms of matrices, [n, 8] (``tf.contrib.image.matrices_to_flat_transforms``).

    Args:
      transform_matrices: [3, 3], or [n, 3, 3].
    """
    with name_scope("matrices_to_flat_transforms"):
        matrices = convert_to_tensor(transform_matrices)
        if matrices.shape.ndims not in (2, 3):
            raise ValueError(f"Matrices should be 2D or 3D, got: {matrices}")
        rows = reshape(matrices, [-1, 9])
        return (rows / rows[:, 8:9])[:, :8]


@export("tf.contrib.image.compose_transforms")
def compose_transforms(*transforms: TensorLike) -> Any:
    """One transform in place of several, one after the other (``tf.contrib.image.compose_transforms``)."""
    if not transforms:
        raise AssertionError("transforms cannot be empty")
    with name_scope("compose_transforms"):
        return matrices_to_flat_transforms(reduce(matmul, map(flat_transforms_to_matrices, transforms)))


@export("tf.contrib.image.angles_to_projective_transforms")
def angles_to_projective_transforms(
    angles: TensorLike, image_height: TensorLike, image_width: TensorLike, name: str | None = None
) -> Any:
    """Rotations around the centre (``tf.contrib.image.angles_to_projective_transforms``).

    Args:
      angles: counterclockwise, in radians: a scalar, or [n].
      image_height, image_width: of the images, floats.

    Returns:
      [n, 8].
    """
    with name_scope(name, "angles_to_projective_transforms"):
        angles = convert_to_tensor(angles, _FLOAT)
        if angles.shape.ndims not in (0, 1):
            raise TypeError("Angles should have rank 0 or 1.")
        turns = reshape(angles, [-1])
        x, y = (cast(convert_to_tensor(size), _FLOAT) - 1.0 for size in (image_width, image_height))
        c, s, none = cos(turns), sin(turns), zeros_like(turns)
        return stack([c, -s, (x - (c * x - s * y)) / 2.0, s, c, (y - (s * x + c * y)) / 2.0, none, none], 1)


@export("tf.contrib.image.translations_to_projective_transforms")
def translations_to_projective_transforms(translations: TensorLike, name: str | None = None) -> Any:
    """Shifts by (dx, dy), to the right and down (``tf.contrib.image.translations_to_projective_transforms``).

    Args:
      translations: [2], or [n, 2].

    Returns:
      [n, 8].
    """
    with name_scope(name, "translations_to_projective_transforms"):
        shifts = convert_to_tensor(translations, _FLOAT)
        if shifts.shape.ndims not in (1, 2):
            raise TypeError("Translations should have rank 1 or 2.")
        x, y = (reshape(shifts, [-1, 2])[:, i] for i in (0, 1))
        none, one = zeros_like(x), ones_like(x)
        return stack([one, none, -x, none, one, -y, none, none], 1)


@export("tf.contrib.image.rotate")
def rotate(images: TensorLike, angles: TensorLike, interpolation: str = "NEAREST", name: str | None = None) -> Any:
    """Turns images counterclockwise around their centres (``tf.contrib.image.rotate``).

    Args:
      images, interpolation: as in `transform`.
      angles: in radians, a scalar, or one for each image.
    """
    with name_scope(name, "rotate"):
        images = convert_to_tensor(images)
        batch = _as_batch(images)
        sizes = shape_of(batch)
        return transform(images, angles_to_projective_transforms(angles, sizes[1], sizes[2]), interpolation)


@export("tf.contrib.image.translate")
def translate(
    images: TensorLike, translations: TensorLike, interpolation: str = "NEAREST", name: str | None = None
) -> Any:
    """Shifts images by (dx, dy), to the right and down (``tf.contrib.image.translate``).

    Args:
      images, interpolation: as in `transform`.
      translations: [2], or [n, 2] with one for each image.
    """
    with name_scope(name, "translate"):
        return transform(images, translations_to_projective_transforms(translations), interpolation)


def _as_batch(images: Tensor) -> Any:
    """Images as [n, rows, columns, channels]."""
    if images.dtype.base_dtype not in _IMAGE_TYPES:
        raise TypeError(f"Invalid dtype {images.dtype}.")
    rank = images.shape.ndims
    if rank is None:
        raise TypeError("image_or_images rank must be statically known")
    if rank not in (2, 3, 4):
        raise TypeError("Images should have rank between 2 and 4.")
    return images[None, :, :, None] if rank == 2 else images[None] if rank == 3 else images


@export("tf.contrib.image.transform")
def transform(
    images: TensorLike, transforms: TensorLike, interpolation: str = "NEAREST", output_shape: ShapeLike | Tensor = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Images seen by projective transforms (``tf.contrib.image.transform``).

    Args:
      images: [n, rows, columns, channels], [rows, columns, channels] or [rows, columns].
      transforms: [8], or [n, 8]: a point (x, y) of the result is that of the image at
        ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k) with k = c0 x + c1 y + 1; zero outside of it.
      interpolation: NEAREST or BILINEAR.
      output_shape: [rows, columns] of the result; default: those of the images.

    Raises:
      TypeError: when the images have another type or rank.
      ValueError: for another interpolation, and for transforms or an output shape of other lengths.
    """
    if interpolation not in ("NEAREST", "BILINEAR"):
        raise ValueError(f"Unsupported interpolation {interpolation!r}: NEAREST and BILINEAR are known.")
    with name_scope(name, "transform"):
        images = convert_to_tensor(images, name="images")
        batch = _as_batch(images)
        sizes = shape_of(batch)
        size = sizes[1:3] if output_shape is None else convert_to_tensor(output_shape, dtypes.int32)
        if not size.shape.is_compatible_with([2]):
            raise ValueError(f"output_shape should be the rows and columns of the result, got: {output_shape!r}")
        rows = broadcast_to(stop_gradient(_rows(transforms)), stack([sizes[0], 8]))

        @custom_gradient
        def transformed(pixels: Tensor) -> Any:
            # TensorFlow's gradient is that of the other way round: the gradient, seen by the inverse transforms.
            back = lambda: matrices_to_flat_transforms(matrix_inverse(flat_transforms_to_matrices(rows)))  # noqa: E731
            return _seen(pixels, rows, size, interpolation), lambda dy: _seen(dy, back(), sizes[1:3], interpolation)

        found = transformed(batch)
        fixed = batch.shape.as_list()
        if output_shape is not None:
            fixed[1:3] = output_shape if isinstance(output_shape, (list, tuple)) else [None, None]
        found.set_shape(fixed)
        return found[0, :, :, 0] if images.shape.ndims == 2 else found[0] if images.shape.ndims == 3 else found


def _seen(batch: Tensor, rows: Tensor, size: Tensor, interpolation: str) -> Any:
    """Images by transforms, [n, 8], in a size of their own."""
    x, y = (expand_dims(cast(axis, _FLOAT), 0) for axis in meshgrid(range_of(size[1]), range_of(size[0])))
    a, b, c = (rows[:, i : i + 3, None, None] for i in (0, 3, 6))
    k = c[:, 0] * x + c[:, 1] * y + 1.0
    u, v = ((part[:, 0] * x + part[:, 1] * y + part[:, 2]) / k for part in (a, b))
    return _nearest(batch, u, v) if interpolation == "NEAREST" else _bilinear(batch, u, v)


def _pixels(batch: Tensor, u: Tensor, v: Tensor) -> Any:
    """The pixels at whole coordinates, zero outside."""
    sizes = shape_of(batch)
    height, width = sizes[1], sizes[2]
    x, y = cast(clip_by_value(u, -1e6, 1e6), dtypes.int32), cast(clip_by_value(v, -1e6, 1e6), dtypes.int32)
    inside = logical_and(logical_and(greater_equal(x, 0), less(x, width)),
                         logical_and(greater_equal(y, 0), less(y, height)))  # fmt: skip
    number = broadcast_to(range_of(sizes[0])[:, None, None], shape_of(x))
    places = stack([number, where(inside, y, zeros_like(y)), where(inside, x, zeros_like(x))], -1)
    found = gather_nd(batch, places)
    mask = broadcast_to(inside[..., None], shape_of(found))
    return where(mask, found, zeros_like(found))


def _nearest(batch: Tensor, u: Tensor, v: Tensor) -> Any:
    # Halves go away from zero, as C rounds.
    return _pixels(batch, *(sign(part) * floor(absolute(part) + 0.5) for part in (u, v)))


def _bilinear(batch: Tensor, u: Tensor, v: Tensor) -> Any:
    left, top = floor(u), floor(v)
    right, below = (u - left)[..., None], (v - top)[..., None]
    parts = []
    for dx, x_share in ((0, 1.0 - right), (1, right)):
        for dy, y_share in ((0, 1.0 - below), (1, below)):
            parts.append(cast(_pixels(batch, left + dx, top + dy), _FLOAT) * x_share * y_share)
    return cast(sum(parts[1:], parts[0]), batch.dtype)
