"""TensorFlow's stream of random numbers: Philox4x32-10, vectorised, and the distributions it draws.

A generator has a 64-bit key (the op's ``seed``) and a 128-bit counter that starts at
``seed2 * 2**64``. Each counter value gives four 32-bit words. A kernel call works from the
present counter and then advances it by 256 per output value, however many it used. So later calls
do not depend on rejections. All of this is as in TensorFlow's CPU kernels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tfmini.core_types import Array

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF
_LOW = np.uint64(_WORD)
_HALF = np.uint64(32)
# Blocks per pass: the working arrays of one pass stay in the cache.
_PASS = 8192
_WORDS = 1024
RESERVED_PER_OUTPUT = 256


class PhiloxGenerator:
    """The state of one kernel: key and counter. Thread-safe."""

    def __init__(self, seed: int, seed2: int) -> None:
        self._key = seed & 0xFFFFFFFFFFFFFFFF
        self._counter = (seed2 & 0xFFFFFFFFFFFFFFFF) << 64
        self._lock = threading.Lock()

    def reserve(self, blocks: int) -> int:
        """The present counter; the next caller's is ``blocks`` further."""
        with self._lock:
            start = self._counter
            self._counter = (start + blocks) % 2**128
            return start

    def words(self, start: int, count: int, stride: int = 1) -> Array:
        """``count`` blocks at counters start, start + stride, …: uint32 of shape [count, 4]."""
        out = np.empty((count, 4), np.uint32)
        for first in range(0, count, _PASS):
            size = min(_PASS, count - first)
            self._fill(out[first : first + size], start + first * stride, stride)
        return out

    def blocks_at(self, start: int, offsets: Array) -> Array:
        """The blocks at ``start + offsets`` (uint64): uint32 of shape [len(offsets), 4]."""
        out = np.empty((len(offsets), 4), np.uint32)
        self._rounds(_split(start, offsets), out)
        return out

    def _fill(self, out: Array, start: int, stride: int) -> None:
        self._rounds(_split(start, np.arange(len(out), dtype=np.uint64) * np.uint64(stride)), out)

    def _rounds(self, counter: list[Array], out: Array) -> None:
        c0, c1, c2, c3 = counter
        k0, k1 = self._key & _WORD, self._key >> 32
        for _ in range(10):
            p0, p1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
            c0 = p1 >> _HALF
            c0 ^= c1
            c0 ^= np.uint64(k0)
            c2 = p0 >> _HALF
            c2 ^= c3
            c2 ^= np.uint64(k1)
            p1 &= _LOW
            p0 &= _LOW
            c1, c3 = p1, p0
            k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
        for i, word in enumerate((c0, c1, c2, c3)):
            out[:, i] = word


def _split(start: int, offsets: Array) -> list[Array]:
    """The four 32-bit words of ``start + offsets``, each as uint64."""
    low, high = np.uint64(start & 0xFFFFFFFFFFFFFFFF), (start >> 64) & 0xFFFFFFFFFFFFFFFF
    sums = low + offsets
    carried = sums < low
    if carried.any():
        tops = np.where(carried, np.uint64((high + 1) & 0xFFFFFFFFFFFFFFFF), np.uint64(high))
    else:
        tops = np.full(len(sums), high, np.uint64)
    return [sums & _LOW, sums >> _HALF, tops & _LOW, tops >> _HALF]


# ---- words to values ------------------------------------------------------------------------


def float32_of(words: Array) -> Array:
    """Uniform float32 in [0, 1) from the low 23 bits of each word."""
    bits = words & np.uint32(0x7FFFFF)
    bits |= np.uint32(127 << 23)
    values = bits.view(np.float32)
    values -= np.float32(1)
    return values


def float64_of(high: Array, low: Array) -> Array:
    """Uniform float64 in [0, 1) from 20 bits of ``high`` and the 32 of ``low``."""
    bits = (high & np.uint32(0xFFFFF)).astype(np.uint64) << _HALF
    bits |= low
    bits |= np.uint64(1023 << 52)
    values = bits.view(np.float64)
    values -= 1.0
    return values


def uint64_of(words: Array) -> Array:
    """Pairs of words, the low one first, as uint64."""
    pairs = words.reshape(-1, 2).astype(np.uint64)
    return pairs[:, 0] | pairs[:, 1] << _HALF


def box_muller32(words: Array) -> Array:
    """Normal float32 values, two from each pair of words: shape of ``words``."""
    pairs = words.reshape(-1, 2)
    u1 = np.maximum(float32_of(pairs[:, 0]), np.float32(1.0e-7))
    angle = (2 * np.pi * float32_of(pairs[:, 1]).astype(np.float64)).astype(np.float32).astype(np.float64)
    # Computed in float64 and rounded, which gives the results of the C library's float functions.
    log = np.log(u1.astype(np.float64)).astype(np.float32)
    radius = np.sqrt(np.float32(-2) * log)
    out = np.empty(pairs.shape, np.float32)
    np.multiply(np.sin(angle).astype(np.float32), radius, out=out[:, 0])
    np.multiply(np.cos(angle).astype(np.float32), radius, out=out[:, 1])
    return out.reshape(words.shape)


def box_muller64(words: Array) -> Array:
    """Normal float64 values, two from each four words: half as many as there are words."""
    fours = words.reshape(-1, 4)
    u1 = np.maximum(float64_of(fours[:, 0], fours[:, 1]), 1.0e-7)
    angle = 2 * np.pi * float64_of(fours[:, 2], fours[:, 3])
    radius = np.sqrt(-2.0 * np.log(u1))
    out = np.empty((len(fours), 2), np.float64)
    np.multiply(np.sin(angle), radius, out=out[:, 0])
    np.multiply(np.cos(angle), radius, out=out[:, 1])
    return out.reshape(-1)


# ---- draws of one kernel call ---------------------------------------------------------------


def uniform(generator: PhiloxGenerator, size: int, dtype: np.dtype[Any]) -> Array:
    """``size`` uniform values in [0, 1) of a float type."""
    start = generator.reserve(size * RESERVED_PER_OUTPUT)
    if dtype == np.float64:
        words = generator.words(start, -(-size // 2))
        return float64_of(words[:, 0::2].ravel(), words[:, 1::2].ravel())[:size]
    words = generator.words(start, -(-size // 4)).ravel()[:size]
    if dtype == np.float32:
        return float32_of(words)
    mantissa = 10 if dtype == np.float16 else 7
    bits = (words & np.uint32((1 << mantissa) - 1)).astype(np.uint16)
    bits |= np.uint16((15 if mantissa == 10 else 127) << mantissa)
    from_one: Array = bits.view(dtype)
    result: Array = np.subtract(from_one, dtype.type(1))
    return result


def uniform_int(generator: PhiloxGenerator, size: int, low: int, high: int, dtype: np.dtype[Any]) -> Array:
    """``size`` integers in [low, high) of type int32 or int64."""
    start = generator.reserve(size * RESERVED_PER_OUTPUT)
    if dtype == np.int32:
        words = generator.words(start, -(-size // 4)).ravel()[:size]
        return (words % np.uint32(high - low)).view(np.int32) + np.int32(low)
    words = generator.words(start, -(-size // 2))
    return (uint64_of(words)[:size] % np.uint64(high - low)).view(np.int64) + np.int64(low)


def normal(generator: PhiloxGenerator, size: int, dtype: np.dtype[Any]) -> Array:
    """``size`` standard normal values of a float type."""
    start = generator.reserve(size * RESERVED_PER_OUTPUT)
    group, transform, own = _normals(dtype)
    out = np.empty((-(-size // group), group), own)
    for first in range(0, len(out), _PASS):  # what a pass needs beside its values is several times their size
        words = generator.words(start + first, min(_PASS, len(out) - first))
        out[first : first + _PASS] = transform(words).reshape(-1, group)
    return out.ravel()[:size].astype(dtype, copy=False)


def truncated_normal(generator: PhiloxGenerator, size: int, dtype: np.dtype[Any]) -> Array:
    """``size`` standard normal values within two deviations, by rejection in groups of four (float64: two)."""
    start = generator.reserve(size * RESERVED_PER_OUTPUT)
    group, _, own = _normals(dtype)
    out = np.empty((-(-size // group), group), own)
    for first in range(0, len(out), _PASS):
        _draw_truncated(generator, start, out, np.arange(first, min(first + _PASS, len(out)), dtype=np.uint64))
    return out.ravel()[:size].astype(dtype, copy=False)


def _normals(dtype: np.dtype[Any]) -> tuple[int, Callable[[Array], Array], type[Any]]:
    """The number of normal values of a block, what makes them of its words, and their type."""
    return (2, box_muller64, np.float64) if dtype == np.float64 else (4, box_muller32, np.float32)


def _draw_truncated(generator: PhiloxGenerator, start: int, out: Array, waiting: Array) -> None:
    """Fills the groups ``waiting``, rows of ``out``; each tries blocks of its own until it has enough values."""
    group, transform, _ = _normals(out.dtype)
    stride = group * RESERVED_PER_OUTPUT // 4
    blocks = 1
    while len(waiting):
        offsets = waiting[:, None] * np.uint64(stride) + np.arange(blocks, dtype=np.uint64)
        candidates = transform(generator.blocks_at(start, offsets.ravel())).reshape(len(waiting), -1)
        inside = np.abs(candidates) < 2
        done = inside.sum(axis=1) >= group
        order = np.argsort(~inside[done], axis=1, kind="stable")[:, :group]
        out[waiting[done]] = np.take_along_axis(candidates[done], order, axis=1)
        waiting = waiting[~done]
        blocks *= 2


def _blocks(generator: PhiloxGenerator, start: int, offsets: Array) -> Array:
    parts = [generator.blocks_at(start, offsets[i : i + _PASS]) for i in range(0, len(offsets), _PASS)]
    return np.concatenate(parts).ravel()


def rows_of_ids(seed: int, ids: Array, count: int, distribution: str) -> Array:
    """``count`` values for each int64 id, which follow from the seed and the id alone: float32 [len(ids), count].

    Args:
      distribution: ``uniform`` in [0, 1), ``normal``, or ``truncated_normal`` within two deviations.
    """
    if not len(ids):
        return np.empty((0, count), np.float32)
    generator, offsets = PhiloxGenerator(seed, 0), np.ascontiguousarray(ids).view(np.uint64)
    blocks = [_blocks(generator, block << 64, offsets).reshape(-1, 4) for block in range(-(-count // 4))]
    words = np.concatenate(blocks, axis=1)
    if distribution == "normal":
        return box_muller32(words.ravel()).reshape(words.shape)[:, :count]
    values = float32_of(words)[:, :count]
    if distribution == "uniform":
        return values
    # By the quantile function, and not by rejection, so that each value takes one word.
    from scipy.special import ndtr, ndtri  # scipy is slow to import

    below = ndtr(-2.0)
    found: Array = ndtri(below + values.astype(np.float64) * (1 - 2 * below)).astype(np.float32)
    return found


def permutation(generator: PhiloxGenerator, size: int, blocks: int | None = None) -> Array:
    """A random order of ``range(size)``, by size - 1 swaps with a word each, of so many blocks if they are given."""
    blocks = -(-(size - 1) // 4) if blocks is None else blocks
    words = generator.words(generator.reserve(blocks), blocks).ravel()[: size - 1]
    targets = (np.arange(size - 1) + words % np.arange(size, 1, -1, dtype=np.uint32)).tolist()
    order = list(range(size))
    for i, j in enumerate(targets):
        order[i], order[j] = order[j], order[i]
    return np.array(order)


def row_doubles(generator: PhiloxGenerator, rows: int, count: int) -> Array:
    """Uniform float64 in [0, 1) for a multinomial kernel: shape [rows, count]."""
    rounded = (count + 3) // 4 * 4
    start = generator.reserve(rows * rounded * 2 * RESERVED_PER_OUTPUT)
    blocks = -(-rows * count // 2)
    words = generator.words(start, blocks)
    values = float64_of(words[:, 0::2].ravel(), words[:, 1::2].ravel())
    return values[: rows * count].reshape(rows, count)


# ---- words one after the other --------------------------------------------------------------


class WordStream:
    """The words of a generator's blocks from ``start`` on, one after the other. Not thread-safe."""

    def __init__(self, generator: PhiloxGenerator, start: int | None = None) -> None:
        self._generator = generator
        self._at = generator.reserve(0) if start is None else start
        self._rest = np.empty(0, np.uint32)

    def take(self, count: int) -> Array:
        """The next ``count`` words, as uint32."""
        if len(self._rest) < count:
            blocks = -(-(count - len(self._rest)) // 4)
            self._rest = np.concatenate([self._rest, self._generator.words(self._at, blocks).ravel()])
            self._at += blocks
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from self.take(_WORDS).tolist()  # many at once: one alone takes microseconds


def doubles_of(words: Array) -> Array:
    """Uniform float64 in [0, 1), one from each pair of words."""
    return float64_of(words[0::2], words[1::2])


def below(take: Callable[[int], Array], count: int, limit: int, bits: int) -> Array:
    """``count`` unbiased integers in [0, limit), uint64, of words of 32 bits or pairs of them: ``bits`` is 32 or 64."""
    if bits == 32:
        draw = lambda size: take(size).astype(np.uint64)  # noqa: E731
    else:
        draw = lambda size: uint64_of(take(2 * size))  # noqa: E731
    if limit & (limit - 1) == 0:
        return draw(count) & np.uint64(limit - 1)
    refused = np.uint64((2**bits - 1) % limit + 1)  # as many of the smallest: what is left is a multiple of the limit
    found = np.empty(0, np.uint64)
    while len(found) < count:
        drawn = draw(count - len(found))
        found = np.concatenate([found, drawn[drawn >= refused]])
    return found % np.uint64(limit)


# ---- gamma and Poisson: each output value has a stream of its own ----------------------------


class _Lanes:
    """Streams of float64 values, one for each output of a kernel call: 256 blocks of the generator each.

    A block gives two values, of which the second is used first.
    """

    def __init__(self, generator: PhiloxGenerator, start: int, count: int) -> None:
        self._generator, self._start = generator, start
        self._blocks = np.arange(count, dtype=np.uint64) * np.uint64(RESERVED_PER_OUTPUT)  # the next of each lane
        self._uniform, self._normal = np.empty((count, 2)), np.empty((count, 2))
        self._uniforms, self._normals = np.zeros(count, np.intp), np.zeros(count, np.intp)  # how many are left

    def uniform(self, lanes: Array) -> Array:
        """The next uniform value in [0, 1) of each of the lanes."""
        return self._next(lanes, self._uniform, self._uniforms, lambda words: doubles_of(words.ravel()))

    def normal(self, lanes: Array) -> Array:
        """The next standard normal value of each of the lanes."""
        return self._next(lanes, self._normal, self._normals, box_muller64)

    def _next(self, lanes: Array, values: Array, left: Array, transform: Callable[[Array], Array]) -> Array:
        empty = lanes[left[lanes] == 0]
        if len(empty):
            values[empty] = transform(self._generator.blocks_at(self._start, self._blocks[empty])).reshape(-1, 2)
            self._blocks[empty] += np.uint64(1)
            left[empty] = 2
        left[lanes] -= 1
        return values[lanes, left[lanes]]


def gamma(generator: PhiloxGenerator, alpha: Array) -> Array:
    """A gamma value of scale 1 for each shape parameter (float64 [n]; NaN below 0), by Marsaglia and Tsang's method."""
    return _in_passes(_gamma, generator, alpha)


def poisson(generator: PhiloxGenerator, rate: Array, highest: float) -> Array:
    """A Poisson value for each rate (float64 [n], finite); ``highest``: of both.

    By products, from a rate of 10 on by rejection.
    """
    return _in_passes(lambda lanes, rates: _poisson(lanes, rates, highest), generator, rate)


def _in_passes(draw: Callable[[_Lanes, Array], Array], generator: PhiloxGenerator, parameters: Array) -> Array:
    """A value for each parameter: what a pass needs beside its values is many times their size."""
    start, out = generator.reserve(len(parameters) * RESERVED_PER_OUTPUT), np.empty(len(parameters))
    for first in range(0, len(out), _PASS):
        some = parameters[first : first + _PASS]
        out[first : first + _PASS] = draw(_Lanes(generator, start + first * RESERVED_PER_OUTPUT, len(some)), some)
    return out


def _gamma(lanes: _Lanes, alpha: Array) -> Array:
    found = np.full(len(alpha), np.nan)
    exponential = alpha == 1
    one = np.flatnonzero(exponential)
    if len(one):
        found[one] = -np.log(1 - lanes.uniform(one))
    small = alpha < 1
    d = alpha + np.where(small, 2 / 3, -1 / 3)
    c = 1 / 3 / np.sqrt(d)
    waiting = np.flatnonzero(~exponential & (alpha >= 0))
    while len(waiting):
        x = lanes.normal(waiting)
        v = 1 + c[waiting] * x
        trying, x, v = waiting[v > 0], x[v > 0], v[v > 0] ** 3
        u = lanes.uniform(trying)
        squeezed = u < 1 - 0.0331 * (x * x) * (x * x)
        taken = squeezed | (np.log(u) < 0.5 * x * x + d[trying] * (1 - v + np.log(v)))
        done = trying[taken]
        found[done] = d[done] * v[taken]
        waiting = np.setdiff1d(waiting, done, assume_unique=True)
    below_one = np.flatnonzero(small & (alpha > 0))
    if len(below_one):
        found[below_one] *= lanes.uniform(below_one) ** (1 / alpha[below_one])
    found[alpha == 0] = 0.0
    return found


def _poisson(lanes: _Lanes, rate: Array, highest: float) -> Array:
    found = np.zeros(len(rate))
    small = rate < 10
    waiting, product = np.flatnonzero(small), np.ones(len(rate))
    while len(waiting):
        product[waiting] *= lanes.uniform(waiting)
        waiting = waiting[product[waiting] > np.exp(-rate[waiting])]
        found[waiting] += 1
    waiting = np.flatnonzero(~small)
    while len(waiting):
        values, taken = _hormann(rate[waiting], lanes.uniform(waiting) - 0.5, lanes.uniform(waiting), highest)
        found[waiting[taken]] = values[taken]
        waiting = waiting[~taken]
    return found


def _hormann(rate: Array, u: Array, v: Array, highest: float) -> tuple[Array, Array]:
    """Candidates for a Poisson value and which of them are taken: "The transformed rejection method", 1993, PTRS."""
    from scipy.special import gammaln  # scipy is slow to import

    b = 0.931 + 2.53 * np.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    shifted = 0.5 - np.abs(u)
    k = np.floor((2 * a / shifted + b) * u + rate + 0.43)
    at_once = (shifted >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
    possible = (k >= 0) & ((shifted >= 0.013) | (v <= shifted))
    density = -rate + k * np.log(rate) - gammaln(k + 1)
    likely = np.log(v * inverse_alpha / (a / (shifted * shifted) + b)) <= density
    return k, (k <= highest) & (at_once | (possible & likely))
