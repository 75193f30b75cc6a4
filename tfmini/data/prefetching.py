"""Prefetching: a thread reads ahead into a bounded buffer.

The thread refers to the buffer and the upstream stage, but not to the prefetching stage. So that stage is
freed when its session is closed or its iterator starts anew. This closes the buffer, which ends the
thread. The exit of the process closes the remaining buffers.
"""

from __future__ import annotations

import collections
import threading
import weakref
from typing import Any

from tfmini.data.pipeline import Element, Source, Stage
from tfmini.data.reading import Reading

_AUTOTUNED_SIZE = 8
_LOOK_S = 0.05


class _Buffer:
    """The buffer between the thread that reads ahead and the consumer."""

    def __init__(self, upstream: Stage, size: int) -> None:
        self._upstream = upstream
        self._size = size
        self._items: collections.deque[tuple[str, Any]] = collections.deque()
        self._changed = threading.Condition()
        self._closed = False

    def fill(self) -> None:
        """The thread's body: reads until the end or until the buffer is closed."""
        kind = "element"
        while kind != "end" and self._has_room():
            value: Any = None
            try:
                value = next(self._upstream)
            except StopIteration:
                kind = "end"
            except Exception as error:  # noqa: BLE001 - the consumer raises it, whatever it is
                kind, value = "error", error
            with self._changed:
                self._items.append((kind, value))
                self._changed.notify_all()
            kind = "element" if kind == "error" else kind
        self._upstream.close()

    def _has_room(self) -> bool:
        with self._changed:
            while not self._closed and len(self._items) >= self._size:
                self._changed.wait()
            return not self._closed

    @property
    def ready(self) -> bool:
        """Whether `get` returns without waiting."""
        return bool(self._items)

    def get(self, reading: Reading) -> Element:
        """Waits for the next element and removes it from the buffer.

        Raises:
          StopIteration: at the end, or when the buffer is closed.
          OpError: when the reading's step is cancelled or its deadline has passed.
        """
        with self._changed:
            while not self._items and not self._closed:
                # A step that runs as a function call cannot notify this thread at its deadline, so poll.
                self._changed.wait(None if reading.step is None else _LOOK_S)
                reading.check()
            if not self._items:
                raise StopIteration
            kind, value = self._items[0]
            if kind == "end":
                raise StopIteration
            self._items.popleft()
            self._changed.notify_all()
        if kind == "error":
            raise value
        return value  # type: ignore[no-any-return]

    def close(self) -> None:
        """Drops the elements and ends the thread."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()


class _Prefetch(Stage):
    def __init__(self, upstream: Stage, size: int, reading: Reading) -> None:
        self._buffer = buffer = _Buffer(upstream, size)
        self._reading = reading
        self._thread: threading.Thread | None = None
        self._finalizer = weakref.finalize(self, buffer.close)  # at the exit of the process as well

    def __next__(self) -> Element:
        if self._thread is None:
            self._thread = threading.Thread(target=self._buffer.fill, name="tfmini-prefetch", daemon=True)
            self._thread.start()
        return self._buffer.get(self._reading)

    @property
    def ready(self) -> bool:
        return self._buffer.ready

    def close(self) -> None:
        self._finalizer()


def prefetched(source: Source, size: int) -> Source:
    """A source that is read up to ``size`` elements ahead; a negative size means the default, 0 no prefetching."""
    if not size:
        return source
    ahead = _AUTOTUNED_SIZE if size < 0 else size
    return Source(lambda reading: _Prefetch(source.open(reading), ahead, reading), source.count)
