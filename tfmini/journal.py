"""What this process has to tell of its training: the latest scalars of its summaries, and checkpoints.

Whoever writes a summary or a checkpoint notes it here; `tfmini status` and the live page read it. Bounded, and safe for
use by several threads.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any, NamedTuple

SAVED, RESTORED = "saved", "restored"
_TAGS, _EVENTS = 200, 100


class Scalar(NamedTuple):
    """The latest value of a tag. ``time_s``: seconds since 1970."""

    tag: str
    step: int
    value: float
    time_s: float


class Happening(NamedTuple):
    """Something that happened once. ``kind``: `SAVED` or `RESTORED`; ``subject``: the checkpoint's prefix."""

    time_s: float
    kind: str
    subject: str


class Journal:
    """See the module. It keeps the 200 tags that were written last and the latest 100 events."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scalars: OrderedDict[str, Scalar] = OrderedDict()
        self._happenings: deque[Happening] = deque(maxlen=_EVENTS)

    def note_summary(self, values: Iterable[Any], step: int, time_s: float) -> None:
        """Notes the scalars among the values of a Summary message."""
        found = [Scalar(v.tag, step, v.simple_value, time_s) for v in values if v.HasField("simple_value")]
        if not found:
            return
        with self._lock:
            for scalar in found:
                self._scalars[scalar.tag] = scalar
                self._scalars.move_to_end(scalar.tag)
            while len(self._scalars) > _TAGS:
                self._scalars.popitem(last=False)

    def note(self, kind: str, subject: str) -> None:
        """Notes an event that happens now."""
        with self._lock:
            self._happenings.append(Happening(time.time(), kind, subject))

    def scalars(self) -> list[Scalar]:
        """The latest value of each tag, by tag."""
        with self._lock:
            return sorted(self._scalars.values())

    def happenings(self) -> list[Happening]:
        """The latest events, oldest first."""
        with self._lock:
            return list(self._happenings)

    def after_fork(self) -> None:
        """For the child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()


journal = Journal()
"""The journal of this process."""
os.register_at_fork(after_in_child=journal.after_fork)
