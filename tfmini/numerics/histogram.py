"""The histogram behind ``tf.summary.histogram``: buckets that grow by a tenth, as TensorFlow's do."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

_DBL_MAX = sys.float_info.max
_CHUNK = 1 << 15  # The number of elements counted at a time, so that the temporaries stay in cache.


@functools.cache
def default_limits() -> np.ndarray[Any, Any]:
    """The upper limits of the buckets: from ±1e-12 to ±1e20 in steps of 10 %, 0, and the ends of float64."""
    positive, limit = [], 1.0e-12
    while limit < 1.0e20:
        positive.append(limit)
        limit *= 1.1
    positive.append(_DBL_MAX)
    return np.array([*(-v for v in reversed(positive)), 0.0, *positive])


class Histogram:
    """Counts, extremes and sums of finite numbers.

    Sums run in the order of the elements, as TensorFlow's do, so that they agree to the last bit.
    """

    def __init__(self) -> None:
        self._limits = default_limits()
        self._counts = np.zeros(len(self._limits))
        self._min, self._max = _DBL_MAX, -_DBL_MAX
        self._sums = np.zeros(2)  # of the values, of their squares

    def add(self, flat: np.ndarray[Any, Any]) -> None:
        """Counts the elements of a vector of finite real numbers of any dtype."""
        for start in range(0, len(flat), _CHUNK):
            self._add_chunk(flat[start : start + _CHUNK].astype(np.float64))

    def _add_chunk(self, values: np.ndarray[Any, Any]) -> None:
        found = np.searchsorted(self._limits, values, side="right")
        np.minimum(found, len(self._limits) - 1, out=found)
        self._counts += np.bincount(found, minlength=len(self._limits))
        self._min = min(self._min, float(values.min()))
        self._max = max(self._max, float(values.max()))
        for i, terms in enumerate((values, values * values)):
            terms[0] += self._sums[i]
            self._sums[i] = np.add.accumulate(terms)[-1]

    def write(self, proto: Any) -> None:
        """Fills a HistogramProto; each run of empty buckets becomes one."""
        proto.min, proto.max = self._min, self._max
        proto.num = float(self._counts.sum())
        proto.sum, proto.sum_squares = self._sums.tolist()
        filled = self._counts > 0
        # A bucket is written when it has a count, or ends a run of empty ones.
        written = filled.copy()
        written[:-1] |= filled[1:]
        written[-1] = True
        proto.bucket_limit.extend(self._limits[written].tolist())
        proto.bucket.extend(self._counts[written].tolist())
