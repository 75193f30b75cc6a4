"""Ops that write event files: a writer is state of the task where it is placed, and found by its shared name."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from tfmini import errors, protos
from tfmini.graph.operation import Operation
from tfmini.graph.registry import op
from tfmini.ops.shared_state import find_or_create
from tfmini.shapes import RawShape
from tfmini.train.event_file_writer import EventFileWriter

writer_op = op("SummaryWriter() -> writer: resource; shared_name: string = ''; container: string = ''", stateful=True)
create_op = op(
    "CreateSummaryFileWriter(writer: resource, logdir: string, max_queue: int32, flush_millis: int32,"
    " filename_suffix: string)",
    stateful=True,
)
import_event_op = op("ImportEvent(writer: resource, event: string)", stateful=True)
write_summary_op = op("WriteRawProtoSummary(writer: resource, step: int64, tensor: string)", stateful=True)
write_graph_op = op("WriteGraphSummary(writer: resource, step: int64, tensor: string)", stateful=True)
flush_op = op("FlushSummaryWriter(writer: resource)", stateful=True)
close_op = op("CloseSummaryWriter(writer: resource)", stateful=True)
for _handle in (writer_op, create_op, import_event_op, write_summary_op, write_graph_op, flush_op, close_op):
    _handle.not_differentiable()


@writer_op.shape
def _scalar(node: Operation) -> list[RawShape]:
    return [()]


@create_op.shape
@import_event_op.shape
@write_summary_op.shape
@write_graph_op.shape
@flush_op.shape
@close_op.shape
def _nothing(node: Operation) -> list[RawShape]:
    return []


class SummaryWriterState:
    """A writer of a task; it has a file between its creation op and its closing op.

    Args:
      name: for messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._writer: EventFileWriter | None = None

    def create(self, logdir: str, max_queue: int, flush_s: float, suffix: str) -> None:
        """Begins a file, unless there is one."""
        with self._lock:
            if self._writer is None:
                self._writer = EventFileWriter(logdir, max_queue, flush_s, suffix)

    @property
    def _open(self) -> EventFileWriter:
        writer = self._writer
        if writer is None:
            raise errors.NotFoundError(
                None,
                None,
                f"Summary writer {self.name} does not exist: run its init op first (tf.contrib.summary.initialize).",
            )
        return writer

    def write(self, event: Any) -> None:
        """Queues an Event message.

        Raises:
          NotFoundError: when the writer has no file.
          OpError: when an earlier event could not be written.
        """
        self._open.add_event(event)

    def flush(self) -> None:
        """Returns when what was written is on the disk; raises as `write`."""
        self._open.flush()

    def release(self) -> None:
        """Flushes and closes the file; called when the session or its container goes as well."""
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    clear = release


@writer_op.state_kernel("CPU")
def _writer(resources: Any, *, container: bytes, shared_name: bytes, node: Any) -> SummaryWriterState:
    return find_or_create(resources, container, shared_name, node, "summary writer", SummaryWriterState)


def _text(value: Any) -> bytes:
    return np.asarray(value, object).item()  # type: ignore[no-any-return]


@create_op.kernel("CPU")
def _create(writer: SummaryWriterState, logdir: Any, max_queue: Any, millis: Any, suffix: Any) -> tuple[()]:
    writer.create(_text(logdir).decode(), int(max_queue), float(millis) / 1000, _text(suffix).decode())
    return ()


@import_event_op.kernel("CPU")
def _import_event(writer: SummaryWriterState, event: Any) -> tuple[()]:
    from google.protobuf.message import DecodeError

    try:
        writer.write(protos.Event.FromString(_text(event)))
    except DecodeError as error:
        raise errors.DataLossError(None, None, f"Bad tf.Event binary proto tensor string: {error}") from error
    return ()


@write_summary_op.kernel("CPU")
def _write_summary(writer: SummaryWriterState, step: Any, tensor: Any) -> tuple[()]:
    event = protos.Event(wall_time=time.time(), step=int(step))
    event.summary.ParseFromString(_text(tensor))
    writer.write(event)
    return ()


@write_graph_op.kernel("CPU")
def _write_graph(writer: SummaryWriterState, step: Any, tensor: Any) -> tuple[()]:
    writer.write(protos.Event(wall_time=time.time(), step=int(step), graph_def=_text(tensor)))
    return ()


@flush_op.kernel("CPU")
def _flush(writer: SummaryWriterState) -> tuple[()]:
    writer.flush()
    return ()


@close_op.kernel("CPU")
def _close(writer: SummaryWriterState) -> tuple[()]:
    writer.release()
    return ()
