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
it sends no more than the ring. In shared memory (`shared_reduce`) the figure counts a byte once for each
rank that reads it, and is (N−1)·S for tensors of at most 64 KB. A parameter server instead sends and
receives S once per worker: 2·N·S pass through it in each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tfmini.collectives.schedules import DIRECT_LIMIT, piece_count
from tfmini.collectives.shared_reduce import SMALL_LIMIT


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


class Flow(NamedTuple):
    """What one rank sends to another in a collective. ``nbytes`` is None where the tensor's size is unknown."""

    source: int
    target: int
    nbytes: int | None
    messages: int


def flows(kind: str, nbytes: int | None, size: int, root: int = 0) -> Iterator[Flow]:
    """Yields what the ranks of one collective send over tcp: a ring, the chain of a broadcast, or all to all.

    Args:
      kind: the trait "collective" of the op: ``all-reduce``, ``broadcast``, ``gather``, ``all-to-all``,
        ``reduce-scatter``.
      nbytes: of the tensor of one rank; of an all-to-all with splits, each part counts as the mean.
      root: the rank that broadcasts.
    """
    if kind == "broadcast":
        yield from _broadcast(nbytes, size, root)
        return
    if is_ring(kind, nbytes, size):
        cost = all_reduce_cost(nbytes, size) if nbytes is not None else Cost(2 * (size - 1), 0.0)
        each = None if nbytes is None else round(cost.nbytes)
        for rank in range(size):
            yield Flow(rank, (rank + 1) % size, each, cost.messages)
        return
    if nbytes is not None and kind in ("all-to-all", "reduce-scatter"):
        nbytes = round(nbytes / size)
    for source in range(size):
        for target in range(size):
            if source != target:
                yield Flow(source, target, nbytes, 1)


def _broadcast(nbytes: int | None, size: int, root: int) -> Iterator[Flow]:
    """The pieces go from rank to rank, and the last rank acknowledges each of them to the root.

    If the root is another rank than 0, a roll-call goes from rank 0 to the root before.
    """
    pieces = 1 if nbytes is None else piece_count(nbytes, 1)
    for hop in range(size if size > 1 else 0):
        rank = (root + hop) % size
        yield Flow(rank, (rank + 1) % size, nbytes if hop < size - 1 else 0, pieces + (rank < root))


def is_ring(kind: str, nbytes: int | None, size: int) -> bool:
    """Whether a collective goes round a ring."""
    return kind == "all-reduce" and size > 1 and (nbytes is None or nbytes > DIRECT_LIMIT // (size - 1))


def serial_steps(kind: str, nbytes: int | None, size: int) -> int:
    """How many messages follow each other before a collective can end: the latencies that it waits for."""
    if is_ring(kind, nbytes, size):
        return 2 * (size - 1)
    return size - 1 if kind == "broadcast" else min(1, size - 1)


def shared_all_reduce_cost(nbytes: int, size: int) -> Cost:
    """Returns the bytes that other ranks read from one rank's memory, counted once per reader; no messages."""
    if nbytes <= SMALL_LIMIT:
        return Cost(0, float(nbytes * (size - 1)))
    return Cost(0, 2 * (size - 1) / size * nbytes)
