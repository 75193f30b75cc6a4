"""Arithmetic of two operands with broadcasting: sums, products, quotients, remainders, extremes, bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export, export_names
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import OpHandle, op
from tfmini.graph.scoping import name_scope
from tfmini.graph.shape_functions import broadcast_shape, same_shape
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array.casting import cast
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.gradients.wanted import is_wanted
from tfmini.ops.math.broadcast import computed_into, sum_to_operands, widened
from tfmini.ops.math.comparison import greater_equal_op, less_equal_op, select_op
from tfmini.ops.sparse.sparse_tensor import SparseTensor, on_values

_ALL = (
    "{bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, complex64, complex128}"
)
_MOD = "{int32, int64, bfloat16, half, float, double}"

add_op = op(
    "Add(x: T, y: T) -> z: T; T: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64,"
    " complex128, string}", aggregates=True
)
add_v2_op = op(
    "AddV2(x: T, y: T) -> z: T;"
    " T: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128}", aggregates=True
)
sub_op = op(f"Sub(x: T, y: T) -> z: T; T: {_ALL}")
mul_op = op(f"Mul(x: T, y: T) -> z: T; T: {_ALL}", aggregates=True)
div_op = op(f"Div(x: T, y: T) -> z: T; T: {_ALL}", aggregates=True)
real_div_op = op(f"RealDiv(x: T, y: T) -> z: T; T: {_ALL}", aggregates=True)
floor_div_op = op(f"FloorDiv(x: T, y: T) -> z: T; T: {_ALL}", differentiable=False)
truncate_div_op = op(f"TruncateDiv(x: T, y: T) -> z: T; T: {_ALL}", differentiable=False)
div_no_nan_op = op("DivNoNan(x: T, y: T) -> z: T; T: {bfloat16, half, float, double, complex64, complex128}")
mul_no_nan_op = op("MulNoNan(x: T, y: T) -> z: T; T: {bfloat16, half, float, double, complex64, complex128}")
mod_op = op(f"Mod(x: T, y: T) -> z: T; T: {_MOD}", differentiable=False)
floor_mod_op = op(f"FloorMod(x: T, y: T) -> z: T; T: {_MOD}")
truncate_mod_op = op(f"TruncateMod(x: T, y: T) -> z: T; T: {_MOD}", differentiable=False)
maximum_op = op("Maximum(x: T, y: T) -> z: T; T: {bfloat16, half, float, double, int32, int64}", aggregates=True)
minimum_op = op("Minimum(x: T, y: T) -> z: T; T: {bfloat16, half, float, double, int32, int64}", aggregates=True)
squared_difference_op = op(
    "SquaredDifference(x: T, y: T) -> z: T; T: {bfloat16, half, float, double, int32, int64, complex64, complex128}"
)
neg_op = op("Neg(x: T) -> y: T; T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}")
conj_op = op("Conj(input: T) -> output: T; T: {complex64, complex128, variant} = DT_COMPLEX64")

for _handle in (
    add_op, add_v2_op, sub_op, mul_op, div_op, real_div_op, floor_div_op, truncate_div_op, div_no_nan_op,
    mul_no_nan_op, mod_op, floor_mod_op, truncate_mod_op, maximum_op, minimum_op, squared_difference_op,
):  # fmt: skip
    _handle.shape(broadcast_shape)
for _handle in (neg_op, conj_op):
    _handle.shape(same_shape)

# ---- kernels --------------------------------------------------------------------------------

for _handle, _ufunc in (
    (add_v2_op, np.add), (sub_op, np.subtract), (mul_op, np.multiply), (maximum_op, np.maximum),
    (minimum_op, np.minimum), (neg_op, np.negative), (conj_op, np.conjugate),
):  # fmt: skip
    _handle.kernel("CPU")(_ufunc)
    _handle.into(computed_into(_ufunc))
add_op.into(computed_into(np.add))
real_div_op.into(computed_into(np.divide))
add_v2_op.inline(lambda node: "({0} + {1})")
sub_op.inline(lambda node: "({0} - {1})")
mul_op.inline(lambda node: "({0} * {1})")
neg_op.inline(lambda node: "(-{0})")
add_op.inline(lambda node: None if node.attrs["T"] is dtypes.string else "({0} + {1})")


@add_op.kernel_factory("CPU")
def _add_factory(node: Any) -> Callable[..., Any]:
    # Python's operator concatenates bytes and object arrays of bytes.
    return (lambda x, y: x + y) if node.attrs["T"] is dtypes.string else np.add


def _nonzero(y: Any) -> None:
    if not np.all(y):
        refuse("Integer division by zero")


def _truncated_quotient(x: Any, y: Any) -> Any:
    """Integer division that rounds towards zero, as in C."""
    _nonzero(y)
    quotient = np.floor_divide(x, y)
    if x.dtype.kind == "u":
        return quotient
    inexact = (quotient * y != x) & ((x < 0) != (y < 0))
    return (quotient + inexact).astype(x.dtype)


def _floored_quotient(x: Any, y: Any) -> Any:
    _nonzero(y)
    return np.floor_divide(x, y)


def _floored_real(x: Any, y: Any) -> Any:
    return np.floor(np.divide(x, y))


def _floored_complex(x: Any, y: Any) -> Any:
    refuse("FloorDiv is not defined for complex numbers")


def _integer_remainder(ufunc: np.ufunc) -> Callable[..., Any]:
    def kernel(x: Any, y: Any) -> Any:
        _nonzero(y)
        return ufunc(x, y)

    return kernel


def _by_kind(integers: Callable[..., Any], others: Callable[..., Any]) -> Callable[[Any], Callable[..., Any]]:
    return lambda node: integers if node.attrs["T"].is_integer else others


div_op.kernel_factory("CPU")(_by_kind(_truncated_quotient, np.divide))
real_div_op.kernel_factory("CPU")(_by_kind(_truncated_quotient, np.divide))
truncate_div_op.kernel_factory("CPU")(_by_kind(_truncated_quotient, lambda x, y: np.trunc(np.divide(x, y))))
floor_div_op.kernel_factory("CPU")(
    lambda node: _floored_complex if node.attrs["T"].is_complex else _by_kind(_floored_quotient, _floored_real)(node)
)
floor_mod_op.kernel_factory("CPU")(_by_kind(_integer_remainder(np.remainder), np.remainder))
mod_op.kernel_factory("CPU")(_by_kind(_integer_remainder(np.fmod), np.fmod))
truncate_mod_op.kernel_factory("CPU")(_by_kind(_integer_remainder(np.fmod), np.fmod))
real_div_op.inline(lambda node: None if node.attrs["T"].is_integer else "({0} / {1})")
div_op.inline(lambda node: None if node.attrs["T"].is_integer else "({0} / {1})")


@div_no_nan_op.kernel("CPU")
def _div_no_nan_kernel(x: Any, y: Any) -> Any:
    zero = y.dtype.type(0)
    return np.where(y == zero, zero, np.divide(x, y))[()]


@mul_no_nan_op.kernel("CPU")
def _mul_no_nan_kernel(x: Any, y: Any) -> Any:
    zero = y.dtype.type(0)
    return np.where(y == zero, zero, np.multiply(x, y))[()]


def _squared_difference(x: Any, y: Any) -> Any:
    difference = np.subtract(x, y)
    if difference.dtype.kind == "c":
        return np.conjugate(difference) * difference
    return np.multiply(difference, difference, out=difference if difference.ndim else None)


squared_difference_op.kernel_factory("CPU")(widened(_squared_difference))


# ---- gradients ------------------------------------------------------------------------------


def conjugate(x: Tensor) -> Tensor:
    """``x``, conjugated if it is complex; gradients are conjugate derivatives."""
    return conj_op(x) if x.dtype.is_complex else x


@add_op.gradient
@add_v2_op.gradient
def _add_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return sum_to_operands(node, [grad, grad])


sub_op.gradient(lambda node, grad: sum_to_operands(node, [grad, neg_op(grad)]))
neg_op.gradient(lambda node, grad: [neg_op(grad)])
conj_op.gradient(lambda node, grad: [conj_op(grad)])


@mul_op.gradient
def _mul_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, y = node.inputs
    gx = mul_op(grad, conjugate(y)) if is_wanted(node, 0) else None
    gy = mul_op(conjugate(x), grad) if is_wanted(node, 1) else None
    return sum_to_operands(node, [gx, gy])


@div_op.gradient
@real_div_op.gradient
def _div_gradient(node: Operation, grad: Tensor) -> list[Any]:
    return _quotient_gradient(node, grad, node.handle)


div_no_nan_op.gradient(lambda node, grad: _quotient_gradient(node, grad, div_no_nan_op))


def _quotient_gradient(node: Operation, grad: Tensor, divide_by: OpHandle) -> list[Any]:
    x, y = (conjugate(t) for t in node.inputs)
    gx = divide_by(grad, y) if is_wanted(node, 0) else None
    gy = mul_op(grad, divide_by(divide_by(neg_op(x), y), y)) if is_wanted(node, 1) else None
    return sum_to_operands(node, [gx, gy])


@mul_no_nan_op.gradient
def _mul_no_nan_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, y = node.inputs
    return sum_to_operands(node, [mul_no_nan_op(grad, y), mul_no_nan_op(x, grad)])


@floor_mod_op.gradient
def _floor_mod_gradient(node: Operation, grad: Tensor) -> list[Any]:
    # x mod y = x - floor(x / y) * y
    x, y = node.inputs
    return sum_to_operands(node, [grad, mul_op(grad, neg_op(floor_div_op(x, y)))])


maximum_op.gradient(lambda node, grad: _extreme_gradient(node, grad, greater_equal_op))
minimum_op.gradient(lambda node, grad: _extreme_gradient(node, grad, less_equal_op))


def _extreme_gradient(node: Operation, grad: Tensor, first_wins: OpHandle) -> list[Any]:
    mask = first_wins(*node.inputs)
    zeros = array_filling.zeros_like(grad)
    return sum_to_operands(node, [select_op(mask, grad, zeros), select_op(mask, zeros, grad)])


@squared_difference_op.gradient
def _squared_difference_gradient(node: Operation, grad: Tensor) -> list[Any]:
    two = convert_to_tensor(2, dtype=grad.dtype.base_dtype)
    gx = mul_op(mul_op(two, grad), sub_op(*node.inputs))
    return sum_to_operands(node, [gx, neg_op(gx)])


# ---- public functions -----------------------------------------------------------------------


@export("tf.add", "tf.math.add")
def add(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x + y``; strings are concatenated (``tf.add``)."""
    return add_op(x, y, name=name)


@export("tf.subtract", "tf.math.subtract")
def subtract(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x - y`` (``tf.subtract``)."""
    return sub_op(x, y, name=name)


@export("tf.multiply", "tf.math.multiply")
def multiply(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x * y``, element-wise (``tf.multiply``)."""
    return mul_op(x, y, name=name)


@export("tf.negative", "tf.math.negative")
def negative(x: Any, name: str | None = None) -> Tensor:
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
def truediv(x: Any, y: Any, name: str | None = None) -> Tensor:
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


def _operands(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    x = convert_to_tensor(x, name="x")
    y = convert_to_tensor(y, name="y", preferred_dtype=x.dtype.base_dtype)
    if x.dtype.base_dtype is not y.dtype.base_dtype:
        raise TypeError(f"x and y must have the same dtype, got {x.dtype.base_dtype!r} != {y.dtype.base_dtype!r}")
    return x, y


@export("tf.div")
def div(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x / y`` by Python 2's rules: integers are divided with floor (``tf.div``)."""
    with name_scope(name, "div", [x, y]) as scope:
        x, y = _operands(x, y)
        is_real = x.dtype.is_floating or x.dtype.is_complex
        return (real_div_op if is_real else floor_div_op)(x, y, name=scope)


@export("tf.realdiv")
def realdiv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x / y`` for real numbers (``tf.realdiv``)."""
    return real_div_op(x, y, name=name)


@export("tf.floordiv", "tf.math.floordiv")
def floordiv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x // y``, rounded towards minus infinity (``tf.floordiv``)."""
    with name_scope(name, "floordiv", [x, y]) as scope:
        return floor_div_op(x, y, name=scope)


@export("tf.floor_div")
def floor_div(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x // y``, rounded towards minus infinity; only the op itself (``tf.floor_div``)."""
    return floor_div_op(x, y, name=name)


@export("tf.truncatediv")
def truncatediv(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x / y``, rounded towards zero (``tf.truncatediv``)."""
    return truncate_div_op(x, y, name=name)


@export("tf.div_no_nan", "tf.math.divide_no_nan")
def div_no_nan(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x / y``, and 0 where ``y`` is 0 (``tf.div_no_nan``)."""
    with name_scope(name, "div_no_nan", [x, y]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        return div_no_nan_op(x, y, name=scope)


@export("tf.math.multiply_no_nan")
def multiply_no_nan(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x * y``, and 0 where ``y`` is 0 even if ``x`` is infinite or NaN (``tf.math.multiply_no_nan``)."""
    with name_scope(name, "multiply_no_nan", [x, y]) as scope:
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        return mul_no_nan_op(x, y, name=scope)


@export("tf.floormod", "tf.math.floormod")
def floormod(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``x % y`` with the sign of ``y``, as in Python (``tf.mod``)."""
    return floor_mod_op(x, y, name=name)


mod = floormod


@export("tf.truncatemod")
def truncatemod(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The remainder with the sign of ``x``, as in C (``tf.truncatemod``)."""
    return truncate_mod_op(x, y, name=name)


@export("tf.maximum", "tf.math.maximum")
def maximum(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The larger of each pair (``tf.maximum``)."""
    return maximum_op(x, y, name=name)


@export("tf.minimum", "tf.math.minimum")
def minimum(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The smaller of each pair (``tf.minimum``)."""
    return minimum_op(x, y, name=name)


@export("tf.squared_difference", "tf.math.squared_difference")
def squared_difference(x: Any, y: Any, name: str | None = None) -> Tensor:
    """``(x - y) ** 2`` (``tf.squared_difference``)."""
    return squared_difference_op(x, y, name=name)


@export("tf.scalar_mul", "tf.math.scalar_mul")
def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """``scalar * x`` for a tensor or `IndexedSlices` (``tf.scalar_mul``).

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
def conj(x: Any, name: str | None = None) -> Tensor:
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


export_names("tf tf.math", "mod")
