"""``tf.summary.FileWriter``: writes summaries, graphs, session logs and run metadata as events to a file."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import warnings
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np

from tfmini import dtypes, errors, protos
from tfmini.checkpoint.files import local_path
from tfmini.export import export, export_names
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.scoping import name_scope
from tfmini.journal import journal
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import placeholder_with_default
from tfmini.ops.io.files import EventFile, tf_record_iterator
from tfmini.ops.summary import import_op
from tfmini.protos import Event, GraphDef, RunMetadata, Summary
from tfmini.runtime.client.session import BaseSession
from tfmini.runtime.process import current_process
from tfmini.train.checkpointing.graph_files import export_meta_graph
from tfmini.train.contrib_summary import create_file_writer

_log = logging.getLogger("tensorflow")


class SummaryToEventTransformer:
    """Wraps summaries, graphs and other data in Event messages and passes them to an event writer.

    Args:
      event_writer: an object with ``add_event(event)`` and ``get_logdir()``.
      graph: a `Graph` to add at once, with its MetaGraph.
      graph_def: a GraphDef message in place of ``graph``; deprecated.
    """

    def __init__(self, event_writer: Any, graph: Graph | None = None, graph_def: GraphDef | None = None) -> None:
        self.event_writer = event_writer
        self._run_tags: set[str] = set()
        self._seen_tags: set[str] = set()
        if graph is not None or graph_def is not None:
            self.add_graph(graph=graph, graph_def=graph_def)
            given = graph if graph_def is None else graph_def
            message = given.as_graph_def(add_shapes=True) if isinstance(given, Graph) else given
            owner = given if isinstance(given, Graph) else get_default_graph()
            self.add_meta_graph(export_meta_graph(graph=owner, graph_def=message))

    def add_summary(self, summary: Summary | bytes, global_step: int | np.integer[Any] | None = None) -> None:
        """Adds a summary.

        Args:
          summary: a Summary message, or its bytes from a summary op.
          global_step: the step of the event.
        """
        event = protos.Event()
        if isinstance(summary, bytes):
            event.summary.ParseFromString(summary)
        else:
            event.summary.CopyFrom(summary)
        for value in event.summary.value:
            # The metadata of a tag never changes, so only its first value carries them.
            if value.tag in self._seen_tags:
                value.ClearField("metadata")
            self._seen_tags.add(value.tag)
        self._add_event(event, global_step)

    def add_session_log(self, session_log: Any, global_step: int | np.integer[Any] | None = None) -> None:
        """Adds a SessionLog message: a start, a stop or a checkpoint."""
        self._add_event(protos.Event(session_log=session_log), global_step)

    def add_graph(
        self, graph: Graph | None, global_step: int | np.integer[Any] | None = None, graph_def: GraphDef | None = None
    ) -> None:
        """Adds a graph for TensorBoard to show.

        Args:
          graph: a `Graph`, such as ``sess.graph``.
          graph_def: a GraphDef message in its place; deprecated.

        Raises:
          ValueError: when both are given.
          TypeError: when the given object has another type.
        """
        if graph is not None and graph_def is not None:
            raise ValueError("Please pass only graph, or graph_def (deprecated), but not both.")
        given = graph if graph is not None else graph_def
        if isinstance(given, Graph):
            message = given.as_graph_def(add_shapes=True)
        elif isinstance(given, protos.GraphDef):
            _log.warning("Passing a `GraphDef` to the SummaryWriter is deprecated. Pass a `Graph` object instead.")
            message = given
        else:
            raise TypeError("The passed graph must be an instance of `Graph` or the deprecated `GraphDef`")
        self._add_event(protos.Event(graph_def=message.SerializeToString()), global_step)

    def add_meta_graph(self, meta_graph_def: Any, global_step: int | np.integer[Any] | None = None) -> None:
        """Adds a MetaGraphDef message.

        Raises:
          TypeError: when the message has another type.
        """
        if not isinstance(meta_graph_def, protos.MetaGraphDef):
            raise TypeError(f"meta_graph_def must be type MetaGraphDef, saw type: {type(meta_graph_def)}")
        self._add_event(protos.Event(meta_graph_def=meta_graph_def.SerializeToString()), global_step)

    def add_run_metadata(
        self, run_metadata: RunMetadata, tag: str, global_step: int | np.integer[Any] | None = None
    ) -> None:
        """Adds the RunMetadata message of one ``Session.run`` under a unique tag.

        Raises:
          ValueError: when the tag was used before.
        """
        if tag in self._run_tags:
            raise ValueError("The provided tag was already used for this event type")
        self._run_tags.add(tag)
        tagged = protos.TaggedRunMetadata(tag=tag, run_metadata=run_metadata.SerializeToString())
        self._add_event(protos.Event(tagged_run_metadata=tagged), global_step)

    def _add_event(self, event: Event, step: int | np.integer[Any] | None) -> None:
        event.wall_time = current_process().wall_time()
        if step is not None:
            event.step = int(step)
        if event.HasField("summary"):
            journal.note_summary(event.summary.value, event.step, event.wall_time)
        self.event_writer.add_event(event)


@export("tf.summary.FileWriter")
class FileWriter(SummaryToEventTransformer):
    """Writes events to a file in ``logdir`` for TensorBoard (``tf.summary.FileWriter``).

    A background thread writes the file. As a context manager it closes the file at the end.

    Args:
      logdir: the directory; it is made if it does not exist.
      graph: a `Graph` to add at once.
      max_queue: maximum number of queued events; adding one blocks when the queue is full.
      flush_secs: seconds between flushes.
      graph_def: deprecated, use ``graph``.
      filename_suffix: last part of the file's name.
      session: write with ops in this session, to the file of its `tf.contrib.summary` writer.
    """

    def __init__(
        self, logdir: Any, graph: Graph | None = None, max_queue: int = 10, flush_secs: float = 120,
        graph_def: GraphDef | None = None, filename_suffix: str | None = None, session: BaseSession | None = None,
    ) -> None:  # fmt: skip
        self._closed = False
        writer: Any
        if session is None:
            writer = EventFileWriter(logdir, max_queue, flush_secs, filename_suffix)
        else:
            writer = SessionEventWriter(session, logdir, max_queue, flush_secs, filename_suffix or "")
        super().__init__(writer, graph, graph_def)

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get_logdir(self) -> str:
        """The directory of the event file."""
        return self.event_writer.get_logdir()  # type: ignore[no-any-return]

    def add_event(self, event: Event) -> None:
        """Adds an Event message unchanged."""
        self._warn_if_closed()
        self.event_writer.add_event(event)

    def _add_event(self, event: Event, step: int | np.integer[Any] | None) -> None:
        self._warn_if_closed()
        super()._add_event(event, step)

    def _warn_if_closed(self) -> None:
        if self._closed:
            warnings.warn(
                "Attempting to use a closed FileWriter. The operation will be a noop unless the FileWriter is"
                " explicitly reopened.",
                stacklevel=3,
            )

    def flush(self) -> None:
        """Waits until all events added so far are on disk."""
        self._warn_if_closed()
        self.event_writer.flush()

    def close(self) -> None:
        """Flushes and closes the file."""
        self.event_writer.close()
        self._closed = True

    def reopen(self) -> None:
        """Allows more events after `close`; they go to a new file in the same directory."""
        self.event_writer.reopen()
        self._closed = False


@export("tf.summary.FileWriterCache")
class FileWriterCache:
    """A cache with one `FileWriter` per directory (``tf.summary.FileWriterCache``)."""

    _cache: dict[str, FileWriter] = {}
    _lock = threading.RLock()

    @staticmethod
    def clear() -> None:
        """Closes and forgets all writers."""
        with FileWriterCache._lock:
            for writer in FileWriterCache._cache.values():
                writer.close()
            FileWriterCache._cache = {}

    @staticmethod
    def get(logdir: str) -> FileWriter:
        """The writer of a directory; a new writer first writes the default graph."""
        with FileWriterCache._lock:
            found = FileWriterCache._cache.get(logdir)
            if found is None:
                found = FileWriterCache._cache[logdir] = FileWriter(logdir, graph=get_default_graph())
            return found


export_names("tensorflow.python.training.summary_io", "SummaryWriter=FileWriter SummaryWriterCache=FileWriterCache")


# ---- `EventFileWriter`: writes Event messages to an event file in a background thread ------------------------------
# A bounded queue and the thread keep a training loop from waiting for the disk. Added events are on disk after
# `flush` or `close`, and after a normal exit of the interpreter.

_open_writers: weakref.WeakSet[EventFileWriter] = weakref.WeakSet()


@export("tensorflow.python.summary.writer.event_file_writer.EventFileWriter")
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
            os.makedirs(local_path(self._logdir), exist_ok=True)
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

    def add_event(self, event: Event) -> None:
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


@export("tensorflow.python.summary.writer.event_file_writer._EventLoggerThread")
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

    def _write(self, event: Event) -> None:
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
            except OSError as error:
                self._failure = errors.from_os_error(error, self._file.path)
            except Exception as error:  # whoever adds the next event, or flushes, gets it; the queue is drained
                self._failure = error


@atexit.register
def close_all() -> None:
    """Closes all writers, at the end of the process; logs which events are lost."""
    for writer in list(_open_writers):
        try:
            writer.close()
        except errors.OpError as error:  # nobody can catch it here, and the other writers have events, too
            _log.error("The last events of %s are lost: %s", writer.get_logdir(), error)


# ---- ``tf.train.summary_iterator``: reads event files --------------------------------------------------------------


@export("tf.train.summary_iterator")
def summary_iterator(path: Any) -> Iterator[Any]:
    """Yields the Event messages of an event file in order (``tf.train.summary_iterator``).

    Raises:
      NotFoundError: when there is no such file.
      DataLossError: when a record is truncated or corrupt, or no Event.
    """
    for record in tf_record_iterator(path):
        with errors.reading(f"{os.fsdecode(path)}: a record is no Event"):
            event = protos.Event.FromString(record)
        yield event


# ---- `SessionEventWriter`: writes events with ops in a session, for ``tf.summary.FileWriter(session=…)`` -----------


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
        self, session: BaseSession, logdir: Any, max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = ""
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

    def add_event(self, event: Event) -> None:
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
