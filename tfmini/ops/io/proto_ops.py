"""Ops on serialized protobuf messages: ``DecodeProtoV2`` and ``EncodeProto`` (``tf.io.decode_proto``)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tfmini import errors
from tfmini.core_types import Array, TensorLike
from tfmini.dtypes import DType, string
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, op
from tfmini.ops.array.kernel_arguments import filled, refuse
from tfmini.ops.io import proto_messages
from tfmini.shapes import RawShape, format_raw

decode_proto_op: OpHandle[Any] = op(
    """DecodeProtoV2(bytes: string) -> sizes: int32, values: output_types
    message_type: string
    field_names: list(string)
    output_types: list(type) >= 0
    descriptor_source: string = "local://"
    message_format: string = "binary"
    sanitize: bool = false"""
)
encode_proto_op: OpHandle[Any] = op(
    """EncodeProto(sizes: int32, values: Tinput_types) -> bytes: string
    field_names: list(string)
    message_type: string
    descriptor_source: string = "local://"
    Tinput_types: list(type) >= 1"""
)
for _handle in (decode_proto_op, encode_proto_op):
    _handle.not_differentiable()


class DecodeProtoV2(NamedTuple):
    """What `decode_proto` returns."""

    sizes: Tensor
    values: list[Tensor]


@decode_proto_op.shape
def _decode_shape(node: Operation) -> list[RawShape]:
    batch, count = node.inputs[0].raw_shape, len(node.attrs["field_names"])
    if count != len(node.attrs["output_types"]):
        raise ValueError("field_names and output_types attributes must have the same length")
    if batch is None:
        return [None] * (count + 1)
    return [(*batch, count), *[(*batch, None)] * count]


@encode_proto_op.shape
def _encode_shape(node: Operation) -> list[RawShape]:
    sizes = node.inputs[0].raw_shape
    return [None if sizes is None else sizes[:-1]]


@decode_proto_op.kernel("CPU")
def _decode(
    bytes: Array, *, message_type: bytes, field_names: list[bytes], output_types: list[DType],
    descriptor_source: bytes, message_format: bytes, sanitize: bool,
) -> tuple[Any, ...]:  # fmt: skip
    messages = np.asarray(bytes, object)
    described = proto_messages.descriptor(descriptor_source, message_type)
    fields = proto_messages.fields_of(described, field_names, output_types)
    split = [proto_messages.split(_binary(text, described, message_format)) for text in messages.ravel()]
    columns = [[proto_messages.values_of(field, parts.get(field.number, ())) for parts in split] for field in fields]
    sizes = np.array([[len(values) for values in column] for column in columns], np.int32).reshape(len(fields), -1).T
    found = [_padded(column, field, dtype) for column, field, dtype in zip(columns, fields, output_types)]
    return (
        sizes.reshape(*messages.shape, len(fields)),
        *(values.reshape(*messages.shape, values.shape[1]) for values in found),
    )


def _binary(text: bytes, described: Any, message_format: bytes) -> bytes:
    if message_format == b"binary":
        return text
    if message_format != b"text":
        refuse(f"format must be one of binary or text, but is {message_format.decode()}")
    from google.protobuf import message_factory, text_format

    try:
        return text_format.Parse(text, message_factory.GetMessageClass(described)()).SerializeToString()
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise errors.DataLossError.of(f"Failed to parse text proto: {error}") from None


def _padded(column: list[list[Any]], field: Any, dtype: DType) -> np.ndarray:
    width = max(map(len, column), default=0)
    out = filled((len(column), width), proto_messages.default_of(field, dtype), np.dtype(dtype.numpy))
    for row, values in zip(out, column):
        row[: len(values)] = values
    return out


@encode_proto_op.kernel("CPU")
def _encode(
    sizes: np.ndarray, values: list[Any], *, field_names: list[bytes], message_type: bytes, descriptor_source: bytes,
    Tinput_types: list[DType],
) -> Any:  # fmt: skip
    from google.protobuf import message_factory

    described = proto_messages.descriptor(descriptor_source, message_type)
    if len(field_names) != len(Tinput_types):
        refuse(f"There are {len(field_names)} field names, but {len(Tinput_types)} values")
    fields = proto_messages.fields_of(described, field_names, Tinput_types, "Incompatible type for")
    arrays = [np.asarray(value, object) if dtype is string else value for value, dtype in zip(values, Tinput_types)]
    batch = arrays[0].shape[:-1]
    _check_shapes(sizes, arrays, batch)
    make = message_factory.GetMessageClass(described)
    counts = sizes.reshape(-1, len(fields))
    rows = [value.reshape(len(counts), value.shape[-1]) for value in arrays]
    for message, field in np.argwhere(counts > [value.shape[1] for value in rows]):
        saw = f"{counts[message, field]} > {rows[field].shape[1]} at message {message} field {field}"
        refuse(f"Size to write must not be larger than value tensor; but saw: {saw}")
    out = np.empty(len(counts), object)
    for number, count in enumerate(counts):
        cut = [value[number, : max(0, size)] for value, size in zip(rows, count)]
        out[number] = proto_messages.encoded(make, fields, cut)
    return out.reshape(batch)


def _check_shapes(sizes: np.ndarray, values: list[Any], batch: tuple[int, ...]) -> None:
    expected = (*batch, len(values))
    if sizes.shape != expected:
        refuse(
            f"sizes should be batch_size + [len(field_names)].  Saw: {format_raw(sizes.shape)}"
            f" but expected: {format_raw(expected)}"
        )
    for number, value in enumerate(values):
        if not value.ndim or value.shape[:-1] != batch:
            refuse(f"Values must match up to the last dimension: value {number} has shape {format_raw(value.shape)}")


@export("tf.io.decode_proto", "tf.contrib.proto.decode_proto")
def decode_proto(
    bytes: TensorLike,
    message_type: str,
    field_names: list[str],
    output_types: list[Any],
    descriptor_source: Any = "local://",
    message_format: str = "binary",
    sanitize: bool = False,
    name: str | None = None,
) -> DecodeProtoV2:
    """Reads fields of serialized protobuf messages (``tf.io.decode_proto``).

    Args:
      bytes: string tensor of shape ``batch``, one message per element.
      message_type: the full name of the message, such as ``tensorflow.Example``.
      field_names: the fields. Fields of messages and map entries come as their bytes.
      output_types: a type for each field. As in TensorFlow, ``uint32`` may also be read as ``uint64``, ``int32`` as
        ``int64`` and ``float`` as ``float64``.
      descriptor_source: ``local://`` for TensorFlow's messages and those that the process of the op has imported,
        ``bytes://`` and a serialized FileDescriptorSet, or a file that has one.
      message_format: ``binary`` or ``text``.
      sanitize: no effect: fields are read from the bytes.

    Returns:
      ``sizes``, int32 of shape ``batch + [number of fields]``: how many values a message has of each; ``values``: per
      field a tensor of shape ``batch + [largest size]``, filled up with the default.

    Raises:
      InvalidArgumentError: when the op runs, for an unknown message or field, or a type that does not fit.
      DataLossError: when the op runs, for bytes that are no such message.
    """
    found_sizes, values = decode_proto_op(
        bytes, message_type=message_type, field_names=field_names, output_types=output_types,
        descriptor_source=descriptor_source, message_format=message_format, sanitize=sanitize, name=name,
    )  # fmt: skip
    return DecodeProtoV2(found_sizes, values)


@export("tf.io.encode_proto", "tf.contrib.proto.encode_proto")
def encode_proto(
    sizes: TensorLike,
    values: list[TensorLike],
    field_names: list[str],
    message_type: str,
    descriptor_source: Any = "local://",
    name: str | None = None,
) -> Tensor:
    """Makes serialized protobuf messages of tensors, the inverse of `decode_proto` (``tf.io.encode_proto``).

    Args:
      sizes: int32 of shape ``batch + [number of fields]``: how many values of each field a message gets.
      values: per field a tensor of shape ``batch + [n]``, with n at least the largest size.

    Returns:
      A string tensor of shape ``batch``.

    Raises:
      InvalidArgumentError: when the op runs, for shapes, types or values that do not fit the message.
    """
    encoded: Tensor = encode_proto_op(
        sizes, values, field_names=field_names, message_type=message_type, descriptor_source=descriptor_source,
        name=name,
    )  # fmt: skip
    return encoded
