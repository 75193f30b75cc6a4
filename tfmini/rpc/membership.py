"""Decisions about peers as plain state: no socket, thread or clock. Time comes in as numbers."""

from __future__ import annotations

import enum

BEAT_AFTER_S = 1.0
LOST_AFTER_S = 4.0
TICK_S = 0.25


class Verdict(enum.Enum):
    """What to do about a connection at a tick."""

    FINE = enum.auto()
    BEAT = enum.auto()  # say something: we have been quiet
    LOST = enum.auto()  # the peer has been quiet for too long


class Liveness:
    """Watches one connection by its message counters, so that the hot path only counts.

    A tick that comes late counts as two at most: when this process itself was stopped or busy,
    the peer's messages may be waiting unread, and that is not the peer's silence.
    """

    __slots__ = ("_quiet_s", "_received", "_sent", "silence_s")

    def __init__(self) -> None:
        self.silence_s = 0.0
        self._quiet_s = 0.0
        self._received = -1
        self._sent = -1

    def tick(self, elapsed_s: float, received: int, sent: int) -> Verdict:
        """Judges the connection, ``elapsed_s`` seconds after the last tick."""
        elapsed_s = min(elapsed_s, 2 * TICK_S)
        self.silence_s = 0.0 if received != self._received else self.silence_s + elapsed_s
        self._quiet_s = 0.0 if sent != self._sent else self._quiet_s + elapsed_s
        self._received, self._sent = received, sent
        if self.silence_s >= LOST_AFTER_S:
            return Verdict.LOST
        if self._quiet_s >= BEAT_AFTER_S:
            return Verdict.BEAT
        return Verdict.FINE


class Backoff:
    """When to try to connect again: 50 ms after the first failure, doubling up to a second."""

    FIRST_S, LIMIT_S = 0.05, 1.0

    def __init__(self) -> None:
        self._next_s = self.FIRST_S

    def failed(self) -> float:
        """Seconds to wait after one more failure."""
        delay = self._next_s
        self._next_s = min(self.LIMIT_S, delay * 2)
        return delay

    def succeeded(self) -> None:
        """Starts over."""
        self._next_s = self.FIRST_S


class RecentIds:
    """The last so many request ids, to refuse a request that comes twice.

    Two generations of a set: between ``limit`` and twice as many ids are known. At 5,000 steps a
    second 100,000 ids are 20 seconds, longer than any sender tries again.
    """

    __slots__ = ("_limit", "_old", "_young")

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._young: set[int] = set()
        self._old: set[int] = set()

    def is_new(self, request_id: int) -> bool:
        """Notes an id; False when it is known already."""
        young = self._young
        if request_id in young or request_id in self._old:
            return False
        young.add(request_id)
        if len(young) >= self._limit:
            self._old, self._young = young, set()
        return True
