"""Bias addition, L2 loss, and the dense layers in one call (``xw_plus_b``, ``relu_layer``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.errors import InvalidArgumentError
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, name_scope, op
from tfmini.numerics.matrix_product import column_sums
from tfmini.numerics.windows import Array
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.math.broadcast import HALVES
from tfmini.ops.math.elementwise import multiply
from tfmini.ops.math.matmul import matmul
from tfmini.ops.nn.activation import relu
from tfmini.shapes import RawShape, at_least_rank, merge_dims, with_rank

_FORMAT = "T: numbertype; data_format: {'NHWC', 'NCHW'} = 'NHWC'"

bias_add_op = op("BiasAdd(value: T, bias: T) -> output: T; " + _FORMAT)
bias_add_op.gradient(lambda node, grad: [grad, bias_add_grad_op(grad, data_format=node.attrs["data_format"])])
bias_add_v1_op = op("BiasAddV1(value: T, bias: T) -> output: T; T: numbertype")
bias_add_v1_op.gradient(lambda node, grad: [grad, bias_add_grad_op(grad)])
bias_add_grad_op: OpHandle = op("BiasAddGrad(out_backprop: T) -> output: T; " + _FORMAT)
l2_loss_op = op("L2Loss(t: T) -> output: T; T: {half, bfloat16, float, double}", shape=[()])
l2_loss_op.gradient(lambda node, grad: [multiply(node.inputs[0], grad)])


def _channel_axis(node: Any) -> int:
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
def _bias_factory(node: Any) -> Callable[..., Array]:
    if node.attrs["data_format"] != b"NCHW":
        return _add_bias

    def add_to_channels(value: Array, bias: Array) -> Array:
        if bias.ndim != 1 or value.ndim < 2 or value.shape[1] != len(bias):
            raise _bias_mismatch(value, bias)
        return value + bias.reshape((-1,) + (1,) * (value.ndim - 2))

    return add_to_channels


@bias_add_grad_op.kernel_factory("CPU")
def _bias_grad_factory(node: Any) -> Callable[..., Array]:
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
def _l2_factory(node: Any) -> Callable[..., Any]:
    dtype = node.attrs["T"].numpy
    wide = np.dtype(np.float32) if node.attrs["T"] in HALVES else dtype

    def half_square_sum(value: Any) -> Any:
        flat = value.astype(wide, copy=False).reshape(-1)
        return (np.dot(flat, flat) * wide.type(0.5)).astype(dtype, copy=False)

    return half_square_sum


# ---- gradients ----------------------------------------------------------------------------------


@bias_add_grad_op.gradient
def _bias_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    value = node.inputs[0]
    zeros = multiply(value, convert_to_tensor(0, dtype=value.dtype.base_dtype))
    return [bias_add_op(zeros, grad, data_format=node.attrs["data_format"])]


# ---- public functions ---------------------------------------------------------------------------


@export("tf.nn.bias_add")
def bias_add(value: Any, bias: Any, data_format: str | None = None, name: str | None = None) -> Tensor:
    """Adds a vector to the channels of ``value`` (``tf.nn.bias_add``).

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
def l2_loss(t: Any, name: str | None = None) -> Tensor:
    """``sum(t ** 2) / 2`` (``tf.nn.l2_loss``)."""
    return l2_loss_op(t, name=name)


@export("tf.nn.xw_plus_b")
def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """``matmul(x, weights) + biases`` (``tf.nn.xw_plus_b``)."""
    with name_scope(name, "xw_plus_b", [x, weights, biases]) as scope:
        product = matmul(convert_to_tensor(x, name="x"), convert_to_tensor(weights, name="weights"))
        return bias_add(product, convert_to_tensor(biases, name="biases"), name=scope)


@export("tf.nn.relu_layer")
def relu_layer(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """``relu(matmul(x, weights) + biases)`` (``tf.nn.relu_layer``)."""
    with name_scope(name, "relu_layer", [x, weights, biases]) as scope:
        product = matmul(convert_to_tensor(x, name="x"), convert_to_tensor(weights, name="weights"))
        return relu(bias_add(product, convert_to_tensor(biases, name="biases")), name=scope)
