"""Element-wise string ops: case, strip, join, substrings, regular expressions, base64."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.errors import InvalidArgumentError
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, op, same_shape
from tfmini.machine_memory import check_room
from tfmini.numerics import regular_expressions
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.shapes import RawShape, broadcast_raw, format_raw, merge_raw

_UNIT = "unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'"
lower_op = op("StringLower(input: string) -> output: string; encoding: string = ''", shape=same_shape)
upper_op = op("StringUpper(input: string) -> output: string; encoding: string = ''", shape=same_shape)
strip_op = op("StringStrip(input: string) -> output: string", shape=same_shape)
strip_op.kernel("CPU")(lambda value: each(bytes.strip, value))
length_op = op(f"StringLength(input: string) -> output: int32; {_UNIT}", shape=same_shape)
join_op = op("StringJoin(inputs: N * string) -> output: string; N: int >= 1; separator: string = ''")
substr_op = op(f"Substr(input: string, pos: T, len: T) -> output: string; T: {{int32, int64}}; {_UNIT}")
replace_op = op(
    "RegexReplace(input: string, pattern: string, rewrite: string) -> output: string; replace_global: bool = true",
    shape=same_shape,
)
replace_op.kernel("CPU")(
    lambda value, pattern, rewrite, *, replace_global: _replace(value, pattern, rewrite, replace_global)
)
static_replace_op = op(
    """StaticRegexReplace(input: string) -> output: string
    pattern: string
    rewrite: string
    replace_global: bool = true""",
    shape=same_shape,
)
static_replace_op.kernel("CPU")(
    lambda value, *, pattern, rewrite, replace_global: _replace(value, pattern, rewrite, replace_global)
)
full_match_op = op("RegexFullMatch(input: string, pattern: string) -> output: bool", shape=same_shape)
static_full_match_op = op("StaticRegexFullMatch(input: string) -> output: bool; pattern: string", shape=same_shape)
static_full_match_op.kernel("CPU")(lambda value, *, pattern: _full_match(value, pattern))
encode_op = op("EncodeBase64(input: string) -> output: string; pad: bool = false", shape=same_shape)
decode_op = op("DecodeBase64(input: string) -> output: string", shape=same_shape)
decode_op.kernel("CPU")(lambda value: each(_decode_one, value))
_ALL = (lower_op, upper_op, strip_op, length_op, join_op, substr_op, replace_op, static_replace_op, full_match_op,
        static_full_match_op, encode_op, decode_op)  # fmt: skip
for _handle in _ALL:
    _handle.not_differentiable()


def each(function: Callable[[bytes], Any], value: Any, dtype: Any = object) -> Any:
    """Applies ``function`` to each string; the result has the shape of ``value``."""
    if isinstance(value, bytes):
        found = function(value)
        return found if dtype is object else np.dtype(dtype).type(found)
    out = np.empty(value.size, dtype)
    for i, item in enumerate(value.ravel()):
        out[i] = function(item)
    return out.reshape(value.shape)


def _attach_case(handle: OpHandle, method: str) -> None:
    def kernel(value: Any, *, encoding: bytes) -> Any:
        if encoding == b"utf-8":
            return each(lambda s: getattr(s.decode(errors="replace"), method)().encode(), value)
        return each(getattr(bytes, method), value)

    handle.kernel("CPU")(kernel)


_attach_case(lower_op, "lower")
_attach_case(upper_op, "upper")


# TensorFlow's characters, whether or not the text is valid UTF-8: a byte and the continuation bytes behind it. Those
# before the first character are no character when characters are counted.
_CHARACTER = re.compile(rb".[\x80-\xbf]*", re.DOTALL)
_TRAILING = tuple(bytes([code]) for code in range(0x80, 0xC0))


@length_op.kernel("CPU")
def _length(value: Any, *, unit: bytes) -> Any:
    if unit == b"UTF8_CHAR":
        return each(lambda s: len(_CHARACTER.findall(s)) - s.startswith(_TRAILING), value, np.int32)
    return each(len, value, np.int32)


# ---- join and substr ------------------------------------------------------------------------


@join_op.shape
def _join_shape(node: Operation) -> list[RawShape]:
    shape: RawShape = ()
    for tensor in node.inputs:
        if tensor.raw_shape is None:
            return [None]
        if tensor.raw_shape != ():
            shape = merge_raw(shape, tensor.raw_shape) if shape != () else tensor.raw_shape
    return [shape]


@join_op.kernel("CPU")
def _join(values: list[Any], *, separator: bytes) -> Any:
    shapes = {np.shape(v) for v in values} - {()}
    if len(shapes) > 1:
        refuse(f"Input shapes do not match: {' vs. '.join(map(str, sorted(shapes)))}")
    if not shapes:
        texts = list(map(_scalar, values))
        check_room((sum(map(len, texts)) + len(separator) * (len(texts) - 1),), 1)
        return separator.join(texts)
    shape = shapes.pop()
    size = int(np.prod(shape))
    repeated = len(separator) * (len(values) - 1) + sum(len(_scalar(v)) for v in values if not np.ndim(v))
    check_room((size,), repeated)
    columns = [v.ravel() if np.ndim(v) else [_scalar(v)] * size for v in values]
    out = np.empty(size, object)
    out[:] = [separator.join(row) for row in zip(*columns)]
    return out.reshape(shape)


@substr_op.shape
def _substr_shape(node: Operation) -> list[RawShape]:
    text, pos, length = (t.raw_shape for t in node.inputs)
    if pos is not None and length is not None and pos != length and None not in pos + length:
        raise ValueError(f"pos and len shapes must match: {format_raw(pos)} vs. {format_raw(length)}")
    return [broadcast_raw(text, pos)]


@substr_op.kernel("CPU")
def _substr(value: Any, pos: Any, length: Any, *, unit: bytes) -> Any:
    texts = np.asarray(value, object)
    texts, starts, counts = np.broadcast_arrays(texts, pos, length)
    cut = _cut_characters if unit == b"UTF8_CHAR" else _cut_bytes
    out = np.empty(texts.size, object)
    for i, (text, start, count) in enumerate(zip(texts.flat, starts.flat, counts.flat)):
        out[i] = cut(text, int(start), int(count), i)
    return out.reshape(texts.shape) if texts.shape else out[0]


def _cut_bytes(text: bytes, start: int, count: int, index: int) -> Any:
    first = _checked_start(text, len(text), start, index)
    return text[first : first + max(count, 0)]


def _cut_characters(text: bytes, start: int, count: int, index: int) -> bytes:
    characters = _CHARACTER.findall(text)
    first = _checked_start(text, len(characters), start, index)
    return b"".join(characters[first : first + max(count, 0)])


def _checked_start(text: bytes, size: int, start: int, index: int) -> int:
    if not -size <= start <= size:
        refuse(f"pos {start} out of range for string b'{text.decode(errors='replace')}' at index {index}")
    return start + size if start < 0 else start


# ---- regular expressions --------------------------------------------------------------------


def _compile(pattern: Any) -> Any:
    pattern = _scalar(pattern)
    try:
        return regular_expressions.compiled(pattern)
    except regular_expressions.PatternError as error:
        raise InvalidArgumentError.of(f"Invalid pattern: {pattern.decode(errors='replace')}, error: {error}") from None


def _scalar(value: Any) -> bytes:
    return value if isinstance(value, bytes) else value[()]


def _replace(value: Any, pattern: Any, rewrite: Any, replace_global: bool) -> Any:
    compiled, text = _compile(pattern), _scalar(rewrite)
    return each(lambda s: regular_expressions.replaced(compiled, s, text, replace_global), value)


@full_match_op.kernel("CPU")
def _full_match(value: Any, pattern: Any) -> Any:
    compiled = _compile(pattern)
    return each(lambda s: compiled.fullmatch(s) is not None, value, np.bool_)


# ---- base64 ---------------------------------------------------------------------------------


@encode_op.kernel("CPU")
def _encode(value: Any, *, pad: bool) -> Any:
    if pad:
        return each(base64.urlsafe_b64encode, value)
    return each(lambda s: base64.urlsafe_b64encode(s).rstrip(b"="), value)


_URL_SAFE = re.compile(rb"[A-Za-z0-9_-]*")


def _decode_one(text: bytes) -> bytes:
    """The bytes of URL-safe base64. Padding is optional, and must fill the last group of four if it is there."""
    plain = text
    if len(text) % 4 == 0:
        plain = text.removesuffix(b"==") if text.endswith(b"==") else text.removesuffix(b"=")
    whole = max(0, len(text) - 1) // 4 * 4  # the last group is looked at last
    if not _URL_SAFE.fullmatch(text, 0, whole):
        refuse("Invalid character found in base64.")
    if len(plain) % 4 == 1:
        refuse("Base64 string length cannot be 1 modulo 4.")
    if not _URL_SAFE.fullmatch(plain):
        refuse("Invalid character found in base64.")
    return base64.urlsafe_b64decode(plain + b"=" * (-len(plain) % 4))


# ---- public functions -----------------------------------------------------------------------


@export("tf.strings.lower")
def string_lower(input: Any, encoding: str = "", name: str | None = None) -> Tensor:
    """Converts ASCII letters, or with ``encoding="utf-8"`` all letters, to lower case (``tf.strings.lower``)."""
    return lower_op(input, encoding=encoding, name=name)


@export("tf.strings.upper")
def string_upper(input: Any, encoding: str = "", name: str | None = None) -> Tensor:
    """Converts ASCII letters, or with ``encoding="utf-8"`` all letters, to upper case (``tf.strings.upper``)."""
    return upper_op(input, encoding=encoding, name=name)


@export("tf.string_strip", "tf.strings.strip")
def string_strip(input: Any, name: str | None = None) -> Tensor:
    """Removes white space at both ends (``tf.string_strip``)."""
    return strip_op(input, name=name)


@export("tf.strings.length")
def string_length(input: Any, name: str | None = None, unit: str = "BYTE") -> Tensor:
    """The lengths of strings, in bytes or in characters (``unit="UTF8_CHAR"``), int32 (``tf.strings.length``)."""
    return length_op(input, unit=unit, name=name)


@export("tf.string_join", "tf.strings.join")
def string_join(inputs: Any, separator: str = "", name: str | None = None) -> Tensor:
    """Element-wise concatenation of tensors of one shape and scalars (``tf.string_join``)."""
    return join_op(list(inputs), separator=separator, name=name)


@export("tf.substr", "tf.strings.substr")
def substr(input: Any, pos: Any, len: Any, name: str | None = None, unit: str = "BYTE") -> Tensor:
    """``len`` bytes or characters from ``pos`` (negative: from the end); shapes broadcast (``tf.substr``).

    Raises:
      ValueError: when ``pos`` and ``len`` differ in shape.
    """
    return substr_op(input, pos, len, unit=unit, name=name)


@export("tf.regex_replace", "tf.strings.regex_replace")
def regex_replace(
    input: Any, pattern: Any, rewrite: Any, replace_global: bool = True, name: str | None = None
) -> Tensor:  # fmt: skip
    r"""Replaces matches of ``pattern`` by ``rewrite``, where ``\1`` stands for a group (``tf.regex_replace``)."""
    if isinstance(pattern, (str, bytes)) and isinstance(rewrite, (str, bytes)):
        options = {"pattern": pattern, "rewrite": rewrite, "replace_global": replace_global}
        return static_replace_op(input, name=name, **options)
    return replace_op(input, pattern, rewrite, replace_global=replace_global, name=name)


@export("tf.strings.regex_full_match")
def regex_full_match(input: Any, pattern: Any, name: str | None = None) -> Tensor:
    """Whether each string matches ``pattern`` as a whole (``tf.strings.regex_full_match``)."""
    return full_match_op(input, pattern, name=name)


@export("tf.encode_base64", "tf.io.encode_base64")
def encode_base64(input: Any, pad: bool = False, name: str | None = None) -> Tensor:
    """Web-safe base64 (``tf.encode_base64``)."""
    return encode_op(input, pad=pad, name=name)


@export("tf.decode_base64", "tf.io.decode_base64")
def decode_base64(input: Any, name: str | None = None) -> Tensor:
    """The bytes of web-safe base64, padded or not (``tf.decode_base64``)."""
    return decode_op(input, name=name)
