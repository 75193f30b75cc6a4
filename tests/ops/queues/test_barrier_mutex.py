"""Mutexes as state objects."""

from __future__ import annotations

import threading
from typing import Any

from tests.ops.fake_wait import FakeWait
from tfmini.ops.queues.barrier import MutexState


class Signalled(FakeWait):
    """A wait whose answer may come from another thread."""

    def __init__(self) -> None:
        super().__init__()
        self._event = threading.Event()

    def done(self, result: Any = None) -> bool:
        taken = super().done(result)
        self._event.set()
        return taken

    def is_answered(self) -> bool:
        return self._event.wait(60)


def test_a_lost_lock_token_frees_the_mutex() -> None:
    mutex = MutexState("m")
    first, second = FakeWait(), Signalled()
    mutex.acquire(first)
    mutex.acquire(second)
    first.answers.clear()  # the step failed: nothing refers to the token any more
    assert second.is_answered()


def test_a_token_that_the_garbage_collector_finds_runs_no_step_in_its_thread() -> None:
    """That thread may be inside any call and hold any lock, that of the mutex too."""
    mutex = MutexState("m")
    first, second = FakeWait(), Signalled()
    mutex.acquire(first)
    mutex.acquire(second)
    with mutex.lock:
        first.answers.clear()
        assert second.is_pending
    assert second.is_answered()
