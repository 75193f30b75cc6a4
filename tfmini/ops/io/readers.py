"""Readers of TF1: ``tf.ReaderBase``, ``tf.TFRecordReader``, ``tf.TextLineReader``, …"""

from __future__ import annotations

from typing import Any

from tfmini.export import export
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.io import reader_ops
from tfmini.ops.io.tf_record import TFRecordOptions


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

    def read(self, queue: Any, name: str | None = None) -> Any:
        """The next record: (key, value), string scalars; takes a work unit from ``queue`` when needed."""
        return reader_ops.read(self._reader_ref, _handle_of(queue), name=name)

    def read_up_to(self, queue: Any, num_records: Any, name: str | None = None) -> Any:
        """The next records, at most ``num_records``: (keys, values), string vectors of one length."""
        return reader_ops.read_up_to(self._reader_ref, _handle_of(queue), num_records, name=name)

    def num_records_produced(self, name: str | None = None) -> Tensor:
        """The number of records returned so far, an int64 scalar."""
        return reader_ops.num_records(self._reader_ref, name=name)  # type: ignore[no-any-return]

    def num_work_units_completed(self, name: str | None = None) -> Tensor:
        """The number of work units finished, an int64 scalar."""
        return reader_ops.num_units(self._reader_ref, name=name)  # type: ignore[no-any-return]

    def serialize_state(self, name: str | None = None) -> Tensor:
        """The state as a string; `UnimplementedError` for most readers."""
        return reader_ops.serialize(self._reader_ref, name=name)  # type: ignore[no-any-return]

    def restore_state(self, state: Any, name: str | None = None) -> Operation:
        """Restores a serialised state."""
        return reader_ops.restore(self._reader_ref, state, name=name)  # type: ignore[no-any-return]

    def reset(self, name: str | None = None) -> Operation:
        """Returns to the initial state."""
        return reader_ops.reset(self._reader_ref, name=name)  # type: ignore[no-any-return]


def _handle_of(queue: Any) -> Any:
    return queue if isinstance(queue, Tensor) else queue.queue_ref


@export("tf.WholeFileReader")
class WholeFileReader(ReaderBase):
    """Returns whole files as (name, content) (``tf.WholeFileReader``)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(reader_ops.whole_file(name=name), supports_serialize=True)


@export("tf.TextLineReader")
class TextLineReader(ReaderBase):
    """Returns lines as (file:number, line) (``tf.TextLineReader``).

    Args:
      skip_header_lines: the number of lines to skip in every file.
    """

    def __init__(self, skip_header_lines: int | None = None, name: str | None = None) -> None:
        super().__init__(reader_ops.text_line(skip_header_lines=skip_header_lines, name=name))


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
        handle = reader_ops.fixed_length(
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

    def __init__(self, name: str | None = None, options: Any = None) -> None:
        compression = TFRecordOptions.get_compression_type_string(options)
        super().__init__(reader_ops.tf_record(name=name, compression_type=compression))


@export("tf.IdentityReader")
class IdentityReader(ReaderBase):
    """Returns each work unit as key and as value (``tf.IdentityReader``)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(reader_ops.identity(name=name), supports_serialize=True)
