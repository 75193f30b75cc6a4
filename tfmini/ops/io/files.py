"""Files in the graph: ``ReadFile``, ``WriteFile``, ``MatchingFiles``."""

from __future__ import annotations

import fnmatch
import logging
import os
import platform
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np

from tfmini import errors, protos
from tfmini.checkpoint.files import local_path
from tfmini.core_types import Array, TensorLike
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, op
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.io.record_files import InflatedFile, Path, RecordReader, RecordWriter, frame, read_records
from tfmini.shapes import RawShape, format_raw, with_rank

read_file_op = op("ReadFile(filename: string) -> contents: string", stateful=True, slow_io=True)
write_file_op: OpHandle[Operation] = op("WriteFile(filename: string, contents: string)", stateful=True, slow_io=True)
matching_files_op = op(
    "MatchingFiles(pattern: string) -> filenames: string", stateful=True, shape=[(None,)], copyable=True
)
all_of(read_file_op, write_file_op, matching_files_op).not_differentiable()


def _check_scalar(node: Operation) -> None:
    for tensor in node.inputs:
        with_rank(tensor.raw_shape, 0)


@read_file_op.shape
def _read_shape(node: Operation) -> list[RawShape]:
    _check_scalar(node)
    return [()]


@write_file_op.shape
def _write_shape(node: Operation) -> list[RawShape]:
    _check_scalar(node)
    return []


def _scalar(value: Array, what: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if np.ndim(value):
        refuse(f"{what} tensor must be scalar, but had shape: {format_raw(np.shape(value))}")
    return np.asarray(value, object).item()  # type: ignore[no-any-return]


@read_file_op.kernel("CPU")
def _read_file(filename: Array) -> bytes:
    file = InflatedFile(_scalar(filename, "Input filename"))
    try:
        return file.read(-1)
    finally:
        file.close()


@write_file_op.kernel("CPU")
def _write_file(filename: Array, contents: Array) -> tuple[()]:
    path, data = local_path(_scalar(filename, "Input filename")), _scalar(contents, "Contents")
    try:
        os.makedirs(os.path.dirname(path) or b".", exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise errors.from_os_error(error, path) from error
    return ()


def matching(pattern: str) -> Iterator[str]:
    """The paths that a pattern matches; ``*`` matches hidden files, and no wildcard a ``/``.

    Raises:
      NotFoundError: the directory before the first wildcard is not there, as in TensorFlow 1.
    """
    head, last = os.path.split(pattern)
    if not _is_pattern(head) and not os.path.exists(head or "."):
        raise errors.NotFoundError(None, None, f"{head}; No such file or directory")
    for parent in matching(head) if _is_pattern(head) else [head]:
        if not _is_pattern(last):
            path = os.path.join(parent, last)
            if os.path.exists(path):
                yield path
            continue
        try:
            names = os.listdir(parent or ".") if os.path.isdir(parent or ".") else []
        except PermissionError:  # has no names, as in TensorFlow
            continue
        yield from (os.path.join(parent, name) for name in sorted(fnmatch.filter(names, last.replace("[^", "[!"))))


def _is_pattern(text: str) -> bool:
    return any(mark in text for mark in "*?[")


@matching_files_op.kernel("CPU")
def _matching_files(pattern: Array) -> Any:
    patterns = [pattern] if isinstance(pattern, bytes) else np.asarray(pattern, object).ravel().tolist()
    found = []
    for one in patterns:
        path = local_path(one)
        scheme = one.removesuffix(path)  # the names have the scheme that the pattern has
        found += [scheme + os.fsencode(name) for name in matching(os.fsdecode(path))]
    found.sort()  # the file system's order is arbitrary
    out = np.empty(len(found), object)
    out[:] = found
    return out


@export("tf.read_file", "tf.io.read_file")
def read_file(filename: TensorLike, name: str | None = None) -> Tensor:
    """The content of a file, a string scalar (``tf.read_file``)."""
    return read_file_op(filename, name=name)


@export("tf.write_file", "tf.io.write_file")
def write_file(filename: TensorLike, contents: TensorLike, name: str | None = None) -> Operation:
    """Writes a file; makes its directory if needed (``tf.write_file``)."""
    return write_file_op(filename, contents, name=name)


@export("tf.matching_files", "tf.io.matching_files")
def matching_files(pattern: TensorLike, name: str | None = None) -> Tensor:
    """The names of the files that match glob patterns, sorted: string [n] (``tf.matching_files``)."""
    return matching_files_op(pattern, name=name)


# ---- An event file: records of Event messages, as TensorBoard reads them -------------------------------------------

_log = logging.getLogger("tensorflow")
FILE_VERSION = "brain.Event:2"


class EventFile:
    """The event file of one writer; a new file is started after the current one is closed or deleted.

    The new one is made with its directory, if that has gone as well: a program may empty it between two trainings.

    Args:
      prefix: directory and first part of the name, ``logdir/events``.
      suffix: last part of the name.
    """

    def __init__(self, prefix: str, suffix: str = "") -> None:
        self._prefix = local_path(prefix)
        self._suffix = suffix
        self._path = ""
        self._file: Any = None
        self._unflushed = 0

    @property
    def path(self) -> str:
        """The path of the file; empty before the first event."""
        return self._path

    def write(self, serialized: bytes) -> None:
        """Appends one serialized Event; opens the file if none is open."""
        if self._file is not None and not self._unflushed and not os.path.exists(self._path):
            self.close()  # else this event would be lost as well
        if self._file is None:
            self.open()
        self._file.write(frame(serialized))
        self._unflushed += 1

    def open(self) -> None:
        """Starts a file with the event that has the format's version.

        Raises:
          NotFoundError, PermissionDeniedError, …: when it cannot be created.
        """
        seconds = int(time.time())
        if folder := os.path.dirname(self._path):
            try:
                os.makedirs(folder, exist_ok=True)
            except OSError as error:
                raise errors.from_os_error(error, folder) from error
        while True:
            path = f"{self._prefix}.out.tfevents.{seconds:010d}.{platform.node()}{self._suffix}"
            try:
                # Never an existing file: another writer may have created it in this second.
                self._file = open(path, "xb")  # noqa: SIM115 - closed by close
                break
            except FileExistsError:
                seconds += 1
            except OSError as error:
                raise errors.from_os_error(error, path) from error
        self._path = path
        self.write(protos.Event(wall_time=seconds, file_version=FILE_VERSION).SerializeToString())
        self.flush()

    def flush(self) -> None:
        """Writes all events to disk. If the file was deleted, logs that; the next event starts a new file."""
        if self._file is None or not self._unflushed:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        if not os.path.exists(self._path):
            _log.warning("The events file %s has disappeared; %d events are lost.", self._path, self._unflushed)
            self._file.close()
            self._file = None
        self._unflushed = 0

    def close(self) -> None:
        """Flushes and closes the file."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None


@export("tensorflow.python.pywrap_tensorflow.EventsWriter")
class EventsWriter:
    """Writes events to a file for TensorBoard, with the methods of TensorFlow's class in C++.

    Args:
      file_prefix: bytes: directory and first part of the file's name.

    Raises:
      TypeError: the prefix is no bytes.
    """

    def __init__(self, file_prefix: bytes) -> None:
        if not isinstance(file_prefix, bytes):
            raise TypeError(f"expected bytes, {type(file_prefix).__name__} found")
        self._file = EventFile(os.fsdecode(file_prefix))

    def FileName(self) -> bytes:  # noqa: N802 - TensorFlow's name
        """The path of the file, which is made if there is none yet."""
        if not self._file.path:
            self._file.open()
        return os.fsencode(self._file.path)

    def WriteEvent(self, event: Any) -> None:  # noqa: N802 - TensorFlow's name
        """Appends an Event.

        Raises:
          TypeError: it is no Event.
          NotFoundError: the file cannot be made.
        """
        if not isinstance(event, protos.Event):
            raise TypeError(f"Expected an event_pb2.Event proto, but got {type(event)}")
        self._file.write(event.SerializeToString())

    def Flush(self) -> None:  # noqa: N802 - TensorFlow's name
        """Writes all events to disk."""
        self._file.flush()

    def Close(self) -> None:  # noqa: N802 - TensorFlow's name
        """Flushes and closes the file; the next event starts a new one."""
        self._file.close()


class PyRecordReader:
    """Reads records like TensorFlow's class in C++, which TensorBoard uses: a file may grow between two reads.

    Args:
      filename: bytes: the path.
      start_offset: where the first record begins, in bytes that are not compressed.
      compression_type: bytes: ``b""``, ``b"ZLIB"`` or ``b"GZIP"``; others read the file as it is.

    Raises:
      NotFoundError: the file cannot be opened.
    """

    def __init__(self, filename: bytes, start_offset: int, compression_type: bytes) -> None:
        compression = compression_type.decode()
        self._source = os.fsdecode(filename), compression if compression in ("ZLIB", "GZIP") else ""
        self._offset, self._record, self._closed = start_offset, b"", False
        self._reader: RecordReader | None = RecordReader(*self._source, start_offset)

    def GetNext(self) -> None:  # noqa: N802 - TensorFlow's name
        """Reads the record that `record` returns.

        After an error the next call tries the same record again.

        Raises:
          OutOfRangeError: the file has no more records yet.
          DataLossError: the record is damaged, or not whole yet.
          FailedPreconditionError: the reader is closed.
        """
        if self._closed:
            raise errors.FailedPreconditionError.of("Reader is closed.")
        reader = self._reader or RecordReader(*self._source, self._offset)
        self._reader = None
        try:
            record = reader.read()
            if record is None:
                raise errors.OutOfRangeError.of("Read less bytes than requested")
        except errors.OpError:
            reader.close()
            raise
        self._reader, self._offset, self._record = reader, reader.offset, record

    def record(self) -> bytes:
        """The record that was read last."""
        return self._record

    def offset(self) -> int:
        """Where the next record begins, in bytes that are not compressed."""
        return self._offset

    def Close(self) -> None:  # noqa: N802 - TensorFlow's name
        """Closes the file."""
        if self._reader is not None:
            self._reader.close()
        self._reader, self._closed = None, True


@export("tensorflow.python.pywrap_tensorflow.PyRecordReader_New")
def new_record_reader(
    filename: bytes, start_offset: int, compression_type: bytes, status: errors.LentStatus
) -> PyRecordReader | None:
    """A reader of the records of a file.

    Args:
      filename: bytes: the path.
      start_offset: where the first record begins.
      compression_type: bytes: ``b""``, ``b"ZLIB"`` or ``b"GZIP"``.
      status: of a `tf.errors.raise_exception_on_not_ok_status`, which raises the error of a file that cannot be opened.

    Returns:
      the reader, or None after an error.

    Raises:
      TypeError: the path is no bytes.
    """
    if not isinstance(filename, bytes):
        raise TypeError(f"expected bytes, {type(filename).__name__} found")
    try:
        return PyRecordReader(filename, start_offset, compression_type)
    except errors.OpError as error:
        status.error = error
        return None


# ---- ``tf.python_io``: TFRecord files from Python (``TFRecordWriter``, ``tf_record_iterator``, options) ------------


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
        compression_type: int | str | None = None,
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
    def get_compression_type_string(cls, options: TFRecordOptions | int | str | None) -> str:
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

    def __init__(self, path: Path, options: TFRecordOptions | int | str | None = None) -> None:
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
def tf_record_iterator(path: Path, options: TFRecordOptions | int | str | None = None) -> Iterator[bytes]:
    """The records of a TFRecord file (``tf.python_io.tf_record_iterator``).

    Raises:
      OpError: NotFoundError or another subclass when the file cannot be opened, DataLossError when it is damaged.
    """
    return read_records(path, TFRecordOptions.get_compression_type_string(options))
