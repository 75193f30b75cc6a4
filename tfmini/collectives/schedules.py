"""Schedules of collectives: state machines that turn received messages into messages to send.

Every schedule has the same methods: `begin` returns the first messages, `receive` handles one message
and returns the messages that follow from it, `result` is the value once `done`. A tag identifies a
message, so messages may arrive in any order.

No copies are needed: memory passed in a `Send` is overwritten only after its receiver has used it,
because the overwriting data has travelled round the ring through that receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tfmini import errors

Array = Any
Merge = Callable[..., Array]
Memory = Callable[[], tuple[Array, Array]]

MERGES: dict[str, Merge] = {"Add": np.add, "Mul": np.multiply, "Min": np.minimum, "Max": np.maximum}

# Bytes up to which every rank sends its whole tensor to every other: this saves two network delays per pair of ranks.
DIRECT_LIMIT = 64 << 10
# Limit of one message of the ring, so that the next piece is in flight while one is being added.
PIECE_BYTES = 4 << 20
# Pieces of its own chunk that a rank sends before it has received any; bounds the memory of a slow rank.
PIECES_AHEAD = 4

_ONE_SOURCE = "Exactly one rank must be its source."


class Send(NamedTuple):
    """An instruction: send these elements to a rank."""

    rank: int
    tag: int
    values: Array


class Schedule(Protocol):
    """The state machine of one rank in one collective; see the module. `receive` raises ValueError on a conflict.

    `missing` returns the ranks whose messages this rank waits for.

    Attributes:
      done: the result is complete and all messages have been returned.
    """

    done: bool

    def begin(self) -> list[Send]: ...
    def receive(self, sender: int, tag: int, values: Array) -> list[Send]: ...
    def result(self) -> Array: ...
    def missing(self) -> list[int]: ...


def divide(total: Array, size: int, out: Array | None = None) -> Array:
    """Computes the final operation ``Div``; integer division rounds towards zero, as in C.

    Args:
      out: the array for the result, possibly ``total`` itself.
    """
    if total.dtype.kind in "iu":
        return np.floor_divide(total - np.fmod(total, size), size, out=out, dtype=total.dtype)
    if size & (size - 1):
        return np.divide(total, total.dtype.type(size), out=out)
    return np.multiply(total, total.dtype.type(1 / size), out=out)  # the same value, and faster


class _AllToAll:
    """Base of the schedules in which every rank sends its whole tensor to every other rank."""

    def __init__(self, rank: int, size: int, value: Array) -> None:
        self._rank, self._size = rank, size
        self._values: list[Array] = [None] * size
        self._values[rank] = value
        self._left = size - 1
        self.done = size == 1

    def begin(self) -> list[Send]:
        # The next rank first, so that no two ranks begin with the same receiver.
        receivers = [(self._rank + i) % self._size for i in range(1, self._size)]
        return [Send(r, 0, self._values[self._rank]) for r in receivers]

    def receive(self, sender: int, tag: int, values: Array) -> list[Send]:
        if self._values[sender] is None:
            self._values[sender] = values
            self._left -= 1
            self.done = self._left == 0
        return []

    def missing(self) -> list[int]:
        return [r for r, value in enumerate(self._values) if value is None]


class DirectReduce(_AllToAll):
    """All-reduce of a small tensor: every rank sends its tensor to every other, and adds them in the order of ranks."""

    def __init__(self, rank: int, size: int, value: Array, merge: str, final: str) -> None:
        super().__init__(rank, size, np.ascontiguousarray(value).reshape(-1))
        self._merge, self._final, self._shape = MERGES[merge], final, value.shape

    def result(self) -> Array:
        total = self._values[0].copy()
        for value in self._values[1:]:
            self._merge(total, value, out=total)
        if self._final == "Div":
            divide(total, self._size, out=total)
        return total.reshape(self._shape)


class RingReduce:
    """All-reduce in a ring: a reduce-scatter, then an all-gather, of one N-th of the tensor per message.

    Rank r sends to r + 1. The tensor is divided into N chunks, and each chunk into ``pieces``, one per message.
    In the first phase, chunk c starts at rank c and accumulates the other ranks' parts until it is complete
    at rank c - 1. In the second phase it goes round the ring once more. Each rank sends 2·(N−1)/N of the tensor.

    Args:
      memory: returns one-dimensional memory of the value's size and dtype for the result, and the view of it to send
        and return. It is called when the first message arrives: until the ranks have begun, the last messages of the
        run before may still be queued, and their memory is that of its result. So one of these is enough, not two.
    """

    def __init__(
        self, rank: int, size: int, value: Array, merge: str, final: str, pieces: int | None = None,
        memory: Memory | None = None,
    ) -> None:  # fmt: skip
        self._rank, self._size, self._merge, self._final = rank, size, MERGES[merge], final
        self._shape = value.shape
        self._mine = np.ascontiguousarray(value).reshape(-1)
        self._out: Array = None
        self._view: Array = None
        self._memory = memory or (lambda: (np.empty_like(self._mine),) * 2)
        self._pieces = pieces or piece_count(self._mine.nbytes, size)
        self._left = 2 * (size - 1) * self._pieces
        self._begun = min(self._pieces, PIECES_AHEAD)
        self._next = (rank + 1) % size
        self.done = self._left == 0
        if self.done:
            self._out, self._view = self._memory()
            self._out[...] = self._mine  # the mean of one value is the value

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
        if self._out is None:
            self._out, self._view = self._memory()
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
        return Send(self._next, step * self._pieces + piece, self._view[span])

    def missing(self) -> list[int]:
        return [] if self.done else [(self._rank - 1) % self._size]

    def result(self) -> Array:
        return self._view.reshape(self._shape)


class Broadcast:
    """Broadcast of one rank's tensor: it goes round the ring in pieces, so each rank sends it once at most.

    The other ranks do not know the source: a tag counts the hops. The last rank acknowledges each piece to the
    source. The source thus keeps few pieces in flight and is done only when all ranks have everything. If there are
    two sources, one receives the other's piece, and `receive` raises. A roll-call detects that there is no source:
    rank 0, unless it is the source, sends an empty message round the ring, which the source does not forward.

    Args:
      value: the tensor at the source; None at the other ranks.
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

    def _forward(self, piece: int, hop: int) -> list[Send]:
        span = self._span(piece) if hop < self._size - 1 else slice(0, 0)  # the source has it
        return [self._to_next(hop * self._pieces + piece, self._value[span])]

    def _next_piece(self) -> list[Send]:
        if self._begun == self._pieces:
            return []
        self._begun += 1
        return self._forward(self._begun - 1, 0)

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
                raise ValueError(f"All {self._size} ranks wait in a broadcast without a source. {_ONE_SOURCE}")
            return [] if self._is_source else [self._to_next(tag, values)]
        if self._is_source and hop < self._size - 1:
            other = (self._rank - 1 - hop) % self._size
            raise ValueError(f"Ranks {self._rank} and {other} are both the source of one broadcast. {_ONE_SOURCE}")
        self._left -= 1
        self.done = self._left == 0
        if self._is_source:
            return self._next_piece()
        self._value[self._span(piece)] = values
        return self._forward(piece, hop + 1)

    def missing(self) -> list[int]:
        return [] if self.done else [(self._rank - 1) % self._size]

    def result(self) -> Array:
        return self._value.reshape(self._shape)


class Gather(_AllToAll):
    """All-gather: concatenates all ranks' tensors along the first dimension, in which they may differ.

    Every rank sends its tensor to every other, (N−1) times its size; a ring would send as much.
    ``order`` lists the ranks in the order of concatenation, default 0 to N−1.
    """

    def __init__(self, rank: int, size: int, value: Array, order: Sequence[int] | None = None) -> None:
        super().__init__(rank, size, np.ascontiguousarray(value))
        self._order = order or range(size)

    def result(self) -> Array:
        return np.concatenate([self._values[r] for r in self._order])


def piece_count(nbytes: int, size: int) -> int:
    """Returns the number of pieces of each of the ring's N chunks."""
    return max(1, -(-nbytes // (size * PIECE_BYTES)))


def all_reduce(
    rank: int, size: int, value: Array, merge: str, final: str, pieces: int = 1,
    memory: Memory | None = None,
) -> Schedule:  # fmt: skip
    """Returns the schedule of an all-reduce: direct for small tensors, otherwise the ring.

    Args:
      merge: ``Add``, ``Mul``, ``Min`` or ``Max``.
      final: ``Id``, or ``Div`` to divide by the number of ranks.
      pieces: the minimum number of pieces of each chunk.
      memory: see `RingReduce`.
    """
    if value.nbytes <= DIRECT_LIMIT // max(1, size - 1) or size == 1:
        return DirectReduce(rank, size, value, merge, final)
    return RingReduce(rank, size, value, merge, final, max(pieces, piece_count(value.nbytes, size)), memory)


# ---- scatters ----------------------------------------
# Schedules in which a rank sends a different part of its tensor to each rank: all-to-all and reduce-scatter.
# Each part goes straight to its receiver, so a rank sends (N−1)/N of its tensor, as little as a ring would.


class Scatter:
    """Base of the schedules: sends one part to each rank and keeps those that come.

    Args:
      parts: this rank's parts, one for each position in ``order``.
      order: the ranks in the order of the parts and of the results, default 0 to N−1.
    """

    def __init__(self, rank: int, size: int, parts: list[Array], order: Sequence[int] | None = None) -> None:
        self._rank, self._size = rank, size
        self._order = list(order or range(size))
        self._for = dict(zip(self._order, parts))
        self._values: list[Array] = [None] * size
        self._values[rank] = self._for[rank]
        self._left = size - 1
        self.done = size == 1

    def begin(self) -> list[Send]:
        # The next rank first, so that no two ranks begin with the same receiver.
        receivers = [(self._rank + i) % self._size for i in range(1, self._size)]
        return [Send(r, 0, self._for[r]) for r in receivers]

    def receive(self, sender: int, tag: int, values: Array) -> list[Send]:
        if self._values[sender] is None:
            self._check(values)
            self._values[sender] = values
            self._left -= 1
            self.done = self._left == 0
        return []

    def _check(self, values: Array) -> None:
        """Raises ValueError for a part that does not fit."""

    def missing(self) -> list[int]:
        return [r for r, value in enumerate(self._values) if value is None]

    def _received(self) -> list[Array]:
        return [self._values[r] for r in self._order]


class AllToAll(Scatter):
    """All-to-all: scatters the rows of every rank's tensor to the ranks, and concatenates what comes.

    The result is (the rows of all ranks for this one in their order, how many came from each).

    Args:
      value: of at least one dimension; all but the first are the same on all ranks.
      splits: how many rows go to each position in ``order``; no rank gets the rows behind their sum.
    """

    def __init__(
        self, rank: int, size: int, value: Array, splits: Sequence[int], order: Sequence[int] | None = None
    ) -> None:
        *ends, rows = np.cumsum(splits)
        super().__init__(rank, size, np.split(np.ascontiguousarray(value)[:rows], ends), order)

    def _check(self, values: Array) -> None:
        own = self._values[self._rank]
        if values.shape[1:] != own.shape[1:]:
            raise ValueError(f"rows of shape {list(values.shape[1:])} came, and this rank has {list(own.shape[1:])}")

    def result(self) -> tuple[Array, Array]:
        parts = self._received()
        return np.concatenate(parts), np.array([len(part) for part in parts], np.int32)


class ReduceScatter(Scatter):
    """Reduce-scatter: reduces a tensor of the same shape on all ranks, and leaves each rank some rows of the result.

    If the rows cannot be divided evenly, the first ranks in ``order`` have one more (see `rows_of`). The parts of the
    ranks are merged in the order of the ranks.

    Args:
      merge, final: as in `schedules.all_reduce`.
    """

    def __init__(
        self, rank: int, size: int, value: Array, merge: str, final: str, order: Sequence[int] | None = None
    ) -> None:
        bounds = [rows_of(i, size, len(value)) for i in range(size)]
        super().__init__(rank, size, [np.ascontiguousarray(value[low:high]) for low, high in bounds], order)
        self._merge, self._final = MERGES[merge], final

    def _check(self, values: Array) -> None:
        own = self._values[self._rank]
        if values.shape != own.shape:
            raise ValueError(f"a part of shape {list(values.shape)} came, and this rank reduces {list(own.shape)}")

    def result(self) -> Array:
        first, *others = self._received()
        total = np.array(first)  # the parts may be read-only
        for value in others:
            self._merge(total, value, out=total)
        return divide(total, self._size, out=total) if self._final == "Div" else total


def rows_of(position: int, size: int, rows: int) -> tuple[int, int]:
    """Returns the first row of a position in a reduce-scatter, and the row behind its last."""
    each, more = divmod(rows, size)
    low = position * each + min(position, more)
    return low, low + each + (position < more)


# ---- fingerprints ----------------------------------------
# Fingerprints: descriptions of an exchange that ranks compare, to detect that they run different collectives.


class Fingerprint(NamedTuple):
    """A rank's description of an exchange.

    Attributes:
      name: the name by which the ranks find each other; "" where keys count their collectives.
      shape, dtype, op: as text; ``shape`` has "?" for dimensions that may differ.
      step: the number of this member's step in the group, from 1; 0 if it is not compared: the collective has a name,
        or steps overlap.
    """

    name: str
    shape: str
    dtype: str
    op: str
    step: int

    def pack(self) -> str:
        """Returns it as one field of a message."""
        return "|".join(map(str, self))

    @classmethod
    def unpack(cls, text: str) -> Fingerprint:
        """The inverse of `pack`; a name may contain bars."""
        name, shape, dtype, op, step = text.rsplit("|", 4)
        return cls(name, shape, dtype, op, int(step))

    def without_step(self) -> str:
        """Returns everything except the step as text, the name last."""
        return f"{self.shape}|{self.dtype}|{self.op}|{self.name}"

    @classmethod
    def with_step(cls, text: str, step: int) -> Fingerprint:
        """The inverse of `without_step`."""
        shape, dtype, op, name = text.split("|", 3)
        return cls(name, shape, dtype, op, step)

    def __str__(self) -> str:
        name = f'"{self.name}" ' if self.name else ""
        return f"{name}{self.op} {self.dtype}{self.shape}{f' in step {self.step}' if self.step else ''}"


def mismatch(mine: Fingerprint, me: str, theirs: Fingerprint, them: str) -> errors.OpError | None:
    """Returns the error for two ranks whose fingerprints of one exchange differ, or None if they agree."""
    if mine == theirs:
        return None
    both = f"{me} has {mine}; {them} has {theirs}."
    if mine.name and theirs.name and mine.name != theirs.name:
        remedy = "Give tensors that belong together the same name on all ranks."
        return errors.FailedPreconditionError.of(f"Name mismatch in a collective: {both} {remedy}")
    for aspect in ("op", "dtype", "shape"):
        if getattr(mine, aspect) != getattr(theirs, aspect):
            return errors.FailedPreconditionError.of(f"{aspect.title()} mismatch in a collective: {both}")
    if mine.step and theirs.step and mine.step != theirs.step:
        behind = them if theirs.step > mine.step else me
        return errors.FailedPreconditionError.of(
            f"Collective call skipped: {behind} left one out in an earlier step. {both} Every rank must run the same "
            "collectives in every step."
        )
    return None


def skipped(mine: str, me: str, theirs: str, them: str) -> errors.OpError:
    """Returns the error for two ranks that wait for each other in different exchanges."""
    return errors.FailedPreconditionError.of(
        f"Collective call skipped: {me} waits in {mine}, which {them} has not called, and {them} waits in {theirs}, "
        f"which needs {me}. Every rank must run the same collectives, and those that depend on each other in one order."
    )
