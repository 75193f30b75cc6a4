"""Mutexes as state objects."""

from __future__ import annotations

from tests.ops.fake_wait import PENDING, FakeWait
from tfmini.ops.queues.mutex import MutexState


def test_a_lost_lock_token_frees_the_mutex() -> None:
    mutex = MutexState("m")
    first, second = FakeWait(), FakeWait()
    mutex.acquire(first)
    mutex.acquire(second)
    first.answers.clear()  # the step failed: nothing refers to the token any more
    assert second.value is not PENDING
