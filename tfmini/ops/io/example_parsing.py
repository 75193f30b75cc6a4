"""Parses Example and SequenceExample messages into arrays, without a graph.

A *dense* feature has a known number of values, or a variable number of rows, which are padded. A
*sparse* feature has any number of values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from math import prod
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.dtypes import DType, cpp_name
from tfmini.ops.array.kernel_arguments import filled, refuse
from tfmini.shapes import RawShape, format_raw

# Per type: the field of a Feature message, and the name in messages about numbers of values.
_FIELDS = {dtypes.float32: "float_list", dtypes.int64: "int64_list", dtypes.string: "bytes_list"}
_WORDS = {dtypes.float32: "float", dtypes.int64: "int64", dtypes.string: "bytes"}
_TYPES = {field: dtype for dtype, field in _FIELDS.items()}
_UNKNOWN = "<unknown>"

Where = Callable[[str], str]  # Key -> the beginning of an error message about it.


@dataclass(frozen=True)
class DenseFeature:
    """A dense feature: its key, type, shape (first size None: variable) and default (empty: required)."""

    key: str
    dtype: DType
    shape: RawShape
    default: Any

    @cached_property
    def is_variable(self) -> bool:
        """Whether the number of rows may vary."""
        return bool(self.shape) and self.shape[0] is None  # type: ignore[index]

    @cached_property
    def tail(self) -> tuple[int, ...]:
        """The shape of what is parsed, without the number of rows if that varies."""
        return tuple(d or 0 for d in (self.shape or ())[1 if self.is_variable else 0 :])

    @cached_property
    def stride(self) -> int:
        """The number of values, of a row if their number varies."""
        return prod(d for d in (self.shape or ())[1 if self.is_variable else 0 :] if d is not None)


@dataclass(frozen=True)
class Sparse:
    """A sparse feature: its key and type."""

    key: str
    dtype: DType


def parse_message(kind: str, serialized: bytes) -> Any:
    """The message in ``serialized``.

    Raises:
      InvalidArgumentError: when it is not a message of that kind.
    """
    parse, decode_error = _parser(kind)
    try:
        return parse(serialized)
    except decode_error:
        text = serialized.decode("latin-1").encode("unicode_escape").decode()
        raise errors.InvalidArgumentError.of(f"Could not parse example input, value: '{text}'") from None


@cache
def _parser(kind: str) -> tuple[Callable[[bytes], Any], type[Exception]]:
    """The function that parses a kind of messages, and its error."""
    from google.protobuf.message import DecodeError

    from tfmini import protos  # Imported here because protobuf is slow to import.

    return getattr(protos, kind).FromString, DecodeError


def values_of(feature: Any, dtype: DType, where: Callable[[], str], dense: bool) -> list[Any] | None:
    """The values of a Feature message; None when it has no values of any type.

    Args:
      where: makes the beginning of error messages.
      dense: whether the feature is dense with a known size, which has an error message of its own.

    Raises:
      InvalidArgumentError: for values of another type.
    """
    kind = feature.WhichOneof("kind")
    if kind is None:
        return None
    if kind != _FIELDS[dtype]:
        got, wanted = cpp_name(_TYPES[kind]), cpp_name(dtype)
        text = f"Data type: {got} but expected type: {wanted}" if dense else (
            f"Expected type: {wanted}, Actual type: {got}"
        )  # fmt: skip
        refuse(f"{where()}.  Data types don't match. {text}")
    return getattr(feature, kind).value  # type: ignore[no-any-return]


def as_array(values: Sequence[Any], dtype: DType) -> Any:
    """Values as a vector."""
    if dtype is dtypes.string:
        out = np.empty(len(values), object)
        out[:] = list(values)
        return out
    return np.array(values[:], dtype.numpy)  # of a list: numpy asks a field of a message for each value thrice


def _check_count(values: Sequence[Any], spec: DenseFeature, where: Where) -> None:
    count, stride = len(values), spec.stride
    if count == stride or spec.is_variable and count % max(stride, 1) == 0:
        return
    problem = "!= expected.  Values size: {} but output shape:"
    if spec.is_variable:
        problem = "is not a multiple of stride length. Saw {} values but output shape is:"
    number = f"Number of {_WORDS[spec.dtype]} values {problem.format(count)}"
    refuse(f"{where(spec.key)}.  {number} {format_raw(spec.shape or ())}")


def dense_rows(
    maps: Sequence[Any], spec: DenseFeature, wheres: Sequence[Where], required: Callable[[int], str]
) -> list[Any]:
    """The arrays of a dense feature, one per map of features.

    Args:
      maps: per example, key -> Feature.
      wheres: per example, the beginning of error messages.
      required: makes the error message for the example of that number, of a missing feature without default.

    Raises:
      InvalidArgumentError: for missing features and wrong types or numbers of values.
    """
    rows = []
    for number, (features, where) in enumerate(zip(maps, wheres)):
        values = None
        if spec.key in features:
            values = values_of(features[spec.key], spec.dtype, partial(where, spec.key), not spec.is_variable)
        if values is None and not spec.is_variable:
            if not np.size(spec.default):
                refuse(required(number))
            rows.append(np.asarray(spec.default, spec.dtype.numpy).reshape(spec.tail))
            continue
        values = values or []
        _check_count(values, spec, where)
        array = as_array(values, spec.dtype)
        rows.append(array.reshape(-1, *spec.tail) if spec.is_variable else array.reshape(spec.tail))
    return rows


def stack_rows(rows: list[Any], spec: DenseFeature) -> Any:
    """Rows of a dense feature as one array; variable rows are padded with the default."""
    if not spec.is_variable:
        shape = tuple(d or 0 for d in spec.shape or ())
        out = np.empty((len(rows), *shape), spec.dtype.numpy)
        for i, row in enumerate(rows):
            out[i] = row[()]  # a string itself, not an array of no dimension that holds it
        return out
    longest = max(map(len, rows), default=0)
    tail = tuple(d or 0 for d in (spec.shape or ())[1:])
    fill = np.asarray(spec.default, spec.dtype.numpy).reshape(-1)
    padding = fill[0] if fill.size else (b"" if spec.dtype is dtypes.string else 0)
    out = filled((len(rows), longest, *tail), padding, np.dtype(spec.dtype.numpy))
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def sparse_rows(maps: Sequence[Any], spec: Sparse, wheres: Sequence[Where]) -> list[Any]:
    """The values of a sparse feature, one vector per map of features."""
    rows = []
    for features, where in zip(maps, wheres):
        found = None
        if spec.key in features:
            found = values_of(features[spec.key], spec.dtype, partial(where, spec.key), False)
        rows.append(as_array(found or [], spec.dtype))
    return rows


def sparse_batch(rows: list[Any], dtype: DType) -> tuple[Any, Any, Any]:
    """Vectors of different lengths as one sparse matrix: indices, values, shape."""
    lengths = np.array([len(row) for row in rows], np.int64)
    indices = np.empty((int(lengths.sum()), 2), np.int64)
    indices[:, 0] = np.repeat(np.arange(len(rows)), lengths)
    indices[:, 1] = np.concatenate([np.arange(n) for n in lengths]) if len(rows) else ()
    values = np.concatenate(rows) if rows else np.empty(0, dtype.numpy)
    return indices, values, np.array([len(rows), lengths.max(initial=0)], np.int64)


def parse_examples(
    serialized: Sequence[bytes], names: Sequence[bytes], sparse: Sequence[Sparse], dense: Sequence[DenseFeature]
) -> tuple[list[tuple[Any, Any, Any]], list[Any]]:
    """Parses a batch of Example messages.

    Returns:
      (indices, values, shape) for each sparse feature, and an array for each dense feature.
    """
    maps = [parse_message("Example", text).features.feature for text in serialized]
    labels = [name.decode(errors="replace") for name in names] or [_UNKNOWN] * len(maps)
    wheres = [_where_in_batch(label, i) for i, label in enumerate(labels)]
    sparse_found = [sparse_batch(sparse_rows(maps, spec, wheres), spec.dtype) for spec in sparse]
    dense_found = []
    for spec in dense:
        rows = dense_rows(maps, spec, wheres, partial(_required, spec, labels))
        dense_found.append(stack_rows(rows, spec))
    return sparse_found, dense_found


def _required(spec: DenseFeature, labels: Sequence[str], number: int) -> str:
    """The error message for an example that lacks a feature; ``labels`` are those of a batch."""
    name = f"Name: {labels[number]}, " if labels else ""
    return f"{name}Feature: {spec.key} (data type: {cpp_name(spec.dtype)}) is required but could not be found."


def _where_in_batch(label: str, index: int) -> Where:
    return lambda key: f"Name: {label}, Key: {key}, Index: {index}"


def parse_one_example(
    serialized: bytes, sparse: Sequence[Sparse], dense: Sequence[DenseFeature]
) -> tuple[list[tuple[Any, Any, Any]], list[Any]]:
    """Parses one Example message, like `parse_examples` but without the batch dimension."""
    maps = [parse_message("Example", serialized).features.feature]
    wheres: list[Where] = [lambda key: f"Key: {key}"]
    sparse_found = []
    for spec in sparse:
        (values,) = sparse_rows(maps, spec, wheres)
        count = len(values)
        sparse_found.append((np.arange(count, dtype=np.int64)[:, None], values, np.array([count], np.int64)))
    return sparse_found, [dense_rows(maps, spec, wheres, partial(_required, spec, ()))[0][()] for spec in dense]


# ---- sequences ------------------------------------------------------------------------------


def feature_list_rows(lists: Any, spec: DenseFeature, label: str, may_be_missing: bool) -> Any:
    """The array [steps, …] of a dense feature list.

    Raises:
      InvalidArgumentError: for missing lists and wrong types or numbers of values.
    """
    shape = tuple(d or 0 for d in spec.shape or ())
    if spec.key not in lists:
        if not may_be_missing:
            refuse(
                f"Name: {label}, Feature list '{spec.key}' is required but could not be found.  Did you mean to include"
                " it in feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?"
            )
        return np.empty((0, *shape), spec.dtype.numpy)
    features = lists[spec.key].feature
    out = np.empty((len(features), *shape), spec.dtype.numpy)
    for t, feature in enumerate(features):
        values = _step_values(feature, spec, label, t)
        if len(values) != prod(shape):
            refuse(
                f"Name: {label}, Key: {spec.key}, Index: {t}.  Number of {_WORDS[spec.dtype]} values != expected."
                f"  values size: {len(values)} but output shape: {format_raw(shape)}"
            )
        out[t] = as_array(values, spec.dtype).reshape(shape)[()]
    return out


def feature_list_values(lists: Any, spec: Sparse, label: str) -> list[Any]:
    """The vectors of a sparse feature list, one per step."""
    features = lists[spec.key].feature if spec.key in lists else ()
    return [as_array(_step_values(f, spec, label, t), spec.dtype) for t, f in enumerate(features)]


def _step_values(feature: Any, spec: DenseFeature | Sparse, label: str, step: int) -> Sequence[Any]:
    kind = feature.WhichOneof("kind")
    if kind is not None and kind != _FIELDS[spec.dtype]:
        text = " ".join(str(feature).split())
        refuse(
            f"Name: {label}, Feature list: {spec.key}, Index: {step}.  Data types don't match. Expected type:"
            f" {cpp_name(spec.dtype)}  Feature is: {text}"
        )
    return [] if kind is None else getattr(feature, kind).value
