"""Complex numbers and their parts; ``tf.abs`` of real and complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, broadcast_shape, convert_to_tensor, name_scope, op, same_shape
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.math.broadcast import sum_to_operands
from tfmini.ops.math.elementwise import div_no_nan_op, mul_op, neg_op, real_div_op
from tfmini.ops.math.unary import abs_op
from tfmini.ops.sparse.sparse_tensor import SparseTensor, on_values

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


def _check_pair(node: Any, complex_attr: str, real_attr: str) -> None:
    """Refuses a complex type and a type of its parts that do not belong together."""
    whole, part = node.attrs[complex_attr], node.attrs[real_attr]
    if whole.real_dtype is not part:
        refuse(f"No kernel of {node.op} is for {whole.name} with parts of {part.name}")


def _part_of(node: Any, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    _check_pair(node, "T", "Tout")
    return function


@complex_op.kernel_factory("CPU")
def _complex_factory(node: Any) -> Any:
    _check_pair(node, "Tout", "T")
    dtype = node.attrs["Tout"].numpy

    def kernel(real: Any, imag: Any) -> Any:
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
def complex(real: Any, imag: Any, name: str | None = None) -> Tensor:
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
def real(input: Any, name: str | None = None) -> Tensor:
    """The real part; a real tensor is returned unchanged (``tf.real``)."""
    with name_scope(name, "Real", [input]) as scope:
        x = convert_to_tensor(input, name="input")
        return real_op(x, Tout=x.dtype.real_dtype, name=scope) if x.dtype.is_complex else x


@export("tf.imag", "tf.math.imag")
def imag(input: Any, name: str | None = None) -> Tensor:
    """The imaginary part; zeros for real tensors (``tf.imag``)."""
    with name_scope(name, "Imag", [input]) as scope:
        x = convert_to_tensor(input, name="input")
        return imag_op(x, Tout=x.dtype.real_dtype, name=scope) if x.dtype.is_complex else array_filling.zeros_like(x)


complex_op.gradient(lambda node, grad: sum_to_operands(node, [real(grad), imag(grad)]))


@export("tf.angle", "tf.math.angle")
def angle(input: Any, name: str | None = None) -> Tensor:
    """The argument of a complex number in radians; zeros for real tensors (``tf.angle``)."""
    with name_scope(name, "Angle", [input]) as scope:
        x = convert_to_tensor(input, name="input")
        if x.dtype.is_complex:
            return angle_op(x, Tout=x.dtype.real_dtype, name=scope)
        return array_filling.zeros_like(x)


@export("tf.abs", "tf.math.abs")
def abs(x: Any, name: str | None = None) -> Tensor:
    """The absolute value; for complex numbers, a real tensor (``tf.abs``)."""
    if type(x) is SparseTensor:
        return on_values(abs, x, name)  # type: ignore[return-value]
    with name_scope(name, "Abs", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        if x.dtype.is_complex:
            return complex_abs_op(x, Tout=x.dtype.real_dtype, name=scope)
        return abs_op(x, name=scope)
