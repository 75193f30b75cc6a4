"""How many elements a dataset has, where that is known without reading it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

INFINITE = -1
UNKNOWN = -2
Count = Callable[[int], int]
"""From the number of elements of a dataset to that of what is made of it."""


def finite(count: Count) -> Count:
    """``count`` for finite numbers; what has no end or is not known stays so."""
    return lambda n: n if n < 0 else count(n)


def same(n: int) -> int:
    """As many."""
    return n


def batched(size: int, drop_remainder: bool) -> Count:
    return finite(lambda n: n // size if drop_remainder else -(-n // size))


def limited(count: int) -> Count:
    """Of `take`."""
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
    """Of `zip`."""
    if UNKNOWN in counts:
        return UNKNOWN
    return min((n for n in counts if n != INFINITE), default=INFINITE)


def total(counts: Sequence[int]) -> int:
    """Of `concatenate`."""
    if INFINITE in counts:
        return INFINITE
    return UNKNOWN if UNKNOWN in counts else sum(counts)
