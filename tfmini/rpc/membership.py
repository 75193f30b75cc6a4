"""Failure detection, back-off and duplicate detection as plain state: no socket, thread or clock."""

from __future__ import annotations

import enum
import os

LOST_AFTER_ENV = "TFMINI_LOST_AFTER"


def _lost_after_s() -> float:
    text = os.environ.get(LOST_AFTER_ENV, "") or "4"
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 2 <= seconds <= 86400:
        raise ValueError(f"{LOST_AFTER_ENV} must be a number of seconds from 2 to 86400, got {text!r}.")
    return seconds


BEAT_AFTER_S = 1.0
LOST_AFTER_S = _lost_after_s()
TICK_S = 0.25


class Verdict(enum.Enum):
    """The result of a check of one connection."""

    FINE = enum.auto()
    BEAT = enum.auto()  # send a heartbeat
    LOST = enum.auto()  # the peer has sent nothing for too long


class Liveness:
    """Detects a silent peer from the counters of one connection, so that the hot path only counts.

    A late tick counts as two ticks at most: if this process was stopped or busy, the peer's messages
    may be waiting unread, so the peer is not silent.
    """

    __slots__ = ("_quiet_s", "_received", "_sent", "silence_s")

    def __init__(self) -> None:
        self.silence_s = 0.0
        self._quiet_s = 0.0
        self._received = -1
        self._sent = -1

    def tick(self, elapsed_s: float, received: int, sent: int) -> Verdict:
        """Checks the connection, ``elapsed_s`` seconds after the last tick."""
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
    """The delay before the next attempt to connect: 50 ms after the first failure, doubling up to a second."""

    FIRST_S, LIMIT_S = 0.05, 1.0

    def __init__(self) -> None:
        self._next_s = self.FIRST_S

    def failed(self) -> float:
        """Seconds to wait after one more failure."""
        delay = self._next_s
        self._next_s = min(self.LIMIT_S, delay * 2)
        return delay

    def succeeded(self) -> None:
        """Resets the delay."""
        self._next_s = self.FIRST_S


class RecentIds:
    """The most recent request ids, to refuse a request that arrives twice.

    It has two generations, so it knows between ``limit`` and twice as many ids. At 5,000 steps a
    second, 100,000 ids last for 20 seconds, longer than any sender retries.
    """

    __slots__ = ("_limit", "_new", "_old")

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._new: set[int] = set()
        self._old: set[int] = set()

    def is_new(self, request_id: int) -> bool:
        """Adds an id; returns False when it is known already."""
        new = self._new
        if request_id in new or request_id in self._old:
            return False
        new.add(request_id)
        if len(new) >= self._limit:
            self._old, self._new = new, set()
        return True
