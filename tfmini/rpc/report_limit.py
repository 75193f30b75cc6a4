"""`ReportLimit`: how many errors of its peers an endpoint logs. A peer could otherwise fill the disk with them."""

from __future__ import annotations

LINES, PERIOD_S = 200, 10.0


class ReportLimit:
    """Lets `LINES` lines pass in each `PERIOD_S` seconds. Its callers may race: then a line more or less passes."""

    __slots__ = ("_begun", "_passed", "_left_out")

    def __init__(self) -> None:
        self._begun = float("-inf")
        self._passed = self._left_out = 0

    def passes(self, now: float) -> str | None:
        """What to say behind the line, "" mostly; None: the line is left out."""
        text = ""
        if now - self._begun >= PERIOD_S:
            if self._left_out:
                text = f" ({self._left_out} more such errors were not logged before)"
            self._begun, self._passed, self._left_out = now, 0, 0
        if self._passed >= LINES:
            self._left_out += 1
            return None
        self._passed += 1
        return text
