"""Calls that other threads want made in the thread of a loop with a selector."""

from __future__ import annotations

import collections
import contextlib
import selectors
import socket
from collections.abc import Callable
from typing import Any


class LoopCalls:
    """Hands what other threads learn to the one thread that decides.

    An engine and an agent have their state in one thread, which waits in a selector; rpc, a scheduler's client and
    threads that read output report to it by `put`. All else is called by that thread.
    """

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._calls: collections.deque[tuple[Callable[..., Any], tuple[Any, ...]]] = collections.deque()
        self._read, self._write = socket.socketpair()
        for end in (self._read, self._write):  # the writing end, too: a full buffer wakes as well
            end.setblocking(False)
        selector.register(self._read, selectors.EVENT_READ, self._make)

    def put(self, call: Callable[..., Any], *args: Any) -> None:
        """Makes a call in the loop's thread, after those that were put before. From any thread."""
        self._calls.append((call, args))
        with contextlib.suppress(OSError):  # the loop is over, or has not read enough wakes yet
            self._write.send(b"x")

    def _make(self) -> None:
        # What was written is read first: a call that is put from now on wakes the loop again.
        with contextlib.suppress(BlockingIOError):
            self._read.recv(4096)
        while self._calls:
            call, args = self._calls.popleft()
            call(*args)

    def close(self) -> None:
        """Makes no call any more."""
        self._calls.clear()
        if self._read in self._selector.get_map():
            self._selector.unregister(self._read)
        self._read.close()
        self._write.close()
