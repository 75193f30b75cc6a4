"""Splits, hashes and joins of strings: split, hash buckets, fingerprints, n-grams, joins by segment."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.export import export
from tfmini.graph.families import (
    Operation,
    OpHandle,
    Tensor,
    all_of,
    convert_to_tensor,
    name_scope,
    op,
    same_shape,
    sized,
)
from tfmini.memory import check_room
from tfmini.numerics.texts import fingerprint64, hash64, siphash
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.kernel_arguments import as_ndarray, refuse
from tfmini.ops.array.slicing import getitem
from tfmini.ops.composites import SparseTensor
from tfmini.ops.ragged import RaggedTensor, as_ragged
from tfmini.ops.string_ops import each
from tfmini.shapes import RawShape, at_least_rank, compatible_raw, format_raw

split_op: OpHandle[Any] = op(
    "StringSplit(input: string, delimiter: string) -> indices: int64, values: string, shape: int64;"
    " skip_empty: bool = true"
)
split_v2_op: OpHandle[Any] = op(
    "StringSplitV2(input: string, sep: string) -> indices: int64, values: string, shape: int64; maxsplit: int = -1"
)
all_of(split_op, split_v2_op).shape(sized("_, () -> _ 2, _, 2"))
bucket_op = op("StringToHashBucket(string_tensor: string) -> output: int64; num_buckets: int >= 1", shape=same_shape)
bucket_op.kernel("CPU")(lambda value, *, num_buckets: each(lambda s: hash64(s) % num_buckets, value, np.int64))
bucket_fast_op = op("StringToHashBucketFast(input: string) -> output: int64; num_buckets: int >= 1", shape=same_shape)
bucket_fast_op.kernel("CPU")(
    lambda value, *, num_buckets: each(lambda s: fingerprint64(s) % num_buckets, value, np.int64)
)
bucket_strong_op = op(
    "StringToHashBucketStrong(input: string) -> output: int64; num_buckets: int >= 1; key: list(int)", shape=same_shape
)
ngrams_op: OpHandle[Any] = op(
    "StringNGrams(data: string, data_splits: Tsplits) -> ngrams: string, ngrams_splits: Tsplits; separator: string;"
    " ngram_widths: list(int) >= 0; left_pad: string; right_pad: string; pad_width: int;"
    " preserve_short_sequences: bool; Tsplits: {int32, int64} = DT_INT64",
    shape=sized("_, n -> _, n"),
)
fingerprint_op = op("Fingerprint(data: T, method: string) -> fingerprint: uint8; T: type")
segment_join_op = op(
    "UnsortedSegmentJoin(inputs: string, segment_ids: Tindices, num_segments: Tnumsegments) -> output: string;"
    " separator: string = ''; Tindices: {int32, int64}; Tnumsegments: {int32, int64} = DT_INT32"
)
for _handle in (split_op, split_v2_op, bucket_op, bucket_fast_op, bucket_strong_op, fingerprint_op, ngrams_op,
                segment_join_op):  # fmt: skip
    _handle.not_differentiable()


# ---- split ----------------------------------------------------------------------------------


def _as_sparse(rows: list[list[bytes]]) -> tuple[Any, Any, Any]:
    count = sum(map(len, rows))
    indices, values = np.empty((count, 2), np.int64), np.empty(count, object)
    at = 0
    for number, row in enumerate(rows):
        stop = at + len(row)
        indices[at:stop, 0], indices[at:stop, 1] = number, np.arange(len(row))
        values[at:stop] = row
        at = stop
    return indices, values, np.array([len(rows), max(map(len, rows), default=0)], np.int64)


def _pieces(text: bytes, delimiters: bytes, skip_empty: bool) -> list[bytes]:
    """The pieces between the bytes of ``delimiters``; without delimiters, the single bytes."""
    if not delimiters:
        return [text[i : i + 1] for i in range(len(text))]
    if not text:
        return []
    if len(delimiters) == 1:
        found = text.split(delimiters)
    else:
        found = re.split(b"[" + re.escape(delimiters) + b"]", text)
    return [piece for piece in found if piece] if skip_empty else found


@split_op.kernel("CPU")
def _split_kernel(texts: np.ndarray, delimiter: Array, *, skip_empty: bool) -> tuple[Any, Any, Any]:
    if np.ndim(texts) != 1:
        refuse(f"input must be a vector, got shape: {list(np.shape(texts))}")
    if np.ndim(delimiter):
        refuse(f"delimiter must be a scalar, got shape: {list(np.shape(delimiter))}")
    delimiters: Any = as_ndarray(delimiter)[()]
    return _as_sparse([_pieces(text, delimiters, skip_empty) for text in texts])


@split_v2_op.kernel("CPU")
def _split_v2_kernel(texts: np.ndarray, sep: Array, *, maxsplit: int) -> tuple[Any, Any, Any]:
    if np.ndim(texts) != 1:
        refuse(f"input must be a vector, got shape: {list(np.shape(texts))}")
    if np.ndim(sep):
        refuse(f"sep must be a scalar, got shape: {list(np.shape(sep))}")
    separator = as_ndarray(sep)[()] or None
    if separator is None and maxsplit >= 0:
        return _as_sparse([_words(text, maxsplit) for text in texts])
    return _as_sparse([text.split(separator, maxsplit) for text in texts])


def _words(text: bytes, most: int) -> list[bytes]:
    """The first words and the rest, which TensorFlow 1.15 gives also if it is empty."""
    if most == 0:
        return [text]
    words = text.split(None, most)
    return [*words, b""] if len(words) == most else words


# ---- hashes ---------------------------------------------------------------------------------


@bucket_strong_op.kernel("CPU")
def _bucket_strong_kernel(value: np.ndarray, *, num_buckets: int, key: list[int]) -> Any:
    if len(key) != 2:
        refuse(f"Key must have 2 elements, got {len(key)}")
    return each(lambda s: siphash(s, (key[0], key[1])) % num_buckets, value, np.int64)


@fingerprint_op.shape
def _fingerprint_shape(node: Operation) -> list[RawShape]:
    shape = at_least_rank(node.inputs[0].raw_shape, 1)
    return [(None if shape is None else shape[0], 8)]


@fingerprint_op.kernel("CPU")
def _fingerprint_kernel(data: np.ndarray, method: Array) -> Any:
    name: Any = as_ndarray(method)[()]
    if np.ndim(method):
        refuse(f"`method` should be a scalar string: {list(np.shape(method))}")
    if name != b"farmhash64":
        refuse(f"Unsupported data fingerprinting method: {name.decode(errors='replace')}")
    if not np.ndim(data):
        refuse("input 'data' should not be scalar")
    rows = data.reshape(data.shape[0], -1)
    if data.dtype == object:
        # The fingerprint of several strings is that of their fingerprints.
        marks = [[fingerprint64(s) for s in row] for row in rows]
        found = [m[0] if rows.shape[1] == 1 else fingerprint64(np.array(m, "<u8").tobytes()) for m in marks]
    else:
        found = [fingerprint64(np.ascontiguousarray(row).tobytes()) for row in rows]
    return np.array(found, "<u8").view(np.uint8).reshape(-1, 8)


# ---- n-grams --------------------------------------------------------------------------------


@ngrams_op.kernel("CPU")
def _ngrams_kernel(
    data: np.ndarray,
    splits: np.ndarray,
    *,
    separator: bytes,
    ngram_widths: list[int],
    left_pad: bytes,
    right_pad: bytes,
    pad_width: int,
    preserve_short_sequences: bool,
) -> tuple[Any, Any]:
    if pad_width < -1:
        refuse(f"Pad width should be >= 0, got {pad_width}")
    if pad_width * 2 + len(data) > np.iinfo(np.int32).max:
        refuse(f"Pad width could lead to integer overflow, got pad_width = {pad_width}")
    if not ngram_widths:
        refuse("ngram_widths must not be empty")
    if min(ngram_widths) <= 0:
        refuse(f"ngram_widths must contain positive values, got {ngram_widths}")
    if splits.size and splits[0] != 0:
        refuse(f"First split value must be 0, got {splits[0]}")
    if splits.size and ((np.diff(splits) < 0).any() or splits[-1] != len(data)):
        refuse(f"Invalid split value, the last must be {len(data)} and none below its predecessor")
    found: list[bytes] = []
    ends = [0]
    for low, high in zip(splits, splits[1:]):
        row = _ngrams_of(data[low:high].tolist(), ngram_widths, separator, left_pad, right_pad, pad_width)
        if not row and preserve_short_sequences and high > low:
            whole = int(high - low) + 2 * max(pad_width, 0)
            row = _ngrams_of(data[low:high].tolist(), [whole], separator, left_pad, right_pad, pad_width)
        found += row
        ends.append(len(found))
    texts = np.empty(len(found), object)
    texts[:] = found
    return texts, np.array(ends if splits.size else [], splits.dtype)


def _ngrams_of(words: list[bytes], widths: list[int], sep: bytes, left: bytes, right: bytes, pad: int) -> list[bytes]:
    found = []
    for width in widths:
        count = width - 1 if pad < 0 else min(pad, width - 1)
        padded = [left] * count + words + [right] * count
        found += [sep.join(padded[i : i + width]) for i in range(len(padded) - width + 1)]
    return found


@export("tf.strings.ngrams")
def ngrams(
    data: Any, ngram_width: int | Sequence[int], separator: str = " ", pad_values: Any = None,
    padding_width: int | None = None, preserve_short_sequences: bool = False, name: str | None = None,
) -> Any:  # fmt: skip
    """Neighbouring strings of the inner axis, joined (``tf.strings.ngrams``).

    Args:
      data: strings: a tensor or a `RaggedTensor`.
      ngram_width: how many are joined; several widths follow each other.
      separator: stands between them.
      pad_values: stands before and after each sequence: a string, or a pair of them.
      padding_width: how often, ``ngram_width - 1`` at most, which is also the default.
      preserve_short_sequences: join all of a sequence that is too short.

    Returns:
      Strings of the shape of ``data`` but for the inner axis, ragged if ``data`` is.

    Raises:
      TypeError: ``pad_values`` are no strings.
      ValueError: for a width below 1, a width of padding without its value, or data of no known rank or of rank 0.
    """
    with name_scope(name, "StringNGrams", [data]):
        pads = _pads(pad_values, padding_width)
        width = 0 if pad_values is None else -1 if padding_width is None else padding_width
        widths: list[int] = [ngram_width] if isinstance(ngram_width, int) else list(ngram_width)
        if min(widths, default=1) < 1:
            raise ValueError(f"All ngram_widths must be greater than 0. Got {ngram_width}")

        def of_rows(values: Any) -> Any:
            """The n-grams of the innermost rows."""
            if isinstance(values.values, RaggedTensor):
                return values.with_values(of_rows(values.values))
            found, splits = ngrams_op(
                values.values, values.row_splits, separator=separator, ngram_widths=widths, left_pad=pads[0],
                right_pad=pads[1], pad_width=width, preserve_short_sequences=preserve_short_sequences,
            )  # fmt: skip
            return RaggedTensor.from_row_splits(found, splits, validate=False)

        data = as_ragged(data)
        return of_rows(data) if isinstance(data, RaggedTensor) else _of_dense(data, of_rows)


def _of_dense(data: Tensor, of_rows: Callable[[RaggedTensor], RaggedTensor]) -> Tensor:
    """What a function of ragged tensors makes of the rows of a tensor, which are of one length then, too."""
    rank = data.shape.ndims
    if not rank:
        raise ValueError("Rank of data must be known." if rank is None else "Data must have rank>0")
    outer = getitem(array_shape.shape(data), slice(None, -1))
    rows = (
        RaggedTensor.from_row_starts(data, [0], validate=False)
        if rank == 1
        else RaggedTensor.from_tensor(data, ragged_rank=rank - 1)
    )
    return array_shape.reshape(of_rows(rows).flat_values, concat([outer, [-1]], 0))


def _pads(values: Any, width: int | None) -> tuple[Any, Any]:
    """What stands before and after a sequence."""
    pair = values if isinstance(values, (list, tuple)) else (values, values)
    if values is not None and not all(isinstance(value, (str, bytes)) for value in pair[:2]):
        raise TypeError("pad_values must be a string, tuple of strings, or None.")
    if width is not None and width < 1:
        raise ValueError("padding_width must be greater than 0.")
    if width is not None and values is None:
        raise ValueError("pad_values must be provided if padding_width is set.")
    return ("", "") if values is None else (pair[0], pair[1])


# ---- joins by segment -----------------------------------------------------------------------


@segment_join_op.shape
def _segment_join_shape(node: Operation) -> list[RawShape]:
    inputs, ids = node.inputs[0].raw_shape, node.inputs[1].raw_shape
    count = constant_value(node.inputs[2])
    if inputs is None or ids is None:
        return [None]
    if len(ids) > len(inputs) or not compatible_raw(ids, inputs[: len(ids)]):
        raise ValueError(f"segment_ids {format_raw(ids)} must be a prefix of the inputs' shape {format_raw(inputs)}")
    return [(None if count is None else int(count), *inputs[len(ids) :])]


@segment_join_op.kernel("CPU")
def _segment_join_kernel(inputs: Array, ids: np.ndarray, num_segments: Array, *, separator: bytes) -> Any:
    inputs, ids = as_ndarray(inputs), as_ndarray(ids)
    if np.ndim(num_segments):
        refuse("Number of segments should be a scalar.")
    count = int(num_segments)
    if count <= 0:
        refuse("Number of segments must be positive")
    if ids.shape != inputs.shape[: ids.ndim]:
        refuse("segment_ids must have the same shape as a prefix of inputs")
    rest = inputs.shape[ids.ndim :]
    rows, flat = inputs.reshape(ids.size, math.prod(rest)), ids.ravel()
    bad = np.flatnonzero((flat >= count) | (flat < 0))
    if bad.size:
        refuse(f"segment_ids must be < num_segments, found {flat[bad[0]]} with {count} segments")
    groups: dict[int, list[int]] = {}
    for position, segment in enumerate(flat.tolist()):
        groups.setdefault(segment, []).append(position)
    check_room((count, rows.shape[1]), 8)
    out = np.full((count, rows.shape[1]), b"", object)
    for segment, members in groups.items():
        out[segment] = [separator.join(column) for column in rows[members].T]
    return out.reshape(count, *rest)


# ---- public functions -----------------------------------------------------------------------


@export("tf.string_split")
def string_split(
    source: TensorLike, sep: TensorLike | None = None, skip_empty: bool = True, delimiter: TensorLike | None = None,
    result_type: str = "SparseTensor", name: str | None = None,
) -> Any:  # fmt: skip
    """Splits each string of a vector at any byte of ``delimiter``, blank by default (``tf.string_split``).

    Returns:
      A `SparseTensor` [rows, most pieces], or a ragged tensor for ``result_type="RaggedTensor"``.
    """
    if delimiter is not None and sep is not None:
        raise ValueError("Cannot specify both 'sep' and 'delimiter'")
    delimiter = sep if delimiter is None else delimiter
    delimiter = convert_to_tensor(" " if delimiter is None else delimiter, dtypes.string)
    source = convert_to_tensor(source, dtypes.string)
    return _result(split_op(source, delimiter=delimiter, skip_empty=skip_empty, name=name), result_type)


def _result(found: Any, result_type: str) -> Any:
    indices, values, shape = found
    if result_type == "SparseTensor":
        return SparseTensor(indices, values, _pair(shape))
    if result_type == "RaggedTensor":
        rows = getitem(indices, (slice(None), 0))
        return RaggedTensor.from_value_rowids(values, rows, nrows=getitem(shape, 0), validate=False)
    raise ValueError("result_type must be 'RaggedTensor' or 'SparseTensor'.")


def _pair(shape: Tensor) -> Tensor:
    shape.set_shape([2])
    return shape


@export("tf.strings.split")
def string_split_v2(
    input: TensorLike | None = None,
    sep: TensorLike | None = None,
    maxsplit: int = -1,
    result_type: str = "SparseTensor",
    source: TensorLike | None = None,
    name: str | None = None,
) -> Any:
    """Splits at a whole separator, or at runs of white space, as Python's ``split`` (``tf.strings.split``)."""
    if input is not None and source is not None:
        raise ValueError("Cannot specify both 'input' and 'source'")
    text = source if input is None else input
    with name_scope(name, "StringSplit", [text]):
        text = convert_to_tensor(text, dtypes.string, name="input")
        if text.raw_shape == ():
            text = stack([text])
        sep = convert_to_tensor("" if sep is None else sep, dtypes.string, name="sep")
        return _result(split_v2_op(text, sep=sep, maxsplit=maxsplit), result_type)


@export("tf.string_to_hash_bucket", "tf.strings.to_hash_bucket")
def string_to_hash_bucket(
    string_tensor: TensorLike | None = None, num_buckets: int | None = None, name: str | None = None,
    input: TensorLike | None = None,
) -> Tensor:  # fmt: skip
    """The hash of each string modulo the number of buckets, int64 (``tf.string_to_hash_bucket``)."""
    text = input if string_tensor is None else string_tensor
    return bucket_op(text, num_buckets=num_buckets, name=name)


@export("tf.string_to_hash_bucket_fast", "tf.strings.to_hash_bucket_fast")
def string_to_hash_bucket_fast(input: TensorLike, num_buckets: int, name: str | None = None) -> Tensor:
    """FarmHash's fingerprint of each string modulo the number of buckets (``tf.string_to_hash_bucket_fast``)."""
    return bucket_fast_op(input, num_buckets=num_buckets, name=name)


@export("tf.string_to_hash_bucket_strong", "tf.strings.to_hash_bucket_strong")
def string_to_hash_bucket_strong(input: TensorLike, num_buckets: int, key: object, name: str | None = None) -> Tensor:
    """The keyed hash of each string modulo the number of buckets (``tf.string_to_hash_bucket_strong``).

    Args:
      input: strings.
      num_buckets: at least 1.
      key: two 64-bit numbers.
      name: of the op.
    """
    return bucket_strong_op(input, num_buckets=num_buckets, key=key, name=name)


@export("tf.fingerprint")
def fingerprint(data: TensorLike, method: str | type = "farmhash64", name: str | None = None) -> Tensor:
    """The 8 bytes of a 64-bit fingerprint of each row, uint8 [rows, 8] (``tf.fingerprint``)."""
    return fingerprint_op(data, method, name=name)


@export("tf.strings.unsorted_segment_join")
def unsorted_segment_join(
    inputs: TensorLike, segment_ids: TensorLike, num_segments: TensorLike, separator: str = "", name: str | None = None
) -> Tensor:
    """The strings of each segment joined in order (``tf.strings.unsorted_segment_join``)."""
    return segment_join_op(inputs, segment_ids, num_segments, separator=separator, name=name)
