"""Lowerings of the optimizers' updates, of random numbers and of linear algebra.

A random op gets from its stream, per step, what the host must decide: ``draw("counter", size)`` the Philox counter and
key from which ``size`` numbers are drawn (uint32[6]), ``draw("permutation", n)`` an order of ``range(n)``,
``draw("row_doubles", rows, count)`` the uniform numbers of a multinomial kernel.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tfmini.dtypes import DType
from tfmini.graph.lowering import DeviceValue, jax, jnp, lower, lower_on_host
from tfmini.graph.node import Node
from tfmini.numerics import philox
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.training import forms

# ---- updates: the rules of `update_rules` on traced arrays ---------------------------------------------------------


def _update(form: Any, rule: Callable[..., None], attr: str) -> Callable[..., Any]:
    def update(*inputs: DeviceValue, node: Node) -> Any:
        states, gradient, hyper = form.split(inputs)
        cells = [state.read() for state in states]
        grad = gradient[0]
        run = partial(rule, **{attr: node.attrs[attr]}) if attr else rule
        wrap = states[0].wrap
        scalars = [h if isinstance(h, (np.ndarray, np.generic)) else wrap(h) for h in hyper]
        apply = partial(_apply, wrap, run, hyper=scalars)
        if form.sparse:
            news = _rows(apply, cells, jnp.asarray(grad), gradient[1])
        else:
            _check_shapes(states, cells, grad)
            news = apply(cells, grad)
        for state, new in zip(states, news):
            state.value = new
        return () if form.by_handle else states[0]

    return update


def _apply(
    wrap: Callable[[Any], Any], rule: Callable[..., None], arrays: list[Any], grad: DeviceValue, hyper: list[Any]
) -> list[Any]:
    traced = [wrap(jnp.asarray(array)) for array in arrays]
    scratch = wrap(jnp.zeros(traced[0].value.shape, traced[0].value.dtype))
    rule(*traced, wrap(jnp.asarray(grad)), scratch, *hyper)
    return [array.value for array in traced]


def _check_shapes(states: DeviceValue, cells: list[Any], grad: DeviceValue) -> None:
    for name, value in (("grad", grad), *((s.state.name, c) for s, c in zip(states, cells))):
        if value.shape != cells[0].shape:
            refuse(f"var and {name} do not have the same shape{list(cells[0].shape)} {list(value.shape)}")


def _rows(apply: Callable[..., list[Any]], arrays: list[Any], grad: DeviceValue, indices: DeviceValue) -> list[Any]:
    """Updates some rows. A row that is named twice is updated twice, in order: the k-th round has the k-th mentions."""
    indices = jnp.asarray(indices)
    count = indices.shape[0]
    earlier = jnp.tril(indices[:, None] == indices[None, :], -1).sum(1) if count else indices
    if not count:
        return arrays

    def round_(state: DeviceValue) -> Any:
        number, values = state
        now = jnp.where((earlier == number) & (indices >= 0), indices, arrays[0].shape[0])
        rows = [jnp.take(value, now, 0, mode="clip") for value in values]
        changed = apply(rows, grad)
        return number + 1, [value.at[now].set(new, mode="drop") for value, new in zip(values, changed)]

    last = earlier.max()
    news: list[Any] = jax.lax.while_loop(lambda state: state[0] <= last, round_, (jnp.zeros_like(last), arrays))[1]
    return news


_BRANCHES = {"l1", "lr_power"}  # Python's conditions in the rules look at them


def _declare_updates() -> None:
    for form, rule, attr in forms():
        host = " ".join(name for name in form.inputs if name in _BRANCHES)
        lower(form.type, host=host)(_update(form, rule, attr))


_declare_updates()

# ---- random numbers ------------------------------------------------------------------------------------------------


def _stream(node: Node) -> Callable[..., Any]:
    """The stream of a random op: what the host decides once per step."""
    seed, seed2 = node.attrs["seed"], node.attrs["seed2"]
    if not (seed or seed2):
        seed, seed2 = secrets.randbits(63), secrets.randbits(63)
    generator = philox.PhiloxGenerator(seed, seed2)
    key = seed & 0xFFFFFFFFFFFFFFFF

    def draw(kind: str, *sizes: DeviceValue) -> Any:
        if kind == "permutation":
            return philox.permutation(generator, sizes[0]).astype(np.int32)
        if kind == "row_doubles":
            return philox.row_doubles(generator, *sizes)
        start = generator.reserve(sizes[0] * philox.RESERVED_PER_OUTPUT)
        words = [(start >> shift) & 0xFFFFFFFF for shift in (0, 32, 64, 96)]
        return np.array([*words, key & 0xFFFFFFFF, key >> 32], np.uint32)

    return draw


def _words(counter: DeviceValue, offsets: DeviceValue) -> Any:
    """The blocks at the counter plus offsets (uint64): uint32 of shape [..., 4], as `PhiloxGenerator.blocks_at`."""
    wide = counter.astype(jnp.uint64)
    low, high = wide[0] | wide[1] << 32, wide[2] | wide[3] << 32
    sums = low + offsets
    top = jnp.where(sums < low, high + 1, high)
    half = lambda value: value.astype(jnp.uint32)  # noqa: E731
    c0, c1, c2, c3 = half(sums), half(sums >> 32), half(top), half(top >> 32)
    k0, k1 = counter[4], counter[5]
    for _ in range(10):
        p0 = jnp.uint64(0xD2511F53) * c0.astype(jnp.uint64)
        p1 = jnp.uint64(0xCD9E8D57) * c2.astype(jnp.uint64)
        c0, c1, c2, c3 = half(p1 >> 32) ^ c1 ^ k0, half(p1), half(p0 >> 32) ^ c3 ^ k1, half(p0)
        k0, k1 = k0 + jnp.uint32(0x9E3779B9), k1 + jnp.uint32(0xBB67AE85)
    return jnp.stack([c0, c1, c2, c3], -1)


def _blocks(counter: DeviceValue, count: int) -> Any:
    return _words(counter, jnp.arange(count, dtype=jnp.uint64))


def _float32(words: DeviceValue) -> Any:
    bits = words & jnp.uint32(0x7FFFFF) | jnp.uint32(127 << 23)
    return jax.lax.bitcast_convert_type(bits, jnp.float32) - jnp.float32(1)


def _float64(high: DeviceValue, low: DeviceValue) -> Any:
    bits = (high & jnp.uint32(0xFFFFF)).astype(jnp.uint64) << 32 | low.astype(jnp.uint64) | jnp.uint64(1023 << 52)
    return jax.lax.bitcast_convert_type(bits, jnp.float64) - 1.0


def _uniform(counter: DeviceValue, size: int, dtype: np.dtype[Any]) -> Any:
    if dtype == np.float64:
        words = _blocks(counter, -(-size // 2))
        return _float64(words[:, 0::2].ravel(), words[:, 1::2].ravel())[:size]
    words = _blocks(counter, -(-size // 4)).ravel()[:size]
    if dtype == np.float32:
        return _float32(words)
    mantissa, exponent = (10, 15) if dtype == np.float16 else (7, 127)
    bits = (words & jnp.uint32((1 << mantissa) - 1)).astype(jnp.uint16) | jnp.uint16(exponent << mantissa)
    return jax.lax.bitcast_convert_type(bits, dtype) - jnp.asarray(1, dtype)


def _box_muller32(words: DeviceValue) -> Any:
    pairs = words.reshape(-1, 2)
    u1 = jnp.maximum(_float32(pairs[:, 0]), jnp.float32(1.0e-7))
    angle = (2 * np.pi * _float32(pairs[:, 1]).astype(jnp.float64)).astype(jnp.float32).astype(jnp.float64)
    log = jnp.log(u1.astype(jnp.float64)).astype(jnp.float32)  # rounded as on the CPU
    radius = jnp.sqrt(jnp.float32(-2) * log)
    turned = [jnp.sin(angle).astype(jnp.float32) * radius, jnp.cos(angle).astype(jnp.float32) * radius]
    return jnp.stack(turned, 1).reshape(words.shape)


def _box_muller64(words: DeviceValue) -> Any:
    fours = words.reshape(-1, 4)
    u1 = jnp.maximum(_float64(fours[:, 0], fours[:, 1]), 1.0e-7)
    angle = 2 * np.pi * _float64(fours[:, 2], fours[:, 3])
    radius = jnp.sqrt(-2.0 * jnp.log(u1))
    return jnp.stack([jnp.sin(angle) * radius, jnp.cos(angle) * radius], 1).reshape(-1)


def _normal(counter: DeviceValue, size: int, dtype: np.dtype[Any]) -> Any:
    if dtype == np.float64:
        return _box_muller64(_blocks(counter, -(-size // 2)))[:size]
    return _box_muller32(_blocks(counter, -(-size // 4)).ravel())[:size].astype(dtype)


def _truncated(counter: DeviceValue, size: int, dtype: np.dtype[Any]) -> Any:
    """As `philox.truncated_normal`: each group takes its first candidates within two deviations."""
    group, transform = (2, _box_muller64) if dtype == np.float64 else (4, _box_muller32)
    stride, count = group * philox.RESERVED_PER_OUTPUT // 4, -(-size // group)
    starts = jnp.arange(count, dtype=jnp.uint64) * jnp.uint64(stride)

    def round_(state: DeviceValue) -> Any:
        number, filled, out = state
        words = _words(counter, starts + number)
        candidates = transform(words.reshape(-1)).reshape(count, -1)
        inside = jnp.abs(candidates) < 2
        place = filled[:, None] + jnp.cumsum(inside, 1) - 1
        place = jnp.where(inside & (place < group), place, group)
        out = out.at[jnp.arange(count)[:, None], place].set(candidates, mode="drop")
        return number + 1, filled + inside.sum(1), out

    kind = jnp.float64 if group == 2 else jnp.float32
    start = jnp.uint64(0), jnp.zeros(count, jnp.int64), jnp.zeros((count, group), kind)
    found = jax.lax.while_loop(lambda state: jnp.any(state[1] < group), round_, start)[2]
    return found.ravel()[:size].astype(dtype)


def _random(op: str, function: Callable[..., Any]) -> None:
    @lower(op, host="shape", draw=_stream)
    def _draw(draw: Callable[..., Any], shape: DeviceValue, *, dtype: DType) -> Any:
        sizes = tuple(shape.tolist())
        size = int(np.prod(sizes))
        return function(draw("counter", size), size, dtype.numpy).reshape(sizes)


_random("RandomUniform", _uniform)
_random("RandomStandardNormal", _normal)
_random("TruncatedNormal", _truncated)


@lower("RandomUniformInt", host="shape minval maxval", draw=_stream)
def _uniform_int(
    draw: Callable[..., Any], shape: DeviceValue, minval: DeviceValue, maxval: DeviceValue, *, node: Node
) -> Any:
    sizes, low, high = tuple(shape.tolist()), int(minval), int(maxval)
    if low >= high:
        refuse(f"Need minval < maxval, got {low} >= {high}")
    size, dtype = int(np.prod(sizes)), node.attrs["Tout"].numpy
    counter = draw("counter", size)
    if dtype == np.int32:
        words = _blocks(counter, -(-size // 4)).ravel()[:size]
        return ((words % jnp.uint32(high - low)).astype(jnp.int32) + jnp.int32(low)).reshape(sizes)
    pairs = _blocks(counter, -(-size // 2)).reshape(-1, 2).astype(jnp.uint64)
    wide = (pairs[:, 0] | pairs[:, 1] << 32)[:size]
    return ((wide % jnp.uint64(high - low)).astype(jnp.int64) + low).reshape(sizes)


@lower("RandomShuffle", draw=_stream)
def _shuffle(draw: Callable[..., Any], value: DeviceValue) -> Any:
    if value.ndim == 0 or value.shape[0] < 2 or not value.size:
        return value
    return jnp.asarray(value)[draw("permutation", value.shape[0])]


@lower("Multinomial", host="num_samples", draw=_stream)
def _multinomial(draw: Callable[..., Any], logits: DeviceValue, count: DeviceValue, *, output_dtype: DType) -> Any:
    wide = logits.astype(jnp.float64)
    finite = jnp.isfinite(wide)
    peak = jnp.max(jnp.where(finite, wide, -jnp.inf), 1, keepdims=True)
    weights = jnp.where(finite, jnp.exp(wide - jnp.where(jnp.isfinite(peak), peak, 0.0)), 0.0)
    bounds = jnp.cumsum(weights, 1)
    wanted = draw("row_doubles", logits.shape[0], int(count)) * bounds[:, -1:]
    return jax.vmap(lambda b, w: jnp.searchsorted(b, w, side="right"))(bounds, wanted).astype(output_dtype.numpy)


# ---- linear algebra ------------------------------------------------------------------------------------------------

lower("Cholesky")(lambda value: jnp.linalg.cholesky(value))
lower("MatrixDeterminant")(lambda value: jnp.linalg.det(value))


@lower("MatrixInverse")
def _inverse(value: DeviceValue, *, adjoint: bool) -> Any:
    return jnp.linalg.inv(_adjoint(value) if adjoint else value)


@lower("MatrixSolve")
def _solve(matrix: DeviceValue, rhs: DeviceValue, *, adjoint: bool) -> Any:
    return jnp.linalg.solve(_adjoint(matrix) if adjoint else matrix, rhs)


@lower("MatrixTriangularSolve")
def _triangular(matrix: DeviceValue, rhs: DeviceValue, *, adjoint: bool, node: Node) -> Any:
    trans = 2 if adjoint else 0
    return jax.scipy.linalg.solve_triangular(matrix, rhs, trans=trans, lower=node.attrs["lower"])


def _adjoint(value: DeviceValue) -> Any:
    return jnp.conj(jnp.swapaxes(value, -1, -2))


# ---- checks --------------------------------------------------------------------------------------------------------

lower_on_host("Assert")
# TensorFlow has kernels for GPUs of these; here they have no lowering yet.
lower_on_host(
    "Qr Svd SelfAdjointEigV2 CholeskyGrad LogMatrixDeterminant MatrixSolveLs StatelessRandomUniform"
    " StatelessRandomNormal StatelessTruncatedNormal"
    " StatelessRandomUniformInt StatelessMultinomial SparseTensorDenseMatMul"
)
