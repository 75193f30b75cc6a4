"""Tensors that arrive before their step: the sender was started first, or the RunGraph is still in flight.

They are kept by step until the step takes them. A step that never starts must not keep memory for
ever, so both steps and bytes are bounded. The oldest step is dropped first; if it starts after all, it fails with that
reason instead of waiting for the dropped tensors.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini import errors

STEP_LIMIT = 10_000
BYTE_LIMIT = 4 << 30  # bytes; the latest step may exceed it alone


class EarlyTensors:
    """See the module. Not thread-safe: its worker holds a lock.

    Args:
      task: who keeps them, for messages.
    """

    def __init__(self, task: str, step_limit: int = STEP_LIMIT, byte_limit: int = BYTE_LIMIT) -> None:
        self._task = task
        self._step_limit = step_limit
        self._byte_limit = byte_limit
        self._steps: collections.OrderedDict[int, list[Any]] = collections.OrderedDict()  # oldest first
        self._bytes: dict[int, int] = {}
        self._dropped: collections.OrderedDict[int, None] = collections.OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        """How many steps have tensors here."""
        return len(self._steps)

    def add(self, step_id: int, entry: Any, values: Sequence[Any]) -> None:
        """Keeps ``entry``, which holds ``values``, for a step."""
        if step_id in self._dropped:
            return  # the step has lost some already
        size = sum(value.nbytes for value in values if isinstance(value, np.ndarray))
        self._steps.setdefault(step_id, []).append(entry)
        self._bytes[step_id] = self._bytes.get(step_id, 0) + size
        self.bytes += size
        while len(self._steps) > self._step_limit or self.bytes > self._byte_limit and len(self._steps) > 1:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = next(iter(self._steps))
        self.take(oldest)
        self._dropped[oldest] = None
        while len(self._dropped) > self._step_limit:
            self._dropped.popitem(last=False)

    def take(self, step_id: int) -> Sequence[Any]:
        """Takes out what has come for a step."""
        self.bytes -= self._bytes.pop(step_id, 0)
        return self._steps.pop(step_id, ())

    def loss(self, step_id: int) -> errors.ResourceExhaustedError | None:
        """The error of a step whose tensors have been dropped, or None."""
        if step_id not in self._dropped:
            return None
        del self._dropped[step_id]
        text = (
            f"Tensors for step {step_id} came to {self._task} long before the step did and were dropped, because"
            f" {self._byte_limit} bytes or {self._step_limit} steps of such tensors were waiting here. Is the master"
            " of the step overloaded or cut off?"
        )
        return errors.ResourceExhaustedError.of(text)
