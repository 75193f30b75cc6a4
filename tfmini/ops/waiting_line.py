"""State that ops wait for: lines of attempts, tried again whenever something changes.

A state object (queue, accumulator, barrier, …) owns one lock and one or more lines. An op that
cannot be answered at once becomes an `Attempt` at the end of a line; no thread stands behind it.
Only the first attempt of a line is tried, so answers come in the order of the questions; in an
unordered line, where each waits for something of its own, all are.

Three rules hold for all of them:

* `Wait.done` and `Wait.fail` are called without the lock.
* An attempt is *armed*, that is allowed to take anything, only after its wait has said that the
  step is still running. So nothing is handed to a step that ended while its op was starting.
* An attempt whose step ends gives back what it has taken so far, and the next ones get it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from tfmini import errors
from tfmini.graph.waiting import Wait

# What trying an attempt did: nothing, something but not all, or all of it (an answer or an error).
STUCK, MOVED, OVER = 0, 1, 2


class Attempt:
    """One op that waits. A subclass says how to go on and what to undo.

    Attributes:
      result: what the op returns once the attempt is over without an error.
      error: what it fails with instead.
    """

    __slots__ = ("wait", "armed", "result", "error")

    def __init__(self, wait: Wait) -> None:
        self.wait = wait
        self.armed = False
        self.result: Any = ()
        self.error: errors.OpError | None = None

    def advance(self) -> int:
        """Takes or gives what it can, under the lock; returns STUCK, MOVED or OVER."""
        raise NotImplementedError

    def give_back(self) -> None:
        """Undoes what it has taken, under the lock: nobody wants it any more."""

    def cause(self) -> str:
        """What it waits for, for people."""
        raise NotImplementedError

    def fail(self, error: errors.OpError) -> int:
        """Ends with an error; returns OVER."""
        self.error = error
        return OVER

    def answer(self) -> None:
        """Tells the waiting op, without the lock."""
        if self.error is None:
            self.wait.done(self.result)
        else:
            self.wait.fail(self.error)


Line = OrderedDict[Attempt, None]


class WaitingState:
    """Base of the objects that ops wait for; see the module.

    Args:
      lines: how many lines.
      unordered: the positions of those that are unordered.

    Attributes:
      lines: in the order in which they are tried.
    """

    def __init__(self, lines: int, unordered: tuple[int, ...] = ()) -> None:
        self.lock = threading.Lock()
        self.lines: tuple[Line, ...] = tuple(OrderedDict() for _ in range(lines))
        self._unordered = tuple(self.lines[i] for i in unordered)

    def submit(self, line: Line, attempt: Attempt) -> None:
        """Answers at once if possible, or puts the attempt at the end of ``line``."""
        with self.lock:
            finished = self._start(line, attempt)
        for one in finished:
            one.answer()
        if attempt.armed:
            return
        if not attempt.wait.on_cancel(attempt.cause(), lambda: self._forget(line, attempt)):
            self._forget(line, attempt)
            return
        with self.lock:
            attempt.armed = True
            finished = self._advance_all()
        for one in finished:
            one.answer()

    def _start(self, line: Line, attempt: Attempt) -> list[Attempt]:
        if line and not self._is_unordered(line):
            line[attempt] = None
            return []
        attempt.armed = True
        line[attempt] = None
        finished = self._advance_all()
        attempt.armed = attempt not in line
        return finished

    def _is_unordered(self, line: Line) -> bool:
        return any(line is one for one in self._unordered)

    def _forget(self, line: Line, attempt: Attempt) -> None:
        """The step of an attempt has ended before its answer."""
        with self.lock:
            if attempt not in line:
                return
            del line[attempt]
            attempt.give_back()
            finished = self._advance_all()
        for one in finished:
            one.answer()

    def changed(self) -> None:
        """Tries the attempts again after a change of the state from outside."""
        with self.lock:
            finished = self._advance_all()
        for one in finished:
            one.answer()

    def _advance_all(self) -> list[Attempt]:
        """Tries the first attempt of each line until nothing moves; returns those that are over."""
        finished: list[Attempt] = []
        moved = True
        while moved:
            moved = False
            for line in self.lines:
                advance = self._advance_each if self._is_unordered(line) else self._advance_line
                moved |= advance(line, finished)
        return finished

    def _advance_each(self, line: Line, finished: list[Attempt]) -> bool:
        moved = False
        for attempt in list(line):
            outcome = attempt.advance() if attempt.armed else STUCK
            moved |= outcome != STUCK
            if outcome == OVER:
                del line[attempt]
                finished.append(attempt)
        return moved

    def _advance_line(self, line: Line, finished: list[Attempt]) -> bool:
        moved = False
        while line:
            attempt = next(iter(line))
            outcome = attempt.advance() if attempt.armed else STUCK
            if outcome != OVER:
                return moved or outcome == MOVED
            del line[attempt]
            finished.append(attempt)
            moved = True
        return moved

    def fail_all(self, error: errors.OpError, *lines: Line) -> None:
        """Ends all attempts of the given lines (default: of all) with an error."""
        with self.lock:
            ended = [attempt for line in lines or self.lines for attempt in line]
            for attempt in ended:
                attempt.give_back()
                attempt.error = error
            for line in lines or self.lines:
                line.clear()
            ended += self._advance_all()
        for one in ended:
            one.answer()

    def waiting(self) -> Iterator[str]:
        """What each waiting attempt waits for, in order."""
        with self.lock:
            attempts = [attempt for line in self.lines for attempt in line]
        return (attempt.cause() for attempt in attempts)
