"""Fused batch normalisation (``FusedBatchNorm``, V2, V3); bias addition, the L2 loss, and layers in one call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.errors import InvalidArgumentError
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, name_scope, op
from tfmini.graph.node import Node
from tfmini.numerics.convolution import column_sums
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.array.identity import cast
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.shape import reshape
from tfmini.ops.math.broadcast import HALVES
from tfmini.ops.math.elementwise import multiply
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_mean, reduce_sum
from tfmini.ops.math.unary import rsqrt, square
from tfmini.ops.nn.activation import relu
from tfmini.shapes import RawShape, at_least_rank, merge_dims, with_rank

_ATTRS = "epsilon: float = 0.0001; {momentum}data_format: {{'NHWC', 'NCHW'{more}}} = 'NHWC'; is_training: bool = true"
_MOMENTUM = "exponential_avg_factor: float = 1.0; "
_T1, _T2 = "T: {float}; ", "T: {half, bfloat16, float}; U: {float}; "


def _declare(version: str, statistics: str, types: str, reserves: int, more: str = "") -> tuple[Any, Any]:
    """Declares the forward and the gradient op of one version."""
    s, first = statistics, 4 if reserves == 3 else 3
    saved = "".join(f", reserve_space_{i}: {s}" for i in range(1, reserves + 1))
    scale = s if s == "T" else "float"
    forward = op(
        f"FusedBatchNorm{version}(x: T, scale: {s}, offset: {s}, mean: {s}, variance: {s})"
        f" -> y: T, batch_mean: {s}, batch_variance: {s}{saved}; {types}{_ATTRS.format(momentum=_MOMENTUM, more=more)}"
    )
    backward = op(
        f"FusedBatchNormGrad{version}(y_backprop: T, x: T, scale: {scale}{saved})"
        f" -> x_backprop: T, scale_backprop: {s}, offset_backprop: {s},"
        f" reserve_space_{first}: {s}, reserve_space_{first + 1}: {s};"
        f" {types}{_ATTRS.format(momentum='', more=more)}"
    )
    return forward, backward


_VERSIONS = [
    _declare("", "T", _T1, 2),
    _declare("V2", "U", _T2, 2),
    _declare("V3", "U", _T2, 3, ", 'NDHWC', 'NCDHW'"),
]
fused_batch_norm_v3_op = _VERSIONS[2][0]


def _channels_first(node: Node | Operation) -> bool:
    return node.attrs["data_format"] in (b"NCHW", b"NCDHW")


def _rank(node: Node | Operation) -> int:
    return len(node.attrs["data_format"])


def _forward_shape(node: Operation) -> list[RawShape]:
    x = with_rank(node.inputs[0].raw_shape, _rank(node))
    axis = 1 if _channels_first(node) else len(x) - 1
    depth = x[axis]
    for tensor in node.inputs[1 : 3 if node.attrs["is_training"] else 5]:
        depth = merge_dims(depth, with_rank(tensor.raw_shape, 1)[0])
    statistics: RawShape = (depth,)
    shapes: list[RawShape] = [x[:axis] + (depth,) + x[axis + 1 :], *[statistics] * 4]
    return shapes + [None] * (len(node.handle.op_def.outputs) - 5)


def _backward_shape(node: Operation) -> list[RawShape]:
    x = with_rank(node.inputs[1].raw_shape, _rank(node))
    depth = x[1 if _channels_first(node) else -1]
    unused: RawShape = (0,) if node.attrs["is_training"] else (depth,)  # as TensorFlow's graphs tell it
    return [x, (depth,), (depth,), unused, unused]


def _channels_last(node: Node) -> tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]:
    """Functions that convert to [pixels, channels] in float32, and back to the second argument's layout and type."""
    if not _channels_first(node):
        return (
            lambda v: v.reshape(-1, v.shape[-1]).astype(np.float32, copy=False),
            lambda flat, like: flat.reshape(like.shape).astype(like.dtype, copy=False),
        )

    def flatten(value: Array) -> Array:
        moved = np.moveaxis(value, 1, -1)
        return moved.reshape(-1, moved.shape[-1]).astype(np.float32, copy=False)

    def restore(flat: Array, like: Array) -> Array:
        moved = np.moveaxis(like, 1, -1).shape
        return np.ascontiguousarray(np.moveaxis(flat.reshape(moved), -1, 1)).astype(like.dtype, copy=False)

    return flatten, restore


def _check_shapes(node: Node, x: Array, **vectors: Array) -> None:
    """Refuses vectors that do not have one number per channel: they would be broadcast."""
    if x.ndim != _rank(node):
        refuse(f"input must be {_rank(node)}-dimensional, got shape {list(x.shape)}")
    depth = x.shape[1 if _channels_first(node) else -1]
    for name, vector in vectors.items():
        if np.shape(vector) != (depth,):
            refuse(
                f"{name} must have the same number of elements as the channels of x, got shape"
                f" {list(np.shape(vector))} and {depth}"
            )


def _mean_rows(flat: Array) -> Array:
    """The mean over pixels: their sum, a matrix-vector product, times 1 / n, which rounds as in TensorFlow."""
    count = flat.shape[0]
    if not count:
        return np.full(flat.shape[1], np.nan, np.float32)
    total: Array = np.ones(count, np.float32) @ flat
    return total * np.float32(1 / count)


def _forward_factory(node: Node) -> Callable[..., tuple[Any, ...]]:
    training, epsilon = node.attrs["is_training"], np.float32(node.attrs["epsilon"])
    factor = np.float32(node.attrs.get("exponential_avg_factor", 1.0))
    flatten, restore = _channels_last(node)
    extra = () if node.op != "FusedBatchNormV3" else (np.float32(0),)

    def scaled(centred: Array, scale: Array, offset: Array, variance: Array) -> Array:
        """Change the centred values in place. Without centring, a large mean would cost them their digits."""
        centred *= scale / np.sqrt(variance + epsilon)
        centred += offset
        return centred

    def normalize(x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> tuple[Any, ...]:
        moments = {"mean": mean, "variance": variance} if not training or factor != 1 else {}
        _check_shapes(node, x, scale=scale, offset=offset, **moments)
        flat = flatten(x)
        if not training:
            return (restore(scaled(flat - mean, scale, offset, variance), x), mean, variance, mean, variance, *extra)
        batch_mean = _mean_rows(flat)
        centred = flat - batch_mean
        batch_variance = _mean_rows(centred * centred)
        scaled(centred, scale, offset, batch_variance)
        count = flat.shape[0]
        unbiased = batch_variance * np.float32(count / max(count - 1, 1))
        new_mean, new_variance = batch_mean, unbiased
        if factor != 1:
            new_mean = mean + factor * (batch_mean - mean)
            new_variance = variance + factor * (unbiased - variance)
        return (restore(centred, x), new_mean, new_variance, batch_mean, batch_variance, *extra)

    return normalize


def _backward_factory(node: Node) -> Callable[..., tuple[Any, ...]]:
    training, epsilon = node.attrs["is_training"], np.float32(node.attrs["epsilon"])
    flatten, restore = _channels_last(node)

    def gradient(grad: Array, x: Array, scale: Array, mean: Array, variance: Array, *_: object) -> tuple[Any, ...]:
        if grad.shape != x.shape:
            refuse(f"x and y_backprop must have the same shape, got {list(x.shape)} and {list(grad.shape)}")
        _check_shapes(node, x, scale=scale, mean=mean, variance=variance)
        flat, dy = flatten(x), flatten(grad)
        inverse = np.float32(1) / np.sqrt(variance + epsilon)
        normal = (flat - mean) * inverse
        offset_backprop = np.ones(dy.shape[0], np.float32) @ dy
        scale_backprop = np.ones(dy.shape[0], np.float32) @ (dy * normal)
        if training:
            count = np.float32(dy.shape[0])
            normal *= scale_backprop / count
            dx = dy - offset_backprop / count
            dx -= normal
            dx *= scale * inverse
        else:
            dx = dy * (scale * inverse)
        unused = np.zeros(0 if training else scale.size, np.float32)
        return restore(dx, grad), scale_backprop, offset_backprop, unused, unused

    return gradient


def _gradient_of(backward: Callable[..., Any], reserves: int) -> Callable[..., list[Any]]:
    def gradient(node: Operation, grad: Tensor, *_: object) -> list[Any]:
        attrs = {name: node.attrs[name] for name in ("epsilon", "data_format", "is_training")}
        saved = list(node.outputs[3 : 3 + reserves])
        if not node.attrs["is_training"]:
            saved[:2] = node.inputs[3:5]
        found = backward(grad, node.inputs[0], node.inputs[1], *saved, **attrs)
        return [found[0], found[1], found[2], None, None]

    return gradient


def _second_gradient(node: Operation, of_x: Tensor, of_scale: Tensor, of_offset: Tensor, *_: object) -> list[Any]:
    """The gradients by dy, x and scale, given those of the three results; mean and variance are constants.

    With n = (x - mean) / s, the forward op's gradients are dx = scale/s P(dy), sum(dy n) and sum(dy), where P takes the
    mean of a value and its part along n away in training, and is the identity else. P is its own adjoint, and that of n
    by x is P/s.
    """
    dtype, training = node.inputs[0].dtype, node.attrs["is_training"]
    axes = [i for i in range(_rank(node)) if i != (1 if _channels_first(node) else _rank(node) - 1)]
    dy, x, of_x = (cast(value, dtypes.float32) for value in (node.inputs[0], node.inputs[1], of_x))
    scale, mean, variance, of_scale, of_offset = (
        _spread(node, cast(value, dtypes.float32)) for value in (node.inputs[2], *node.inputs[3:5], of_scale, of_offset)
    )

    def average(value: Any) -> Any:
        return reduce_mean(value, axes, keepdims=True)

    def along(value: Any) -> Any:
        return value - average(value) - n * average(value * n) if training else value

    if training:
        mean = average(x)
        variance = average(square(x - mean))
    inverse = rsqrt(variance + node.attrs["epsilon"])
    n = (x - mean) * inverse
    by_dy = scale * inverse * along(of_x) + of_scale * n + of_offset
    by_scale = reduce_sum(of_x * inverse * along(dy), axes)
    by_n = of_scale * dy
    if training:
        by_n -= scale * inverse * (of_x * average(dy * n) + average(of_x * n) * dy)
        by_inverse = scale * average(of_x * along(dy))
        by_x = inverse * along(by_n) - square(inverse) * n * by_inverse
    else:
        by_x = inverse * by_n
    found = [cast(by_dy, dtype), cast(by_x, dtype), cast(by_scale, node.inputs[2].dtype)]
    return found + [None] * (len(node.inputs) - 3)


def _spread(node: Operation, vector: Tensor) -> Tensor:
    """A value per channel in the shape that broadcasts over the input."""
    return reshape(vector, [1, -1] + [1] * (_rank(node) - 2)) if _channels_first(node) else vector


for _forward, _backward in _VERSIONS:
    _forward.shape(_forward_shape)
    _backward.shape(_backward_shape)
    _forward.kernel_factory("CPU")(_forward_factory)
    _backward.kernel_factory("CPU")(_backward_factory)
    _forward.gradient(_gradient_of(_backward, 3 if _forward is fused_batch_norm_v3_op else 2))
    _backward.gradient(_second_gradient)


@export("tf.nn.fused_batch_norm")
def fused_batch_norm(
    x: TensorLike, scale: TensorLike, offset: TensorLike, mean: TensorLike | None = None,
    variance: TensorLike | None = None, epsilon: float = 0.001, data_format: str = "NHWC", is_training: bool = True,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Batch normalisation as one op: (y, mean, variance) (``tf.nn.fused_batch_norm``).

    Args:
      x: [batch, rows, columns, channels], or channels second for NCHW.
      mean, variance: of the population; required if ``is_training`` is False, refused otherwise.

    Raises:
      ValueError: when mean or variance is given in training.
    """
    x = convert_to_tensor(x, name="input")
    scale = convert_to_tensor(scale, name="scale")
    offset = convert_to_tensor(offset, name="offset")
    if is_training and (mean is not None or variance is not None):
        raise ValueError("Both 'mean' and 'variance' must be None if is_training is True.")
    mean = constant([]) if mean is None else mean
    variance = constant([]) if variance is None else variance
    # The lower bound of the GPU library; TensorFlow applies it on all devices.
    found = fused_batch_norm_v3_op(
        x, scale, offset, mean, variance, epsilon=max(epsilon, 1.001e-5), data_format=data_format,
        is_training=is_training, name=name,
    )  # fmt: skip
    return found[0], found[1], found[2]


# ---- Bias addition, L2 loss, and the dense layers in one call (``xw_plus_b``, ``relu_layer``) ----------------------

_FORMAT = "T: numbertype; data_format: {'NHWC', 'NCHW'} = 'NHWC'"

bias_add_op = op("BiasAdd(value: T, bias: T) -> output: T; " + _FORMAT)
bias_add_op.gradient(lambda node, grad: [grad, bias_add_grad_op(grad, data_format=node.attrs["data_format"])])
bias_add_v1_op = op("BiasAddV1(value: T, bias: T) -> output: T; T: numbertype")
bias_add_v1_op.gradient(lambda node, grad: [grad, bias_add_grad_op(grad)])
bias_add_grad_op: OpHandle = op("BiasAddGrad(out_backprop: T) -> output: T; " + _FORMAT)
l2_loss_op = op("L2Loss(t: T) -> output: T; T: {half, bfloat16, float, double}", shape=[()])
l2_loss_op.gradient(lambda node, grad: [multiply(node.inputs[0], grad)])


def _channel_axis(node: Node | Operation) -> int:
    return 1 if node.attrs.get("data_format") == b"NCHW" else -1


@all_of(bias_add_op, bias_add_v1_op).shape
def _bias_shape(node: Operation) -> list[RawShape]:
    value = node.inputs[0].raw_shape
    bias = with_rank(node.inputs[1].raw_shape, 1)
    if value is None:
        return [None]
    at_least_rank(value, 2)
    axis = _channel_axis(node) % len(value)
    return [value[:axis] + (merge_dims(value[axis], bias[0]),) + value[axis + 1 :]]


@bias_add_grad_op.shape
def _bias_grad_shape(node: Operation) -> list[RawShape]:
    value = at_least_rank(node.inputs[0].raw_shape, 2)
    return [(None if value is None else value[_channel_axis(node)],)]


def _add_bias(value: Array, bias: Array) -> Array:
    if bias.ndim != 1 or value.ndim < 2 or value.shape[-1] != len(bias):
        raise _bias_mismatch(value, bias)
    return value + bias


def _bias_mismatch(value: Array, bias: Array) -> InvalidArgumentError:
    sizes = ["[" + ",".join(map(str, v.shape)) + "]" for v in (value, bias)]
    return InvalidArgumentError.of(
        f"Must provide as many biases as the last dimension of the input tensor: {sizes[1]} vs. {sizes[0]}"
    )


bias_add_v1_op.kernel("CPU")(_add_bias)


@bias_add_op.kernel_factory("CPU")
def _bias_factory(node: Node) -> Callable[..., Array]:
    if node.attrs["data_format"] != b"NCHW":
        return _add_bias

    def add_to_channels(value: Array, bias: Array) -> Array:
        if bias.ndim != 1 or value.ndim < 2 or value.shape[1] != len(bias):
            raise _bias_mismatch(value, bias)
        return value + bias.reshape((-1,) + (1,) * (value.ndim - 2))

    return add_to_channels


@bias_add_grad_op.kernel_factory("CPU")
def _bias_grad_factory(node: Node) -> Callable[..., Array]:
    halves = node.attrs["T"] in HALVES
    dtype = node.attrs["T"].numpy
    first = node.attrs["data_format"] == b"NCHW"

    def sum_channels(grad: Array) -> Any:
        if grad.ndim < 2:
            refuse(f"Input tensor must be at least 2D: {list(grad.shape)}")
        if first:
            axes = (0, *range(2, grad.ndim))
            return grad.sum(axis=axes, dtype=np.float32 if halves else dtype).astype(dtype, copy=False)
        flat = grad.reshape(math.prod(grad.shape[:-1]), grad.shape[-1])
        if not halves and dtype.kind == "f":
            return column_sums(flat)
        return flat.sum(axis=0, dtype=np.float32 if halves else dtype).astype(dtype, copy=False)

    return sum_channels


@l2_loss_op.kernel_factory("CPU")
def _l2_factory(node: Node) -> Callable[..., Any]:
    dtype = node.attrs["T"].numpy
    wide = np.dtype(np.float32) if node.attrs["T"] in HALVES else dtype

    def half_square_sum(value: Array) -> Any:
        flat = value.astype(wide, copy=False).reshape(-1)
        return (np.dot(flat, flat) * wide.type(0.5)).astype(dtype, copy=False)

    return half_square_sum


# ---- gradients ----------------------------------------------------------------------------------


@bias_add_grad_op.gradient
def _bias_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    # Zeros whatever the value, which is NaN where it must not matter, as between two gradients that give a product
    # with the Jacobian.
    return [bias_add_op(zeros_like(node.inputs[0]), grad, data_format=node.attrs["data_format"])]


# ---- public functions ---------------------------------------------------------------------------


@export("tf.nn.bias_add")
def bias_add(value: TensorLike, bias: TensorLike, data_format: str | None = None, name: str | None = None) -> Tensor:
    """Adds a vector to the channels of ``value`` (``tf.nn.bias_add``).

    Args:
      value: a tensor of numbers with at least two axes.
      bias: a vector with one element per channel, of the same dtype.
      data_format: ``NHWC`` (default; the channels are last) or ``NCHW`` (they are second), also with other
        numbers of axes.
      name: of the op.

    Returns:
      A tensor of the dtype and shape of ``value``.

    Raises:
      ValueError: for a ``data_format`` that starts with neither N...C nor NC.
    """
    with name_scope(name, "BiasAdd", [value, bias]) as scope:
        if (
            data_format is not None
            and not data_format.startswith("NC")
            and not (data_format.startswith("N") and data_format.endswith("C"))
        ):
            raise ValueError("data_format must be of the form `N...C` or `NC...`")
        layout = "NCHW" if data_format is not None and data_format.startswith("NC") else "NHWC"
        value = convert_to_tensor(value, name="input")
        bias = convert_to_tensor(bias, dtype=value.dtype.base_dtype, name="bias")
        return bias_add_op(value, bias, data_format=layout, name=scope)


@export("tf.nn.l2_loss")
def l2_loss(t: TensorLike, name: str | None = None) -> Tensor:
    """``sum(t ** 2) / 2`` (``tf.nn.l2_loss``).

    Args:
      t: a tensor of floats of any shape.
      name: of the op.

    Returns:
      A scalar of the dtype of ``t``.
    """
    return l2_loss_op(t, name=name)


@export("tf.nn.xw_plus_b")
def xw_plus_b(x: TensorLike, weights: TensorLike, biases: TensorLike, name: str | None = None) -> Tensor:
    """``matmul(x, weights) + biases`` (``tf.nn.xw_plus_b``).

    Args:
      x: [batch, inputs].
      weights: [inputs, outputs].
      biases: [outputs].
      name: of the op.

    Returns:
      [batch, outputs].
    """
    with name_scope(name, "xw_plus_b", [x, weights, biases]) as scope:
        product = matmul(convert_to_tensor(x, name="x"), convert_to_tensor(weights, name="weights"))
        return bias_add(product, convert_to_tensor(biases, name="biases"), name=scope)


@export("tf.nn.relu_layer")
def relu_layer(x: TensorLike, weights: TensorLike, biases: TensorLike, name: str | None = None) -> Tensor:
    """``relu(matmul(x, weights) + biases)`` (``tf.nn.relu_layer``)."""
    with name_scope(name, "relu_layer", [x, weights, biases]) as scope:
        product = matmul(convert_to_tensor(x, name="x"), convert_to_tensor(weights, name="weights"))
        return relu(bias_add(product, convert_to_tensor(biases, name="biases")), name=scope)
