"""Special functions on numpy arrays: those of scipy in float64, with the type of the input and TensorFlow's edge cases.

Scipy, which is slow to import, is imported by the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.core_types import Array

_EPS, _TERMS = 1e-16, 5000  # of the series of `_gamma_slope`


def _scipy() -> Any:
    from scipy import special

    return special


def _of_scipy(name: str, valid: Callable[..., Array] | None = None) -> Callable[..., Any]:
    """The function of scipy, NaN where the arguments are not ``valid``."""

    def function(*values: Array) -> Any:
        wide = [np.asarray(value, np.float64) for value in values]
        result = getattr(_scipy(), name)(*wide)
        if valid is not None:
            result = np.where(valid(*wide), result, np.nan)
        return result.astype(values[0].dtype)[()]

    return function


erf = _of_scipy("erf")
erfc = _of_scipy("erfc")
bessel_i0e = _of_scipy("i0e")
bessel_i1e = _of_scipy("i1e")
igamma = _of_scipy("gammainc", lambda a, x: a > 0)
igammac = _of_scipy("gammaincc", lambda a, x: a > 0)
betainc = _of_scipy("betainc", lambda a, b, x: (a > 0) & (b > 0) & np.isfinite(a + b))
zeta = _of_scipy("zeta")


def lgamma(x: Array) -> Any:
    """log |gamma(x)|; infinite at 0, the negative integers and both infinities."""
    wide = np.asarray(x, np.float64)
    return np.where(np.isinf(wide), np.inf, _scipy().gammaln(wide)).astype(x.dtype)[()]


def digamma(x: Array) -> Any:
    """The derivative of lgamma; NaN at 0 and the negative integers."""
    wide = np.asarray(x, np.float64)
    return np.where(_is_pole(wide), np.nan, _scipy().psi(wide)).astype(x.dtype)[()]


def _is_pole(x: Array) -> Any:
    return (x <= 0) & (x == np.floor(x))


def polygamma(n: Array, x: Array) -> Any:
    """The n-th derivative of digamma, for whole n >= 0."""
    order, point = np.asarray(n, np.float64), np.asarray(x, np.float64)
    sign = np.where(order % 2 == 0, -1.0, 1.0)
    higher = sign * _scipy().gamma(order + 1.0) * _scipy().zeta(np.maximum(order, 1.0) + 1.0, point)
    value = np.where(order == 0, digamma(point), higher)
    return np.where((order < 0) | (order != np.floor(order)), np.nan, value).astype(x.dtype)[()]


# ---- the derivative of the incomplete gamma function, which scipy does not have --------------


def _in_float64(function: Callable[..., Array]) -> Callable[..., Any]:
    def wrapped(*values: Array) -> Any:
        arrays = np.broadcast_arrays(*[np.asarray(v, np.float64) for v in values])
        return function(*arrays).astype(values[0].dtype)[()]

    return wrapped


def _gamma_slope(a: Array, x: Array) -> Array:
    """dP/da: each term of the series of P times ln x - psi(a + n + 1)."""
    found = np.zeros(x.shape)
    use = (x > 0) & (a > 0) & np.isfinite(x)
    if not use.any():
        return found
    a, x = a[use], x[use]
    logarithm, psi = np.log(x), _scipy().psi(a + 1.0)
    term = np.exp(a * logarithm - x - _scipy().gammaln(a + 1.0))
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


igamma_grad_a = _in_float64(_gamma_slope)


@_in_float64
def random_gamma_grad(alpha: Array, sample: Array) -> Any:
    """d sample / d alpha of a gamma variate of rate 1 at a fixed quantile: -(dP/da) / density."""
    density = np.exp((alpha - 1.0) * np.log(sample) - sample - _scipy().gammaln(alpha))
    return -_gamma_slope(alpha, sample) / density
