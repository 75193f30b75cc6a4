"""Structures of Python values as the message StructuredValue, which SavedModels have of functions' arguments."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

from tfmini import protos
from tfmini.dtypes import DType, as_dtype
from tfmini.export import export
from tfmini.ops.composites import IndexedSlicesSpec, SparseTensorSpec, TensorSpec
from tfmini.ops.ragged import RaggedTensorSpec
from tfmini.shapes import TensorShape

_SCALARS = {bool: "bool_value", int: "int64_value", float: "float64_value", str: "string_value"}
_SPECS: dict[int, Any] = {1: SparseTensorSpec, 2: IndexedSlicesSpec, 3: RaggedTensorSpec}


@export("tensorflow.python.saved_model.nested_structure_coder.NotEncodableError")
class NotEncodableError(Exception):
    """A structure holds what the message has no field for."""


@export("tensorflow.python.saved_model.nested_structure_coder.StructureCoder")
class StructureCoder:
    """Makes messages of nested structures of numbers, texts, None, shapes, types and specs, and structures of those."""

    def encode_structure(self, nested_structure: Any) -> Any:
        """The message of a structure.

        Raises:
          NotEncodableError: for another kind of value.
        """
        value = protos.StructuredValue()
        _encode(nested_structure, value)
        return value

    def can_encode(self, nested_structure: Any) -> bool:
        """Whether `encode_structure` knows all kinds of values in a structure."""
        try:
            self.encode_structure(nested_structure)
        except NotEncodableError:
            return False
        return True

    def decode_proto(self, proto: Any) -> Any:
        """The structure of a message. A namedtuple gets a type of its own with the same name and fields.

        Raises:
          NotEncodableError: the message is empty, or of a kind that came after TensorFlow 1.15.
        """
        kind = proto.WhichOneof("kind")
        if kind in _SCALARS.values():
            return getattr(proto, kind)
        decode = _DECODERS.get(kind or "")
        if decode is None:
            raise NotEncodableError(f"No decoder for a message of kind {kind}: {proto}")
        return decode(getattr(proto, kind), self.decode_proto)


def _encode(value: Any, into: Any) -> None:
    scalar = next((kind for kind in _SCALARS if isinstance(value, kind)), None)
    if scalar is not None:
        setattr(into, _SCALARS[scalar], value)
    elif value is None:
        into.none_value.SetInParent()
    elif isinstance(value, (list, tuple, dict)):
        _encode_nested(value, into)
    elif isinstance(value, TensorShape):
        into.tensor_shape_value.CopyFrom(_shape_message(value))
    elif isinstance(value, DType):
        into.tensor_dtype_value = value.as_datatype_enum
    elif isinstance(value, TensorSpec):
        spec = into.tensor_spec_value
        spec.shape.CopyFrom(_shape_message(value.shape))
        spec.dtype, spec.name = value.dtype.as_datatype_enum, value.name or ""
    elif type(value) in _SPECS.values():
        number = next(number for number, kind in _SPECS.items() if type(value) is kind)
        into.type_spec_value.type_spec_class = number
        into.type_spec_value.type_spec_class_name = type(value).__name__
        _encode(value._serialize(), into.type_spec_value.type_state)
    else:
        raise NotEncodableError(f"No encoder for object [{value}] of type [{type(value)}].")


def _encode_nested(value: Any, into: Any) -> None:
    if isinstance(value, dict):
        into.dict_value.SetInParent()
        for key, part in value.items():
            _encode(part, into.dict_value.fields[key])
    elif hasattr(value, "_fields"):
        into.named_tuple_value.name = type(value).__name__
        for key in value._fields:
            _encode(getattr(value, key), into.named_tuple_value.values.add(key=key).value)
    else:
        parts = into.list_value if isinstance(value, list) else into.tuple_value
        parts.SetInParent()
        for part in value:
            _encode(part, parts.values.add())


def _shape_message(shape: TensorShape) -> Any:
    message = protos.StructuredValue().tensor_shape_value
    message.ParseFromString(shape.as_proto().SerializeToString())
    return message


def _decoded_tuple(message: Any, decode: Callable[[Any], Any]) -> Any:
    kind: Any = namedtuple(message.name, [pair.key for pair in message.values])  # type: ignore[misc]
    return kind(*(decode(pair.value) for pair in message.values))


def _decoded_spec(message: Any, decode: Callable[[Any], Any]) -> Any:
    kind = _SPECS.get(message.type_spec_class)
    if kind is None:
        raise ValueError(f"The type '{message.type_spec_class_name}' is not supported by tfmini.")
    return kind(*decode(message.type_state))


_DECODERS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "none_value": lambda message, decode: None,
    "list_value": lambda message, decode: [decode(part) for part in message.values],
    "tuple_value": lambda message, decode: tuple(decode(part) for part in message.values),
    "dict_value": lambda message, decode: {key: decode(part) for key, part in message.fields.items()},
    "named_tuple_value": _decoded_tuple,
    "tensor_shape_value": lambda message, decode: TensorShape(message),
    "tensor_dtype_value": lambda number, decode: as_dtype(number),
    "tensor_spec_value": lambda message, decode: TensorSpec(
        TensorShape(message.shape), as_dtype(message.dtype), message.name or None
    ),
    "type_spec_value": _decoded_spec,
}
