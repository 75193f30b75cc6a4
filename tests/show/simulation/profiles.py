"""A small profile for tests, with round numbers, and a clock."""

from __future__ import annotations

import heapq
import tomllib
from typing import Any

from tfmini.show.simulation.profile import Profile, parse_profile

TEXT = """
[machines.plain]
cores = 2
memory_gb = 8
step_us = 100
part_us = 30
start_us = 20
segment_us = 5

[machines.plain.kernels]
matmul = [[1000, 2], [1000000, 100]]
elementwise = [[64, 1], [1000000, 300]]
update = [[64, 1], [1000000, 500]]

[links.local]
latency_us = 15
send_us = 10
receive_us = 20
us_per_mb = 100

[links.tcp]
gbit_per_s = 8
latency_us = 50
send_us = 20
receive_us = 30
us_per_mb = 200
"""


def plain() -> Profile:
    """Two cores, one curve per important class."""
    return parse_profile(tomllib.loads(TEXT))


class Events:
    """A queue of calls in virtual time; calls of equal times in the order in which they were added."""

    def __init__(self) -> None:
        self._now, self._count = 0.0, 0
        self._heap: list[tuple[float, int, Any, tuple[Any, ...]]] = []

    def now(self) -> float:
        """Seconds since the start."""
        return self._now

    def call_later(self, delay: float, call: Any, *args: Any) -> None:
        """Makes the call after ``delay`` seconds."""
        self._count += 1
        heapq.heappush(self._heap, (self._now + delay, self._count, call, args))

    def run(self) -> None:
        """Makes all calls, until none is left."""
        heap = self._heap
        while heap:
            self._now, _, call, args = heapq.heappop(heap)
            call(*args)
