"""The send queue of a non-blocking stream socket, and the buffers in which such a socket receives.

Large pieces are queued without a copy: a sender does not change an array while another object holds it
(see decision 3), and the queue holds it.
"""

from __future__ import annotations

import collections
import os
import socket
import time
from _thread import allocate_lock
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.rpc.reactor import get_reactor
from tfmini.rpc.shared_blocks import KEEP_S, Loan, kept_limit, lend, size_class
from tfmini.rpc.transport import Backlog

_JOIN_LIMIT = 256 << 10  # bytes; up to here, joining the pieces is faster than sendmsg
TURN = 16 << 20  # bytes written before the reactor serves other sources
_IOV_LIMIT = 1000


class SendQueue:
    """Writes to a socket and queues the bytes that it does not accept. The caller of each method holds `lock`.

    Args:
      on_backlog: called when the queue is no longer empty.
      on_broken: called with the reason when the connection has broken.
    """

    def __init__(self, sock: socket.socket, on_backlog: Callable[[], None], on_broken: Callable[[str], None]) -> None:
        self.lock = allocate_lock()
        self._backlog = Backlog()
        self._sock = sock
        self._queue: collections.deque[Any] = collections.deque()
        self._on_backlog = on_backlog
        self._on_broken = on_broken

    def __bool__(self) -> bool:
        """Whether anything is queued."""
        return bool(self._queue)

    @property
    def bytes(self) -> int:
        """The number of queued bytes."""
        return self._backlog.bytes

    def write(self, pieces: list[Any], total: int) -> None:
        """Writes as much as the socket accepts and queues the rest.

        Raises:
          errors.ResourceExhaustedError: too much is queued already.
        """
        if self._queue:
            if self.has_room(total):
                self._enqueue(pieces, 0)
            return
        try:
            if len(pieces) == 1:
                sent = self._sock.send(pieces[0])
            elif total <= _JOIN_LIMIT:
                sent = self._sock.send(b"".join(pieces))
            else:
                sent = self._sock.sendmsg(pieces[:_IOV_LIMIT])
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._on_broken(f"the connection broke: {error}")
            return
        if sent < total:
            self._enqueue(pieces, sent)
            self._on_backlog()

    def has_room(self, nbytes: int) -> bool:
        """Whether so many bytes may be queued; False: the connection has been ended, since its queue is full.

        Raises:
          errors.ResourceExhaustedError: too much is queued already, and the message is large.
        """
        reason = self._backlog.refusal(nbytes) if self else ""
        if reason:
            self._on_broken(reason)
        return not reason

    def _enqueue(self, pieces: list[Any], skip: int) -> None:
        """Queues all but the first ``skip`` bytes; joins small neighbours."""
        small: list[Any] = []
        for piece in pieces:
            if skip >= len(piece):
                skip -= len(piece)
                continue
            rest = memoryview(piece)[skip:] if skip else piece
            skip = 0
            self._backlog.add(len(rest))
            if len(rest) < _JOIN_LIMIT:
                small.append(rest)
                continue
            self._append_joined(small)
            self._queue.append(rest)
        self._append_joined(small)

    def _append_joined(self, small: list[Any]) -> None:
        if small:
            self._queue.append(b"".join(small))
            small.clear()

    def flush(self) -> bool:
        """Writes queued bytes; returns True if the queue is empty or `TURN` bytes were written."""
        budget = TURN
        while self._queue and budget > 0:
            first = self._queue[0]
            try:
                sent = self._sock.send(first)
            except BlockingIOError:
                return False
            except OSError as error:
                self._on_broken(f"the connection broke: {error}")
                return False
            self._backlog.take(sent)
            budget -= sent
            if sent < len(first):
                self._queue[0] = memoryview(first)[sent:]
            else:
                self._queue.popleft()
        return True

    def write_last(self) -> None:
        """Ends the stream after the queued messages, where its format has an end."""

    def clear(self) -> None:
        """Drops the queued bytes."""
        self._queue.clear()
        self._backlog.clear()


# ---- A pool of receive buffers for large messages on a stream, reused while their pages are warm -------------------
# Faulting in fresh pages costs more than receiving into them (64 MB over loopback tcp: 85 ms into
# fresh memory, 35 ms into warm memory). So a buffer returns to the pool when the last view of its
# message is gone, as blocks of shared memory do. It stays as long as blocks do, see `kept_limit`.

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

    @property
    def lent(self) -> int:
        """How many buffers are in use."""
        return len(self._loans)

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
