"""Special functions: incomplete gamma and beta, Bessel, log beta, cumulative log-sum-exp; Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, AxisLike, DTypeLike, TensorLike
from tfmini.export import export, export_names
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
from tfmini.numerics import special_functions
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import fill, ones, zeros, zeros_like
from tfmini.ops.array.filling import range as arange
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.layout import pad
from tfmini.ops.array.shape import shape, size
from tfmini.ops.array.slicing import getitem
from tfmini.ops.math.broadcast import named, sum_to_operands
from tfmini.ops.math.comparison import equal, greater, less, where_v2
from tfmini.ops.math.elementwise import add, floormod, maximum, multiply
from tfmini.ops.math.reductions import reduce_prod, reduce_sum
from tfmini.ops.math.unary import abs as absolute
from tfmini.ops.math.unary import exp, lgamma, log, log1p, real, sign
from tfmini.ops.random_ops import gamma_op
from tfmini.shapes import RawShape, at_least_rank, broadcast_raw

igamma_op = op("Igamma(a: T, x: T) -> z: T; T: {float, double}")
igamma_op.gradient(lambda node, grad: _igamma_gradients(node, grad))
igammac_op = op("Igammac(a: T, x: T) -> z: T; T: {float, double}")
igammac_op.gradient(lambda node, grad: _igamma_gradients(node, -grad))
igamma_grad_op = op("IgammaGradA(a: T, x: T) -> z: T; T: {float, double}", differentiable=None)
gamma_grad_op = op("RandomGammaGrad(alpha: T, sample: T) -> output: T; T: {float, double}", differentiable=None)
betainc_op = op("Betainc(a: T, b: T, x: T) -> z: T; T: {float, double}")
bessel_i0e_op = op("BesselI0e(x: T) -> y: T; T: {bfloat16, half, float, double}", shape=same_shape)
bessel_i0e_op.kernel("CPU")(special_functions.bessel_i0e)
bessel_i1e_op = op("BesselI1e(x: T) -> y: T; T: {bfloat16, half, float, double}", shape=same_shape)
bessel_i1e_op.kernel("CPU")(special_functions.bessel_i1e)
cumulative_op = op(
    "CumulativeLogsumexp(x: T, axis: Tidx) -> out: T; exclusive: bool = false; reverse: bool = false;"
    " T: {half, float, double}; Tidx: {int32, int64} = DT_INT32",
    shape=same_shape,
)
for _handle, _compute in (
    (igamma_op, special_functions.igamma),
    (igammac_op, special_functions.igammac),
    (igamma_grad_op, special_functions.igamma_grad_a),
    (gamma_grad_op, special_functions.random_gamma_grad),
):
    _handle.shape(broadcast_shape)
    _handle.kernel("CPU")(_compute)


def _igamma_gradients(node: Operation, grad: Tensor) -> list[Any]:
    a, x = node.inputs
    by_a = igamma_grad_op(a, x)
    by_x = exp(-x + (a - 1.0) * log(x) - lgamma(a))
    return sum_to_operands(node, [grad * by_a, grad * by_x])


@betainc_op.shape
def _betainc_shape(node: Operation) -> list[RawShape]:
    found: RawShape = ()
    known = [t.raw_shape for t in node.inputs if t.raw_shape != ()]
    for other in known:
        found = broadcast_raw(found, other)
    return [found]


@betainc_op.kernel("CPU")
def _betainc_kernel(a: Array, b: Array, x: Array) -> Any:
    shapes = {np.shape(v) for v in (a, b, x)} - {()}
    if len(shapes) > 1:
        refuse(f"Shapes of a, b and x are inconsistent: {[list(np.shape(v)) for v in (a, b, x)]}")
    return special_functions.betainc(a, b, x)


@betainc_op.gradient
def _betainc_gradient(node: Operation, grad: Tensor) -> list[Any]:
    a, b, x = node.inputs
    log_beta = lgamma(a) + lgamma(b) - lgamma(a + b)
    density = exp((b - 1.0) * log1p(-x) + (a - 1.0) * log(x) - log_beta)
    by_x = grad * density
    if x.raw_shape == () and by_x.raw_shape != ():
        by_x = reduce_sum(by_x)
    return [None, None, by_x]


@bessel_i0e_op.gradient
def _bessel_i0e_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, y = node.inputs[0], node.outputs[0]
    return [grad * (bessel_i1e_op(x) - sign(x) * y)]


@bessel_i1e_op.gradient
def _bessel_i1e_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, y = node.inputs[0], node.outputs[0]
    safe = where_v2(equal(x, zeros_like(x)), zeros_like(x) + 1.0, x)
    slope = bessel_i0e_op(safe) - y * (sign(safe) + 1.0 / safe)
    return [grad * where_v2(equal(x, zeros_like(x)), zeros_like(x) + 0.5, slope)]


@gamma_op.gradient
def _random_gamma_gradient(node: Operation, grad: Tensor) -> list[Any]:
    """The gradient by implicit differentiation of the distribution function; the leading axes are the samples."""
    leading, alpha = node.inputs
    partial = gamma_grad_op(alpha, node.outputs[0])
    return [None, reduce_sum(grad * partial, arange(size(leading)))]


# ---- cumulative log-sum-exp -----------------------------------------------------------------


@cumulative_op.kernel("CPU")
def _cumulative_kernel(x: Array, axis: Array, *, exclusive: bool, reverse: bool) -> Any:
    if np.ndim(axis):
        refuse(f"ScanOp: axis must be a scalar, not {list(np.shape(axis))}")
    if not -x.ndim <= int(axis) < x.ndim:
        refuse(f"ScanOp: Expected scan axis in the range [{-x.ndim}, {x.ndim}), but got {int(axis)}")
    rows = np.moveaxis(x, int(axis), 0)
    rows = rows[::-1] if reverse else rows
    wide = rows.astype(np.float32) if x.dtype == np.float16 else rows
    found = np.logaddexp.accumulate(wide, axis=0) if wide.shape[0] else wide
    if exclusive:
        first = np.full_like(found[:1], -np.inf)
        found = np.concatenate([first, found[:-1]])
    found = found[::-1] if reverse else found
    return np.ascontiguousarray(np.moveaxis(found, 0, int(axis))).astype(x.dtype, copy=False)


@cumulative_op.gradient
def _cumulative_gradient(node: Operation, grad: Tensor) -> list[Any]:
    x, axis = node.inputs
    out = node.outputs[0]
    exclusive, reverse = node.attrs["exclusive"], node.attrs["reverse"]
    lowest = fill(shape(grad), convert_to_tensor(x.dtype.as_numpy_dtype(x.dtype.min), x.dtype.base_dtype))
    positive = where_v2(greater(grad, zeros_like(grad)), log(absolute(grad)), lowest)
    negative = where_v2(less(grad, zeros_like(grad)), log(absolute(grad)), lowest)

    def swept(logs: Tensor) -> Tensor:
        later = cumulative_op(logs - out, axis, exclusive=exclusive, reverse=not reverse)
        return exp(later + x)

    return [swept(positive) - swept(negative), None]


# ---- Public functions of gamma, beta, Bessel and cumulative sums ---------------------------------------------------


@export("tf.igamma", "tf.math.igamma")
def igamma(a: TensorLike, x: TensorLike, name: str | None = None) -> Tensor:
    """The regularised lower incomplete gamma function (``tf.igamma``)."""
    return igamma_op(a, x, name=name)


@export("tf.igammac", "tf.math.igammac")
def igammac(a: TensorLike, x: TensorLike, name: str | None = None) -> Tensor:
    """The regularised upper incomplete gamma function (``tf.igammac``)."""
    return igammac_op(a, x, name=name)


@export("tf.betainc", "tf.math.betainc")
def betainc(a: TensorLike, b: TensorLike, x: TensorLike, name: str | None = None) -> Tensor:
    """The regularised incomplete beta function (``tf.betainc``)."""
    return betainc_op(a, b, x, name=name)


@export("tf.lbeta", "tf.math.lbeta")
def lbeta(x: TensorLike, name: str | None = None) -> Tensor:
    """The logarithm of the absolute value of the beta function along the last axis (``tf.lbeta``)."""
    with name_scope(name, "lbeta", [x]):
        x = convert_to_tensor(x, name="x")
        return reduce_sum(lgamma(x), [-1]) - lgamma(reduce_sum(x, [-1]))


@export("tf.math.bessel_i0e")
def bessel_i0e(x: TensorLike, name: str | None = None) -> Tensor:
    """``exp(-|x|) I0(x)`` (``tf.math.bessel_i0e``)."""
    return bessel_i0e_op(x, name=name)


@export("tf.math.bessel_i1e")
def bessel_i1e(x: TensorLike, name: str | None = None) -> Tensor:
    """``exp(-|x|) I1(x)`` (``tf.math.bessel_i1e``)."""
    return bessel_i1e_op(x, name=name)


@export("tf.math.bessel_i0")
def bessel_i0(x: TensorLike, name: str | None = None) -> Tensor:
    """The modified Bessel function of order 0 (``tf.math.bessel_i0``)."""
    with name_scope(name, "bessel_i0", [x]):
        x = convert_to_tensor(x)
        return exp(absolute(x)) * bessel_i0e_op(x)


@export("tf.math.bessel_i1")
def bessel_i1(x: TensorLike, name: str | None = None) -> Tensor:
    """The modified Bessel function of order 1 (``tf.math.bessel_i1``)."""
    with name_scope(name, "bessel_i1", [x]):
        x = convert_to_tensor(x)
        return exp(absolute(x)) * bessel_i1e_op(x)


@export("tf.math.cumulative_logsumexp")
def cumulative_logsumexp(
    x: TensorLike, axis: AxisLike = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Running log-sum-exp along an axis, without overflow (``tf.math.cumulative_logsumexp``)."""
    with name_scope(name, "CumulativeLogsumexp", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return cumulative_op(x, axis, exclusive=exclusive, reverse=reverse, name=scope)


@export("tf.math.polyval")
def polyval(coeffs: Sequence[TensorLike] | Array, x: TensorLike, name: str | None = None) -> Tensor:
    """A polynomial, highest power first, by Horner's rule (``tf.math.polyval``)."""
    with name_scope(name, "polyval", [x]):
        x = convert_to_tensor(x, name="x")
        if len(coeffs) < 1:
            return zeros_like(x)
        terms = [convert_to_tensor(c, name=f"coeff_{i}") for i, c in enumerate(coeffs)]
        found = terms[0]
        for term in terms[1:]:
            found = add(term, multiply(found, x))
        return found


# ---- Fourier transforms over the last one, two or three axes (``tf.signal``, ``tf.fft``, …) ------------------------

_COMPLEX = "(input: Tcomplex) -> output: Tcomplex; Tcomplex: {complex64, complex128} = DT_COMPLEX64"
_TYPES = "; Treal: {float, double} = DT_FLOAT; Tcomplex: {complex64, complex128} = DT_COMPLEX64"
_REAL = "(input: Treal, fft_length: int32) -> output: Tcomplex" + _TYPES
_BACK = "(input: Tcomplex, fft_length: int32) -> output: Treal" + _TYPES

forward_ops = [op(f"FFT{kind}{_COMPLEX}") for kind in ("", "2D", "3D")]
inverse_ops = [op(f"IFFT{kind}{_COMPLEX}") for kind in ("", "2D", "3D")]
real_ops = [op(f"RFFT{kind}{_REAL}") for kind in ("", "2D", "3D")]
real_inverse_ops = [op(f"IRFFT{kind}{_BACK}") for kind in ("", "2D", "3D")]
all_of(real_ops[2], real_inverse_ops[2]).without_gradient()


# ---- complex to complex ---------------------------------------------------------------------


def _register_complex(
    handle: OpHandle, other: OpHandle, rank: int, transform: Callable[..., Any], inverse: bool
) -> None:
    axes = tuple(range(-rank, 0))

    def kernel(value: Array) -> Any:
        return (transform(value, axes=axes) if value.size else value.copy()).astype(value.dtype, copy=False)

    def output_shape(node: Operation) -> list[RawShape]:
        return [at_least_rank(node.inputs[0].raw_shape, rank)]

    def gradient(node: Operation, grad: Tensor) -> Any:
        # The transposed transform is the inverse one up to a scale: the number of elements.
        count = cast(reduce_prod(array_shape.shape(grad)[-rank:]), grad.dtype.real_dtype)
        scale = cast(1 / count if inverse else count, grad.dtype)
        return multiply(other(grad), scale)

    handle.shape(output_shape)
    handle.kernel("CPU")(kernel)
    handle.gradient(gradient)


for _rank in (1, 2, 3):
    _register_complex(forward_ops[_rank - 1], inverse_ops[_rank - 1], _rank, np.fft.fftn, inverse=False)
    _register_complex(inverse_ops[_rank - 1], forward_ops[_rank - 1], _rank, np.fft.ifftn, inverse=True)


# ---- real to complex and back ---------------------------------------------------------------


def _lengths_shape(node: Operation, rank: int, halved: bool) -> list[RawShape]:
    shape = at_least_rank(node.inputs[0].raw_shape, rank)
    lengths_shape = node.inputs[1].raw_shape
    if lengths_shape is not None and lengths_shape != (rank,) and None not in lengths_shape:
        raise ValueError(f"Dimension must be {rank} but is {(*lengths_shape, '?')[0]}")
    if shape is None:
        return [None]
    known = constant_value(node.inputs[1])
    tail: list[int | None] = [None] * rank if known is None else [int(n) for n in known]
    if halved and tail[-1] is not None:
        tail[-1] = tail[-1] // 2 + 1 if tail[-1] else 0
    return [(*shape[: len(shape) - rank], *tail)]


def _check_lengths(value: Array, lengths: Array, rank: int, halved: bool) -> None:
    for axis, length in zip(range(-rank, 0), lengths):
        wanted = int(length) // 2 + 1 if halved and axis == -1 and length else int(length)
        if length < 0:
            refuse("fft_length[" + str(rank + axis) + "] must be >= 0, but got: " + str(int(length)))
        if value.shape[axis] < wanted:
            refuse(f"Input dimension {value.ndim + axis} must have length of at least {wanted} but got:"
                   f" {value.shape[axis]}")  # fmt: skip


def _register_real(handle: OpHandle, back: OpHandle, rank: int) -> None:
    axes = tuple(range(-rank, 0))

    def forward(value: Array, lengths: Array, *, Tcomplex: dtypes.DType) -> Any:
        _check_lengths(value, lengths, rank, halved=False)
        sizes = tuple(int(n) for n in lengths)
        if 0 in sizes:
            return np.zeros((*value.shape[:-rank], *sizes[:-1], sizes[-1] // 2 + 1 if sizes[-1] else 0), Tcomplex.numpy)
        return np.fft.rfftn(value, sizes, axes).astype(Tcomplex.numpy, copy=False)

    def backward(value: Array, lengths: Array, *, Treal: dtypes.DType) -> Any:
        _check_lengths(value, lengths, rank, halved=True)
        sizes = tuple(int(n) for n in lengths)
        if 0 in sizes:
            return np.zeros((*value.shape[:-rank], *sizes), Treal.numpy)
        return np.fft.irfftn(value, sizes, axes).astype(Treal.numpy, copy=False)

    handle.shape(lambda node: _lengths_shape(node, rank, halved=True))
    back.shape(lambda node: _lengths_shape(node, rank, halved=False))
    handle.kernel("CPU")(forward)
    back.kernel("CPU")(backward)


for _rank in (1, 2, 3):
    _register_real(real_ops[_rank - 1], real_inverse_ops[_rank - 1], _rank)


def _count(value: Tensor, rank: int, dtype: DTypeLike) -> Tensor:
    """The number of elements of one transform of ``value``."""
    return cast(reduce_prod(array_shape.shape(value)[-rank:]), dtype)


def _register_real_gradients(rank: int) -> None:
    handle, back = real_ops[rank - 1], real_inverse_ops[rank - 1]

    def gradient(node: Operation, grad: Tensor) -> list[Any]:
        # The omitted half has a zero gradient: pad with zeros, then apply the transposed full transform.
        wide = getitem(node.inputs[1], -1) - getitem(array_shape.shape(grad), -1)
        blank = zeros(concat([array_shape.shape(grad)[:-1], array_shape.reshape(wide, [1])], 0), grad.dtype)
        full = real(inverse_ops[rank - 1](concat([grad, blank], -1)))
        return [multiply(full, _count(full, rank, full.dtype)), None]

    def back_gradient(node: Operation, grad: Tensor) -> list[Any]:
        # Every bin but the first (and, for an even length, the last) also stands for its mirror image.
        odd = floormod(getitem(node.inputs[1], -1), 2)
        inner = getitem(array_shape.shape(node.inputs[0]), -1) - 2 + odd
        twice = [ones([1], grad.dtype), 2 * ones(stack([inner]), grad.dtype), ones(stack([1 - odd]), grad.dtype)]
        scale = concat(twice, 0) / _count(grad, rank, grad.dtype)
        return [multiply(handle(grad, node.inputs[1]), cast(scale, node.inputs[0].dtype)), None]

    handle.gradient(gradient)
    back.gradient(back_gradient)


for _rank in (1, 2):
    _register_real_gradients(_rank)


# ---- Public functions of the Fourier transforms --------------------------------------------------------------------


def _complex_function(handle: OpHandle, name: str, what: str) -> Callable[..., Tensor]:
    def function(input: TensorLike, name: str | None = None) -> Tensor:
        return handle(input, name=name)

    return named(function, name, f"{what} (``tf.{name}``), complex64 or complex128.")


fft, fft2d, fft3d = (
    _complex_function(handle, name, f"The Fourier transform over the last {i} axes")
    for i, (handle, name) in enumerate(zip(forward_ops, ("fft", "fft2d", "fft3d")), 1)
)
ifft, ifft2d, ifft3d = (
    _complex_function(handle, name, f"The inverse Fourier transform over the last {i} axes")
    for i, (handle, name) in enumerate(zip(inverse_ops, ("ifft", "ifft2d", "ifft3d")), 1)
)


def _inferred(value: Tensor, rank: int, inverse: bool) -> Any:
    """The lengths of the last axes of a real signal; with ``inverse``, ``value`` is its transform."""
    known = value.raw_shape
    if known is not None and len(known) >= rank and None not in known[-rank:]:
        sizes: list[Any] = list(known[-rank:])
        if inverse:
            sizes[-1] = max(2 * (sizes[-1] - 1), 0)
        return convert_to_tensor(sizes, dtypes.int32)
    lengths = array_shape.shape(value)[-rank:]
    if not inverse:
        return lengths
    from_last = [0] * (rank - 1) + [2]
    return lengths * convert_to_tensor([1] * (rank - 1) + [2]) - convert_to_tensor(from_last)


def _long_enough(value: Tensor, lengths: Tensor, rank: int, inverse: bool) -> Tensor:
    """``value``, filled with zeros where its last axes are shorter than a transform of these lengths needs."""
    known, shape = constant_value(lengths), value.raw_shape
    if known is not None and known.shape != (rank,):
        return value  # the op has the words for it
    if shape is None:
        sizes = array_shape.shape(value)
        rows = array_shape.reshape(value, concat([[-1], sizes[-rank:]], 0))
        rows.set_shape([None] * (rank + 1))
        filled = _long_enough(rows, lengths, rank, inverse)
        return array_shape.reshape(filled, concat([sizes[:-rank], array_shape.shape(filled)[1:]], 0))
    if known is not None and None not in shape[-rank:]:
        needed: Any = [int(n) for n in known]
        needed[-1] = needed[-1] // 2 + 1 if inverse else needed[-1]
        missing: Any = [max(n - d, 0) for n, d in zip(needed, shape[-rank:])]
        return pad(value, [[0, 0]] * (len(shape) - rank) + [[0, m] for m in missing]) if any(missing) else value
    if inverse:
        lengths = concat([lengths[:-1], lengths[-1:] // 2 + 1], 0)
    missing = maximum(lengths - array_shape.shape(value)[-rank:], 0)
    after = concat([zeros([len(shape) - rank], dtypes.int32), missing], 0)
    return pad(value, stack([zeros_like(after), after], axis=1))


def _real_function(handle: OpHandle, name: str, rank: int, inverse: bool) -> Callable[..., Tensor]:
    def function(input_tensor: TensorLike, fft_length: TensorLike | None = None, name: str | None = None) -> Tensor:
        value = convert_to_tensor(input_tensor, dtypes.complex64 if inverse else dtypes.float32)
        value.shape.with_rank_at_least(rank)
        if fft_length is None:
            return handle(value, _inferred(value, rank, inverse), name=name)
        lengths = convert_to_tensor(fft_length, dtypes.int32)
        lengths.shape.assert_has_rank(1)
        return handle(_long_enough(value, lengths, rank, inverse), lengths, name=name)

    kind = "inverse Fourier transform to" if inverse else "Fourier transform of"
    return named(function, name, f"The {kind} a real signal over the last {rank} axes (``tf.signal.{name}``).")


rfft, rfft2d, rfft3d = (
    _real_function(handle, name, i, False)
    for i, (handle, name) in enumerate(zip(real_ops, ("rfft", "rfft2d", "rfft3d")), 1)
)
irfft, irfft2d, irfft3d = (
    _real_function(handle, name, i, True)
    for i, (handle, name) in enumerate(zip(real_inverse_ops, ("irfft", "irfft2d", "irfft3d")), 1)
)

export_names("tf tf.signal tf.spectral", "fft fft2d fft3d ifft ifft2d ifft3d")
export_names("tf.signal tf.spectral", "irfft irfft2d irfft3d rfft rfft2d rfft3d")
