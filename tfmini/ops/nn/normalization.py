"""Normalisation made of other ops: moments, batch and L2 normalisation, dropout; and ``LRN``."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, AxisLike, SizesLike, TensorLike
from tfmini.export import either, export
from tfmini.graph.families import Operation, Tensor, convert_to_tensor, name_scope, op
from tfmini.graph.scoping import count_ops
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast, identity, stop_gradient
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.shape import size, squeeze
from tfmini.ops.math.comparison import greater_equal, not_equal
from tfmini.ops.math.elementwise import add, maximum, multiply, negative, squared_difference, subtract, truediv
from tfmini.ops.math.reductions import reduce_mean, reduce_prod, reduce_sum
from tfmini.ops.math.unary import reciprocal, rsqrt, sigmoid, square
from tfmini.ops.random_functions import random_uniform
from tfmini.shapes import Dimension, RawShape, TensorShape, merge_dims, merge_raw, with_rank

_LRN_ATTRS = (
    "depth_radius: int = 5; bias: float = 1.0; alpha: float = 1.0; beta: float = 0.5;"
    " T: {half, bfloat16, float} = DT_FLOAT"
)
lrn_op = op("LRN(input: T) -> output: T; " + _LRN_ATTRS, shape=lambda node: [with_rank(node.inputs[0].raw_shape, 4)])
lrn_grad_op = op("LRNGrad(input_grads: T, input_image: T, output_image: T) -> output: T; " + _LRN_ATTRS)
lrn_grad_op.without_gradient()


@lrn_grad_op.shape
def _lrn_grad_shape(node: Operation) -> list[RawShape]:
    first, second, third = (with_rank(t.raw_shape, 4) for t in node.inputs)
    return [merge_raw(merge_raw(first, second), third)]


def _band_sum(values: Array, radius: int) -> Array:
    """The sum over each channel's neighbours within ``radius``: a product with a band matrix."""
    depth = values.shape[-1]
    places = np.arange(depth)
    band = (np.abs(places[:, None] - places) <= radius).astype(values.dtype)
    sums: Array = (values.reshape(-1, depth) @ band).reshape(values.shape)
    return sums


@lrn_op.kernel("CPU")
def _lrn(image: Array, *, depth_radius: int, bias: float, alpha: float, beta: float) -> Array:
    if image.ndim != 4:
        refuse(f"in must be 4-dimensional, got shape {list(image.shape)}")
    wide = image.astype(np.float32, copy=False)
    base = np.float32(bias) + np.float32(alpha) * _band_sum(wide * wide, depth_radius)
    return (wide * base ** np.float32(-beta)).astype(image.dtype, copy=False)


@lrn_grad_op.kernel("CPU")
def _lrn_grad(
    grad: Array, image: Array, output: Array, *, depth_radius: int, bias: float, alpha: float, beta: float
) -> Array:
    if image.ndim != 4 or not grad.shape == image.shape == output.shape:
        shapes = [list(v.shape) for v in (grad, image, output)]
        refuse(f"input_grads, input_image and out_image should be 4-dimensional and have the same shape, got {shapes}")
    g, x, y = (v.astype(np.float32, copy=False) for v in (grad, image, output))
    base = np.float32(bias) + np.float32(alpha) * _band_sum(x * x, depth_radius)
    spread = _band_sum(g * y / base, depth_radius)
    result: Array = g * base ** np.float32(-beta) - np.float32(2 * alpha * beta) * x * spread
    return result.astype(grad.dtype, copy=False)


@lrn_op.gradient
def _lrn_gradient(node: Operation, grad: Tensor) -> list[Any]:
    attrs = {name: node.attrs[name] for name in ("depth_radius", "bias", "alpha", "beta")}
    return [lrn_grad_op(grad, node.inputs[0], node.outputs[0], **attrs)]


@export("tf.nn.local_response_normalization", "tf.nn.lrn")
def local_response_normalization(
    input: TensorLike,
    depth_radius: int = 5,
    bias: float = 1,
    alpha: float = 1,
    beta: float = 0.5,
    name: str | None = None,
) -> Tensor:
    """``input / (bias + alpha * sum of neighbouring channels squared) ** beta`` (``tf.nn.lrn``).

    Args:
      input: images, floats, [batch, rows, columns, channels].
      depth_radius: how many channels on each side count.
      bias, alpha, beta: numbers.
      name: of the op.
    """
    return lrn_op(input, depth_radius=depth_radius, bias=bias, alpha=alpha, beta=beta, name=name)


# ---- moments ------------------------------------------------------------------------------------


@export("tf.nn.moments")
def moments(
    x: TensorLike, axes: AxisLike, shift: TensorLike | None = None, name: str | None = None,
    keep_dims: bool | None = None, keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mean and variance over ``axes`` (``tf.nn.moments``); ``shift`` is ignored, as in TensorFlow."""
    keep = bool(either("keepdims", keepdims, "keep_dims", keep_dims))
    with name_scope(name, "moments", [x, axes]):
        x = convert_to_tensor(x)
        wide = cast(x, dtypes.float32) if x.dtype.base_dtype is dtypes.float16 else x
        mean = reduce_mean(wide, axes, keepdims=True, name="mean")
        variance = reduce_mean(squared_difference(wide, stop_gradient(mean)), axes, keepdims=True, name="variance")
        if not keep:
            mean, variance = squeeze(mean, axes), squeeze(variance, axes)
        if x.dtype.base_dtype is dtypes.float16:
            return cast(mean, dtypes.float16), cast(variance, dtypes.float16)
        return mean, variance


@export("tf.nn.sufficient_statistics")
def sufficient_statistics(
    x: TensorLike, axes: Any, shift: Any = None, keep_dims: bool | None = None, name: str | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor, Any]:  # fmt: skip
    """(count, sum of ``x - shift``, sum of its squares, shift) over ``axes`` (``tf.nn.sufficient_statistics``)."""
    keep = bool(either("keepdims", keepdims, "keep_dims", keep_dims))
    axes = sorted({int(a) for a in np.ravel(axes)})
    with name_scope(name, "sufficient_statistics", [x, shift]):
        x = convert_to_tensor(x, name="x")
        sizes = None if x.raw_shape is None else [x.raw_shape[a] for a in axes]
        if sizes is not None and None not in sizes:
            counts = convert_to_tensor(float(math.prod(sizes)), x.dtype.base_dtype, name="count")
        else:
            own = gather(cast(shape_of(x), x.dtype.base_dtype), axes)
            counts = reduce_prod(own, name="count")
        shift = None if shift is None else convert_to_tensor(shift, x.dtype.base_dtype, name="shift")
        moved = x if shift is None else subtract(x, shift)
        squares = square(x) if shift is None else squared_difference(x, shift)
        mean_ss = reduce_sum(moved, axes, keepdims=keep, name="mean_ss")
        return counts, mean_ss, reduce_sum(squares, axes, keepdims=keep, name="var_ss"), shift


@export("tf.nn.weighted_moments")
def weighted_moments(
    x: TensorLike, axes: AxisLike, frequency_weights: TensorLike, name: str | None = None,
    keep_dims: bool | None = None, keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Weighted mean and variance over ``axes`` (``tf.nn.weighted_moments``)."""
    keep = bool(either("keepdims", keepdims, "keep_dims", keep_dims))
    with name_scope(name, "weighted_moments", [x, frequency_weights, axes]):
        x = convert_to_tensor(x, name="x")
        narrow = x.dtype.base_dtype is dtypes.float16
        wide = cast(x, dtypes.float32) if narrow else x
        weights = cast(convert_to_tensor(frequency_weights, name="frequency_weights"), wide.dtype.base_dtype)
        whole = add(weights, zeros_like(wide))  # Broadcast, so that each element has its weight.
        total = reduce_sum(whole, axes, keepdims=True)
        mean = reduce_sum(multiply(whole, wide), axes, keepdims=True) / total
        spread = multiply(whole, squared_difference(wide, mean))
        variance = reduce_sum(spread, axes, keepdims=True) / total
        if not keep:
            mean, variance = squeeze(mean, axes), squeeze(variance, axes)
        return (cast(mean, dtypes.float16), cast(variance, dtypes.float16)) if narrow else (mean, variance)


@export("tf.nn.normalize_moments")
def normalize_moments(
    counts: TensorLike, mean_ss: TensorLike, variance_ss: TensorLike, shift: TensorLike | None, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Mean and variance from sufficient statistics (``tf.nn.normalize_moments``)."""
    with name_scope(name, "normalize", [counts, mean_ss, variance_ss, shift]):
        divisor = reciprocal(counts, name="divisor")
        if shift is None:
            shifted = mean = multiply(mean_ss, divisor, name="mean")
        else:
            shifted = multiply(mean_ss, divisor, name="shifted_mean")
            mean = add(shifted, shift, name="mean")
        return mean, subtract(multiply(variance_ss, divisor), square(shifted), name="variance")


@export("tf.nn.batch_normalization")
def batch_normalization(
    x: TensorLike, mean: TensorLike, variance: TensorLike, offset: Any, scale: TensorLike | None,
    variance_epsilon: float, name: str | None = None,
) -> Tensor:  # fmt: skip
    """``scale * (x - mean) / sqrt(variance + epsilon) + offset``; offset and scale may be None."""
    with name_scope(name, "batchnorm", [x, mean, variance, scale, offset]):
        x = convert_to_tensor(x)
        inverse = rsqrt(add(variance, variance_epsilon))
        if scale is not None:
            inverse = multiply(inverse, scale)
        shift = multiply(mean, inverse)
        # By the operator, so that an offset that is a Python or numpy value takes the other operand's type.
        shift = negative(shift) if offset is None else offset - shift
        return add(multiply(x, cast(inverse, x.dtype)), cast(shift, x.dtype))


@export("tf.linalg.l2_normalize", "tf.math.l2_normalize", "tf.nn.l2_normalize")
def l2_normalize(
    x: TensorLike,
    axis: AxisLike | None = None,
    epsilon: float = 1e-12,
    name: str | None = None,
    dim: AxisLike | None = None,
) -> Tensor:
    """``x / sqrt(max(sum(x ** 2), epsilon))`` along ``axis`` (``tf.nn.l2_normalize``)."""
    axis = either("axis", axis, "dim", dim)
    with name_scope(name, "l2_normalize", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        total = reduce_sum(square(x), axis, keepdims=True)
        return multiply(x, rsqrt(maximum(total, epsilon)), name=scope)


@export("tf.math.zero_fraction", "tf.nn.zero_fraction")
def zero_fraction(value: TensorLike, name: str | None = None) -> Tensor:
    """The share of zeros in ``value``, a float32 scalar; NaN when it is empty (``tf.nn.zero_fraction``)."""
    with name_scope(name, "zero_fraction", [value]):
        value = convert_to_tensor(value, name="value")
        count = size(value, out_type=dtypes.int64)
        nonzero = reduce_sum(cast(not_equal(value, zeros_like(value)), dtypes.int64), name="nonzero_count")
        zeros = cast(subtract(count, nonzero), dtypes.float32)
        count_ops(15)  # TensorFlow counts in one of two types, by size
        return identity(truediv(zeros, cast(count, dtypes.float32)), name="fraction")


@export("tf.nn.swish")
def swish(features: TensorLike) -> Tensor:
    """``x * sigmoid(x)`` (``tf.nn.swish``)."""
    with name_scope(None, "swish", [features]):
        features = convert_to_tensor(features, name="features")
        count_ops(2)  # copies that carry the gradient
        return multiply(features, sigmoid(features))


# ---- dropout ------------------------------------------------------------------------------------


@export("tf.nn.dropout")
def dropout(
    x: TensorLike, keep_prob: TensorLike | None = None, noise_shape: SizesLike = None, seed: int | None = None,
    name: str | None = None, rate: TensorLike | None = None,
) -> Tensor:  # fmt: skip
    """Sets elements to 0 with probability ``rate`` and scales the others by ``1 / (1 - rate)`` (``tf.nn.dropout``).

    Args:
      x: a tensor of floats.
      keep_prob: ``1 - rate``; the old argument.
      noise_shape: the shape of the random mask, which is broadcast to ``x``; default: that of ``x``.
      seed: an int, for the same masks in each run.
      name: of the op's scope.
      rate: the probability, a number or a scalar tensor.

    Returns:
      A tensor of the dtype and shape of ``x``.

    Raises:
      ValueError: for a rate outside [0, 1), no rate at all, or integers in ``x``.
    """
    rate = _rate(keep_prob, rate)
    with name_scope(name, "dropout", [x]):
        tensor: Tensor = convert_to_tensor(x, name="x")
        if not tensor.dtype.is_floating:
            raise ValueError(
                "x has to be a floating point tensor since it's going to be scaled."
                f" Got a {tensor.dtype} tensor instead."
            )
        if isinstance(rate, numbers.Real):
            if not 0 <= rate < 1:  # type: ignore[operator]
                raise ValueError(f"rate must be a scalar tensor or a float in the range [0, 1), got {rate:g}")
            if rate == 0:
                return tensor
        rate = convert_to_tensor(rate, dtype=tensor.dtype.base_dtype, name="rate")
        rate.get_shape().assert_has_rank(0)
        if constant_value(rate) == 0:
            return tensor
        return _drop(tensor, rate, _noise_shape(tensor, noise_shape), seed)


def _rate(keep_prob: TensorLike | None, rate: TensorLike | None) -> Any:
    if keep_prob is not None:
        if isinstance(keep_prob, numbers.Real):
            kept: Any = 1.0 - keep_prob
        elif isinstance(keep_prob, Tensor) or hasattr(keep_prob, "_as_graph_element"):
            keep_prob = convert_to_tensor(keep_prob)
            kept = subtract(convert_to_tensor(1, dtype=keep_prob.dtype.base_dtype, name="sub/x"), keep_prob, name="sub")
        else:
            raise ValueError(f"keep_prob must be a floating point number or Tensor (got {keep_prob!r})")
        rate = either("rate", rate, "keep_prob", kept)
    if rate is None:
        raise ValueError("You must provide a rate to dropout.")
    return rate


def _noise_shape(x: Tensor, noise_shape: SizesLike) -> Any:
    """The shape of the mask: None in an axis, also beside tensors, stands for the size of ``x``."""
    if noise_shape is None:
        return shape_of(x)
    if isinstance(noise_shape, TensorShape):
        noise_shape = noise_shape.as_list() if noise_shape.ndims is not None else noise_shape
    if not isinstance(noise_shape, (list, tuple, np.ndarray)):
        return noise_shape
    sizes = [d.value if isinstance(d, Dimension) else int(d) if isinstance(d, np.integer) else d for d in noise_shape]
    own = (None,) * len(sizes) if x.raw_shape is None else x.raw_shape
    if len(sizes) != len(own):
        return sizes
    for i in [i for i, d in enumerate(sizes) if d is None]:
        sizes[i] = shape_of(x)[i] if own[i] is None else own[i]
    return sizes


def _drop(x: Tensor, rate: Tensor, noise_shape: SizesLike, seed: int | None) -> Tensor:
    """The nodes are in TensorFlow's order, so that seeds derived from node numbers agree."""
    noise = random_uniform(noise_shape, seed=seed, dtype=x.dtype.base_dtype)
    dtype = rate.dtype.base_dtype
    kept = subtract(convert_to_tensor(1, dtype=dtype, name="sub/x"), rate, name="sub")
    scale = truediv(convert_to_tensor(1, dtype=dtype, name="truediv/x"), kept, name="truediv")
    keep = greater_equal(noise, rate)
    result = multiply(multiply(x, scale, name="mul"), cast(keep, x.dtype.base_dtype), name="mul_1")
    result.set_shape(x.shape)
    return result


# ---- The deprecated batch normalisation of whole images (``tf.nn.batch_norm_with_global_normalization``) -----------

_ATTRS = "; T: numbertype; variance_epsilon: float; scale_after_normalization: bool"
norm_op = op("BatchNormWithGlobalNormalization(t: T, m: T, v: T, beta: T, gamma: T) -> result: T" + _ATTRS)
norm_grad_op = op(
    "BatchNormWithGlobalNormalizationGrad(t: T, m: T, v: T, gamma: T, backprop: T)"
    " -> dx: T, dm: T, dv: T, db: T, dg: T" + _ATTRS,
    differentiable=None,
)


def _depth(node: Operation, vectors: Sequence[Tensor]) -> int | None:
    depth = with_rank(node.inputs[0].raw_shape, 4)[3]
    for vector in vectors:
        depth = merge_dims(depth, with_rank(vector.raw_shape, 1)[0])
    return depth


@norm_op.shape
def _norm_shape(node: Operation) -> list[RawShape]:
    depth = _depth(node, node.inputs[1:])
    return [(*with_rank(node.inputs[0].raw_shape, 4)[:3], depth)]


@norm_grad_op.shape
def _norm_grad_shape(node: Operation) -> list[RawShape]:
    depth = _depth(node, node.inputs[1:4])
    return [(*with_rank(node.inputs[0].raw_shape, 4)[:3], depth), (depth,), (depth,), (depth,), (depth,)]


def _check_whole(t: Array, *vectors: Array) -> None:
    if t.ndim != 4 or any(vector.shape != t.shape[3:] for vector in vectors):
        shapes = [list(array.shape) for array in (t, *vectors)]
        refuse(f"Images must be 4-dimensional and the others vectors of their depth, but the shapes are {shapes}")


@norm_op.kernel("CPU")
def _norm_kernel(
    t: Array, m: Array, v: Array, beta: Array, gamma: Array, *, variance_epsilon: float,
    scale_after_normalization: bool,
) -> Array:  # fmt: skip
    _check_whole(t, m, v, beta, gamma)
    inverse = 1 / np.sqrt(v + v.dtype.type(variance_epsilon))
    if scale_after_normalization:
        inverse = inverse * gamma
    result: Array = (t - m) * inverse
    result += beta
    return result


@norm_grad_op.kernel("CPU")
def _norm_grad_kernel(
    t: Array, m: Array, v: Array, gamma: Array, backprop: Array, *, variance_epsilon: float,
    scale_after_normalization: bool,
) -> tuple[Array, ...]:  # fmt: skip
    _check_whole(t, m, v, gamma)
    if backprop.shape != t.shape:
        refuse(f"backprop must have the shape of t, {list(t.shape)}, but has {list(backprop.shape)}")
    shifted = v + v.dtype.type(variance_epsilon)
    inverse = 1 / np.sqrt(shifted)
    db = backprop.sum(axis=(0, 1, 2))
    centred = (backprop * (t - m)).sum(axis=(0, 1, 2))
    scale = inverse * gamma if scale_after_normalization else inverse
    dv = centred * scale / shifted * v.dtype.type(-0.5)
    dg = centred * inverse if scale_after_normalization else np.zeros_like(gamma)
    return backprop * scale, -db * scale, dv, db, dg


@norm_op.gradient
def _norm_gradient(node: Operation, grad: Tensor) -> Any:
    t, m, v, _, gamma = node.inputs
    attrs = {name: node.attrs[name] for name in ("variance_epsilon", "scale_after_normalization")}
    return list(norm_grad_op(t, m, v, gamma, grad, **attrs))


@export("tf.nn.batch_norm_with_global_normalization")
def batch_norm_with_global_normalization(
    t: TensorLike | None = None, m: Any = None, v: TensorLike | None = None, beta: TensorLike | None = None,
    gamma: Any = None, variance_epsilon: Any = None, scale_after_normalization: bool | None = None,
    name: str | None = None, input: TensorLike | None = None, mean: TensorLike | None = None,
    variance: TensorLike | None = None,
) -> Tensor:  # fmt: skip
    """`batch_normalization` of images ``[batch, rows, columns, channels]`` with statistics per channel.

    (``tf.nn.batch_norm_with_global_normalization``.) ``gamma`` is used only with ``scale_after_normalization``.
    """
    t, m, v = either("input", input, "t", t), either("mean", mean, "m", m), either("variance", variance, "v", v)
    scale = gamma if scale_after_normalization else None
    return batch_normalization(t, m, v, beta, scale, variance_epsilon, name)
