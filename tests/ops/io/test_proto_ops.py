"""``tf.io.decode_proto`` and ``tf.io.encode_proto``: types, sources, errors. Facts are TensorFlow 1.15's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2

import tfmini as tf
from tfmini.ops.io import proto_messages

KINDS = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes"),
    *("uint32", "sfixed32", "sfixed64", "sint32", "sint64"),
)
VALUES: dict[str, Any] = {
    **dict.fromkeys(("double", "float"), [1.5, -2.0]),
    **dict.fromkeys(("int64", "sfixed64", "sint64"), [-(2**63), 2**63 - 1]),
    **dict.fromkeys(("int32", "sfixed32", "sint32"), [-(2**31), 2**31 - 1]),
    **dict.fromkeys(("uint64", "fixed64"), [0, 2**64 - 1]),
    **dict.fromkeys(("uint32", "fixed32"), [0, 2**32 - 1]),
    "bool": [True, False],
    "string": ["a", "ö"],
    "bytes": [b"a", b"\xff"],
}


def source(packed: bool) -> bytes:
    """A message with a repeated field of each type and a single one, in a file that depends on another."""
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="of_all.proto", package="of_all", syntax="proto2", dependency=["inner.proto"])
    message = file.message_type.add(name="All")
    for number, kind in enumerate(KINDS, 1):
        type_number = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
        message.field.add(name=f"{kind}s", number=number, type=type_number, label=3)  # type: ignore[arg-type]
        if packed and kind not in ("string", "bytes"):
            message.field[-1].options.packed = True
    message.field.add(name="inner", number=30, type=11, label=1, type_name=".of_all.Inner")
    message.field.add(name="size", number=31, type=5, label=1, default_value="7")
    inner = files.file.add(name="inner.proto", package="of_all", syntax="proto2").message_type.add(name="Inner")
    inner.field.add(name="part", number=1, type=10, label=3, type_name=".of_all.Inner.Part")
    inner.nested_type.add(name="Part").field.add(name="x", number=2, type=5, label=1)
    return b"bytes://" + files.SerializeToString()


def run(value: Any) -> Any:
    with tf.Session() as session:
        return session.run(value)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_all_types_make_the_way_there_and_back(kind: str, packed: bool) -> None:
    described = source(packed)
    for dtype in proto_messages.TYPES[kind]:
        written = tf.io.encode_proto(
            [[2]], [tf.constant([VALUES[kind]], dtype)], [f"{kind}s"], "of_all.All", descriptor_source=described
        )
        sizes, (read,) = run(
            tf.io.decode_proto(written, "of_all.All", [f"{kind}s"], [dtype], descriptor_source=described)
        )
        expected = [value.encode() if isinstance(value, str) else value for value in VALUES[kind]]
        assert sizes.tolist() == [[2]] and read.tolist() == [expected]


def test_shapes_follow_the_batch_and_defaults_fill_up() -> None:
    read = tf.io.decode_proto(
        tf.constant([[b"\xf8\x01\x05", b""]]), "of_all.All", ["size", "int32s"], [tf.int32, tf.int32], source(False)
    )
    assert read.sizes.shape.as_list() == [1, 2, 2] and read.values[0].shape.as_list() == [1, 2, None]
    sizes, values = run(read)
    assert sizes.tolist() == [[[1, 0], [0, 0]]] and values[0].tolist() == [[[5], [7]]] and values[1].shape == (1, 2, 0)


def test_messages_and_groups_keep_their_bytes() -> None:
    inner = b"\x0b\x10\x05\x0c"  # the group 1 with x = 5
    read = tf.io.decode_proto(b"\xf2\x01\x04" + inner, "of_all.All", ["inner"], [tf.string], source(False))
    assert run(read.values[0]).tolist() == [inner]
    group = tf.io.decode_proto(inner, "of_all.Inner", ["part"], [tf.string], source(False))
    assert run(group.values[0]).tolist() == [b"\x10\x05"]
    back = tf.io.encode_proto([[2]], [[[b"\x10\x05", b""]]], ["part"], "of_all.Inner", source(False))
    assert run(back) == [inner + b"\x0b\x0c"]


def test_a_file_may_have_the_descriptions(tmp_path: Any) -> None:
    (tmp_path / "set").write_bytes(source(False).removeprefix(b"bytes://"))
    read = tf.io.decode_proto(b"\xf8\x01\x05", "of_all.All", ["size"], [tf.int64], str(tmp_path / "set"))
    assert run(read.values[0]).tolist() == [5]


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (("", "tensorflow.Int64Lis", ["value"], [tf.int64]), "InvalidArgument", "No descriptor found for message type"),
        (("", "tensorflow.Int64List", ["valu"], [tf.int64]), "InvalidArgument", "Unknown field: valu in message type"),
        (("", "tensorflow.Int64List", ["value"], [tf.int32]), "InvalidArgument", "Unexpected output type for"),
        (("", "x.M", ["f"], [tf.int32], "no_such_file"), "InvalidArgument", "Source does not represent serialized"),
        (("", "x.M", ["f"], [tf.int32], b"bytes://\xff"), "InvalidArgument", "Source does not represent serialized"),
        ((b"\xff", "tensorflow.Int64List", ["value"], [tf.int64]), "DataLoss", "Failed to consume entire buffer"),
        ((b"\x0b\x0b", "tensorflow.Int64List", ["value"], [tf.int64]), "DataLoss", "Failed to consume entire buffer"),
        ((b"\n\x01\xff", "tensorflow.Int64List", ["value"], [tf.int64]), "DataLoss", "are not of type int64"),
        ((b"\n\x03abc", "tensorflow.FloatList", ["value"], [tf.float32]), "DataLoss", "are not of type float"),
        ((b"x:", "tensorflow.NodeDef", ["name"], [tf.string], "local://", "text"), "DataLoss", "parse text proto"),
        ((b"", "tensorflow.NodeDef", ["name"], [tf.string], "local://", "json"), "InvalidArgument", "must be one of"),
    ],
)
def test_what_cannot_be_read_is_an_error_of_the_op(arguments: Any, error: str, words: str) -> None:
    with pytest.raises(getattr(tf.errors, f"{error}Error"), match=words):
        run(tf.io.decode_proto(*arguments).values[0])


@pytest.mark.parametrize(
    "sizes, values, words",
    [
        ([[3]], [np.ones((1, 2), np.int64)], r"Size to write must not be larger .* 3 > 2 at message 0 field 0"),
        ([[2]], [np.ones((1, 2), np.int32)], "Incompatible type for"),
        ([[2, 1]], [np.ones((1, 2), np.int64)], r"sizes should be batch_size .*Saw: \[1,2\] but expected: \[1,1\]"),
    ],
)
def test_what_cannot_be_written_is_an_error_of_the_op(sizes: Any, values: Any, words: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        run(tf.io.encode_proto(sizes, values, ["value"], "tensorflow.Int64List"))


def test_one_value_of_a_field_that_is_not_repeated() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="has one value at most, but got 2"):
        run(tf.io.encode_proto([[2]], [[["a", "b"]]], ["name"], "tensorflow.NodeDef"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="not of type message"):
        run(tf.io.encode_proto([[1]], [[[b"\xff"]]], ["features"], "tensorflow.Example"))


def test_map_entries_are_messages() -> None:
    example = tf.train.Example()
    example.features.feature["a"].int64_list.value.append(1)
    data = example.features.SerializeToString()
    _, (entries,) = run(tf.io.decode_proto(data, "tensorflow.Features", ["feature"], [tf.string]))
    (back,) = run(tf.io.encode_proto([[1]], [[entries]], ["feature"], "tensorflow.Features"))
    assert tf.train.Features.FromString(back) == example.features
