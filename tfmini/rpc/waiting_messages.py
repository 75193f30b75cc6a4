"""The messages to a peer that wait for the connection to it."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

from tfmini import errors
from tfmini.rpc.backlog import BACKLOG_LIMIT, SMALL_BYTES
from tfmini.rpc.calls import CallHandle

OnDropped = Callable[[errors.OpError], Any]
_Handle = CallHandle | OnDropped | None  # the call, or the callback for a dropped message
_COUNT_LIMIT = 100_000


class WaitingMessages:
    """Encoded messages in order, bounded in bytes and number. The caller of each method holds the peer's lock."""

    def __init__(self) -> None:
        self._queue: collections.deque[tuple[Any, _Handle]] = collections.deque()
        self._bytes = 0

    def __iter__(self) -> Iterator[tuple[Any, _Handle]]:
        return iter(tuple(self._queue))

    def append(self, parts: Any, handle: _Handle, must: bool = False) -> None:
        """Adds a message.

        Args:
          must: whether it has been accepted before, so that its bytes are no reason to refuse it.

        Raises:
          errors.ResourceExhaustedError: too many messages or bytes wait already.
        """
        size = sum(map(len, parts))
        is_full = (size > SMALL_BYTES and self._bytes > BACKLOG_LIMIT) or len(self._queue) >= _COUNT_LIMIT
        if is_full and not must:
            raise errors.ResourceExhaustedError.of(
                f"{len(self._queue)} messages of {self._bytes} bytes wait for the connection already. Another one of "
                f"{size} bytes is refused. Wait until the task can be reached before you start more steps."
            )
        self._bytes += size
        self._queue.append((parts, handle))

    def drain(self) -> Iterator[tuple[Any, _Handle]]:
        """Removes and yields all messages."""
        while self._queue:
            parts, handle = self._queue.popleft()
            self._bytes -= sum(map(len, parts))
            yield parts, handle
