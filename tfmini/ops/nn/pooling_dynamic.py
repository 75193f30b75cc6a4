"""Pooling whose windows are tensors (``MaxPoolV2``) or drawn at random (fractional); dilation and erosion of images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, PaddingLike, TensorLike
from tfmini.errors import UnimplementedError
from tfmini.export import either, export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, name_scope, op, same_shape, second_shape
from tfmini.graph.node import Node
from tfmini.graph.scoping import get_seed
from tfmini.memory import check_room
from tfmini.numerics import philox
from tfmini.numerics.windows import Axes, lowest, padded
from tfmini.ops.array.constant_value import constant_value, constant_value_as_shape
from tfmini.ops.array.filling import zeros_as
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.layout import reverse
from tfmini.ops.array.shape import shape
from tfmini.ops.math.elementwise import negative
from tfmini.ops.nn.pooling import max_pool_grad_grad_of, max_pool_grad_of, max_pool_of, pooled_shape
from tfmini.ops.nn.windows import Windows, check_lengths, spatial_sequence
from tfmini.shapes import RawShape, merge_dims, merge_raw, with_rank

_POOL_ATTRS = "; padding: {'SAME', 'VALID'}; data_format: {'NHWC', 'NCHW'} = 'NHWC'; T: realnumbertype"
_GRAD = "(orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32) -> output: T"

max_pool_v2_op = op(
    "MaxPoolV2(input: T, ksize: int32, strides: int32) -> output: T"
    "; T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = DT_FLOAT"
    "; padding: {'SAME', 'VALID'}; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"
)
max_pool_v2_op.kernel_factory("CPU")(
    lambda node: lambda image, ksize, strides: max_pool_of(_sized(node.attrs, ksize, strides))(image)
)
max_pool_grad_v2_op = op("MaxPoolGradV2" + _GRAD + _POOL_ATTRS + " = DT_FLOAT")
max_pool_grad_v2_op.shape(lambda node: [with_rank(node.inputs[0].raw_shape, 4)])
max_pool_grad_grad_v2_op = op("MaxPoolGradGradV2" + _GRAD + _POOL_ATTRS)
max_pool_grad_grad_v2_op.shape(lambda node: [merge_raw(with_rank(node.inputs[1].raw_shape, 4), None)])


@max_pool_v2_op.shape
def _shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[0].raw_shape, 4)
    sizes = [constant_value(t) for t in node.inputs[1:]]
    if any(size is None for size in sizes):
        return [(None,) * 4]
    attrs = {**node.attrs, "ksize": sizes[0].tolist(), "strides": sizes[1].tolist()}  # type: ignore[union-attr]
    return [pooled_shape(node, attrs)]


def _sized(attrs: Mapping[str, Any], ksize: Array, strides: Array) -> dict[str, Any]:
    """The attrs of the op with fixed window and strides."""
    for name, sizes in (("ksize", ksize), ("strides", strides)):
        if sizes.shape != (4,):
            refuse(f"Sliding window {name} field must specify 4 dimensions")
    return {**attrs, "ksize": ksize.tolist(), "strides": strides.tolist()}


@max_pool_grad_v2_op.kernel_factory("CPU")
def _grad_kernel(node: Node) -> Callable[..., Array]:
    def grad_kernel(image: Array, result: Array, grad: Array, ksize: Array, strides: Array) -> Array:
        return max_pool_grad_of(_sized(node.attrs, ksize, strides))(image, result, grad)

    return grad_kernel


@max_pool_grad_grad_v2_op.kernel_factory("CPU")
def _grad_grad_kernel(node: Node) -> Callable[..., Array]:
    def grad_grad_kernel(image: Array, result: Array, grad: Array, ksize: Array, strides: Array) -> Array:
        return max_pool_grad_grad_of(_sized(node.attrs, ksize, strides))(image, result, grad)

    return grad_grad_kernel


def _attrs(node: Operation) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("padding", "data_format")}


@max_pool_v2_op.gradient
def _gradient(node: Operation, grad: Tensor) -> list[Any]:
    image, ksize, strides = node.inputs
    return [max_pool_grad_v2_op(image, node.outputs[0], grad, ksize, strides, **_attrs(node)), None, None]


@max_pool_grad_v2_op.gradient
def _grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    image, result, _, ksize, strides = node.inputs
    found = max_pool_grad_grad_v2_op(image, result, grad, ksize, strides, **_attrs(node))
    return [zeros_as(image), zeros_as(result), found, None, None]


@max_pool_grad_grad_v2_op.gradient
def _grad_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    image, result, _, ksize, strides = node.inputs
    found = max_pool_grad_v2_op(image, result, grad, ksize, strides, **_attrs(node))
    return [zeros_as(image), zeros_as(result), found, None, None]


# ---- Grey-scale dilation and erosion of images ---------------------------------------------------------------------

_DILATION_ATTRS = "; T: realnumbertype; strides: list(int) >= 4; rates: list(int) >= 4; padding: {'SAME', 'VALID'}"
dilation_op = op("Dilation2D(input: T, filter: T) -> output: T" + _DILATION_ATTRS)
dilation_input_op = op(
    "Dilation2DBackpropInput(input: T, filter: T, out_backprop: T) -> in_backprop: T" + _DILATION_ATTRS,
    shape=same_shape,
    differentiable=None,
)
dilation_filter_op = op(
    "Dilation2DBackpropFilter(input: T, filter: T, out_backprop: T) -> filter_backprop: T" + _DILATION_ATTRS,
    shape=second_shape,
    differentiable=None,
)


@dilation_op.shape
def _dilation_shape(node: Operation) -> list[RawShape]:
    image, window = with_rank(node.inputs[0].raw_shape, 4), with_rank(node.inputs[1].raw_shape, 3)
    for name in ("strides", "rates"):
        values = node.attrs[name]
        check_lengths(node.type, 4, **{name: values})
        if values[0] != 1 or values[3] != 1:
            raise ValueError(f"Current implementation does not yet support {name} in the batch and depth dimensions.")
    pixels = Windows(node.attrs, "rates").out_sizes(image[1:3], window[:2])
    return [(image[0], *pixels, merge_dims(image[3], window[2]))]


def _placer(node: Node) -> Callable[..., tuple[Array, Axes]]:
    """A function of image, filter and gradient: it checks them, and returns the image with its border and windows."""
    windows = Windows(node.attrs, "rates")

    def place(image: Array, window: Array, grad: Array | None = None) -> tuple[Array, Axes]:
        if image.ndim != 4 or window.ndim != 3:
            shapes = f"{list(image.shape)} and {list(window.shape)}"
            refuse(f"input must be 4-dimensional and filter 3-dimensional, got {shapes}")
        if image.shape[3] != window.shape[2]:
            refuse(f"input and filter must have the same depth: {image.shape[3]} vs {window.shape[2]}")
        axes = windows.axes(image.shape[1:3], window.shape[:2])
        wanted = (len(image), *axes.out, image.shape[3])
        if grad is not None and grad.shape != wanted:
            refuse(f"out_backprop has incompatible size: {list(grad.shape)}, {list(wanted)} is expected")
        return padded(image, axes, np.iinfo(image.dtype).min if image.dtype.kind in "iu" else -np.inf), axes

    return place


def _largest(source: Array, window: Array, axes: Axes) -> tuple[Array, Array]:
    """The largest sum of each window, and the number of the first offset that has it."""
    best: Any = None
    inside = None if source.dtype.kind not in "iu" or not axes.border else _inside(source, axes)
    for number, (place, where) in enumerate(axes.elements()):
        here = source[where] + window[place]
        if inside is not None:  # the least integer plus something is not the least any more
            here = np.where(inside[where], here, np.iinfo(source.dtype).min)
        if best is None:
            best, first = here, np.zeros(here.shape, np.int32)
            continue
        better = here > best
        np.copyto(best, here, where=better)
        first[better] = number
    return best, first


def _inside(source: Array, axes: Axes) -> Array:
    """Where ``source`` is not its border; one image and channel stand for all."""
    found = np.zeros((1, *axes.full, 1), bool)
    found[axes.inner] = True
    return found


@dilation_op.kernel_factory("CPU")
def _dilation_factory(node: Node) -> Callable[[Array, Array], Array]:
    place = _placer(node)

    def dilation(image: Array, window: Array) -> Array:
        source, axes = place(image, window)
        return _largest(source, window, axes)[0]

    return dilation


@dilation_input_op.kernel_factory("CPU")
def _input_factory(node: Node) -> Callable[[Array, Array, Array], Array]:
    place = _placer(node)

    def backprop(image: Array, window: Array, grad: Array) -> Array:
        source, axes = place(image, window, grad)
        _, first = _largest(source, window, axes)
        total = np.zeros(source.shape, grad.dtype)
        for number, (_, where) in enumerate(axes.elements()):
            total[where] += np.where(first == number, grad, 0)
        return total[axes.inner]

    return backprop


@dilation_filter_op.kernel_factory("CPU")
def _filter_factory(node: Node) -> Callable[[Array, Array, Array], Array]:
    place = _placer(node)

    def backprop(image: Array, window: Array, grad: Array) -> Array:
        source, axes = place(image, window, grad)
        _, first = _largest(source, window, axes)
        total = np.zeros_like(window)
        for number, (element, _) in enumerate(axes.elements()):
            total[element] = np.where(first == number, grad, 0).sum(axis=(0, 1, 2))
        return total

    return backprop


@dilation_op.gradient
def _dilation_gradient(node: Operation, grad: Tensor) -> list[Any]:
    attrs = {name: node.attrs[name] for name in ("strides", "rates", "padding")}
    return [dilation_input_op(*node.inputs, grad, **attrs), dilation_filter_op(*node.inputs, grad, **attrs)]


@export("tf.nn.dilation2d")
def dilation2d(
    input: TensorLike, filter: TensorLike | None = None, strides: int | Sequence[int] | None = None,
    rates: TensorLike | None = None, padding: PaddingLike | None = None, name: str | None = None,
    filters: TensorLike | None = None, dilations: int | Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The maximum of pixel plus filter over each window, channel by channel (``tf.nn.dilation2d``).

    Args:
      input: [batch, rows, columns, channels].
      filter: [rows, columns, channels].
      strides, rates: ``[1, rows, columns, 1]``.
      padding: "SAME" or "VALID".
    """
    return dilation_op(
        input, either("filters", filters, "filter", filter), strides=strides,
        rates=either("dilations", dilations, "rates", rates), padding=padding, name=name,
    )  # fmt: skip


@export("tf.nn.erosion2d")
def erosion2d(
    value: TensorLike, kernel: TensorLike, strides: int | Sequence[int], rates: TensorLike, padding: PaddingLike,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The minimum of pixel minus kernel over each window (``tf.nn.erosion2d``); see `dilation2d`."""
    with name_scope(name, "erosion2d", [value, kernel]) as scope:
        mirrored = reverse(kernel, [0, 1])
        dilated = dilation_op(negative(value), mirrored, strides=strides, rates=rates, padding=padding)
        return negative(dilated, name=scope)


# ---- Fractional pooling: the heights and widths of the windows are drawn, and differ by one at most ------------------

_FRACTIONAL = (
    "(value: T) -> output: T, row_pooling_sequence: int64, col_pooling_sequence: int64"
    "; pooling_ratio: list(float) >= 4; pseudo_random: bool = false; overlapping: bool = false"
    "; deterministic: bool = false; seed: int = 0; seed2: int = 0; T: {float, double, int32, int64}"
)
_FRACTIONAL_GRAD = (
    "out_backprop: T, row_pooling_sequence: int64, col_pooling_sequence: int64) -> output: T"
    "; overlapping: bool = false; T: {float, double, int32, int64}"
)
fractional_max_op: OpHandle[Any] = op("FractionalMaxPool" + _FRACTIONAL)
fractional_avg_op: OpHandle[Any] = op("FractionalAvgPool" + _FRACTIONAL)
fractional_max_grad_op = op(
    "FractionalMaxPoolGrad(orig_input: T, orig_output: T, " + _FRACTIONAL_GRAD, differentiable=None
)
fractional_max_grad_op.shape(lambda node: [with_rank(node.inputs[0].raw_shape, 4)])
fractional_avg_grad_op = op(
    "FractionalAvgPoolGrad(orig_input_tensor_shape: int64, " + _FRACTIONAL_GRAD, differentiable=None
)
fractional_avg_grad_op.shape(lambda node: [with_rank(constant_value_as_shape(node.inputs[0]), 4)])


@all_of(fractional_max_op, fractional_avg_op).shape
def _fractional_shape(node: Operation) -> list[RawShape]:
    image, ratios = with_rank(node.inputs[0].raw_shape, 4), node.attrs["pooling_ratio"]
    if len(ratios) != 4:
        raise ValueError("pooling_ratio field must specify 4 dimensions")
    out = [None if size is None else _pooled(size, ratio) for size, ratio in zip(image, ratios)]
    # TensorFlow forgets the last bound.
    return [tuple(out), *((None if count is None else count + 1,) for count in out[1:3])]


def _pooled(size: int, ratio: float) -> int:
    """The windows along an axis. TensorFlow divides numbers of float32."""
    return int(np.float32(size) / np.float32(ratio))


class _Cells(NamedTuple):
    """The windows of fractional pooling: where those of each axis begin, and their last rows and columns.

    They are as long as the longest one: in the shorter ones an index stays at the last element.
    """

    starts: tuple[Array, Array]
    lasts: tuple[Array, Array]

    def elements(self) -> Any:
        """Of each offset in a window, in order: the rows, the columns, and which windows have that element."""
        sizes = [int((last - start).max(initial=-1)) + 1 for start, last in zip(self.starts, self.lasts)]
        for row, column in np.ndindex(*sizes):
            places = [start + offset for start, offset in zip(self.starts, (row, column))]
            there = [place <= last for place, last in zip(places, self.lasts)]
            rows, columns = (np.minimum(place, last) for place, last in zip(places, self.lasts))
            yield rows[:, None], columns, (there[0][:, None] & there[1])[..., None]

    def counts(self) -> Array:
        """The elements of each window: [rows, columns, 1]."""
        rows, columns = (last - start + 1 for start, last in zip(self.starts, self.lasts))
        return np.asarray((rows[:, None] * columns)[..., None])


def _cells(bounds: Sequence[Array], sizes: Sequence[int], overlapping: bool) -> _Cells:
    """The windows between these bounds of rows and columns; each has the first element of the next if they overlap."""
    lasts = [np.minimum(b[1:] if overlapping else b[1:] - 1, size - 1) for b, size in zip(bounds, sizes)]
    return _Cells((bounds[0][:-1], bounds[1][:-1]), (lasts[0], lasts[1]))


def _drawn_bounds(size: int, count: int, generator: philox.PhiloxGenerator, pseudo_random: bool) -> Array:
    """The bounds of ``count`` windows on an axis of ``size`` elements, as TensorFlow draws them: [count + 1]."""
    if pseudo_random:
        ratio, whole = size / count, size // count
        highest = min((whole + 2) / ratio - 1, (size + 1 - whole) / ratio - (count - 1))
        offset = float(philox.doubles_of(generator.words(generator.reserve(1), 1).ravel()[:2])[0]) * highest
        inner = np.ceil(ratio * (np.arange(1, count) + offset)).astype(np.int64) - 1
        return np.concatenate([[0], inner, [size]])
    lengths = np.full(count, size // count, np.int64)
    lengths[: size % count] += 1
    return np.concatenate([[0], np.cumsum(lengths[philox.permutation(generator, count, -(-count // 4))])])


def _fractional_placer(node: Node) -> Callable[[Array], tuple[list[Array], _Cells]]:
    """A function of an image, checked: the bounds of rows and columns, and the windows."""
    attrs = node.attrs
    ratios, seeds = attrs["pooling_ratio"], (attrs["seed"], attrs["seed2"])
    if len(ratios) != 4:
        refuse(f"pooling_ratio field must specify 4 dimensions, not {len(ratios)}")
    if min(ratios) < 1:
        refuse(f"pooling_ratio cannot be smaller than 1, got: {next(ratio for ratio in ratios if ratio < 1):g}")
    if ratios[0] != 1 or ratios[3] != 1:
        raise UnimplementedError.of("Fractional pooling is not yet supported on the batch nor channel dimension.")
    if not attrs["deterministic"] and any(seeds):
        refuse("Both seed and seed2 should be 0 if deterministic is false.")
    if attrs["deterministic"] and not any(seeds):
        seeds = _new_seeds()

    def place(image: Array) -> tuple[list[Array], _Cells]:
        if image.ndim != 4:
            refuse(f"tensor_in must be 4-dimensional: {list(image.shape)}")
        for axis, (size, ratio) in enumerate(zip(image.shape, ratios)):
            if size < ratio:
                refuse(f"Pooling ratio is higher than input dimension size for dimension {axis}. Input dim size: "
                       f"{size} pooling ratio: {ratio:g}")  # fmt: skip
        generator = philox.PhiloxGenerator(*(seeds if any(seeds) else _new_seeds()))
        sizes = image.shape[1:3]
        bounds = [_drawn_bounds(n, _pooled(n, r), generator, attrs["pseudo_random"]) for n, r in zip(sizes, ratios[1:])]
        return bounds, _cells(bounds, sizes, attrs["overlapping"])

    return place


def _new_seeds() -> tuple[int, int]:
    return tuple(np.random.SeedSequence().generate_state(2).tolist())


@fractional_max_op.kernel_factory("CPU")
def _fractional_max_factory(node: Node) -> Callable[[Array], tuple[Array, ...]]:
    place = _fractional_placer(node)

    def max_pool(image: Array) -> tuple[Array, ...]:
        bounds, cells = place(image)
        shape = (len(image), len(bounds[0]) - 1, len(bounds[1]) - 1, image.shape[3])
        best = np.full(shape, lowest(image.dtype), image.dtype)
        for rows, columns, _ in cells.elements():
            np.maximum(best, image[:, rows, columns], out=best)
        return best, *bounds

    return max_pool


@fractional_avg_op.kernel_factory("CPU")
def _fractional_avg_factory(node: Node) -> Callable[[Array], tuple[Array, ...]]:
    place = _fractional_placer(node)

    def avg_pool(image: Array) -> tuple[Array, ...]:
        bounds, cells = place(image)
        total = np.zeros((len(image), len(bounds[0]) - 1, len(bounds[1]) - 1, image.shape[3]), image.dtype)
        for rows, columns, there in cells.elements():
            np.add(total, image[:, rows, columns], out=total, where=there)
        return _shared_out(total, cells), *bounds

    return avg_pool


def _shared_out(total: Array, cells: _Cells) -> Array:
    """Sums over windows, divided by the numbers of elements; integers towards 0."""
    counts = cells.counts().astype(total.dtype)
    if total.dtype.kind == "f":
        return np.asarray(total / counts)
    return np.asarray(np.sign(total) * (abs(total) // counts))


def _given_cells(sizes: Sequence[int], grad: Array, bounds: Sequence[Array], overlapping: bool) -> _Cells:
    """The windows of a gradient, refused unless they are in an image of those rows and columns."""
    if grad.ndim != 4:
        refuse(f"out_backprop must be 4-dimensional: {list(grad.shape)}")
    for name, size, count, bound in zip(("row", "col"), sizes, grad.shape[1:3], bounds):
        if bound.shape != (count + 1,):
            refuse(f"{name}_pooling_sequence must be a vector of {count + 1} numbers, got shape {list(bound.shape)}")
        if count and (bound[0] < 0 or bound[-2] >= size or bound[-1] > size or (np.diff(bound) <= 0).any()):
            refuse(f"{name}_pooling_sequence must ascend from 0 or more to {size} at most, got {bound.tolist()}")
    return _cells(bounds, sizes, overlapping)


@fractional_max_grad_op.kernel_factory("CPU")
def _fractional_max_grad_factory(node: Node) -> Callable[..., Array]:
    def max_pool_grad(image: Array, result: Array, grad: Array, *bounds: Array) -> Array:
        if image.ndim != 4 or result.shape != grad.shape:
            refuse(f"Expected an image of rank 4 and equal shapes of orig_output and out_backprop, got "
                   f"{list(image.shape)}, {list(result.shape)} and {list(grad.shape)}")  # fmt: skip
        cells = _given_cells(image.shape[1:3], grad, bounds, node.attrs["overlapping"])
        if (len(grad), grad.shape[3]) != (len(image), image.shape[3]):
            refuse(f"out_backprop of shape {list(grad.shape)} is not of an image of shape {list(image.shape)}")
        found = np.full(grad.shape, -1)
        best = np.empty(grad.shape, image.dtype)
        places = np.arange(image.size).reshape(image.shape)
        for rows, columns, there in cells.elements():
            here = image[:, rows, columns]
            better = there & ((here > best) | (found < 0))
            np.copyto(best, here, where=better)
            np.copyto(found, places[:, rows, columns], where=better)
        total = np.zeros(image.size, grad.dtype)
        np.add.at(total, found.ravel(), grad.ravel())
        return total.reshape(image.shape)

    return max_pool_grad


@fractional_avg_grad_op.kernel_factory("CPU")
def _fractional_avg_grad_factory(node: Node) -> Callable[..., Array]:
    def avg_pool_grad(sizes: Array, grad: Array, *bounds: Array) -> Array:
        if sizes.shape != (4,) or (sizes <= 0).any():
            refuse(f"original input tensor shape must be 1-dimensional and 4 elements, none 0, got {sizes.tolist()}")
        image = tuple(sizes.tolist())
        check_room(image, 8)
        cells = _given_cells(image[1:3], grad, bounds, node.attrs["overlapping"])
        if (len(grad), grad.shape[3]) != (image[0], image[3]):
            refuse(f"out_backprop of shape {list(grad.shape)} is not of an image of shape {list(image)}")
        share, total = grad / cells.counts(), np.zeros(image)  # in float64, as TensorFlow does
        for rows, columns, there in cells.elements():
            np.add.at(total, np.index_exp[:, rows, columns], np.where(there, share, 0))  # type: ignore[arg-type]
        return total.astype(grad.dtype)

    return avg_pool_grad


@fractional_max_op.gradient
def _fractional_max_gradient(node: Operation, grad: Tensor, *_: Any) -> list[Any]:
    overlapping = node.attrs["overlapping"]
    return [fractional_max_grad_op(node.inputs[0], node.outputs[0], grad, *node.outputs[1:], overlapping=overlapping)]


@fractional_avg_op.gradient
def _fractional_avg_gradient(node: Operation, grad: Tensor, *_: Any) -> list[Any]:
    image, overlapping = node.inputs[0], node.attrs["overlapping"]
    sizes = image.shape.as_list() if image.shape.is_fully_defined() else shape(image, out_type=dtypes.int64)
    return [fractional_avg_grad_op(sizes, grad, *node.outputs[1:], overlapping=overlapping)]


@export("tf.nn.fractional_max_pool")
def fractional_max_pool(
    value: TensorLike, pooling_ratio: Sequence[float], pseudo_random: bool = False, overlapping: bool = False,
    deterministic: bool = False, seed: int = 0, seed2: int = 0, name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The maximum of each of windows whose sizes are drawn at random (``tf.nn.fractional_max_pool``).

    Args:
      value: [batch, rows, columns, channels].
      pooling_ratio: ``[1, rows, columns, 1]``: how many times smaller the result is, 1 or more.
      pseudo_random: the bounds of windows are nearly equally far from each other, from a random offset; otherwise the
        two lengths that windows have follow each other in a random order.
      overlapping: each window has also the first row and column of the next one.
      deterministic: the same windows in every step; needed for ``seed`` and ``seed2``.
      seed, seed2: where the random numbers begin.

    Returns:
      The maxima, and the bounds of the windows' rows and columns.
    """
    return _fractional(
        fractional_max_op, value, pooling_ratio, pseudo_random, overlapping, (deterministic, seed, seed2), name
    )


@export("tf.nn.fractional_avg_pool")
def fractional_avg_pool(
    value: TensorLike, pooling_ratio: Sequence[float], pseudo_random: bool = False, overlapping: bool = False,
    deterministic: bool = False, seed: int = 0, seed2: int = 0, name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The mean of each of windows whose sizes are drawn (``tf.nn.fractional_avg_pool``); see `fractional_max_pool`."""
    return _fractional(
        fractional_avg_op, value, pooling_ratio, pseudo_random, overlapping, (deterministic, seed, seed2), name
    )


@export("tf.compat.v2.nn.fractional_max_pool")
def fractional_max_pool_v2(
    value: TensorLike, pooling_ratio: float | Sequence[float], pseudo_random: bool = False, overlapping: bool = False,
    seed: int = 0, name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`fractional_max_pool` that a ``seed`` makes deterministic (``tf.compat.v2.nn.fractional_max_pool``).

    Args:
      pooling_ratio: of rows and columns, of each of both, or of all four axes.
    """
    ratios: Any = spatial_sequence(pooling_ratio, 2, 3, "pooling_ratio")  # type: ignore[arg-type]
    return _fractional(fractional_max_op, value, ratios, pseudo_random, overlapping, _seeds_of(seed), name)


@export("tf.compat.v2.nn.fractional_avg_pool")
def fractional_avg_pool_v2(
    value: TensorLike, pooling_ratio: Sequence[float], pseudo_random: bool = False, overlapping: bool = False,
    seed: int = 0, name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`fractional_avg_pool` that a ``seed`` makes deterministic (``tf.compat.v2.nn.fractional_avg_pool``)."""
    return _fractional(fractional_avg_op, value, pooling_ratio, pseudo_random, overlapping, _seeds_of(seed), name)


def _seeds_of(seed: int) -> tuple[Any, ...]:
    return (True, *get_seed(seed)) if seed else (False, 0, 0)


def _fractional(
    handle: OpHandle[Any], value: TensorLike, ratios: Sequence[float], pseudo_random: bool, overlapping: bool,
    seeds: tuple[Any, ...], name: str | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return handle(  # type: ignore[no-any-return]
        value, pooling_ratio=ratios, pseudo_random=pseudo_random, overlapping=overlapping, deterministic=seeds[0],
        seed=seeds[1], seed2=seeds[2], name=name,
    )  # fmt: skip
