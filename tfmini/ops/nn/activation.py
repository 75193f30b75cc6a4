"""Activation functions: rectifiers, exponential units, softplus, softsign and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.errors import InvalidArgumentError
from tfmini.export import export
from tfmini.graph.families import (
    Operation,
    OpHandle,
    Tensor,
    all_of,
    convert_to_tensor,
    equal_shapes,
    name_scope,
    op,
    same_shape,
    sized,
)
from tfmini.graph.node import Node
from tfmini.numerics.update_rules import any_outside
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import zeros_as
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.shape import expand_dims
from tfmini.ops.math.broadcast import HALVES, widened
from tfmini.ops.math.elementwise import add, multiply, negative, subtract
from tfmini.ops.math.reductions import sum_op
from tfmini.ops.math.unary import exp
from tfmini.shapes import RawShape, at_least_rank, broadcast_raw, with_rank

_FLOATS = "T: {half, bfloat16, float, double}"
_ALPHA = "alpha: float = 0.2; T: {half, bfloat16, float, double} = DT_FLOAT"
_SCALE = 1.0507009873554804934193349852946
_SCALE_ALPHA = 1.7580993408473768599402175208123

relu_op = op("Relu(features: T) -> activations: T; T: realnumbertype")
relu_op.kernel("CPU")(lambda x: np.maximum(x, x.dtype.type(0)))
relu6_op = op("Relu6(features: T) -> activations: T; T: realnumbertype")
relu6_op.kernel("CPU")(lambda x: np.minimum(np.maximum(x, x.dtype.type(0)), x.dtype.type(6)))
elu_op = op("Elu(features: T) -> activations: T; " + _FLOATS)
selu_op = op("Selu(features: T) -> activations: T; " + _FLOATS)
leaky_relu_op = op("LeakyRelu(features: T) -> activations: T; " + _ALPHA)
leaky_relu_op.gradient(lambda node, grad: [leaky_relu_grad_op(grad, node.inputs[0], alpha=node.attrs["alpha"])])
softplus_op = op("Softplus(features: T) -> activations: T; " + _FLOATS)
softsign_op = op("Softsign(features: T) -> activations: T; " + _FLOATS)
all_of(relu_op, relu6_op, elu_op, selu_op, leaky_relu_op, softplus_op, softsign_op).shape(same_shape)

relu_grad_op = op("ReluGrad(gradients: T, features: T) -> backprops: T; T: realnumbertype")
relu6_grad_op = op("Relu6Grad(gradients: T, features: T) -> backprops: T; T: realnumbertype")
elu_grad_op = op("EluGrad(gradients: T, outputs: T) -> backprops: T; " + _FLOATS)
selu_grad_op = op("SeluGrad(gradients: T, outputs: T) -> backprops: T; " + _FLOATS)
leaky_relu_grad_op: OpHandle = op("LeakyReluGrad(gradients: T, features: T) -> backprops: T; " + _ALPHA)
leaky_relu_grad_op.gradient(
    lambda node, grad: [leaky_relu_grad_op(grad, node.inputs[1], alpha=node.attrs["alpha"]), zeros_as(node.inputs[1])]
)
softplus_grad_op = op("SoftplusGrad(gradients: T, features: T) -> backprops: T; " + _FLOATS)
softsign_grad_op = op("SoftsignGrad(gradients: T, features: T) -> backprops: T; " + _FLOATS, differentiable=None)


for _handle in (
    relu_grad_op, relu6_grad_op, elu_grad_op, selu_grad_op, leaky_relu_grad_op, softplus_grad_op, softsign_grad_op,
):  # fmt: skip
    _handle.shape(equal_shapes)

# ---- kernels of activations ----------------------------------------------------------------------------------------


def _elu(x: Array) -> Any:
    return np.where(x < 0, np.expm1(np.minimum(x, x.dtype.type(0))), x)[()]


def _selu(x: Array) -> Any:
    t = x.dtype.type
    return np.where(x < 0, t(_SCALE_ALPHA) * np.expm1(np.minimum(x, t(0))), t(_SCALE) * x)[()]


def _softplus(x: Array) -> Any:
    return np.logaddexp(x, x.dtype.type(0))


def _softsign(x: Array) -> Any:
    return x / (np.abs(x) + x.dtype.type(1))


elu_op.kernel_factory("CPU")(widened(_elu))
selu_op.kernel_factory("CPU")(widened(_selu))
softplus_op.kernel_factory("CPU")(widened(_softplus))
softsign_op.kernel_factory("CPU")(widened(_softsign))


@leaky_relu_op.kernel_factory("CPU")
def _leaky_relu_factory(node: Node) -> Callable[..., Any]:
    alpha = node.attrs["T"].numpy.type(node.attrs["alpha"])
    if node.attrs["alpha"] <= 1:
        return lambda x: np.maximum(x, alpha * x)
    return lambda x: np.where(x > 0, x, alpha * x)[()]


def where_else_zero(mask: Array, values: Array) -> Any:
    """``values`` where the boolean ``mask`` is set and 0 elsewhere, infinities and NaN included.

    The mask is widened to words of all ones and combined with the values by a bitwise and: three
    vectorised passes, several times faster than np.where or a product with the mask.
    """
    if not isinstance(mask, np.ndarray) or values.itemsize not in (4, 8):
        return np.where(mask, values, values.dtype.type(0))[()]
    signed = np.int32 if values.itemsize == 4 else np.int64
    words = mask.view(np.int8).astype(signed)
    np.negative(words, out=words)
    np.bitwise_and(words, values.view(signed), out=words)
    return words.view(values.dtype)


def _check_same(grad: Array, x: Array) -> None:
    """Refuses operands of two shapes, which numpy would broadcast."""
    if grad.shape != x.shape:
        refuse(f"Inputs must have the same size and shape.  Inputs: {list(grad.shape)} != {list(x.shape)}")


@relu_grad_op.kernel("CPU")
def _relu_grad(grad: Array, x: Array) -> Any:
    _check_same(grad, x)
    return where_else_zero(x > 0, grad)


@relu6_grad_op.kernel("CPU")
def _relu6_grad(grad: Array, x: Array) -> Any:
    _check_same(grad, x)
    return where_else_zero((x > 0) & (x < 6), grad)


def _elu_grad(grad: Array, y: Array) -> Any:
    _check_same(grad, y)
    return np.where(y < 0, (y + y.dtype.type(1)) * grad, grad)[()]


def _selu_grad(grad: Array, y: Array) -> Any:
    _check_same(grad, y)
    t = y.dtype.type
    return np.where(y < 0, grad * (y + t(_SCALE_ALPHA)), grad * t(_SCALE))[()]


def _softplus_grad(grad: Array, x: Array) -> Any:
    _check_same(grad, x)
    return grad / (np.exp(-x) + x.dtype.type(1))


def _softsign_grad(grad: Array, x: Array) -> Any:
    _check_same(grad, x)
    return grad / np.square(np.abs(x) + x.dtype.type(1))


elu_grad_op.kernel_factory("CPU")(widened(_elu_grad))
selu_grad_op.kernel_factory("CPU")(widened(_selu_grad))
softplus_grad_op.kernel_factory("CPU")(widened(_softplus_grad))
softsign_grad_op.kernel_factory("CPU")(widened(_softsign_grad))


@leaky_relu_grad_op.kernel_factory("CPU")
def _leaky_relu_grad_factory(node: Node) -> Callable[..., Any]:
    alpha = node.attrs["T"].numpy.type(node.attrs["alpha"])

    def leaky_relu_grad(grad: Array, x: Array) -> Any:
        _check_same(grad, x)
        return np.where(x > 0, grad, alpha * grad)[()]

    return leaky_relu_grad


# ---- gradients of activations --------------------------------------------------------------------------------------


def _from_output(handle: OpHandle) -> Callable[[Operation, Tensor], list[Any]]:
    return lambda node, grad: [handle(grad, node.outputs[0])]


def _from_input(handle: OpHandle) -> Callable[[Operation, Tensor], list[Any]]:
    return lambda node, grad: [handle(grad, node.inputs[0])]


relu_op.gradient(_from_output(relu_grad_op))
relu6_op.gradient(_from_output(relu6_grad_op))
elu_op.gradient(_from_output(elu_grad_op))
selu_op.gradient(_from_output(selu_grad_op))
softplus_op.gradient(_from_input(softplus_grad_op))
softsign_op.gradient(_from_input(softsign_grad_op))


def _rectifier_second(handle: OpHandle) -> Callable[[Operation, Tensor], list[Any]]:
    """The second gradient of a piecewise linear function depends only on the incoming gradient."""
    return lambda node, grad: [handle(grad, node.inputs[1]), zeros_as(node.inputs[1])]


relu_grad_op.gradient(_rectifier_second(relu_grad_op))
relu6_grad_op.gradient(_rectifier_second(relu6_grad_op))


def _below_zero(values: Tensor, where: Tensor) -> Tensor:
    """``values`` where ``where`` is negative, else 0."""
    return relu_grad_op(values, negative(where))


@elu_grad_op.gradient
def _elu_second(node: Operation, grad: Tensor) -> list[Any]:
    gradients, outputs = node.inputs
    return [elu_grad_op(grad, outputs), _below_zero(multiply(grad, gradients), outputs)]


@selu_grad_op.gradient
def _selu_second(node: Operation, grad: Tensor) -> list[Any]:
    gradients, outputs = node.inputs
    return [selu_grad_op(grad, outputs), _below_zero(multiply(grad, gradients), outputs)]


@softplus_grad_op.gradient
def _softplus_second(node: Operation, grad: Tensor) -> list[Any]:
    # s(x) is the derivative of softplus; s' = s(x) s(-x).
    gradients, features = node.inputs
    once = softplus_grad_op(multiply(grad, gradients), features)
    return [softplus_grad_op(grad, features), softplus_grad_op(once, negative(features))]


# ---- public functions ---------------------------------------------------------------------------


@export("tf.nn.relu")
def relu(features: TensorLike, name: str | None = None) -> Tensor:
    """``max(features, 0)`` (``tf.nn.relu``).

    Args:
      features: a tensor of real numbers.
      name: of the op.

    Returns:
      A tensor of the same dtype and shape.
    """
    return relu_op(features, name=name)


@export("tf.nn.relu6")
def relu6(features: TensorLike, name: str | None = None) -> Tensor:
    """``min(max(features, 0), 6)`` (``tf.nn.relu6``)."""
    with name_scope(name, "Relu6", [features]) as scope:
        return relu6_op(convert_to_tensor(features, name="features"), name=scope)


@export("tf.nn.elu")
def elu(features: TensorLike, name: str | None = None) -> Tensor:
    """``exp(x) - 1`` below 0 and x above (``tf.nn.elu``)."""
    return elu_op(features, name=name)


@export("tf.nn.selu")
def selu(features: TensorLike, name: str | None = None) -> Tensor:
    """The self-normalising `elu` (``tf.nn.selu``)."""
    return selu_op(features, name=name)


@export("tf.nn.leaky_relu")
def leaky_relu(features: TensorLike, alpha: float = 0.2, name: str | None = None) -> Tensor:
    """``max(x, alpha * x)``; integers are converted to float32 (``tf.nn.leaky_relu``)."""
    with name_scope(name, "LeakyRelu", [features, alpha]) as scope:
        features = convert_to_tensor(features, name="features")
        if features.dtype.is_integer:
            features = cast(features, dtypes.float32)
        return leaky_relu_op(features, alpha=alpha, name=scope)


@export("tf.math.softplus", "tf.nn.softplus")
def softplus(features: TensorLike, name: str | None = None) -> Tensor:
    """``log(exp(x) + 1)`` (``tf.nn.softplus``).

    Args:
      features: a tensor of floats.
      name: of the op.

    Returns:
      A tensor of the same dtype and shape.
    """
    return softplus_op(features, name=name)


@export("tf.math.softsign", "tf.nn.softsign")
def softsign(features: TensorLike, name: str | None = None) -> Tensor:
    """``x / (abs(x) + 1)`` (``tf.nn.softsign``)."""
    return softsign_op(features, name=name)


@export("tf.nn.crelu")
def crelu(features: TensorLike, name: str | None = None, axis: int = -1) -> Tensor:
    """The positive and the negative part of ``features``, concatenated along ``axis`` (``tf.nn.crelu``)."""
    with name_scope(name, "CRelu", [features]) as scope:
        features = convert_to_tensor(features, name="features")
        both = concat([features, negative(features)], axis, name=scope)
        return relu(both)


# ---- Softmax, its logarithm, and the cross-entropies computed from logits in one pass ------------------------------

_T = "T: {half, bfloat16, float, double}"

softmax_op = op("Softmax(logits: T) -> softmax: T; " + _T)
log_softmax_op = op("LogSoftmax(logits: T) -> logsoftmax: T; " + _T)
log_softmax_op.gradient(lambda node, grad: [subtract(grad, multiply(_last_sum(grad), exp(node.outputs[0])))])
softmax_xent_op = op("SoftmaxCrossEntropyWithLogits(features: T, labels: T) -> loss: T, backprop: T; " + _T)
sparse_xent_op = op(
    "SparseSoftmaxCrossEntropyWithLogits(features: T, labels: Tlabels) -> loss: T, backprop: T; "
    + _T
    + "; Tlabels: {int32, int64} = DT_INT64",
    shape=sized("n classes, n -> n, n classes"),
)


all_of(softmax_op, log_softmax_op).shape(lambda node: [at_least_rank(node.inputs[0].raw_shape, 1)])


@softmax_xent_op.shape
def _xent_shape(node: Operation) -> list[RawShape]:
    shape = with_rank(broadcast_raw(node.inputs[0].raw_shape, node.inputs[1].raw_shape), 2)
    return [shape[:1], shape]


# ---- kernels of softmax and the cross-entropies --------------------------------------------------------------------


def _scaled(logits: Array) -> Array:
    """Logits minus the largest of their row, so that no exponential overflows."""
    scaled: Array = np.subtract(logits, logits.max(axis=-1, keepdims=True))
    return scaled


def _softmax(logits: Array) -> Array:
    result = _scaled(logits)
    np.exp(result, out=result)
    result /= result.sum(axis=-1, keepdims=True)
    return result


def _log_softmax(logits: Array) -> Array:
    result = _scaled(logits)
    result -= np.log(np.exp(result).sum(axis=-1, keepdims=True))
    return result


def _over_rows(function: Callable[..., Any]) -> Any:
    """A kernel factory for functions of the last axis; 16-bit floats are computed in float32."""

    def factory(node: Node) -> Any:
        dtype = node.attrs["T"].numpy
        narrow = node.attrs["T"] in HALVES

        def kernel(logits: Array) -> Array:
            if not logits.size:
                return logits
            result: Array = function(logits.astype(np.float32)).astype(dtype) if narrow else function(logits)
            return result

        return kernel

    return factory


softmax_op.kernel_factory("CPU")(_over_rows(_softmax))
log_softmax_op.kernel_factory("CPU")(_over_rows(_log_softmax))


def _xent(logits: Array, labels: Array) -> tuple[Array, Array]:
    """The loss per row and its gradient for the logits, with one exponential per element."""
    scaled = _scaled(logits)
    backprop = np.exp(scaled)
    total = backprop.sum(axis=1, keepdims=True)
    backprop /= total
    np.subtract(np.log(total), scaled, out=scaled)
    scaled *= labels
    backprop -= labels
    return scaled.sum(axis=1), backprop


def _in_float32(node: Node) -> Any:
    dtype = node.attrs["T"].numpy
    if node.attrs["T"] not in HALVES:
        return None
    return lambda loss, backprop: (loss.astype(dtype), backprop.astype(dtype))


@softmax_xent_op.kernel_factory("CPU")
def _xent_factory(node: Node) -> Any:
    narrow = _in_float32(node)

    def kernel(logits: Array, labels: Array) -> tuple[Array, Array]:
        if narrow:
            logits, labels = logits.astype(np.float32), labels.astype(np.float32)
        if logits.shape != labels.shape:
            logits, labels = _broadcast(logits, labels)
        if logits.ndim != 2:
            refuse(f"logits must be 2-dimensional, but have shape {_bracketed(logits)}")
        if not logits.size:
            return np.zeros(logits.shape[:1], node.attrs["T"].numpy), np.zeros(logits.shape, node.attrs["T"].numpy)
        found = _xent(logits, labels)
        return narrow(*found) if narrow else found

    return kernel


def _broadcast(logits: Array, labels: Array) -> tuple[Array, ...]:
    try:
        return tuple(np.broadcast_arrays(logits, labels))
    except ValueError:
        raise InvalidArgumentError.of(
            "logits and labels must be broadcastable: "
            f"logits_size={_bracketed(logits)} labels_size={_bracketed(labels)}"
        ) from None


def _bracketed(array: Array) -> str:
    return "[" + ",".join(map(str, array.shape)) + "]"


def _check_labels(logits: Array, labels: Array) -> None:
    if np.ndim(labels) != 1:
        refuse(f"labels must be 1-D, but got shape {list(np.shape(labels))}")
    classes = logits.shape[1]
    if logits.shape[0] != labels.shape[0]:
        refuse(
            "logits and labels must have the same first dimension, "
            f"got logits shape {_bracketed(logits)} and labels shape {_bracketed(labels)}"
        )
    if any_outside(labels, classes):
        wrong = next(v for v in labels.tolist() if not 0 <= v < classes)
        values = " ".join(map(str, labels.tolist()))
        refuse(
            f"Received a label value of {wrong} which is outside the valid range of [0, {classes}).  "
            f"Label values: {values}"
        )


@sparse_xent_op.kernel_factory("CPU")
def _sparse_xent_factory(node: Node) -> Any:
    narrow = _in_float32(node)

    def kernel(logits: Array, labels: Array) -> tuple[Array, Array]:
        _check_labels(logits, labels)
        if not logits.size:
            return np.zeros(logits.shape[:1], logits.dtype), logits
        scaled = _scaled(logits.astype(np.float32) if narrow else logits)
        lines = np.arange(labels.shape[0])
        chosen = scaled[lines, labels]
        np.exp(scaled, out=scaled)
        total = scaled.sum(axis=1)
        scaled /= total[:, None]
        scaled[lines, labels] -= scaled.dtype.type(1)
        loss = np.log(total)
        loss -= chosen
        return narrow(loss, scaled) if narrow else (loss, scaled)

    return kernel


# ---- gradients of softmax and the cross-entropies ------------------------------------------------------------------


def _last_sum(value: Tensor) -> Tensor:
    return sum_op(value, [-1], keep_dims=True)


@softmax_op.gradient
def _softmax_gradient(node: Operation, grad: Tensor) -> list[Any]:
    softmax = node.outputs[0]
    return [multiply(subtract(grad, _last_sum(multiply(grad, softmax))), softmax)]


def _is_zero(grad: Tensor | None) -> bool:
    if grad is None or grad.op.type in ("ZerosLike", "Zeros"):
        return True
    if grad.op.type == "Fill":
        value = constant_value(grad.op.inputs[1])
        return value is not None and not np.any(value)
    known = constant_value(grad)
    return known is not None and not np.any(known)


def _logits_gradient(node: Operation, grad_loss: Tensor, grad_backprop: Tensor | None) -> Tensor:
    """The gradient for the logits, with the second derivative if the backprop output is used."""
    column = expand_dims(grad_loss, -1)
    first = multiply(column, node.outputs[1])
    if _is_zero(grad_backprop):
        return first
    assert grad_backprop is not None
    softmax = softmax_op(node.inputs[0])
    second = multiply(subtract(grad_backprop, _last_sum(multiply(grad_backprop, softmax))), softmax)
    return add(first, second)


@softmax_xent_op.gradient
def _xent_gradient(node: Operation, grad_loss: Tensor, grad_backprop: Tensor | None) -> list[Any]:
    logits = _logits_gradient(node, grad_loss, grad_backprop)
    return [logits, multiply(expand_dims(grad_loss, -1), negative(log_softmax_op(node.inputs[0])))]


@sparse_xent_op.gradient
def _sparse_xent_gradient(node: Operation, grad_loss: Tensor, grad_backprop: Tensor | None) -> list[Any]:
    return [_logits_gradient(node, grad_loss, grad_backprop), None]
