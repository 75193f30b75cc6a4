"""Unicode strings: decode to code points, encode, split, transcode."""

from __future__ import annotations

import codecs
import math
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, TensorLike
from tfmini.errors import InvalidArgumentError
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, name_scope, op, same_shape
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import stack
from tfmini.ops.array.kernel_arguments import as_ndarray, refuse
from tfmini.ops.array.slicing import getitem
from tfmini.ops.ragged import RaggedTensor, as_ragged
from tfmini.ops.string_ops import each
from tfmini.ops.string_pieces import split_op
from tfmini.shapes import RawShape, with_rank

_OPTIONS = (
    "errors: {'strict', 'replace', 'ignore'} = 'replace'; replacement_char: int = 65533;"
    " replace_control_characters: bool = false"
)
_OUTPUT = "output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}"
_SPLITS = "Tsplits: {int32, int64} = DT_INT64"
decode_op: OpHandle[Any] = op(
    "UnicodeDecode(input: string) -> row_splits: Tsplits, char_values: int32;"
    f" input_encoding: string; {_OPTIONS}; {_SPLITS}",
    differentiable=False,
)
decode_offsets_op: OpHandle[Any] = op(
    "UnicodeDecodeWithOffsets(input: string)"
    " -> row_splits: Tsplits, char_values: int32, char_to_byte_starts: int64;"
    f" input_encoding: string; {_OPTIONS}; {_SPLITS}",
    differentiable=False,
)
encode_op = op(
    "UnicodeEncode(input_values: int32, input_splits: Tsplits) -> output: string;"
    f" errors: {{'ignore', 'replace', 'strict'}} = 'replace'; {_OUTPUT}; replacement_char: int = 65533; {_SPLITS}",
    differentiable=False,
)
transcode_op = op(
    f"UnicodeTranscode(input: string) -> output: string; input_encoding: string; {_OUTPUT}; {_OPTIONS}",
    shape=same_shape,
    differentiable=False,
)


class _Rules(NamedTuple):
    """The treatment of malformed sequences and control characters."""

    errors: bytes
    replacement: int
    replace_control: bool


def _codec(encoding: bytes) -> str:
    try:
        found = codecs.lookup(encoding.decode())
        if not found._is_text_encoding:  # Python has codecs of bytes to bytes, too
            raise LookupError
        return found.name
    except LookupError:
        text = f"Could not create converter for input encoding: {encoding.decode(errors='replace')}"
        raise InvalidArgumentError.of(text) from None


# Without a byte order mark, these encodings are big-endian, as in ICU.
_MARKED = {
    "utf-16": ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")),
    "utf-32": ((codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be")),
}


def _byte_order(text: bytes, codec: str) -> tuple[str, int]:
    """The exact codec of a string, and the length of its byte order mark."""
    if codec not in _MARKED:
        return codec, 0
    for mark, exact in _MARKED[codec]:
        if text.startswith(mark):
            return exact, len(mark)
    return f"{codec}-be", 0


_malformed = threading.local()  # ``found``: begin and end of each malformed sequence of what is being decoded


def _note_malformed(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    end = max(error.end, error.start + 1)
    _malformed.found.append((error.start, end))
    return "", end


codecs.register_error("tfmini.note", _note_malformed)


def _pieces(text: bytes, codec: str, at: int) -> Iterator[tuple[str | None, int]]:
    """Runs of decoded text, and None for each malformed sequence, with the position of its first byte."""
    body, begin = text[at:], 0
    found = _malformed.found = []
    whole = body.decode(codec, "tfmini.note")  # once for all sequences: each may be a byte of a long text
    if not found:
        yield whole, at
        return
    for start, end in found:
        if start > begin:
            yield body[begin:start].decode(codec, "replace"), at + begin
        yield None, at + start
        begin = end
    if begin < len(body):
        yield body[begin:].decode(codec, "replace"), at + begin


def _characters(text: bytes, codec: str, rules: _Rules) -> Iterator[tuple[int, int]]:
    """The code points of a string and the position of the first byte of each."""
    codec, first = _byte_order(text, codec)
    for piece, at in _pieces(text, codec, first):
        if piece is None:
            if rules.errors == b"strict":
                refuse("Invalid formatting on input string")
            if rules.errors == b"replace":
                yield rules.replacement, at
            continue
        for character in piece:
            code = ord(character)
            control = rules.replace_control and code < 32
            if not control or rules.errors != b"ignore":
                yield (rules.replacement if control else code), at
            at += len(character.encode(codec))


# ---- decode ---------------------------------------------------------------------------------


@all_of(decode_op, decode_offsets_op).shape
def _decode_shape(node: Operation) -> list[RawShape]:
    count = _product(node.inputs[0].raw_shape)
    splits: RawShape = (None if count is None else count + 1,)
    return [splits, *[(None,)] * (len(node.handle.op_def.outputs) - 1)]


def _product(shape: RawShape) -> int | None:
    if shape is None or None in shape:
        return None
    return math.prod(d or 0 for d in shape)


def _decode(texts: Array, encoding: bytes, rules: _Rules, splits_type: dtypes.DType) -> tuple[Any, Any, Any]:
    if not 0 <= rules.replacement <= 0x10FFFF:
        refuse("replacement_char out of unicode codepoint range")
    codec = _codec(encoding)
    splits, codes, starts = [0], [], []
    for text in as_ndarray(texts).ravel():
        for code, at in _characters(text, codec, rules):
            codes.append(code)
            starts.append(at)
        splits.append(len(codes))
    return np.array(splits, splits_type.numpy), np.array(codes, np.int32), np.array(starts, np.int64)


@decode_op.kernel("CPU")
def _decode_kernel(
    texts: np.ndarray, *, input_encoding: bytes, errors: bytes, replacement_char: int, replace_control_characters: bool,
    Tsplits: dtypes.DType,
) -> tuple[Any, ...]:  # fmt: skip
    rules = _Rules(errors, replacement_char, replace_control_characters)
    return _decode(texts, input_encoding, rules, Tsplits)[:2]


@decode_offsets_op.kernel("CPU")
def _decode_offsets_kernel(
    texts: np.ndarray, *, input_encoding: bytes, errors: bytes, replacement_char: int, replace_control_characters: bool,
    Tsplits: dtypes.DType,
) -> tuple[Any, ...]:  # fmt: skip
    rules = _Rules(errors, replacement_char, replace_control_characters)
    return _decode(texts, input_encoding, rules, Tsplits)


# ---- encode ---------------------------------------------------------------------------------


@encode_op.shape
def _encode_shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[0].raw_shape, 1)
    splits = with_rank(node.inputs[1].raw_shape, 1)
    return [(None if splits[0] is None else splits[0] - 1,)]


def _is_character(code: int) -> bool:
    """Whether a code point is valid: not a surrogate, not a noncharacter, and in Unicode's range."""
    return 0 <= code <= 0x10FFFF and not 0xD800 <= code < 0xE000 and not 0xFDD0 <= code <= 0xFDEF \
        and code & 0xFFFE != 0xFFFE  # fmt: skip


def _valid(codes: list[int], errors: bytes, replacement: int) -> Iterator[int]:
    for code in codes:
        if _is_character(code):
            yield code
        elif errors == b"strict":
            refuse("Code point is out of range for Unicode, or a noncharacter.")
        elif errors == b"replace":
            yield replacement


@encode_op.kernel("CPU")
def _encode_kernel(
    values: np.ndarray, splits: np.ndarray, *, errors: bytes, output_encoding: bytes, replacement_char: int
) -> Any:
    if not splits.size or splits[0] != 0:
        refuse("First value in input_splits must be 0.")
    if (np.diff(splits) < 0).any() or splits[-1] > len(values):
        refuse("Values in input_splits must be equal or in ascending order and within the values.")
    codec = _codec(output_encoding)
    codes = values.tolist()
    out = np.empty(len(splits) - 1, object)
    for row, (low, high) in enumerate(zip(splits, splits[1:])):
        out[row] = "".join(map(chr, _valid(codes[low:high], errors, replacement_char))).encode(codec)
    return out


@transcode_op.kernel("CPU")
def _transcode_kernel(
    texts: np.ndarray, *, input_encoding: bytes, output_encoding: bytes, errors: bytes, replacement_char: int,
    replace_control_characters: bool,
) -> Any:  # fmt: skip
    rules = _Rules(errors, replacement_char, replace_control_characters)
    source, target = _codec(input_encoding), _codec(output_encoding)

    def transcode(text: bytes) -> bytes:
        return "".join(chr(code) for code, _ in _characters(text, source, rules)).encode(target, "surrogatepass")

    return each(transcode, texts)


# ---- public functions -----------------------------------------------------------------------


def _per_level(input: Any, name: str | None, default_name: str, of_vector: Any) -> tuple[Any, ...]:
    """Applies ``of_vector`` (string vector -> ragged rows) to the innermost axis of a tensor or ragged tensor."""
    with name_scope(name, default_name, [input] if isinstance(input, Tensor) else []):
        input = as_ragged(input)
        rank = input.shape.ndims
        if rank is None:
            raise ValueError("Rank of `input` must be statically known.")
        if isinstance(input, RaggedTensor):
            found = _per_level(input.flat_values, None, default_name, of_vector)
            return tuple(input.with_flat_values(f) for f in found)
        if rank > 1:
            return _per_level(RaggedTensor.from_tensor(input, ragged_rank=rank - 1), None, default_name, of_vector)
        found = of_vector(input if rank else stack([input]))
        return found if rank else tuple(f.values for f in found)


def _decoded(
    handle: OpHandle[Any], input: TensorLike, name: str | None, default_name: str, encoding: str, errors: str,
    replacement_char: int, replace_control_characters: bool,
) -> tuple[Any, ...]:  # fmt: skip
    def of_vector(texts: Tensor) -> tuple[Any, ...]:
        splits, *found = handle(
            texts, input_encoding=encoding, errors=errors, replacement_char=replacement_char,
            replace_control_characters=replace_control_characters,
        )  # fmt: skip
        return tuple(RaggedTensor.from_row_splits(parts, splits, validate=False) for parts in found)

    return _per_level(input, name, default_name, of_vector)


@export("tf.strings.unicode_decode_with_offsets")
def unicode_decode_with_offsets(
    input: TensorLike, input_encoding: str, errors: str = "replace", replacement_char: int = 0xFFFD,
    replace_control_characters: bool = False, name: str | None = None,
) -> Any:  # fmt: skip
    """The code points of each string and the positions of their first bytes, ragged along a new last axis."""
    options = (input_encoding, errors, replacement_char, replace_control_characters)
    return _decoded(decode_offsets_op, input, name, "UnicodeDecodeWithOffsets", *options)


@export("tf.strings.unicode_decode")
def unicode_decode(
    input: TensorLike, input_encoding: str, errors: str = "replace", replacement_char: int = 0xFFFD,
    replace_control_characters: bool = False, name: str | None = None,
) -> Any:  # fmt: skip
    """The code points of each string, ragged along a new last axis (``tf.strings.unicode_decode``)."""
    options = (input_encoding, errors, replacement_char, replace_control_characters)
    return _decoded(decode_op, input, name, "UnicodeDecode", *options)[0]


@export("tf.strings.unicode_split_with_offsets")
def unicode_split_with_offsets(
    input: TensorLike,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 0xFFFD,
    name: str | None = None,
) -> Any:
    """The characters of each string as strings, and the positions of their first bytes."""
    with name_scope(name, "UnicodeSplitWithOffsets", []):
        codes, starts = unicode_decode_with_offsets(input, input_encoding, errors, replacement_char)
        return _one_by_one(codes, input_encoding, errors, replacement_char), starts


@export("tf.strings.unicode_split")
def unicode_split(
    input: TensorLike,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 0xFFFD,
    name: str | None = None,
) -> Any:
    """The characters of each string as strings, ragged along a new last axis (``tf.strings.unicode_split``)."""
    with name_scope(name, "UnicodeSplit", []):
        codes = unicode_decode(input, input_encoding, errors, replacement_char)
        return _one_by_one(codes, input_encoding, errors, replacement_char)


def _one_by_one(codes: Any, encoding: str, errors: str, replacement_char: int) -> Any:
    flat = codes.flat_values if isinstance(codes, RaggedTensor) else codes
    texts = unicode_encode(array_shape.expand_dims(flat, -1), encoding, errors, replacement_char)
    return codes.with_flat_values(texts) if isinstance(codes, RaggedTensor) else texts


@export("tf.strings.unicode_encode")
def unicode_encode(
    input: TensorLike,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = 0xFFFD,
    name: str | None = None,
) -> Any:
    """Encodes the code points along the last axis as strings (``tf.strings.unicode_encode``).

    Raises:
      ValueError: for a scalar, or a tensor of unknown rank.
    """
    with name_scope(name, "UnicodeEncode", [input] if isinstance(input, Tensor) else []):
        codes = as_ragged(input)
        rank = codes.shape.ndims
        if rank is None:
            raise ValueError("Rank of input_tensor must be statically known.")
        if rank == 0:
            raise ValueError("input_tensor's rank must be at least 1.")

        def encode(values: Tensor, splits: Tensor) -> Tensor:
            options = {"errors": errors, "replacement_char": replacement_char}
            return encode_op(values, splits, output_encoding=output_encoding, **options)

        return _encode_level(codes, rank, encode)


def _encode_level(codes: Any, rank: int, encode: Any) -> Any:
    if isinstance(codes, RaggedTensor):
        values = codes.values
        if isinstance(values, RaggedTensor) or values.shape.ndims > 1:
            return codes.with_values(_encode_level(values, rank - 1, encode))
        return encode(values, codes.row_splits)
    if rank == 1:
        whole = RaggedTensor.from_row_splits(codes, stack([cast(0, dtypes.int64), _length(codes)]), validate=False)
        return array_shape.reshape(encode(whole.values, whole.row_splits), [])
    if rank == 2:
        rows = RaggedTensor.from_tensor(codes)
        return encode(rows.values, rows.row_splits)
    sizes = array_shape.shape(codes)
    flat = array_shape.reshape(codes, stack([cast(-1, dtypes.int32), getitem(sizes, -1)]))
    return array_shape.reshape(_encode_level(flat, 2, encode), getitem(sizes, slice(None, -1)))


def _length(vector: Tensor) -> Tensor:
    return array_shape.size(vector, out_type=dtypes.int64)


@export("tf.strings.unicode_transcode")
def unicode_transcode(
    input: TensorLike,
    input_encoding: str,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = 0xFFFD,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Tensor:
    """Converts strings to another encoding (``tf.strings.unicode_transcode``).

    Args:
      input: strings.
      input_encoding: any encoding that Python knows.
      output_encoding: UTF-8, UTF-16-BE or UTF-32-BE.
      errors: the treatment of malformed input: ``strict``, ``replace`` or ``ignore``.
      replacement_char: the code point for ``replace``.
      replace_control_characters: replace C0 control characters too.
      name: of the op.
    """
    return transcode_op(
        input, input_encoding=input_encoding, output_encoding=output_encoding, errors=errors,
        replacement_char=replacement_char, replace_control_characters=replace_control_characters, name=name,
    )  # fmt: skip


@export("tf.strings.bytes_split")
def string_bytes_split(input: TensorLike, name: str | None = None) -> Any:
    """The bytes of each string as strings, ragged along a new last axis (``tf.strings.bytes_split``)."""

    def of_vector(texts: Tensor) -> tuple[Any, ...]:
        indices, values, shape = split_op(texts, delimiter="", skip_empty=False)
        rows = getitem(indices, (slice(None), 0))
        return (RaggedTensor.from_value_rowids(values, rows, getitem(shape, 0), validate=False),)

    return _per_level(_strings(input), name, "StringByteSplit", of_vector)[0]


def _strings(input: TensorLike) -> Any:
    return input if hasattr(input, "row_splits") else convert_to_tensor(input, dtypes.string, name="input")
