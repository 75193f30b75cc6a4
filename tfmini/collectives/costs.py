"""The exact cost model of the collectives: messages and bytes that each rank sends.

With S bytes, N ranks and pieces of at most `schedules.PIECE_BYTES`:

===================  =========================  ==================
collective           messages per rank          bytes per rank
===================  =========================  ==================
all-reduce, ring     2·(N−1)·pieces             2·(N−1)/N·S
all-reduce, direct   N−1                        (N−1)·S
all-reduce, shared   0, or one bell per wait    2·(N−1)/N·S
broadcast            pieces (the last's empty)  S (the last: 0)
gather               N−1                        (N−1)·S
all-to-all           N−1                        S, less its own part
reduce-scatter       N−1                        (N−1)/N·S
===================  =========================  ==================

The direct exchange is for tensors of at most `schedules.DIRECT_LIMIT`/(N−1) bytes, and for two ranks
it sends no more than the ring. In shared memory (`shared_moves`) the figure counts a byte once for each
rank that reads it, and is (N−1)·S for tensors of at most 64 KB. A parameter server instead sends and
receives S once per worker: 2·N·S pass through it in each step.
"""

from __future__ import annotations

from typing import NamedTuple

from tfmini.collectives.schedules import DIRECT_LIMIT, piece_count
from tfmini.collectives.shared_moves import SMALL_LIMIT


class Cost(NamedTuple):
    """The messages and bytes of tensor data that one rank sends (ring: ± one element per message)."""

    messages: int
    nbytes: float


def all_reduce_cost(nbytes: int, size: int) -> Cost:
    """Returns the cost of one all-reduce, per rank."""
    if size == 1:
        return Cost(0, 0.0)
    if nbytes <= DIRECT_LIMIT // (size - 1):
        return Cost(size - 1, float(nbytes * (size - 1)))
    return Cost(2 * (size - 1) * piece_count(nbytes, size), 2 * (size - 1) / size * nbytes)


def shared_all_reduce_cost(nbytes: int, size: int) -> Cost:
    """Returns the bytes that other ranks read from one rank's memory, counted once per reader; no messages."""
    if nbytes <= SMALL_LIMIT:
        return Cost(0, float(nbytes * (size - 1)))
    return Cost(0, 2 * (size - 1) / size * nbytes)
