"""Vectorised special functions on numpy arrays: erf, erfc, lgamma, digamma, Hurwitz zeta.

They compute in float64 to a relative error of a few units in the last place (absolute near the
zeros of lgamma and digamma) and return values of the input's type. They do not use scipy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = Any

# Chebyshev coefficients, fitted with 40 digits. erf(x) / x on |x| <= 1, in 2 x^2 - 1:
_ERF_SMALL = (
    0.9754769393826541, -0.14226120510371365, 0.010035582187599796, -0.0005768764699767485, 2.741993125219606e-05,
    -1.1043175507344507e-06, 3.8488755420345036e-08, -1.1808582533875466e-09, 3.2334215826050907e-11,
    -7.991015947004549e-13, 1.799072511396137e-14, -3.7186354877527125e-16, 7.103598527027531e-18,
)  # fmt: skip
# erfc(x) exp(x^2) / t for x >= 0 and t = 2 / (2 + x), in 2 t - 1:
_ERFC_TAIL = (
    0.5770337386164697, 0.3554369212704985, 0.06509515882878653, 0.003671142395836639, -0.0011128447433526325,
    -0.0001607582991537808, 3.278031574173137e-05, 5.442441645505016e-06, -1.5154665553171482e-06,
    -1.4297608181169865e-07, 8.234608827419493e-08, -1.296284685230656e-09, -4.154721631015199e-09,
    6.347058278362812e-10, 1.4320822712256222e-10, -6.160390105204592e-11, 2.0612138554723067e-12,
    3.571493148847512e-12, -8.586422843249526e-13, -6.145600213814245e-14, 7.418725748618387e-14,
    -1.289504275520411e-14, -2.358726385601373e-15, 1.5729349380915885e-15, -2.2782966222327687e-16,
    -6.31233048475703e-17, 3.591676299302197e-17, -5.049803119725565e-18, -1.5324720425783688e-18,
)  # fmt: skip
# Bernoulli numbers B2, B4, …
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_SHIFT = 10  # Smaller arguments are shifted above this before the asymptotic series is used.


def _in_float64(function: Callable[..., Array]) -> Callable[..., Array]:
    def wrapped(*values: Any) -> Any:
        result = function(*[np.asarray(v, np.float64) for v in values])
        return result.astype(values[0].dtype)[()]

    return wrapped


def _chebyshev(u: Array, coefficients: Sequence[float]) -> Array:
    """Clenshaw's sum of a Chebyshev series at ``u`` in [-1, 1]."""
    twice = 2.0 * u
    ahead, further = np.zeros_like(u), np.zeros_like(u)
    for c in coefficients[:0:-1]:
        ahead, further = twice * ahead - further + c, ahead
    return u * ahead - further + coefficients[0]


def _erf_small(x: Array) -> Array:
    return x * _chebyshev(2.0 * x * x - 1.0, _ERF_SMALL)


def _erfc_positive(x: Array) -> Array:
    t = 2.0 / (2.0 + x)
    return np.exp(-x * x) * t * _chebyshev(2.0 * t - 1.0, _ERFC_TAIL)


@_in_float64
def erf(x: Array) -> Array:
    """The error function."""
    size = np.abs(x)
    small = size <= 1.0
    return np.where(small, _erf_small(np.where(small, x, 0.0)), np.copysign(1.0 - _erfc_positive(size), x))


@_in_float64
def erfc(x: Array) -> Array:
    """1 - erf(x), accurate also where the result is tiny."""
    size = np.abs(x)
    tail = _erfc_positive(size)
    middle = 1.0 - _erf_small(np.clip(x, -0.5, 0.5))
    return np.where(size <= 0.5, middle, np.where(x > 0, tail, 2.0 - tail))


@_in_float64
def lgamma(x: Array) -> Array:
    """log |gamma(x)|; infinite at 0 and the negative integers."""
    reflected = x < 0.5
    value = _lgamma_right(np.where(reflected, 1.0 - x, x))
    pole = (x <= 0) & (x == np.floor(x))
    # |sin(pi x)| by the distance to the nearest integer, which is exact.
    sine = np.abs(np.sin(np.pi * np.where(reflected & np.isfinite(x), x - np.round(x), 0.5)))
    mirrored = np.log(np.pi) - np.log(np.where(pole, 1.0, sine)) - value
    return np.where(np.isinf(x) | pole, np.inf, np.where(reflected, mirrored, value))


def _lgamma_right(x: Array) -> Array:
    """log gamma for x >= 0.5, by Stirling's series; small arguments are shifted up first."""
    product = np.ones_like(x)
    for k in range(_SHIFT):
        product = np.where(x < _SHIFT, product * (x + k), product)
    moved = np.where(x < _SHIFT, x + _SHIFT, x)
    square = 1.0 / (moved * moved)
    series = np.zeros_like(x)
    for n in range(len(_BERNOULLI), 0, -1):
        series = series * square + _BERNOULLI[n - 1] / (2 * n * (2 * n - 1))
    half_log_two_pi = 0.5 * math.log(2.0 * math.pi)
    return (moved - 0.5) * np.log(moved) - moved + half_log_two_pi + series / moved - np.log(product)


@_in_float64
def digamma(x: Array) -> Array:
    """The derivative of lgamma; NaN at 0 and the negative integers."""
    reflected = x < 0.5
    right = np.where(reflected, 1.0 - x, x)
    value = np.zeros_like(x)
    for k in range(_SHIFT):
        value = np.where(right < _SHIFT, value - 1.0 / (right + k), value)
    moved = np.where(right < _SHIFT, right + _SHIFT, right)
    square = 1.0 / (moved * moved)
    series = np.zeros_like(x)
    for n in range(len(_BERNOULLI), 0, -1):
        series = (series + _BERNOULLI[n - 1] / (2 * n)) * square
    value = value + np.log(moved) - 0.5 / moved - series
    pole = (x <= 0) & (x == np.floor(x))
    offset = np.where(reflected & ~pole, x - np.round(x), 0.25)
    return np.where(pole, np.nan, np.where(reflected, value - np.pi / np.tan(np.pi * offset), value))


@_in_float64
def zeta(x: Array, q: Array) -> Array:
    """The Hurwitz zeta function, sum of (q + k) ** -x, for x > 1; by Euler and Maclaurin."""
    x, q = np.broadcast_arrays(x, q)
    total = np.zeros_like(q)
    for k in range(_SHIFT):
        total = total + (q + k) ** -x
    end = q + _SHIFT
    total = total + end ** (1.0 - x) / (x - 1.0) + 0.5 * end**-x
    rising, factorial, power = x, 2.0, end ** (-x - 1.0)
    for n, bernoulli in enumerate(_BERNOULLI, 1):
        total = total + bernoulli / factorial * rising * power
        rising = rising * (x + 2 * n - 1) * (x + 2 * n)
        factorial *= (2 * n + 1) * (2 * n + 2)
        power = power / (end * end)
    total = np.where((q <= 0) & (q == np.floor(q)), np.inf, total)
    return np.where(x == 1.0, np.inf, np.where(x < 1.0, np.nan, total))


def polygamma(n: Any, x: Any) -> Any:
    """The n-th derivative of digamma, for whole n >= 0."""
    order = np.asarray(n, np.float64)
    point = np.asarray(x, np.float64)
    sign = np.where(order % 2 == 0, -1.0, 1.0)
    higher = sign * np.exp(lgamma(order + 1.0)) * zeta(np.maximum(order, 1.0) + 1.0, point)
    value = np.where(order == 0, digamma(point), higher)
    return np.where((order < 0) | (order != np.floor(order)), np.nan, value).astype(x.dtype)[()]
