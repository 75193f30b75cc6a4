"""Powers, products with logarithms, angles and ``nextafter``: functions of two operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, all_of, broadcast_shape, convert_to_tensor, name_scope, op
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.math.broadcast import sum_to_operands, widened
from tfmini.ops.math.comparison import greater_op, not_equal_op, select_op
from tfmini.ops.math.elementwise import add_op, conjugate, div_no_nan_op, mul_op, neg_op, real_div_op, sub_op
from tfmini.ops.math.unary import log_op, square_op

_LOG_TYPES = "T: {bfloat16, half, float, double, complex64, complex128}"
pow_op = op("Pow(x: T, y: T) -> z: T; T: {bfloat16, float, half, double, int32, int64, complex64, complex128}")
pow_op.kernel_factory("CPU")(lambda node: _integer_power if node.attrs["T"].is_integer else np.power)
xdivy_op = op(f"Xdivy(x: T, y: T) -> z: T; {_LOG_TYPES}")
xlogy_op = op(f"Xlogy(x: T, y: T) -> z: T; {_LOG_TYPES}")
atan2_op = op("Atan2(y: T, x: T) -> z: T; T: {bfloat16, half, float, double}")
atan2_op.kernel("CPU")(np.arctan2)
next_after_op = op("NextAfter(x1: T, x2: T) -> output: T; T: {float64, float32} = DT_FLOAT")
all_of(pow_op, xdivy_op, xlogy_op, atan2_op, next_after_op).shape(broadcast_shape)
next_after_op.kernel("CPU")(np.nextafter)


def _integer_power(x: Any, y: Any) -> Any:
    if np.any(y < 0):
        refuse("Integers to negative integer powers are not allowed")
    return np.power(x, y)


def _xdivy(x: Any, y: Any) -> Any:
    zero = x.dtype.type(0)
    return np.where(x == zero, zero, np.divide(x, y))[()]


def _xlogy(x: Any, y: Any) -> Any:
    zero = x.dtype.type(0)
    return np.where(x == zero, zero, np.multiply(x, np.log(y)))[()]


xdivy_op.kernel_factory("CPU")(widened(_xdivy))
xlogy_op.kernel("CPU")(_xlogy)  # the logarithm of a 16-bit float is rounded before the product, as in TensorFlow


@pow_op.gradient
def _pow_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, y = (conjugate(t) for t in node.inputs)
    z = conjugate(node.outputs[0])
    one = convert_to_tensor(np.array(1, y.dtype.numpy))
    gx = mul_op(mul_op(grad, y), pow_op(x, sub_op(y, one)))
    # log(x) is used only where it exists: 0 ** y does not depend on y.
    defined = (not_equal_op if x.dtype.is_complex else greater_op)(x, array_filling.zeros_like(x))
    safe = select_op(defined, x, array_filling.ones_like(x))
    # In this order because z * log(x) may overflow a short type even where grad is 0.
    gy = mul_op(mul_op(grad, z), select_op(defined, log_op(safe), array_filling.zeros_like(x)))
    return sum_to_operands(node, [gx, gy])


@xlogy_op.gradient
def _xlogy_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, y = node.inputs
    return sum_to_operands(node, [mul_op(xlogy_op(_indicator(x), y), grad), mul_op(xdivy_op(x, y), grad)])


@xdivy_op.gradient
def _xdivy_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, y = node.inputs
    gy = xdivy_op(neg_op(x), square_op(y))
    return sum_to_operands(node, [mul_op(xdivy_op(_indicator(x), y), grad), mul_op(gy, grad)])


def _indicator(x: Tensor) -> Tensor:
    """1 where ``x`` is not 0."""
    return div_no_nan_op(x, x)


@atan2_op.gradient
def _atan2_gradient(node: Operation, grad: Tensor) -> list[Any]:
    y, x = node.inputs
    scaled = real_div_op(grad, add_op(square_op(x), square_op(y)))
    return sum_to_operands(node, [mul_op(x, scaled), mul_op(neg_op(y), scaled)])


@next_after_op.gradient
def _next_after_gradient(node: Operation, grad: Tensor) -> list[Any]:
    # The result follows x1; x2 gives only the direction of the last bit.
    return sum_to_operands(node, [grad, mul_op(grad, np.zeros((), node.attrs["T"].numpy))])


@export("tf.pow", "tf.math.pow")
def pow(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x ** y``; integers refuse negative exponents at run time (``tf.pow``)."""
    with name_scope(name, "Pow", [x]) as scope:
        return pow_op(x, y, name=scope)


@export("tf.math.xdivy")
def xdivy(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x / y``, and 0 where ``x`` is 0 (``tf.math.xdivy``)."""
    with name_scope(name, "xdivy", [x]):
        return xdivy_op(x, y)


@export("tf.math.xlogy")
def xlogy(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x * log(y)``, and 0 where ``x`` is 0 (``tf.math.xlogy``)."""
    with name_scope(name, "xlogy", [x]):
        return xlogy_op(x, y)


@export("tf.atan2", "tf.math.atan2")
def atan2(y: Any, x: Any, name: str | None = None) -> Tensor:
    """The angle of the point (x, y) in radians (``tf.atan2``)."""
    return atan2_op(y, x, name=name)


@export("tf.math.nextafter")
def nextafter(x1: Any, x2: Any, name: str | None = None) -> Tensor:
    """The representable number next to ``x1`` in the direction of ``x2`` (``tf.math.nextafter``)."""
    return next_after_op(x1, x2, name=name)
