"""Element-wise functions of one tensor: roots, exponentials, trigonometry, rounding, special functions.

Below them stand the parts of complex numbers, ``tf.abs``, and functions of two operands: powers, angles, ``nextafter``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.families import (
    Operation,
    OpHandle,
    Tensor,
    all_of,
    broadcast_shape,
    convert_to_tensor,
    name_scope,
    op,
    same_shape,
)
from tfmini.graph.node import Node
from tfmini.numerics import complex_numbers, special_functions
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array.identity import cast
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.composites import SparseTensor, on_values
from tfmini.ops.math.broadcast import OfX, named, sum_to_operands, told, widened
from tfmini.ops.math.comparison import greater_op, not_equal_op, select_op
from tfmini.ops.math.elementwise import add_op, conjugate, div_no_nan_op, mul_op, neg_op, real_div_op, sub_op

_FLOATS = "{bfloat16, half, float, double}"
_ANALYTIC = "{bfloat16, half, float, double, complex64, complex128}"
_SIGNED = "{bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}"
_SQUARED = _SIGNED.replace("}", ", uint8, uint16, uint32, uint64}")
Gradient = Callable[[Operation, Tensor], list[Any]]

# ---- kernels --------------------------------------------------------------------------------


def _by_kind(complexes: Callable[..., Any], others: Callable[..., Any]) -> Callable[[Node], Callable[..., Any]]:
    """A kernel factory: numpy's functions of complex numbers are not C's where a part is zero or infinite."""
    return lambda node: complexes if node.attrs["T"].is_complex else others


def _sign_factory(node: Node) -> Callable[..., Any]:
    if not node.attrs["T"].is_complex:
        return np.sign

    def complex_sign(x: Array) -> Any:
        size = np.absolute(x)
        return np.where(size == 0, x, x / np.where(size == 0, size.dtype.type(1), size))[()]

    return complex_sign


def _rsqrt(x: Array) -> Any:
    root = np.sqrt(x)
    if x.dtype.kind == "c":
        return complex_numbers.reciprocal(root)
    return np.reciprocal(root, out=root) if type(root) is np.ndarray else np.reciprocal(root)


def _sigmoid(x: Array) -> Any:
    one = x.dtype.type(1)
    value = np.negative(x)
    if type(value) is not np.ndarray:  # numpy makes a scalar of an array of rank 0, too
        return one / (one + np.exp(value))
    np.exp(value, out=value)
    value += one
    return np.divide(one, value, out=value)


def _sigmoid_grad(y: Array, dy: Array) -> Any:
    slope = y.dtype.type(1) - y
    slope *= y
    slope *= dy
    return slope


def _tanh_grad(y: Array, dy: Array) -> Any:
    slope = y * y
    if type(slope) is not np.ndarray:
        return (y.dtype.type(1) - slope) * dy
    np.subtract(y.dtype.type(1), slope, out=slope)
    slope *= dy
    return slope


def _conjugated(y: Array) -> Any:
    return np.conjugate(y) if y.dtype.kind == "c" else y


def _product(x: Array, y: Array) -> Any:
    return complex_numbers.multiply(x, y) if x.dtype.kind == "c" else x * y


def _passed(dy: Array, grad: Array) -> Any:
    """``grad``, and 0 where ``dy`` is 0 even if the slope is infinite or NaN: of what a program has masked, say."""
    return np.where(dy == 0, dy.dtype.type(0), grad)[()]


def _sqrt_grad(y: Array, dy: Array) -> Any:
    half = _product(y.dtype.type(0.5), dy)
    return _passed(dy, complex_numbers.divide(half, np.conjugate(y)) if y.dtype.kind == "c" else half / y)


def _rsqrt_grad(y: Array, dy: Array) -> Any:
    y = _conjugated(y)
    return _passed(dy, _product(_product(y.dtype.type(-0.5), _product(dy, y)), _product(y, y)))


def _reciprocal_grad(y: Array, dy: Array) -> Any:
    y = _conjugated(y)
    return _passed(dy, _product(_product(-y, y), dy))


# ---- gradients ------------------------------------------------------------------------------


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


def _times(derivative: Callable[[Tensor], Tensor]) -> Gradient:
    """Returns the gradient ``grad * conj(derivative(x))``."""
    return lambda node, grad: [mul_op(grad, derivative(conjugate(node.inputs[0])))]


def _over(divisor: Callable[[Tensor], Tensor]) -> Gradient:
    """Returns the gradient ``grad / conj(divisor(x))``."""
    return lambda node, grad: [real_div_op(grad, divisor(conjugate(node.inputs[0])))]


def _fused(grad_op: OpHandle, conjugates: bool = False) -> Gradient:
    """Returns the gradient that the fused op ``grad_op(y, dy)`` computes from the output."""
    return lambda node, grad: [grad_op(conjugate(node.outputs[0]) if conjugates else node.outputs[0], grad)]


# ---- the ops --------------------------------------------------------------------------------


def _declared(
    op_type: str, types: str, kernel: Callable[..., Any], gradient: Gradient | None, output: str, factory: bool
) -> OpHandle:
    handle = op(f"{op_type}(x: T) -> y: {output}; T: {types}", shape=same_shape, differentiable=gradient is not None)
    (handle.kernel_factory("CPU") if factory else handle.kernel("CPU"))(kernel)
    if gradient is not None:
        handle.gradient(gradient)
    return handle


def _row(
    op_type: str, types: str, kernel: Callable[..., Any], gradient: Gradient | None, name: str, text: str,
    output: str = "T", factory: bool = False,
) -> tuple[OpHandle, OfX]:  # fmt: skip
    """Declares an op; returns it and its public function, which takes sparse tensors as well.

    Args:
      kernel: a function of an array, or the ``factory`` of one.
      gradient: None: backpropagation ends here.
      text: says what it returns.
    """
    handle = _declared(op_type, types, kernel, gradient, output, factory)

    def function(x: TensorLike, name: str | None = None) -> Tensor:
        if type(x) is SparseTensor:
            return on_values(function, x, name)  # type: ignore[return-value]
        return handle(x, name=name)

    result = "A tensor of the same shape" + (" and dtype." if output == "T" else f", {output}.")
    return handle, named(function, name, told(f"{text}, element-wise; sparse tensors stay sparse.", "x", types, result))


def _grad_op(op_type: str, kernel: Callable[..., Any]) -> OpHandle:
    handle = op(f"{op_type}(y: T, dy: T) -> z: T; T: {_ANALYTIC}", shape=same_shape)
    handle.kernel_factory("CPU")(widened(kernel))
    return handle


sqrt_grad_op = _grad_op("SqrtGrad", _sqrt_grad)
rsqrt_grad_op = _grad_op("RsqrtGrad", _rsqrt_grad)
reciprocal_grad_op, inv_grad_op = _grad_op("ReciprocalGrad", _reciprocal_grad), _grad_op("InvGrad", _reciprocal_grad)
sigmoid_grad_op, tanh_grad_op = _grad_op("SigmoidGrad", _sigmoid_grad), _grad_op("TanhGrad", _tanh_grad)
# The gradients of other rows name them.
sign_op: OpHandle
sin_op: OpHandle
sinh_op: OpHandle
abs_op = _declared(
    "Abs",
    "{bfloat16, half, float, double, int8, int16, int32, int64}",
    np.absolute,
    _times(lambda x: sign_op(x)),
    "T",
    False,
)
_RECIPROCAL = _by_kind(complex_numbers.reciprocal, np.reciprocal)
inv_op = _declared("Inv", _SIGNED, _RECIPROCAL, _fused(inv_grad_op), "T", True)
round_op = _declared(
    "Round", _SIGNED, lambda node: (lambda x: x) if node.attrs["T"].is_integer else np.rint, None, "T", True
)

sign_op, sign = _row(
    "Sign", _SIGNED, _sign_factory, lambda node, grad: [raw_ops.ZerosLike(node.inputs[0])],
    "sign", "-1, 0 or 1; x / abs(x) for complex x", factory=True,
)  # fmt: skip
square_op, square = _row("Square", _SQUARED, np.square, _times(lambda x: _scaled(2.0, x)), "square", "x ** 2")
sqrt_op, sqrt = _row("Sqrt", _ANALYTIC, np.sqrt, _fused(sqrt_grad_op), "sqrt", "The square root")
rsqrt_op, rsqrt = _row("Rsqrt", _ANALYTIC, widened(_rsqrt), _fused(rsqrt_grad_op), "rsqrt", "1 / sqrt(x)", factory=True)
reciprocal_op, reciprocal = _row(
    "Reciprocal", _SIGNED, _RECIPROCAL, _fused(reciprocal_grad_op), "reciprocal", "1 / x", factory=True
)
exp_op, exp = _row(
    "Exp", _ANALYTIC, np.exp, lambda node, grad: [mul_op(grad, conjugate(node.outputs[0]))], "exp", "e ** x"
)
expm1_op, expm1 = _row("Expm1", _ANALYTIC, np.expm1, _times(exp_op), "expm1", "e ** x - 1, accurate near 0")
log_op, log = _row("Log", _ANALYTIC, np.log, _over(lambda x: x), "log", "The natural logarithm")
log1p_op, log1p = _row(
    "Log1p", _ANALYTIC, _by_kind(complex_numbers.log1p, np.log1p),
    _over(lambda x: add_op(_number(1, x), x)), "log1p", "log(1 + x), accurate near 0", factory=True,
)  # fmt: skip
cos_op, cos = _row("Cos", _ANALYTIC, np.cos, _times(lambda x: neg_op(sin_op(x))), "cos", "The cosine of radians")
sin_op, sin = _row("Sin", _ANALYTIC, np.sin, _times(cos_op), "sin", "The sine of radians")
tan_op, tan = _row("Tan", _ANALYTIC, np.tan, _over(lambda x: square_op(cos_op(x))), "tan", "The tangent of radians")
asin_op, asin = _row(
    "Asin", _ANALYTIC, np.arcsin, _over(lambda x: sqrt_op(_one_minus_square(x))), "asin", "The arc sine"
)
acos_op, acos = _row(
    "Acos", _ANALYTIC, np.arccos, _over(lambda x: neg_op(sqrt_op(_one_minus_square(x)))), "acos", "The arc cosine"
)
atan_op, atan = _row("Atan", _ANALYTIC, np.arctan, _over(_one_plus_square), "atan", "The arc tangent")
cosh_op, cosh = _row("Cosh", _ANALYTIC, np.cosh, _times(lambda x: sinh_op(x)), "cosh", "The hyperbolic cosine")
sinh_op, sinh = _row("Sinh", _ANALYTIC, np.sinh, _times(cosh_op), "sinh", "The hyperbolic sine")


def _like_a_logarithm(function: np.ufunc) -> Callable[[Node], Callable[..., Any]]:
    """`np.arcsinh` or `np.arccosh`; of large numbers the logarithm of twice the number, as in libraries of C.

    NumPy's own are an ulp too large there: of the greatest double, so that its cosine overflows.
    """

    def kernel(x: Array) -> Any:
        size, found = np.abs(x), function(x)
        is_large = (size > 2.0**28) & ~np.isnan(found)
        return np.where(is_large, np.copysign(np.log(size) + math.log(2), found), found)

    return lambda node: kernel if node.attrs["T"] in (dtypes.float32, dtypes.float64) else function


asinh_op, asinh = _row(
    "Asinh", _ANALYTIC, _like_a_logarithm(np.arcsinh),
    lambda node, grad: [real_div_op(grad, cosh_op(conjugate(node.outputs[0])))], "asinh",
    "The inverse hyperbolic sine", factory=True,
)  # fmt: skip
acosh_op, acosh = _row(
    "Acosh", _ANALYTIC, _like_a_logarithm(np.arccosh),
    lambda node, grad: [real_div_op(grad, sinh_op(conjugate(node.outputs[0])))], "acosh",
    "The inverse hyperbolic cosine", factory=True,
)  # fmt: skip
atanh_op, atanh = _row(
    "Atanh", _ANALYTIC, np.arctanh, _over(_one_minus_square), "atanh", "The inverse hyperbolic tangent"
)
tanh_op, tanh = _row(
    "Tanh", _ANALYTIC, np.tanh, _fused(tanh_grad_op, conjugates=True), "tanh", "The hyperbolic tangent"
)
sigmoid_op, sigmoid = _row(
    "Sigmoid", _ANALYTIC, widened(_sigmoid), _fused(sigmoid_grad_op, conjugates=True), "sigmoid", "1 / (1 + exp(-x))",
    factory=True,
)  # fmt: skip
floor_op, floor = _row("Floor", _FLOATS, np.floor, None, "floor", "The largest whole number not above x")
ceil_op, ceil = _row("Ceil", _FLOATS, np.ceil, None, "ceil", "The smallest whole number not below x")
rint_op, rint = _row("Rint", _FLOATS, np.rint, None, "rint", "The nearest whole number, halves to even")
is_nan_op, is_nan = _row("IsNan", _FLOATS, np.isnan, None, "is_nan", "Whether x is NaN", "bool")
is_inf_op, is_inf = _row("IsInf", _FLOATS, np.isinf, None, "is_inf", "Whether x is infinite", "bool")
is_finite_op, is_finite = _row(
    "IsFinite", _FLOATS, np.isfinite, None, "is_finite", "Whether x is neither infinite nor NaN", "bool"
)
erf_op, erf = _row("Erf", _FLOATS, special_functions.erf, _times(lambda x: _bell(1.0, x)), "erf", "The error function")
erfc_op, erfc = _row("Erfc", _FLOATS, special_functions.erfc, _times(lambda x: _bell(-1.0, x)), "erfc", "1 - erf(x)")
digamma_op, digamma = _row(
    "Digamma", _FLOATS, special_functions.digamma, _times(lambda x: polygamma_op(_number(1, x), x)),
    "digamma", "The derivative of lgamma",
)  # fmt: skip
lgamma_op, lgamma = _row("Lgamma", _FLOATS, special_functions.lgamma, _times(digamma_op), "lgamma", "log of abs(gamma)")
export_names("tf tf.debugging tf.math", "is_finite is_inf is_nan")
export_names(
    "tf tf.math",
    "acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc exp expm1 floor lgamma log log1p reciprocal "
    "rint rsqrt sign sin sinh sqrt square tan",
)
export_names("tf tf.math tf.nn", "sigmoid tanh")

zeta_op = op("Zeta(x: T, q: T) -> z: T; T: {float, double}", shape=broadcast_shape)
zeta_op.kernel("CPU")(special_functions.zeta)
polygamma_op: OpHandle = op("Polygamma(a: T, x: T) -> z: T; T: {float, double}", shape=broadcast_shape)
polygamma_op.kernel("CPU")(special_functions.polygamma)


@polygamma_op.gradient
def _polygamma_gradient(node: Operation, grad: Tensor) -> list[Any]:
    n, x = node.inputs
    return [None, sum_to_operands(node, [None, mul_op(grad, polygamma_op(add_op(n, _number(1, n)), x))])[1]]


@zeta_op.gradient
def _zeta_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, q = node.inputs
    slope = mul_op(neg_op(x), zeta_op(add_op(x, _number(1, x)), q))
    return [None, sum_to_operands(node, [None, mul_op(grad, slope)])[1]]


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
    return [mul_op(mul_op(_scaled(-2.0, conjugate(grad)), dy), y), raw_ops.named(node.type)(y, grad)]


reciprocal_grad_op.gradient(_reciprocal_grad_gradient)
inv_grad_op.gradient(_reciprocal_grad_gradient)


@export("tf.round", "tf.math.round")
def round(x: TensorLike, name: str | None = None) -> Tensor:
    """The nearest integer, halves to even; integers are returned unchanged (``tf.round``)."""
    x = convert_to_tensor(x, name="x")
    return x if x.dtype.is_integer else round_op(x, name=name)


@export("tf.log_sigmoid", "tf.math.log_sigmoid")
def log_sigmoid(x: TensorLike, name: str | None = None) -> Tensor:
    """log(sigmoid(x)), without overflow (``tf.log_sigmoid``)."""
    with name_scope(name, "LogSigmoid", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return neg_op(raw_ops.Softplus(neg_op(x)), name=scope)


@export("tf.zeta", "tf.math.zeta")
def zeta(x: TensorLike, q: TensorLike, name: str | None = None) -> Tensor:
    """The Hurwitz zeta function (``tf.zeta``)."""
    return zeta_op(x, q, name=name)


@export("tf.polygamma", "tf.math.polygamma")
def polygamma(a: TensorLike, x: TensorLike, name: str | None = None) -> Tensor:
    """The derivative of order ``a`` of digamma (``tf.polygamma``)."""
    return polygamma_op(a, x, name=name)


# ---- Complex numbers and their parts; ``tf.abs`` of real and complex numbers ---------------------------------------

_PART = "T: {complex64, complex128} = DT_COMPLEX64; Tout: {float, double} = DT_FLOAT"
real_op = op(f"Real(input: T) -> output: Tout; {_PART}")
real_op.gradient(lambda node, grad: [_make(grad, array_filling.zeros_like(grad))])
imag_op = op(f"Imag(input: T) -> output: Tout; {_PART}")
imag_op.gradient(lambda node, grad: [_make(array_filling.zeros_like(grad), grad)])
angle_op = op(f"Angle(input: T) -> output: Tout; {_PART}", shape=same_shape)
angle_op.kernel_factory("CPU")(lambda node: _part_of(node, lambda x: np.arctan2(x.imag, x.real)))
complex_abs_op = op(f"ComplexAbs(x: T) -> y: Tout; {_PART}")
complex_op = op(
    "Complex(real: T, imag: T) -> out: Tout"
    "; T: {float, double} = DT_FLOAT; Tout: {complex64, complex128} = DT_COMPLEX64",
    shape=broadcast_shape,
)

for _handle, _function in ((real_op, np.real), (imag_op, np.imag), (complex_abs_op, np.absolute)):
    _handle.shape(same_shape)
    _handle.kernel_factory("CPU")(lambda node, function=_function: _part_of(node, function))


def _check_pair(node: Node, complex_attr: str, real_attr: str) -> None:
    """Refuses a complex type and a type of its parts that do not belong together."""
    whole, part = node.attrs[complex_attr], node.attrs[real_attr]
    if whole.real_dtype is not part:
        refuse(f"No kernel of {node.op} is for {whole.name} with parts of {part.name}")


def _part_of(node: Node, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    _check_pair(node, "T", "Tout")
    return function


@complex_op.kernel_factory("CPU")
def _complex_factory(node: Node) -> Any:
    _check_pair(node, "Tout", "T")
    dtype = node.attrs["Tout"].numpy

    def kernel(real: Array, imag: Array) -> Any:
        result = np.empty(np.broadcast(real, imag).shape, dtype)
        result.real, result.imag = real, imag
        return result

    return kernel


@complex_abs_op.gradient
def _complex_abs_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, size = node.inputs[0], node.outputs[0]
    zero = array_filling.zeros_like(grad)
    return [div_no_nan_op(mul_op(_make(grad, zero), x), _make(size, zero))]


@angle_op.gradient
def _angle_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x = node.inputs[0]
    zero = array_filling.zeros_like(grad)
    turned = _make(imag(x), real(x))
    return [neg_op(mul_op(real_div_op(_one_like(turned), turned), _make(grad, zero)))]


def _one_like(x: Tensor) -> Tensor:
    return convert_to_tensor(np.array(1, x.dtype.numpy))


def _make(re: Tensor, im: Tensor, name: str | None = None) -> Tensor:
    wide = dtypes.complex128 if re.dtype.base_dtype is dtypes.float64 else dtypes.complex64
    return complex_op(re, im, Tout=wide, name=name)


@export("tf.complex", "tf.dtypes.complex")
def complex(real: TensorLike, imag: TensorLike, name: str | None = None) -> Tensor:
    """``real + 1j * imag``: complex64 from float32, complex128 from float64 (``tf.complex``).

    Raises:
      TypeError: for other types.
    """
    with name_scope(name, "Complex", [real, imag]) as scope:
        re, im = convert_to_tensor(real, name="real"), convert_to_tensor(imag, name="imag")
        types = (re.dtype.base_dtype, im.dtype.base_dtype)
        if types not in ((dtypes.float32, dtypes.float32), (dtypes.float64, dtypes.float64)):
            raise TypeError(f"real and imag have incorrect types: {types[0].name} {types[1].name}")
        return _make(re, im, scope)


@export("tf.real", "tf.math.real")
def real(input: TensorLike, name: str | None = None) -> Tensor:
    """The real part; a real tensor is returned unchanged (``tf.real``)."""
    with name_scope(name, "Real", [input]) as scope:
        x = convert_to_tensor(input, name="input")
        return real_op(x, Tout=x.dtype.real_dtype, name=scope) if x.dtype.is_complex else x


@export("tf.imag", "tf.math.imag")
def imag(input: TensorLike, name: str | None = None) -> Tensor:
    """The imaginary part; zeros for real tensors (``tf.imag``)."""
    with name_scope(name, "Imag", [input]) as scope:
        x = convert_to_tensor(input, name="input")
        return imag_op(x, Tout=x.dtype.real_dtype, name=scope) if x.dtype.is_complex else array_filling.zeros_like(x)


complex_op.gradient(lambda node, grad: sum_to_operands(node, [real(grad), imag(grad)]))


@export("tf.angle", "tf.math.angle")
def angle(input: TensorLike, name: str | None = None) -> Tensor:
    """The argument of a complex number in radians; zeros for real tensors (``tf.angle``)."""
    with name_scope(name, "Angle", [input]) as scope:
        x = convert_to_tensor(input, name="input")
        if x.dtype.is_complex:
            return angle_op(x, Tout=x.dtype.real_dtype, name=scope)
        return array_filling.zeros_like(x)


@export("tf.abs", "tf.math.abs")
def abs(x: TensorLike, name: str | None = None) -> Tensor:
    """The absolute value; for complex numbers, a real tensor (``tf.abs``).

    Args:
      x: a tensor of numbers; sparse tensors stay sparse.
      name: of the op.

    Returns:
      A tensor of the same shape; float32 for complex64, float64 for complex128, else of the same dtype.
    """
    if type(x) is SparseTensor:
        return on_values(abs, x, name)  # type: ignore[return-value]
    with name_scope(name, "Abs", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex:
            return complex_abs_op(x, Tout=x.dtype.real_dtype, name=scope)
        return abs_op(x, name=scope)


# ---- Powers, products with logarithms, angles and ``nextafter``: functions of two operands -------------------------

_LOG_TYPES = "T: {bfloat16, half, float, double, complex64, complex128}"
pow_op = op("Pow(x: T, y: T) -> z: T; T: {bfloat16, float, half, double, int32, int64, complex64, complex128}")
xdivy_op = op(f"Xdivy(x: T, y: T) -> z: T; {_LOG_TYPES}")
xlogy_op = op(f"Xlogy(x: T, y: T) -> z: T; {_LOG_TYPES}")
atan2_op = op("Atan2(y: T, x: T) -> z: T; T: {bfloat16, half, float, double}")
atan2_op.kernel("CPU")(np.arctan2)
next_after_op = op("NextAfter(x1: T, x2: T) -> output: T; T: {float64, float32} = DT_FLOAT")
all_of(pow_op, xdivy_op, xlogy_op, atan2_op, next_after_op).shape(broadcast_shape)
next_after_op.kernel("CPU")(np.nextafter)


_LARGEST_WHOLE = 8  # exponent that is a product of few factors
_BLOCK = 8192  # numbers whose products in float64 stay in the cache


@pow_op.kernel_factory("CPU")
def _power_kernel(node: Operation) -> Any:
    dtype = node.attrs["T"]
    if dtype.is_complex:
        return complex_numbers.power
    return _integer_power if dtype.is_integer else _single_power if dtype == dtypes.float32 else np.power


def _single_power(x: Array, y: Array) -> Any:
    """Powers of float32. A small whole exponent, as the 3 of BERT's gelu, is a product in float64.

    The product is right to the last bit of float32, and takes a thirtieth of numpy's time.
    """
    if np.ndim(y) or np.ndim(x) == 0 or y not in range(3, _LARGEST_WHOLE + 1):
        return np.power(x, y)
    flat, result = x.reshape(-1), np.empty(x.size, np.float32)
    with np.errstate(over="ignore"):
        for begin in range(0, flat.size, _BLOCK):
            wide = flat[begin : begin + _BLOCK].astype(np.float64)
            product = wide * wide
            for _ in range(int(y) - 2):
                product *= wide
            result[begin : begin + _BLOCK] = product
    return result.reshape(x.shape)


def _integer_power(x: Array, y: Array) -> Any:
    if np.any(y < 0):
        refuse("Integers to negative integer powers are not allowed")
    return np.power(x, y)


def _xdivy(x: Array, y: Array) -> Any:
    zero = x.dtype.type(0)
    quotient = complex_numbers.divide(x, y) if x.dtype.kind == "c" else np.divide(x, y)
    return np.where(x == zero, zero, quotient)[()]


def _xlogy(x: Array, y: Array) -> Any:
    zero = x.dtype.type(0)
    product = complex_numbers.multiply(x, np.log(y)) if x.dtype.kind == "c" else np.multiply(x, np.log(y))
    return np.where(x == zero, zero, product)[()]


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
    return cast(not_equal_op(x, array_filling.zeros_like(x)), x.dtype.base_dtype)


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
def pow(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """``x ** y``; integers refuse negative exponents at run time (``tf.pow``).

    Args:
      x, y: tensors of one numeric dtype whose shapes broadcast.
      name: of the op.

    Returns:
      A tensor of that dtype and the broadcast shape.
    """
    with name_scope(name, "Pow", [x]) as scope:
        return pow_op(x, y, name=scope)


@export("tf.math.xdivy")
def xdivy(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """``x / y``, and 0 where ``x`` is 0 (``tf.math.xdivy``)."""
    with name_scope(name, "xdivy", [x]):
        return xdivy_op(x, y)


@export("tf.math.xlogy")
def xlogy(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """``x * log(y)``, and 0 where ``x`` is 0 (``tf.math.xlogy``)."""
    with name_scope(name, "xlogy", [x]):
        return xlogy_op(x, y)


@export("tf.atan2", "tf.math.atan2")
def atan2(y: TensorLike, x: TensorLike, name: str | None = None) -> Tensor:
    """The angle of the point (x, y) in radians (``tf.atan2``)."""
    return atan2_op(y, x, name=name)


@export("tf.math.nextafter")
def nextafter(x1: TensorLike, x2: TensorLike, name: str | None = None) -> Tensor:
    """The representable number next to ``x1`` in the direction of ``x2`` (``tf.math.nextafter``)."""
    return next_after_op(x1, x2, name=name)
