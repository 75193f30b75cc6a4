"""``DecodeCSV`` and ``DecodeCompressed``: ``tf.decode_csv``, ``tf.decode_compressed``."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.dtypes import DType, cpp_name
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, op, same_shape
from tfmini.numerics.inflation import inflate
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.shapes import RawShape, at_most_rank

decode_csv_op: OpHandle[Any] = op(
    """DecodeCSV(records: string, record_defaults: OUT_TYPE) -> output: OUT_TYPE
        OUT_TYPE: list({float, double, int32, int64, string})
        field_delim: string = ','
        use_quote_delim: bool = true
        na_value: string = ''
        select_cols: list(int) = []""",
    differentiable=False,
)
decode_compressed_op = op(
    "DecodeCompressed(bytes: string) -> output: string; compression_type: string = ''",
    shape=same_shape,
    differentiable=False,
)


@decode_csv_op.shape
def _csv_shape(node: Operation) -> list[RawShape]:
    for i, default in enumerate(node.inputs[1:], 1):
        shape = at_most_rank(default.raw_shape, 1)
        if shape and shape[0] is not None and shape[0] > 1:
            raise ValueError(f"Shape of a default must be a length-0 or length-1 vector, or a scalar (input {i})")
    return [node.inputs[0].raw_shape] * len(node.attrs["OUT_TYPE"])


def split_fields(record: bytes, delim: bytes, quotes: bool) -> list[bytes]:
    """The fields of a CSV record.

    Raises:
      InvalidArgumentError: for quotes in wrong places.
    """
    fields: list[bytes] = []
    at, end = 0, len(record)
    while at < end:
        if record[at : at + 1] in (b"\n", b"\r"):
            at += 1
        elif quotes and record[at : at + 1] == b'"':
            field, at = _quoted(record, at + 1, delim)
            fields.append(field)
        else:
            stop = record.find(delim, at)
            stop = end if stop < 0 else stop
            field = record[at:stop]
            if b"\n" in field or b"\r" in field or (quotes and b'"' in field):
                refuse("Unquoted fields cannot have quotes/CRLFs inside")
            fields.append(field)
            at = stop + 1
    if record.endswith(delim):
        fields.append(b"")
    return fields


def _quoted(record: bytes, at: int, delim: bytes) -> tuple[bytes, int]:
    """The quoted field that starts at ``at``, and the position of the next field."""
    out = bytearray()
    end = len(record)
    while at < end - 1 and not (record[at : at + 1] == b'"' and record[at + 1 : at + 2] == delim):
        if record[at : at + 1] != b'"':
            out += record[at : at + 1]
            at += 1
            continue
        if record[at + 1 : at + 2] != b'"':
            refuse("Quote inside a string has to be escaped by another quote")
        out += b'"'
        at += 2
    if record[at : at + 1] != b'"' or (at != end - 1 and record[at + 1 : at + 2] != delim):
        refuse("Quoted field has to end with quote followed by delim or end")
    return bytes(out), at + 2


def number_of(field: bytes, dtype: DType, where: str) -> Any:
    """The number in a field.

    Args:
      where: the field, for messages.

    Raises:
      InvalidArgumentError: when it is not a number.
    """
    try:
        value = (int if dtype.is_integer else float)(field)
        if dtype.is_integer and not dtype.min <= value <= dtype.max:
            raise ValueError(value)
    except ValueError:
        text = f"{where} is not a valid {cpp_name(dtype)}: {field.decode(errors='replace')}"
        raise errors.InvalidArgumentError.of(text) from None
    return value


@decode_csv_op.kernel("CPU")
def _decode_csv(
    records: Any, record_defaults: list[Any], *, OUT_TYPE: list[DType], field_delim: bytes, use_quote_delim: bool,
    na_value: bytes, select_cols: list[int],
) -> tuple[Any, ...]:  # fmt: skip
    if len(field_delim) != 1:
        refuse("field_delim should be only 1 char")
    defaults = [np.ravel(np.asarray(d, t.numpy)).tolist() for d, t in zip(record_defaults, OUT_TYPE)]
    for f, default in enumerate(defaults):
        if len(default) > 1:
            refuse(f"There should only be 1 default per field but field {f} has {len(default)}")
    texts = [records] if isinstance(records, bytes) else np.asarray(records, object).ravel().tolist()
    columns: list[list[Any]] = [[] for _ in OUT_TYPE]
    for i, record in enumerate(texts):
        fields = split_fields(record, field_delim, use_quote_delim)
        if select_cols:
            fields = [fields[c] for c in select_cols if c < len(fields)]
        if len(fields) != len(OUT_TYPE):
            refuse(f"Expect {len(OUT_TYPE)} fields but have {len(fields)} in record {i}")
        for f, (field, dtype) in enumerate(zip(fields, OUT_TYPE)):
            if not field or field == na_value:
                if not defaults[f]:
                    refuse(f"Field {f} is required but missing in record {i}!")
                columns[f].append(defaults[f][0])
            else:
                where = f"Field {f} in record {i}"
                columns[f].append(field if dtype is dtypes.string else number_of(field, dtype, where))
    shape = () if isinstance(records, bytes) else np.shape(records)
    return tuple(_column(values, dtype, shape) for values, dtype in zip(columns, OUT_TYPE))


def _column(values: list[Any], dtype: DType, shape: tuple[int, ...]) -> Any:
    out = np.empty(len(values), dtype.numpy)
    out[:] = values
    return out.reshape(shape) if shape else out[0]


@decode_compressed_op.kernel("CPU")
def _decode_compressed(data: Any, *, compression_type: bytes) -> Any:
    bits = {b"": None, b"ZLIB": 15, b"GZIP": 31}
    if compression_type not in bits:
        refuse("Only ZLIB, GZIP or NONE are supported compressions")
    wbits = bits[compression_type]
    if wbits is None:
        return data
    texts = [data] if isinstance(data, bytes) else np.asarray(data, object).ravel().tolist()
    try:
        found = [inflate(text, wbits, f"A string of {len(text)} compressed bytes") for text in texts]
    except zlib.error as error:
        raise errors.DataLossError.of(f"inflate() failed: {error}") from error
    if isinstance(data, bytes):
        return found[0]
    out = np.empty(len(found), object)
    out[:] = found
    return out.reshape(np.shape(data))


@export("tf.decode_csv", "tf.io.decode_csv")
def decode_csv(
    records: Any, record_defaults: Any, field_delim: str = ",", use_quote_delim: bool = True, name: str | None = None,
    na_value: str = "", select_cols: Any = None,
) -> list[Tensor]:  # fmt: skip
    """The columns of CSV records (``tf.decode_csv``).

    Args:
      records: strings of any shape, one record each.
      record_defaults: the default of each column: a scalar or a vector of one, or an empty vector of the
        column's type if the field is required.
      field_delim: the character between fields.
      use_quote_delim: whether double quotes enclose fields.
      name: of the op.
      na_value: a text that stands for a missing field.
      select_cols: the numbers of the columns to return, increasing; None: all.

    Returns:
      One tensor per column, shaped like ``records``.

    Raises:
      ValueError: when ``select_cols`` is not increasing or does not fit ``record_defaults``.
    """
    if select_cols is not None:
        if any(a >= b for a, b in zip(select_cols, select_cols[1:])):
            raise ValueError("select_cols is not strictly increasing.")
        if select_cols[0] < 0:
            raise ValueError("select_cols contains negative values.")
        if len(select_cols) != len(record_defaults):
            raise ValueError("Length of select_cols and record_defaults do not match.")
    found = decode_csv_op(
        records, record_defaults, field_delim=field_delim, use_quote_delim=use_quote_delim, na_value=na_value,
        select_cols=select_cols, name=name,
    )  # fmt: skip
    return list(found)


@export("tf.decode_compressed", "tf.io.decode_compressed")
def decode_compressed(bytes: Any, compression_type: str = "", name: str | None = None) -> Tensor:
    """Decompresses strings (``tf.decode_compressed``); ``compression_type`` is ``""``, ``"ZLIB"`` or ``"GZIP"``."""
    return decode_compressed_op(bytes, compression_type=compression_type, name=name)
