"""``tf.python_io``: TFRecord files from Python (``TFRecordWriter``, ``tf_record_iterator``, options)."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

from tfmini.export import export
from tfmini.ops.io.record_files import Path, RecordWriter, read_records


@export("tf.io.TFRecordCompressionType", "tf.python_io.TFRecordCompressionType")
class TFRecordCompressionType:
    """The compression of a record file (``tf.python_io.TFRecordCompressionType``)."""

    NONE = 0
    ZLIB = 1
    GZIP = 2


@export("tf.io.TFRecordOptions", "tf.python_io.TFRecordOptions")
class TFRecordOptions:
    """Compression and its parameters (``tf.python_io.TFRecordOptions``).

    Args:
      compression_type: ``""``, ``"ZLIB"``, ``"GZIP"`` or a `TFRecordCompressionType`.
      flush_mode, input_buffer_size, output_buffer_size: accepted and unused; they do not change the file.
      window_bits, compression_level, compression_method, mem_level, compression_strategy: zlib's.

    Raises:
      ValueError: for an unknown compression type.
    """

    compression_type_map = {
        TFRecordCompressionType.ZLIB: "ZLIB",
        TFRecordCompressionType.GZIP: "GZIP",
        TFRecordCompressionType.NONE: "",
    }

    def __init__(
        self,
        compression_type: Any = None,
        flush_mode: int | None = None,
        input_buffer_size: int | None = None,
        output_buffer_size: int | None = None,
        window_bits: int | None = None,
        compression_level: int | None = None,
        compression_method: int | None = None,
        mem_level: int | None = None,
        compression_strategy: int | None = None,
    ) -> None:
        self.get_compression_type_string(compression_type)
        self.compression_type = compression_type
        self.flush_mode = flush_mode
        self.input_buffer_size = input_buffer_size
        self.output_buffer_size = output_buffer_size
        self.window_bits = window_bits
        self.compression_level = compression_level
        self.compression_method = compression_method
        self.mem_level = mem_level
        self.compression_strategy = compression_strategy

    @classmethod
    def get_compression_type_string(cls, options: Any) -> str:
        """The compression as a string, from options, a type constant or a string.

        Raises:
          ValueError: for anything else.
        """
        if not options:
            return ""
        if isinstance(options, TFRecordOptions):
            return cls.get_compression_type_string(options.compression_type)
        names = cls.compression_type_map
        if options in names:
            return names[options]
        if options in names.values():
            return str(options)
        raise ValueError(f'Not a valid compression_type: "{options}"')


@export("tf.io.TFRecordWriter", "tf.python_io.TFRecordWriter")
class TFRecordWriter:
    """Writes records to a new TFRecord file (``tf.python_io.TFRecordWriter``); a context manager.

    Args:
      path: of the file.
      options: `TFRecordOptions`, or a compression type.

    Raises:
      OpError: NotFoundError or another subclass when the file cannot be opened.
      ValueError: for an unknown compression type.
    """

    def __init__(self, path: Path, options: Any = None) -> None:
        if not isinstance(options, TFRecordOptions):
            options = TFRecordOptions(options)
        self._writer = RecordWriter(
            path,
            TFRecordOptions.get_compression_type_string(options),
            level=options.compression_level,
            window_bits=options.window_bits,
            mem_level=options.mem_level,
            strategy=options.compression_strategy,
        )

    def write(self, record: bytes | str) -> None:
        """Appends one record (bytes; text is written as UTF-8)."""
        self._writer.write(record.encode() if isinstance(record, str) else bytes(record))

    def flush(self) -> None:
        """Makes all written records visible to readers."""
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@export("tf.io.tf_record_iterator", "tf.python_io.tf_record_iterator")
def tf_record_iterator(path: Path, options: Any = None) -> Iterator[bytes]:
    """The records of a TFRecord file (``tf.python_io.tf_record_iterator``).

    Raises:
      OpError: NotFoundError or another subclass when the file cannot be opened, DataLossError when it is damaged.
    """
    return read_records(path, TFRecordOptions.get_compression_type_string(options))
