"""Incomplete gamma and beta functions and modified Bessel functions on numpy arrays, without scipy.

All compute in float64 and return values of the input's type. They use power series where those converge
quickly, and continued fractions (Lentz) or asymptotic series elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.numerics.special_functions import digamma, lgamma

_TINY, _EPS, _TERMS = 1e-300, 1e-16, 5000


def _broadcast(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*values: Any) -> Any:
        dtype = values[0].dtype
        arrays = np.broadcast_arrays(*[np.asarray(v, np.float64) for v in values])
        shape = arrays[0].shape
        found = function(*[a.ravel().copy() for a in arrays]).reshape(shape).astype(dtype)
        return found if shape else found[()]

    return wrapped


def _gamma_front(a: Any, x: Any) -> Any:
    """x ** a * exp(-x) / gamma(a)."""
    return np.exp(a * np.log(x) - x - lgamma(a))


def _gamma_series(a: Any, x: Any) -> Any:
    """Sum of x ** n / (a (a + 1) … (a + n))."""
    term = 1.0 / a
    total = term.copy()
    for n in range(1, _TERMS):
        term = term * (x / (a + n))
        total += term
        if not (np.abs(term) > _EPS * np.abs(total)).any():  # NaN never comes closer
            break
    return total


def _gamma_fraction(a: Any, x: Any) -> Any:
    b = x + 1.0 - a
    c, d = np.full_like(x, 1.0 / _TINY), 1.0 / b
    h = d.copy()
    for n in range(1, _TERMS):
        factor = -n * (n - a)
        b = b + 2.0
        d = 1.0 / _not_zero(factor * d + b)
        c = _not_zero(b + factor / c)
        step = c * d
        h *= step
        if not (np.abs(step - 1.0) > _EPS * 4).any():  # NaN never comes closer
            break
    return h


def _not_zero(value: Any) -> Any:
    return np.where(np.abs(value) < _TINY, _TINY, value)


def _lower_and_upper(a: Any, x: Any) -> tuple[Any, Any]:
    lower, upper = np.full_like(x, np.nan), np.full_like(x, np.nan)
    valid = (x >= 0) & (a > 0)
    edge = valid & (x == 0)
    lower[edge], upper[edge] = 0.0, 1.0
    edge = valid & np.isinf(x)
    lower[edge], upper[edge] = 1.0, 0.0
    small = valid & (x > 0) & (x < a + 1.0)
    if small.any():
        lower[small] = _gamma_front(a[small], x[small]) * _gamma_series(a[small], x[small])
        upper[small] = 1.0 - lower[small]
    large = valid & np.isfinite(x) & (x >= a + 1.0)
    if large.any():
        upper[large] = _gamma_front(a[large], x[large]) * _gamma_fraction(a[large], x[large])
        lower[large] = 1.0 - upper[large]
    return lower, upper


@_broadcast
def igamma(a: Any, x: Any) -> Any:
    """The regularised lower incomplete gamma function P(a, x)."""
    return _lower_and_upper(a, x)[0]


@_broadcast
def igammac(a: Any, x: Any) -> Any:
    """The regularised upper incomplete gamma function Q(a, x)."""
    return _lower_and_upper(a, x)[1]


def _igamma_grad(a: Any, x: Any) -> Any:
    """dP/da: each term of the series of P times ln x - psi(a + n + 1)."""
    found = np.zeros_like(x)
    use = (x > 0) & (a > 0) & np.isfinite(x)
    if not use.any():
        return found
    a, x = a[use], x[use]
    logarithm, psi = np.log(x), digamma(a + 1.0)
    term = np.exp(a * logarithm - x - lgamma(a + 1.0))
    total, size = np.zeros_like(x), np.zeros_like(x)
    for n in range(_TERMS):
        total += term * (logarithm - psi)
        size += term
        psi = psi + 1.0 / (a + n + 1.0)
        term = term * (x / (a + n + 1.0))
        if not (n <= x.max() or (term * np.abs(logarithm - psi) > _EPS * size).any()):
            break
    found[use] = total
    return found


igamma_grad_a = _broadcast(_igamma_grad)


@_broadcast
def random_gamma_grad(alpha: Any, sample: Any) -> Any:
    """d sample / d alpha of a gamma variate of rate 1 at a fixed quantile: -(dP/da) / density."""
    density = np.exp((alpha - 1.0) * np.log(sample) - sample - lgamma(alpha))
    return -_igamma_grad(alpha, sample) / density


def _beta_fraction(a: Any, b: Any, x: Any) -> Any:
    c = np.ones_like(x)
    d = 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1.0))
    h = d.copy()
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        for factor in (even, odd):
            d = 1.0 / _not_zero(1.0 + factor * d)
            c = _not_zero(1.0 + factor / c)
            step = c * d
            h *= step
        if not (np.abs(step - 1.0) > _EPS * 4).any():  # NaN never comes closer
            break
    return h


@_broadcast
def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularised incomplete beta function I_x(a, b)."""
    found = np.full_like(x, np.nan)
    valid = (a > 0) & (b > 0) & (x >= 0) & (x <= 1)
    found[valid & (x == 0)], found[valid & (x == 1)] = 0.0, 1.0
    inside = valid & (x > 0) & (x < 1)
    if inside.any():
        p, q, y = a[inside], b[inside], x[inside]
        turn = y > (p + 1.0) / (p + q + 2.0)  # the fraction of the mirrored function converges faster there
        p, q, y = np.where(turn, q, p), np.where(turn, p, q), np.where(turn, 1.0 - y, y)
        front = np.exp(p * np.log(y) + q * np.log1p(-y) + lgamma(p + q) - lgamma(p) - lgamma(q)) / p
        value = front * _beta_fraction(p, q, y)
        found[inside] = np.where(turn, 1.0 - value, value)
    return found


def _bessel(order: int) -> Callable[[Any], Any]:
    """exp(-|x|) I_order(x)."""

    def compute(x: Any) -> Any:
        size = np.abs(x)
        found = np.full_like(x, np.nan)
        near = size <= 30.0
        quarter = size[near] ** 2 / 4.0
        term = (size[near] / 2.0) ** order
        total = term.copy()
        for k in range(1, 120):
            term = term * quarter / (k * (k + order))
            total += term
        found[near] = total * np.exp(-size[near])
        far = size > 30.0
        term = np.ones_like(size[far])
        total = term.copy()
        for k in range(1, 25):
            term = term * -(4.0 * order**2 - (2 * k - 1) ** 2) / (8.0 * k * size[far])
            total += term
        found[far] = total / np.sqrt(2.0 * np.pi * size[far])
        return np.where(x < 0, -found, found) if order else found

    return _broadcast(compute)


bessel_i0e = _bessel(0)
bessel_i1e = _bessel(1)
