"""The plans by which ranks that share memory reduce a tensor: each rank's moves, their order and their conditions.

* `SmallMoves`: every rank publishes its whole (small) tensor in its stage, and every rank reduces all of it.
* `PullMoves`: if processes may read each other's memory, a rank publishes only the *address* of its tensor. Each rank
  reduces its own N-th of all ranks' tensors, and then reads the others' results.
* `WindowMoves`: otherwise the tensor is processed in *windows*. For each window, every rank publishes the parts that
  the others reduce, reduces its own N-th of all ranks' parts, publishes the result, and copies the others' results.
  Writing runs ahead of reducing, and reducing ahead of copying, so that a delayed rank does not delay the others at
  once.

For a tensor that is not small, each rank passes 2·(N−1)/N of it to others, as in the ring, but in two exchanges
instead of 2·(N−1). Parts are reduced in the order of the ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfmini.collectives.schedules import MERGES, divide
from tfmini.collectives.stages import COPIED, HEAD_BYTES, REDUCED, RESULT_AT, VALUE_AT, WINDOW_BITS, WROTE, RankStage

SMALL_LIMIT = 64 << 10  # bytes; up to here every rank reduces the whole tensor
WINDOW_BYTES = 1 << 20  # of the tensor; smaller windows wake the other ranks more often
SLOTS = 4  # windows that a stage holds
PULL_FROM = 1 << 20  # bytes per rank; below, the final wait for all ranks costs more than one more copy
PIECE_BYTES = 512 << 10  # bytes read at a time, small enough for the processor's cache
_WRITE_AHEAD, _REDUCE_AHEAD = 2, 1

Array = Any
Read = Callable[[int, int, Array], bool]
"""Reads from (rank, address) into an array; returns False if that rank's memory no longer exists."""


class Move(NamedTuple):
    """One action of a rank's plan.

    Attributes:
      run: does it, for a window; returns False if another rank has left.
      word, mark: the mark that this word of all other ranks must have reached before.
      raises, to: the word of the own stage that is set afterwards, and its mark.
    """

    run: Callable[[int], bool]
    window: int
    word: int
    mark: int
    raises: int
    to: int


class Moves:
    """The moves of one rank in one exchange.

    Args:
      stages: of all ranks, None for those not known yet; its owner fills the list.
      count: the number of the exchange in these stages, from 0.
      value: a contiguous array.
      merge, final: as in `schedules.all_reduce`.
      out: one-dimensional memory of the value's size and dtype for the result.
      follows: the previous exchange was of this class, too.
      read: for `PullMoves`.

    Attributes:
      plan: the moves in order.
      unreadable: the rank whose memory could not be read; -1: none.
      sent_bytes: the bytes that other ranks read from this rank, counted once per reader.
    """

    def __init__(
        self, rank: int, stages: list[RankStage | None], count: int, value: Array, merge: str, final: str, out: Array,
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
        self.unreadable = -1
        self.plan = self._plan(follows)
        self.sent_bytes = self._sent_bytes()

    @staticmethod
    def stage_bytes(nbytes: int) -> int:
        """Returns the size of the stage that a tensor needs, in bytes."""
        raise NotImplementedError

    def _plan(self, follows: bool) -> list[Move]:
        raise NotImplementedError

    def _sent_bytes(self) -> int:
        raise NotImplementedError

    def _stage(self, rank: int) -> RankStage:
        stage = self.stages[rank]
        assert stage is not None
        return stage

    def _share(self, rank: int, width: int) -> tuple[int, int]:
        """Returns the range of the elements that a rank reduces, out of ``width``."""
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
    """All ranks reduce a small tensor. A stage has room for two exchanges, so a rank may begin the next one at once."""

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
    """Each rank reads the other ranks' memory. It is done when all others are: until then they read its memory."""

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
        self.unreadable = rank
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
    """The tensor passes through the stages in windows."""

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
        """Returns a window's first element and its number of elements."""
        begin = window * self._width
        return begin, min(self._width, self._mine.size - begin)

    def _slot(self, rank: int, window: int, low: int, high: int) -> Array:
        """Returns elements of a window in a rank's stage."""
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
    """Selects the moves for a tensor of ``nbytes``; ``can_pull``: all ranks can read each other's memory."""
    if nbytes <= SMALL_LIMIT:
        return SmallMoves
    return PullMoves if can_pull and nbytes >= PULL_FROM * size else WindowMoves
