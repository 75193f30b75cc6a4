"""`EventFileWriter`: writes Event messages to an event file in a background thread.

A bounded queue and the thread keep a training loop from waiting for the disk. Added events are on disk after
`flush` or `close`, and after a normal exit of the interpreter.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import weakref
from typing import Any

from tfmini import errors
from tfmini.ops.io.event_file import EventFile
from tfmini.runtime.process import current_process

_open_writers: weakref.WeakSet[EventFileWriter] = weakref.WeakSet()


class EventFileWriter:
    """Writes Event messages to a file in ``logdir``, asynchronously.

    Args:
      logdir: the directory; it is made if it does not exist.
      max_queue: maximum number of queued events; `add_event` blocks when the queue is full.
      flush_secs: seconds between flushes.
      filename_suffix: last part of the file's name. If given, the file is made at once, else at the first event.
    """

    def __init__(
        self, logdir: Any, max_queue: int = 10, flush_secs: float = 120, filename_suffix: str | None = None
    ) -> None:
        self._logdir = os.fspath(logdir) if isinstance(logdir, os.PathLike) else str(logdir)
        try:
            os.makedirs(self._logdir, exist_ok=True)
        except OSError as error:
            raise errors.from_os_error(error, self._logdir) from error
        self._file = EventFile(os.path.join(self._logdir, "events"), filename_suffix or "")
        if filename_suffix:
            self._file.open()
        self._queue: queue.Queue[Any] = queue.Queue(max_queue)
        self._flush_secs = flush_secs
        self._start()

    def _start(self) -> None:
        self._closed = False
        self._worker = _Worker(self._queue, self._file, self._flush_secs)
        self._worker.start()
        _open_writers.add(self)

    def get_logdir(self) -> str:
        """The directory of the event file."""
        return self._logdir

    def add_event(self, event: Any) -> None:
        """Queues an Event message; ignored after `close`.

        Raises:
          OpError: when an earlier event could not be written.
        """
        if not self._closed:
            self._worker.raise_failure()
            self._queue.put(event)

    def flush(self) -> None:
        """Waits until all events added so far are on disk.

        Raises:
          OpError: when an event could not be written.
        """
        if not self._closed:
            self._queue.join()
            self._worker.flush()
            self._worker.raise_failure()

    def close(self) -> None:
        """Flushes, ends the thread and closes the file; a second call does nothing.

        Raises:
          OpError: when an event could not be written.
        """
        if self._closed:
            return
        self._closed = True
        _open_writers.discard(self)
        self._queue.put(None)
        self._worker.join()
        self._worker.raise_failure()

    def reopen(self) -> None:
        """Allows more events after `close`; they go to a new file in the same directory."""
        if self._closed:
            self._start()


class _Worker(threading.Thread):
    """Writes events from the queue until it gets None. After a failure it only drains the queue."""

    def __init__(self, events: queue.Queue[Any], file: EventFile, flush_secs: float) -> None:
        super().__init__(name="tfmini-event-file", daemon=True)
        self._queue = events
        self._file = file
        self._lock = threading.Lock()  # `flush` uses the file in the caller's thread
        self._flush_secs = flush_secs
        self._next_flush = 0.0
        self._now = current_process().now
        self._failure: Exception | None = None

    def run(self) -> None:
        while (event := self._queue.get()) is not None:
            self._attempt(lambda event=event: self._write(event))
            self._queue.task_done()
        self._attempt(self._file.close)
        self._queue.task_done()

    def flush(self) -> None:
        self._attempt(self._file.flush)

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _write(self, event: Any) -> None:
        self._file.write(event.SerializeToString())
        now = self._now()
        if now >= self._next_flush:  # always true for the first event
            self._file.flush()
            self._next_flush = now + self._flush_secs

    def _attempt(self, action: Any) -> None:
        with self._lock:
            if self._failure is not None:
                return
            try:
                action()
            except Exception as error:  # whoever adds the next event, or flushes, gets it; the queue is drained
                self._failure = error
            except OSError as error:
                self._failure = errors.from_os_error(error, self._file.path)


@atexit.register
def _close_all() -> None:
    for writer in list(_open_writers):
        writer.close()
