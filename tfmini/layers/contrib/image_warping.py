"""``tf.contrib.image``: images bent by flows of their pixels, and splines between points."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.array.diagonals import eye, matrix_diag_part
from tfmini.ops.array.filling import ones_like, zeros
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat, stack, unstack
from tfmini.ops.array.layout import meshgrid, transpose
from tfmini.ops.array.shape import expand_dims, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.checks import assert_greater_equal
from tfmini.ops.linear_systems import matrix_solve
from tfmini.ops.math.elementwise import maximum, minimum
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.math.unary import floor, log, sqrt, square

_LEAST = 1e-10  # of a squared distance, for finite slopes
_FLOAT = dtypes.float32


@export("tf.contrib.image.dense_image_warp")
def dense_image_warp(image: TensorLike, flow: TensorLike, name: str | None = "dense_image_warp") -> Tensor:
    """Images whose pixels come from elsewhere (``tf.contrib.image.dense_image_warp``).

    Pixel (row, column) of the result is that of the image at (row, column) - ``flow``, between its four neighbours;
    outside of the image it is the nearest one.

    Args:
      image: [n, rows, columns, channels], floating.
      flow: [n, rows, columns, 2], floating, of its own dtype.

    Returns:
      As ``image``.

    Raises:
      ValueError: for other shapes.
      InvalidArgumentError: in a step, for an image of less than 2 rows or columns.
    """
    with name_scope(name, "dense_image_warp"):
        images, flows = convert_to_tensor(image), convert_to_tensor(flow)
        fixed = images.shape.as_list()
        if len(fixed) != 4:
            raise ValueError(f"image should be [n, rows, columns, channels], but its shape is {images.shape}")
        batch, height, width, channels = unstack(shape_of(images))
        columns, rows = meshgrid(range_of(width), range_of(height))
        places = cast(stack([rows, columns], 2), flows.dtype)[None] - flows
        found = reshape(_between(images, reshape(places, stack([batch, height * width, 2]))),
                        stack([batch, height, width, channels]))  # fmt: skip
        found.set_shape(fixed)
        return found


def _between(images: Tensor, places: Tensor) -> Tensor:
    """The values of images at [n, places, 2], between the pixels around, [n, places, channels]."""
    with name_scope("interpolate_bilinear"):
        batch, height, width, channels = unstack(shape_of(images))
        checks = [assert_greater_equal(size, 2, message=f"Grid {name} must be at least 2.")
                  for size, name in ((height, "height"), (width, "width"))]  # fmt: skip
        count = shape_of(places)[1]
        with control_dependencies(checks):
            parts = [_neighbours(part, size) for part, size in zip(unstack(places, axis=2, num=2), (height, width))]
        (top, low, down), (left, right, across) = parts
        pixels = reshape(images, stack([batch * height * width, channels]))
        starts = reshape(range_of(batch) * height * width, stack([batch, 1]))

        def at(row: Tensor, column: Tensor) -> Tensor:
            flat = reshape(starts + row * width + column, stack([batch * count]))
            return reshape(gather(pixels, flat), stack([batch, count, channels]))

        down, across = (expand_dims(cast(part, images.dtype), 2) for part in (down, across))
        upper, lower = (at(row, left) + across * (at(row, right) - at(row, left)) for row in (top, low))
        return upper + down * (lower - upper)


def _neighbours(places: Tensor, size: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The pixels before and behind places on an axis, int32, and how far behind the former these are, 0 to 1."""
    last = cast(size - 2, places.dtype)
    before = minimum(maximum(constant(0.0, places.dtype), floor(places)), last)
    number = cast(before, dtypes.int32)
    share = minimum(maximum(constant(0.0, places.dtype), places - before), constant(1.0, places.dtype))
    return number, number + 1, share


@export("tf.contrib.image.interpolate_spline")
def interpolate_spline(
    train_points: TensorLike, train_values: TensorLike, query_points: TensorLike, order: float,
    regularization_weight: float = 0.0, name: str | None = "interpolate_spline",
) -> Tensor:  # fmt: skip
    """Values between points, by a polyharmonic spline (``tf.contrib.image.interpolate_spline``).

    The spline is the sum of a linear function and of one function of the distance from each point: r of order 1,
    r² log r of order 2 (a thin plate), r³ of order 3, and so on.

    Args:
      train_points: [n, points, d], floating, with a known d.
      train_values: [n, points, k] of the same dtype, with a known k.
      query_points: [n, queries, d].
      order: a Python number.
      regularization_weight: above zero the spline is smoother, and misses the values.

    Returns:
      [n, queries, k].

    Raises:
      ValueError: for unknown d or k, and for other shapes.
      InvalidArgumentError: in a step, when the points do not determine the spline.
    """
    with name_scope(name, "interpolate_spline"):
        points, values, queries = (convert_to_tensor(part, dtypes.float32 if not isinstance(part, Tensor) else None)
                                   for part in (train_points, train_values, query_points))  # fmt: skip
        with name_scope("solve"):
            weights, slopes = _solved(points, values, order, regularization_weight)
        with name_scope("predict"):
            near = matmul(_phi(_squared_distances(queries, points), order), weights)
            return near + matmul(_with_one(queries), slopes)


def _solved(points: Tensor, values: Tensor, order: float, smooth: float) -> tuple[Tensor, Tensor]:
    """The weights of the points, [n, points, k], and the linear function, [n, d + 1, k]."""
    d: Any = points.shape[-1].value if points.shape.ndims else None
    k: Any = values.shape[-1].value if values.shape.ndims else None
    for size, what in ((d, "input points (d)"), (k, "output values (k)")):
        if size is None:
            raise ValueError(f"The dimensionality of the {what} must be statically-inferrable.")
    batch, count, _ = unstack(shape_of(points), num=3)
    near = _phi(_squared_distances(points, points), order)
    if smooth > 0:
        near += smooth * expand_dims(eye(count, dtype=points.dtype), 0)
    linear = _with_one(points)
    none = zeros(stack([batch, d + 1, d + 1]), points.dtype)
    left = concat([concat([near, linear], 2), concat([transpose(linear, [0, 2, 1]), none], 2)], 1)
    right = concat([values, zeros(stack([batch, d + 1, k]), values.dtype)], 1)
    found = matrix_solve(left, right)
    return found[:, :count], found[:, count:]


def _with_one(points: Tensor) -> Tensor:
    return concat([points, ones_like(points[..., :1])], 2)


def _squared_distances(first: Tensor, second: Tensor) -> Tensor:
    """Between all points of two lists, [n, first, second]."""
    between = matmul(first, second, adjoint_b=True)
    # Each point is then at no distance from itself, whatever the rounding.
    same = first is second
    sums = [matrix_diag_part(between)] * 2 if same else [reduce_sum(square(part), 2) for part in (first, second)]
    return expand_dims(sums[0], 2) - 2.0 * between + expand_dims(sums[1], 1)


def _phi(squares: Tensor, order: float) -> Tensor:
    """The spline's function of a distance, from its square."""
    with name_scope("phi"):
        some = maximum(squares, constant(_LEAST, squares.dtype))
        if order == 1:
            return sqrt(some)
        if order == 2:
            return 0.5 * squares * log(some)
        if order == 4:
            return 0.5 * square(squares) * log(some)
        if order % 2 == 0:
            return 0.5 * some ** (0.5 * order) * log(some)
        return some ** (0.5 * order)


@export("tf.contrib.image.sparse_image_warp")
def sparse_image_warp(
    image: TensorLike, source_control_point_locations: TensorLike, dest_control_point_locations: TensorLike,
    interpolation_order: float = 2, regularization_weight: float = 0.0, num_boundary_points: int = 0,
    name: str | None = "sparse_image_warp",
) -> Any:  # fmt: skip
    """Images bent so that some points go elsewhere (``tf.contrib.image.sparse_image_warp``).

    A spline between the points gives the flow of `dense_image_warp`.

    Args:
      image: [n, rows, columns, channels], float32, of known n, rows and columns.
      source_control_point_locations, dest_control_point_locations: [n, points, 2], float32, (row, column) of points in
        the image and where they go.
      interpolation_order, regularization_weight: as in `interpolate_spline`.
      num_boundary_points: of each side of the image, that stay: 1 are the corners, 2 also the middles of the sides.

    Returns:
      ``(warped_image, flow_field)``: as ``image``, and [n, rows, columns, 2].

    Raises:
      ValueError, TypeError: for other shapes and dtypes.
    """
    images = convert_to_tensor(image)
    sources, ends = (convert_to_tensor(part) for part in (source_control_point_locations, dest_control_point_locations))
    flows = ends - sources
    with name_scope(name, "sparse_image_warp"):
        sizes: Any = images.shape.as_list()
        batch, height, width, _ = sizes
        if num_boundary_points > 0:
            edges = _on_boundary(height, width, num_boundary_points)
            ends = concat([ends, constant(np.repeat(edges[None], batch, 0), _FLOAT)], 1)
            flows = concat([flows, zeros([batch, *edges.shape])], 1)
        grid = np.moveaxis(np.indices((height, width)), 0, -1).reshape(1, -1, 2)
        queries = constant(np.repeat(grid, batch, 0), images.dtype)
        field = interpolate_spline(ends, flows, queries, interpolation_order, regularization_weight)
        flow = reshape(field, [batch, height, width, 2])
        return dense_image_warp(images, flow), flow


def _on_boundary(height: int, width: int, count: int) -> np.ndarray[Any, Any]:
    """Points on the sides of an image, which divide each of these into so many parts."""
    rows, columns = (np.linspace(0, size - 1, count + 1) for size in (height, width))
    grid = [(row, column) for row in rows for column in columns
            if row in (0, height - 1) or column in (0, width - 1)]  # fmt: skip
    return np.array(grid)
