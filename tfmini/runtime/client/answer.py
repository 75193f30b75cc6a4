"""`Answer`: the outcome that a client's thread waits for."""

from __future__ import annotations

import contextlib
from _thread import allocate_lock
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from tfmini import errors
from tfmini.locks import lock
from tfmini.rpc.waiter import Clock, Waiter, unlock
from tfmini.runtime.client import wait_reports
from tfmini.runtime.executor.dispatch import this_thread

T = TypeVar("T")


class Answer(Generic[T]):
    """Turns a callback into a wait. The waiting thread drives the reactor, or runs segments of its local step.

    Args:
      reactor: None for a master without a network, whose answer another thread of this process gives.
    """

    def __init__(self, reactor: Clock | None) -> None:
        self._reactor = reactor
        self._waiter = Waiter()
        self._gate = None  # a lock that is free when the answer has come
        if reactor is None:
            self._gate = allocate_lock()
            self._gate.acquire()
        self._error: errors.OpError | None = None
        self._value: Any = None

    def done(self, error: errors.OpError | None, value: T | None = None) -> None:
        """The callback: stores the outcome and ends the wait."""
        self._error, self._value = error, value
        self._waiter.set()
        if self._gate is not None:
            unlock(self._gate)

    def answered(self, reply: Any) -> None:
        """The callback of an rpc call."""
        if isinstance(reply, errors.OpError):
            self.done(reply)
        else:
            self.done(None, reply)

    def result(
        self, timeout_s: float | None = None, expire: Callable[[], None] | None = None,
        describe: wait_reports.Describe | None = None,
    ) -> T:  # fmt: skip
        """Waits, then returns the value.

        Args:
          timeout_s, expire: for a master without a reactor, which has no timers: ``expire`` is called after
            ``timeout_s`` seconds and leads to an answer.
          describe: describes the waits of the step, for the log lines about a long wait.

        Raises:
          OpError: the error of the answer.
        """
        if not self._waiter.done:
            limit_s = timeout_s if self._reactor is None else None
            if not self._wait(limit_s, describe) and expire is not None:
                expire()
                self._wait(None, None)
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    def _wait(self, limit_s: float | None, describe: wait_reports.Describe | None) -> bool:
        """Whether the answer came within the limit; logs the waits after 10 s, 20 s, 40 s, …"""
        if describe is None:
            return self._sleep(limit_s)
        waited, pause = 0.0, wait_reports.FIRST_S
        while limit_s is None or waited < limit_s:
            if self._sleep(pause if limit_s is None else min(pause, limit_s - waited)):
                return True
            waited += pause
            pause = waited
            if limit_s is None or waited < limit_s:
                wait_reports.report(describe, self._reactor, waited, lambda: self._waiter.done)
        return False

    def _sleep(self, seconds: float | None) -> bool:
        if self._reactor is None:
            assert self._gate is not None
            return this_thread().sleep(self._gate, lambda: self._waiter.done, seconds)
        return self._reactor.drive(self._waiter, None if seconds is None else self._reactor.now() + seconds)


class PendingAnswers:
    """The waits of a session's client for its master, which the end of the session ends.

    Attributes:
      over: whether the session was closed.
    """

    def __init__(self, reactor: Clock | None, closed: Callable[[], errors.OpError]) -> None:
        self._reactor = reactor
        self._closed = closed
        self._lock = lock("client pending")
        self.over = False
        self._answers: set[Answer[Any]] = set()

    @contextlib.contextmanager
    def new(self) -> Iterator[Answer[Any]]:
        """An answer to wait for in the block.

        Raises:
          OpError: when the session was closed.
        """
        answer: Answer[Any] = Answer(self._reactor)
        if not self.unless_over(lambda: self._answers.add(answer)):
            raise self._closed()
        try:
            yield answer
        finally:
            self._answers.discard(answer)

    def unless_over(self, store: Callable[[], None]) -> bool:
        """Stores something that `stop` finds; False: the session was closed before, and nothing is stored."""
        with self._lock:
            if not self.over:
                store()
            return not self.over

    def stop(self) -> None:
        """Begins the end of the session: nothing is stored any more."""
        with self._lock:
            self.over = True

    def end(self) -> None:
        """Ends all waits with the error of a closed session, and those to come."""
        self.stop()
        for answer in list(self._answers):
            answer.done(self._closed())
