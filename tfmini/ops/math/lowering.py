"""Lowerings of arithmetic, comparisons, reductions, products and segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.graph.lowering import DeviceValue, jnp, lax, lower, lower_as_kernel, lower_on_host
from tfmini.graph.node import Node

# ---- element by element: the numpy kernels, with JAX's functions in place of numpy's -------------------------------

lower_as_kernel(
    "Add AddV2 Sub Mul Neg Conj Maximum Minimum SquaredDifference DivNoNan MulNoNan RealDiv"
    " Less LessEqual Greater GreaterEqual LogicalNot LogicalAnd LogicalOr ApproximateEqual"
    " BitwiseAnd BitwiseOr BitwiseXor Invert LeftShift RightShift"
)
lower_as_kernel(
    "Abs Square Sqrt Rsqrt Inv Reciprocal Exp Expm1 Log Log1p Cos Sin Tan Asin Acos Atan Cosh Sinh Asinh Acosh Atanh"
    " Tanh Sigmoid Floor Ceil Rint Round Sign IsNan IsInf IsFinite Atan2 Real Imag Angle ComplexAbs Xdivy Xlogy"
)
lower_as_kernel("SqrtGrad RsqrtGrad ReciprocalGrad InvGrad SigmoidGrad TanhGrad")
lower("Complex")(lambda real, imag: lax.complex(*jnp.broadcast_arrays(real, imag)))
lower("FloorMod")(lambda x, y: jnp.mod(x, y))
lower("Erf")(lambda x: lax.erf(x))
lower("Erfc")(lambda x: lax.erfc(x))
lower("Lgamma")(lambda x: lax.lgamma(x))
lower("Digamma")(lambda x: lax.digamma(x))
lower("Igamma")(lambda a, x: lax.igamma(a, x))
lower("Igammac")(lambda a, x: lax.igammac(a, x))
lower("BesselI0e")(lambda x: lax.bessel_i0e(x))
lower("BesselI1e")(lambda x: lax.bessel_i1e(x))
lower("Pow")(lambda x, y: jnp.power(x, y))


@lower("Div FloorDiv TruncateDiv TruncateMod Mod")
def _divide(x: DeviceValue, y: DeviceValue, *, node: Node) -> Any:
    is_integer = node.attrs["T"].is_integer
    if node.op in ("TruncateMod", "Mod"):
        return lax.rem(*jnp.broadcast_arrays(x, y))
    if not is_integer:
        return jnp.floor_divide(x, y) if node.op == "FloorDiv" else jnp.true_divide(x, y)
    return jnp.floor_divide(x, y) if node.op == "FloorDiv" else lax.div(*jnp.broadcast_arrays(x, y))


@lower("Equal NotEqual")
def _equal(x: DeviceValue, y: DeviceValue, *, incompatible_shape_error: bool, node: Node) -> Any:
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        if incompatible_shape_error:
            raise
        return np.bool_(node.op == "NotEqual")
    return x == y if node.op == "Equal" else x != y


@lower("Select")
def _select(condition: DeviceValue, t: DeviceValue, e: DeviceValue) -> Any:
    if condition.ndim == 1 and t.ndim > 1:
        condition = condition.reshape(condition.shape + (1,) * (t.ndim - 1))
    return jnp.where(condition, t, e)


lower("SelectV2")(lambda condition, t, e: jnp.where(condition, t, e))


@lower("AddN AccumulateNV2")
def _add_n(inputs: list[Any]) -> Any:
    total = jnp.asarray(inputs[0])
    for value in inputs[1:]:
        total = total + value
    return total


# ---- reductions ----------------------------------------------------------------------------------------------------


def _reduction(op: str, function: Callable[..., Any]) -> None:
    @lower(op, host="reduction_indices")
    def _reduce(value: DeviceValue, axes: DeviceValue, *, keep_dims: bool) -> Any:
        value = jnp.asarray(value)
        chosen = tuple(sorted({int(a) % max(value.ndim, 1) for a in np.ravel(axes).tolist()})) if value.ndim else ()
        return function(value, chosen, keep_dims)


def _wide(value: DeviceValue) -> Any:
    """Half-precision numbers as float32, in which they are added."""
    return value.astype(jnp.float32) if value.dtype.name in ("float16", "bfloat16") else value


def _mean(value: DeviceValue, axes: tuple[int, ...], keep: bool) -> Any:
    if jnp.issubdtype(value.dtype, jnp.integer):
        count = int(np.prod([value.shape[a] for a in axes]))
        return lax.div(jnp.sum(value, axes, dtype=jnp.int64, keepdims=keep), jnp.int64(max(count, 1)))
    return jnp.mean(_wide(value), axes, keepdims=keep).astype(value.dtype)


def _extreme(function: Callable[..., Any], is_max: bool) -> Callable[..., Any]:
    def reduce(value: DeviceValue, axes: tuple[int, ...], keep: bool) -> Any:
        if jnp.issubdtype(value.dtype, jnp.integer):
            limits: tuple[float, float] = np.iinfo(value.dtype).min, np.iinfo(value.dtype).max
        else:
            limits = -np.inf, np.inf
        return function(value, axes, keepdims=keep, initial=limits[not is_max])

    return reduce


_reduction("Sum", lambda v, axes, keep: jnp.sum(_wide(v), axes, keepdims=keep).astype(v.dtype))
_reduction("Prod", lambda v, axes, keep: jnp.prod(_wide(v), axes, keepdims=keep).astype(v.dtype))
_reduction("Mean", _mean)
_reduction("Max", lambda *args: _extreme(jnp.max, True)(*args))
_reduction("Min", lambda *args: _extreme(jnp.min, False)(*args))
_reduction("All", lambda v, axes, keep: jnp.all(v, axes, keepdims=keep))
_reduction("Any", lambda v, axes, keep: jnp.any(v, axes, keepdims=keep))
_reduction("EuclideanNorm", lambda v, axes, keep: jnp.sqrt(jnp.sum(jnp.abs(v) ** 2, axes, keepdims=keep)))


@lower("ArgMax ArgMin", host="dimension")
def _arg(value: DeviceValue, dimension: DeviceValue, *, node: Node) -> Any:
    function = jnp.argmax if node.op == "ArgMax" else jnp.argmin
    if jnp.issubdtype(value.dtype, jnp.inexact):  # a comparison with NaN is false: it is never chosen
        value = jnp.where(jnp.isnan(value), -jnp.inf if node.op == "ArgMax" else jnp.inf, value)
    return function(value, int(dimension)).astype(node.attrs["output_type"].numpy)


@lower("Cumsum Cumprod", host="axis")
def _cumulate(x: DeviceValue, axis: DeviceValue, *, exclusive: bool, reverse: bool, node: Node) -> Any:
    where = int(axis) % x.ndim
    x = jnp.flip(x, where) if reverse else x
    if exclusive:
        start = jnp.full_like(lax.slice_in_dim(x, 0, 1, axis=where), 0 if node.op == "Cumsum" else 1)
        x = jnp.concatenate([start, lax.slice_in_dim(x, 0, x.shape[where] - 1, axis=where)], where)
    found = (jnp.cumsum if node.op == "Cumsum" else jnp.cumprod)(x, where, dtype=x.dtype)
    return jnp.flip(found, where) if reverse else found


@lower("TopKV2", host="k")
def _top_k(value: DeviceValue, k: DeviceValue) -> Any:
    values, indices = lax.top_k(value, int(k))
    return values, indices.astype(jnp.int32)


@lower("InTopK")
def _in_top_k_of_attr(predictions: DeviceValue, targets: DeviceValue, *, k: int) -> Any:
    return _in_top_k(predictions, targets, k)


@lower("InTopKV2", host="k")
def _in_top_k(predictions: DeviceValue, targets: DeviceValue, k: DeviceValue) -> Any:
    inside = (targets >= 0) & (targets < predictions.shape[1])
    wanted = jnp.take_along_axis(predictions, jnp.where(inside, targets, 0)[:, None], 1)
    better = jnp.sum(predictions > wanted, 1)
    finite = jnp.isfinite(wanted[:, 0]) & jnp.all(jnp.isfinite(predictions), 1)
    return inside & finite & (better < int(k))


# ---- products ------------------------------------------------------------------------------------------------------


def _product(a: DeviceValue, b: DeviceValue) -> Any:
    if a.dtype.name in ("float16", "bfloat16"):
        return jnp.matmul(a, b, preferred_element_type=jnp.float32).astype(a.dtype)
    return jnp.matmul(a, b)


@lower("MatMul")
def _matmul(a: DeviceValue, b: DeviceValue, *, transpose_a: bool, transpose_b: bool) -> Any:
    return _product(a.T if transpose_a else a, b.T if transpose_b else b)


@lower("SparseMatMul")
def _sparse_matmul(a: DeviceValue, b: DeviceValue, *, transpose_a: bool, transpose_b: bool) -> Any:
    return _product((a.T if transpose_a else a).astype(jnp.float32), (b.T if transpose_b else b).astype(jnp.float32))


@lower("BatchMatMul BatchMatMulV2")
def _batch_matmul(x: DeviceValue, y: DeviceValue, *, adj_x: bool, adj_y: bool) -> Any:
    return _product(_adjoint(x) if adj_x else x, _adjoint(y) if adj_y else y)


def _adjoint(value: DeviceValue) -> Any:
    return jnp.conj(jnp.swapaxes(value, -1, -2))


lower("Cross")(lambda a, b: jnp.cross(a, b))
lower("Einsum")(lambda inputs, *, equation: jnp.einsum(equation.decode(), *inputs))

# ---- segments ------------------------------------------------------------------------------------------------------
# Row numbers out of range are left out. How many sorted segments there are depends on values: the host counts them.

lower_on_host("SegmentSum SegmentMean SegmentProd SegmentMax SegmentMin UniqueV2 UniqueWithCountsV2")
# TensorFlow has kernels for GPUs of these; here they have no lowering yet.
lower_on_host("Betainc Zeta Polygamma IgammaGradA RandomGammaGrad CumulativeLogsumexp HistogramFixedWidth Bucketize")


def _segments(name: str, function: str) -> None:
    @lower(f"UnsortedSegment{name}", host="num_segments")
    def _unsorted(data: DeviceValue, ids: DeviceValue, count: DeviceValue) -> Any:
        total = int(count)
        ids = jnp.asarray(ids)
        flat = jnp.where(ids < 0, total, ids).reshape(-1)
        values = data.reshape(flat.shape + data.shape[ids.ndim :])
        start = _neutral(name, data.dtype)
        whole = jnp.full((total, *values.shape[1:]), start, data.dtype)
        return getattr(whole.at[flat], function)(values, mode="drop")


def _neutral(name: str, dtype: np.dtype[Any]) -> Any:
    if name in ("Sum", "Prod"):
        return 0 if name == "Sum" else 1
    limits = np.iinfo(dtype) if np.issubdtype(dtype, np.integer) else jnp.finfo(dtype)
    return limits.min if name == "Max" else limits.max


for _name, _function in (("Sum", "add"), ("Prod", "multiply"), ("Max", "max"), ("Min", "min")):
    _segments(_name, _function)


@lower("SparseSegmentSumWithNumSegments SparseSegmentMeanWithNumSegments SparseSegmentSqrtNWithNumSegments",
       host="num_segments")  # fmt: skip
def _sparse_segments(
    data: DeviceValue, indices: DeviceValue, ids: DeviceValue, count: DeviceValue, *, node: Node
) -> Any:
    return _scaled(node.op, jnp.take(data, indices, 0, mode="fill", fill_value=0), ids, int(count))


def _scaled(op: str, rows: DeviceValue, ids: DeviceValue, total: int) -> Any:
    """The sums of segments, divided as the op says."""
    sums = jnp.zeros((total, *rows.shape[1:]), rows.dtype).at[ids].add(rows, mode="drop")
    if "SegmentSum" in op:
        return sums
    return sums / _sizes(op, ids, total, rows).reshape(-1, *[1] * (rows.ndim - 1))


def _sizes(op: str, ids: DeviceValue, total: int, rows: DeviceValue) -> Any:
    sizes = jnp.maximum(jnp.zeros(total, rows.dtype).at[ids].add(1, mode="drop"), 1)
    return jnp.sqrt(sizes) if "SqrtN" in op else sizes


@lower("SparseSegmentMeanGrad SparseSegmentSqrtNGrad", host="output_dim0")
def _sparse_segment_grad(
    grad: DeviceValue, indices: DeviceValue, ids: DeviceValue, count: DeviceValue, *, node: Node
) -> Any:
    sizes = _sizes(node.op, ids, grad.shape[0], grad)
    rows = (grad / sizes.reshape(-1, *[1] * (grad.ndim - 1)))[ids]
    return jnp.zeros((int(count), *grad.shape[1:]), grad.dtype).at[indices].add(rows, mode="drop")


@lower("Bincount", host="size")
def _bincount(values: DeviceValue, size: DeviceValue, weights: DeviceValue) -> Any:
    flat = jnp.where(values < 0, int(size), values).reshape(-1)
    added = weights.reshape(-1) if weights.size else jnp.ones(flat.shape, weights.dtype)
    return jnp.zeros(int(size), weights.dtype).at[flat].add(added, mode="drop")


# ---- Fourier transforms --------------------------------------------------------------------------------------------


def _transforms(rank: int, suffix: str) -> None:
    axes = tuple(range(-rank, 0))

    @lower(f"FFT{suffix} IFFT{suffix}")
    def _fft(value: DeviceValue, *, node: Node) -> Any:
        return (jnp.fft.ifftn if node.op.startswith("I") else jnp.fft.fftn)(value, axes=axes)

    @lower(f"RFFT{suffix} IRFFT{suffix}", host="fft_length")
    def _rfft(value: DeviceValue, length: DeviceValue, *, node: Node) -> Any:
        return (jnp.fft.irfftn if node.op.startswith("I") else jnp.fft.rfftn)(value, length.tolist(), axes=axes)


for _rank, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    _transforms(_rank, _suffix)
