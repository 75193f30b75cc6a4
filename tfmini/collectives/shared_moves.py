"""The ways in which ranks that share memory add up a tensor: what each does, in which order, and after whom.

* `SmallMoves`: a small tensor is laid out whole, and added up by all.
* `PullMoves`: where processes may read each other's memory, a rank lays out only *where* its tensor is. Each adds
  up its own N-th of all ranks' tensors, and then reads the others' sums.
* `WindowMoves`: elsewhere the tensor goes in *windows*. In each, every rank lays out what the others are to add up,
  adds up its own N-th of all ranks' parts and lays out the sum, and copies the others' sums. Writing runs ahead of
  adding, and adding of copying, so that a rank that was held up does not hold up the others at once.

Of a tensor that is not small, each rank thus passes 2·(N−1)/N to others, as in the ring, but in two exchanges
instead of 2·(N−1). What is added up is added in the order of the ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfmini.collectives.schedules import MERGES, divide
from tfmini.collectives.stages import COPIED, HEAD_BYTES, REDUCED, RESULT_AT, VALUE_AT, WINDOW_BITS, WROTE, Stage

SMALL_LIMIT = 64 << 10  # bytes; up to here all ranks add up the whole
WINDOW_BYTES = 1 << 20  # of the tensor; smaller ones wake the others more often
SLOTS = 4  # windows that a stage holds
PULL_FROM = 1 << 20  # bytes per rank; below, waiting for all at the end costs more than copying once more
PIECE_BYTES = 512 << 10  # what is read at a time to be added: it stays in the processor's cache
_WRITE_AHEAD, _REDUCE_AHEAD = 2, 1

Array = Any
Read = Callable[[int, int, Array], bool]
"""Reads from (rank, address) into an array; False: that rank's memory is there no more."""


class Move(NamedTuple):
    """One thing to do.

    Attributes:
      run: does it, for a window; False: another rank has left meanwhile.
      word, mark: what all others must have reached before.
      raises, to: what the own stage says after it.
    """

    run: Callable[[int], bool]
    window: int
    word: int
    mark: int
    raises: int
    to: int


class Moves:
    """What one rank does in one exchange.

    Args:
      stages: of all ranks, None where one is not known yet; the list is filled by its owner.
      count: which exchange of these stages it is, from 0.
      value: contiguous.
      merge, final: as in `schedules.all_reduce`.
      out: of the value's size and dtype, one-dimensional, for the result.
      follows: the exchange before was of this class, too.
      read: for `PullMoves`.

    Attributes:
      plan: in order.
      unread: the rank whose memory could not be read; -1: none.
      sent_bytes: how much of the tensor others take from this rank, once for each who takes it.
    """

    def __init__(
        self, rank: int, stages: list[Stage | None], count: int, value: Array, merge: str, final: str, out: Array,
        follows: bool = False, read: Read | None = None,
    ) -> None:  # fmt: skip
        self.rank, self.size, self.count = rank, len(stages), count
        self.stages = stages
        self._merge, self._final = MERGES[merge], final
        self._mine, self._out = value.reshape(-1), out
        self._read = read
        self._base = count << WINDOW_BITS
        own = stages[rank]
        assert own is not None
        self.own = own
        self.others = [(rank + i) % self.size for i in range(1, self.size)]
        self.unread = -1
        self.plan = self._plan(follows)
        self.sent_bytes = self._sent_bytes()

    @staticmethod
    def stage_bytes(nbytes: int) -> int:
        """How large the stage for a tensor must be."""
        raise NotImplementedError

    def _plan(self, follows: bool) -> list[Move]:
        raise NotImplementedError

    def _sent_bytes(self) -> int:
        raise NotImplementedError

    def _stage(self, rank: int) -> Stage:
        stage = self.stages[rank]
        assert stage is not None
        return stage

    def _share(self, rank: int, width: int) -> tuple[int, int]:
        """The elements of so many that a rank adds up."""
        return width * rank // self.size, width * (rank + 1) // self.size

    def _finish(self, total: Array) -> None:
        if self._final == "Div":
            divide(total, self.size, out=total)

    def _add_up(self, parts: list[Array], out: Array) -> None:
        self._merge(parts[0], parts[1], out=out)
        for part in parts[2:]:
            self._merge(out, part, out=out)
        self._finish(out)


class SmallMoves(Moves):
    """See the module. A stage has room for two exchanges: who is through may go on to the next at once."""

    @staticmethod
    def stage_bytes(nbytes: int) -> int:
        return HEAD_BYTES + 2 * (nbytes + (-nbytes & 63))

    def _plan(self, follows: bool) -> list[Move]:
        before = (self.count - 1 if follows else self.count) << WINDOW_BITS
        return [
            Move(self._write, 0, COPIED, before, WROTE, self._base + 1),
            Move(self._reduce, 0, WROTE, self._base + 1, COPIED, self._base + (1 << WINDOW_BITS)),
        ]

    def _sent_bytes(self) -> int:
        return int(self._mine.nbytes) * (self.size - 1)

    def _side(self, rank: int) -> Array:
        data = self._stage(rank).data
        at = (self.count & 1) * (len(data) // 2 & ~63)
        return data[at : at + self._mine.nbytes].view(self._mine.dtype)

    def _write(self, window: int) -> bool:
        self._side(self.rank)[...] = self._mine
        return True

    def _reduce(self, window: int) -> bool:
        self._add_up([self._mine if r == self.rank else self._side(r) for r in range(self.size)], self._out)
        return True


class PullMoves(Moves):
    """See the module. A rank is through only when all others are: till then they read its memory."""

    @staticmethod
    def stage_bytes(nbytes: int) -> int:
        return HEAD_BYTES

    def _plan(self, follows: bool) -> list[Move]:
        begun, over = self._base + 1, self._base + (1 << WINDOW_BITS)
        return [
            Move(self._offer, 0, COPIED, 0 if follows else self._base, WROTE, begun),
            Move(self._reduce, 0, WROTE, begun, REDUCED, begun),
            Move(self._copy, 0, REDUCED, begun, COPIED, begun),
            Move(self._end, 0, COPIED, begun, COPIED, over),
        ]

    def _sent_bytes(self) -> int:
        low, high = self._share(self.rank, self._mine.size)
        own = high - low
        return int((self._mine.size - own + own * (self.size - 1)) * self._mine.itemsize)

    def _offer(self, window: int) -> bool:
        self.own.words[VALUE_AT] = self._mine.ctypes.data
        self.own.words[RESULT_AT] = self._out.ctypes.data
        return True

    def _end(self, window: int) -> bool:
        return True

    def _pull(self, rank: int, word: int, at: int, into: Array) -> bool:
        assert self._read is not None
        if self._read(rank, self._stage(rank).words[word] + at * into.itemsize, into):
            return True
        self.unread = rank
        return False

    def _reduce(self, window: int) -> bool:
        low, high = self._share(self.rank, self._mine.size)
        width = max(1, min(PIECE_BYTES // self._mine.itemsize, high - low))
        scratch = np.empty(width, self._mine.dtype)
        return all(self._reduce_piece(at, min(at + width, high), scratch) for at in range(low, high, width))

    def _reduce_piece(self, low: int, high: int, scratch: Array) -> bool:
        mine, total = self._mine[low:high], self._out[low:high]
        sum_so_far = None
        for rank in range(self.size):
            part = mine
            if rank != self.rank:
                part = total if rank == 0 else scratch[: high - low]
                if not self._pull(rank, VALUE_AT, low, part):
                    return False
            sum_so_far = part if sum_so_far is None else self._merge(sum_so_far, part, out=total)
        self._finish(total)
        return True

    def _copy(self, window: int) -> bool:
        for rank in self.others:
            low, high = self._share(rank, self._mine.size)
            if high > low and not self._pull(rank, RESULT_AT, low, self._out[low:high]):
                return False
        return True


class WindowMoves(Moves):
    """See the module."""

    @staticmethod
    def stage_bytes(nbytes: int) -> int:
        return HEAD_BYTES + min(SLOTS, -(-nbytes // WINDOW_BYTES)) * WINDOW_BYTES

    def _plan(self, follows: bool) -> list[Move]:
        self._width = WINDOW_BYTES // self._mine.itemsize
        self._windows = windows = -(-self._mine.size // self._width)
        self._slots = min(SLOTS, windows)
        base, plan = self._base, []
        for i in range(-_WRITE_AHEAD, windows):
            w = i + _WRITE_AHEAD
            if w < windows:
                plan.append(Move(self._write, w, COPIED, base + max(0, w - self._slots + 1), WROTE, base + w + 1))
            w = i + _REDUCE_AHEAD
            if 0 <= w < windows:
                plan.append(Move(self._reduce, w, WROTE, base + w + 1, REDUCED, base + w + 1))
            if i >= 0:
                to = i + 1 if i + 1 < windows else 1 << WINDOW_BITS
                plan.append(Move(self._copy, i, REDUCED, base + i + 1, COPIED, base + to))
        return plan

    def _sent_bytes(self) -> int:
        low, high = self._share(self.rank, self._width)
        last_low, last_high = self._share(self.rank, self._mine.size - (self._windows - 1) * self._width)
        own = (self._windows - 1) * (high - low) + last_high - last_low
        return int((self._mine.size - own + own * (self.size - 1)) * self._mine.itemsize)

    def _window(self, window: int) -> tuple[int, int]:
        """(begin, elements)."""
        begin = window * self._width
        return begin, min(self._width, self._mine.size - begin)

    def _slot(self, rank: int, window: int, low: int, high: int) -> Array:
        """The elements of a window in a rank's stage."""
        begin = window % self._slots * self._width
        item = self._mine.itemsize
        return self._stage(rank).data[(begin + low) * item : (begin + high) * item].view(self._mine.dtype)

    def _write(self, window: int) -> bool:
        begin, width = self._window(window)
        low, high = self._share(self.rank, width)
        mine = self._mine[begin : begin + width]
        slot = self._slot(self.rank, window, 0, width)
        slot[:low] = mine[:low]
        slot[high:] = mine[high:]
        return True

    def _reduce(self, window: int) -> bool:
        begin, width = self._window(window)
        low, high = self._share(self.rank, width)
        own = slice(begin + low, begin + high)
        parts = [self._slot(r, window, low, high) for r in range(self.size)]
        total, parts[self.rank] = parts[self.rank], self._mine[own]
        self._add_up(parts, total)
        self._out[own] = total
        return True

    def _copy(self, window: int) -> bool:
        begin, width = self._window(window)
        for rank in self.others:
            low, high = self._share(rank, width)
            self._out[begin + low : begin + high] = self._slot(rank, window, low, high)
        return True


def moves_for(nbytes: int, size: int, can_pull: bool) -> type[Moves]:
    """How so many ranks that share memory, and of which all or none `can_pull`, reduce a tensor."""
    if nbytes <= SMALL_LIMIT:
        return SmallMoves
    return PullMoves if can_pull and nbytes >= PULL_FROM * size else WindowMoves
