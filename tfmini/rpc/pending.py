"""Pending connections: a listener has accepted them, and their peers have not been admitted yet.

Whoever reaches a port can connect to it and say nothing, so a listener bounds the number of these connections
and their time. The oldest one is ended first: a client, which needs some round trips only, is admitted even if
somebody else opens connections all the time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from tfmini.rpc.waiter import Clock

PENDING_LIMIT = 256  # connections of a listener
ADMISSION_S = 8.0  # from the accepted connection to the end of the handshake; clients give up earlier

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class PendingConnections(Generic[K, T]):
    """The pending connections of one listener: an item for each key. Thread-safe.

    Args:
      end: ends a connection that was pending for too long, or was the oldest of too many; gets its key and item.
    """

    def __init__(self, clock: Clock, end: Callable[[K, T], None]) -> None:
        self._clock = clock
        self._end = end
        self._lock = threading.Lock()
        self._table: dict[K, tuple[T, float]] = {}  # the item, and when its time is over; the oldest comes first
        self._timer_runs = False

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, key: K) -> bool:
        return key in self._table

    def add(self, key: K, item: T) -> None:
        """Adds a connection; ends the oldest one if there are too many."""
        with self._lock:
            self._table.pop(key, None)
            self._table[key] = item, self._clock.now() + ADMISSION_S
            starts, self._timer_runs = not self._timer_runs, True
        if starts:
            self._clock.call_later(ADMISSION_S, self._check)
        self._end_while(lambda until: len(self._table) > PENDING_LIMIT)

    def pop(self, key: K) -> T | None:
        """Removes a connection, because it is admitted or has ended; returns its item, None if it is not pending."""
        with self._lock:
            item, _ = self._table.pop(key, (None, 0.0))
        return item

    def _check(self) -> None:
        """Ends the connections that are pending for too long."""
        now = self._clock.now()
        next_at = self._end_while(lambda until: until <= now, by_timer=True)
        if next_at is not None:
            self._clock.call_later(next_at - now, self._check)

    def close(self) -> None:
        """Ends all connections."""
        self._end_while(lambda until: True)

    def _end_while(self, must_end: Callable[[float], bool], by_timer: bool = False) -> float | None:
        """Ends the oldest connections, as long as their time says so; returns when that of the next one is over."""
        ended: list[tuple[K, T]] = []
        with self._lock:
            while (oldest := next(iter(self._table.items()), None)) is not None and must_end(oldest[1][1]):
                del self._table[oldest[0]]
                ended.append((oldest[0], oldest[1][0]))
            if by_timer:
                self._timer_runs = oldest is not None
        for connection in ended:
            self._end(*connection)
        return oldest[1][1] if oldest is not None else None
