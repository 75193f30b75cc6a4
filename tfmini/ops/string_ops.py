"""Element-wise string ops: case, strip, join, substrings, regular expressions, base64."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, AxisLike, DTypeLike, TensorLike
from tfmini.errors import InvalidArgumentError
from tfmini.export import either, export
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, OpHandle, Tensor, convert_to_tensor, name_scope, op, same_shape
from tfmini.graph.node import Node
from tfmini.memory import check_room
from tfmini.numerics.texts import PatternError, replaced
from tfmini.numerics.texts import compiled as compiled_pattern
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
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
    def kernel(value: Array, *, encoding: bytes) -> Any:
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
def _length(value: Array, *, unit: bytes) -> Any:
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
def _substr(value: Array, pos: Array, length: Array, *, unit: bytes) -> Any:
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


def _compile(pattern: TensorLike) -> Any:
    pattern = _scalar(pattern)
    try:
        return compiled_pattern(pattern)
    except PatternError as error:
        raise InvalidArgumentError.of(f"Invalid pattern: {pattern.decode(errors='replace')}, error: {error}") from None


def _scalar(value: Any) -> bytes:
    return value if isinstance(value, bytes) else value[()]


def _replace(value: Array, pattern: Array, rewrite: Array, replace_global: bool) -> Any:
    compiled, text = _compile(pattern), _scalar(rewrite)
    return each(lambda s: replaced(compiled, s, text, replace_global), value)


@full_match_op.kernel("CPU")
def _full_match(value: Array, pattern: Array) -> Any:
    compiled = _compile(pattern)
    return each(lambda s: compiled.fullmatch(s) is not None, value, np.bool_)


static_full_match_op.kernel("CPU")(lambda value, *, pattern: _full_match(value, pattern))


# ---- base64 ---------------------------------------------------------------------------------


@encode_op.kernel("CPU")
def _encode(value: Array, *, pad: bool) -> Any:
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


# ---- Public functions of text: case, joins, substrings, patterns, base64 -------------------------------------------


@export("tf.strings.lower")
def string_lower(input: TensorLike, encoding: str = "", name: str | None = None) -> Tensor:
    """Converts ASCII letters, or with ``encoding="utf-8"`` all letters, to lower case (``tf.strings.lower``)."""
    return lower_op(input, encoding=encoding, name=name)


@export("tf.strings.upper")
def string_upper(input: TensorLike, encoding: str = "", name: str | None = None) -> Tensor:
    """Converts ASCII letters, or with ``encoding="utf-8"`` all letters, to upper case (``tf.strings.upper``)."""
    return upper_op(input, encoding=encoding, name=name)


@export("tf.string_strip", "tf.strings.strip")
def string_strip(input: TensorLike, name: str | None = None) -> Tensor:
    """Removes white space at both ends (``tf.string_strip``)."""
    return strip_op(input, name=name)


@export("tf.strings.length")
def string_length(input: TensorLike, name: str | None = None, unit: str = "BYTE") -> Tensor:
    """The lengths of strings, in bytes or in characters (``unit="UTF8_CHAR"``), int32 (``tf.strings.length``)."""
    return length_op(input, unit=unit, name=name)


@export("tf.string_join", "tf.strings.join")
def string_join(inputs: Any, separator: str = "", name: str | None = None) -> Tensor:
    """Element-wise concatenation of tensors of one shape and scalars (``tf.string_join``)."""
    return join_op(list(inputs), separator=separator, name=name)


@export("tf.substr", "tf.strings.substr")
def substr(input: TensorLike, pos: TensorLike, len: TensorLike, name: str | None = None, unit: str = "BYTE") -> Tensor:
    """``len`` bytes or characters from ``pos`` (negative: from the end); shapes broadcast (``tf.substr``).

    Raises:
      ValueError: when ``pos`` and ``len`` differ in shape.
    """
    return substr_op(input, pos, len, unit=unit, name=name)


@export("tf.regex_replace", "tf.strings.regex_replace")
def regex_replace(
    input: TensorLike, pattern: TensorLike, rewrite: TensorLike, replace_global: bool = True, name: str | None = None
) -> Tensor:  # fmt: skip
    r"""Replaces matches of ``pattern`` by ``rewrite``, where ``\1`` stands for a group (``tf.regex_replace``)."""
    if isinstance(pattern, (str, bytes)) and isinstance(rewrite, (str, bytes)):
        options = {"pattern": pattern, "rewrite": rewrite, "replace_global": replace_global}
        return static_replace_op(input, name=name, **options)
    return replace_op(input, pattern, rewrite, replace_global=replace_global, name=name)


@export("tf.strings.regex_full_match")
def regex_full_match(input: TensorLike, pattern: TensorLike, name: str | None = None) -> Tensor:
    """Whether each string matches ``pattern`` as a whole (``tf.strings.regex_full_match``)."""
    return full_match_op(input, pattern, name=name)


@export("tf.encode_base64", "tf.io.encode_base64")
def encode_base64(input: TensorLike, pad: bool = False, name: str | None = None) -> Tensor:
    """Web-safe base64 (``tf.encode_base64``)."""
    return encode_op(input, pad=pad, name=name)


@export("tf.decode_base64", "tf.io.decode_base64")
def decode_base64(input: TensorLike, name: str | None = None) -> Tensor:
    """The bytes of web-safe base64, padded or not (``tf.decode_base64``)."""
    return decode_op(input, name=name)


# ---- Conversions between strings and numbers, and joins: ``AsString``, ``DecodeRaw``, ``ReduceJoin``… --------------

as_string_op = op(
    """AsString(input: T) -> output: string
    T: {int8, int16, int32, int64, complex64, complex128, float, double, bool}
    precision: int = -1
    scientific: bool = false
    shortest: bool = false
    width: int = -1
    fill: string = ''""",
    shape=same_shape,
    differentiable=False,
)
to_number_op = op(
    "StringToNumber(string_tensor: string) -> output: out_type; out_type: {float, double, int32, int64} = DT_FLOAT",
    shape=same_shape,
    differentiable=False,
)
decode_raw_op = op(
    """DecodeRaw(bytes: string) -> output: out_type
    out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, complex64, complex128, bool}
    little_endian: bool = true""",
    differentiable=False,
)
reduce_join_op = op(
    """ReduceJoin(inputs: string, reduction_indices: int32) -> output: string
    keep_dims: bool = false
    separator: string = ''""",
    differentiable=False,
)


# ---- numbers --------------------------------------------------------------------------------


_LONG = 1 << 10  # bytes of a number's text


@as_string_op.kernel_factory("CPU")
def _as_string(node: Node) -> Callable[[Any], Any]:
    text = _number_text(node.attrs)
    least = 2 * max(node.attrs["width"], node.attrs["precision"])  # as a str and as bytes

    def kernel(value: Array) -> Any:
        if least > _LONG:
            check_room((np.size(value),), least)
        if np.ndim(value) == 0:
            return text(value.item() if hasattr(value, "item") else value)
        out = np.empty(value.size, object)
        out[:] = [text(item) for item in value.ravel().tolist()]
        return out.reshape(value.shape)

    return kernel


def _number_text(attrs: dict[str, Any]) -> Callable[[Any], bytes]:
    """printf's rendering of one Python number, by the op's attrs."""
    _check_format(attrs)
    dtype, fill, width = attrs["T"], attrs["fill"].decode(), attrs["width"]
    if dtype.is_bool:
        return lambda v: b"true" if v else b"false"
    flags = f"%{fill}{width if width > -1 else ''}"
    if dtype.is_integer:
        return lambda v: (f"{flags}d" % v).encode()
    precision = f".{attrs['precision']}" if attrs["precision"] > -1 else ""
    style = flags + precision + ("g" if attrs["shortest"] else "e" if attrs["scientific"] else "f")
    if dtype.is_complex:
        return lambda v: f"({style % v.real},{style % v.imag})".encode()
    return lambda v: (style % v).encode()


def _check_format(attrs: dict[str, Any]) -> None:
    dtype, fill = attrs["T"], attrs["fill"].decode()
    if not (dtype.is_floating or dtype.is_complex):
        if attrs["scientific"] or attrs["shortest"]:
            refuse(f"scientific and shortest format not supported for datatype {dtype.name}")
        if attrs["precision"] > -1:
            refuse(f"precision not supported for datatype {dtype.name}")
    if attrs["scientific"] and attrs["shortest"]:
        refuse("Cannot select both scientific and shortest notation")
    if len(fill) > 1:
        refuse(f'Fill string must be one or fewer characters: "{fill}"')
    if fill not in ("", *" +-0#"):
        refuse(f'Fill argument not supported: "{fill}"')


def _float_of(text: bytes) -> float:
    """The number in a string, by C's rules: also hexadecimal."""
    plain = text.strip().lstrip(b"+-").lower()
    return float.fromhex(text.decode()) if plain.startswith(b"0x") else float(text)


@to_number_op.kernel("CPU")
def _to_number(value: Array, *, out_type: dtypes.DType) -> Any:
    kind = _float_of if out_type.is_floating else int
    limits = None if out_type.is_floating else np.iinfo(out_type.as_numpy_dtype)

    def parse(text: bytes) -> Any:
        try:
            # Python accepts "1_000", TensorFlow does not.
            number = None if b"_" in text else kind(text)
        except ValueError:
            number = None
        if number is None or limits is not None and not limits.min <= number <= limits.max:
            shown = text.decode(errors="replace")
            refuse(f"StringToNumberOp could not correctly convert string: {shown}")
        return number

    return each(parse, value, out_type.numpy)


# ---- raw bytes ------------------------------------------------------------------------------


@decode_raw_op.shape
def _decode_raw_shape(node: Operation) -> list[RawShape]:
    shape = node.inputs[0].raw_shape
    return [None if shape is None else (*shape, None)]


@decode_raw_op.kernel("CPU")
def _decode_raw(value: Array, *, out_type: dtypes.DType, little_endian: bool) -> Any:
    texts = [value] if isinstance(value, bytes) else value.ravel().tolist()
    shape = np.shape(value)
    size, item = len(texts[0]) if texts else 0, out_type.size
    for i, text in enumerate(texts):
        if len(text) != size:
            refuse(
                "DecodeRaw requires input strings to all be the same size, but element"
                f" {i} has size {size} != {len(text)}"
            )
    if size % item:
        refuse(f"Input to DecodeRaw has length {size} that is not a multiple of {item}, the size of {out_type.name}")
    if not texts:
        return np.empty((*shape, 0), out_type.numpy)
    found = np.frombuffer(b"".join(texts), out_type.numpy.newbyteorder("<" if little_endian else ">"))
    return found.astype(out_type.numpy, copy=False).reshape(*shape, size // item)


# ---- joining along dimensions ---------------------------------------------------------------


@reduce_join_op.shape
def _reduce_join_shape(node: Operation) -> list[RawShape]:
    shape, axes = node.inputs[0].raw_shape, constant_value(node.inputs[1])
    if shape is None or axes is None:
        return [None]
    rank = len(shape)
    reduced = set()
    for axis in np.ravel(axes).tolist():
        if not -rank <= axis < rank:
            raise ValueError(f"Invalid reduction dimension {axis} for input with {rank} dimensions.")
        reduced.add(axis % rank)
    if node.attrs["keep_dims"]:
        return [tuple(1 if i in reduced else d for i, d in enumerate(shape))]
    return [tuple(d for i, d in enumerate(shape) if i not in reduced)]


@reduce_join_op.kernel("CPU")
def _reduce_join(value: Array, axes: Array, *, keep_dims: bool, separator: bytes) -> Any:
    array = np.asarray(value, object)
    order = []
    for axis in np.ravel(axes).tolist():
        if not -array.ndim <= axis < array.ndim:
            refuse(f"Invalid reduction dimension {axis} for input with {array.ndim} dimensions.")
        if axis % array.ndim in order:
            refuse(f"Duplicate reduction dimension {axis}")
        order.append(axis % array.ndim)
    if not order:
        return value
    # The first axis named varies fastest in the joined text.
    kept = [i for i in range(array.ndim) if i not in order]
    rows = array.transpose(kept + order[::-1])
    lead = rows.shape[: len(kept)]
    count = int(np.prod(lead))
    table = rows.reshape(count, -1) if array.size else np.empty((count, 0), object)
    check_room((array.size,), len(separator))
    out = np.empty(count, object)
    out[:] = [separator.join(row) for row in table.tolist()]
    shape = tuple(1 if i in order else d for i, d in enumerate(array.shape)) if keep_dims else lead
    return out.reshape(shape) if shape else out[0]


# ---- Public functions of conversions -------------------------------------------------------------------------------


@export("tf.as_string", "tf.dtypes.as_string", "tf.strings.as_string")
def as_string(
    input: TensorLike, precision: int = -1, scientific: bool = False, shortest: bool = False, width: int = -1,
    fill: str = "", name: str | None = None,
) -> Tensor:  # fmt: skip
    """Numbers as strings, formatted like C's printf with ``%[fill][width][.precision]`` (``tf.as_string``)."""
    options = {"precision": precision, "scientific": scientific, "shortest": shortest, "width": width, "fill": fill}
    return as_string_op(input, name=name, **options)


@export("tf.string_to_number", "tf.strings.to_number")
def string_to_number(
    string_tensor: TensorLike | None = None, out_type: DTypeLike = dtypes.float32, name: str | None = None,
    input: TensorLike | None = None,
) -> Tensor:  # fmt: skip
    """Each string as a float32, float64, int32 or int64 (``tf.string_to_number``)."""
    return to_number_op(string_tensor if input is None else input, out_type=out_type, name=name)


@export("tf.decode_raw", "tf.io.decode_raw")
def decode_raw(
    input_bytes: TensorLike | None = None, out_type: DTypeLike | None = None, little_endian: bool = True,
    name: str | None = None, bytes: TensorLike | None = None,
) -> Tensor:  # fmt: skip
    """The bytes of each string as numbers, in an additional dimension (``tf.decode_raw``).

    Args:
      input_bytes: a string tensor whose elements have equal lengths.
      out_type: the type of the numbers.
      little_endian: the order of the bytes.
      name: of the op.
      bytes: an older name of ``input_bytes``.

    Returns:
      A tensor of ``out_type`` with one more axis than ``input_bytes``.
    """
    value = input_bytes if bytes is None else bytes
    return decode_raw_op(value, out_type=out_type, little_endian=little_endian, name=name)


@export("tf.reduce_join", "tf.strings.reduce_join")
def reduce_join(
    inputs: TensorLike, axis: AxisLike | None = None, keep_dims: bool | None = None, separator: str = "",
    name: str | None = None, reduction_indices: AxisLike | None = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Joins the strings along ``axis`` (the first of several varies fastest; None: all), ``tf.reduce_join``."""
    axis = either("axis", axis, "reduction_indices", reduction_indices)
    keep = bool(either("keepdims", keepdims, "keep_dims", keep_dims))
    with name_scope(name, "ReduceJoin", [inputs]):
        inputs = convert_to_tensor(inputs)
        if axis is None and inputs.raw_shape is not None:
            axis = constant(np.arange(len(inputs.raw_shape), dtype=np.int32)[::-1])
        elif axis is None:
            axis = raw_ops.Range(raw_ops.Rank(inputs) - 1, -1, -1)
        return reduce_join_op(inputs, axis, keep_dims=keep, separator=separator)
