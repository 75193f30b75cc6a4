"""A master's side of a session: what may be called while others wait."""

from __future__ import annotations

import threading
from typing import Any

from tfmini.runtime.client.session import _local_master
from tfmini.runtime.options import SessionOptions


def test_waits_are_told_without_the_lock_of_the_session() -> None:
    """The callback may send, or call into another session."""
    session = _local_master(SessionOptions()).create_session((), SessionOptions())
    waiting: Any = type("Waiting", (), {"describe_wait": lambda self: "it waits"})()
    session._registrations.add(waiting)
    told: list[str] = []

    def tell(text: str) -> None:
        other = threading.Thread(target=lambda: told.append(text) if session._lock.acquire(timeout=10) else None)
        other.start()
        other.join()

    session.describe_wait(((), (), ()), tell)
    assert told == ["it waits"]
