"""What a worker counts of the parts of steps that it runs: how many, and how stale their updates were.

The staleness of an update is the number of updates by other steps that ended here while its step ran here: about so
much newer were the variables that it changed than those that it had read. Parts that change no variable do not count.
"""

from __future__ import annotations

from tfmini.runtime.executor.partition_run import PartitionRun
from tfmini.runtime.executor.registered_graph import RegisteredGraph

BUCKETS = 12  # 0, 1, 2-3, 4-7, …; the last one has all above
_MOST = 4096  # a larger staleness counts as this one, which bounds the memory


class Staleness:
    """The staleness of the updates of one session: a few operations per step, and sums when somebody asks.

    Attributes:
      latest: of the latest update.
      counts: staleness -> how many updates had it.
    """

    __slots__ = ("latest", "counts")

    def __init__(self) -> None:
        self.latest = 0
        self.counts: dict[int, int] = {}

    def summary(self) -> tuple[int, float, int, tuple[int, ...]]:
        """(number of updates, mean, maximum, how many had a staleness of 0, 1, 2-3, 4-7, …)."""
        counts = dict(self.counts)
        buckets = [0] * BUCKETS
        for between, count in counts.items():
            buckets[min(between.bit_length(), BUCKETS - 1)] += count
        updates = sum(counts.values())
        total = sum(between * count for between, count in counts.items())
        return updates, total / updates if updates else 0.0, max(counts, default=0), tuple(buckets)


class PartCounts:
    """See the module. The caller of `over` and `end_session` holds the worker's lock.

    Attributes:
      parts, failed: parts that have ended; those of them that ended with an error.
      updates: parts that have changed variables.
      executed: how often graphs that are gone were run by a client's thread alone.
      staleness: by the session's handle.
    """

    __slots__ = ("parts", "failed", "updates", "executed", "staleness")

    def __init__(self) -> None:
        self.parts = self.failed = self.updates = self.executed = 0
        self.staleness: dict[str, Staleness] = {}

    def over(self, run: PartitionRun, updates_before: int, has_failed: bool) -> None:
        """A part has ended. ``updates_before``: the value of `updates` when it began."""
        self.parts += 1
        if has_failed:
            self.failed += 1
        elif run.graph.is_training:
            found = self.staleness.get(run.graph.session_handle)
            if found is None:
                found = self.staleness[run.graph.session_handle] = Staleness()
            found.latest = between = min(self.updates - updates_before, _MOST)
            found.counts[between] = found.counts.get(between, 0) + 1
            self.updates += 1

    def forget(self, graph: RegisteredGraph | None) -> None:
        """A graph is gone."""
        if graph is not None:
            self.executed += graph.executed

    def end_session(self, handle: str) -> None:
        """A session was closed."""
        self.staleness.pop(handle, None)
