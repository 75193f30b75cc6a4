"""`SessionEventWriter`: writes events with ops in a session, for ``tf.summary.FileWriter(session=…)``."""

from __future__ import annotations

import os
from typing import Any

from tfmini import dtypes
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import placeholder_with_default
from tfmini.ops.summary.writer_ops import import_op
from tfmini.train.summaries.contrib_summary import create_file_writer


class SessionEventWriter:
    """Writes Event messages by running ops in a session; it shares the session's writer for ``logdir``.

    Args:
      session: the session; the ops are added to its graph.
      logdir: the directory; it is made if it does not exist.
      max_queue: maximum number of queued events.
      flush_secs: seconds between flushes.
      filename_suffix: last part of the file's name.
    """

    def __init__(
        self, session: Any, logdir: Any, max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = ""
    ) -> None:
        self._session = session
        self._logdir: str = os.fspath(logdir)
        self._closed = False
        with session.graph.as_default(), name_scope("filewriter"):
            writer = create_file_writer(self._logdir, max_queue, int(flush_secs * 1000), filename_suffix)
            self._event = placeholder_with_default(constant("unused", dtypes.string), shape=[])
            self._add = import_op(writer.resource, self._event)
            self._init, self._flush, self._close = writer.init(), writer.flush(), writer.close()
        session.run(self._init)

    def get_logdir(self) -> str:
        """The directory of the event file."""
        return self._logdir

    def add_event(self, event: Any) -> None:
        """Adds an Event message; ignored after `close`."""
        if not self._closed:
            self._session.run(self._add, {self._event: event.SerializeToString()})

    def flush(self) -> None:
        """Waits until all events added so far are on disk."""
        self._session.run(self._flush)

    def close(self) -> None:
        """Flushes and closes the file."""
        if not self._closed:
            self.flush()
            self._session.run(self._close)
            self._closed = True

    def reopen(self) -> None:
        """Allows more events after `close`; they go to a new file in the same directory."""
        if self._closed:
            self._closed = False
            self._session.run(self._init)
