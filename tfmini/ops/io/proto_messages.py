"""Fields of protobuf messages as arrays, without a graph, and messages made of arrays.

Values are read from the bytes, not from objects: a message in a field keeps its bytes, and a field that has its default
counts when the sender has written it.
"""

from __future__ import annotations

import functools
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfmini import dtypes, errors, protos
from tfmini.checkpoint.files import decode as decode_varint
from tfmini.checkpoint.files import encode as encode_varint
from tfmini.core_types import Array
from tfmini.dtypes import DType
from tfmini.ops.array.kernel_arguments import refuse

# Protobuf's type -> the types of tensors for it; the first has all its values.
TYPES: dict[str, tuple[DType, ...]] = {
    "double": (dtypes.float64,),
    "float": (dtypes.float32, dtypes.float64),
    **dict.fromkeys(("int64", "sfixed64", "sint64"), (dtypes.int64,)),
    **dict.fromkeys(("uint64", "fixed64"), (dtypes.uint64,)),
    **dict.fromkeys(("int32", "sfixed32", "sint32"), (dtypes.int32, dtypes.int64)),
    **dict.fromkeys(("uint32", "fixed32"), (dtypes.uint32, dtypes.uint64)),
    "bool": (dtypes.bool,),
    "enum": (dtypes.int32,),
    **dict.fromkeys(("string", "bytes", "message", "group"), (dtypes.string,)),
}
_FIXED = {"double": "<d", "float": "<f", "fixed32": "<I", "fixed64": "<Q", "sfixed32": "<i", "sfixed64": "<q"}
_NAMES = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message"),
    *("bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
_VARINT, _EIGHT, _BYTES, _GROUP, _END_GROUP, _FOUR = range(6)

Fields = dict[int, list[tuple[int, Any]]]  # number -> its occurrences: (wire type, number or bytes)


def type_name(field: Any) -> str:
    """The type of a field in the language of ``.proto`` files."""
    return _NAMES[field.type - 1]


def is_repeated(field: Any) -> bool:
    repeated = getattr(field, "is_repeated", None)  # protobuf 6 on; `label` goes
    return bool(repeated) if repeated is not None else field.label == field.LABEL_REPEATED


@functools.lru_cache(16)
def descriptor(source: bytes, message_type: bytes) -> Any:
    """The descriptor of a message.

    Args:
      source: ``local://`` for messages of TensorFlow and those that this process has imported, ``bytes://`` and a
        serialized FileDescriptorSet, or the name of a file with one.

    Raises:
      InvalidArgumentError: for an unknown message or a source that is no FileDescriptorSet.
    """
    from google.protobuf import descriptor_pool

    name = message_type.decode()
    package, _, last = name.rpartition(".")
    if source in (b"", b"local://") and package == "tensorflow" and last in protos.MODULE_OF:
        return getattr(protos, last).DESCRIPTOR
    pool = descriptor_pool.Default() if source in (b"", b"local://") else _pool(source)
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise errors.InvalidArgumentError.of(f"No descriptor found for message type {name}") from None


def _pool(source: bytes) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    try:
        if not source.startswith(b"bytes://"):
            with open(source, "rb") as file:
                source = b"bytes://" + file.read()
        files = descriptor_pb2.FileDescriptorSet.FromString(source.removeprefix(b"bytes://"))
    except (OSError, ValueError, DecodeError):
        raise errors.InvalidArgumentError.of(
            "Source does not represent serialized file descriptor set proto."
        ) from None
    pool, pending = descriptor_pool.DescriptorPool(), {file.name: file for file in files.file}

    def add(name: str) -> None:
        if name in pending:
            file = pending.pop(name)
            for dependency in file.dependency:
                add(dependency)
            pool.AddSerializedFile(file.SerializeToString())

    try:
        for file in files.file:
            add(file.name)
    except TypeError as error:
        raise errors.InvalidArgumentError.of(f"The file descriptor set is not complete: {error}") from None
    return pool


# ---- reading --------------------------------------------------------------------------------------------------------


def split(data: bytes) -> Fields:
    """The fields of a message's bytes.

    Raises:
      DataLossError: when the bytes are no message.
    """
    found: Fields = defaultdict(list)
    at = 0
    try:
        while at < len(data):
            key, at = decode_varint(data, at)
            value, at = _value(data, at, key)
            found[key >> 3].append((key & 7, value))
    except ValueError:
        raise errors.DataLossError.of("CountFields: Failed to consume entire buffer") from None
    return found


def _value(data: bytes, at: int, key: int) -> tuple[Any, int]:
    """The value of a field behind its key, and where the next field begins."""
    wire = key & 7
    if wire == _VARINT:
        return decode_varint(data, at)
    if wire == _GROUP:
        return _group(data, at, key)
    if wire == _BYTES:
        size, at = decode_varint(data, at)
    elif wire in (_FOUR, _EIGHT):
        size = 4 if wire == _FOUR else 8
    else:
        raise ValueError(f"wire type {wire}")
    if at + size > len(data):
        raise ValueError("the value is cut off")
    return data[at : at + size], at + size


def _group(data: bytes, at: int, key: int) -> tuple[bytes, int]:
    """The bytes of a group; groups in it are passed over without recursion."""
    begin, open_groups = at, [key >> 3]
    while True:
        before = at
        inner, at = decode_varint(data, at)
        if inner & 7 == _GROUP:
            open_groups.append(inner >> 3)
        elif inner & 7 != _END_GROUP:
            _, at = _value(data, at, inner)
        elif open_groups.pop() != inner >> 3:
            raise ValueError("the groups do not match")
        elif not open_groups:
            return data[begin:before], at


def values_of(field: Any, occurrences: Sequence[tuple[int, Any]]) -> list[Any]:
    """The values of a field; numbers of repeated fields may be packed.

    Raises:
      DataLossError: for a value of another wire type.
    """
    kind = type_name(field)
    found: list[Any] = []
    try:
        for wire, value in occurrences:
            if wire == _BYTES and TYPES[kind][0] is not dtypes.string:
                found += _packed(kind, value)
            else:
                found.append(_one(kind, wire, value))
    except (ValueError, struct.error):
        raise errors.DataLossError.of(f"The bytes of field {field.full_name} are not of type {kind}") from None
    return found if is_repeated(field) else found[-1:]


def _packed(kind: str, data: bytes) -> Iterator[Any]:
    if kind in _FIXED:
        yield from (value for (value,) in struct.iter_unpack(_FIXED[kind], data))
        return
    at = 0
    while at < len(data):
        value, at = decode_varint(data, at)
        yield _one(kind, _VARINT, value)


def _one(kind: str, wire: int, value: Any) -> Any:
    if kind in _FIXED:
        return struct.unpack(_FIXED[kind], value)[0]
    if (wire == _VARINT) == (TYPES[kind][0] is dtypes.string):
        raise ValueError(f"wire type {wire}")
    if wire != _VARINT or kind == "uint64":
        return value
    if kind == "uint32":
        return value & 0xFFFFFFFF
    if kind == "bool":
        return value != 0
    if kind in ("sint32", "sint64"):
        return value >> 1 ^ -(value & 1)
    bits = 64 if kind == "int64" else 32
    return (value & (1 << bits) - 1 ^ 1 << bits - 1) - (1 << bits - 1)


def default_of(field: Any, dtype: DType) -> Any:
    """The value of a field that a message leaves out."""
    if is_repeated(field) or field.message_type is not None:
        return b"" if dtype is dtypes.string else 0
    value = field.default_value
    return value.encode() if isinstance(value, str) else value


def fields_of(
    message: Any, names: Sequence[bytes], types: Sequence[DType], problem: str = "Unexpected output type for"
) -> list[Any]:
    """The descriptors of some fields.

    Raises:
      InvalidArgumentError: for an unknown field or a type that does not fit it.
    """
    found = []
    for name, dtype in zip(names, types, strict=True):
        field = message.fields_by_name.get(name.decode())
        if field is None:
            refuse(f"Unknown field: {name.decode()} in message type {message.full_name}")
        if dtype not in TYPES[type_name(field)]:
            refuse(f"{problem} {field.full_name}: {type_name(field)} to {dtype.name}")
        found.append(field)
    return found


# ---- writing --------------------------------------------------------------------------------------------------------


def encoded(make: Callable[[], Any], fields: Sequence[Any], values: Sequence[Array]) -> bytes:
    """The bytes of a message with these values: for each field a vector of them.

    Raises:
      InvalidArgumentError: when a message has several values of a field that is not repeated, or a value is no message.
    """
    from google.protobuf.message import DecodeError, Message

    made: Message = make()
    for field, row in zip(fields, values, strict=True):
        if len(row) > 1 and not is_repeated(field):
            refuse(f"Field {field.full_name} has one value at most, but got {len(row)}")
        try:
            _set(made, field, row.tolist())
        except (DecodeError, UnicodeDecodeError, ValueError):
            refuse(f"Cannot write the values of field {field.full_name}: they are not of type {type_name(field)}")
    return made.SerializeToString(deterministic=True)


def _set(made: Any, field: Any, row: list[Any]) -> None:
    kind = type_name(field)
    if kind in ("message", "group"):
        for value in row:  # map entries, too
            made.MergeFromString(_framed(field.number, value, kind == "group"))
    elif is_repeated(field):
        getattr(made, field.name).extend([value.decode() for value in row] if kind == "string" else row)
    elif row:
        setattr(made, field.name, row[0].decode() if kind == "string" else row[0])


def _framed(number: int, value: bytes, is_group: bool) -> bytes:
    """The bytes of a message in a field."""
    if is_group:
        return encode_varint(number << 3 | _GROUP) + value + encode_varint(number << 3 | _END_GROUP)
    return encode_varint(number << 3 | _BYTES) + encode_varint(len(value)) + value
