"""Calls of queue states for tests: each gives its `FakeWait`."""

from __future__ import annotations

import numpy as np

from tests.ops.fake_wait import FakeWait
from tfmini import dtypes
from tfmini.ops.queues.queue_state import PaddingQueueState, PriorityQueueState, QueueState, ShuffleQueueState

KINDS = [QueueState, PaddingQueueState, ShuffleQueueState, PriorityQueueState]


def queue_of(kind: type[QueueState] = QueueState, capacity: int = 2) -> QueueState:
    types = [dtypes.int64, dtypes.int64]
    return kind("q", capacity, types, [(), ()])


def put(queue: QueueState, *numbers: int) -> FakeWait:
    wait = FakeWait()
    queue.enqueue_many(wait, [np.array(numbers), np.array(numbers)])
    return wait


def take(queue: QueueState) -> FakeWait:
    wait = FakeWait()
    queue.dequeue(wait)
    return wait


def take_many(queue: QueueState, count: int, allow_fewer: bool = False) -> FakeWait:
    wait = FakeWait()
    queue.dequeue_many(wait, count, allow_fewer)
    return wait


def close(queue: QueueState, cancel: bool = False) -> FakeWait:
    wait = FakeWait()
    queue.close(wait, cancel)
    return wait


def full(kind: type[QueueState]) -> QueueState:
    """A queue of two places, both taken."""
    queue = queue_of(kind)
    put(queue, 1, 2)
    return queue
