"""Cardinality of datasets: the number of elements, if it is known without reading them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfmini.export import export_names

INFINITE = -1
UNKNOWN = -2
Count = Callable[[int], int]
"""Maps the cardinality of a stage's input to that of its output."""


def finite(count: Count) -> Count:
    """Applies ``count`` to finite cardinalities; infinite and unknown ones stay as they are."""
    return lambda n: n if n < 0 else count(n)


def unknown(**arguments: Any) -> Count:
    """Any number of elements."""
    return lambda n: UNKNOWN


def unchanged(**arguments: Any) -> Count:
    """The number of elements that is read."""
    return lambda n: n


# Each of these takes the arguments of a stage by the names of its op's inputs.


def batched(batch_size: int, drop_remainder: bool, **others: Any) -> Count:
    return finite(lambda n: n // batch_size if drop_remainder else -(-n // batch_size))


def limited(count: int) -> Count:
    """The cardinality after `take`."""
    if count < 0:
        return unchanged()
    return lambda n: count if n == INFINITE else n if n == UNKNOWN else min(n, count)


def skipping(count: int) -> Count:
    if count < 0:
        return lambda n: 0
    return finite(lambda n: max(0, n - count))


def sharded(num_shards: int, index: int) -> Count:
    return finite(lambda n: n // num_shards + (index < n % num_shards))


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
