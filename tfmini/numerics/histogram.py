"""The histogram behind ``tf.summary.histogram``: buckets that grow by a tenth, as TensorFlow's do."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

_DBL_MAX = sys.float_info.max
_CHUNK = 1 << 15  # The number of elements counted at a time, so that the temporaries stay in cache.
_LOW_BITS = 48  # of a float64, below its sign, its exponent and four bits of its mantissa


@functools.cache
def default_limits() -> np.ndarray[Any, Any]:
    """The upper limits of the buckets: from ±1e-12 to ±1e20 in steps of 10 %, 0, and the ends of float64."""
    positive, limit = [], 1.0e-12
    while limit < 1.0e20:
        positive.append(limit)
        limit *= 1.1
    positive.append(_DBL_MAX)
    return np.array([*(-v for v in reversed(positive)), 0.0, *positive])


@functools.cache
def _first_buckets() -> np.ndarray[Any, Any]:
    """The bucket of the lowest number with given high bits; numbers with equal ones are at most 6.25 % apart.

    So such a number is in this bucket or in the next: one comparison instead of a search, whose eleven jumps a
    processor cannot predict.
    """
    bits = np.arange(1 << 64 - _LOW_BITS, dtype=np.uint64) << _LOW_BITS
    bits[len(bits) // 2 :] |= (1 << _LOW_BITS) - 1  # the lowest negative number is the one with the largest mantissa
    limits = default_limits()
    found = np.searchsorted(limits, bits.view(np.float64), side="right")
    return np.minimum(found, len(limits) - 1)


class Histogram:
    """Counts, extremes and sums of finite numbers.

    Sums run in the order of the elements, as TensorFlow's do, so that they agree to the last bit.
    """

    def __init__(self) -> None:
        self._limits = default_limits()
        self._counts = np.zeros(len(self._limits))
        self._min, self._max = _DBL_MAX, -_DBL_MAX
        self._sum = self._sum_of_squares = 0.0

    def add(self, flat: np.ndarray[Any, Any]) -> None:
        """Counts the elements of a vector of finite real numbers of any dtype."""
        for start in range(0, len(flat), _CHUNK):
            self._add_chunk(flat[start : start + _CHUNK].astype(np.float64))

    def _add_chunk(self, values: np.ndarray[Any, Any]) -> None:
        # Negative numbers have negative high bits, which index the table from its end.
        found = _first_buckets().take(values.view(np.int64) >> _LOW_BITS)
        found += values >= self._limits.take(found)
        np.minimum(found, len(self._limits) - 1, out=found)
        self._counts += np.bincount(found, minlength=len(self._limits))
        self._min = min(self._min, float(values.min()))
        self._max = max(self._max, float(values.max()))
        self._sum = _sum_in_order(self._sum, values)
        self._sum_of_squares = _sum_in_order(self._sum_of_squares, values * values)

    def write(self, proto: Any) -> None:
        """Fills a HistogramProto; each run of empty buckets becomes one."""
        proto.min, proto.max = self._min, self._max
        proto.num = float(self._counts.sum())
        proto.sum, proto.sum_squares = self._sum, self._sum_of_squares
        filled = self._counts > 0
        # A bucket is written when it has a count, or ends a run of empty ones.
        written = filled.copy()
        written[:-1] |= filled[1:]
        written[-1] = True
        proto.bucket_limit.extend(self._limits[written].tolist())
        proto.bucket.extend(self._counts[written].tolist())


def _sum_in_order(start: float, terms: np.ndarray[Any, Any]) -> float:
    """``start`` plus one term after the other: numpy adds in pairs, but it subtracts in order, in a register."""
    return 0.0 - float(np.subtract.reduce(terms, initial=-start))
