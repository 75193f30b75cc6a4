"""All-reduce between ranks that share memory: each rank reads the data that the others publish.

`shared_moves` defines a rank's moves; this module runs them when their conditions hold. A rank that must wait
records the condition in its stage. The rank that completes the data wakes it: with a bell (a message), or with a
futex if it sleeps on a word of the stage.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from tfmini.collectives.shared_moves import Moves
from tfmini.collectives.stages import SERIAL, SLEEPS, WAITING, WINDOW_BITS, WROTE, RankStage, fence

_CORES = len(os.sched_getaffinity(0))
_SPIN_S = 100e-6  # how long a rank polls before it sleeps, if every rank has a core
_WAKE_EVERY = 6  # moves

Array = Any


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
