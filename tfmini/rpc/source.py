"""Event sources: file descriptors that the reactor watches."""

from __future__ import annotations

import logging
from _thread import allocate_lock
from collections.abc import Callable
from typing import Protocol

_log = logging.getLogger("tfmini.rpc")


class _Loop(Protocol):
    def handle_again(self, fd: int) -> None: ...


class Source:
    """A watched file descriptor. Its callback runs in one thread at a time.

    ``after`` is called after each callback and may take long, since another thread may run the callback
    meanwhile. ``hung_up`` turns true when the peer has closed its end; reading then ends with end of file.
    """

    __slots__ = ("_callback", "_lock", "_pending", "_reactor", "after", "fd", "hung_up")

    def __init__(self, fd: int, callback: Callable[[], None], reactor: _Loop) -> None:
        self.fd = fd
        self.hung_up = False
        self.after: Callable[[], None] | None = None
        self._callback = callback
        self._pending = False
        self._lock = allocate_lock()
        self._reactor = reactor

    def ready(self) -> None:
        """Runs the callback; if another thread is running it, that thread runs it once more."""
        self._pending = True
        while self._pending:
            if not self._lock.acquire(False):
                return
            try:
                self._pending = False
                self._callback()
            except Exception:  # noqa: BLE001 - see below
                # A bug in one handler must not end the loop.
                _log.exception("a handler of descriptor %d failed", self.fd)
            finally:
                self._lock.release()
            if self.after is not None:
                self.after()

    def again(self) -> None:
        """Schedules the callback even if no new event arrives. From any thread."""
        self._reactor.handle_again(self.fd)
