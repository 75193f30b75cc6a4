"""A pool of receive buffers for large messages on a stream, reused while their pages are warm.

Faulting in fresh pages costs more than receiving into them (64 MB over loopback tcp: 85 ms into
fresh memory, 35 ms into warm memory). So a buffer returns to the pool when the last view of its
message is gone, as blocks of shared memory do.
"""

from __future__ import annotations

import collections
import time
from typing import Any

import numpy as np

from tfmini.rpc.shared_blocks import Loan, lend, size_class

POOL_FROM = 1 << 20  # bytes; for smaller messages the allocator reuses warm memory
IDLE_LIMIT = 256 << 20  # bytes of idle buffers in the process
_KEEP_S = 30.0  # an idle buffer that is older is dropped when another one returns


class _Buffer:
    """Memory, and the time since when it is idle. Compared by identity."""

    __slots__ = ("idle_since", "raw")

    def __init__(self, capacity: int) -> None:
        self.raw: Any = np.empty(capacity, np.uint8)
        self.idle_since = 0.0


class ReceiveBuffers:
    """A pool of buffers. Thread-safe without a lock, since a buffer may return inside a garbage collection."""

    def __init__(self, idle_limit: int = IDLE_LIMIT) -> None:
        self._idle_limit = idle_limit
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
        return memory[:nbytes], owner

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
        try:
            while self._idle[0].idle_since < now - _KEEP_S or self.idle_bytes > self._idle_limit:
                self._idle.popleft()
        except IndexError:  # the pool is empty
            return


RECEIVE_BUFFERS = ReceiveBuffers()


def memory_for(total: int) -> tuple[memoryview, Any]:
    """Allocates memory for a message that arrives in pieces; returns it and a read-only view."""
    if total >= POOL_FROM:
        return RECEIVE_BUFFERS.take(total)
    memory = memoryview(bytearray(total))
    return memory, memory.toreadonly()
