"""The ledger of an accumulator: per step and contributor, how many gradients were accepted and dropped.

It records only gradients with a contributor, such as those of synchronous training.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

_STEPS_KEPT = 10_000


class _Entry:
    __slots__ = ("step", "accepted", "stale", "taken")

    def __init__(self, step: int) -> None:
        self.step = step
        self.accepted: Counter[str] = Counter()
        self.stale: Counter[str] = Counter()
        self.taken = False


class AccumulatorLedger:
    """The entries of one accumulator, one per global step, oldest first; the caller holds the accumulator's lock.

    Entries beyond a bound are removed; their counts are added to ``forgotten``.
    """

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        self._latest: list[_Entry] = []  # those of the latest mean
        self.forgotten = Counter[str]()

    def note(self, step: int, who: str, fresh: bool) -> None:
        """Records a gradient that arrived at global step ``step``; it was accepted if ``fresh``, else dropped."""
        entry = self._entry(step)
        (entry.accepted if fresh else entry.stale)[who] += 1

    def taken(self, step: int) -> None:
        """Records that the mean of all accepted gradients was taken at ``step``."""
        self._entry(step)
        self._latest = []
        for entry in reversed(self._entries):
            if entry.taken:
                break
            entry.taken = True
            self._latest.append(entry)

    def reopen(self) -> None:
        """Takes the latest `taken` back."""
        for entry in self._latest:
            entry.taken = False

    def waiting(self) -> set[str]:
        """Those whose accepted gradients no mean has taken yet."""
        found: set[str] = set()
        for entry in reversed(self._entries):
            if entry.taken:
                break
            found.update(entry.accepted)
        return found

    def discard(self) -> None:
        """Records that all gradients since the last mean were dropped."""
        for entry in reversed(self._entries):
            if entry.taken:
                break
            entry.stale += entry.accepted
            entry.accepted = Counter()

    def _entry(self, step: int) -> _Entry:
        if not self._entries or self._entries[-1].step != step:
            self._entries.append(_Entry(step))
            if len(self._entries) > _STEPS_KEPT:
                self._forget(self._entries.popleft())
        return self._entries[-1]

    def _forget(self, entry: _Entry) -> None:
        self.forgotten["applied" if entry.taken else "waiting"] += entry.accepted.total()
        self.forgotten["stale"] += entry.stale.total()

    def as_plain(self) -> dict[str, Any]:
        """The ledger as numbers, strings, lists and dictionaries."""
        return {
            "forgotten": dict(self.forgotten),
            "entries": [
                {"step": e.step, "accepted": dict(e.accepted), "stale": dict(e.stale), "taken": e.taken}
                for e in self._entries
            ],
        }
