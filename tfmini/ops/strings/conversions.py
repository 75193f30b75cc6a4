"""Conversions between strings and numbers, and joins: ``AsString``, ``DecodeRaw``, ``ReduceJoin``…"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, convert_to_tensor, name_scope, op, same_shape
from tfmini.machine_memory import check_room
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.strings.elementwise import each
from tfmini.shapes import RawShape

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
def _as_string(node: Any) -> Callable[[Any], Any]:
    text = _number_text(node.attrs)
    least = 2 * max(node.attrs["width"], node.attrs["precision"])  # as a str and as bytes

    def kernel(value: Any) -> Any:
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
def _to_number(value: Any, *, out_type: dtypes.DType) -> Any:
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
def _decode_raw(value: Any, *, out_type: dtypes.DType, little_endian: bool) -> Any:
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
def _reduce_join(value: Any, axes: Any, *, keep_dims: bool, separator: bytes) -> Any:
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


# ---- public functions -----------------------------------------------------------------------


@export("tf.as_string", "tf.dtypes.as_string", "tf.strings.as_string")
def as_string(
    input: Any, precision: int = -1, scientific: bool = False, shortest: bool = False, width: int = -1,
    fill: str = "", name: str | None = None,
) -> Tensor:  # fmt: skip
    """Numbers as strings, formatted like C's printf with ``%[fill][width][.precision]`` (``tf.as_string``)."""
    options = {"precision": precision, "scientific": scientific, "shortest": shortest, "width": width, "fill": fill}
    return as_string_op(input, name=name, **options)


@export("tf.string_to_number", "tf.strings.to_number")
def string_to_number(
    string_tensor: Any = None, out_type: Any = dtypes.float32, name: str | None = None, input: Any = None
) -> Tensor:  # fmt: skip
    """Each string as a float32, float64, int32 or int64 (``tf.string_to_number``)."""
    return to_number_op(string_tensor if input is None else input, out_type=out_type, name=name)


@export("tf.decode_raw", "tf.io.decode_raw")
def decode_raw(
    input_bytes: Any = None, out_type: Any = None, little_endian: bool = True, name: str | None = None,
    bytes: Any = None,
) -> Tensor:  # fmt: skip
    """The bytes of each string as numbers, in an additional dimension (``tf.decode_raw``)."""
    value = input_bytes if bytes is None else bytes
    return decode_raw_op(value, out_type=out_type, little_endian=little_endian, name=name)


@export("tf.reduce_join", "tf.strings.reduce_join")
def reduce_join(
    inputs: Any, axis: Any = None, keep_dims: bool | None = None, separator: str = "", name: str | None = None,
    reduction_indices: Any = None, keepdims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Joins the strings along ``axis`` (the first of several varies fastest; None: all), ``tf.reduce_join``."""
    axis = reduction_indices if axis is None else axis
    keep = bool(keep_dims if keepdims is None else keepdims)
    with name_scope(name, "ReduceJoin", [inputs]):
        inputs = convert_to_tensor(inputs)
        if axis is None and inputs.raw_shape is not None:
            axis = constant(np.arange(len(inputs.raw_shape), dtype=np.int32)[::-1])
        elif axis is None:
            axis = raw_ops.Range(raw_ops.Rank(inputs) - 1, -1, -1)
        return reduce_join_op(inputs, axis, keep_dims=keep, separator=separator)
