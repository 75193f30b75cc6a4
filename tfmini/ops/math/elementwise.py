"""Arithmetic of two operands with broadcasting: sums, products, quotients, remainders, extremes, bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.families import (
    IndexedSlices,
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
from tfmini.graph.op_types import Traits
from tfmini.numerics import complex_numbers
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array.identity import cast
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.composites import SparseTensor, on_values
from tfmini.ops.gradients import is_wanted
from tfmini.ops.math.broadcast import OfXAndY, computed_into, named, sum_to_operands, told, widened
from tfmini.ops.math.comparison import greater_equal_op, less_equal_op, select_op

_ALL = (
    "{bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, complex64, complex128}"
)
_MOD = "{int32, int64, bfloat16, half, float, double}"

_SUMMED = "{bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128}"
_ANALYTIC = "{bfloat16, half, float, double, complex64, complex128}"
_ORDERED = "{bfloat16, half, float, double, int32, int64}"
Gradient = Callable[[Operation, Tensor], list[Any]]

# ---- kernels --------------------------------------------------------------------------------


def _nonzero(y: Array) -> None:
    if not np.all(y):
        refuse("Integer division by zero")


def truncated_quotient(x: Array, y: Array) -> Any:
    """Integer division that rounds towards zero, as in C."""
    _nonzero(y)
    quotient = np.floor_divide(x, y)
    if x.dtype.kind == "u":
        return quotient
    inexact = (quotient * y != x) & ((x < 0) != (y < 0))
    return (quotient + inexact).astype(x.dtype)


def _floored_quotient(x: Array, y: Array) -> Any:
    _nonzero(y)
    return np.floor_divide(x, y)


def _floored_real(x: Array, y: Array) -> Any:
    return np.floor(np.divide(x, y))


def _floored_complex(x: Array, y: Array) -> Any:
    refuse("FloorDiv is not defined for complex numbers")


def _integer_remainder(ufunc: np.ufunc) -> Callable[..., Any]:
    def kernel(x: Array, y: Array) -> Any:
        _nonzero(y)
        return ufunc(x, y)

    return kernel


def _division(node: Node) -> Callable[..., Any]:
    dtype = node.attrs["T"]
    return truncated_quotient if dtype.is_integer else complex_numbers.divide if dtype.is_complex else np.divide


def _by_kind(integers: Callable[..., Any], others: Callable[..., Any]) -> Callable[[Any], Callable[..., Any]]:
    return lambda node: integers if node.attrs["T"].is_integer else others


def _div_no_nan(x: Array, y: Array) -> Any:
    zero = y.dtype.type(0)
    quotient = complex_numbers.divide(x, y) if y.dtype.kind == "c" else np.divide(x, y)
    return np.where(y == zero, zero, quotient)[()]


def _mul_no_nan(x: Array, y: Array) -> Any:
    zero = y.dtype.type(0)
    return np.where(y == zero, zero, np.multiply(x, y))[()]


def _squared_difference(x: Array, y: Array) -> Any:
    difference = np.subtract(x, y)
    if difference.dtype.kind == "c":
        return np.conjugate(difference) * difference
    return np.multiply(difference, difference, out=difference if difference.ndim else None)


# ---- gradients ------------------------------------------------------------------------------


def conjugate(x: Tensor) -> Tensor:
    """``x``, conjugated if it is complex; gradients are conjugate derivatives."""
    return conj_op(x) if x.dtype.is_complex else x


def _mul_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, y = node.inputs
    gx = mul_op(grad, conjugate(y)) if is_wanted(node, 0) else None
    gy = mul_op(conjugate(x), grad) if is_wanted(node, 1) else None
    return sum_to_operands(node, [gx, gy])


def _quotient_gradient(node: Operation, grad: Tensor) -> list[Any]:
    divide_by = raw_ops.named(node.type)
    x, y = (conjugate(t) for t in node.inputs)
    gx = divide_by(grad, y) if is_wanted(node, 0) else None
    gy = mul_op(grad, divide_by(divide_by(neg_op(x), y), y)) if is_wanted(node, 1) else None
    return sum_to_operands(node, [gx, gy])


def _mul_no_nan_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, y = node.inputs
    return sum_to_operands(node, [mul_no_nan_op(grad, y), mul_no_nan_op(x, grad)])


def _floor_mod_gradient(node: Operation, grad: Tensor) -> list[Any]:
    # x mod y = x - floor(x / y) * y
    x, y = node.inputs
    return sum_to_operands(node, [grad, mul_op(grad, neg_op(floor_div_op(x, y)))])


def _extreme_gradient(node: Operation, grad: Tensor, first_wins: OpHandle) -> list[Any]:
    mask = first_wins(*node.inputs)
    zeros = array_filling.zeros_like(grad)
    return sum_to_operands(node, [select_op(mask, grad, zeros), select_op(mask, zeros, grad)])


def _squared_difference_gradient(node: Operation, grad: Tensor) -> list[Any]:
    two = convert_to_tensor(2, dtype=grad.dtype.base_dtype)
    gx = mul_op(mul_op(two, grad), sub_op(*node.inputs))
    to_x, to_y = sum_to_operands(node, [gx, gx])
    return [to_x, None if to_y is None else neg_op(to_y)]


# ---- the ops ------------------------------------------------------------------------------------


def _declared(
    op_type: str, types: str, gradient: Gradient | None, ufunc: np.ufunc | None, factory: Callable[..., Any] | None,
    sign: str, **traits: Unpack[Traits],
) -> OpHandle:  # fmt: skip
    handle = op(f"{op_type}(x: T, y: T) -> z: T; T: {types}", shape=broadcast_shape, **traits)
    if gradient is not None:
        handle.gradient(gradient)
    if factory is not None:
        handle.kernel_factory("CPU")(factory)
    elif ufunc is not None:
        handle.kernel("CPU")(ufunc)
    if ufunc is not None:
        handle.into(computed_into(ufunc))
    if sign:
        handle.inline(lambda node: f"({{0}} {sign} {{1}})" if factory is None or factory(node) is ufunc else None)
    return handle


def _row(
    op_type: str, types: str, gradient: Gradient | None, name: str, text: str, ufunc: np.ufunc | None = None,
    factory: Callable[..., Any] | None = None, sign: str = "", **traits: Unpack[Traits],
) -> tuple[OpHandle, OfXAndY]:  # fmt: skip
    """Declares an op of two operands; returns it and its public function.

    Args:
      gradient: None: what becomes of gradients is declared below.
      name, text: of the public function.
      ufunc: computes it, also into an array that is given. Where ``factory`` makes another kernel, that one does.
      sign: Python's operator that is the ufunc.
      traits: as for `op`.
    """
    handle = _declared(op_type, types, gradient, ufunc, factory, sign, **traits)

    def function(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
        return handle(x, y, name=name)

    result = "A tensor of that dtype and the broadcast shape."
    return handle, named(function, name, told(f"{text} (``tf.{name}``).", "x, y", types, result))


def _sum_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return sum_to_operands(node, [grad, grad])


def _add_factory(node: Node) -> Callable[..., Any]:
    # Python's operator concatenates bytes and object arrays of bytes.
    return (lambda x, y: x + y) if node.attrs["T"] is dtypes.string else np.add


_FLOOR = _by_kind(_floored_quotient, _floored_real)
_REMAINDER = _by_kind(_integer_remainder(np.fmod), np.fmod)

add_op, add = _row(
    "Add", _SUMMED.replace("}", ", string}"), _sum_gradient, "add", "``x + y``; strings are concatenated",
    np.add, _add_factory, "+", aggregates=True, neutral="minus_zero",
)  # fmt: skip
add_v2_op = _declared("AddV2", _SUMMED, _sum_gradient, np.add, None, "+", aggregates=True, neutral="minus_zero")
sub_op, subtract = _row(
    "Sub", _ALL, lambda node, grad: sum_to_operands(node, [grad, neg_op(grad)]), "subtract", "``x - y``",
    np.subtract, sign="-", neutral="zero",
)  # fmt: skip
mul_op, multiply = _row(
    "Mul", _ALL, _mul_gradient, "multiply", "``x * y``, element-wise", np.multiply, sign="*", aggregates=True,
    neutral="one",
)  # fmt: skip
div_op = _declared("Div", _ALL, _quotient_gradient, np.divide, _division, "/", aggregates=True, neutral="one")
real_div_op, realdiv = _row(
    "RealDiv", _ALL, _quotient_gradient, "realdiv", "``x / y`` for real numbers",
    np.divide, _division, "/", aggregates=True, neutral="one",
)  # fmt: skip
floor_div_op, floor_div = _row(
    "FloorDiv", _ALL, None, "floor_div", "``x // y``, rounded towards minus infinity; only the op itself",
    factory=lambda node: _floored_complex if node.attrs["T"].is_complex else _FLOOR(node),
)  # fmt: skip
truncate_div_op, truncatediv = _row(
    "TruncateDiv", _ALL, None, "truncatediv", "``x / y``, rounded towards zero",
    factory=_by_kind(truncated_quotient, lambda x, y: np.trunc(np.divide(x, y))),
)  # fmt: skip
floor_mod_op, floormod = _row(
    "FloorMod", _MOD, _floor_mod_gradient, "floormod", "``x % y`` with the sign of ``y``, as in Python",
    factory=_by_kind(_integer_remainder(np.remainder), np.remainder),
)  # fmt: skip
truncate_mod_op, truncatemod = _row(
    "TruncateMod", _MOD, None, "truncatemod", "The remainder with the sign of ``x``, as in C", factory=_REMAINDER
)
mod_op = _declared("Mod", _MOD, None, None, _REMAINDER, "")
all_of(floor_div_op, truncate_div_op).not_differentiable()
all_of(truncate_mod_op, mod_op).without_gradient()
maximum_op, maximum = _row(
    "Maximum", _ORDERED, lambda node, grad: _extreme_gradient(node, grad, greater_equal_op),
    "maximum", "The larger of each pair", np.maximum, aggregates=True,
)  # fmt: skip
minimum_op, minimum = _row(
    "Minimum", _ORDERED, lambda node, grad: _extreme_gradient(node, grad, less_equal_op),
    "minimum", "The smaller of each pair", np.minimum, aggregates=True,
)  # fmt: skip
squared_difference_op, squared_difference = _row(
    "SquaredDifference", _ORDERED.replace("}", ", complex64, complex128}"), _squared_difference_gradient,
    "squared_difference", "``(x - y) ** 2``", factory=widened(_squared_difference),
)  # fmt: skip
export_names("tf tf.math", "add subtract multiply floormod mod maximum minimum squared_difference")
mod = floormod
export_names("tf", "realdiv floor_div truncatediv truncatemod")

div_no_nan_op = op(f"DivNoNan(x: T, y: T) -> z: T; T: {_ANALYTIC}", shape=broadcast_shape)
div_no_nan_op.kernel("CPU")(_div_no_nan)
div_no_nan_op.gradient(_quotient_gradient)
mul_no_nan_op = op(f"MulNoNan(x: T, y: T) -> z: T; T: {_ANALYTIC}", shape=broadcast_shape)
mul_no_nan_op.kernel("CPU")(_mul_no_nan)
mul_no_nan_op.gradient(_mul_no_nan_gradient)
neg_op: OpHandle = op(f"Neg(x: T) -> y: T; T: {_SUMMED.replace('uint8, ', '')}", shape=same_shape)
neg_op.inline(lambda node: "(-{0})")
neg_op.gradient(lambda node, grad: [neg_op(grad)])
conj_op = op("Conj(input: T) -> output: T; T: {complex64, complex128, variant} = DT_COMPLEX64", shape=same_shape)
conj_op.gradient(lambda node, grad: [conj_op(grad)])
for _handle, _ufunc in ((neg_op, np.negative), (conj_op, np.conjugate)):
    _handle.kernel("CPU")(_ufunc)
    _handle.into(computed_into(_ufunc))


# ---- public functions -----------------------------------------------------------------------


@export("tf.negative", "tf.math.negative")
def negative(x: TensorLike, name: str | None = None) -> Tensor:
    """``-x`` (``tf.negative``)."""
    if type(x) is SparseTensor:
        return on_values(negative, x, name)  # type: ignore[return-value]
    return neg_op(x, name=name)


@export("tf.divide", "tf.math.divide")
def divide(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x / y`` by Python's rules: integers give floats (``tf.divide``)."""
    if name is not None:
        return truediv(x, y, name)
    if hasattr(y, "graph"):  # A Python number takes the type of y.
        return x / y  # type: ignore[no-any-return]
    return convert_to_tensor(x) / y  # type: ignore[no-any-return]


# Integers are divided as floats that represent them: up to 16 bits in float32, more in float64.
_TRUEDIV_TYPES = dict.fromkeys((dtypes.uint8, dtypes.int8, dtypes.uint16, dtypes.int16), dtypes.float32)
_TRUEDIV_TYPES.update(dict.fromkeys((dtypes.int32, dtypes.int64), dtypes.float64))


@export("tf.truediv", "tf.math.truediv")
def truediv(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """``x / y``; integers are cast to float32 (8 and 16 bits) or float64 first (``tf.truediv``).

    Raises:
      TypeError: when the types differ or cannot be divided.
    """
    with name_scope(name, "truediv", [x, y]) as scope:
        x, y = _operands(x, y)
        wanted = _TRUEDIV_TYPES.get(x.dtype.base_dtype)
        if wanted is not None:
            x, y = cast(x, wanted), cast(y, wanted)
        elif not (x.dtype.is_floating or x.dtype.is_complex):
            raise TypeError(f"Invalid dtype {x.dtype!r} in __truediv__")
        return real_div_op(x, y, name=scope)


def _operands(x: TensorLike, y: TensorLike) -> tuple[Tensor, Tensor]:
    x = convert_to_tensor(x, name="x")
    y = convert_to_tensor(y, name="y", preferred_dtype=x.dtype.base_dtype)
    if x.dtype.base_dtype is not y.dtype.base_dtype:
        raise TypeError(f"x and y must have the same dtype, got {x.dtype.base_dtype!r} != {y.dtype.base_dtype!r}")
    return x, y


@export("tf.div")
def div(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """``x / y`` by Python 2's rules: integers are divided with floor (``tf.div``)."""
    with name_scope(name, "div", [x, y]) as scope:
        x, y = _operands(x, y)
        is_real = x.dtype.is_floating or x.dtype.is_complex
        return (real_div_op if is_real else floor_div_op)(x, y, name=scope)


@export("tf.floordiv", "tf.math.floordiv")
def floordiv(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """``x // y``, rounded towards minus infinity (``tf.floordiv``)."""
    with name_scope(name, "floordiv", [x, y]) as scope:
        return floor_div_op(x, y, name=scope)


@export("tf.div_no_nan", "tf.math.divide_no_nan")
def div_no_nan(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """``x / y``, and 0 where ``y`` is 0 (``tf.div_no_nan``)."""
    with name_scope(name, "div_no_nan", [x, y]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        return div_no_nan_op(x, y, name=scope)


@export("tf.math.multiply_no_nan")
def multiply_no_nan(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """``x * y``, and 0 where ``y`` is 0 even if ``x`` is infinite or NaN (``tf.math.multiply_no_nan``)."""
    with name_scope(name, "multiply_no_nan", [x, y]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        return mul_no_nan_op(x, y, name=scope)


@export("tf.scalar_mul", "tf.math.scalar_mul")
def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """``scalar * x`` for a tensor or `IndexedSlices` (``tf.scalar_mul``).

    Args:
      scalar: a number or scalar tensor.
      x: a tensor of numbers, or `IndexedSlices`.
      name: of the op.

    Raises:
      ValueError: when ``scalar`` is not a scalar.
    """
    scalar = convert_to_tensor(scalar, dtype=x.dtype.base_dtype, name="scalar")
    if scalar.raw_shape not in ((), None):
        raise ValueError(f"Only scalar multiply works, got shape {scalar.shape}")
    if isinstance(x, IndexedSlices):
        return IndexedSlices(mul_op(scalar, x.values, name=name), x.indices, x.dense_shape)
    return mul_op(scalar, x, name=name)


@export("tf.conj", "tf.math.conj")
def conj(x: TensorLike, name: str | None = None) -> Tensor:
    """The complex conjugate; a real tensor is returned unchanged (``tf.conj``).

    Raises:
      TypeError: for types that are not numbers.
    """
    if isinstance(x, Tensor) and (x.dtype.is_floating or x.dtype.is_integer):
        return x
    with name_scope(name, "Conj", [x]) as scope:
        tensor: Tensor = convert_to_tensor(x, name="x")
        if tensor.dtype.is_complex or tensor.dtype.base_dtype is dtypes.variant:
            return conj_op(tensor, name=scope)
        if tensor.dtype.is_floating or tensor.dtype.is_integer:
            return tensor
        raise TypeError(f"Expected numeric or variant tensor, got dtype {tensor.dtype!r}")


# ---- Arithmetic on bits: and, or, exclusive or, shifts (``tf.bitwise``) --------------------------------------------

_BITS = "{int8, int16, int32, int64, uint8, uint16, uint32, uint64}"


def _binary(op_type: str, kernel: Callable[..., Any], name: str, text: str) -> OfXAndY:
    """Declares an op on integers; returns its public function."""
    handle = op(f"{op_type}(x: T, y: T) -> z: T; T: {_BITS}", shape=broadcast_shape, differentiable=False)
    handle.kernel("CPU")(kernel)

    def function(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
        return handle(x, y, name=name)

    return named(function, name, f"``{text} (``tf.bitwise.{name}``).")


def _shift(ufunc: np.ufunc) -> Callable[..., Any]:
    def kernel(x: Array, y: Array) -> Any:
        # In C, shifts by amounts outside of the width are undefined; TensorFlow clamps the amounts.
        last = x.dtype.type(x.dtype.itemsize * 8 - 1)
        return ufunc(x, np.clip(y, x.dtype.type(0), last))

    return kernel


bitwise_and = _binary("BitwiseAnd", np.bitwise_and, "bitwise_and", "x & y`` of integers")
bitwise_or = _binary("BitwiseOr", np.bitwise_or, "bitwise_or", "x | y`` of integers")
bitwise_xor = _binary("BitwiseXor", np.bitwise_xor, "bitwise_xor", "x ^ y`` of integers")
left_shift = _binary("LeftShift", _shift(np.left_shift), "left_shift", "x << y`` of integers")
right_shift = _binary(
    "RightShift", _shift(np.right_shift), "right_shift", "x >> y`` of integers, arithmetic for signed types"
)
export_names("tf.bitwise", "bitwise_and bitwise_or bitwise_xor left_shift right_shift")

invert_op = op(f"Invert(x: T) -> y: T; T: {_BITS}", shape=same_shape, differentiable=False)
invert_op.kernel("CPU")(np.invert)


@export("tf.bitwise.invert")
def invert(x: TensorLike, name: str | None = None) -> Tensor:
    """``~x`` of integers (``tf.bitwise.invert``)."""
    return invert_op(x, name=name)
