"""Answers a few kinds of requests while every thread that runs the loop is in a handler.

What a task does is asked most urgently when it does nothing any more. So while the loop is stuck, a thread of its own
reads the listeners, and handles the requests that wait for nothing: a client's Hello and `GetTaskStatus`. All other
messages stay in their inboxes, in order, for the loop. (A kernel that holds the interpreter stops this thread, too.)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tfmini.rpc.codec import decode, kind_of
from tfmini.rpc.connection_messages import Hello
from tfmini.rpc.records import RemoteProtocolError
from tfmini.rpc.status_messages import GetTaskStatus

_log = logging.getLogger("tfmini.rpc")
_PAUSE_S = 0.02  # between two looks at the listeners
_HELLO, _STATUS = Hello.row.kind, GetTaskStatus.row.kind

Serve = Callable[[], None]


class Relief:
    """See the module.

    Attributes:
      since: when the loop was found stuck, on the monotonic clock; None while it is not.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self._serves: list[Serve] = []
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def stuck_s(self) -> float:
        """For how many seconds no thread of the loop has been free; 0: one is."""
        since = self.since
        return 0.0 if since is None else time.monotonic() - since

    def add(self, serve: Serve) -> None:
        """Calls a function again and again while the loop is stuck; it must not block."""
        self._serves.append(serve)

    def remove(self, serve: Serve) -> None:
        """Forgets a function."""
        if serve in self._serves:
            self._serves.remove(serve)

    def begin(self, since: float) -> None:
        """The loop is stuck since then. Called by the timekeeper."""
        if self.since is None and self._serves and not self._closed:
            self.since = since
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tfmini-relief", daemon=True)
                self._thread.start()
            self._wake.set()

    def end(self) -> None:
        """A thread of the loop is free again."""
        self.since = None

    def _run(self) -> None:
        while not self._closed:
            if self.since is None:
                self._wake.clear()
                if self.since is None:
                    self._wake.wait()
                continue
            for serve in list(self._serves):
                try:
                    serve()
                except Exception:  # noqa: BLE001 - a bug in one must not stop the others
                    _log.exception("a listener could not be read while the loop is busy")
            time.sleep(_PAUSE_S)

    def close(self) -> None:
        """Ends the thread."""
        self._closed = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)


def is_urgent(parts: Sequence[Any]) -> bool:
    """Whether a message may be handled while the loop is stuck."""
    kind = kind_of(parts)
    if kind != _HELLO:
        return kind == _STATUS
    try:
        hello, _ = decode(parts, True)
    except RemoteProtocolError:
        return False
    return isinstance(hello, Hello) and not hello.task  # a task's Hello may end older connections, and their steps
