"""Element-wise functions of one tensor: roots, exponentials, trigonometry, rounding, special functions.

Complex parts are in `complex`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.graph import handle_of
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import OpHandle, op
from tfmini.graph.scoping import name_scope
from tfmini.graph.shape_functions import broadcast_shape, same_shape
from tfmini.numerics import special_functions
from tfmini.ops.math.broadcast import sum_to_operands, widened
from tfmini.ops.math.elementwise import add_op, conjugate, mul_op, neg_op, real_div_op, sub_op
from tfmini.ops.sparse.sparse_tensor import SparseTensor, on_values

_FLOATS = "{bfloat16, half, float, double}"
_ANALYTIC = "{bfloat16, half, float, double, complex64, complex128}"
_SIGNED = "{bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}"


def _unary(name: str, types: str, output: str = "T") -> OpHandle:
    handle = op(f"{name}(x: T) -> y: {output}; T: {types}")
    handle.shape(same_shape)
    return handle


def _grad_op(name: str) -> OpHandle:
    handle = op(f"{name}(y: T, dy: T) -> z: T; T: {_ANALYTIC}")
    handle.shape(broadcast_shape)
    return handle


abs_op = _unary("Abs", "{bfloat16, half, float, double, int8, int16, int32, int64}")
sign_op = _unary("Sign", "{bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}")
square_op = _unary(
    "Square",
    "{bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128}",
)
sqrt_op, sqrt_grad_op = _unary("Sqrt", _ANALYTIC), _grad_op("SqrtGrad")
rsqrt_op, rsqrt_grad_op = _unary("Rsqrt", _ANALYTIC), _grad_op("RsqrtGrad")
reciprocal_op, reciprocal_grad_op = _unary("Reciprocal", _SIGNED), _grad_op("ReciprocalGrad")
inv_op, inv_grad_op = _unary("Inv", _SIGNED), _grad_op("InvGrad")
sigmoid_op, sigmoid_grad_op = _unary("Sigmoid", _ANALYTIC), _grad_op("SigmoidGrad")
tanh_op, tanh_grad_op = _unary("Tanh", _ANALYTIC), _grad_op("TanhGrad")
exp_op, expm1_op = _unary("Exp", _ANALYTIC), _unary("Expm1", _ANALYTIC)
log_op, log1p_op = _unary("Log", _ANALYTIC), _unary("Log1p", _ANALYTIC)
sin_op, cos_op, tan_op = _unary("Sin", _ANALYTIC), _unary("Cos", _ANALYTIC), _unary("Tan", _ANALYTIC)
asin_op, acos_op, atan_op = _unary("Asin", _ANALYTIC), _unary("Acos", _ANALYTIC), _unary("Atan", _ANALYTIC)
sinh_op, cosh_op = _unary("Sinh", _ANALYTIC), _unary("Cosh", _ANALYTIC)
asinh_op, acosh_op, atanh_op = _unary("Asinh", _ANALYTIC), _unary("Acosh", _ANALYTIC), _unary("Atanh", _ANALYTIC)
floor_op, ceil_op, rint_op = _unary("Floor", _FLOATS), _unary("Ceil", _FLOATS), _unary("Rint", _FLOATS)
round_op = _unary("Round", _SIGNED)
erf_op, erfc_op = _unary("Erf", _FLOATS), _unary("Erfc", _FLOATS)
lgamma_op, digamma_op = _unary("Lgamma", _FLOATS), _unary("Digamma", _FLOATS)
is_nan_op, is_inf_op = _unary("IsNan", _FLOATS, "bool"), _unary("IsInf", _FLOATS, "bool")
is_finite_op = _unary("IsFinite", _FLOATS, "bool")
zeta_op = op("Zeta(x: T, q: T) -> z: T; T: {float, double}")
polygamma_op = op("Polygamma(a: T, x: T) -> z: T; T: {float, double}")

# ---- kernels --------------------------------------------------------------------------------

for _handle, _ufunc in (
    (abs_op, np.absolute), (square_op, np.square), (sqrt_op, np.sqrt), (exp_op, np.exp), (expm1_op, np.expm1),
    (log_op, np.log), (sin_op, np.sin), (cos_op, np.cos), (tan_op, np.tan),
    (asin_op, np.arcsin), (acos_op, np.arccos), (atan_op, np.arctan), (sinh_op, np.sinh), (cosh_op, np.cosh),
    (asinh_op, np.arcsinh), (acosh_op, np.arccosh), (atanh_op, np.arctanh), (tanh_op, np.tanh),
    (floor_op, np.floor), (ceil_op, np.ceil), (rint_op, np.rint), (is_nan_op, np.isnan), (is_inf_op, np.isinf),
    (is_finite_op, np.isfinite),
):  # fmt: skip
    _handle.kernel("CPU")(_ufunc)



log1p_op.kernel_factory("CPU")(lambda node: _complex_log1p if node.attrs["T"].is_complex else np.log1p)


def _complex_log1p(x: Any) -> Any:
    """Without adding 1 first, as numpy does, which loses the digits of what is small."""
    size = np.log1p(x.real * (2 + x.real) + x.imag * x.imag) / 2
    return (size + 1j * np.arctan2(x.imag, 1 + x.real)).astype(x.dtype)


erf_op.kernel("CPU")(special_functions.erf)
erfc_op.kernel("CPU")(special_functions.erfc)
lgamma_op.kernel("CPU")(special_functions.lgamma)
digamma_op.kernel("CPU")(special_functions.digamma)
zeta_op.shape(broadcast_shape)
zeta_op.kernel("CPU")(special_functions.zeta)
polygamma_op.shape(broadcast_shape)
polygamma_op.kernel("CPU")(special_functions.polygamma)


@sign_op.kernel_factory("CPU")
def _sign_factory(node: Any) -> Callable[..., Any]:
    if not node.attrs["T"].is_complex:
        return np.sign

    def complex_sign(x: Any) -> Any:
        size = np.absolute(x)
        return np.where(size == 0, x, x / np.where(size == 0, size.dtype.type(1), size))[()]

    return complex_sign


round_op.kernel_factory("CPU")(lambda node: (lambda x: x) if node.attrs["T"].is_integer else np.rint)


@reciprocal_op.kernel_factory("CPU")
@inv_op.kernel_factory("CPU")
def _reciprocal_factory(node: Any) -> Callable[..., Any]:
    return np.reciprocal


def _rsqrt(x: Any) -> Any:
    root = np.sqrt(x)
    return np.reciprocal(root, out=root) if type(root) is np.ndarray else np.reciprocal(root)


def _sigmoid(x: Any) -> Any:
    one = x.dtype.type(1)
    value = np.negative(x)
    if type(value) is not np.ndarray:  # numpy makes a scalar of an array of rank 0, too
        return one / (one + np.exp(value))
    np.exp(value, out=value)
    value += one
    return np.divide(one, value, out=value)


def _sigmoid_grad(y: Any, dy: Any) -> Any:
    slope = y.dtype.type(1) - y
    slope *= y
    slope *= dy
    return slope


def _tanh_grad(y: Any, dy: Any) -> Any:
    slope = y * y
    if type(slope) is not np.ndarray:
        return (y.dtype.type(1) - slope) * dy
    np.subtract(y.dtype.type(1), slope, out=slope)
    slope *= dy
    return slope


def _conjugated(y: Any) -> Any:
    return np.conjugate(y) if y.dtype.kind == "c" else y


def _sqrt_grad(y: Any, dy: Any) -> Any:
    return dy * y.dtype.type(0.5) / _conjugated(y)


def _rsqrt_grad(y: Any, dy: Any) -> Any:
    y = _conjugated(y)
    return dy * y.dtype.type(-0.5) * y * y * y


def _reciprocal_grad(y: Any, dy: Any) -> Any:
    y = _conjugated(y)
    return -dy * y * y


rsqrt_op.kernel_factory("CPU")(widened(_rsqrt))
sigmoid_op.kernel_factory("CPU")(widened(_sigmoid))
sigmoid_grad_op.kernel_factory("CPU")(widened(_sigmoid_grad))
tanh_grad_op.kernel_factory("CPU")(widened(_tanh_grad))
sqrt_grad_op.kernel_factory("CPU")(widened(_sqrt_grad))
rsqrt_grad_op.kernel_factory("CPU")(widened(_rsqrt_grad))
reciprocal_grad_op.kernel_factory("CPU")(widened(_reciprocal_grad))
inv_grad_op.kernel_factory("CPU")(widened(_reciprocal_grad))

# ---- gradients ------------------------------------------------------------------------------

for _handle in (floor_op, ceil_op, rint_op, round_op, is_nan_op, is_inf_op, is_finite_op):
    _handle.not_differentiable()


def _number(value: float, like: Tensor) -> Tensor:
    return convert_to_tensor(np.array(value, like.dtype.numpy))


def _scaled(factor: float, x: Tensor) -> Tensor:
    return mul_op(_number(factor, x), x)


def _one_plus_square(x: Tensor) -> Tensor:
    return add_op(_number(1, x), square_op(x))


def _one_minus_square(x: Tensor) -> Tensor:
    return sub_op(_number(1, x), square_op(x))


def _bell(factor: float, x: Tensor) -> Tensor:
    """Returns factor * 2 / sqrt(pi) * exp(-x ** 2)."""
    return mul_op(_number(factor * 2.0 / np.sqrt(np.pi), x), exp_op(neg_op(square_op(x))))


def _derive(handle: OpHandle, derivative: Callable[[Tensor], Tensor]) -> None:
    """Registers ``grad * conj(derivative(x))``."""
    handle.gradient(lambda node, grad: [mul_op(grad, derivative(conjugate(node.inputs[0])))])


def _derive_quotient(handle: OpHandle, divisor: Callable[[Tensor], Tensor]) -> None:
    """Registers ``grad / conj(divisor(x))``."""
    handle.gradient(lambda node, grad: [real_div_op(grad, divisor(conjugate(node.inputs[0])))])


_derive(square_op, lambda x: _scaled(2.0, x))
_derive(expm1_op, exp_op)
_derive(sin_op, cos_op)
_derive(cos_op, lambda x: neg_op(sin_op(x)))
_derive(sinh_op, cosh_op)
_derive(cosh_op, sinh_op)
_derive(erf_op, lambda x: _bell(1.0, x))
_derive(erfc_op, lambda x: _bell(-1.0, x))
_derive(lgamma_op, digamma_op)
_derive(digamma_op, lambda x: polygamma_op(_number(1, x), x))
_derive_quotient(log_op, lambda x: x)
_derive_quotient(log1p_op, lambda x: add_op(_number(1, x), x))
_derive_quotient(tan_op, lambda x: square_op(cos_op(x)))
_derive_quotient(asin_op, lambda x: sqrt_op(_one_minus_square(x)))
_derive_quotient(acos_op, lambda x: neg_op(sqrt_op(_one_minus_square(x))))
_derive_quotient(atan_op, _one_plus_square)
_derive_quotient(atanh_op, _one_minus_square)


abs_op.gradient(lambda node, grad: [mul_op(grad, sign_op(node.inputs[0]))])
sign_op.gradient(lambda node, grad: [handle_of("ZerosLike")(node.inputs[0])])
exp_op.gradient(lambda node, grad: [mul_op(grad, conjugate(node.outputs[0]))])
asinh_op.gradient(lambda node, grad: [real_div_op(grad, cosh_op(conjugate(node.outputs[0])))])
acosh_op.gradient(lambda node, grad: [real_div_op(grad, sinh_op(conjugate(node.outputs[0])))])


@polygamma_op.gradient
def _polygamma_gradient(node: Operation, grad: Tensor) -> list[Any]:
    n, x = node.inputs
    return [None, sum_to_operands(node, [None, mul_op(grad, polygamma_op(add_op(n, _number(1, n)), x))])[1]]


@zeta_op.gradient
def _zeta_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, q = node.inputs
    slope = mul_op(neg_op(x), zeta_op(add_op(x, _number(1, x)), q))
    return [None, sum_to_operands(node, [None, mul_op(grad, slope)])[1]]


def _by_grad_op(handle: OpHandle, grad_op: OpHandle, conjugates: bool = False) -> None:
    """Registers the gradient that the fused op ``grad_op(y, dy)`` computes from the output."""
    handle.gradient(
        lambda node, grad: [grad_op(conjugate(node.outputs[0]) if conjugates else node.outputs[0], grad)]
    )


_by_grad_op(sqrt_op, sqrt_grad_op)
_by_grad_op(rsqrt_op, rsqrt_grad_op)
_by_grad_op(reciprocal_op, reciprocal_grad_op)
_by_grad_op(inv_op, inv_grad_op)
_by_grad_op(sigmoid_op, sigmoid_grad_op, conjugates=True)
_by_grad_op(tanh_op, tanh_grad_op, conjugates=True)


@sigmoid_grad_op.gradient
def _sigmoid_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    y, dy = (conjugate(t) for t in node.inputs)
    product = mul_op(grad, dy)
    return [sub_op(product, mul_op(_scaled(2.0, product), y)), sigmoid_grad_op(y, grad)]


@tanh_grad_op.gradient
def _tanh_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    y, dy = (conjugate(t) for t in node.inputs)
    return [mul_op(mul_op(_scaled(-2.0, grad), dy), y), tanh_grad_op(y, grad)]


@sqrt_grad_op.gradient
def _sqrt_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    quotient = real_div_op(grad, node.inputs[0])
    return [neg_op(mul_op(conjugate(quotient), node.outputs[0])), _scaled(0.5, quotient)]


@rsqrt_grad_op.gradient
def _rsqrt_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    y, dy = node.inputs
    y = conjugate(y)
    slope = mul_op(mul_op(_scaled(-1.5, conjugate(grad)), dy), square_op(y))
    return [slope, rsqrt_grad_op(y, grad)]


def _reciprocal_grad_gradient(node: Operation, grad: Tensor) -> list[Any]:
    y, dy = node.inputs
    y = conjugate(y)
    return [mul_op(mul_op(_scaled(-2.0, conjugate(grad)), dy), y), node.handle(y, grad)]


reciprocal_grad_op.gradient(_reciprocal_grad_gradient)
inv_grad_op.gradient(_reciprocal_grad_gradient)

# ---- public functions -----------------------------------------------------------------------


def _public(handle: OpHandle, function_name: str, text: str) -> Callable[..., Tensor]:
    """A public function ``f(x, name=None)`` around one op."""

    def function(x: Any, name: str | None = None) -> Tensor:
        if type(x) is SparseTensor:
            return on_values(function, x, name)  # type: ignore[return-value]
        return handle(x, name=name)

    function.__name__ = function.__qualname__ = function_name
    function.__doc__ = f"{text}, element-wise."
    return function


square = _public(square_op, "square", "x ** 2")
sqrt = _public(sqrt_op, "sqrt", "The square root")
rsqrt = _public(rsqrt_op, "rsqrt", "1 / sqrt(x)")
reciprocal = _public(reciprocal_op, "reciprocal", "1 / x")
exp = _public(exp_op, "exp", "e ** x")
expm1 = _public(expm1_op, "expm1", "e ** x - 1, accurate near 0")
log = _public(log_op, "log", "The natural logarithm")
log1p = _public(log1p_op, "log1p", "log(1 + x), accurate near 0")
sin = _public(sin_op, "sin", "The sine of radians")
cos = _public(cos_op, "cos", "The cosine of radians")
tan = _public(tan_op, "tan", "The tangent of radians")
asin = _public(asin_op, "asin", "The arc sine")
acos = _public(acos_op, "acos", "The arc cosine")
atan = _public(atan_op, "atan", "The arc tangent")
sinh = _public(sinh_op, "sinh", "The hyperbolic sine")
cosh = _public(cosh_op, "cosh", "The hyperbolic cosine")
asinh = _public(asinh_op, "asinh", "The inverse hyperbolic sine")
acosh = _public(acosh_op, "acosh", "The inverse hyperbolic cosine")
atanh = _public(atanh_op, "atanh", "The inverse hyperbolic tangent")
tanh = _public(tanh_op, "tanh", "The hyperbolic tangent")
sigmoid = _public(sigmoid_op, "sigmoid", "1 / (1 + exp(-x))")
sign = _public(sign_op, "sign", "-1, 0 or 1; x / |x| for complex x")
floor = _public(floor_op, "floor", "The largest whole number not above x")
ceil = _public(ceil_op, "ceil", "The smallest whole number not below x")
rint = _public(rint_op, "rint", "The nearest whole number, halves to even")
erf = _public(erf_op, "erf", "The error function")
erfc = _public(erfc_op, "erfc", "1 - erf(x)")
lgamma = _public(lgamma_op, "lgamma", "log |gamma(x)|")
digamma = _public(digamma_op, "digamma", "The derivative of lgamma")
is_nan = _public(is_nan_op, "is_nan", "Whether x is NaN")
is_inf = _public(is_inf_op, "is_inf", "Whether x is infinite")
is_finite = _public(is_finite_op, "is_finite", "Whether x is neither infinite nor NaN")


@export("tf.round", "tf.math.round")
def round(x: Any, name: str | None = None) -> Tensor:
    """The nearest integer, halves to even; integers are returned unchanged (``tf.round``)."""
    x = convert_to_tensor(x, name="x")
    return x if x.dtype.is_integer else round_op(x, name=name)


@export("tf.log_sigmoid", "tf.math.log_sigmoid")
def log_sigmoid(x: Any, name: str | None = None) -> Tensor:
    """log(sigmoid(x)), without overflow (``tf.log_sigmoid``)."""
    with name_scope(name, "LogSigmoid", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return neg_op(handle_of("Softplus")(neg_op(x)), name=scope)


@export("tf.zeta", "tf.math.zeta")
def zeta(x: Any, q: Any, name: str | None = None) -> Tensor:
    """The Hurwitz zeta function (``tf.zeta``)."""
    return zeta_op(x, q, name=name)


@export("tf.polygamma", "tf.math.polygamma")
def polygamma(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The derivative of order ``a`` of digamma (``tf.polygamma``)."""
    return polygamma_op(a, x, name=name)


export_names("tf tf.debugging tf.math", "is_finite is_inf is_nan")
export_names(
    "tf tf.math",
    "acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc exp expm1 floor lgamma log log1p reciprocal "
    "rint rsqrt sign sin sinh sqrt square tan",
)
export_names("tf tf.math tf.nn", "sigmoid tanh")
