"""``tf.contrib.summary`` and ``tf.compat.v2.summary``: summary ops that write to an event file themselves.

`scalar`, `histogram` and the like add an op inside ``with writer.as_default(), always_record_summaries():``. A
step must run the op; `all_summary_ops` lists all of them. `initialize` opens the writers. Those of version 2 need no
``always_record_summaries()``, but a step; their names are in `tfmini.compat.version_2`.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tfmini import dtypes, protos
from tfmini.core_types import TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Tensor
from tfmini.graph.scopes import get_default_session
from tfmini.graph.scoping import control_dependencies, device, name_scope
from tfmini.ops import summary as ops
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import cast, identity, placeholder
from tfmini.ops.control import no_op
from tfmini.ops.flow.cond import smart_cond
from tfmini.ops.math.comparison import equal
from tfmini.ops.math.elementwise import floormod
from tfmini.ops.variables.base import Variable
from tfmini.train.global_steps import get_global_step, get_or_create_global_step

_INITIALIZERS = "_SUMMARY_WRITER_V2"
_SUMMARIES = "_SUMMARY_V2"
export_names("tensorflow.python.ops.summary_ops_v2", "_INVALID_SCOPE_CHARACTERS")
_numbers = itertools.count()
_INVALID_SCOPE_CHARACTERS = re.compile(r"[^-_/.A-Za-z0-9]")


class _State(threading.local):
    """The recording condition (a bool, a bool tensor or a function), the default writer and step of a thread."""

    recording: Any = None
    writer: Any = None
    step: Any = None


_state = _State()


@export("tf.contrib.summary.SummaryWriter")
class SummaryWriter:
    """A writer of an event file, which is a resource of the session's task.

    Attributes:
      resource: the resource handle.
    """

    def __init__(self, resource: object, create: Callable[[], Any] | None) -> None:
        self.resource = resource
        self._create = create
        self._init: Any = None
        if create is not None:
            get_default_graph().add_to_collection(_INITIALIZERS, self.init())

    def init(self) -> Any:
        """An op that opens the file."""
        if self._init is None:
            self._init = no_op() if self._create is None else self._create()
        return self._init

    def flush(self) -> Any:
        """An op that flushes the file to disk."""
        return ops.flush_op(self.resource)

    def close(self) -> Any:
        """An op that flushes and closes the file."""
        with control_dependencies([self.flush()]):
            return ops.close_op(self.resource)

    @contextmanager
    def as_default(self) -> Iterator[SummaryWriter]:
        """A context in which summaries go to this writer."""
        before, _state.writer = _state.writer, self
        try:
            yield self
        finally:
            _state.writer = before

    def set_as_default(self) -> None:
        """Makes this the default writer of the current thread."""
        _state.writer = self


@export("tf.contrib.summary.create_file_writer", "tf.contrib.summary.create_summary_file_writer")
def create_file_writer(
    logdir: Any,
    max_queue: TensorLike | None = None,
    flush_millis: TensorLike | None = None,
    filename_suffix: TensorLike | None = None,
    name: str | None = None,
) -> SummaryWriter:
    """A writer of an event file in ``logdir`` (``tf.contrib.summary.create_file_writer``).

    Args:
      logdir: the directory; None for a writer that discards all events.
      max_queue: maximum number of queued events, default 10.
      flush_millis: milliseconds between flushes, default 120000.
      filename_suffix: last part of the file's name, default ".v2".
      name: shared name of the writer; writers with the same name in a session share a file; default: by ``logdir``.
    """
    if logdir is None:
        return SummaryWriter(None, None)
    suffix = ".v2" if filename_suffix is None else filename_suffix
    with device("cpu:0"):
        shared = name or f"logdir:{logdir}"
        resource = ops.writer_op(shared_name=shared, name="SummaryWriter")
        queue = constant(10 if max_queue is None else max_queue, dtypes.int32)
        millis = constant(2 * 60 * 1000 if flush_millis is None else flush_millis, dtypes.int32)
        return SummaryWriter(resource, lambda: ops.create_op(resource, str(logdir), queue, millis, suffix))


# ---- the recording condition --------------------------------------------------------------------


@contextmanager
def _recording(value: object) -> Iterator[None]:
    before, _state.recording = _state.recording, value
    try:
        yield
    finally:
        _state.recording = before


@export("tf.contrib.summary.always_record_summaries")
def always_record_summaries() -> Any:
    """A context in which every summary is written."""
    return _recording(True)


@export("tf.contrib.summary.never_record_summaries")
def never_record_summaries() -> Any:
    """A context in which no summary is written."""
    return _recording(False)


@export("tf.contrib.summary.record_summaries_every_n_global_steps")
def record_summaries_every_n_global_steps(n: int, global_step: Variable | Tensor | None = None) -> Any:
    """A context in which summaries are written in every ``n``-th step."""
    step = get_or_create_global_step() if global_step is None else global_step
    with device("cpu:0"):
        return _recording(equal(floormod(convert_to_tensor(step), np.int64(n)), np.int64(0)))


@export("tf.contrib.summary.should_record_summaries")
def should_record_summaries() -> Any:
    """Whether summaries are written: a bool or a bool tensor."""
    return _is_recording(by_default=False)


def _is_recording(by_default: bool) -> Any:
    asked = _state.recording() if callable(_state.recording) else _state.recording
    return by_default if asked is None else asked


# ---- the summaries ------------------------------------------------------------------------------


def _recorded(
    name: str | None,
    kind: str,
    step: TensorLike | None,
    write: Callable[[Any, Any, Any], Any],
    family: str | None = None,
) -> Any:
    """Adds the op ``write(resource, step, tag)``; the tag includes the name scopes, as in ``tf.summary``."""
    writer = _state.writer
    recording = should_record_summaries()
    if writer is None or writer.resource is None or recording is False:
        return no_op()
    with ops.summary_scope(name, family, kind) as (text, _), device("cpu:0"):  # which AdaNet replaces
        tag = constant(text, dtypes.string)
        at = cast(convert_to_tensor(get_or_create_global_step() if step is None else step), dtypes.int64)
        return _written(recording, lambda: write(writer.resource, at, tag), "")


def _written(recording: TensorLike, write: Callable[[], Any], name: str) -> Any:
    """Writes a summary if it is to be recorded, and says whether it was."""

    def record() -> Any:
        with control_dependencies([write()]):
            return constant(True)

    made = smart_cond(recording, record, lambda: constant(False), name=name)
    get_default_graph().add_to_collection(_SUMMARIES, made)
    return made


@export("tf.contrib.summary.generic")
def generic(
    name: str, tensor: TensorLike, metadata: Any = None, family: str | None = None, step: TensorLike | None = None
) -> Any:
    """Writes a tensor with a SummaryMetadata message."""
    serialized = metadata.SerializeToString() if hasattr(metadata, "SerializeToString") else metadata or b""
    return _recorded(name, "generic", step, lambda w, s, tag: ops.write_op(w, s, tensor, tag, serialized), family)


@export("tf.contrib.summary.scalar")
def scalar(name: str, tensor: TensorLike, family: str | None = None, step: TensorLike | None = None) -> Any:
    """Writes a scalar (``tf.contrib.summary.scalar``)."""
    return _recorded(name, "scalar", step, lambda w, s, tag: ops.scalar_op(w, s, tag, tensor), family)


@export("tf.contrib.summary.histogram")
def histogram(name: str, tensor: TensorLike, family: str | None = None, step: TensorLike | None = None) -> Any:
    """Writes the distribution of a tensor's elements (``tf.contrib.summary.histogram``)."""
    return _recorded(name, "histogram", step, lambda w, s, tag: ops.histogram_op(w, s, tag, tensor), family)


@export("tf.contrib.summary.image")
def image(
    name: str,
    tensor: TensorLike,
    bad_color: TensorLike | None = None,
    max_images: int = 3,
    family: str | None = None,
    step: TensorLike | None = None,
) -> Any:
    """Writes images of shape (batch, rows, columns, channels) (``tf.contrib.summary.image``)."""
    color = constant([255, 0, 0, 255] if bad_color is None else bad_color, dtypes.uint8)
    return _recorded(
        name, "image", step,
        lambda w, s, tag: ops.image_op(w, s, tag, tensor, color, max_images=max_images), family,
    )  # fmt: skip


@export("tf.contrib.summary.audio")
def audio(
    name: str,
    tensor: TensorLike,
    sample_rate: TensorLike,
    max_outputs: int,
    family: str | None = None,
    step: TensorLike | None = None,
) -> Any:
    """Writes audio of shape (batch, frames, channels) (``tf.contrib.summary.audio``)."""
    return _recorded(
        name, "audio", step,
        lambda w, s, tag: ops.audio_op(w, s, tag, tensor, cast(sample_rate, dtypes.float32), max_outputs=max_outputs),
        family,
    )  # fmt: skip


@export("tf.contrib.summary.import_event")
def import_event(tensor: TensorLike, name: str | None = None) -> Any:
    """Writes a serialized Event message unchanged."""
    return _recorded(name, "import_event", 0, lambda w, s, tag: ops.import_op(w, tensor))


@export("tf.contrib.summary.graph")
def graph(param: object, step: TensorLike | None = None, name: str | None = None) -> Any:
    """Writes a serialized GraphDef from a string tensor.

    Raises:
      TypeError: when ``param`` is a `Graph`; use `initialize` for graphs.
    """
    if not hasattr(param, "op") and not isinstance(param, (bytes, str)):
        raise TypeError("graph() needs a tensor (e.g. tf.placeholder) in graph mode")
    return _recorded(name, "graph", 0 if step is None else step, lambda w, s, tag: ops.graph_op(w, s, param))


# ---- opening and listing ------------------------------------------------------------------------


@export("tf.contrib.summary.summary_writer_initializer_op")
def summary_writer_initializer_op() -> list[Any]:
    """The ops that open the writers of the default graph."""
    return get_default_graph().get_collection(_INITIALIZERS)


@export("tf.summary.all_v2_summary_ops", "tf.contrib.summary.all_summary_ops")
def all_summary_ops() -> list[Any]:
    """The summary ops of the default graph (``tf.summary.all_v2_summary_ops``)."""
    return get_default_graph().get_collection(_SUMMARIES)


@export("tf.summary.initialize", "tf.contrib.summary.initialize")
def initialize(graph: Any = None, session: Any = None) -> None:
    """Opens the writers and writes ``graph``, if given, to the default one (``tf.summary.initialize``).

    Args:
      graph: a `Graph` or GraphDef to write.
      session: default: the default session.

    Raises:
      RuntimeError: when there is no default writer.
      ValueError: when there is no session.
    """
    if _state.writer is None:
        raise RuntimeError("No default tf.contrib.summary.SummaryWriter found")
    session = get_default_session() if session is None else session
    if session is None:
        raise ValueError("session must be passed if no default session exists")
    session.run(summary_writer_initializer_op())
    if graph is None:
        return
    data = graph.as_graph_def(add_shapes=True) if hasattr(graph, "as_graph_def") else graph
    holder = placeholder(dtypes.string)
    step = get_global_step()
    at = np.int64(0) if step is None else cast(convert_to_tensor(step), dtypes.int64)
    session.run(ops.graph_op(_state.writer.resource, at, holder), {holder: data.SerializeToString()})


@export("tf.contrib.summary.flush")
def flush(writer: Any = None, name: str | None = None) -> Any:
    """An op that flushes ``writer`` or the default writer."""
    writer = _state.writer if writer is None else writer
    resource = writer.resource if isinstance(writer, SummaryWriter) else writer
    return no_op() if resource is None else ops.flush_op(resource, name=name)


# ---- version 2: `tf.compat.v2.summary` ---------------------------------------------------------------------------


def create_file_writer_2(
    logdir: TensorLike,
    max_queue: TensorLike | None = None,
    flush_millis: TensorLike | None = None,
    filename_suffix: str | None = None,
    name: str | None = None,
) -> SummaryWriter:
    """A writer of an event file of its own in ``logdir`` (``tf.compat.v2.summary.create_file_writer``).

    Raises:
      ValueError: ``logdir`` is None.
    """
    if logdir is None:
        raise ValueError("logdir cannot be None")
    suffix = f".{os.getpid()}.{next(_numbers)}" + (".v2" if filename_suffix is None else filename_suffix)
    shared = get_default_graph().unique_name(name or "create_file_writer")
    return create_file_writer(logdir, max_queue, flush_millis, suffix, shared)


def create_noop_writer() -> SummaryWriter:
    """A writer that discards all events (``tf.compat.v2.summary.create_noop_writer``)."""
    return SummaryWriter(None, None)


@contextmanager
def record_if(condition: object) -> Iterator[None]:
    """A context in which summaries are written if the condition holds (``tf.compat.v2.summary.record_if``).

    Args:
      condition: a bool, a bool tensor, or a function that gives one and is called for each summary.
    """
    with _recording(condition):
        yield


def get_step() -> Any:
    """The step of summaries without one, or None (``tf.compat.v2.summary.experimental.get_step``)."""
    return _state.step


def set_step(step: TensorLike | None) -> None:
    """Sets the step of this thread's summaries without one (``tf.compat.v2.summary.experimental.set_step``)."""
    _state.step = step


def write(
    tag: TensorLike, tensor: TensorLike, step: TensorLike | None = None, metadata: Any = None, name: str | None = None
) -> Any:
    """Writes a tensor with a SummaryMetadata message (``tf.compat.v2.summary.write``); returns whether it did.

    Raises:
      ValueError: there is a writer, but neither ``step`` nor one of `set_step`.
    """
    writer = _state.writer
    if writer is None or writer.resource is None:
        return constant(False)
    serialized = metadata.SerializeToString() if hasattr(metadata, "SerializeToString") else metadata or b""
    with get_default_graph().name_scope(name or "write_summary"), device("cpu:0"):
        at = cast(convert_to_tensor(_chosen(step)), dtypes.int64)
        return _written(
            _is_recording(by_default=True),
            lambda: ops.write_op(writer.resource, at, identity(tensor), tag, serialized),
            "summary_cond",
        )


def _chosen(step: TensorLike | None) -> Any:
    if step is None and _state.step is None:
        raise ValueError("No step set via 'step' argument or tf.summary.experimental.set_step()")
    return _state.step if step is None else step


def of_version_2(function: Callable[..., Any]) -> Callable[..., Any]:
    """A summary of version 1 that is recorded as those of version 2 are: by default, and with a step."""

    @functools.wraps(function)
    def recorded(*args: Any, step: TensorLike | None = None, **kwargs: Any) -> Any:
        if _state.writer is None or _state.writer.resource is None:
            return constant(False)
        with _recording(_is_recording(by_default=True)):
            return function(*args, step=_chosen(step), **kwargs)

    return recorded


audio_2, histogram_2, image_2 = of_version_2(audio), of_version_2(histogram), of_version_2(image)


@export("tensorflow.python.ops.summary_ops_v2.summary_scope")
@contextmanager
def summary_scope(
    name: str, default_name: str = "summary", values: Sequence[TensorLike] | None = None
) -> Iterator[tuple[str, str]]:
    """A name scope for one summary; yields its tag, which keeps characters that the scope may not have, and the scope.

    TF name: ``tf.compat.v2.summary.experimental.summary_scope``.
    """
    name = name or default_name
    around = get_default_graph().get_name_scope()
    with name_scope(_INVALID_SCOPE_CHARACTERS.sub("", name) or None, default_name, values) as scope:
        yield f"{around}/{name}" if around else name, scope


def scalar_2(name: str, data: TensorLike, step: TensorLike | None = None, description: str | None = None) -> Any:
    """Writes a scalar as a float32 tensor (``tf.compat.v2.summary.scalar``); the tag includes the name scopes."""
    return _tensor_summary("scalars", name, "scalar_summary", cast(data, dtypes.float32), step, description)


def text_2(name: str, data: TensorLike, step: TensorLike | None = None, description: str | None = None) -> Any:
    """Writes strings (``tf.compat.v2.summary.text``); the tag includes the name scopes."""
    return _tensor_summary("text", name, "text_summary", convert_to_tensor(data), step, description)


def _tensor_summary(
    plugin: str, name: str, scope: str, data: TensorLike, step: TensorLike | None, description: str | None
) -> Any:
    metadata: Any = protos.SummaryMetadata(summary_description=description or "")
    metadata.plugin_data.plugin_name = plugin
    with summary_scope(name, scope) as (tag, _):
        return write(tag, data, step, metadata)
