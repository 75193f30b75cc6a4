"""Quotients, products and powers of complex numbers, as in C and TensorFlow where parts are zero, infinite or NaN.

NumPy differs there: `np.reciprocal` of 0 is NaN, the sign of a zero divisor is lost, 0 ** -1 is NaN and 0 ** 0 is 1.
C's rules are those of C99, annex G.5.1, as compilers apply them to ``*`` and ``/`` of complex numbers.

TensorFlow's kernels divide whole vectors of the processor by another formula, whose 1 / 0 is NaN: there it depends on
the size of the tensor and the place in it. These functions give for every number what TensorFlow has for a single one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.core_types import Array


def divide(x: Array, y: Array) -> Any:
    """``x / y``: a number by 0 is infinite, one by infinity is 0."""
    found = np.divide(x, y)
    if _is_settled(found):
        return found
    (a, b), (c, d) = (x.real, x.imag), (y.real, y.imag)
    (e, f), (g, h) = _unit(x), _unit(y)
    lost = np.isnan(found.real) & np.isnan(found.imag)
    far = np.copysign(np.inf, c)
    cases = [y == 0, lost & np.isinf(x) & np.isfinite(y), lost & np.isinf(y) & np.isfinite(x)]
    real = [far * a, np.inf * (e * c + f * d), 0.0 * (a * g + b * h)]
    imag = [far * b, np.inf * (f * c - e * d), 0.0 * (b * g - a * h)]
    return _joined(np.select(cases, real, found.real), np.select(cases, imag, found.imag), found.dtype)


def reciprocal(x: Array) -> Any:
    """``1 / x``."""
    return divide(x.dtype.type(1), x)


def multiply(x: Array, y: Array) -> Any:
    """``x * y``: infinite if a factor is and the other is neither 0 nor NaN."""
    found = np.multiply(x, y)
    if _is_settled(found):
        return found
    (a, b), (c, d) = _directed(x, np.isinf(x)), _directed(y, np.isinf(y))
    (a, b), (c, d) = _without_nan(a, b, np.isinf(y)), _without_nan(c, d, np.isinf(x))
    lost = np.isnan(found.real) & np.isnan(found.imag) & (np.isinf(x) | np.isinf(y))
    real = np.where(lost, np.inf * (a * c - b * d), found.real)
    return _joined(real, np.where(lost, np.inf * (a * d + b * c), found.imag), found.dtype)


def power(x: Array, y: Array) -> Any:
    """``x ** y``; of 0, infinity and NaN it is exp(y * log(x)), so that 0 ** 0 is NaN."""
    found = np.power(x, y)
    odd = (x == 0) | ~(np.isfinite(x) & np.isfinite(y) & np.isfinite(found))
    return np.where(odd, np.exp(multiply(y, np.log(x))), found)[()] if np.any(odd) else found


def log1p(x: Array) -> Any:
    """log(1 + x), without adding 1 first, as numpy does, which loses the digits of what is small."""
    size = np.log1p(x.real * (2 + x.real) + x.imag * x.imag) / 2
    found = (size + 1j * np.arctan2(x.imag, 1 + x.real)).astype(x.dtype)
    if _is_settled(found):
        return found
    # TensorFlow's formula. It calls the parts NaN of which it cannot be sure.
    one = x.dtype.type(1)
    product = multiply(x, divide(np.log(x + one), (x + one) - one))
    return np.where(np.isfinite(found), found, product)[()]


def _is_settled(found: Any) -> bool:
    """Whether nothing is infinite or NaN; or the arrays are traced for a device, which has rules of its own."""
    return not isinstance(found, np.ndarray | np.generic) or bool(np.isfinite(found).all())


def _unit(x: Array) -> tuple[Any, Any]:
    """The parts, with 1 in the place of infinity and 0 in that of all others, with their signs."""
    one = x.real.dtype.type
    return np.copysign(np.isinf(x.real).astype(one), x.real), np.copysign(np.isinf(x.imag).astype(one), x.imag)


def _directed(x: Array, where: Any) -> tuple[Any, Any]:
    """The parts, of `_unit` in some places."""
    re, im = _unit(x)
    return np.where(where, re, x.real), np.where(where, im, x.imag)


def _without_nan(re: Array, im: Array, where: Any) -> tuple[Any, Any]:
    """The parts, with 0 in the place of NaN in some places."""
    re = np.where(where & np.isnan(re), np.copysign(0.0, re), re)
    return re, np.where(where & np.isnan(im), np.copysign(0.0, im), im)


def _joined(real: Array, imag: Array, dtype: Any) -> Any:
    result = np.empty(np.shape(real), dtype)
    result.real, result.imag = real, imag
    return result[()]
