"""The send queue of a non-blocking stream socket.

Large pieces are queued without a copy: a sender does not change an array while another object holds it
(see decision 3), and the queue holds it.
"""

from __future__ import annotations

import collections
import socket
from _thread import allocate_lock
from collections.abc import Callable
from typing import Any

from tfmini.rpc.backlog import Backlog

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
