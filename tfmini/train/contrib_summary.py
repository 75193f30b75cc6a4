"""``tf.contrib.summary`` in graph mode: summaries that are written by ops of the step, in the task of the writer.

A script makes a writer and makes it the default one; `scalar` and its siblings then add ops that write, if
recording is on, when they are run; `all_summary_ops` gives them to ``Session.run``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tfmini import dtypes
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.default_session import get_default_session
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.array_filling import zeros
from tfmini.ops.array_identity import placeholder
from tfmini.ops.casting import cast
from tfmini.ops.cond import smart_cond
from tfmini.ops.constant import constant
from tfmini.ops.control import no_op
from tfmini.ops.math_comparison import equal
from tfmini.ops.math_elementwise import floormod
from tfmini.ops.scoping import add_to_collection, control_dependencies, device, get_collection, name_scope
from tfmini.ops.summaries import summary_scope
from tfmini.ops.summary_media import audio_summary_v2, image_summary
from tfmini.ops.summary_ops import histogram_summary, scalar_summary, tensor_summary_v2
from tfmini.train import summary_writer_ops as ops
from tfmini.train.training_util import get_or_create_global_step

_INIT_COLLECTION = "_SUMMARY_WRITER_V2"


class _State(threading.local):
    writer: SummaryWriter | None = None
    recording: Any = False


_state = _State()


class SummaryWriter:
    """A writer of summaries (``tf.contrib.summary.SummaryWriter``); `create_file_writer` makes them.

    Args:
      resource: its handle; None for a writer that writes nothing.
      init_op: begins its file.
    """

    def __init__(self, resource: Tensor | None, init_op: Operation | None) -> None:
        self._resource = resource
        self._init_op = init_op

    def set_as_default(self) -> None:
        """Makes it the writer of summaries that are added from now on."""
        _state.writer = self

    @contextmanager
    def as_default(self) -> Iterator[SummaryWriter]:
        """The same, inside a ``with`` block."""
        before, _state.writer = _state.writer, self
        try:
            yield self
        finally:
            _state.writer = before

    def init(self) -> Operation:
        """The op that begins the file."""
        return self._init_op or no_op()

    def flush(self) -> Operation:
        """An op that puts what was written on the disk."""
        return no_op() if self._resource is None else ops.flush_op(self._resource)

    def close(self) -> Operation:
        """An op that flushes and closes the file."""
        return no_op() if self._resource is None else ops.close_op(self._resource)


def create_file_writer(
    logdir: Any, max_queue: Any = None, flush_millis: Any = None, filename_suffix: Any = None, name: str | None = None
) -> SummaryWriter:
    """A writer of an event file (``tf.contrib.summary.create_file_writer``).

    Args:
      logdir: the directory; None for a writer that writes nothing.
      max_queue: how many summaries may wait for the disk, default 10.
      flush_millis: how often they are flushed, in milliseconds, default two minutes.
      filename_suffix: of the file, default ".v2".
      name: under which the sessions of a task share the writer, default by its directory.
    """
    if logdir is None:
        return SummaryWriter(None, None)
    with device("cpu:0"):
        path = convert_to_tensor(str(logdir) if not isinstance(logdir, Tensor) else logdir, dtype=dtypes.string)
        shared = name or (f"logdir:{logdir}" if not isinstance(logdir, Tensor) else "")
        resource = ops.writer_op(shared_name=shared, name="SummaryWriter")
        numbers = [10 if max_queue is None else max_queue, 120_000 if flush_millis is None else flush_millis]
        queue, millis = [convert_to_tensor(number, dtype=dtypes.int32) for number in numbers]
        suffix = convert_to_tensor(".v2" if filename_suffix is None else filename_suffix, dtype=dtypes.string)
        init = ops.create_op(resource, path, queue, millis, suffix)
    add_to_collection(_INIT_COLLECTION, init)
    return SummaryWriter(resource, init)


def summary_writer_initializer_op() -> list[Operation]:
    """The ops that begin the files of all writers of the graph."""
    return get_collection(_INIT_COLLECTION)


def initialize(graph: Any = None, session: Any = None) -> None:
    """Begins the files of all writers, and perhaps writes a graph (``tf.contrib.summary.initialize``).

    Args:
      graph: a `Graph` or GraphDef message for the default writer.
      session: default the default session.

    Raises:
      RuntimeError: without a default writer.
      ValueError: without a session.
    """
    if _state.writer is None:
        raise RuntimeError("No default tf.contrib.summary.SummaryWriter found")
    session = session or get_default_session()
    if session is None:
        raise ValueError("session must be passed if no default session exists")
    session.run(summary_writer_initializer_op())
    if graph is not None:
        message = graph.as_graph_def(add_shapes=True) if hasattr(graph, "as_graph_def") else graph
        text = placeholder(dtypes.string, [])
        session.run(_graph(text, 0), {text: message.SerializeToString()})


@contextmanager
def _recording(when: Any) -> Iterator[None]:
    before, _state.recording = _state.recording, when
    try:
        yield
    finally:
        _state.recording = before


def always_record_summaries() -> Any:
    """Inside the ``with`` block, summaries are written in every step."""
    return _recording(True)


def never_record_summaries() -> Any:
    """Inside the ``with`` block, summaries are not written."""
    return _recording(False)


def record_summaries_every_n_global_steps(n: int, global_step: Any = None) -> Any:
    """Inside the ``with`` block, summaries are written in every ``n``-th step."""
    step = get_or_create_global_step() if global_step is None else global_step
    with device("cpu:0"):
        number = convert_to_tensor(step)
        dtype = number.dtype.base_dtype
        return _recording(equal(floormod(number, constant(n, dtype)), zeros([], dtype)))


def should_record_summaries() -> Any:
    """Whether summaries are written here: a bool, or a tensor of one."""
    return _state.recording


def all_summary_ops() -> list[Any]:
    """The ops that write the summaries of the graph, for ``Session.run``."""
    return get_collection(GraphKeys._SUMMARY_COLLECTION)


def _number_of(step: Any) -> Any:
    return cast(get_or_create_global_step() if step is None else convert_to_tensor(step), dtypes.int64)


def _written(
    name: str, tensor: Any, make: Callable[[str, str], Tensor], family: str | None, step: Any
) -> Any:
    """An op that writes what ``make(tag, scope)`` gives, if recording is on."""
    writer = _state.writer
    if writer is None or writer._resource is None:
        return no_op()
    resource = writer._resource
    scope = get_default_graph().get_name_scope()

    def record() -> Any:
        with name_scope(f"{scope}/" if scope else None), summary_scope(name, family, values=[tensor]) as (tag, inner):
            summary = make(tag, inner)
            with control_dependencies([ops.write_summary_op(resource, _number_of(step), summary)]):
                return constant(True)

    with device("cpu:0"):
        op = smart_cond(should_record_summaries(), record, lambda: constant(False), name="")
    add_to_collection(GraphKeys._SUMMARY_COLLECTION, op)
    return op


def scalar(name: str, tensor: Any, family: str | None = None, step: Any = None) -> Any:
    """An op that writes one number, as ``tf.summary.scalar`` makes it.

    Args:
      step: the number of the step, default the global step.
    """
    return _written(name, tensor, lambda tag, scope: scalar_summary(tag, tensor, name=scope), family, step)


def histogram(name: str, tensor: Any, family: str | None = None, step: Any = None) -> Any:
    """An op that writes the distribution of a tensor, as ``tf.summary.histogram`` makes it."""
    return _written(name, tensor, lambda tag, scope: histogram_summary(tag, tensor, name=scope), family, step)


def image(
    name: str, tensor: Any, bad_color: Any = None, max_images: int = 3, family: str | None = None, step: Any = None
) -> Any:
    """An op that writes images, as ``tf.summary.image`` makes them; ``bad_color`` is for pixels that are no numbers."""
    options = {} if bad_color is None else {"bad_color": bad_color}

    def make(tag: str, scope: str) -> Tensor:
        return image_summary(tag, tensor, max_images=max_images, name=scope, **options)  # type: ignore[no-any-return]

    return _written(name, tensor, make, family, step)


def audio(
    name: str, tensor: Any, sample_rate: Any, max_outputs: int = 3, family: str | None = None, step: Any = None
) -> Any:
    """An op that writes sounds, as ``tf.summary.audio`` makes them."""

    def make(tag: str, scope: str) -> Tensor:
        rate = convert_to_tensor(sample_rate, dtype=dtypes.float32, name="sample_rate")
        return audio_summary_v2(tag, tensor, rate, max_outputs=max_outputs, name=scope)  # type: ignore[no-any-return]

    return _written(name, tensor, make, family, step)


def generic(name: str, tensor: Any, metadata: Any = None, family: str | None = None, step: Any = None) -> Any:
    """An op that writes a whole tensor, with a SummaryMetadata message (or its bytes) for TensorBoard's plugins."""
    text = b"" if metadata is None else metadata if isinstance(metadata, bytes) else metadata.SerializeToString()
    return _written(name, tensor, lambda tag, scope: tensor_summary_v2(tag, tensor, text, name=scope), family, step)


def import_event(tensor: Any, name: str | None = None) -> Operation:
    """An op that writes a serialized Event message, a scalar string."""
    assert _state.writer is not None, "import_event needs a default writer"
    return ops.import_event_op(_state.writer._resource, tensor, name=name)  # type: ignore[no-any-return]


def _graph(text: Tensor, step: Any) -> Operation:
    writer = _state.writer
    if writer is None or writer._resource is None:
        return no_op()
    return ops.write_graph_op(writer._resource, _number_of(step), text)  # type: ignore[no-any-return]


def flush(writer: SummaryWriter | None = None, name: str | None = None) -> Operation:
    """An op that flushes a writer, default the default one."""
    chosen = writer or _state.writer
    return no_op(name=name) if chosen is None else chosen.flush()
