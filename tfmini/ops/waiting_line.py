"""State objects that ops wait for: lines of attempts, which are tried again whenever the state changes.

A state object (queue, accumulator, barrier, …) owns one lock and one or more lines. An op that
cannot be answered at once becomes an `Attempt` at the end of a line; it holds no thread. Only the
first attempt of a line is tried, so ops are answered in their order. In an unordered line, where
each attempt waits for something else, all are tried.

Three rules hold for all attempts:

* `Wait.done` and `Wait.fail` are called without the lock.
* An attempt is *armed* (allowed to take elements) only after its wait has confirmed that the step
  is still running. So a step that ended while its op was starting gets nothing.
* An attempt whose step ends gives back the elements that it has taken, for the next attempts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from tfmini import errors
from tfmini.graph.waiting import Wait
from tfmini.ops.shared_state import handle_value

# The outcome of trying an attempt: no progress, some progress, or finished (with an answer or an error).
STUCK, MOVED, OVER = 0, 1, 2


class Attempt:
    """One op that waits. A subclass defines how it makes progress and how that is undone.

    Attributes:
      result: what the op returns once the attempt is over without an error.
      error: the error that it fails with instead.
    """

    __slots__ = ("wait", "armed", "result", "error")

    def __init__(self, wait: Wait) -> None:
        self.wait = wait
        self.armed = False
        self.result: Any = ()
        self.error: errors.OpError | None = None

    def advance(self) -> int:
        """Takes or gives as many elements as possible, under the lock; returns STUCK, MOVED or OVER."""
        raise NotImplementedError

    def give_back(self) -> None:
        """Returns the elements that it has taken, under the lock, because its step has ended."""

    def cause(self) -> str:
        """A text that says what it waits for."""
        raise NotImplementedError

    def fail(self, error: errors.OpError) -> int:
        """Ends with an error; returns OVER."""
        self.error = error
        return OVER

    def answer(self) -> None:
        """Answers the waiting op, without the lock."""
        if self.error is None:
            self.wait.done(self.result)
        else:
            self.wait.fail(self.error)


Line = OrderedDict[Attempt, None]


class WaitingState:
    """Base of the objects that ops wait for; see the module.

    Args:
      lines: the number of lines.
      unordered: the positions of the unordered lines.

    Attributes:
      name: of the object.
      lines: in the order in which they are tried.
    """

    name = ""

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
        """Tries the attempts again, after a subclass has changed the state."""
        with self.lock:
            finished = self._advance_all()
        for one in finished:
            one.answer()

    def _advance_all(self) -> list[Attempt]:
        """Tries the first attempt of each line until none makes progress; returns the finished ones."""
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

    def read(self) -> Any:
        """The value of a reference to this object."""
        return handle_value(self.name)

    def waiting(self) -> Iterator[str]:
        """A text per waiting attempt that says what it waits for, in order."""
        with self.lock:
            attempts = [attempt for line in self.lines for attempt in line]
        return (attempt.cause() for attempt in attempts)
