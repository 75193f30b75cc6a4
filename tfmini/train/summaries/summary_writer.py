"""``tf.summary.FileWriter``: writes summaries, graphs, session logs and run metadata as events to a file."""

from __future__ import annotations

import logging
import threading
import warnings
from types import TracebackType
from typing import Any

from tfmini import protos
from tfmini.export import export, export_names
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.journal import journal
from tfmini.runtime.process import current_process
from tfmini.train.checkpointing.graph_files import export_meta_graph
from tfmini.train.summaries.event_file_writer import EventFileWriter
from tfmini.train.summaries.session_event_writer import SessionEventWriter

_log = logging.getLogger("tensorflow")


class SummaryToEventTransformer:
    """Wraps summaries, graphs and other data in Event messages and passes them to an event writer.

    Args:
      event_writer: an object with ``add_event(event)`` and ``get_logdir()``.
      graph: a `Graph` to add at once, with its MetaGraph.
      graph_def: a GraphDef message in place of ``graph``; deprecated.
    """

    def __init__(self, event_writer: Any, graph: Any = None, graph_def: Any = None) -> None:
        self.event_writer = event_writer
        self._run_tags: set[str] = set()
        self._seen_tags: set[str] = set()
        if graph is not None or graph_def is not None:
            self.add_graph(graph=graph, graph_def=graph_def)
            given = graph if graph_def is None else graph_def
            message = given.as_graph_def(add_shapes=True) if isinstance(given, Graph) else given
            owner = given if isinstance(given, Graph) else get_default_graph()
            self.add_meta_graph(export_meta_graph(graph=owner, graph_def=message))

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
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

    def add_session_log(self, session_log: Any, global_step: Any = None) -> None:
        """Adds a SessionLog message: a start, a stop or a checkpoint."""
        self._add_event(protos.Event(session_log=session_log), global_step)

    def add_graph(self, graph: Any, global_step: Any = None, graph_def: Any = None) -> None:
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

    def add_meta_graph(self, meta_graph_def: Any, global_step: Any = None) -> None:
        """Adds a MetaGraphDef message.

        Raises:
          TypeError: when the message has another type.
        """
        if not isinstance(meta_graph_def, protos.MetaGraphDef):
            raise TypeError(f"meta_graph_def must be type MetaGraphDef, saw type: {type(meta_graph_def)}")
        self._add_event(protos.Event(meta_graph_def=meta_graph_def.SerializeToString()), global_step)

    def add_run_metadata(self, run_metadata: Any, tag: str, global_step: Any = None) -> None:
        """Adds the RunMetadata message of one ``Session.run`` under a unique tag.

        Raises:
          ValueError: when the tag was used before.
        """
        if tag in self._run_tags:
            raise ValueError("The provided tag was already used for this event type")
        self._run_tags.add(tag)
        tagged = protos.TaggedRunMetadata(tag=tag, run_metadata=run_metadata.SerializeToString())
        self._add_event(protos.Event(tagged_run_metadata=tagged), global_step)

    def _add_event(self, event: Any, step: Any) -> None:
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
        self, logdir: Any, graph: Any = None, max_queue: int = 10, flush_secs: float = 120, graph_def: Any = None,
        filename_suffix: str | None = None, session: Any = None,
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

    def add_event(self, event: Any) -> None:
        """Adds an Event message unchanged."""
        self._warn_if_closed()
        self.event_writer.add_event(event)

    def _add_event(self, event: Any, step: Any) -> None:
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
