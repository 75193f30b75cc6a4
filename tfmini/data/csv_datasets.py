"""``tf.data.experimental.CsvDataset`` and ``make_csv_dataset``."""

from __future__ import annotations

import collections
import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.checkpoint.files import local_path
from tfmini.data.csv_dataset_ops import csv_dataset, lines_of
from tfmini.data.dataset import Dataset
from tfmini.data.dataset_arguments import boolean, int64
from tfmini.data.file_patterns import matching_names
from tfmini.data.structure import Leaf, Structure
from tfmini.data.transformations import ignore_errors as without_errors
from tfmini.data.transformations import parallel_interleave, shuffled_and_repeated
from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor
from tfmini.ops.array.constant import constant

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
        self, filenames: Any, record_defaults: Sequence[Any], compression_type: Any = None, buffer_size: Any = None,
        header: Any = False, field_delim: Any = ",", use_quote_delim: Any = True, na_value: Any = "",
        select_cols: Any = None,
    ) -> None:  # fmt: skip
        defaults = [_default(given) for given in record_defaults]
        _check_defaults(defaults)
        structure = Structure(tuple(Leaf(Tensor, default.dtype.base_dtype, ()) for default in defaults))

        def text(value: Any, name: str) -> Tensor:
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

    def __init__(self, names: list[str], delim: str, quotes: bool, compression: Any) -> None:
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
                raise ValueError(
                    f"Received StopIteration when reading the header line of {name}.  Empty file?"
                )
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


def _type_of(text: str, na: str, before: Any) -> Any:
    """The least permissive type that fits a field and those in the records before."""
    if text in ("", na):
        return before
    first = 0 if before is None else _TYPES.index(before)
    return next(dtype for dtype in _TYPES[first:] if _fits(text, dtype))


def _fits(text: str, dtype: Any) -> bool:
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
            raise ValueError(
                f"Value '{column}' specified in select_columns not a valid column index or name."
            )
    if len(set(found)) != len(found):
        raise ValueError("select_columns contains duplicate columns")
    return sorted(found)


def _columns(
    files: _Files, column_names: Any, column_defaults: Any, select_columns: Any, header: bool, na_value: str,
    rows: int | None,
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
    file_pattern: Any, batch_size: Any, column_names: Any = None, column_defaults: Any = None, label_name: Any = None,
    select_columns: Any = None, field_delim: str = ",", use_quote_delim: bool = True, na_value: str = "",
    header: bool = True, num_epochs: int | None = None, shuffle: bool = True, shuffle_buffer_size: int = 10000,
    shuffle_seed: Any = None, prefetch_buffer_size: Any = None, num_parallel_reads: Any = None, sloppy: bool = False,
    num_rows_for_inference: int | None = 100, compression_type: Any = None, ignore_errors: bool = False,
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

    def read(name: Any) -> Dataset:
        records: Dataset = CsvDataset(
            name, defaults, compression_type, None, header, field_delim, use_quote_delim, na_value, chosen
        )
        return records.apply(without_errors()) if ignore_errors else records

    def as_features(*values: Any) -> Any:
        features = collections.OrderedDict(zip(columns, values))
        return features if label_name is None else (features, features.pop(label_name))

    dataset = Dataset.from_tensor_slices(names)
    if shuffle:
        dataset = dataset.shuffle(len(names), shuffle_seed)
    dataset = dataset.apply(parallel_interleave(read, cycle_length=num_parallel_reads or 1, sloppy=sloppy))
    dataset = shuffled_and_repeated(dataset, num_epochs, shuffle, shuffle_buffer_size, shuffle_seed)
    dataset = dataset.batch(batch_size, drop_remainder=num_epochs is None).map(as_features)
    return dataset.prefetch(1 if prefetch_buffer_size is None else prefetch_buffer_size)
