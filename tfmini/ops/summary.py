"""``tf.summary.scalar`` and the other summary functions, with their tags and collections."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

from tfmini import dtypes, errors, protos
from tfmini.checkpoint.files import local_path
from tfmini.core_types import Array, TensorLike
from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor
from tfmini.graph.names import GraphKeys
from tfmini.graph.node import Node
from tfmini.graph.scoping import add_to_collection, get_collection, name_scope
from tfmini.journal import journal
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.io.files import EventFile
from tfmini.ops.summary_ops import (
    audio_message,
    audio_summary_v2,
    histogram_message,
    histogram_summary,
    image_message,
    image_summary,
    merge_summary,
    scalar_message,
    scalar_summary,
    tensor_message,
    tensor_summary_v2,
)
from tfmini.ops.waiting_line import state_op

_log = logging.getLogger("tensorflow")
_NOT_IN_TAGS = re.compile(r"[^-/\w\.]")


def clean_tag(name: str | None) -> str | None:
    """The name with ``_`` for invalid characters, and without leading slashes; logs a change."""
    if name is None:
        return None
    cleaned = _NOT_IN_TAGS.sub("_", name).lstrip("/")
    if cleaned != name:
        _log.info("Summary name %s is illegal; using %s instead.", name, cleaned)
    return cleaned


@contextmanager
def summary_scope(
    name: str | None, family: str | None = None, default_name: str | None = None,
    values: Sequence[TensorLike] | None = None,
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """A name scope for one summary; yields its tag and the scope's name.

    The tag is the scope without the final ``/``, after ``family/`` if there is a family, so that the
    family comes first in all name scopes.
    """
    name, family = clean_tag(name), clean_tag(family)
    with name_scope(name if family is None else f"{family}/{name}", default_name, values) as scope:
        inner = scope.rstrip("/")
        yield (inner if family is None else f"{family}/{inner}"), scope


def collect(value: Tensor, collections: Sequence[str] | None, default: Sequence[str]) -> None:
    """Adds a summary to ``collections``, or to ``default`` if that is None."""
    for key in default if collections is None else collections:
        add_to_collection(key, value)


@export("tf.summary.scalar")
def scalar(name: str, tensor: Any, collections: Sequence[str] | None = None, family: str | None = None) -> Tensor:
    """A summary of one number (``tf.summary.scalar``).

    Args:
      name: of the op; with the name scopes it is also the series' name.
      tensor: a real tensor with a single element.
      collections: the collections to add the op to, default ``[GraphKeys.SUMMARIES]``.
      family: comes first in the tag; TensorBoard groups by it.

    Returns:
      A scalar string tensor: the serialized Summary.
    """
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        made: Tensor = scalar_summary(tag, tensor, name=scope)
        collect(made, collections, [GraphKeys.SUMMARIES])
    return made


@export("tf.summary.histogram")
def histogram(
    name: str, values: TensorLike, collections: Sequence[str] | None = None, family: str | None = None
) -> Tensor:
    """A summary of the distribution of a real tensor's elements (``tf.summary.histogram``).

    In the step, it raises `InvalidArgumentError` when an element is not finite. See `scalar` for the arguments.

    Args:
      name: the tag in TensorBoard, and the name of the op.
      values: a tensor of real numbers of any shape.
      collections: graph collections to add the summary to; default SUMMARIES, which `merge_all` reads.
      family: a prefix of the tag, for TensorBoard's tabs.

    Returns:
      A string scalar: a serialized Summary.
    """
    with summary_scope(name, family, "HistogramSummary", [values]) as (tag, scope):
        made: Tensor = histogram_summary(tag, values, name=scope)
        collect(made, collections, [GraphKeys.SUMMARIES])
    return made


@export("tf.summary.image")
def image(
    name: str, tensor: TensorLike, max_outputs: int = 3, collections: Sequence[str] | None = None,
    family: str | None = None,
) -> Tensor:  # fmt: skip
    """A summary of up to ``max_outputs`` images (``tf.summary.image``), tagged ``name/image/i``.

    Args:
      tensor: [batch, height, width, channels] with 1, 3 or 4 channels. uint8 values are unchanged; floats
        are scaled per image to 0…255, centered at 128 if some are negative.

    See `scalar` for the other arguments.
    """
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        made: Tensor = image_summary(tag, tensor, max_images=max_outputs, name=scope)
        collect(made, collections, [GraphKeys.SUMMARIES])
    return made


@export("tf.summary.audio")
def audio(
    name: str, tensor: TensorLike, sample_rate: TensorLike, max_outputs: int = 3,
    collections: Sequence[str] | None = None, family: str | None = None,
) -> Tensor:  # fmt: skip
    """A summary of up to ``max_outputs`` sounds (``tf.summary.audio``), tagged ``name/audio/i``.

    Args:
      tensor: float32 in -1…1, [batch, frames, channels] or [batch, frames].
      sample_rate: in hertz, a scalar.

    See `scalar` for the other arguments.
    """
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        rate = convert_to_tensor(sample_rate, dtype=dtypes.float32, name="sample_rate")
        made: Tensor = audio_summary_v2(tag, tensor, rate, max_outputs=max_outputs, name=scope)
        collect(made, collections, [GraphKeys.SUMMARIES])
    return made


@export("tf.summary.tensor_summary")
def tensor_summary(
    name: str, tensor: TensorLike, summary_description: str | None = None, collections: Sequence[str] | None = None,
    summary_metadata: Any = None, family: str | None = None, display_name: str | None = None,
) -> Tensor:  # fmt: skip
    """A summary of a whole tensor of any type, for TensorBoard's plugins (``tf.summary.tensor_summary``).

    Args:
      summary_description: a description in Markdown.
      summary_metadata: a SummaryMetadata message, which names the plugin.
      display_name: the name of the series in TensorBoard; default: the tag.

    See `scalar` for the other arguments.
    """
    metadata = protos.SummaryMetadata() if summary_metadata is None else summary_metadata
    if summary_description is not None:
        metadata.summary_description = summary_description
    if display_name is not None:
        metadata.display_name = display_name
    with summary_scope(name, family, values=[tensor]) as (tag, scope):
        made: Tensor = tensor_summary_v2(tag, tensor, metadata.SerializeToString(), name=scope)
        collect(made, collections, [GraphKeys.SUMMARIES])
    return made


@export("tf.summary.text")
def text(name: str, tensor: Tensor, collections: Sequence[str] | None = None) -> Tensor:
    """A summary of strings, shown as Markdown and tables (``tf.summary.text``).

    Raises:
      ValueError: when ``tensor`` is not a string tensor.
    """
    if tensor.dtype.base_dtype is not dtypes.string:
        raise ValueError(f"Expected tensor {tensor.name} to have dtype string, got {tensor.dtype!r}")
    metadata = protos.SummaryMetadata(plugin_data=protos.SummaryMetadata.PluginData(plugin_name="text"))
    return tensor_summary(name, tensor, summary_metadata=metadata, collections=collections)


@export("tf.summary.merge")
def merge(inputs: Sequence[Any], collections: Sequence[str] | None = None, name: str | None = None) -> Tensor:
    """One summary with all the values of several (``tf.summary.merge``).

    In the step, it raises `InvalidArgumentError` when two values have the same tag.

    Args:
      inputs: scalar string tensors, serialized Summary messages.
      collections: the collections to add the op to, default none.
    """
    name = clean_tag(name)
    with name_scope(name, "Merge", inputs):
        made: Tensor = merge_summary(list(inputs), name=name)
        collect(made, collections, [])
    return made


@export("tf.summary.merge_all")
def merge_all(key: str = GraphKeys.SUMMARIES, scope: str | None = None, name: str | None = None) -> Tensor | None:
    """`merge` of the summaries in a collection of the default graph; None if there are none (``tf.summary.merge_all``).

    Args:
      key: the collection.
      scope: a regular expression; only summaries whose names match it at their start.
    """
    found = get_collection(key, scope=scope)
    return merge(found, name=name) if found else None


# ---- ``tf.contrib.deprecated``: the summaries of TensorFlow 0.x, whose tags have no name scopes ---------------------


@contextmanager
def _tagged(name: str | None, default: str, values: Sequence[Any], collections: Any, ours: Any) -> Iterator[Any]:
    """A name scope for a summary; yields its name and what to call with the summary to collect and return it."""

    def collected(made: Any) -> Any:
        collect(made, collections, ours)
        return made

    with name_scope(name, default, values) as scope:
        yield scope, collected


@export("tf.contrib.deprecated.scalar_summary")
def deprecated_scalar_summary(tags: TensorLike, values: TensorLike, collections: Any = None, name: Any = None) -> Any:
    """A summary of numbers, one for each of the tags (``tf.contrib.deprecated.scalar_summary``)."""
    with _tagged(name, "ScalarSummary", [tags, values], collections, [GraphKeys.SUMMARIES]) as (scope, collected):
        return collected(scalar_summary(tags, values, name=scope))


@export("tf.contrib.deprecated.histogram_summary")
def deprecated_histogram_summary(tag: TensorLike, values: TensorLike, collections: Any = None, name: Any = None) -> Any:
    """`histogram` with the tag as it is (``tf.contrib.deprecated.histogram_summary``)."""
    with _tagged(name, "HistogramSummary", [tag, values], collections, [GraphKeys.SUMMARIES]) as (scope, collected):
        return collected(histogram_summary(tag, values, name=scope))


@export("tf.contrib.deprecated.image_summary")
def deprecated_image_summary(
    tag: TensorLike, tensor: TensorLike, max_images: int = 3, collections: Any = None, name: Any = None
) -> Any:
    """`image` with tags ``tag/image/i`` (``tf.contrib.deprecated.image_summary``)."""
    with _tagged(name, "ImageSummary", [tag, tensor], collections, [GraphKeys.SUMMARIES]) as (scope, collected):
        return collected(image_summary(tag, tensor, max_images=max_images, name=scope))


@export("tf.contrib.deprecated.audio_summary")
def deprecated_audio_summary(
    tag: TensorLike, tensor: TensorLike, sample_rate: TensorLike, max_outputs: int = 3, collections: Any = None,
    name: Any = None,
) -> Any:  # fmt: skip
    """`audio` with tags ``tag/audio/i`` (``tf.contrib.deprecated.audio_summary``)."""
    with _tagged(name, "AudioSummary", [tag, tensor], collections, [GraphKeys.SUMMARIES]) as (scope, collected):
        rate = convert_to_tensor(sample_rate, dtype=dtypes.float32, name="sample_rate")
        return collected(audio_summary_v2(tag, tensor, rate, max_outputs=max_outputs, name=scope))


@export("tf.contrib.deprecated.merge_summary")
def deprecated_merge_summary(inputs: Sequence[Any], collections: Any = None, name: Any = None) -> Any:
    """`merge` (``tf.contrib.deprecated.merge_summary``)."""
    with _tagged(name, "MergeSummary", inputs, collections, []) as (_, collected):
        return collected(merge_summary(list(inputs), name=name))


@export("tf.contrib.deprecated.merge_all_summaries")
def deprecated_merge_all_summaries(key: str = GraphKeys.SUMMARIES) -> Tensor | None:
    """`merge_all` (``tf.contrib.deprecated.merge_all_summaries``)."""
    found = get_collection(key)
    return deprecated_merge_summary(found) if found else None


@export("tf.summary.get_summary_description")
def get_summary_description(node_def: Any) -> Any:
    """The SummaryDescription of a TensorSummary node (``tf.summary.get_summary_description``).

    Raises:
      ValueError: for a NodeDef of another op.
    """
    from google.protobuf import json_format

    if node_def.op != "TensorSummary":
        raise ValueError(f"Can't get_summary_description on {node_def.op}")
    return json_format.Parse(node_def.attr["description"].s.decode(), protos.SummaryDescription())


# ---- Summary writers in a session's task: ``SummaryWriter`` and the ops that write with it -------------------------
# Ops that open a writer of one name in one session share its file. An event is written to disk when the
# writer is flushed or closed, when its queue is full, or when its flush interval has passed.

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
scalar_op.kernel("CPU")(lambda writer, step, tag, value: _write(writer, step, scalar_message(tag, _first(value))))
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
                os.makedirs(local_path(logdir), exist_ok=True)
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
def _writer(resources: Any, *, shared_name: bytes, container: bytes, node: Node) -> WriterState:
    name = f"{resources.session}/{shared_name.decode() or node.name}"
    return cast(WriterState, resources.lookup_or_create(container, "summary writer", name, WriterState))


def _first(value: Array) -> Any:
    """The value of a scalar summary: of a tensor that is none, the first element, as TensorFlow writes it."""
    if not np.size(value):
        refuse(f"value must be a scalar, got shape {list(np.shape(value))}")
    return np.ravel(value)[0]


def _single(value: Array, what: str) -> Any:
    if not isinstance(value, bytes) and np.ndim(value):
        refuse(f"{what} must be a scalar, got shape {list(np.shape(value))}")
    return value if isinstance(value, bytes) else np.asarray(value)[()]


@create_op.kernel("CPU")
def _create(writer: WriterState, logdir: Array, max_queue: Array, flush_millis: Array, suffix: Array) -> tuple[()]:
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
def _graph(writer: WriterState, step: Array, tensor: Array) -> tuple[()]:
    writer.write(protos.Event(wall_time=time.time(), step=int(step), graph_def=_single(tensor, "tensor")))
    return ()


@write_op.kernel("CPU")
def _tensor(writer: WriterState, step: Array, tensor: Array, tag: Array, metadata: Array) -> tuple[()]:
    return _write(writer, step, tensor_message(tag, tensor, metadata, keep_empty=False))


@image_op.kernel("CPU")
def _image(
    writer: WriterState, step: Array, tag: Array, tensor: Array, bad_color: Array, *, max_images: int
) -> tuple[()]:
    return _write(writer, step, image_message(tag, tensor, max_images=max_images, bad_color=bad_color))


@audio_op.kernel("CPU")
def _audio(
    writer: WriterState, step: Array, tag: Array, tensor: Array, sample_rate: Array, *, max_outputs: int
) -> tuple[()]:
    return _write(writer, step, audio_message(tag, tensor, sample_rate, max_outputs=max_outputs))
