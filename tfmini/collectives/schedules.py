"""How N ranks make one result out of their tensors: events in, messages to send out.

Every schedule has the same three methods: `begin` gives the first messages, `receive` takes in
one and gives those that follow from it, `result` is the value once `done`. A message is known by
its tag, so messages may come in any order.

Safe without copies: memory that was handed out in a `Send` is written again only after its
receiver has used it, because what is written has come round the ring through that receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

Array = Any
Merge = Callable[..., Array]

MERGES: dict[str, Merge] = {"Add": np.add, "Mul": np.multiply, "Min": np.minimum, "Max": np.maximum}

# Up to so many bytes all ranks send everything to all: two network delays fewer per pair of ranks.
DIRECT_LIMIT = 64 << 10
# The most that one message of the ring carries: while one piece is added, the next is on its way.
PIECE_BYTES = 4 << 20
# So many pieces of its own chunk a rank sends before it has seen any: what a slow rank has to keep.
PIECES_AHEAD = 4


_ONE_SOURCE = "Exactly one rank must be its source."


class Send(NamedTuple):
    """An instruction: send these elements to a rank."""

    rank: int
    tag: int
    values: Array


class Schedule(Protocol):
    """See the module. `receive` raises ValueError for what contradicts its own part.

    Attributes:
      done: the result is complete and everything has been handed out.
    """

    done: bool

    def begin(self) -> list[Send]: ...
    def receive(self, sender: int, tag: int, values: Array) -> list[Send]: ...
    def result(self) -> Array: ...
    def missing(self) -> list[int]: ...


def divide(total: Array, size: int, out: Array | None = None) -> Array:
    """The final operation ``Div``: integers as in C, rounded towards zero.

    Args:
      out: where to, possibly ``total`` itself.
    """
    if total.dtype.kind in "iu":
        return np.floor_divide(total - np.fmod(total, size), size, out=out, dtype=total.dtype)
    if size & (size - 1):
        return np.divide(total, total.dtype.type(size), out=out)
    return np.multiply(total, total.dtype.type(1 / size), out=out)  # the same value, and faster


class DirectReduce:
    """All-reduce of a small tensor: every rank sends all of it to every other; sums in the order of ranks."""

    def __init__(self, rank: int, size: int, value: Array, merge: str, final: str) -> None:
        self._rank, self._size, self._merge, self._final = rank, size, MERGES[merge], final
        self._shape = value.shape
        self._values: list[Array] = [None] * size
        self._values[rank] = np.ascontiguousarray(value).reshape(-1)
        self._left = size - 1
        self.done = size == 1

    def begin(self) -> list[Send]:
        return [Send(r, 0, self._values[self._rank]) for r in _others(self._rank, self._size)]

    def receive(self, sender: int, tag: int, values: Array) -> list[Send]:
        if self._values[sender] is None:
            self._values[sender] = values
            self._left -= 1
            self.done = self._left == 0
        return []

    def missing(self) -> list[int]:
        return [r for r, value in enumerate(self._values) if value is None]

    def result(self) -> Array:
        total = self._values[0].copy()
        for value in self._values[1:]:
            self._merge(total, value, out=total)
        if self._final == "Div":
            divide(total, self._size, out=total)
        return total.reshape(self._shape)


class RingReduce:
    """All-reduce round a ring: a reduce-scatter, then an all-gather, of one N-th of the tensor per message.

    Rank r sends to r + 1. The tensor is cut into N chunks, each into ``pieces`` that travel on their own.
    In the first phase chunk c starts at rank c and gathers the other ranks' parts until it is complete
    at rank c - 1; in the second it goes round once more. Each rank thus sends 2·(N−1)/N of the tensor.

    Args:
      out: of the value's size and dtype, one-dimensional, for the result, and what to hand out of it.
    """

    def __init__(
        self, rank: int, size: int, value: Array, merge: str, final: str, pieces: int | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> None:  # fmt: skip
        self._rank, self._size, self._merge, self._final = rank, size, MERGES[merge], final
        self._shape = value.shape
        self._mine = np.ascontiguousarray(value).reshape(-1)
        self._out: Array
        self._face: Array
        self._out, self._face = out or (np.empty_like(self._mine),) * 2
        self._pieces = pieces or piece_count(self._mine.nbytes, size)
        self._left = 2 * (size - 1) * self._pieces
        self._begun = min(self._pieces, PIECES_AHEAD)
        self._next = (rank + 1) % size
        self.done = self._left == 0
        if self.done:
            self._out[...] = self._mine  # a mean of one is the value

    def _span(self, chunk: int, piece: int) -> slice:
        total = self._mine.size
        low, high = total * chunk // self._size, total * (chunk + 1) // self._size
        width = high - low
        return slice(low + width * piece // self._pieces, low + width * (piece + 1) // self._pieces)

    def begin(self) -> list[Send]:
        if self.done:
            return []
        return [self._own_piece(piece) for piece in range(self._begun)]

    def _own_piece(self, piece: int) -> Send:
        return Send(self._next, piece, self._mine[self._span(self._rank, piece)])

    def receive(self, sender: int, tag: int, values: Array) -> list[Send]:
        step, piece = divmod(tag, self._pieces)
        self._left -= 1
        self.done = self._left == 0
        last = self._size - 1
        if step < last:
            sends = self._reduce(step, piece, values)
            if step == 0 and self._begun < self._pieces:
                sends.append(self._own_piece(self._begun))
                self._begun += 1
            return sends
        span = self._span((self._rank - (step - last)) % self._size, piece)
        self._out[span] = values
        return [self._forward(step + 1, piece, span)] if step < 2 * last - 1 else []

    def _reduce(self, step: int, piece: int, values: Array) -> list[Send]:
        span = self._span((self._rank - step - 1) % self._size, piece)
        out = self._out[span]
        self._merge(values, self._mine[span], out=out)
        if step == self._size - 2 and self._final == "Div":
            divide(out, self._size, out=out)
        return [self._forward(step + 1, piece, span)]

    def _forward(self, step: int, piece: int, span: slice) -> Send:
        return Send(self._next, step * self._pieces + piece, self._face[span])

    def missing(self) -> list[int]:
        return [] if self.done else [(self._rank - 1) % self._size]

    def result(self) -> Array:
        return self._face.reshape(self._shape)


class Broadcast:
    """One rank's tensor for all. It goes round the ring in pieces, so that each rank sends it once at most.

    Nobody needs to know the source: a tag counts the hops. The last rank acknowledges each piece to the source,
    which thus keeps few of them on their way, and is not done before all ranks have everything. So two sources
    meet, and `receive` raises. That there is none at all is found by a roll-call: rank 0, unless it is the source,
    sends an empty message round the ring, which the source does not pass on.

    Args:
      value: what the source sends; None elsewhere.
    """

    def __init__(self, rank: int, size: int, value: Array, shape: tuple[int, ...], dtype: Any) -> None:
        self._rank, self._size = rank, size
        self._shape = shape
        count = int(np.prod(shape, dtype=np.int64))
        self._pieces = max(1, -(-count * np.dtype(dtype).itemsize // PIECE_BYTES))
        self._is_source = value is not None
        self._value = np.empty(count, dtype) if value is None else np.ascontiguousarray(value).reshape(-1)
        self._begun = 0
        self._left = self._pieces if size > 1 or not self._is_source else 0
        self._roll_call = size * self._pieces  # its tag
        self.done = self._left == 0

    def _to_next(self, tag: int, values: Array) -> Send:
        return Send((self._rank + 1) % self._size, tag, values)

    def _span(self, piece: int) -> slice:
        total = self._value.size
        return slice(total * piece // self._pieces, total * (piece + 1) // self._pieces)

    def _pass_on(self, piece: int, hop: int) -> list[Send]:
        span = self._span(piece) if hop < self._size - 1 else slice(0, 0)  # the source has it
        return [self._to_next(hop * self._pieces + piece, self._value[span])]

    def _next_piece(self) -> list[Send]:
        if self._begun == self._pieces:
            return []
        self._begun += 1
        return self._pass_on(self._begun - 1, 0)

    def begin(self) -> list[Send]:
        if self.done:
            return []
        if self._is_source:
            return [send for _ in range(PIECES_AHEAD) for send in self._next_piece()]
        return [self._to_next(self._roll_call, self._value[:0])] if self._rank == 0 else []

    def receive(self, sender: int, tag: int, values: Array) -> list[Send]:
        hop, piece = divmod(tag, self._pieces)
        if tag == self._roll_call:
            if self._rank == 0 and not self._is_source:
                raise ValueError(f"All {self._size} ranks wait in a broadcast that nobody sends. {_ONE_SOURCE}")
            return [] if self._is_source else [self._to_next(tag, values)]
        if self._is_source and hop < self._size - 1:
            other = (self._rank - 1 - hop) % self._size
            raise ValueError(f"Rank {self._rank} and rank {other} both send in one broadcast. {_ONE_SOURCE}")
        self._left -= 1
        self.done = self._left == 0
        if self._is_source:
            return self._next_piece()
        self._value[self._span(piece)] = values
        return self._pass_on(piece, hop + 1)

    def missing(self) -> list[int]:
        return [] if self.done else [(self._rank - 1) % self._size]

    def result(self) -> Array:
        return self._value.reshape(self._shape)


class Gather:
    """All tensors, one after the other along the first dimension, for all; they may differ in that dimension.

    Every rank sends its tensor to every other, which is what a ring would carry as well: (N−1) times its size.
    ``order`` lists the ranks as their tensors are to be joined, default: as they are.
    """

    def __init__(self, rank: int, size: int, value: Array, order: Sequence[int] | None = None) -> None:
        self._rank, self._size, self._order = rank, size, order or range(size)
        self._values: list[Array] = [None] * size
        self._values[rank] = np.ascontiguousarray(value)
        self._left = size - 1
        self.done = size == 1

    def begin(self) -> list[Send]:
        return [Send(r, 0, self._values[self._rank]) for r in _others(self._rank, self._size)]

    def receive(self, sender: int, tag: int, values: Array) -> list[Send]:
        if self._values[sender] is None:
            self._values[sender] = values
            self._left -= 1
            self.done = self._left == 0
        return []

    def missing(self) -> list[int]:
        return [r for r, value in enumerate(self._values) if value is None]

    def result(self) -> Array:
        return np.concatenate([self._values[r] for r in self._order])


def _others(rank: int, size: int) -> list[int]:
    # The next one first, so that no two ranks begin with the same receiver.
    return [(rank + i) % size for i in range(1, size)]


def piece_count(nbytes: int, size: int) -> int:
    """Into how many pieces the ring cuts each of its N chunks."""
    return max(1, -(-nbytes // (size * PIECE_BYTES)))


def all_reduce(
    rank: int, size: int, value: Array, merge: str, final: str, pieces: int = 1,
    out: tuple[Array, Array] | None = None,
) -> Schedule:  # fmt: skip
    """The schedule of an all-reduce: direct for small tensors, else the ring.

    Args:
      merge: ``Add``, ``Mul``, ``Min`` or ``Max``.
      final: ``Id``, or ``Div`` to divide by the number of ranks.
      pieces: cut each chunk into so many at least.
      out: see `RingReduce`.
    """
    if value.nbytes <= DIRECT_LIMIT // max(1, size - 1) or size == 1:
        return DirectReduce(rank, size, value, merge, final)
    return RingReduce(rank, size, value, merge, final, max(pieces, piece_count(value.nbytes, size)), out)
