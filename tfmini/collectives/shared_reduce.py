"""All-reduce between ranks that share memory: each rank reads the data that the others publish.

A class of `Moves` defines what a rank does, and `SharedReduce` does it when its conditions hold. A rank that must wait
records the condition in its stage. The rank that completes the data wakes it: with a bell (a message), or with a
futex if it sleeps on a word of the stage.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from tfmini.collectives.schedules import MERGES, divide

_CORES = len(os.sched_getaffinity(0))
_SPIN_S = 100e-6  # how long a rank polls before it sleeps, if every rank has a core
_WAKE_EVERY = 6  # moves


class SharedReduce:
    """One all-reduce of one rank: a schedule without messages.

    Args:
      shape: of the result; ``view``: the array to return, over the moves' ``out``.
      text, step: the fingerprint, see `RankStage.write_fingerprint`.
      wake: wakes the ranks that sleep on the word at an address; None: futexes are not available.
      sleeps: its thread sleeps on `sleep_condition` when it must wait, and needs no bell.

    Attributes:
      done: the result is complete.
      mismatched: the rank whose fingerprint differs; -1: none. It stops the exchange until `accept_fingerprint`.
      is_broken: another rank has left the exchange, which ends it; that rank reports the reason to the others.
      lost: a rank that died and so reports nothing; -1: none.
    """

    def __init__(
        self, moves: Moves, shape: tuple[int, ...], view: Array, text: bytes, step: int,
        wake: Callable[[int], None] | None = None, sleeps: bool = False,
    ) -> None:  # fmt: skip
        self.moves = moves
        self._shape, self._view = shape, view
        self._text, self._step = text, step
        self._wake, self._sleeps = wake, sleeps
        self._rank, self._stages, self._own = moves.rank, moves.stages, moves.own
        self._others, self._count, self._plan = moves.others, moves.count, moves.plan
        self._to_wake: set[int] = set()
        self.done = self.is_broken = False
        self.mismatched = self.lost = -1
        self._unknown = list(self._others)  # ranks whose fingerprints have not been compared
        self._at = 0
        self._spin_s = _SPIN_S if moves.size <= _CORES else 0.0

    # ---- the driver's side ------------------------------------------------------------------

    def advance(self) -> list[int]:
        """Makes all moves that are possible now; returns the ranks that waited for them and need a bell."""
        bells: list[int] = []
        try:
            self._advance(bells)
        finally:
            self._wake_up()
        return bells

    def _wake_up(self) -> None:
        """Wakes the ranks that sleep on changed words. Delayed, because a woken rank might take this processor."""
        while self._to_wake:
            word = self._to_wake.pop()
            if self._wake is not None:
                self._wake(self._own.address + 8 * word)

    def _advance(self, bells: list[int]) -> None:
        while not self.done and self.mismatched < 0 and not self.is_broken:
            move = self._plan[self._at]
            if not self._have(move.word, move.mark) and not self._wait(move.word, move.mark):
                break
            if not self._at:
                self._own.write_fingerprint(self._count, self._text, self._step)
            if move.word == WROTE and self._unknown and not self._compare():
                break
            # The data that was read is valid only if the stages still belong to the other ranks afterwards.
            is_read = move.run(move.window)
            if not self._are_valid():
                self.is_broken = True
                break
            if not is_read:
                self.is_broken, self.lost = True, self.moves.unreadable
                break
            self.done = self._at + 1 == len(self._plan)
            self._at += not self.done  # other threads may read the current move at any time
            self._publish(move.raises, move.to, bells)
            if self._spin_s or not self._at % _WAKE_EVERY:
                self._wake_up()

    def _wait(self, word: int, mark: int) -> bool:
        """Waits briefly for a mark; returns False after recording in the own stage that this rank waits for it."""
        if self._poll(word, mark):
            return True
        self._wake_up()
        self._own.wait_for(word, mark, self._first_lagging(word, mark) if self._sleeps else -1)
        fence()
        if not self._have(word, mark):
            return False
        self._own.words[WAITING] = 0
        return True

    def _poll(self, word: int, mark: int) -> bool:
        """Whether a mark is reached within the time that a sleep and a wake-up would take."""
        if self._spin_s:
            end = time.perf_counter() + self._spin_s
            while time.perf_counter() < end:
                if self._have(word, mark):
                    return True
        return False

    def _first_lagging(self, word: int, mark: int) -> int:
        """Returns the first known rank that has not reached a mark; -1 if there are only unknown ones."""
        for rank in self._others:
            if 0 <= self._mark(rank, word) < mark:
                return rank
        return -1

    def sleep_condition(self) -> tuple[RankStage, int, int] | None:
        """Returns (stage, word, value): sleep while the word has that value. None: wait for a bell, or advance."""
        if self.done or self.mismatched >= 0 or self.is_broken:
            return None
        move = self._plan[self._at]
        rank = self._own.words[SLEEPS] - 1
        stage = self._stages[rank] if rank >= 0 else None
        if stage is None:
            return None
        value = stage.words[move.word]
        return (stage, move.word, value) if value < move.mark and stage.is_valid else None

    def needs_bell(self) -> bool:
        """Whether there is no word to sleep on: the stages of the missing ranks are unknown, or a rank has left."""
        return self.is_broken or not self.done and not self._own.words[SLEEPS] and bool(self.missing())

    def accept_fingerprint(self) -> None:
        """Accepts the differing fingerprint, because it has the same meaning."""
        self._unknown.remove(self.mismatched)
        self.mismatched = -1

    def missing(self) -> list[int]:
        """Returns the ranks for which this one waits."""
        if self.done:
            return []
        move = self._plan[self._at]
        return [r for r in self._others if self._mark(r, move.word) < move.mark]

    def present(self) -> list[int]:
        """Returns the ranks that have begun the exchange."""
        return [r for r in self._others if self._mark(r, WROTE) > self._count << WINDOW_BITS]

    def result(self) -> Array:
        """Returns the reduced tensor."""
        return self._view.reshape(self._shape)

    # ---- marks ------------------------------------------------------------------------------

    def _mark(self, rank: int, word: int) -> int:
        stage = self._stages[rank]
        if stage is None:
            return -1
        mark = stage.words[word]
        return mark if stage.words[SERIAL] == stage.serial else -1

    def _have(self, word: int, mark: int) -> bool:
        """Whether all other ranks have reached a mark. All have reached mark 0."""
        for rank in self._others:
            if self._mark(rank, word) < mark:
                return not mark
        return True

    def _are_valid(self) -> bool:
        """Whether all stages still belong to their ranks; a stage with another user shows that its rank has left."""
        for rank in self._others:
            stage = self._stages[rank]
            if stage is not None and not stage.is_valid:
                return not self._at  # before the first wait, the known stage may be an old one
        return True

    def _publish(self, word: int, mark: int, bells: list[int]) -> None:
        """Sets a word of the own stage to a mark; adds the ranks that waited only for it to ``bells``."""
        words = self._own.words
        before = words[word]
        words[word] = mark
        fence()
        sleepers = False
        for rank in self._others:
            stage = self._stages[rank]
            if stage is None or not before < stage.wanted(word) <= mark:
                continue
            sleeps_on = stage.words[SLEEPS]
            if sleeps_on:
                sleepers |= sleeps_on == self._rank + 1
            elif rank not in bells and self._is_last(rank, word, stage.wanted(word)):
                bells.append(rank)
        if sleepers:
            self._to_wake.add(word)

    def _is_last(self, waiter: int, word: int, wanted: int) -> bool:
        """Whether all known ranks that the waiter waits for have reached its mark."""
        return all(r == waiter or not 0 <= self._mark(r, word) < wanted for r in self._others)

    def _compare(self) -> bool:
        while self._unknown:
            rank = self._unknown[-1]
            stage = self._stages[rank]
            assert stage is not None
            text, step = stage.read_fingerprint(self._count)
            if text != self._text or (step and self._step and step != self._step):
                self.mismatched = rank
                return False
            self._unknown.pop()
        return True


# ---- stages ----------------------------------------
# Stages: shared memory in which a rank publishes its part of an all-reduce to the other ranks of its host.
# Only its owner writes to a stage. The head of a stage holds its owner's progress, as numbers that only grow::
#
#     u64 serial | u64 wrote | u64 reduced | u64 copied | u64 waiting, sleeps | u64 step, step |
#     u64 address of the tensor, address of the result, in the owner's memory                 (a cache line each)
#     fingerprint, fingerprint (u16 length, text)                                          from byte 512 on
#     data                                                                                from byte 4096 on
#
# A *mark* is the number of an exchange times 2**24 plus a number of completed windows. Even and odd exchanges each
# have their own step and fingerprint.
#
# Other processors must see stores in program order, as on x86: see `IS_ORDERED`.

IS_ORDERED = platform.machine() in ("x86_64", "AMD64") and sys.maxsize > 1 << 32
"""Whether other processors see this one's stores in program order, and 64-bit stores as a whole."""

HEAD_BYTES = 4096
WINDOW_BITS = 24
SERIAL, WROTE, REDUCED, COPIED, WAITING, SLEEPS, STEPS = 0, 8, 16, 24, 32, 33, 40
VALUE_AT, RESULT_AT = 48, 49
_KIND_SHIFT = 60
_TEXT_AT = (512, 2304)
_TEXT_LIMIT = 1700  # bytes

_lock = threading.Lock()


def fence() -> None:
    """Makes earlier stores visible before later loads: a full memory barrier."""
    with _lock:  # an atomic operation
        return


def fingerprint_text(text: str) -> bytes:
    """Encodes a fingerprint for a stage; the end of a text that is too long is replaced by a digest of it."""
    data = text.encode()
    if len(data) <= _TEXT_LIMIT:
        return data
    digest = blake2b(data, digest_size=8).hexdigest()
    return data[: _TEXT_LIMIT - 40].decode(errors="ignore").encode() + f"… ({digest})".encode()


class RankStage:
    """The stage of this rank or of another one.

    Args:
      memory: its bytes, writable for its owner.
      serial: identifies this use of the memory; the memory holds the same number until it has another use.
    """

    __slots__ = ("memory", "data", "words", "serial", "address", "_bytes", "_written")

    def __init__(self, memory: np.ndarray[Any, Any], serial: int) -> None:
        self.memory = memory
        self.data = memory[HEAD_BYTES:]
        self.address = memory.ctypes.data
        self._bytes = memory[:HEAD_BYTES].data
        self.words = self._bytes[:512].cast("Q")
        self.serial = serial
        self._written = [b"", b""]

    def open(self, count: int) -> None:
        """Begins its use with the exchange ``count``; earlier exchanges are over. Called by its owner."""
        self.words[SERIAL] = self.serial
        fence()
        for word in (WAITING, SLEEPS, STEPS, STEPS + 1):
            self.words[word] = 0
        for word in (WROTE, REDUCED, COPIED):
            self.words[word] = count << WINDOW_BITS

    def release(self) -> None:
        """Ends its use: no rank uses it any more. Called by its owner."""
        self.words[SERIAL] = 0

    @property
    def is_valid(self) -> bool:
        """Whether the stage still belongs to its owner, so that the data read before is valid."""
        return self.words[SERIAL] == self.serial

    def wait_for(self, word: int, mark: int, sleeps_on: int) -> None:
        """Records that its owner waits until this word of all other ranks has reached a mark.

        Args:
          sleeps_on: the rank on whose word it sleeps; -1: none, it waits for a bell.
        """
        self.words[SLEEPS] = sleeps_on + 1
        self.words[WAITING] = word << _KIND_SHIFT - 3 | mark

    def wanted(self, word: int) -> int:
        """Returns the mark that its owner waits for in the others' ``word``; 0 if it does not wait for that word."""
        waiting = self.words[WAITING]
        return waiting & (1 << _KIND_SHIFT - 3) - 1 if waiting >> _KIND_SHIFT - 3 == word else 0

    def write_fingerprint(self, count: int, text: bytes, step: int) -> None:
        """Writes the fingerprint of the count-th exchange: its text and step."""
        side = count & 1
        self.words[STEPS + side] = step
        if text != self._written[side]:
            at = _TEXT_AT[side]
            self._bytes[at + 2 : at + 2 + len(text)] = text
            self._bytes[at : at + 2] = len(text).to_bytes(2, "little")
            self._written[side] = text

    def read_fingerprint(self, count: int) -> tuple[bytes, int]:
        """Returns the text and step that `write_fingerprint` has written."""
        side = count & 1
        at = _TEXT_AT[side]
        size = int.from_bytes(self._bytes[at : at + 2], "little")
        return bytes(self._bytes[at + 2 : at + 2 + size]), self.words[STEPS + side]


# ---- shared moves ----------------------------------------
# The plans by which ranks that share memory reduce a tensor: each rank's moves, their order and their conditions.
# * `SmallMoves`: every rank publishes its whole (small) tensor in its stage, and every rank reduces all of it.
# * `PullMoves`: if processes may read each other's memory, a rank publishes only the *address* of its tensor. Each rank
#   reduces its own N-th of all ranks' tensors, and then reads the others' results.
# * `WindowMoves`: otherwise the tensor is processed in *windows*. For each window, every rank publishes the parts that
#   the others reduce, reduces its own N-th of all ranks' parts, publishes the result, and copies the others' results.
#   Writing runs ahead of reducing, and reducing ahead of copying, so that a delayed rank does not delay the others at
#   once.
#
# For a tensor that is not small, each rank passes 2·(N−1)/N of it to others, as in the ring, but in two exchanges
# instead of 2·(N−1). Parts are reduced in the order of the ranks.

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
