"""The task that the steps of a running job wait for most of the time: a slow ps, a straggler. Pure.

One look says little about a job that moves. Of many looks, the share in which the steps of the other tasks come down to
one task is about the share of the time that they wait for it.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass

from tfmini.status.explanation import blames
from tfmini.status.snapshot import ClusterSnapshot

LOOKS = 30
LEAST_LOOKS = 5  # fewer say nothing
LEAST_SHARE = 0.5
_AHEAD = 1.25  # by how much the share of a bottleneck is larger than that of any other task


@dataclass(frozen=True)
class Bottleneck:
    """The steps of other tasks waited for ``task`` (its full name) in this share of the looks; ``waiting``: whose."""

    task: str
    share: float
    waiting: tuple[str, ...]


class Looks:
    """The newest `LOOKS` looks at a cluster."""

    def __init__(self) -> None:
        self._looks: collections.deque[dict[str, set[str]]] = collections.deque(maxlen=LOOKS)

    def take(self, cluster: ClusterSnapshot) -> None:
        """The next look."""
        self._looks.append(blames(cluster))

    def bottleneck(self) -> Bottleneck | None:
        """The task that steps wait for at least `LEAST_SHARE` of the time, clearly more than for any other one."""
        if len(self._looks) < LEAST_LOOKS:
            return None
        waiting: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for look in self._looks:
            for master, blamed in look.items():
                for task in blamed:
                    waiting[task][master] += 1
        asked = collections.Counter(master for look in self._looks for master in look)
        shares = {task: who.total() / (asked.total() - asked[task]) for task, who in waiting.items()}
        first, second = [*sorted(shares, key=lambda task: -shares[task]), None, None][:2]
        if first is None or shares[first] < max(LEAST_SHARE, _AHEAD * shares.get(second or "", 0.0)):
            return None
        return Bottleneck(first, shares[first], tuple(sorted(waiting[first])))
