"""Estimates the offset of another task's clock from requests and answers that carry times, as NTP does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfmini import errors
from tfmini.rpc.messages import Logging
from tfmini.runtime.trace.record import clock, wall_offset_ns

if TYPE_CHECKING:
    from tfmini.rpc.peer import Peer

QUESTIONS = 8
_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Alignment:
    """The offset to subtract from a task's times, and its largest error, in nanoseconds."""

    offset_ns: int
    error_ns: int


OWN = Alignment(0, 0)


def alignment(asked_ns: int, theirs_ns: int, answered_ns: int) -> Alignment:
    """From one exchange: our time when we asked, their time in the answer, our time when it came.

    The other task read its clock between our two readings, so the error is at most half their distance. An
    offset smaller than its error counts as 0.
    """
    offset = theirs_ns - (asked_ns + answered_ns) // 2
    error = (answered_ns - asked_ns + 1) // 2
    return Alignment(0 if abs(offset) <= error else offset, error)


def ask_clock(peer: Peer, told: Callable[[Alignment | None], None], questions: int = QUESTIONS) -> None:
    """Asks a task for its time, a few questions one after the other, and keeps the quickest answer's.

    Args:
      told: called once, with None when the task does not answer.
    """
    offset_ns = wall_offset_ns()
    found: list[Alignment] = []

    def ask() -> None:
        asked = clock()
        peer.call(Logging(0), lambda answer: answered(asked, answer), timeout_s=_TIMEOUT_S)

    def answered(asked: int, answer: Any) -> None:
        now = clock()
        if not isinstance(answer, errors.OpError):
            found.append(alignment(asked + offset_ns, answer.clock_ns, now + offset_ns))
            if len(found) < questions:
                ask()
                return
        told(min(found, key=lambda each: each.error_ns, default=None))

    ask()
