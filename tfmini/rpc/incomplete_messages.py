"""Ends connections that send bytes without end and complete no message.

ZeroMQ limits the bytes of a frame and not the number of frames of a message, and it holds 64 bytes per frame until the
message is complete. So an endless message of empty frames, which cost two bytes each on the wire, would fill the
memory. The bytes that the kernel has received for a connection tell: our messages have at most 256 KiB over ZeroMQ.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tfmini.rpc.waiter import Clock

INTERVAL_S = 0.1  # between two looks; ZeroMQ's thread reads some 10 MB of empty frames in this time
PENDING_BYTES = 128 << 10  # of a connection that is not admitted: the handshake
ADMITTED_BYTES = 1 << 20  # a message, and what ZeroMQ reads ahead


class _Watched:
    __slots__ = ("baseline", "is_admitted", "messages", "seen")

    def __init__(self) -> None:
        self.baseline = 0  # bytes that had arrived when the last message was complete
        self.seen = self.messages = 0  # complete messages: at the last look, and now
        self.is_admitted = False


class IncompleteMessages:
    """Watches the connections of one listener; see the module. Thread-safe.

    Args:
      received: the bytes that the listener's socket has read from a descriptor.
      is_drained: whether all complete messages have been read from the listener's socket.
      end: ends the connection of a descriptor.
    """

    def __init__(
        self,
        clock: Clock,
        received: Callable[[int], int],
        is_drained: Callable[[], bool],
        end: Callable[[int], None],
    ) -> None:
        self._clock = clock
        self._received = received
        self._is_drained = is_drained
        self._end = end
        self._lock = threading.Lock()
        self._watched: dict[int, _Watched] = {}
        self._timer_runs = False

    def add(self, fd: int) -> None:
        """A connection has been accepted."""
        with self._lock:
            self._watched[fd] = _Watched()
            starts, self._timer_runs = not self._timer_runs, True
        if starts:
            self._clock.call_later(INTERVAL_S, self._look)

    def remove(self, fd: int) -> None:
        """A connection has ended."""
        with self._lock:
            self._watched.pop(fd, None)

    def message(self, fd: int) -> None:
        """A complete message has been read."""
        watched = self._watched.get(fd)
        if watched is not None:
            watched.messages += 1

    def admitted(self, fd: int) -> None:
        """The handshake of a connection is complete."""
        watched = self._watched.get(fd)
        if watched is not None:
            watched.is_admitted = True

    def _look(self) -> None:
        with self._lock:
            self._timer_runs = bool(self._watched)
            watched = list(self._watched.items())
        if not self._timer_runs:
            return
        self._clock.call_later(INTERVAL_S, self._look)
        suspects = []
        for fd, item in watched:
            received, messages = self._received(fd), item.messages
            if messages != item.seen:
                item.seen, item.baseline = messages, received
            elif received - item.baseline > (ADMITTED_BYTES if item.is_admitted else PENDING_BYTES):
                suspects.append((fd, item))
        # Complete messages may wait here, which is no fault of their senders. So this question comes last.
        if suspects and self._is_drained():
            for fd, item in suspects:
                if item.messages == item.seen:
                    self._end(fd)
