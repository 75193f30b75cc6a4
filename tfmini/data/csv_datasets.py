"""``tf.data.experimental.CsvDataset`` and ``make_csv_dataset``; the op yields one component per column."""

from __future__ import annotations

import collections
import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.checkpoint.files import local_path
from tfmini.core_types import Array, TensorLike
from tfmini.data.dataset import Dataset, matching_names
from tfmini.data.dataset_ops import TYPES, dataset_op
from tfmini.data.files import TFRecordDataset, compression_of, paths_of
from tfmini.data.pipeline import Element, FunctionSource, Source
from tfmini.data.structure import AUTOTUNE, Leaf, Structure, boolean, int64
from tfmini.data.transformations import ignore_errors as without_errors
from tfmini.data.transformations import parallel_interleave, shuffled_and_repeated
from tfmini.dtypes import DType
from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor
from tfmini.numerics.images import check_inflated
from tfmini.ops.array.constant import constant
from tfmini.ops.io.parsing_functions import parse_example
from tfmini.ops.io.parsing_ops import number_of
from tfmini.ops.io.readers import ReaderBase
from tfmini.ops.io.record_files import InflatedFile

csv_dataset = dataset_op(
    "CSVDataset",
    "filenames: string, compression_type: string, buffer_size: int64, header: bool, field_delim: string,"
    " use_quote_delim: bool, na_value: string, select_cols: int64, record_defaults: output_types",
    TYPES,
)
CHUNK = 1 << 20


@dataclass(frozen=True)
class CsvFormat:
    """The format of CSV records.

    Attributes:
      columns: indices of the columns to return; None for all.
      defaults: a list per column, with its default or empty if the field is required.
    """

    delim: bytes
    quotes: bool
    na: bytes
    columns: list[int] | None
    defaults: list[list[Any]]
    types: list[DType]


def _invalid(text: str) -> errors.OpError:
    return errors.InvalidArgumentError.of(text)


def lines_of(path: bytes, compression: str) -> Iterator[bytes]:
    """The lines of a file, including their line ends."""
    file = InflatedFile(path, compression)
    try:
        parts: list[bytes] = []  # of a line that may go on; joined once, as it may be long
        while chunk := file.read(CHUNK):
            if parts and parts[-1].endswith(b"\r") and not chunk.startswith(b"\n"):  # "\r" may be half of "\r\n"
                yield b"".join(parts)
                parts = []
            first, *more = chunk.splitlines(keepends=True)
            parts.append(first)
            if more:
                yield b"".join(parts)
                yield from more[:-1]
                parts = [more[-1]]
            elif compression:
                check_inflated(len(parts) * CHUNK, f"A line of {path.decode()}")
            if parts[-1].endswith(b"\n"):
                yield b"".join(parts)
                parts = []
        if parts:
            yield b"".join(parts)
    finally:
        file.close()


def records_of(path: bytes, compression: str, form: CsvFormat) -> Iterator[bytes]:
    """Records without line ends; a quoted line end joins two lines into one record."""
    parts: list[bytes] = []
    size, is_open = 0, False
    for line in lines_of(path, compression):
        parts.append(line)
        size += len(line)
        is_open = form.quotes and _ends_open(line, form.delim, is_open)
        if is_open:
            if compression:
                check_inflated(size, f"A record of {path.decode()}")
            continue
        yield b"".join(parts).rstrip(b"\r\n")
        parts, size = [], 0
    if parts:
        yield b"".join(parts)


def _ends_open(line: bytes, delim: bytes, is_open: bool) -> bool:
    """Whether a line of a record ends inside a quoted field; ``is_open`` says whether it begins inside one."""
    if not is_open and b'"' not in line:
        return False
    at = 0
    while at < len(line):
        if is_open or line[at : at + 1] == b'"':
            at = _closed(line, at if is_open else at + 1)
            if not at:
                return True
            is_open = False
        at = line.find(delim, at) + 1
        if not at:
            return False
    return False


def _closed(line: bytes, at: int) -> int:
    """The position behind the quote that closes a field; 0 if there is none. Two quotes stand for one in the text."""
    end = line.find(b'"', at)
    while end >= 0 and line[end + 1 : end + 2] == b'"':
        end = line.find(b'"', end + 2)
    return end + 1


def _fields(record: bytes, form: CsvFormat) -> list[bytes]:
    """The fields of a record.

    Raises:
      InvalidArgumentError: when quotes are misplaced.
    """
    if not form.quotes or b'"' not in record:
        return record.split(form.delim)
    found: list[bytes] = []
    at = 0
    while True:
        if record[at : at + 1] == b'"':
            field, at = _quoted(record, at + 1, form.delim)
        else:
            end = record.find(form.delim, at)
            end = len(record) if end < 0 else end
            field, at = record[at:end], end
            if b'"' in field:
                raise _invalid("Unquoted fields cannot have quotes inside")
        found.append(field)
        if at >= len(record):
            return found
        at += 1  # the delimiter


def _quoted(record: bytes, at: int, delim: bytes) -> tuple[bytes, int]:
    """The field after an opening quote, and the position of the delimiter that follows it."""
    parts = []
    while True:
        end = record.find(b'"', at)
        if end < 0:
            raise _invalid("Reached end of file without closing quoted field in record")
        parts.append(record[at:end])
        if record[end + 1 : end + 2] != b'"':
            break
        parts.append(b'"')
        at = end + 2
    if end + 1 < len(record) and record[end + 1 : end + 2] != delim:
        raise _invalid("Quote inside a string has to be escaped by another quote")
    return b"".join(parts), end + 1


def _element(record: bytes, form: CsvFormat) -> Element:
    fields = _fields(record, form)
    count = len(form.types)
    if form.columns is not None:
        if fields and form.columns[-1] >= len(fields):
            raise _invalid(f"Expect {count} fields but have {sum(c < len(fields) for c in form.columns)} in record")
        fields = [fields[c] for c in form.columns]
    elif len(fields) > count:
        raise _invalid(f"Expect {count} fields but have more in record")
    elif len(fields) < count:
        raise _invalid(f"Expect {count} fields but have {len(fields)} in record")
    return tuple(_component(f, field, form) for f, field in enumerate(fields))


def _component(f: int, field: bytes, form: CsvFormat) -> Any:
    dtype = form.types[f]
    if not field or field == form.na:
        if not form.defaults[f]:
            raise _invalid(f"Field {f} is required but missing in record!")
        value = form.defaults[f][0]
    else:
        value = field if dtype is dtypes.string else number_of(field, dtype, f)
    return value if dtype is dtypes.string else dtype.numpy.type(value)


class _Elements:
    """The elements of all files; reading continues after a malformed record."""

    def __init__(self, paths: list[bytes], compression: str, header: bool, form: CsvFormat) -> None:
        self._records = self._read(paths, compression, header, form)
        self._form = form

    @staticmethod
    def _read(paths: list[bytes], compression: str, header: bool, form: CsvFormat) -> Iterator[bytes]:
        for path in paths:
            records = records_of(path, compression, form)
            if header and next(records, None) is None:
                raise _invalid("Can't read header of file")
            yield from records

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        return _element(next(self._records), self._form)

    def close(self) -> None:
        self._records.close()  # type: ignore[attr-defined]


@csv_dataset.kernel("CPU")
def _csv(
    filenames: np.ndarray,
    compression_type: np.ndarray,
    buffer_size: np.ndarray,
    header: Array,
    field_delim: Array,
    use_quote_delim: Array,
    na_value: Array,
    select_cols: Array,
    record_defaults: list[Any],
    *,
    output_types: list[DType],
) -> Source:
    delim = np.asarray(field_delim, object).item()
    if len(delim) != 1:
        raise _invalid("field_delim should be only 1 char")
    if buffer_size <= 0:
        raise _invalid("buffer_size should be positive")
    columns = [int(c) for c in np.atleast_1d(select_cols)] or None
    if columns is not None and len(columns) != len(output_types):
        raise _invalid("select_cols should match output size")
    if columns is not None and (columns[0] < 0 or any(a >= b for a, b in zip(columns, columns[1:]))):
        raise _invalid("select_cols should be strictly increasing indices and all indices should be nonnegative")
    defaults = [np.ravel(np.asarray(d, t.numpy)).tolist() for d, t in zip(record_defaults, output_types)]
    form = CsvFormat(
        delim, bool(use_quote_delim), np.asarray(na_value, object).item(), columns, defaults, list(output_types)
    )
    paths, compression = paths_of(filenames), compression_of(compression_type)
    return FunctionSource(lambda _: _Elements(paths, compression, bool(header), form))


_TYPES = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64, dtypes.string)
"""The types of a column, in increasing order of permissiveness."""
_BUFFER_BYTES = 4 * 1024 * 1024


def _default(given: Any) -> Tensor:
    """A column's default as a tensor; an empty one (a required field) if only the type is given."""
    if not isinstance(given, Tensor) and not isinstance(given, (list, np.ndarray)) and given in _TYPES:
        return constant([], dtype=given)
    return convert_to_tensor(given, name="record_defaults")


def _check_defaults(defaults: list[Tensor]) -> None:
    """Raises ValueError for defaults that are neither scalars nor vectors."""
    for default in defaults:
        if default.shape.ndims is not None and default.shape.ndims > 1:
            raise ValueError(f"Shape must be at most rank 1 but is rank {default.shape.ndims}")


@export("tf.contrib.data.CsvDataset", "tf.data.experimental.CsvDataset")
class CsvDataset(Dataset):
    """The records of CSV files, as tuples with a scalar per column (``tf.data.experimental.CsvDataset``).

    Args:
      filenames: a string tensor.
      record_defaults: a default per column, or its type if the field is required.
      compression_type: "", "ZLIB" or "GZIP".
      buffer_size: size of reads in bytes; a hint.
      header: whether the files begin with a line of column names.
      field_delim: the character between fields.
      use_quote_delim: whether double quotes enclose fields.
      na_value: a text that stands for a missing field, in addition to the empty one.
      select_cols: which columns to take, increasing; None for all.
    """

    def __init__(
        self,
        filenames: TensorLike,
        record_defaults: Sequence[Any],
        compression_type: TensorLike | None = None,
        buffer_size: TensorLike | None = None,
        header: TensorLike = False,
        field_delim: TensorLike = ",",
        use_quote_delim: TensorLike = True,
        na_value: TensorLike = "",
        select_cols: TensorLike | None = None,
    ) -> None:
        defaults = [_default(given) for given in record_defaults]
        _check_defaults(defaults)
        structure = Structure(tuple(Leaf(Tensor, default.dtype.base_dtype, ()) for default in defaults))

        def text(value: TensorLike, name: str) -> Tensor:
            return convert_to_tensor(value, dtype=dtypes.string, name=name)

        columns = convert_to_tensor(select_cols or [], dtype=dtypes.int64, name="select_cols")
        size = int64(_BUFFER_BYTES if buffer_size is None else buffer_size, "buffer_size")
        made = csv_dataset(
            text(filenames, "filenames"), text(compression_type or "", "compression_type"), size,
            boolean(header, "header"), text(field_delim, "field_delim"), boolean(use_quote_delim, "use_quote_delim"),
            text(na_value, "na_value"), columns, defaults, output_shapes=structure.shapes,
        )  # fmt: skip
        super().__init__(made, structure)


class _Files:
    """Infers the columns of CSV files; all methods raise ValueError for an unsupported compression."""

    def __init__(self, names: list[str], delim: str, quotes: bool, compression: object) -> None:
        self.names = names
        self._compression = compression
        self._format: dict[str, Any] = {"delimiter": delim}
        self._format["quoting"] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE

    def _open(self, name: str) -> AbstractContextManager[Iterable[str]]:
        if self._compression not in (None, "", "GZIP"):
            raise ValueError(f"compression_type ({self._compression}) is not supported for probing columns")
        if self._compression == "GZIP":
            return closing(line.decode() for line in lines_of(local_path(name).encode(), "GZIP"))
        return open(local_path(name), newline="")

    def column_names(self) -> list[str]:
        """The names in the files' first lines.

        Raises:
          ValueError: when the files differ or one is empty.
        """
        found: list[str] | None = None
        for name in self.names:
            with self._open(name) as file:
                row = next(csv.reader(file, **self._format), None)
            if row is None:
                raise ValueError(f"Received StopIteration when reading the header line of {name}.  Empty file?")
            if found is not None and row != found:
                raise ValueError("Files have different column names in the header row.")
            found = row
        return found or []

    def _rows(self, columns: int, header: bool) -> Iterator[list[str]]:
        for name in self.names:
            with self._open(name) as file:
                for i, row in enumerate(csv.reader(file, **self._format)):
                    if len(row) != columns:
                        raise ValueError(
                            "Problem inferring types: CSV row has different number of fields than expected."
                        )
                    if i or not header:
                        yield row

    def defaults(self, columns: int, chosen: Sequence[int], na: str, header: bool, rows: int | None) -> list[Tensor]:
        """A default (0 or "") per chosen column, of the type that fits the first ``rows`` records."""
        found: list[Any] = [None] * len(chosen)
        for i, row in enumerate(self._rows(columns, header)):
            if rows is not None and i >= rows:
                break
            found = [_type_of(row[c], na, before) for c, before in zip(chosen, found)]
        types = [dtype or dtypes.string for dtype in found]
        return [constant([""] if dtype is dtypes.string else [0], dtype=dtype) for dtype in types]


def _type_of(text: str, na: str, before: DType | None) -> Any:
    """The least permissive type that fits a field and those in the records before."""
    if text in ("", na):
        return before
    first = 0 if before is None else _TYPES.index(before)
    return next(dtype for dtype in _TYPES[first:] if _fits(text, dtype))


def _fits(text: str, dtype: DType) -> bool:
    if dtype is dtypes.string:
        return True
    try:
        if dtype.is_integer:
            return bool(dtype.min <= int(text) <= dtype.max)
        with np.errstate(over="ignore"):
            return bool(dtype.numpy.type(text) < np.inf)
    except ValueError:
        return False


def _indices(chosen: Sequence[Any], names: Sequence[str]) -> list[int]:
    """The sorted indices of columns given by name or index.

    Raises:
      ValueError: for a column that does not exist or is given twice.
    """
    found = []
    for column in chosen:
        if isinstance(column, int):
            if not 0 <= column < len(names):
                raise ValueError(f"Column index {column} specified in select_columns out of valid range.")
            found.append(column)
        elif column in names:
            found.append(list(names).index(column))
        else:
            raise ValueError(f"Value '{column}' specified in select_columns not a valid column index or name.")
    if len(set(found)) != len(found):
        raise ValueError("select_columns contains duplicate columns")
    return sorted(found)


def _columns(
    files: _Files, column_names: Sequence[str] | None, column_defaults: Sequence[Any] | None,
    select_columns: Sequence[int | str] | None, header: bool, na_value: str, rows: int | None,
) -> tuple[list[str], list[Any], list[int] | None]:  # fmt: skip
    """Names and defaults of the columns to read, and their indices (None for all columns)."""
    if column_names is None:
        if not header:
            raise ValueError("Cannot infer column names without a header line.")
        column_names = files.column_names()
    if len(column_names) != len(set(column_names)):
        raise ValueError("Cannot have duplicate column names.")
    chosen = None if select_columns is None else _indices(select_columns, column_names)
    if column_defaults is None:
        every = range(len(column_names))
        column_defaults = files.defaults(len(column_names), every if chosen is None else chosen, na_value, header, rows)
    if chosen is not None and len(column_defaults) != len(chosen):
        raise ValueError("If specified, column_defaults and select_columns must have same length.")
    names = list(column_names) if chosen is None else [column_names[i] for i in chosen]
    return names, list(column_defaults), chosen


@export("tf.contrib.data.make_csv_dataset", "tf.data.experimental.make_csv_dataset")
def make_csv_dataset(
    file_pattern: TensorLike, batch_size: TensorLike, column_names: Sequence[str] | None = None,
    column_defaults: Sequence[Any] | None = None, label_name: str | None = None,
    select_columns: Sequence[int | str] | None = None, field_delim: str = ",", use_quote_delim: bool = True,
    na_value: str = "", header: bool = True, num_epochs: int | None = None, shuffle: bool = True,
    shuffle_buffer_size: int = 10000, shuffle_seed: TensorLike | None = None,
    prefetch_buffer_size: TensorLike | None = None, num_parallel_reads: TensorLike | None = None, sloppy: bool = False,
    num_rows_for_inference: int | None = 100, compression_type: TensorLike | None = None, ignore_errors: bool = False,
) -> Dataset:  # fmt: skip
    """Batches of the records of CSV files, as dictionaries of columns (``tf.data.experimental.make_csv_dataset``).

    Args:
      file_pattern: a pattern, or a list of patterns or names.
      batch_size: number of records in a batch.
      column_names: names of all columns; default: those in the first line.
      column_defaults: a default per column to read, as in `CsvDataset`; inferred from the first records if None.
      label_name: the column to return as label: elements are then pairs (features, label).
      select_columns: names or indices of the columns to read; default: all.
      field_delim, use_quote_delim, na_value, header, compression_type: as in `CsvDataset`.
      num_epochs: number of repetitions; None for no end.
      shuffle, shuffle_buffer_size, shuffle_seed: whether and how to shuffle files and records.
      prefetch_buffer_size: number of batches to read ahead.
      num_parallel_reads: number of files to read at a time.
      sloppy: accepted and ignored; the order is deterministic.
      num_rows_for_inference: number of records to infer the defaults from; None for all.
      ignore_errors: drop malformed records.

    Raises:
      ValueError: when names, defaults and columns do not match, or no file matches the pattern.
    """
    names = matching_names(file_pattern)
    files = _Files(names, field_delim, use_quote_delim, compression_type)
    columns, defaults, chosen = _columns(
        files, column_names, column_defaults, select_columns, header, na_value, num_rows_for_inference
    )
    if label_name is not None and label_name not in columns:
        raise ValueError("`label_name` provided must be one of the columns.")

    def read(name: str) -> Dataset:
        records: Dataset = CsvDataset(
            name, defaults, compression_type, None, header, field_delim, use_quote_delim, na_value, chosen
        )
        return records.apply(without_errors()) if ignore_errors else records

    def as_features(*values: TensorLike) -> Any:
        features = collections.OrderedDict(zip(columns, values))
        return features if label_name is None else (features, features.pop(label_name))

    dataset = Dataset.from_tensor_slices(names)
    if shuffle:
        dataset = dataset.shuffle(len(names), shuffle_seed)
    dataset = dataset.apply(parallel_interleave(read, cycle_length=num_parallel_reads or 1, sloppy=sloppy))
    dataset = shuffled_and_repeated(dataset, num_epochs, shuffle, shuffle_buffer_size, shuffle_seed)
    dataset = dataset.batch(batch_size, drop_remainder=num_epochs is None).map(as_features)
    return dataset.prefetch(1 if prefetch_buffer_size is None else prefetch_buffer_size)


# ---- Batched datasets of Example messages and TFRecord files (``tf.data.experimental``) ----------------------------

Transformation = Callable[[Dataset], Dataset]


@export("tf.contrib.data.parse_example_dataset", "tf.data.experimental.parse_example_dataset")
def parse_example_dataset(features: TensorLike, num_parallel_calls: TensorLike = 1) -> Transformation:
    """Parses batches of serialized Example messages into dictionaries of tensors.

    Args:
      features: as in ``tf.parse_example``.
      num_parallel_calls: number of batches to parse at a time.

    Raises:
      ValueError: without features.
      TypeError: for elements that are not vectors of strings.
    """
    if features is None:
        raise ValueError("Missing: features was None.")

    def transform(dataset: Dataset) -> Dataset:
        leaf = dataset._structure.skeleton
        if not isinstance(leaf, Leaf) or leaf.dtype is not dtypes.string or leaf.shape is None or len(leaf.shape) != 1:
            raise TypeError("Input dataset should be a dataset of vectors of strings")
        calls = None if num_parallel_calls == 1 else num_parallel_calls
        return dataset.map(lambda batch: parse_example(batch, features), calls)

    return transform


@export("tf.contrib.data.make_batched_features_dataset", "tf.data.experimental.make_batched_features_dataset")
def make_batched_features_dataset(
    file_pattern: TensorLike,
    batch_size: TensorLike,
    features: Any,
    reader: Any = TFRecordDataset,
    label_key: str | None = None,
    reader_args: Any = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: TensorLike | None = None,
    prefetch_buffer_size: TensorLike | None = None,
    reader_num_threads: Any = None,
    parser_num_threads: Any = None,
    sloppy_ordering: bool = False,
    drop_final_batch: bool = False,
) -> Dataset:
    """Batches of parsed Example messages from files (``tf.data.experimental.make_batched_features_dataset``).

    Args:
      file_pattern: a pattern, or a list of patterns or names.
      batch_size: number of messages in a batch.
      features: as in ``tf.parse_example``.
      reader: a function from a file name to a dataset of messages, or of pairs (key, message).
      label_key: the feature to return as label: elements are then pairs (features, label).
      reader_args: further arguments of ``reader``.
      num_epochs: number of repetitions; None for no end.
      shuffle, shuffle_buffer_size, shuffle_seed: whether and how to shuffle files and messages.
      prefetch_buffer_size: number of batches to read ahead.
      reader_num_threads: number of files to read at a time.
      parser_num_threads: number of batches to parse at a time.
      sloppy_ordering: accepted and ignored; the order is deterministic.
      drop_final_batch: drop a last batch that is smaller.

    Raises:
      TypeError: when ``reader`` is a `tf.ReaderBase`.
      ValueError: when ``label_key`` is not one of the features.
    """
    if isinstance(reader, type) and issubclass(reader, ReaderBase):
        raise TypeError(
            "The `reader` argument must return a `Dataset` object. `tf.ReaderBase` subclasses are not supported. For"
            " example, pass `tf.data.TFRecordDataset` instead of `tf.TFRecordReader`."
        )
    if label_key is not None and label_key not in features:
        raise ValueError(f"The `label_key` provided ({label_key!r}) must be one of the `features` keys.")
    files = Dataset.list_files(file_pattern, shuffle=shuffle, seed=shuffle_seed)
    dataset = parallel_interleave(lambda name: reader(name, *(reader_args or ())), reader_num_threads or 1)(files)
    if dataset.output_types == (dtypes.string, dtypes.string):
        dataset = dataset.map(lambda _, message: message)
    dataset = shuffled_and_repeated(dataset, num_epochs, shuffle, shuffle_buffer_size, shuffle_seed)
    dataset = dataset.batch(batch_size, drop_remainder=drop_final_batch or num_epochs is None)
    dataset = parse_example_dataset(features, 2 if parser_num_threads is None else parser_num_threads)(dataset)
    if label_key is not None:
        dataset = dataset.map(lambda parsed: (parsed, parsed.pop(label_key)))
    return dataset.prefetch(AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)


def make_tf_record_dataset(
    file_pattern: TensorLike,
    batch_size: TensorLike,
    parser_fn: Callable[..., Any] | None = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int | None = None,
    shuffle_seed: TensorLike | None = None,
    prefetch_buffer_size: TensorLike | None = None,
    num_parallel_reads: TensorLike | None = None,
    num_parallel_parser_calls: TensorLike | None = None,
    drop_final_batch: bool = False,
) -> Dataset:
    """Batches of TFRecord records, parsed by ``parser_fn``; arguments as in `make_batched_features_dataset`."""
    files = Dataset.list_files(file_pattern, shuffle=shuffle, seed=shuffle_seed)
    dataset: Dataset = TFRecordDataset(files, num_parallel_reads=num_parallel_reads or 24)
    size = 10000 if shuffle_buffer_size is None else shuffle_buffer_size
    dataset = shuffled_and_repeated(dataset, num_epochs, shuffle, size, shuffle_seed)
    if parser_fn is not None:
        dataset = dataset.map(parser_fn, num_parallel_parser_calls or 4)
    dataset = dataset.batch(batch_size, drop_remainder=drop_final_batch or num_epochs is None)
    if prefetch_buffer_size == 0:
        return dataset
    return dataset.prefetch(AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)
