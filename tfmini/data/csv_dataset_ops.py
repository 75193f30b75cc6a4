"""The op ``CSVDataset``: the records of CSV files, with one component per column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.data.dataset_ops import TYPES, dataset_op
from tfmini.data.file_ops import compression_of, paths_of
from tfmini.data.pipeline import Element, FunctionSource, Source
from tfmini.dtypes import DType
from tfmini.numerics.inflation import check_inflated
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.io.csv_ops import number_of
from tfmini.ops.io.record_files import InflatedFile

csv_dataset = dataset_op(
    "CSVDataset",
    "filenames: string, compression_type: string, buffer_size: int64, header: bool, field_delim: string,"
    " use_quote_delim: bool, na_value: string, select_cols: int64, record_defaults: output_types",
    TYPES,
)
_CHUNK = 1 << 20


@dataclass(frozen=True)
class _Format:
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


def lines_of(path: bytes, compression: str) -> Iterator[bytes]:
    """The lines of a file, including their line ends."""
    file = InflatedFile(path, compression)
    try:
        parts: list[bytes] = []  # of a line that may go on; joined once, as it may be long
        while chunk := file.read(_CHUNK):
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
                check_inflated(len(parts) * _CHUNK, f"A line of {path.decode()}")
            if parts[-1].endswith(b"\n"):
                yield b"".join(parts)
                parts = []
        if parts:
            yield b"".join(parts)
    finally:
        file.close()


def _records(path: bytes, compression: str, form: _Format) -> Iterator[bytes]:
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


def _fields(record: bytes, form: _Format) -> list[bytes]:
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
                refuse("Unquoted fields cannot have quotes inside")
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
            refuse("Reached end of file without closing quoted field in record")
        parts.append(record[at:end])
        if record[end + 1 : end + 2] != b'"':
            break
        parts.append(b'"')
        at = end + 2
    if end + 1 < len(record) and record[end + 1 : end + 2] != delim:
        refuse("Quote inside a string has to be escaped by another quote")
    return b"".join(parts), end + 1


def _element(record: bytes, form: _Format) -> Element:
    fields = _fields(record, form)
    count = len(form.types)
    if form.columns is not None:
        if fields and form.columns[-1] >= len(fields):
            refuse(f"Expect {count} fields but have {sum(c < len(fields) for c in form.columns)} in record")
        fields = [fields[c] for c in form.columns]
    elif len(fields) > count:
        refuse(f"Expect {count} fields but have more in record")
    elif len(fields) < count:
        refuse(f"Expect {count} fields but have {len(fields)} in record")
    return tuple(_component(f, field, form) for f, field in enumerate(fields))


def _component(f: int, field: bytes, form: _Format) -> Any:
    dtype = form.types[f]
    if not field or field == form.na:
        if not form.defaults[f]:
            refuse(f"Field {f} is required but missing in record!")
        value = form.defaults[f][0]
    else:
        value = field if dtype is dtypes.string else number_of(field, dtype, f"Field {f} in record")
    return value if dtype is dtypes.string else dtype.numpy.type(value)


class _Elements:
    """The elements of all files; reading continues after a malformed record."""

    def __init__(self, paths: list[bytes], compression: str, header: bool, form: _Format) -> None:
        self._records = self._read(paths, compression, header, form)
        self._form = form

    @staticmethod
    def _read(paths: list[bytes], compression: str, header: bool, form: _Format) -> Iterator[bytes]:
        for path in paths:
            records = _records(path, compression, form)
            if header and next(records, None) is None:
                refuse("Can't read header of file")
            yield from records

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        return _element(next(self._records), self._form)

    def close(self) -> None:
        self._records.close()  # type: ignore[attr-defined]


@csv_dataset.kernel("CPU")
def _csv(
    filenames: Any, compression_type: Any, buffer_size: Any, header: Any, field_delim: Any, use_quote_delim: Any,
    na_value: Any, select_cols: Any, record_defaults: list[Any], *, output_types: list[DType],
) -> Source:  # fmt: skip
    delim = np.asarray(field_delim, object).item()
    if len(delim) != 1:
        refuse("field_delim should be only 1 char")
    if buffer_size <= 0:
        refuse("buffer_size should be positive")
    columns = [int(c) for c in np.atleast_1d(select_cols)] or None
    if columns is not None and len(columns) != len(output_types):
        refuse("select_cols should match output size")
    if columns is not None and (columns[0] < 0 or any(a >= b for a, b in zip(columns, columns[1:]))):
        refuse("select_cols should be strictly increasing indices and all indices should be nonnegative")
    defaults = [np.ravel(np.asarray(d, t.numpy)).tolist() for d, t in zip(record_defaults, output_types)]
    form = _Format(
        delim, bool(use_quote_delim), np.asarray(na_value, object).item(), columns, defaults, list(output_types)
    )
    paths, compression = paths_of(filenames), compression_of(compression_type)
    return FunctionSource(lambda _: _Elements(paths, compression, bool(header), form))
