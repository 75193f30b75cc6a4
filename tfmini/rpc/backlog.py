"""The budget of bytes that are queued for peers that read slowly or not at all."""

from __future__ import annotations

import time

from tfmini import errors

BACKLOG_LIMIT = 2 << 30  # bytes queued for a peer that reads nothing
STALLED_LIMIT = 8 << 30  # bytes queued for all peers together that read nothing
FAIR_SHARE = 64 << 20  # bytes that may be queued for each of them even then
_STALLED_S = 4.0
_SLOW_FACTOR = 8  # multiplies the limit for a peer that reads slowly
SMALL_BYTES = 64 << 10  # up to here a message is queued beyond the limits: the error or the end of a step
_SMALL_LIMIT = 64 << 20  # bytes of such messages; beyond it the connection ends

_large_queues: set[Backlog] = set()  # those of this process that hold more than their share


class Backlog:
    """Counts the bytes queued for one peer and refuses messages when they are too many.

    One message may be larger than the limit, so the limit is higher for a peer that makes progress. The caller of
    each method holds the lock of the queue.
    """

    __slots__ = ("_is_large", "_moved_at", "_small", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._is_large = False
        self._small = 0  # bytes of small messages beyond the limit
        self._moved_at = 0.0

    def add(self, nbytes: int) -> None:
        """Counts bytes that were queued."""
        if not self.bytes:
            self._moved_at = time.monotonic()
        self.bytes += nbytes
        if self.bytes > FAIR_SHARE and not self._is_large:
            self._is_large = True
            _large_queues.add(self)

    def take(self, nbytes: int) -> None:
        """Counts bytes that were sent."""
        self.bytes -= nbytes
        self._small = 0
        self._moved_at = time.monotonic()
        if self._is_large and self.bytes <= FAIR_SHARE:
            self._shrink()

    def clear(self) -> None:
        """Sets the count to zero."""
        self.bytes = self._small = 0
        self._shrink()

    def _shrink(self) -> None:
        self._is_large = False
        _large_queues.discard(self)

    def refusal(self, nbytes: int) -> str:
        """Checks a message that would have to be queued.

        Returns:
          the reason to end the connection; "" if the message may be queued.

        Raises:
          errors.ResourceExhaustedError: the message is too large for the room that is left.
        """
        reason = self._excess()
        if not reason:
            return ""
        if nbytes > SMALL_BYTES:
            raise errors.ResourceExhaustedError.of(
                f"{reason}. Another message of {nbytes} bytes is refused. The peer is stopped, stuck or overloaded, or"
                " asks for more than it reads: read the answers of steps before you start others."
            )
        self._small += nbytes
        return reason if self._small > _SMALL_LIMIT else ""

    def _excess(self) -> str:
        if self.bytes <= FAIR_SHARE:
            return ""
        if self.bytes > _SLOW_FACTOR * BACKLOG_LIMIT:
            return f"{self.bytes} bytes are queued for the peer, which reads too slowly"
        if not self._is_stalled(now := time.monotonic()):
            return ""
        if self.bytes > BACKLOG_LIMIT:
            return f"the peer does not read: {self.bytes} bytes are queued for it"
        total = sum(queue.bytes for queue in list(_large_queues) if queue._is_stalled(now))
        if total <= STALLED_LIMIT:
            return ""
        return f"the peer does not read: {self.bytes} bytes are queued for it, and {total} for all peers that do not"

    def _is_stalled(self, now: float) -> bool:
        return now >= self._moved_at + _STALLED_S
