"""A pool of receive buffers for large messages on a stream, reused while their pages are warm.

Faulting in fresh pages costs more than receiving into them (64 MB over loopback tcp: 85 ms into
fresh memory, 35 ms into warm memory). So a buffer returns to the pool when the last view of its
message is gone, as blocks of shared memory do. It stays as long as blocks do, see `kept_memory`.
"""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.rpc.kept_memory import KEEP_S, kept_limit
from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.shared_blocks import Loan, lend, size_class

POOL_FROM = 1 << 20  # bytes; for smaller messages the allocator reuses warm memory


def _call_later(delay_s: float, call: Callable[[], None]) -> None:
    """The pool is the process's, and so is its clock."""
    get_reactor().call_later(delay_s, call)


class _Buffer:
    """Memory, and the time since when it is idle. Compared by identity."""

    __slots__ = ("idle_since", "raw")

    def __init__(self, capacity: int) -> None:
        self.raw: Any = np.empty(capacity, np.uint8)
        self.idle_since = 0.0


class ReceiveBuffers:
    """A pool of buffers. Thread-safe without a lock, since a buffer may return inside a garbage collection.

    Args:
      idle_limit: bytes of idle buffers; None: `kept_limit`.
      call_later: (seconds, function): the clock by which idle buffers are given back.
    """

    def __init__(
        self, idle_limit: int | None = None, call_later: Callable[[float, Callable[[], None]], object] = _call_later
    ) -> None:
        self._idle_limit = kept_limit() if idle_limit is None else idle_limit
        self._call_later = call_later
        self._sweep_at = 0.0  # when `_sweep` will have been called; later: its clock was closed before
        self._idle: collections.deque[_Buffer] = collections.deque()  # oldest first
        self._loans: dict[int, Loan] = {}  # by id(): a weak reference's hash is that of its array

    @property
    def idle_bytes(self) -> int:
        """Bytes of idle buffers."""
        return sum(buffer.raw.nbytes for buffer in tuple(self._idle))

    def take(self, nbytes: int) -> tuple[memoryview, np.ndarray[Any, Any]]:
        """Returns memory to receive ``nbytes`` into, and a read-only array of it; users get slices of the array.

        Raises:
          MemoryError: out of memory.
        """
        capacity = size_class(nbytes)
        buffer = self._find(capacity) or _Buffer(capacity)
        memory = memoryview(buffer.raw)
        owner, loan = lend(memory, nbytes, buffer, self._freed)
        self._loans[id(loan)] = loan
        if (now := time.monotonic()) > self._sweep_at:
            self._sweep_at = now + 2 * KEEP_S
            self._call_later(KEEP_S, self._sweep)
        return memory[:nbytes], owner

    def forget_sweep(self) -> None:
        """In a forked child, which has no thread for its parent's timers."""
        self._sweep_at = 0.0

    def _sweep(self) -> None:
        """Gives back what has been idle for long, and comes again while there are buffers."""
        self._sweep_at = 0.0
        self._drop_old(time.monotonic())
        if self._idle or self._loans:
            self._sweep_at = time.monotonic() + 2 * KEEP_S
            self._call_later(KEEP_S, self._sweep)

    def _find(self, capacity: int) -> _Buffer | None:
        for buffer in reversed(tuple(self._idle)):
            if buffer.raw.nbytes == capacity:
                try:
                    self._idle.remove(buffer)
                except ValueError:  # another thread took it
                    continue
                return buffer
        return None

    def _freed(self, loan: Loan) -> None:
        self._loans.pop(id(loan), None)
        buffer: _Buffer = loan.item
        buffer.idle_since = now = time.monotonic()
        self._idle.append(buffer)
        self._drop_old(now)

    def _drop_old(self, now: float) -> None:
        try:
            while self._idle[0].idle_since < now - KEEP_S or self.idle_bytes > self._idle_limit:
                self._idle.popleft()
        except IndexError:  # the pool is empty
            return


RECEIVE_BUFFERS = ReceiveBuffers()
os.register_at_fork(after_in_child=RECEIVE_BUFFERS.forget_sweep)


def memory_for(total: int, keep: bool = True) -> tuple[memoryview, Any]:
    """Allocates memory for a message that arrives in pieces; returns it and a read-only view.

    Args:
      keep: whether the memory goes back to the pool for the next message.
    """
    if total >= POOL_FROM and keep:
        return RECEIVE_BUFFERS.take(total)
    array: Any = np.empty(total, np.uint8)
    memory = memoryview(array)
    return memory, memory.toreadonly()
