"""Reader ops: ``TextLineReaderV2`` and other kinds, ``ReaderReadV2``, ``ReaderReadUpToV2``, …"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.core_types import Array, TensorLike
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, ShapeRule, all_of
from tfmini.graph.node import Node
from tfmini.graph.op_types import DeviceResources, Wait
from tfmini.graph.operation import Tensor
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.io.files import TFRecordOptions
from tfmini.ops.io.reader_state import (
    FixedLengthRecordReaderState,
    IdentityReaderState,
    ReaderState,
    TextLineReaderState,
    TFRecordReaderState,
    WholeFileReaderState,
)
from tfmini.ops.queues.queue_state import QueueState
from tfmini.ops.queues.queues import QueueBase
from tfmini.ops.waiting_line import find_or_create, state_op
from tfmini.shapes import RawShape, with_rank

_SHARED = "container: string = ''; shared_name: string = ''"
_FIXED = "header_bytes: int = 0; record_bytes: int; footer_bytes: int = 0; hop_bytes: int = 0"


def _reader(name: str, attrs: str, more: str = "") -> tuple[OpHandle[Any], OpHandle[Any]]:
    """Declares a reader op with a resource handle, and the old op with a reference."""
    new = state_op(f"{name}V2() -> reader_handle: resource; {attrs}{more}", [()])
    return new, state_op(f"{name}() -> reader_handle: Ref(string); {attrs}", [(2,)])


def _access(name: str, inputs: str, outputs: str, shape: ShapeRule) -> tuple[OpHandle[Any], OpHandle[Any]]:
    result = f" -> {outputs}" if outputs else ""
    old_inputs = inputs.replace("queue_handle: resource", "queue_handle: Ref(string)")
    new = state_op(f"{name}V2(reader_handle: resource{inputs}){result}", shape)
    return new, state_op(f"{name}(reader_handle: Ref(string){old_inputs}){result}", shape)


def _scalar_state(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[1].raw_shape, 0)
    return []


whole_file, whole_file_v1 = _reader("WholeFileReader", _SHARED)
text_line, text_line_v1 = _reader("TextLineReader", f"skip_header_lines: int = 0; {_SHARED}")
fixed_length, fixed_length_v1 = _reader("FixedLengthRecordReader", f"{_FIXED}; {_SHARED}", "; encoding: string = ''")
tf_record, tf_record_v1 = _reader("TFRecordReader", f"{_SHARED}; compression_type: string = ''")
identity, identity_v1 = _reader("IdentityReader", _SHARED)
read, read_v1 = _access("ReaderRead", ", queue_handle: resource", "key: string, value: string", [(), ()])
read_up_to, read_up_to_v1 = _access(
    "ReaderReadUpTo", ", queue_handle: resource, num_records: int64", "keys: string, values: string",
    [(None,), (None,)],
)  # fmt: skip
num_records, num_records_v1 = _access("ReaderNumRecordsProduced", "", "records_produced: int64", [()])
num_units, num_units_v1 = _access("ReaderNumWorkUnitsCompleted", "", "units_completed: int64", [()])
serialize, serialize_v1 = _access("ReaderSerializeState", "", "state: string", [()])
restore, restore_v1 = _access("ReaderRestoreState", ", state: string", "", _scalar_state)
reset, reset_v1 = _access("ReaderReset", "", "", [])


# ---- the readers ----------------------------------------------------------------------------


def _state(resources: DeviceResources, node: Node, create: Callable[[str], ReaderState]) -> ReaderState:
    attrs = node.attrs
    return find_or_create(resources, attrs["container"], attrs["shared_name"], node, "reader", create)


@all_of(whole_file, whole_file_v1).state_kernel("CPU")
def _whole_file(resources: DeviceResources, *, node: Node) -> ReaderState:
    return _state(resources, node, lambda name: WholeFileReaderState(node.name))


@all_of(identity, identity_v1).state_kernel("CPU")
def _identity(resources: DeviceResources, *, node: Node) -> ReaderState:
    return _state(resources, node, lambda name: IdentityReaderState(node.name))


@all_of(text_line, text_line_v1).state_kernel("CPU")
def _text_line(resources: DeviceResources, *, node: Node, skip_header_lines: int) -> ReaderState:
    if skip_header_lines < 0:
        refuse(f"skip_header_lines must be >= 0 not {skip_header_lines}")
    return _state(resources, node, lambda name: TextLineReaderState(node.name, skip_header_lines))


@all_of(tf_record, tf_record_v1).state_kernel("CPU")
def _tf_record(resources: DeviceResources, *, node: Node, compression_type: bytes) -> ReaderState:
    return _state(resources, node, lambda name: TFRecordReaderState(node.name, compression_type.decode()))


@all_of(fixed_length, fixed_length_v1).state_kernel("CPU")
def _fixed_length(
    resources: DeviceResources, *, node: Node, header_bytes: int, record_bytes: int, footer_bytes: int, hop_bytes: int
) -> ReaderState:
    sizes = {
        "header_bytes": header_bytes,
        "record_bytes": record_bytes,
        "footer_bytes": footer_bytes,
        "hop_bytes": hop_bytes,
    }
    for name, value in sizes.items():
        if value < 0:
            refuse(f"{name} must be >= 0 not {value}")
    encoding = node.attrs.get("encoding", b"").decode()
    return _state(
        resources,
        node,
        lambda name: FixedLengthRecordReaderState(
            node.name, header_bytes, record_bytes, footer_bytes, hop_bytes, encoding
        ),
    )


# ---- access ---------------------------------------------------------------------------------


class _Scalars:
    """The wait of ``ReaderRead``: answers with one record as two scalars."""

    def __init__(self, wait: Wait) -> None:
        self.step = wait.step
        self.fail = wait.fail
        self.on_cancel = wait.on_cancel
        self._wait = wait

    def done(self, result: Any = None) -> bool:
        """Answers with key and value."""
        return self._wait.done(result[0])


class _Vectors(_Scalars):
    """The wait of ``ReaderReadUpTo``: answers with records as two arrays."""

    def done(self, result: Any = None) -> bool:
        """Answers with keys and values."""
        table = np.empty((len(result), 2), object)
        for i, record in enumerate(result):
            table[i] = record
        return self._wait.done((table[:, 0], table[:, 1]))


@all_of(read, read_v1).async_kernel("CPU")
def _read(wait: Wait, reader: ReaderState, queue: QueueState) -> None:
    reader.read_records(_Scalars(wait), queue, 1, at_once=True)


@all_of(read_up_to, read_up_to_v1).async_kernel("CPU")
def _read_up_to(wait: Wait, reader: ReaderState, queue: QueueState, num_records: Array) -> None:
    count = int(num_records)
    if count <= 0:
        refuse(f"num_records must be positive, got {count}")
    reader.read_records(_Vectors(wait), queue, count, at_once=True)


@all_of(num_records, num_records_v1).kernel("CPU")
def _num_records(reader: ReaderState) -> Any:
    return np.int64(reader.produced)


@all_of(num_units, num_units_v1).kernel("CPU")
def _num_units(reader: ReaderState) -> Any:
    return np.int64(reader.units_finished)


@all_of(serialize, serialize_v1).kernel("CPU")
def _serialize(reader: ReaderState) -> Any:
    return reader.serialize()


@all_of(restore, restore_v1).kernel("CPU")
def _restore(reader: ReaderState, state: Array) -> tuple[()]:
    reader.restore(state if isinstance(state, bytes) else state.item())
    return ()


@all_of(reset, reset_v1).kernel("CPU")
def _reset(reader: ReaderState) -> tuple[()]:
    reader.reset()
    return ()


# ---- Readers of TF1: ``tf.ReaderBase``, ``tf.TFRecordReader``, ``tf.TextLineReader``, … ----------------------------


@export("tf.ReaderBase")
class ReaderBase:
    """Turns work units, usually file names from a queue, into records (``tf.ReaderBase``).

    Args:
      reader_ref: the handle.
      supports_serialize: whether its state can be serialised.
    """

    def __init__(self, reader_ref: Tensor, supports_serialize: bool = False) -> None:
        self._reader_ref = reader_ref
        self._supports_serialize = supports_serialize

    @property
    def reader_ref(self) -> Tensor:
        """The handle."""
        return self._reader_ref

    @property
    def supports_serialize(self) -> bool:
        """Whether its state can be serialised."""
        return self._supports_serialize

    def read(self, queue: QueueBase | Tensor, name: str | None = None) -> Any:
        """The next record: (key, value), string scalars; takes a work unit from ``queue`` when needed."""
        return read(self._reader_ref, _handle_of(queue), name=name)

    def read_up_to(self, queue: QueueBase | Tensor, num_records: TensorLike, name: str | None = None) -> Any:
        """The next records, at most ``num_records``: (keys, values), string vectors of one length."""
        return read_up_to(self._reader_ref, _handle_of(queue), num_records, name=name)

    def num_records_produced(self, name: str | None = None) -> Tensor:
        """The number of records returned so far, an int64 scalar."""
        return num_records(self._reader_ref, name=name)  # type: ignore[no-any-return]

    def num_work_units_completed(self, name: str | None = None) -> Tensor:
        """The number of work units finished, an int64 scalar."""
        return num_units(self._reader_ref, name=name)  # type: ignore[no-any-return]

    def serialize_state(self, name: str | None = None) -> Tensor:
        """The state as a string; `UnimplementedError` for most readers."""
        return serialize(self._reader_ref, name=name)  # type: ignore[no-any-return]

    def restore_state(self, state: TensorLike, name: str | None = None) -> Operation:
        """Restores a serialised state."""
        return restore(self._reader_ref, state, name=name)  # type: ignore[no-any-return]

    def reset(self, name: str | None = None) -> Operation:
        """Returns to the initial state."""
        return reset(self._reader_ref, name=name)  # type: ignore[no-any-return]


def _handle_of(queue: QueueBase | Tensor) -> Any:
    return queue if isinstance(queue, Tensor) else queue.queue_ref


@export("tf.WholeFileReader")
class WholeFileReader(ReaderBase):
    """Returns whole files as (name, content) (``tf.WholeFileReader``)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(whole_file(name=name), supports_serialize=True)


@export("tf.TextLineReader")
class TextLineReader(ReaderBase):
    """Returns lines as (file:number, line) (``tf.TextLineReader``).

    Args:
      skip_header_lines: the number of lines to skip in every file.
    """

    def __init__(self, skip_header_lines: int | None = None, name: str | None = None) -> None:
        super().__init__(text_line(skip_header_lines=skip_header_lines, name=name))


@export("tf.FixedLengthRecordReader")
class FixedLengthRecordReader(ReaderBase):
    """Returns records of fixed length as (file:number, bytes) (``tf.FixedLengthRecordReader``).

    Args:
      record_bytes: the length of a record.
      header_bytes, footer_bytes: the numbers of bytes to skip at the ends of every file.
      hop_bytes: the distance between records; None: ``record_bytes``.
      encoding: ``""``, ``"ZLIB"`` or ``"GZIP"``.
    """

    def __init__(
        self, record_bytes: int, header_bytes: int | None = None, footer_bytes: int | None = None,
        hop_bytes: int | None = None, name: str | None = None, encoding: str | None = None,
    ) -> None:  # fmt: skip
        handle = fixed_length(
            record_bytes=record_bytes, header_bytes=header_bytes, footer_bytes=footer_bytes, hop_bytes=hop_bytes,
            encoding=encoding, name=name,
        )  # fmt: skip
        super().__init__(handle)


@export("tf.TFRecordReader")
class TFRecordReader(ReaderBase):
    """Returns the records of TFRecord files as (file:offset, record) (``tf.TFRecordReader``).

    Args:
      options: a `TFRecordOptions`.
    """

    def __init__(self, name: str | None = None, options: TFRecordOptions | None = None) -> None:
        compression = TFRecordOptions.get_compression_type_string(options)
        super().__init__(tf_record(name=name, compression_type=compression))


@export("tf.IdentityReader")
class IdentityReader(ReaderBase):
    """Returns each work unit as key and as value (``tf.IdentityReader``)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(identity(name=name), supports_serialize=True)
