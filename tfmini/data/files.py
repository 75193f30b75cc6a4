"""Datasets of the lines, records or rows of files: ``tf.data.TextLineDataset``, ``TFRecordDataset`` and others."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

from tfmini import dtypes, errors
from tfmini.core_types import Array, TensorLike
from tfmini.data.dataset import Dataset, matching_files
from tfmini.data.dataset_ops import dataset_op
from tfmini.data.pipeline import Element, FunctionSource, Reading, Source
from tfmini.data.structure import Leaf, Structure, TypesLike, given_structure, int64
from tfmini.dtypes import DType
from tfmini.export import export, export_names
from tfmini.graph import nest
from tfmini.graph.families import Operation, OpHandle, Tensor, convert_to_tensor, op
from tfmini.graph.op_types import RunningStep
from tfmini.graph.scoping import count_ops, name_scope
from tfmini.numerics.images import check_inflated
from tfmini.ops.array.joining import unstack
from tfmini.ops.io.files import TFRecordOptions
from tfmini.ops.io.record_files import InflatedFile, RecordWriter, read_records

_FILES = "filenames: string, compression_type: string, buffer_size: int64"
text_line_dataset = dataset_op("TextLineDataset", _FILES, "")
tf_record_dataset = dataset_op("TFRecordDataset", _FILES, "")
fixed_length_record_dataset = dataset_op(
    "FixedLengthRecordDatasetV2",
    "filenames: string, header_bytes: int64, record_bytes: int64, footer_bytes: int64, buffer_size: int64,"
    " compression_type: string",
    "",
)

CHUNK = 1 << 18


def paths_of(filenames: Array) -> list[bytes]:
    return np.asarray(filenames, object).ravel().tolist()


def _files(filenames: Array, read: Callable[[bytes], Iterator[bytes]]) -> Source:
    paths = paths_of(filenames)
    return FunctionSource(lambda _: _Records(iter(paths), read))


class _Records(Iterator[Element]):
    """The records of files. After the error of one it goes on with the next."""

    def __init__(self, paths: Iterator[bytes], read: Callable[[bytes], Iterator[bytes]]) -> None:
        self._paths, self._read = paths, read
        self._records: Any = iter(())

    def __next__(self) -> Element:
        while True:
            for record in self._records:
                return (record,)
            self._records = self._read(next(self._paths))

    def close(self) -> None:
        """Closes the file that is being read."""
        if hasattr(self._records, "close"):
            self._records.close()


@text_line_dataset.kernel("CPU")
def _text_lines(filenames: Array, compression_type: Array, buffer_size: Array) -> Source:
    compression = compression_of(compression_type)
    return _files(filenames, lambda path: _lines(path, compression))


def compression_of(compression_type: Array) -> str:
    text: str = np.asarray(compression_type, object).item().decode()
    if text not in ("", "ZLIB", "GZIP"):
        raise errors.InvalidArgumentError.of(f"Unsupported compression_type: {text}.")
    return text


def _lines(path: bytes, compression: str) -> Iterator[bytes]:
    file = InflatedFile(path, compression)
    try:
        parts: list[bytes] = []  # of a line that has not ended; joined once, as it may be long
        while chunk := file.read(CHUNK):
            first, *more = chunk.split(b"\n")
            parts.append(first)
            if more:
                yield b"".join(parts).removesuffix(b"\r")
                yield from (line.removesuffix(b"\r") for line in more[:-1])
                parts = [more[-1]]
            elif compression:
                check_inflated(len(parts) * CHUNK, f"A line of {path.decode()}")
        if rest := b"".join(parts):
            yield rest.removesuffix(b"\r")
    finally:
        file.close()


@tf_record_dataset.kernel("CPU")
def _records(filenames: Array, compression_type: Array, buffer_size: Array) -> Source:
    compression = compression_of(compression_type)
    return _files(filenames, lambda path: read_records(path, compression))


@fixed_length_record_dataset.kernel("CPU")
def _fixed(
    filenames: Array, header: Array, size: Array, footer: Array, buffer_size: Array, compression_type: Array
) -> Source:
    compression = compression_of(compression_type)
    if size <= 0:
        raise errors.InvalidArgumentError.of("`record_bytes` must be > 0")
    read = _inflated_records if compression else _fixed_records
    return _files(filenames, lambda path: read(path, compression, int(header), int(size), int(footer)))


def _fixed_records(path: bytes, compression: str, header: int, size: int, footer: int) -> Iterator[bytes]:
    file = InflatedFile(path)
    try:
        body = file.read(-1)
    finally:
        file.close()
    _check_length(path, len(body), header, size, footer)
    for start in range(header, len(body) - footer, size):
        yield body[start : start + size]


def _inflated_records(path: bytes, compression: str, header: int, size: int, footer: int) -> Iterator[bytes]:
    """The records of a compressed file, which may be too large for memory. A wrong length is found at its end."""
    file = InflatedFile(path, compression)
    try:
        length = file.skip(header)
        ahead = file.read(footer)  # the last bytes that were read may be the footer
        length += len(ahead)
        while more := file.read(size):
            length += len(more)
            record, ahead = (ahead + more)[:size], (ahead + more)[size:]
            if len(more) == size:
                yield record
    finally:
        file.close()
    _check_length(path, length, header, size, footer)


def _check_length(path: bytes, total: int, header: int, size: int, footer: int) -> None:
    length = total - header - footer
    if length < 0 or length % size:
        raise errors.InvalidArgumentError.of(
            f'Excluding the header ({header} bytes) and footer ({footer} bytes), input file "{path.decode()}" has'
            f" body length {length} bytes, which is not an exact multiple of the record length ({size} bytes)."
        )


_RECORDS = Structure(Leaf(Tensor, dtypes.string, ()))
_BUFFER_BYTES = 256 * 1024


def _string(value: TensorLike, name: str) -> Tensor:
    return convert_to_tensor(value, dtype=dtypes.string, name=name)


def _bytes(value: TensorLike | None, name: str, default: int = 0) -> Tensor:
    return int64(default if value is None else value, name)


class _WholeFiles(Dataset):
    """Base class of datasets that read whole files; see `TextLineDataset` for the arguments."""

    _records_of: Callable[..., Tensor]

    def __init__(
        self, filenames: TensorLike | Dataset, compression_type: str | None = None,
        buffer_size: TensorLike | None = None, num_parallel_reads: TensorLike | None = None,
    ) -> None:  # fmt: skip
        kind = _string(compression_type or "", "compression_type")
        size = _bytes(buffer_size, "buffer_size", _BUFFER_BYTES)

        def read(names: TensorLike) -> Dataset:
            return Dataset(self._records_of(names, kind, size), _RECORDS)

        count_ops(-2 if isinstance(filenames, Dataset) else 1 if num_parallel_reads is None else 2)
        super().__init__(_of_files(filenames, read, num_parallel_reads)._variant_tensor, _RECORDS)


@export("tf.data.TextLineDataset", "tf.contrib.data.TextLineDataset")
class TextLineDataset(_WholeFiles):
    """The lines of text files, without line ends (``tf.data.TextLineDataset``).

    Args:
      filenames: a string tensor, or a dataset of names.
      compression_type: "", "ZLIB" or "GZIP".
      buffer_size: size of reads in bytes; a hint.
      num_parallel_reads: number of files to read at a time, interleaved; None reads one after the other.
    """

    _records_of = staticmethod(text_line_dataset)


@export("tf.data.TFRecordDataset", "tf.contrib.data.TFRecordDataset")
class TFRecordDataset(_WholeFiles):
    """The records of TFRecord files (``tf.data.TFRecordDataset``); the arguments are those of `TextLineDataset`."""

    _records_of = staticmethod(tf_record_dataset)


@export("tf.data.FixedLengthRecordDataset", "tf.contrib.data.FixedLengthRecordDataset")
class FixedLengthRecordDataset(Dataset):
    """The records of binary files (``tf.data.FixedLengthRecordDataset``).

    Args:
      filenames: a string tensor, or a dataset of names.
      record_bytes: bytes per record.
      header_bytes, footer_bytes: bytes to skip at the beginning and at the end of each file.
      buffer_size, compression_type, num_parallel_reads: as in `TextLineDataset`.
    """

    def __init__(
        self, filenames: TensorLike | Dataset, record_bytes: TensorLike, header_bytes: TensorLike | None = None,
        footer_bytes: TensorLike | None = None, buffer_size: TensorLike | None = None,
        compression_type: str | None = None, num_parallel_reads: TensorLike | None = None,
    ) -> None:  # fmt: skip
        kind = _string(compression_type or "", "compression_type")
        size = _bytes(buffer_size, "buffer_size", _BUFFER_BYTES)
        header, record = _bytes(header_bytes, "header_bytes"), _bytes(record_bytes, "record_bytes")
        footer = _bytes(footer_bytes, "footer_bytes")
        count_ops(-2)

        def read(names: TensorLike) -> Dataset:
            return Dataset(fixed_length_record_dataset(names, header, record, footer, size, kind), _RECORDS)

        super().__init__(_of_files(filenames, read, num_parallel_reads)._variant_tensor, _RECORDS)


def _of_files(
    filenames: TensorLike | Dataset, read: Callable[[TensorLike], Dataset], num_parallel_reads: Any
) -> Dataset:
    """The records of files whose names are given as a tensor or as a dataset."""
    if isinstance(filenames, Dataset):
        if filenames.output_types != dtypes.string:
            raise TypeError("`filenames` must be a `tf.data.Dataset` of `tf.string` elements.")
        if num_parallel_reads is None:
            return filenames.flat_map(read)
        return filenames.interleave(read, num_parallel_reads, num_parallel_calls=num_parallel_reads)
    names = _string(filenames, "filenames")
    if num_parallel_reads is None:
        return read(names)
    return Dataset.from_tensor_slices(names).interleave(read, num_parallel_reads, num_parallel_calls=num_parallel_reads)


# ---- ``tf.data.experimental.TFRecordWriter``: writes datasets to TFRecord files ------------------------------------

dataset_to_tf_record: OpHandle[Operation] = op(
    "DatasetToTFRecord(input_dataset: variant, filename: string, compression_type: string)",
    stateful=True, waits=True, slow_io=True, shape=[],
)  # fmt: skip
dataset_to_tf_record.not_differentiable()


@dataset_to_tf_record.kernel("CPU")
def _write(step: RunningStep, source: Source, filename: Array, compression_type: Array) -> tuple[()]:
    path = np.asarray(filename, object).item()
    compression = np.asarray(compression_type, object).item().decode()
    reading = Reading(step.owner, step)
    stage = source.open(reading)
    writer = RecordWriter(path, compression)
    try:
        for (record,) in stage:
            reading.check()
            writer.write(record)
    finally:
        writer.close()
        stage.close()
    return ()


@export("tf.contrib.data.TFRecordWriter", "tf.data.experimental.TFRecordWriter")
class TFRecordWriter:
    """Writes datasets to a TFRecord file.

    Args:
      filename: the file's name, a string scalar.
      compression_type: "", "ZLIB" or "GZIP".
    """

    def __init__(self, filename: TensorLike, compression_type: TensorLike | None = None) -> None:
        self._filename = convert_to_tensor(filename, dtype=dtypes.string, name="filename")
        self._compression_type = convert_to_tensor(compression_type or "", dtype=dtypes.string, name="compression_type")

    def write(self, dataset: Dataset) -> Operation:
        """An op that writes all elements of ``dataset``.

        Raises:
          TypeError: for elements that are not scalar strings.
        """
        if not isinstance(dataset, Dataset):
            raise TypeError("`dataset` must be a `tf.data.Dataset` object.")
        leaf = dataset._structure.skeleton
        if not isinstance(leaf, Leaf) or leaf.dtype is not dtypes.string or leaf.shape != ():
            raise TypeError(
                f"`dataset` must produce scalar `DT_STRING` tensors whereas it produces shape {dataset.output_shapes}"
                f" and types {dataset.output_types}"
            )
        return dataset_to_tf_record(dataset._variant_tensor, self._filename, self._compression_type)


export_names(
    "tensorflow.python.data.ops.readers",
    "FixedLengthRecordDatasetV2=FixedLengthRecordDataset TFRecordDatasetV2=TFRecordDataset"
    " TextLineDatasetV2=TextLineDataset",
)


# ---- ``tf.data.experimental.SqlDataset``: the rows of a query to an SQLite database ----------------------------------

sql_dataset = dataset_op("SqlDataset", "driver_name: string, data_source_name: string, query: string")


@sql_dataset.kernel("CPU")
def _sql(driver_name: Array, data_source_name: Array, query: Array, *, output_types: list[DType]) -> Source:
    driver, path, text = (np.asarray(given, object).item().decode() for given in (driver_name, data_source_name, query))
    if driver != "sqlite":
        raise errors.InvalidArgumentError.of(
            f"The database type, {driver}, is not supported by SqlDataset. The set of supported databases is:"
            " {'sqlite'}."
        )
    return FunctionSource(lambda _: _rows_of_query(path, text, output_types))


def _rows_of_query(path: str, query: str, types: Sequence[DType]) -> Iterator[Element]:
    """The rows of a query, as values of these types."""
    import sqlite3  # absent from some builds of Python

    try:
        connection = sqlite3.connect(f"file:{quote(path, ':/')}?mode=ro", uri=True, check_same_thread=False)
        connection.text_factory = bytes
        try:
            cursor = connection.execute(query)
            columns = len(cursor.description or ())
            _check_columns(columns, types)
            for row in cursor:
                yield tuple(map(_value, row, types))
        finally:
            connection.close()
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY:  # it writes, so it has no columns
            _check_columns(0, types)
        raise errors.UnknownError.of(f"Failed to run the query {query!r}: {error}") from None


def _check_columns(columns: int, types: Sequence[DType]) -> None:
    if columns != len(types):
        raise errors.InvalidArgumentError.of(
            f"The number of columns in query ({columns}) must match the number of elements in output_types"
            f" ({len(types)})."
        )


def _value(given: Any, dtype: DType) -> Any:
    """A value of SQLite as one of the wanted type; the numbers of texts are those at their beginning."""
    if dtype is dtypes.string:
        return b"" if given is None else given if isinstance(given, bytes) else str(given).encode()
    if isinstance(given, bytes):
        found = re.match(rb"\s*[-+]?\d+" + (rb"" if dtype.is_integer else rb"(\.\d*)?([eE][-+]?\d+)?"), given)
        given = (int if dtype.is_integer else float)(found[0]) if found else 0
    number = given or 0
    if not dtype.is_integer:
        return dtype.numpy.type(number)
    most = np.iinfo(np.int64)
    return np.int64(int(min(max(number, most.min), most.max))).astype(dtype.numpy)


@export("tf.contrib.data.SqlDataset", "tf.data.experimental.SqlDataset")
class SqlDataset(Dataset):
    """The rows of a query, as tuples with a scalar per column (``tf.data.experimental.SqlDataset``).

    Args:
      driver_name: ``"sqlite"``.
      data_source_name: the file of the database.
      query: an SQL query.
      output_types: the types of the columns: string, bool, float64, or integers.
    """

    def __init__(
        self, driver_name: TensorLike, data_source_name: TensorLike, query: TensorLike, output_types: TypesLike
    ) -> None:
        structure = given_structure(output_types, nest.map_structure(lambda _: [], output_types))
        named = {"driver_name": driver_name, "data_source_name": data_source_name, "query": query}
        inputs = [convert_to_tensor(value, dtype=dtypes.string, name=name) for name, value in named.items()]
        super().__init__(sql_dataset(*inputs, **structure.attrs), structure)


# ---- Records in a random order, for ever: the reader of programs that were written before data sets ----------------


_MOST_FILES = 1 << 16  # in a random order


@export("tf.contrib.framework.RecordInput", "tensorflow.python.ops.data_flow_ops.RecordInput")
class RecordInput:
    """Gives batches of the records of TFRecord files, in a random order and without end.

    Each pass goes through the files in another order; a record is drawn from a buffer. TensorFlow's own class: the
    private module ``data_flow_ops`` of 1.15, which programs for ImageNet name.

    Args:
      file_pattern: a glob pattern.
      batch_size: records of one batch.
      buffer_size: records to draw from.
      parallelism: files that are read in turn.
      shift_ratio: not needed, since each pass has an order of its own.
      seed: of the orders; 0 is another one in each run.
      name: of the op.
      batches: how many batches to give at once, as lists of scalars; None for one tensor.
      compression_type: None, "ZLIB" or "GZIP", a `TFRecordOptions`, or a value of `TFRecordCompressionType`.
    """

    def __init__(
        self, file_pattern: TensorLike, batch_size: int = 1, buffer_size: int = 1, parallelism: int = 1,
        shift_ratio: float = 0, seed: int = 0, name: str | None = None, batches: int | None = None,
        compression_type: Any = None,
    ) -> None:  # fmt: skip
        kind = TFRecordOptions.get_compression_type_string(compression_type)
        own_seed = seed or None
        files = Dataset.from_tensors(file_pattern).flat_map(lambda at: Dataset.from_tensor_slices(matching_files(at)))
        files = files.shuffle(_MOST_FILES, own_seed)
        read = functools.partial(TFRecordDataset, compression_type=kind)
        records = files.interleave(read, cycle_length=parallelism, block_length=1)
        self._batch_size, self._batches, self._name = batch_size, batches, name
        self._records = records.shuffle(buffer_size, own_seed).repeat().batch(batch_size * (batches or 1), True)

    def get_yield_op(self) -> Any:
        """The next records: a string vector of ``batch_size``, or a list of ``batches`` lists of scalars.

        Running it raises `InvalidArgumentError` when no file matches the pattern.
        """
        with name_scope(self._name, "RecordInput"):
            records = self._records.make_one_shot_iterator().get_next()
            if self._batches is None:
                return records
            return [unstack(records[i :: self._batches], self._batch_size) for i in range(self._batches)]
