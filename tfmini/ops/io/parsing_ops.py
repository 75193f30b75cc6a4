"""Parsing ops: ``ParseExample`` and related ops, ``ParseTensor``, ``SerializeTensor``, ``DecodeJSONExample``."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.core_types import Array, TensorLike
from tfmini.dtypes import DType, cpp_name, string
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, op, same_shape
from tfmini.graph.node import Node
from tfmini.numerics.images import check_inflated, inflate
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.io.example_parsing import (
    DenseFeature,
    Sparse,
    Where,
    dense_rows,
    feature_list_rows,
    feature_list_values,
    parse_examples,
    parse_message,
    parse_one_example,
    sparse_batch,
    sparse_rows,
    stack_rows,
)
from tfmini.shapes import RawShape, at_most_rank, compatible_raw, format_raw, with_rank

_TYPES = "{float, int64, string}"
_SEQUENCE_TYPES = f"""context_sparse_types: list({_TYPES}) >= 0 = []
    Tcontext_dense: list({_TYPES}) >= 0 = []
    feature_list_dense_types: list({_TYPES}) >= 0 = []
    context_dense_shapes: list(shape) >= 0 = []
    feature_list_sparse_types: list({_TYPES}) >= 0 = []
    feature_list_dense_shapes: list(shape) >= 0 = []"""
_COUNTS = """Ncontext_sparse: int >= 0 = 0
    Ncontext_dense: int >= 0 = 0
    Nfeature_list_sparse: int >= 0 = 0
    Nfeature_list_dense: int >= 0 = 0"""
_SEQUENCE_OUTPUTS = (
    "context_sparse_indices: Ncontext_sparse * int64, context_sparse_values: context_sparse_types,"
    " context_sparse_shapes: Ncontext_sparse * int64, context_dense_values: Tcontext_dense,"
    " feature_list_sparse_indices: Nfeature_list_sparse * int64,"
    " feature_list_sparse_values: feature_list_sparse_types,"
    " feature_list_sparse_shapes: Nfeature_list_sparse * int64,"
    " feature_list_dense_values: feature_list_dense_types"
)

parse_example_op: OpHandle[Any] = op(
    "ParseExample(serialized: string, names: string, sparse_keys: Nsparse * string, dense_keys: Ndense * string,"
    " dense_defaults: Tdense) -> sparse_indices: Nsparse * int64, sparse_values: sparse_types,"
    " sparse_shapes: Nsparse * int64, dense_values: Tdense\n"
    f"""Nsparse: int >= 0
        Ndense: int >= 0
        sparse_types: list({_TYPES}) >= 0
        Tdense: list({_TYPES}) >= 0
        dense_shapes: list(shape) >= 0"""
)
parse_single_example_op: OpHandle[Any] = op(
    "ParseSingleExample(serialized: string, dense_defaults: Tdense) -> sparse_indices: num_sparse * int64,"
    " sparse_values: sparse_types, sparse_shapes: num_sparse * int64, dense_values: Tdense\n"
    f"""num_sparse: int >= 0
        sparse_keys: list(string) >= 0
        dense_keys: list(string) >= 0
        sparse_types: list({_TYPES}) >= 0
        Tdense: list({_TYPES}) >= 0
        dense_shapes: list(shape) >= 0"""
)
parse_sequence_op: OpHandle[Any] = op(
    "ParseSequenceExample(serialized: string, debug_name: string, context_dense_defaults: Tcontext_dense) -> "
    f"{_SEQUENCE_OUTPUTS}, feature_list_dense_lengths: Nfeature_list_dense * int64\n"
    f"""feature_list_dense_missing_assumed_empty: list(string) >= 0
    context_sparse_keys: list(string) >= 0
    context_dense_keys: list(string) >= 0
    feature_list_sparse_keys: list(string) >= 0
    feature_list_dense_keys: list(string) >= 0
    {_COUNTS}
    {_SEQUENCE_TYPES}"""
)
parse_single_sequence_op: OpHandle[Any] = op(
    "ParseSingleSequenceExample(serialized: string, feature_list_dense_missing_assumed_empty: string,"
    " context_sparse_keys: Ncontext_sparse * string, context_dense_keys: Ncontext_dense * string,"
    " feature_list_sparse_keys: Nfeature_list_sparse * string,"
    " feature_list_dense_keys: Nfeature_list_dense * string, context_dense_defaults: Tcontext_dense,"
    f" debug_name: string) -> {_SEQUENCE_OUTPUTS}\n{_COUNTS}\n{_SEQUENCE_TYPES}"
)
parse_tensor_op = op("ParseTensor(serialized: string) -> output: out_type; out_type: type", shape=[None])
serialize_tensor_op = op("SerializeTensor(tensor: T) -> serialized: string; T: type", shape=[()])
decode_json_op = op("DecodeJSONExample(json_examples: string) -> binary_examples: string", shape=same_shape)

for _handle in (parse_example_op, parse_single_example_op, parse_sequence_op, parse_single_sequence_op,
                parse_tensor_op, serialize_tensor_op, decode_json_op):  # fmt: skip
    _handle.not_differentiable()


# ---- shapes ---------------------------------------------------------------------------------


def _sparse_shapes(count: int, rank: int) -> list[RawShape]:
    return [(None, rank)] * count + [(None,)] * count + [(rank,)] * count


def _after(prefix: tuple[int | None, ...], shape: RawShape) -> RawShape:
    return None if shape is None else prefix + shape


@parse_example_op.shape
def _example_shape(node: Operation) -> list[RawShape]:
    batch = with_rank(node.inputs[0].raw_shape, 1)
    with_rank(node.inputs[1].raw_shape, 1)
    dense = [_after(batch, shape) for shape in node.attrs["dense_shapes"]]
    return _sparse_shapes(node.attrs["Nsparse"], 2) + dense


@parse_single_example_op.shape
def _single_example_shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[0].raw_shape, 0)
    return _sparse_shapes(node.attrs["num_sparse"], 1) + list(node.attrs["dense_shapes"])


@parse_sequence_op.shape
def _sequence_shape(node: Operation) -> list[RawShape]:
    (batch,) = with_rank(node.inputs[0].raw_shape, 1)
    attrs = node.attrs
    return [
        *_sparse_shapes(attrs["Ncontext_sparse"], 2),
        *(_after((batch,), shape) for shape in attrs["context_dense_shapes"]),
        *_sparse_shapes(attrs["Nfeature_list_sparse"], 3),
        *(_after((batch, None), shape) for shape in attrs["feature_list_dense_shapes"]),
        *[(batch,)] * attrs["Nfeature_list_dense"],
    ]


@parse_single_sequence_op.shape
def _single_sequence_shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[0].raw_shape, 0)
    attrs = node.attrs
    return [
        *_sparse_shapes(attrs["Ncontext_sparse"], 1),
        *attrs["context_dense_shapes"],
        *_sparse_shapes(attrs["Nfeature_list_sparse"], 2),
        *(_after((None,), shape) for shape in attrs["feature_list_dense_shapes"]),
    ]


# ---- kernels --------------------------------------------------------------------------------


def _texts(value: TensorLike) -> list[bytes]:
    return [value] if isinstance(value, bytes) else np.asarray(value, object).ravel().tolist()


def _text(value: TensorLike) -> bytes:
    return value if isinstance(value, bytes) else np.asarray(value, object).item()


def _dense_specs(
    keys: list[bytes], types: list[DType], shapes: list[RawShape], defaults: list[Any]
) -> list[DenseFeature]:
    specs = []
    for i, (key, dtype, shape, default) in enumerate(_together(keys, types, shapes, defaults)):
        spec = DenseFeature(key.decode(), dtype, shape, default)
        if spec.is_variable and np.size(default) != 1:
            refuse(
                f"dense_shape[{i}] is a variable length shape: {format_raw(shape)}, therefore def_value[{i}] must"
                f" contain a single element (the padding element).  But its shape is: {format_raw(np.shape(default))}"
            )
        if not spec.is_variable and np.size(default) and not compatible_raw(shape, np.shape(default)):
            text = f"def_value[{i}].shape() == {format_raw(np.shape(default))} is not compatible with"
            refuse(f"{text} dense_shapes_[{i}] == {format_raw(shape)}")
        specs.append(spec)
    return specs


def _together(*lists: Any) -> Iterator[tuple[Any, ...]]:
    """What `zip` yields, of lists that must be equally long."""
    if len({len(each) for each in lists}) > 1:
        counts = [len(each) for each in lists]
        refuse(f"The keys, types, shapes and defaults differ in number: {counts}")
    return zip(*lists)


def _sparse_specs(keys: list[bytes], types: list[DType]) -> list[Sparse]:
    return [Sparse(key.decode(), dtype) for key, dtype in _together(keys, types)]


def _flat(sparse: list[tuple[Any, Any, Any]]) -> list[Any]:
    """Parts of sparse tensors in the order of the outputs: all indices, all values, all shapes."""
    return [part for kind in zip(*sparse) for part in kind]


@parse_example_op.kernel("CPU")
def _parse_example(
    serialized: np.ndarray, names: Array, sparse_keys: list[Any], dense_keys: list[Any], dense_defaults: list[Any], *,
    sparse_types: list[DType], Tdense: list[DType], dense_shapes: list[RawShape],
) -> tuple[Any, ...]:  # fmt: skip
    texts, labels = _texts(serialized), _texts(names)
    if labels and len(labels) != len(texts):
        refuse(f"Expected len(names) == len(serialized), but got: {len(labels)} vs. {len(texts)}")
    dense = _dense_specs([_text(k) for k in dense_keys], Tdense, dense_shapes, dense_defaults)
    sparse = _sparse_specs([_text(k) for k in sparse_keys], sparse_types)
    sparse_found, dense_found = parse_examples(texts, labels, sparse, dense)
    return (*_flat(sparse_found), *dense_found)


@parse_single_example_op.kernel_factory("CPU")
def _parse_single_example(node: Node) -> Callable[..., Any]:
    keys, types, shapes = (node.attrs[name] for name in ("dense_keys", "Tdense", "dense_shapes"))
    sparse_keys, sparse_types = node.attrs["sparse_keys"], node.attrs["sparse_types"]
    held: tuple[list[Any], list[DenseFeature], list[Sparse]] | None = None

    def parse(serialized: np.ndarray, dense_defaults: list[Any]) -> tuple[Any, ...]:
        nonlocal held
        kept = held
        if kept is None or any(a is not b for a, b in zip(kept[0], dense_defaults)):  # nearly always constants
            dense = _dense_specs(keys, types, shapes, dense_defaults)
            held = kept = list(dense_defaults), dense, _sparse_specs(sparse_keys, sparse_types)
        sparse_found, dense_found = parse_one_example(_text(serialized), kept[2], kept[1])
        return (*_flat(sparse_found), *dense_found)

    return parse


class _Sequences:
    """One or several SequenceExample messages, parsed feature by feature."""

    def __init__(self, texts: list[bytes], names: list[bytes], assumed_empty: list[bytes]) -> None:
        messages = [parse_message("SequenceExample", text) for text in texts]
        self.context = [message.context.feature for message in messages]
        self.lists = [message.feature_lists.feature_list for message in messages]
        self.labels = [name.decode(errors="replace") for name in names] or ["<unknown>"] * len(texts)
        self.assumed_empty = {key.decode() for key in assumed_empty}
        self.wheres: list[Where] = [_context_where(label) for label in self.labels]

    def context_dense(self, spec: DenseFeature) -> list[Any]:
        """The arrays of a dense context feature."""

        def needed(i: int) -> str:
            return f"Name: {self.labels[i]}, Context feature '{spec.key}' is required but could not be found."

        return dense_rows(self.context, spec, self.wheres, needed)

    def context_sparse(self, spec: Sparse) -> list[Any]:
        """The vectors of a sparse context feature."""
        return sparse_rows(self.context, spec, self.wheres)

    def dense(self, spec: DenseFeature) -> list[Any]:
        """The arrays of a dense feature list."""
        missing = spec.key in self.assumed_empty
        return [feature_list_rows(lists, spec, label, missing) for lists, label in zip(self.lists, self.labels)]

    def sparse(self, spec: Sparse) -> list[list[Any]]:
        """The vectors, per step, of a sparse feature list."""
        return [feature_list_values(lists, spec, label) for lists, label in zip(self.lists, self.labels)]


def _context_where(label: str) -> Where:
    return lambda key: f"Name: {label}, Context feature: {key}"


_SEQUENCE_KEYS = ("context_sparse_keys", "context_dense_keys", "feature_list_sparse_keys", "feature_list_dense_keys")


def _check_counts(attrs: dict[str, Any], *keys: list[Any]) -> None:
    """Compares the numbers of keys with the attrs that give the numbers of outputs."""
    counts = [attrs[f"N{name.removesuffix('_keys')}"] for name in _SEQUENCE_KEYS]
    if counts != [len(each) for each in keys]:
        found = [len(each) for each in keys]
        refuse(f"The node counts {counts} features, but has {found} keys")


@parse_single_sequence_op.kernel("CPU")
def _parse_single_sequence(
    serialized: np.ndarray, assumed_empty: Array, context_sparse_keys: list[Any], context_dense_keys: list[Any],
    feature_list_sparse_keys: list[Any], feature_list_dense_keys: list[Any], context_dense_defaults: list[Any],
    debug_name: Array, *, node: Node,
) -> tuple[Any, ...]:  # fmt: skip
    attrs = node.attrs
    _check_counts(attrs, context_sparse_keys, context_dense_keys, feature_list_sparse_keys, feature_list_dense_keys)
    parsed = _Sequences([_text(serialized)], _texts(debug_name), _texts(assumed_empty))
    context_dense = _dense_specs(
        [_text(k) for k in context_dense_keys], attrs["Tcontext_dense"], attrs["context_dense_shapes"],
        context_dense_defaults,
    )  # fmt: skip
    context_sparse = []
    for spec in _sparse_specs([_text(k) for k in context_sparse_keys], attrs["context_sparse_types"]):
        (values,) = parsed.context_sparse(spec)
        indices = np.arange(len(values), dtype=np.int64)[:, None]
        context_sparse.append((indices, values, np.array([len(values)], np.int64)))
    sparse = [
        sparse_batch(parsed.sparse(spec)[0], spec.dtype)
        for spec in _sparse_specs([_text(k) for k in feature_list_sparse_keys], attrs["feature_list_sparse_types"])
    ]
    types, shapes = attrs["feature_list_dense_types"], attrs["feature_list_dense_shapes"]
    dense = [
        parsed.dense(DenseFeature(_text(key).decode(), dtype, shape, ()))[0]
        for key, dtype, shape in _together(feature_list_dense_keys, types, shapes)
    ]
    first = [parsed.context_dense(spec)[0] for spec in context_dense]
    return (*_flat(context_sparse), *first, *_flat(sparse), *dense)


@parse_sequence_op.kernel("CPU")
def _parse_sequences(
    serialized: np.ndarray, debug_name: Array, context_dense_defaults: list[Any], *, node: Node
) -> tuple[Any, ...]:
    attrs = node.attrs
    _check_counts(attrs, *(attrs[name] for name in _SEQUENCE_KEYS))
    parsed = _Sequences(_texts(serialized), _texts(debug_name), attrs["feature_list_dense_missing_assumed_empty"])
    context_dense = _dense_specs(
        attrs["context_dense_keys"], attrs["Tcontext_dense"], attrs["context_dense_shapes"], context_dense_defaults
    )
    context_sparse = [
        sparse_batch(parsed.context_sparse(spec), spec.dtype)
        for spec in _sparse_specs(attrs["context_sparse_keys"], attrs["context_sparse_types"])
    ]
    sparse = [
        _sparse_cube(parsed.sparse(spec), spec.dtype)
        for spec in _sparse_specs(attrs["feature_list_sparse_keys"], attrs["feature_list_sparse_types"])
    ]
    types, shapes = attrs["feature_list_dense_types"], attrs["feature_list_dense_shapes"]
    dense, lengths = [], []
    for key, dtype, shape in _together(attrs["feature_list_dense_keys"], types, shapes):
        rows = parsed.dense(DenseFeature(key.decode(), dtype, shape, ()))
        padded = DenseFeature(key.decode(), dtype, (None, *(shape or ())), ())
        dense.append(stack_rows(rows, padded))
        lengths.append(np.array([len(row) for row in rows], np.int64))
    first = [stack_rows(parsed.context_dense(spec), spec) for spec in context_dense]
    return (*_flat(context_sparse), *first, *_flat(sparse), *dense, *lengths)


def _sparse_cube(rows: list[list[Any]], dtype: DType) -> tuple[Any, Any, Any]:
    """The vectors of each example's steps, as one sparse tensor of rank 3."""
    parts = [sparse_batch(steps, dtype) for steps in rows]
    indices = [np.insert(part, 0, i, axis=1) for i, (part, _, _) in enumerate(parts)]
    largest = np.max([shape for _, _, shape in parts], axis=0) if parts else np.zeros(2, np.int64)
    values = np.concatenate([values for _, values, _ in parts]) if parts else np.empty(0, dtype.numpy)
    joined = np.concatenate(indices) if parts else np.empty((0, 3), np.int64)
    return joined, values, np.array([len(rows), *largest], np.int64)


@parse_tensor_op.kernel("CPU")
def _parse_tensor(serialized: np.ndarray, *, out_type: DType) -> Any:
    from tfmini.graph.attr_values import tensor_from_proto
    from tfmini.protos import DataType, TensorProto

    if np.ndim(serialized):
        refuse(f"Expected `serialized` to be a scalar, got shape: {format_raw(np.shape(serialized))}")
    text = _text(serialized)
    problem = f"Could not parse `serialized` as TensorProto: {text[:100]!r}"
    with errors.reading(problem, errors.InvalidArgumentError):
        proto = TensorProto.FromString(text)
    if proto.dtype != out_type.as_datatype_enum:
        known = proto.dtype in DataType.values() and proto.dtype
        got = cpp_name(DType(proto.dtype)) if known else "invalid"
        refuse(f"Type mismatch between parsed tensor ({got}) and dtype ({cpp_name(out_type)})")
    with errors.reading(problem, errors.InvalidArgumentError):
        value = tensor_from_proto(proto)
        check_inflated(value.nbytes, f"A serialized tensor of {len(text)} bytes")
        value = np.array(value)
    return value.item() if out_type is string and not value.ndim else value


@serialize_tensor_op.kernel("CPU")
def _serialize_tensor(tensor: np.ndarray, *, T: DType) -> bytes:
    from tfmini.graph.attr_values import content_proto, tensor_proto

    array = np.asarray(tensor, T.numpy)
    proto = tensor_proto(array) if T is string else content_proto(array)
    return proto.SerializeToString()  # type: ignore[no-any-return]


@decode_json_op.kernel("CPU")
def _decode_json(json_examples: Array) -> Any:
    from google.protobuf import json_format

    from tfmini.protos import Example

    out = np.empty(np.shape(json_examples) if not isinstance(json_examples, bytes) else (), object)
    found = []
    for text in _texts(json_examples):
        try:
            found.append(json_format.Parse(text, Example()).SerializeToString())
        except json_format.ParseError as error:
            raise errors.InvalidArgumentError.of(f"Error while parsing JSON: {error}") from error
    out.reshape(-1)[:] = found
    return out if out.ndim else found[0]


# ---- ``DecodeCSV`` and ``DecodeCompressed``: ``tf.decode_csv``, ``tf.decode_compressed`` ---------------------------

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
    if record and not (quotes and b'"' in record) and b"\n" not in record and b"\r" not in record:
        return record.split(delim)
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


def number_of(field: bytes, dtype: DType, column: int, record: int | str = "") -> Any:
    """The number in a field, of numpy's type; ``column`` and ``record`` tell in messages where it is.

    Raises:
      InvalidArgumentError: when it is not a number.
    """
    kind = dtype.numpy
    try:
        if kind.kind == "f":
            return kind.type(float(field))
        value, limit = int(field), 1 << 8 * kind.itemsize - 1
        if not -limit <= value < limit:
            raise ValueError(value)
        return kind.type(value)
    except ValueError:
        where = f"Field {column} in record {record}".rstrip()
        text = f"{where} is not a valid {cpp_name(dtype)}: {field.decode(errors='replace')}"
        raise errors.InvalidArgumentError.of(text) from None


@decode_csv_op.kernel_factory("CPU")
def _decode_csv(node: Node) -> Callable[..., Any]:
    delim, quotes, na = (node.attrs[name] for name in ("field_delim", "use_quote_delim", "na_value"))
    chosen, types = node.attrs["select_cols"], node.attrs["OUT_TYPE"]

    def row(record: bytes, number: int, defaults: list[Any]) -> list[Any]:
        fields = split_fields(record, delim, quotes)
        if chosen:
            fields = [fields[c] for c in chosen if c < len(fields)]
        if len(fields) != len(types):
            refuse(f"Expect {len(types)} fields but have {len(fields)} in record {number}")
        values: list[Any] = []
        for f, (field, dtype) in enumerate(zip(fields, types)):
            if not field or field == na:
                values.append(_default_of(defaults[f], dtype, f, number))
            else:
                values.append(field if dtype is string else number_of(field, dtype, f, number))
        return values

    def decode(records: Array, defaults: list[Any]) -> tuple[Any, ...]:
        if len(delim) != 1:
            refuse("field_delim should be only 1 char")
        for f, default in enumerate(defaults):
            if not isinstance(default, bytes) and default.size > 1:
                refuse(f"There should only be 1 default per field but field {f} has {default.size}")
        if isinstance(records, bytes):
            return tuple(row(records, 0, defaults))
        rows = [row(record, i, defaults) for i, record in enumerate(np.asarray(records, object).ravel().tolist())]
        found = zip(*rows) if rows else [()] * len(types)
        return tuple(_column(values, dtype, np.shape(records)) for values, dtype in zip(found, types))

    return decode


def _default_of(default: Any, dtype: DType, field: int, record: int) -> Any:
    """The default of a field that is missing; refuses a record without a field that has none."""
    if isinstance(default, bytes):
        return default
    values = np.ravel(np.asarray(default, dtype.numpy))
    if not values.size:
        refuse(f"Field {field} is required but missing in record {record}!")
    return values[0]


def _column(values: Sequence[Any], dtype: DType, shape: tuple[int, ...]) -> Any:
    out = np.empty(len(values), dtype.numpy)
    out[:] = values
    return out.reshape(shape)


@decode_compressed_op.kernel("CPU")
def _decode_compressed(data: np.ndarray, *, compression_type: bytes) -> Any:
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
    records: TensorLike, record_defaults: Sequence[TensorLike], field_delim: str = ",", use_quote_delim: bool = True,
    name: str | None = None, na_value: str = "", select_cols: Sequence[int] | None = None,
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
def decode_compressed(bytes: TensorLike, compression_type: str = "", name: str | None = None) -> Tensor:
    """Decompresses strings (``tf.decode_compressed``); ``compression_type`` is ``""``, ``"ZLIB"`` or ``"GZIP"``."""
    return decode_compressed_op(bytes, compression_type=compression_type, name=name)
