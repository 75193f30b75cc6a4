"""All-reduce between ranks that share memory: nothing is sent, each reads where the others have laid out.

`shared_moves` says what a rank does; this is who does it when. Who can go no further leaves a note in its
stage; who makes its wait end rings it, or wakes it where it sleeps on a word of the stage.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from tfmini.collectives.shared_moves import Moves
from tfmini.collectives.stages import SERIAL, SLEEPS, WAITING, WINDOW_BITS, WROTE, Stage, fence

_CORES = len(os.sched_getaffinity(0))
_SPIN_S = 100e-6  # how long it looks at the others before it sleeps, where they have a core each
_WAKE_EVERY = 6  # moves

Array = Any


class SharedReduce:
    """One all-reduce of one rank: a schedule without messages.

    Args:
      shape: of the result; ``face``: what to show of its memory.
      text, step: the fingerprint, see `Stage.sign`.
      wake: wakes those who sleep on a word of the own stage; None: nobody can.
      sleeps: its thread will sleep when it can go no further (see `lag`), and wants no bell.

    Attributes:
      done: the result is complete.
      stranger: the rank whose fingerprint differs; -1: none does. Then nothing goes on until `accept`.
      is_broken: another rank has left the exchange. Nothing goes on; it tells the others why.
      lost: a rank that is gone without having left: it tells nobody. -1: none.
    """

    def __init__(
        self, moves: Moves, shape: tuple[int, ...], face: Array, text: bytes, step: int,
        wake: Callable[[int], None] | None = None, sleeps: bool = False,
    ) -> None:  # fmt: skip
        self.moves = moves
        self._shape, self._face = shape, face
        self._text, self._step = text, step
        self._wake, self._sleeps = wake, sleeps
        self._rank, self._stages, self._own = moves.rank, moves.stages, moves.own
        self._others, self._count, self._plan = moves.others, moves.count, moves.plan
        self._to_wake: set[int] = set()
        self.done = self.is_broken = False
        self.stranger = self.lost = -1
        self._unknown = list(self._others)  # whose fingerprints have not been compared
        self._at = 0
        self._spin_s = _SPIN_S if moves.size <= _CORES else 0.0

    # ---- the driver's side ------------------------------------------------------------------

    def place(self, rank: int, stage: Stage) -> None:
        """Where a rank lays out its part, now that it has told."""
        self._stages[rank] = stage

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
        while not self.done and self.stranger < 0 and not self.is_broken:
            move = self._plan[self._at]
            if not self._have(move.word, move.mark) and not self._wait(move.word, move.mark):
                break
            if not self._at:
                self._own.sign(self._count, self._text, self._step)
            if move.word == WROTE and self._unknown and not self._compare():
                break
            # What has been read counts only if it was still the others' when it had been read.
            is_read = move.run(move.window)
            if not self._are_valid():
                self.is_broken = True
                break
            if not is_read:
                self.is_broken, self.lost = True, self.moves.unread
                break
            self.done = self._at + 1 == len(self._plan)
            self._at += not self.done  # others may look at the move that is waited for at any time
            self._publish(move.raises, move.to, ring)
            if self._spin_s or not self._at % _WAKE_EVERY:
                self._wake_up()

    def _wait(self, word: int, mark: int) -> bool:
        """Waits for as long as sleeping would take; False: a note says what is waited for."""
        if self._look_again(word, mark):
            return True
        self._wake_up()
        self._own.wait_for(word, mark, self._first_lag(word, mark) if self._sleeps else -1)
        fence()
        if not self._have(word, mark):
            return False
        self._own.words[WAITING] = 0
        return True

    def _look_again(self, word: int, mark: int) -> bool:
        """Whether a mark is reached in the time that a sleep and a bell would take."""
        if self._spin_s:
            end = time.perf_counter() + self._spin_s
            while time.perf_counter() < end:
                if self._have(word, mark):
                    return True
        return False

    def _first_lag(self, word: int, mark: int) -> int:
        """The first known rank that has not reached a mark; -1: only unknown ones."""
        for rank in self._others:
            if 0 <= self._mark(rank, word) < mark:
                return rank
        return -1

    def lag(self) -> tuple[Stage, int, int] | None:
        """Whose word to sleep on while it has which value; None: it is to be rung, or can go on."""
        if self.done or self.stranger >= 0 or self.is_broken:
            return None
        move = self._plan[self._at]
        rank = self._own.words[SLEEPS] - 1
        stage = self._stages[rank] if rank >= 0 else None
        if stage is None:
            return None
        value = stage.words[move.word]
        return (stage, move.word, value) if value < move.mark and stage.is_valid else None

    def wants_bell(self) -> bool:
        """Whether there is no word to sleep on: nothing is known yet of those it waits for, or one has left."""
        return self.is_broken or not self.done and not self._own.words[SLEEPS] and bool(self.missing())

    def accept(self) -> None:
        """The stranger's fingerprint says the same in other words."""
        self._unknown.remove(self.stranger)
        self.stranger = -1

    def missing(self) -> list[int]:
        """The ranks that have not done yet what this one waits for."""
        if self.done:
            return []
        move = self._plan[self._at]
        return [r for r in self._others if self._mark(r, move.word) < move.mark]

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

    def _are_valid(self) -> bool:
        """Whether no stage has another user now, for that shows that its rank has left."""
        for rank in self._others:
            stage = self._stages[rank]
            if stage is not None and not stage.is_valid:
                return not self._at  # before it waits for them, an old stage may be all that is known
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
            stage = self._stages[rank]
            assert stage is not None
            text, step = stage.signature(self._count)
            if text != self._text or (step and self._step and step != self._step):
                self.stranger = rank
                return False
            self._unknown.pop()
        return True
