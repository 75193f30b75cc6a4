"""Ops of special functions: incomplete gamma and beta, Bessel, log beta, cumulative log-sum-exp."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, broadcast_shape, convert_to_tensor, name_scope, op, same_shape
from tfmini.numerics import special_functions
from tfmini.ops.array.filling import fill, zeros_like
from tfmini.ops.array.filling import range as arange
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.shape import shape, size
from tfmini.ops.math.broadcast import sum_to_operands
from tfmini.ops.math.comparison import equal, greater, less, where_v2
from tfmini.ops.math.complex import abs as absolute
from tfmini.ops.math.elementwise import add, multiply
from tfmini.ops.math.reduce_functions import reduce_sum
from tfmini.ops.math.unary import exp, lgamma, log, log1p, sign
from tfmini.ops.random.sampling import gamma_op
from tfmini.shapes import RawShape, broadcast_raw

igamma_op = op("Igamma(a: T, x: T) -> z: T; T: {float, double}")
igamma_op.gradient(lambda node, grad: _igamma_gradients(node, grad))
igammac_op = op("Igammac(a: T, x: T) -> z: T; T: {float, double}")
igammac_op.gradient(lambda node, grad: _igamma_gradients(node, -grad))
igamma_grad_op = op("IgammaGradA(a: T, x: T) -> z: T; T: {float, double}", differentiable=False)
gamma_grad_op = op("RandomGammaGrad(alpha: T, sample: T) -> output: T; T: {float, double}", differentiable=False)
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
def _betainc_kernel(a: Any, b: Any, x: Any) -> Any:
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
def _cumulative_kernel(x: Any, axis: Any, *, exclusive: bool, reverse: bool) -> Any:
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


# ---- public functions -----------------------------------------------------------------------


@export("tf.igamma", "tf.math.igamma")
def igamma(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The regularised lower incomplete gamma function (``tf.igamma``)."""
    return igamma_op(a, x, name=name)


@export("tf.igammac", "tf.math.igammac")
def igammac(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The regularised upper incomplete gamma function (``tf.igammac``)."""
    return igammac_op(a, x, name=name)


@export("tf.betainc", "tf.math.betainc")
def betainc(a: Any, b: Any, x: Any, name: str | None = None) -> Tensor:
    """The regularised incomplete beta function (``tf.betainc``)."""
    return betainc_op(a, b, x, name=name)


@export("tf.lbeta", "tf.math.lbeta")
def lbeta(x: Any, name: str | None = None) -> Tensor:
    """The logarithm of the absolute value of the beta function along the last axis (``tf.lbeta``)."""
    with name_scope(name, "lbeta", [x]):
        x = convert_to_tensor(x, name="x")
        return reduce_sum(lgamma(x), [-1]) - lgamma(reduce_sum(x, [-1]))


@export("tf.math.bessel_i0e")
def bessel_i0e(x: Any, name: str | None = None) -> Tensor:
    """``exp(-|x|) I0(x)`` (``tf.math.bessel_i0e``)."""
    return bessel_i0e_op(x, name=name)


@export("tf.math.bessel_i1e")
def bessel_i1e(x: Any, name: str | None = None) -> Tensor:
    """``exp(-|x|) I1(x)`` (``tf.math.bessel_i1e``)."""
    return bessel_i1e_op(x, name=name)


@export("tf.math.bessel_i0")
def bessel_i0(x: Any, name: str | None = None) -> Tensor:
    """The modified Bessel function of order 0 (``tf.math.bessel_i0``)."""
    with name_scope(name, "bessel_i0", [x]):
        x = convert_to_tensor(x)
        return exp(absolute(x)) * bessel_i0e_op(x)


@export("tf.math.bessel_i1")
def bessel_i1(x: Any, name: str | None = None) -> Tensor:
    """The modified Bessel function of order 1 (``tf.math.bessel_i1``)."""
    with name_scope(name, "bessel_i1", [x]):
        x = convert_to_tensor(x)
        return exp(absolute(x)) * bessel_i1e_op(x)


@export("tf.math.cumulative_logsumexp")
def cumulative_logsumexp(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Running log-sum-exp along an axis, without overflow (``tf.math.cumulative_logsumexp``)."""
    with name_scope(name, "CumulativeLogsumexp", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return cumulative_op(x, axis, exclusive=exclusive, reverse=reverse, name=scope)


@export("tf.math.polyval")
def polyval(coeffs: Any, x: Any, name: str | None = None) -> Tensor:
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
