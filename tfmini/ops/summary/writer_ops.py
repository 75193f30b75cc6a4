"""Summary writers in a session's task: ``SummaryWriter`` and the ops that write with it.

Ops that open a writer of one name in one session share its file. An event is written to disk when the
writer is flushed or closed, when its queue is full, or when its flush interval has passed.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, cast

import numpy as np

from tfmini import errors, protos
from tfmini.journal import journal
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.io.event_file import EventFile
from tfmini.ops.shared_state import state_op
from tfmini.ops.summary.media_ops import audio_message, image_message
from tfmini.ops.summary.summary_ops import histogram_message, scalar_message, tensor_message

_REAL = "{float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, uint32, uint64}"
writer_op = state_op("SummaryWriter() -> writer: resource; shared_name: string = ''; container: string = ''", [()])
create_op = state_op(
    "CreateSummaryFileWriter(writer: resource, logdir: string, max_queue: int32, flush_millis: int32,"
    " filename_suffix: string)",
    [],
)
flush_op = state_op("FlushSummaryWriter(writer: resource)", [])
close_op = state_op("CloseSummaryWriter(writer: resource)", [])
import_op = state_op("ImportEvent(writer: resource, event: string)", [])
write_op = state_op(
    "WriteSummary(writer: resource, step: int64, tensor: T, tag: string, summary_metadata: string); T: type", []
)
raw_op = state_op("WriteRawProtoSummary(writer: resource, step: int64, tensor: string)", [])
raw_op.kernel("CPU")(lambda writer, step, tensor: _write(writer, step, _single(tensor, "tensor")))
graph_op = state_op("WriteGraphSummary(writer: resource, step: int64, tensor: string)", [])
scalar_op = state_op(f"WriteScalarSummary(writer: resource, step: int64, tag: string, value: T); T: {_REAL}", [])
scalar_op.kernel("CPU")(
    lambda writer, step, tag, value: _write(writer, step, scalar_message(tag, _single(value, "value")))
)
histogram_op = state_op(
    f"WriteHistogramSummary(writer: resource, step: int64, tag: string, values: T); T: {_REAL} = DT_FLOAT", []
)
histogram_op.kernel("CPU")(
    lambda writer, step, tag, values, *, node: _write(writer, step, histogram_message(tag, values, node=node))
)
image_op = state_op(
    "WriteImageSummary(writer: resource, step: int64, tag: string, tensor: T, bad_color: uint8);"
    " max_images: int >= 1 = 3; T: {uint8, float64, float32, float16} = DT_FLOAT",
    [],
)
audio_op = state_op(
    "WriteAudioSummary(writer: resource, step: int64, tag: string, tensor: float32, sample_rate: float32);"
    " max_outputs: int >= 1 = 3",
    [],
)


class WriterState:
    """A writer of one session; closed until it is opened, and again after `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: EventFile | None = None
        self._max_queue = 0
        self._flush_s = 0.0
        self._waiting = 0
        self._next_flush = 0.0

    def open(self, logdir: str, max_queue: int, flush_s: float, suffix: str) -> None:
        """Starts a file; does nothing if one is open."""
        with self._lock:
            if self._file is not None:
                return
            try:
                os.makedirs(logdir, exist_ok=True)
            except OSError as error:
                raise errors.from_os_error(error, logdir) from error
            file = EventFile(os.path.join(logdir, "events"), suffix)
            file.open()
            self._file = file
            self._max_queue, self._flush_s = max_queue, flush_s
            self._next_flush = time.monotonic() + flush_s

    def write(self, event: Any) -> None:
        """Adds an Event message."""
        with self._lock:
            file = self._opened()
            file.write(event.SerializeToString())
            self._waiting += 1
            if self._waiting > self._max_queue or time.monotonic() >= self._next_flush:
                self._flush(file)

    def flush(self) -> None:
        """Writes all events to disk."""
        with self._lock:
            if self._file is not None:
                self._flush(self._file)

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                file.close()

    release = clear = close

    def _opened(self) -> EventFile:
        if self._file is None:
            raise errors.FailedPreconditionError.of(
                "The summary writer is not open: run its init op (tf.contrib.summary.initialize) first."
            )
        return self._file

    def _flush(self, file: EventFile) -> None:
        file.flush()
        self._waiting = 0
        self._next_flush = time.monotonic() + self._flush_s


@writer_op.state_kernel("CPU")
def _writer(resources: Any, *, shared_name: bytes, container: bytes, node: Any) -> WriterState:
    name = f"{resources.session}/{shared_name.decode() or node.name}"
    return cast(WriterState, resources.lookup_or_create(container, "summary writer", name, WriterState))


def _single(value: Any, what: str) -> Any:
    if not isinstance(value, bytes) and np.ndim(value):
        refuse(f"{what} must be a scalar, got shape {list(np.shape(value))}")
    return value if isinstance(value, bytes) else np.asarray(value)[()]


@create_op.kernel("CPU")
def _create(writer: WriterState, logdir: Any, max_queue: Any, flush_millis: Any, suffix: Any) -> tuple[()]:
    directory, ending = _single(logdir, "logdir"), _single(suffix, "filename_suffix")
    size, millis = _single(max_queue, "max_queue"), _single(flush_millis, "flush_millis")
    writer.open(directory.decode(), int(size), int(millis) / 1000, ending.decode())
    return ()


@flush_op.kernel("CPU")
def _flush(writer: WriterState) -> tuple[()]:
    writer.flush()
    return ()


@close_op.kernel("CPU")
def _close(writer: WriterState) -> tuple[()]:
    writer.close()
    return ()


@import_op.kernel("CPU")
def _import(writer: WriterState, event: Any) -> tuple[()]:
    found = protos.Event()
    _parse(found, _single(event, "event"), "Event")
    writer.write(found)
    return ()


def _parse(message: Any, serialized: bytes, what: str) -> None:
    try:
        message.ParseFromString(serialized)
    except Exception as error:  # protobuf's DecodeError; protobuf is not imported here, for speed.
        raise errors.DataLossError.of(f"Bad {what} binary proto tensor string: {error}") from error


def _write(writer: WriterState, step: Any, serialized: bytes) -> tuple[()]:
    event = protos.Event(wall_time=time.time(), step=int(step))
    _parse(event.summary, serialized, "summary")
    journal.note_summary(event.summary.value, event.step, event.wall_time)
    writer.write(event)
    return ()


@graph_op.kernel("CPU")
def _graph(writer: WriterState, step: Any, tensor: Any) -> tuple[()]:
    writer.write(protos.Event(wall_time=time.time(), step=int(step), graph_def=_single(tensor, "tensor")))
    return ()


@write_op.kernel("CPU")
def _tensor(writer: WriterState, step: Any, tensor: Any, tag: Any, metadata: Any) -> tuple[()]:
    return _write(writer, step, tensor_message(tag, tensor, metadata, keep_empty=False))


@image_op.kernel("CPU")
def _image(writer: WriterState, step: Any, tag: Any, tensor: Any, bad_color: Any, *, max_images: int) -> tuple[()]:
    return _write(writer, step, image_message(tag, tensor, max_images=max_images, bad_color=bad_color))


@audio_op.kernel("CPU")
def _audio(writer: WriterState, step: Any, tag: Any, tensor: Any, sample_rate: Any, *, max_outputs: int) -> tuple[()]:
    return _write(writer, step, audio_message(tag, tensor, sample_rate, max_outputs=max_outputs))
