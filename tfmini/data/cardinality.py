"""Cardinality of datasets: the number of elements, if it is known without reading them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfmini.export import export_names

INFINITE = -1
UNKNOWN = -2
Count = Callable[[int], int]
"""Maps the cardinality of a stage's input to that of its output."""


def finite(count: Count) -> Count:
    """Applies ``count`` to finite cardinalities; infinite and unknown ones stay as they are."""
    return lambda n: n if n < 0 else count(n)


def same(n: int) -> int:
    """The same number."""
    return n


def batched(size: int, drop_remainder: bool) -> Count:
    return finite(lambda n: n // size if drop_remainder else -(-n // size))


def limited(count: int) -> Count:
    """The cardinality after `take`."""
    if count < 0:
        return same
    return lambda n: count if n == INFINITE else n if n == UNKNOWN else min(n, count)


def skipping(count: int) -> Count:
    if count < 0:
        return lambda n: 0
    return finite(lambda n: max(0, n - count))


def sharded(shards: int, index: int) -> Count:
    return finite(lambda n: n // shards + (index < n % shards))


def repeated(count: int) -> Count:
    if count < 0:
        return lambda n: 0 if n == 0 else INFINITE
    return lambda n: 0 if count == 0 else n if n < 0 else n * count


def windows(size: int, shift: int, stride: int, drop_remainder: bool) -> Count:
    span = (size - 1) * stride + 1
    if drop_remainder:
        return finite(lambda n: max(0, (n - span) // shift + 1))
    return finite(lambda n: -(-n // shift))


def shortest(counts: Sequence[int]) -> int:
    """The cardinality of `zip`."""
    if UNKNOWN in counts:
        return UNKNOWN
    return min((n for n in counts if n != INFINITE), default=INFINITE)


def total(counts: Sequence[int]) -> int:
    """The cardinality of `concatenate`."""
    if INFINITE in counts:
        return INFINITE
    return UNKNOWN if UNKNOWN in counts else sum(counts)


export_names("tf.data.experimental", "INFINITE_CARDINALITY=INFINITE UNKNOWN_CARDINALITY=UNKNOWN")
