"""Tensors that arrive before their step: the sender was started first, or the RunGraph is still in flight.

They are kept by step until the step takes them. A step that never starts must not keep memory for ever. So steps and
bytes are bounded, a step that does not start is dropped after a while, and so are the tensors of a task that is gone.
Beyond the bytes, the sender that takes most of them loses its oldest step first. If a dropped step starts after all,
it fails with the reason instead of waiting for the dropped tensors.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tfmini import errors

STEP_LIMIT = 10_000
BYTE_LIMIT = 4 << 30  # bytes; the latest step may exceed it alone
KEEP_S = 300.0  # seconds between two calls of `sweep`
ORPHAN_S = 10.0  # seconds from the loss of a sender to `drop_from`
ENTRY_BYTES = 256  # the size of an entry beside its values


class _Kept:
    """The tensors of one step."""

    __slots__ = ("bytes", "entries", "is_old")

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.bytes: collections.Counter[Any] = collections.Counter()  # by sender
        self.is_old = False


class EarlyTensors:
    """See the module. Not thread-safe: its worker holds a lock.

    Args:
      task: the one that keeps them, for messages.
    """

    def __init__(self, task: str, step_limit: int = STEP_LIMIT, byte_limit: int = BYTE_LIMIT) -> None:
        self._task = task
        self._step_limit = step_limit
        self._byte_limit = byte_limit
        self._steps: collections.OrderedDict[int, _Kept] = collections.OrderedDict()  # oldest first
        self._by_sender: collections.Counter[Any] = collections.Counter()  # bytes
        self._dropped: collections.OrderedDict[int, errors.OpError] = collections.OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        """How many steps have tensors here."""
        return len(self._steps)

    def add(self, step_id: int, entry: Any, values: Sequence[Any], sender: Any = None) -> None:
        """Keeps ``entry``, which holds ``values`` of that sender, for a step."""
        if step_id in self._dropped:
            return  # the step has lost some already
        size = ENTRY_BYTES + sum(_size(value) for value in values)
        kept = self._steps.setdefault(step_id, _Kept())
        kept.entries.append(entry)
        kept.bytes[sender] += size
        self._by_sender[sender] += size
        self.bytes += size
        while len(self._steps) > self._step_limit or self.bytes > self._byte_limit and len(self._steps) > 1:
            oldest = next(iter(self._steps)) if len(self._steps) > self._step_limit else self._victim(step_id)
            self.drop(oldest, self._over_limit(oldest))

    def _victim(self, latest: int) -> int:
        """The oldest step of the sender that takes most bytes, but not the latest step."""
        greedy = max(self._by_sender, key=self._by_sender.__getitem__)
        older = [step_id for step_id, kept in self._steps.items() if greedy in kept.bytes and step_id != latest]
        return older[0] if older else next(step_id for step_id in self._steps if step_id != latest)

    def _over_limit(self, step_id: int) -> errors.OpError:
        return errors.ResourceExhaustedError.of(
            f"Tensors for step {step_id} came to {self._task} long before the step did and were dropped, because"
            f" {self._byte_limit} bytes or {self._step_limit} steps of such tensors were waiting here. Is the master"
            " of the step overloaded or cut off?"
        )

    def drop(self, step_id: int, error: errors.OpError) -> None:
        """Drops what has come for a step; if the step starts after all, it gets the error."""
        self.take(step_id)
        self._dropped[step_id] = error
        while len(self._dropped) > self._step_limit:
            self._dropped.popitem(last=False)

    def sweep(self) -> bool:
        """Drops the steps that were here at the last sweep already; returns whether any are left."""
        for step_id in [step_id for step_id, kept in self._steps.items() if kept.is_old]:
            text = (
                f"Tensors for step {step_id} came to {self._task} more than {KEEP_S:g} s before the step did and were"
                " dropped. Is the master of the step overloaded or cut off?"
            )
            self.drop(step_id, errors.ResourceExhaustedError.of(text))
        for kept in self._steps.values():
            kept.is_old = True
        return bool(self._steps)

    def drop_from(self, sender: Any, task: str, why: str) -> None:
        """Drops the steps that have tensors of a sender that is gone.

        Args:
          task: the sender's name.
          why: it is gone.
        """
        for step_id in [step_id for step_id, kept in self._steps.items() if sender in kept.bytes]:
            text = f"{task} was lost by {self._task} after it had sent tensors for step {step_id}, not begun yet: {why}"
            self.drop(step_id, errors.UnavailableError.of(text, task=task))

    def take(self, step_id: int) -> Iterable[Any]:
        """Takes out the tensors of a step."""
        kept = self._steps.pop(step_id, None)
        if kept is None:
            return ()
        for sender, size in kept.bytes.items():
            self.bytes -= size
            self._by_sender[sender] -= size
            if not self._by_sender[sender]:
                del self._by_sender[sender]
        return kept.entries

    def loss(self, step_id: int) -> errors.OpError | None:
        """The error of a step whose tensors have been dropped, or None."""
        return self._dropped.pop(step_id, None)


def _size(value: Any) -> int:
    """The bytes of a value; strings are objects, of which an array has only the addresses."""
    if not isinstance(value, np.ndarray):
        return 0
    return value.nbytes + sum(map(len, value.flat)) if value.dtype == object else value.nbytes
