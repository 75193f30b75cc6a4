"""Memory for large messages that come by a stream, used again while its pages are warm.

Faulting in fresh pages costs more than receiving into them (64 MB over loopback tcp: 85 ms into
fresh memory, 35 ms into warm). So a buffer goes back to the pool when the last view of its
message has died, as with the blocks of shared memory.
"""

from __future__ import annotations

import collections
import time
import weakref
from typing import Any

import numpy as np

from tfmini.rpc.shared_blocks import size_class

POOL_FROM = 1 << 20  # bytes; below, the allocator's own memory is warm enough
IDLE_LIMIT = 256 << 20  # bytes kept for the whole process
_KEEP_S = 30.0  # an idle buffer that nobody wanted for so long goes when another one comes back


class _Buffer:
    """Memory, and since when nobody uses it. Compared by identity."""

    __slots__ = ("idle_since", "raw")

    def __init__(self, capacity: int) -> None:
        self.raw: Any = np.empty(capacity, np.uint8)
        self.idle_since = 0.0


class _Loan(weakref.ref):
    """Watches the array that stands for one message; knows its memory when it dies."""

    __slots__ = ("buffer",)
    buffer: _Buffer


class ReceiveBuffers:
    """A pool. Thread-safe without a lock, since a buffer may come back inside a garbage collection."""

    def __init__(self, idle_limit: int = IDLE_LIMIT) -> None:
        self._idle_limit = idle_limit
        self._idle: collections.deque[_Buffer] = collections.deque()  # oldest first
        self._loans: dict[int, _Loan] = {}  # by its id: hashing one would hash its array

    @property
    def idle_bytes(self) -> int:
        """Bytes that are kept for the next messages."""
        return sum(buffer.raw.nbytes for buffer in tuple(self._idle))

    def take(self, nbytes: int) -> tuple[memoryview, np.ndarray[Any, Any]]:
        """Memory to receive ``nbytes`` into, and the read-only array of it that users get slices of.

        Raises:
          MemoryError: there is not so much.
        """
        capacity = size_class(nbytes)
        buffer = self._find(capacity) or _Buffer(capacity)
        memory = memoryview(buffer.raw)
        # Its own base is no array, so every view of it has it, and not `raw`, as its base. It is read-only
        # but the memory is not: a client may make what it fetched its own.
        owner = np.frombuffer(memory, np.uint8, nbytes)
        owner.flags.writeable = False
        loan = _Loan(owner, self._freed)
        loan.buffer = buffer
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

    def _freed(self, loan: _Loan) -> None:
        self._loans.pop(id(loan), None)
        loan.buffer.idle_since = now = time.monotonic()
        self._idle.append(loan.buffer)
        try:
            while self._idle[0].idle_since < now - _KEEP_S or self.idle_bytes > self._idle_limit:
                self._idle.popleft()
        except IndexError:  # nothing is left
            return


RECEIVE_BUFFERS = ReceiveBuffers()
