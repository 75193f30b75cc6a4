"""An event writer that lives in a session: what ``tf.summary.FileWriter(session=…)`` writes with."""

from __future__ import annotations

import os
from typing import Any

from tfmini import dtypes
from tfmini.ops.array_identity import placeholder_with_default
from tfmini.ops.constant import constant
from tfmini.ops.scoping import name_scope
from tfmini.ops.summary_writer_ops import import_op
from tfmini.train.recorded_summaries import create_file_writer


class SessionEventWriter:
    """Writes Event messages by running ops in a session, to the writer that the session has for ``logdir``.

    Args:
      session: its graph gets the ops.
      logdir: the directory; it is made when it does not exist.
      max_queue: how many events may wait for the disk.
      flush_secs: how often they are flushed, in seconds.
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
        """Adds an Event message; nothing happens after `close`."""
        if not self._closed:
            self._session.run(self._add, {self._event: event.SerializeToString()})

    def flush(self) -> None:
        """Returns when everything added so far is on the disk."""
        self._session.run(self._flush)

    def close(self) -> None:
        """Flushes and closes the file."""
        if not self._closed:
            self.flush()
            self._session.run(self._close)
            self._closed = True

    def reopen(self) -> None:
        """After `close`, lets more events be added; they go into a new file of the same directory."""
        if self._closed:
            self._closed = False
            self._session.run(self._init)
