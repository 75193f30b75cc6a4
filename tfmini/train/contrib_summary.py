"""``tf.contrib.summary``: summary ops that write to an event file themselves.

`scalar`, `histogram` and the like add an op inside ``with writer.as_default(), always_record_summaries():``. A
step must run the op; `all_summary_ops` lists all of them. `initialize` opens the writers.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Tensor
from tfmini.graph.scopes import get_default_session
from tfmini.graph.scoping import control_dependencies, device
from tfmini.ops import summary as ops
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import cast, placeholder
from tfmini.ops.control import no_op
from tfmini.ops.flow.cond import smart_cond
from tfmini.ops.math.comparison import equal
from tfmini.ops.math.elementwise import floormod
from tfmini.ops.summary import summary_scope
from tfmini.ops.variables.base import Variable
from tfmini.train.global_steps import get_global_step, get_or_create_global_step

_INITIALIZERS = "_SUMMARY_WRITER_V2"
_SUMMARIES = "_SUMMARY_V2"
export_names("tensorflow.python.ops.summary_ops_v2", "_INVALID_SCOPE_CHARACTERS")
_INVALID_SCOPE_CHARACTERS = re.compile(r"[^-_/.A-Za-z0-9]")


class _State(threading.local):
    """The recording condition (a bool or bool tensor) and the default writer of a thread."""

    recording: Any = False
    writer: Any = None


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
def _recording(value: TensorLike) -> Iterator[None]:
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
    return _state.recording


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
    if writer is None or writer.resource is None or _state.recording is False:
        return no_op()
    with summary_scope(name, family, kind) as (text, _), device("cpu:0"):
        tag = constant(text, dtypes.string)
        at = cast(convert_to_tensor(get_or_create_global_step() if step is None else step), dtypes.int64)

        def record() -> Any:
            with control_dependencies([write(writer.resource, at, tag)]):
                return constant(True)

        made = smart_cond(_state.recording, record, lambda: constant(False), name="")
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
