"""Softmax, its logarithm, and the cross-entropies computed from logits in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.errors import InvalidArgumentError
from tfmini.graph.families import Operation, Tensor, all_of, op, sized
from tfmini.numerics.windows import Array
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.shape import expand_dims
from tfmini.ops.math.broadcast import HALVES
from tfmini.ops.math.elementwise import add, multiply, negative, subtract
from tfmini.ops.math.reductions import sum_op
from tfmini.ops.math.unary import exp
from tfmini.shapes import RawShape, at_least_rank, broadcast_raw, with_rank

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


# ---- kernels ------------------------------------------------------------------------------------


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


def _over_rows(function: Any) -> Any:
    """A kernel factory for functions of the last axis; 16-bit floats are computed in float32."""

    def factory(node: Any) -> Any:
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


def _in_float32(node: Any) -> Any:
    dtype = node.attrs["T"].numpy
    if node.attrs["T"] not in HALVES:
        return None
    return lambda loss, backprop: (loss.astype(dtype), backprop.astype(dtype))


@softmax_xent_op.kernel_factory("CPU")
def _xent_factory(node: Any) -> Any:
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
    if not labels.size:
        return
    if labels.min() < 0 or labels.max() >= classes:
        wrong = next(v for v in labels.tolist() if not 0 <= v < classes)
        values = " ".join(map(str, labels.tolist()))
        refuse(
            f"Received a label value of {wrong} which is outside the valid range of [0, {classes}).  "
            f"Label values: {values}"
        )


@sparse_xent_op.kernel_factory("CPU")
def _sparse_xent_factory(node: Any) -> Any:
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


# ---- gradients ----------------------------------------------------------------------------------


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
