"""Event sources: file descriptors that the reactor watches."""

from __future__ import annotations

import logging
from _thread import allocate_lock
from collections.abc import Callable
from typing import Any, Protocol

_log = logging.getLogger("tfmini.rpc")


class _Loop(Protocol):
    def call_soon(self, call: Callable[..., Any], *args: Any) -> None: ...
    def handle_again(self, fd: int) -> None: ...


class EventSource:
    """A watched file descriptor. Its callback runs in one thread at a time.

    ``after`` is called after each callback and may take long, since another thread may run the callback
    meanwhile. ``hung_up`` turns true when the peer has closed its end; reading then ends with end of file.
    """

    __slots__ = ("_after", "_callback", "_is_queued", "_lock", "_pending", "_reactor", "_stopped", "fd", "hung_up")

    def __init__(
        self, fd: int, callback: Callable[[], None], reactor: _Loop, after: Callable[[], None] | None = None
    ) -> None:
        self.fd = fd
        self.hung_up = False
        self._after = after
        self._callback = callback
        self._pending = False
        self._is_queued = False  # whether the reactor has a call of `_go_on`
        self._stopped = False  # whether the callback left work for later
        self._lock = allocate_lock()
        self._reactor = reactor

    def ready(self) -> None:
        """Runs the callback; if another thread is running it, that thread runs it once more."""
        self._pending = True
        while self._pending:
            if not self._lock.acquire(False):
                return
            try:
                self._pending = self._stopped = False
                self._callback()
                if not self._stopped:
                    self._is_queued = False  # nothing is left; an interrupt may have lost the queued call
            except Exception:  # noqa: BLE001 - see below
                # A bug in one handler must not end the loop.
                _log.exception("a handler of descriptor %d failed", self.fd)
            except BaseException:  # KeyboardInterrupt: the kernel does not report again what is left unread
                self.again()
                raise
            finally:
                self._lock.release()
            if self._after is not None:
                if self._pending:
                    self.again()
                self._after()

    def look(self) -> None:
        """Runs the callback without ``after``, from a thread that does not run the loop; see `relief`."""
        if self._lock.acquire(False):
            try:
                self._callback()
            finally:
                self._lock.release()
            self.again()  # for whatever the loop has found meanwhile, and for ``after``

    def again(self) -> None:
        """Schedules the callback, once, even if no new event arrives. From any thread.

        A callback that stops after a while, to let other sources and timers have their turn, calls it to go on.
        More than one scheduled call would multiply: each of them schedules the next ones.
        """
        self._stopped = True
        if not self._is_queued:
            self._is_queued = True
            self._reactor.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_queued = False
        # Not here itself: the callback may take long, and queued calls run one at a time.
        self._reactor.handle_again(self.fd)
