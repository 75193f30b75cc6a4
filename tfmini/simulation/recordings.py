"""What a thread does between two waits, and what it costs: pieces of CPU time, each with what happens after it.

Code of a simulated task runs at once. Meanwhile its `Recording` collects what it costs and what leaves the task. Then
the machine's cores play the pieces, so that a message leaves when the work before it has been done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tfmini.simulation.prediction import Event

Effect = Callable[[Event], None]
"""Called when the CPU time before it has been spent, with the event that has ended."""


class RecordedPiece(NamedTuple):
    """Seconds of CPU, the op or message that takes most of them, what happens then, and the lock that it holds."""

    seconds: float
    label: str
    effect: Effect | None
    lock: str = ""


class Recording:
    """The pieces of one stretch.

    Args:
      is_pool: whether a thread of the pool runs it.

    Attributes:
      elapsed: seconds of CPU so far. ``factor``: by how much longer than on a warm and idle machine work takes now.
    """

    __slots__ = ("pieces", "elapsed", "factor", "is_pool", "_seconds", "_label", "_longest")

    def __init__(self, is_pool: bool = False) -> None:
        self.pieces: list[RecordedPiece] = []
        self.elapsed, self.factor, self.is_pool = 0.0, 1.0, is_pool
        self._seconds, self._label, self._longest = 0.0, "", 0.0

    def charge(self, seconds: float, label: str = "") -> None:
        """Spends seconds of CPU."""
        self._seconds += seconds
        self.elapsed += seconds
        if seconds > self._longest:
            self._longest, self._label = seconds, label

    def then(self, effect: Effect | None) -> None:
        """Ends a piece; the effect happens after what has been charged so far."""
        if self._seconds or effect is not None:
            self.pieces.append(RecordedPiece(self._seconds, self._label, effect))
        self._seconds, self._label, self._longest = 0.0, "", 0.0

    def charge_locked(self, seconds: float, label: str, lock: str) -> None:
        """Spends seconds of CPU while it holds a lock of the task."""
        self.then(None)
        self.elapsed += seconds
        self.pieces.append(RecordedPiece(seconds, label, None, lock))

    def take(self) -> list[RecordedPiece]:
        """The pieces so far, which are no longer in it."""
        self.then(None)
        pieces, self.pieces = self.pieces, []
        return pieces
