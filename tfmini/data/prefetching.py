"""Prefetching: a thread reads ahead into a buffer of bounded size.

The thread knows the buffer and what it reads, not the stage that its reader holds: when the
reader lets go of the stage (a session is closed, an iterator is made anew), the buffer is closed and
the thread ends. What is left at the exit of the process is told to end, too.
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
    """What the reading thread and its reader share."""

    def __init__(self, upstream: Stage, size: int) -> None:
        self._upstream = upstream
        self._size = size
        self._items: collections.deque[tuple[str, Any]] = collections.deque()
        self._changed = threading.Condition()
        self._closed = False

    def fill(self) -> None:
        """Reads until the end or until closed: the body of the thread."""
        kind = "element"
        while kind != "end" and self._has_room():
            value: Any = None
            try:
                value = next(self._upstream)
            except StopIteration:
                kind = "end"
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the reader
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
        """Whether `get` need not wait."""
        return bool(self._items)

    def get(self, reading: Reading) -> Element:
        """The next element, when it is there.

        Raises:
          StopIteration: at the end, and when closed.
          OpError: when the step for which it is read has ended.
        """
        with self._changed:
            while not self._items and not self._closed:
                # A step that is run as a function call cannot wake anybody when its time is up.
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
        """Lets the thread and the reader go."""
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


class PrefetchSource(Source):
    """A source that is read ahead by up to ``size`` elements: by some for a negative size, not at all for 0."""

    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self.count = source.count
        self._size = _AUTOTUNED_SIZE if size < 0 else size

    def open(self, reading: Reading) -> Stage:
        upstream = self._source.open(reading)
        return _Prefetch(upstream, self._size, reading) if self._size else upstream
