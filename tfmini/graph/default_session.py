"""The stack of default sessions, one per thread (``tf.get_default_session``)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tfmini.export import export


class _Stack(threading.local):
    def __init__(self) -> None:
        self.sessions: list[Any] = []


_stack = _Stack()


@export("tf.get_default_session")
def get_default_session() -> Any:
    """Returns this thread's innermost default session, or None (``tf.get_default_session``)."""
    return _stack.sessions[-1] if _stack.sessions else None


@contextmanager
def session_scope(session: Any, enforce_nesting: bool = True) -> Iterator[Any]:
    """Makes ``session`` the default for the block."""
    _stack.sessions.append(session)
    try:
        yield session
    finally:
        if enforce_nesting and _stack.sessions[-1] is not session:
            raise AssertionError("Nesting violated for default stack of sessions")
        if session in _stack.sessions:
            _stack.sessions.remove(session)
