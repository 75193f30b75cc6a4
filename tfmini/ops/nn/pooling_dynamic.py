"""Max pooling whose window and strides are tensors: ``MaxPoolV2`` and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfmini.graph.families import Operation, Tensor, op
from tfmini.numerics.windows import Array
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.nn.pooling import max_pool_grad_grad_of, max_pool_grad_of, max_pool_of, pooled_shape
from tfmini.shapes import RawShape, merge_raw, with_rank

_ATTRS = "; padding: {'SAME', 'VALID'}; data_format: {'NHWC', 'NCHW'} = 'NHWC'; T: realnumbertype"
_GRAD = "(orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32) -> output: T"

max_pool_v2_op = op(
    "MaxPoolV2(input: T, ksize: int32, strides: int32) -> output: T"
    "; T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = DT_FLOAT"
    "; padding: {'SAME', 'VALID'}; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"
)
max_pool_v2_op.kernel_factory("CPU")(
    lambda node: lambda image, ksize, strides: max_pool_of(_sized(node.attrs, ksize, strides))(image)
)
max_pool_grad_v2_op = op("MaxPoolGradV2" + _GRAD + _ATTRS + " = DT_FLOAT")
max_pool_grad_v2_op.shape(lambda node: [with_rank(node.inputs[0].raw_shape, 4)])
max_pool_grad_grad_v2_op = op("MaxPoolGradGradV2" + _GRAD + _ATTRS)
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
def _grad_kernel(node: Any) -> Callable[..., Array]:
    def grad_kernel(image: Array, result: Array, grad: Array, ksize: Array, strides: Array) -> Array:
        return max_pool_grad_of(_sized(node.attrs, ksize, strides))(image, result, grad)

    return grad_kernel


@max_pool_grad_grad_v2_op.kernel_factory("CPU")
def _grad_grad_kernel(node: Any) -> Callable[..., Array]:
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
    return [None, None, max_pool_grad_grad_v2_op(image, result, grad, ksize, strides, **_attrs(node)), None, None]


@max_pool_grad_grad_v2_op.gradient
def _grad_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    image, result, _, ksize, strides = node.inputs
    return [None, None, max_pool_grad_v2_op(image, result, grad, ksize, strides, **_attrs(node)), None, None]
