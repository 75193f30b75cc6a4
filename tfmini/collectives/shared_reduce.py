"""All-reduce between ranks that share memory: nothing is sent, each reads where the others have laid out.

A large tensor goes in *windows*. In each, every rank lays out what the others are to add up (`WROTE`), adds up
its own N-th of all ranks' parts in the order of the ranks and lays out the sum (`REDUCED`), and copies the
others' sums (`COPIED`). Each thus passes 2·(N−1)/N of the tensor to others, as in the ring, but in two
exchanges instead of 2·(N−1). A small tensor is laid out whole and added up by all.

Writing runs ahead of adding, and adding of copying, so that a rank that was held up does not hold up the others at
once. Who can go no further leaves a note in its stage; who makes its wait end rings it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tfmini.collectives.schedules import MERGES, divide
from tfmini.collectives.stages import (
    COPIED,
    HEAD_BYTES,
    REDUCED,
    SERIAL,
    SLEEPS,
    WAITING,
    WINDOW_BITS,
    WROTE,
    Stage,
    fence,
)

DIRECT_LIMIT = 64 << 10  # bytes; up to here all ranks add up the whole
WINDOW_BYTES = 1 << 20  # of the tensor; smaller ones wake the others more often
SLOTS = 4  # windows that a stage holds
_CORES = len(os.sched_getaffinity(0))
_SPINS = 30  # looks at the others before it sleeps, a few microseconds where they have a core each
_WRITE_AHEAD, _REDUCE_AHEAD = 2, 1
_WAKE_EVERY = 6  # actions
_WRITE_ALL, _REDUCE_ALL, _WRITE, _REDUCE, _COPY = range(5)
_PUBLISHES = {_WRITE_ALL: WROTE, _WRITE: WROTE, _REDUCE: REDUCED, _COPY: COPIED}

Array = Any


def is_direct(nbytes: int) -> bool:
    """Whether a tensor goes as a whole."""
    return nbytes <= DIRECT_LIMIT


def stage_bytes(nbytes: int) -> int:
    """How large the stage for a tensor must be."""
    if is_direct(nbytes):
        return HEAD_BYTES + 2 * (nbytes + (-nbytes & 63))
    return HEAD_BYTES + min(SLOTS, -(-nbytes // WINDOW_BYTES)) * WINDOW_BYTES


class SharedReduce:
    """One all-reduce of one rank: a schedule without messages.

    Args:
      value: contiguous.
      out: of its size and dtype, one-dimensional, for the result; ``face``: what to show of it, default: itself.
      stages: of all ranks, None where one is not known yet; the list is filled by its owner.
      count: which exchange of these stages it is, from 0.
      text, step: the fingerprint, see `Stage.sign`.
      wake: wakes those who sleep on a word of the own stage; None: nobody can.
      sleeps: its thread will sleep when it can go no further (see `lag`), and wants no bell.
      is_loose: the exchange before was a small one too, so its stage has room for two.

    Attributes:
      done: the result is complete.
      stranger: the rank whose fingerprint differs; -1: none does. Then nothing goes on until `accept`.
      sent_bytes: how much of the tensor this rank lays out for others, once for each who takes it.
      is_broken: another rank has left the exchange. Nothing goes on; it tells the others why.
    """

    def __init__(
        self, rank: int, size: int, value: Array, merge: str, final: str, stages: list[Stage | None],
        count: int, text: bytes, step: int, out: Array, is_loose: bool = False, face: Array | None = None,
        wake: Callable[[int], None] | None = None, sleeps: bool = False,
    ) -> None:  # fmt: skip
        self._rank, self._size, self._merge, self._final = rank, size, MERGES[merge], final
        self._shape = value.shape
        self._mine = value.reshape(-1)
        self._out = out
        self._face = out if face is None else face
        self._stages = stages
        own = stages[rank]
        assert own is not None
        self._own = own
        self._others = [r for r in range(size) if r != rank]
        self._count = count
        self._text, self._step = text, step
        self._wake, self._sleeps = wake, sleeps
        self._to_wake: set[int] = set()
        self.done = self.is_broken = False
        self.stranger = -1
        self._unknown = list(self._others)  # whose fingerprints have not been compared
        self._at = 0
        self._spins = _SPINS if size <= _CORES else 0
        base = count << WINDOW_BITS
        if is_direct(value.nbytes):
            earlier = (max(0, count - 1) if is_loose else count) << WINDOW_BITS
            self._plan = [(_WRITE_ALL, COPIED, earlier, 0), (_REDUCE_ALL, WROTE, base + 1, 0)]
            self.sent_bytes = value.nbytes * (size - 1)
            return
        self._width = WINDOW_BYTES // self._mine.itemsize
        windows = -(-self._mine.size // self._width)
        self._slots = min(SLOTS, windows)
        self._plan = _windows_plan(windows, self._slots, base)
        low, high = self._share(rank, self._width)
        last_low, last_high = self._share(rank, self._mine.size - (windows - 1) * self._width)
        own = (windows - 1) * (high - low) + last_high - last_low
        self.sent_bytes = (self._mine.size - own + own * (size - 1)) * self._mine.itemsize

    # ---- the driver's side ------------------------------------------------------------------

    def advance(self) -> list[int]:
        """Does all that can be done now; returns the ranks that are to be rung, for they wait for just this."""
        ring: list[int] = []
        try:
            self._advance(ring)
        finally:
            self._wake_up()
        return ring

    def _wake_up(self) -> None:
        """Wakes those who sleep on words that have been raised: not at once, for they might take this processor."""
        while self._to_wake:
            word = self._to_wake.pop()
            if self._wake is not None:
                self._wake(self._own.address + 8 * word)

    def _advance(self, ring: list[int]) -> None:
        base = self._count << WINDOW_BITS
        while not self.done and self.stranger < 0 and not self.is_broken:
            action, word, mark, window = self._plan[self._at]
            if not self._have(word, mark) and not self._look_again(word, mark):
                self._wake_up()
                self._own.wait_for(word, mark, self._first_lag(word, mark) if self._sleeps else -1)
                fence()
                if not self._have(word, mark):
                    break
                self._own.words[WAITING] = 0
            if word == WROTE and self._unknown and not self._compare():
                break
            self._do(action, window)
            if self.is_broken:
                break
            self._at += 1
            self.done = self._at == len(self._plan)
            if self.done:
                self._publish(COPIED, base + (1 << WINDOW_BITS), ring)
            else:
                self._publish(_PUBLISHES[action], base + window + 1, ring)
            if not self._at % _WAKE_EVERY:
                self._wake_up()

    def _look_again(self, word: int, mark: int) -> bool:
        """Whether a mark is reached in the time that a sleep and a bell would take."""
        return any(self._have(word, mark) for _ in range(self._spins))

    def _first_lag(self, word: int, mark: int) -> int:
        """The first known rank that has not reached a mark; -1: only unknown ones."""
        for rank in self._others:
            if 0 <= self._mark(rank, word) < mark:
                return rank
        return -1

    def lag(self) -> tuple[Stage, int, int] | None:
        """Whose word to sleep on while it has which value; None: it is to be rung, or can go on."""
        if self.done or self.stranger >= 0:
            return None
        _, word, mark, _ = self._plan[self._at]
        rank = self._own.words[SLEEPS] - 1
        stage = self._stages[rank] if rank >= 0 else None
        if stage is None:
            return None
        value = stage.words[word]
        return (stage, word, value) if value < mark and stage.is_valid else None

    def wants_bell(self) -> bool:
        """Whether it waits for ranks of which nothing is known yet, so that there is no word to sleep on."""
        return not self.done and not self._own.words[SLEEPS] and bool(self.missing())

    def _do(self, action: int, window: int) -> None:
        if action == _WRITE_ALL:
            self._write_all()
        elif action == _REDUCE_ALL:
            self._reduce_all()
        elif action == _WRITE:
            self._write(window)
        elif action == _REDUCE:
            self._reduce(window)
        else:
            self._copy(window)

    def accept(self) -> None:
        """The stranger's fingerprint says the same in other words."""
        self._unknown.remove(self.stranger)
        self.stranger = -1

    def missing(self) -> list[int]:
        """The ranks that have not done yet what this one waits for."""
        if self.done:
            return []
        _, word, mark, _ = self._plan[self._at]
        return [r for r in self._others if self._mark(r, word) < mark]

    def present(self) -> list[int]:
        """The ranks that are known to take part."""
        return [r for r in self._others if self._mark(r, WROTE) > self._count << WINDOW_BITS]

    def result(self) -> Array:
        """The tensor."""
        return self._face.reshape(self._shape)

    # ---- marks ------------------------------------------------------------------------------

    def _mark(self, rank: int, word: int) -> int:
        stage = self._stages[rank]
        if stage is None:
            return -1
        mark = stage.words[word]
        return mark if stage.words[SERIAL] == stage.serial else -1

    def _have(self, word: int, mark: int) -> bool:
        """Whether all others have reached a mark; that of the beginning all have."""
        for rank in self._others:
            if self._mark(rank, word) < mark:
                return not mark
        return True

    def _publish(self, word: int, mark: int, ring: list[int]) -> None:
        """Raises a word of the own stage; adds who waited for it, and for nobody else, to ``ring``."""
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
            elif rank not in ring and self._is_last(rank, word, stage.wanted(word)):
                ring.append(rank)
        if sleepers:
            self._to_wake.add(word)

    def _is_last(self, waiter: int, word: int, wanted: int) -> bool:
        """Whether all that the waiter waits for has come; an unknown rank may have been the first."""
        return all(r == waiter or not 0 <= self._mark(r, word) < wanted for r in self._others)

    def _compare(self) -> bool:
        while self._unknown:
            rank = self._unknown[-1]
            text, step = self._stage(rank).signature(self._count)
            if text != self._text or (step and self._step and step != self._step):
                self.stranger = rank
                return False
            self._unknown.pop()
        return True

    def _stage(self, rank: int) -> Stage:
        stage = self._stages[rank]
        assert stage is not None
        return stage

    def _check(self) -> None:
        """After reading: a stage that has another user now shows that its rank has left."""
        self.is_broken = any(not self._stage(r).is_valid for r in self._others)

    # ---- small tensors ----------------------------------------------------------------------

    def _side(self, rank: int) -> Array:
        data = self._stage(rank).data
        at = (self._count & 1) * (len(data) // 2 & ~63)
        return data[at : at + self._mine.nbytes].view(self._mine.dtype)

    def _write_all(self) -> None:
        self._side(self._rank)[...] = self._mine
        self._own.sign(self._count, self._text, self._step)

    def _reduce_all(self) -> None:
        self._add_up([self._mine if r == self._rank else self._side(r) for r in range(self._size)], self._out)
        self._check()

    def _add_up(self, parts: list[Array], out: Array) -> None:
        self._merge(parts[0], parts[1], out=out)
        for part in parts[2:]:
            self._merge(out, part, out=out)
        if self._final == "Div":
            out[...] = divide(out, self._size)

    # ---- windows ----------------------------------------------------------------------------

    def _window(self, window: int) -> tuple[int, int]:
        """(begin, elements)."""
        begin = window * self._width
        return begin, min(self._width, self._mine.size - begin)

    def _slot(self, rank: int, window: int, low: int, high: int) -> Array:
        """The elements of a window in a rank's stage."""
        begin = window % self._slots * self._width
        item = self._mine.itemsize
        return self._stage(rank).data[(begin + low) * item : (begin + high) * item].view(self._mine.dtype)

    def _share(self, rank: int, width: int) -> tuple[int, int]:
        """The elements of a window that a rank adds up."""
        return width * rank // self._size, width * (rank + 1) // self._size

    def _write(self, window: int) -> None:
        if window == 0:
            self._own.sign(self._count, self._text, self._step)
        begin, width = self._window(window)
        low, high = self._share(self._rank, width)
        mine = self._mine[begin : begin + width]
        slot = self._slot(self._rank, window, 0, width)
        slot[:low] = mine[:low]
        slot[high:] = mine[high:]

    def _reduce(self, window: int) -> None:
        begin, width = self._window(window)
        low, high = self._share(self._rank, width)
        own = slice(begin + low, begin + high)
        parts = [self._slot(r, window, low, high) for r in range(self._size)]
        total, parts[self._rank] = parts[self._rank], self._mine[own]
        self._add_up(parts, total)
        self._out[own] = total
        self._check()

    def _copy(self, window: int) -> None:
        begin, width = self._window(window)
        for rank in self._others:
            low, high = self._share(rank, width)
            self._out[begin + low : begin + high] = self._slot(rank, window, low, high)
        self._check()


def _windows_plan(windows: int, slots: int, base: int) -> list[tuple[int, int, int, int]]:
    """What to do, in order: (action, the word and the mark that all others must have reached, window)."""
    plan = []
    for i in range(-_WRITE_AHEAD, windows):
        w = i + _WRITE_AHEAD
        if w < windows:
            plan.append((_WRITE, COPIED, base + max(0, w - slots + 1), w))
        w = i + _REDUCE_AHEAD
        if 0 <= w < windows:
            plan.append((_REDUCE, WROTE, base + w + 1, w))
        if i >= 0:
            plan.append((_COPY, REDUCED, base + i + 1, i))
    return plan
