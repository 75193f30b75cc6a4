"""What writes for ``tf.summary.FileWriter(session=…)``: ops of the session, in the task where they are placed."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.ops.array_identity import placeholder
from tfmini.ops.scoping import name_scope
from tfmini.train import summary_writer_ops as ops
from tfmini.train.contrib_summary import create_file_writer


class SessionEventWriter:
    """Has the methods of `EventFileWriter`; several of them share a file when session and directory are the same.

    Args:
      session: a session whose graph may still be changed.
      logdir, max_queue, flush_secs, filename_suffix: as of `EventFileWriter`.
    """

    def __init__(
        self, session: Any, logdir: Any, max_queue: int = 10, flush_secs: float = 120,
        filename_suffix: str | None = None,
    ) -> None:  # fmt: skip
        self._session = session
        self._logdir = str(logdir)
        with session.graph.as_default(), name_scope("filewriter"):
            writer = create_file_writer(logdir, max_queue, int(flush_secs * 1000), filename_suffix)
            self._event = placeholder(dtypes.string, [], name="event")
            self._add = ops.import_event_op(writer._resource, self._event)
            self._init, self._flush, self._close = writer.init(), writer.flush(), writer.close()
        self._closed = True
        self.reopen()

    def get_logdir(self) -> str:
        """The directory of the event file."""
        return self._logdir

    def add_event(self, event: Any) -> None:
        """Writes an Event message; nothing happens after `close`."""
        if not self._closed:
            self._session.run(self._add, {self._event: event.SerializeToString()})

    def flush(self) -> None:
        """Returns when all events added so far are on the disk."""
        if not self._closed:
            self._session.run(self._flush)

    def close(self) -> None:
        """Flushes and closes the file."""
        if not self._closed:
            self._closed = True
            self._session.run(self._close)

    def reopen(self) -> None:
        """After `close`, lets more events be added, into a new file."""
        if self._closed:
            self._session.run(self._init)
            self._closed = False
