"""Every message survives a round trip, and TensorFlow reads the same from its bytes."""

from __future__ import annotations

import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import message_factory, text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.oracle import Oracle
from tests.protos import oracle_messages
from tfmini import protos

REPOSITORY = Path(__file__).parents[2]
SEEDS = range(3)

# The one field of 1.15 that TensorFlow 2 has withdrawn; and Any's, whose text needs a known type inside.
NEVER_FILLED = {
    "tfmini.TrackableObjectGraph.TrackableObject.SerializedTensor.optional_restore",
    "google.protobuf.Any.type_url",
}

# Text format and the bytes that TensorFlow writes for it, for when no oracle is at hand.
KNOWN_BYTES = [
    ("BundleHeaderProto", "num_shards: 1 version { producer: 1 }", "08011a020801"),
    ("BundleEntryProto", "dtype: DT_FLOAT shape { dim { size: 2 } } size: 8 crc32c: 1",
     "080112041202080228083501000000"),
    ("NodeDef", 'name: "y" op: "Add" input: "x" input: "^c" device: "/cpu:0"',
     "0a017912034164641a01781a025e6322062f6370753a30"),
    ("AttrValue", "list { type: DT_FLOAT type: DT_INT32 }", "0a0432020103"),
    ("TensorShapeProto", "unknown_rank: true", "1801"),
    ("TensorProto", 'dtype: DT_INT64 tensor_shape { } int64_val: 5 tensor_content: "a"', "08091200220161520105"),
    ("GraphDef", "versions { producer: 134 } library { }", "12002203088601"),
    ("ServerDef", 'cluster { job { name: "w" } } job_name: "w" task_index: 1 protocol: "grpc"',
     "0a050a030a017712017718012a0467727063"),
    ("Event", 'wall_time: 1 file_version: "brain.Event:2"', "09000000000000f03f1a0d627261696e2e4576656e743a32"),
    ("Summary", 'value { tag: "l" simple_value: 1 }', "0a080a016c150000803f"),
    ("Feature", "int64_list { value: [1, 2] }", "1a040a020102"),
    ("ConfigProto", 'device_count { key: "CPU" value: 2 } allow_soft_placement: true', "0a070a0343505510023801"),
    ("SaverDef", 'filename_tensor_name: "f" max_to_keep: 5 version: V2', "0a016620053802"),
    ("HParamDef", 'hparam { key: "b" value { float_list { value: [2, 3.5] } } }',
     "0a110a0162120c2a0a0a080000004000006040"),
    ("QueueRunnerDef", 'queue_name: "q" queue_closed_exception_types: OUT_OF_RANGE', "0a01712a010b"),
]  # fmt: skip


# Their stubs differ from one protobuf version to the next.
Descriptor = Any
Field = Any

_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_REALS = (0.5, -1.25, 3.0, 1e-30, float("inf"), float("-inf"))


def is_repeated(field: Field) -> bool:
    """Like ``FieldDescriptor.is_repeated``, which protobuf 4 and 5 do not have."""
    known = getattr(field, "is_repeated", None)
    return field.label == FieldDescriptor.LABEL_REPEATED if known is None else bool(known)


def is_map(field: Field) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def all_descriptors(top: Descriptor) -> list[Descriptor]:
    """``top`` and the messages nested in it, without map entries."""
    nested = [d for child in top.nested_types if not child.GetOptions().map_entry for d in all_descriptors(child)]
    return [top, *nested]


class Filler:
    """Fills messages; ``skip`` holds the full names of fields that stay unset."""

    def __init__(self, seed: int, skip: Collection[str] = ()) -> None:
        self._rng = random.Random(seed)
        self._skip = skip

    def fill(self, message: Message, depth: int = 3) -> None:
        """Sets every field but those below ``depth`` levels of messages and all but one of each oneof."""
        for field in self._chosen(message.DESCRIPTOR, depth):
            if is_map(field):
                self._fill_map(message, field, depth)
            elif is_repeated(field):
                self._fill_list(message, field, depth)
            elif field.message_type is not None:
                getattr(message, field.name).SetInParent()
                self.fill(getattr(message, field.name), depth - 1)
            else:
                setattr(message, field.name, self._scalar(field))

    def _chosen(self, descriptor: Descriptor, depth: int) -> list[Field]:
        allowed = [f for f in descriptor.fields if f.full_name not in self._skip and (depth or not _is_deep(f))]
        by_oneof: dict[str, list[Field]] = {}
        for field in allowed:
            owner = field.containing_oneof
            by_oneof.setdefault(field.name if owner is None else f"oneof {owner.name}", []).append(field)
        return [self._rng.choice(fields) for fields in by_oneof.values()]

    def _fill_map(self, message: Message, field: Field, depth: int) -> None:
        keys, values = (field.message_type.fields_by_name[part] for part in ("key", "value"))
        target = getattr(message, field.name)
        for _ in range(self._rng.randint(1, 3)):
            key = self._scalar(keys)
            if values.message_type is None:
                target[key] = self._scalar(values)
            else:
                self.fill(target[key], depth - 1)

    def _fill_list(self, message: Message, field: Field, depth: int) -> None:
        target = getattr(message, field.name)
        for _ in range(self._rng.randint(1, 3)):
            if field.message_type is None:
                target.append(self._scalar(field))
            else:
                self.fill(target.add(), depth - 1)

    def _scalar(self, field: Field) -> Any:
        rng = self._rng
        if field.cpp_type in _RANGES:
            low, high = _RANGES[field.cpp_type]
            return rng.choice((low, high, 1, rng.randint(low, high)))
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return True
        if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            return rng.choice(field.enum_type.values).number
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            text = "".join(rng.choice("ab/:^_é→") for _ in range(rng.randint(1, 8)))
            return rng.randbytes(5) if field.type == FieldDescriptor.TYPE_BYTES else text
        return self._float(field)

    def _float(self, field: Field) -> float:
        exact = field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE
        return self._rng.random() if exact else self._rng.choice(_REALS)


def _is_deep(field: Field) -> bool:
    if is_map(field):
        return field.message_type.fields_by_name["value"].message_type is not None
    return field.message_type is not None


def _every_descriptor() -> list[Descriptor]:
    tops = [getattr(protos, name).DESCRIPTOR for name in protos.MODULE_OF]
    return [d for top in tops if hasattr(top, "fields") for d in all_descriptors(top)]


DESCRIPTORS = {d.full_name.removeprefix("tfmini."): d for d in _every_descriptor()}


def _random(name: str, seed: int) -> Message:
    message = message_factory.GetMessageClass(DESCRIPTORS[name])()
    Filler(seed, NEVER_FILLED).fill(message)
    return message


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_bytes_and_text_give_the_message_back(name: str) -> None:
    for message in (_random(name, seed) for seed in SEEDS):
        assert bool(message.ByteSize()) == bool(DESCRIPTORS[name].fields)
        assert type(message).FromString(message.SerializeToString()) == message
        assert text_format.Parse(text_format.MessageToString(message), type(message)()) == message


@pytest.mark.parametrize(("name", "text", "data"), KNOWN_BYTES)
def test_messages_have_their_known_bytes(name: str, text: str, data: str) -> None:
    message = text_format.Parse(text, getattr(protos, name)())
    assert message.SerializeToString(deterministic=True) == bytes.fromhex(data)


def test_enums_have_tensorflows_numbers() -> None:
    assert protos.RunOptions.FULL_TRACE == 3
    assert protos.DataType.Value("DT_BFLOAT16") == 14 and protos.DataType.Value("DT_FLOAT_REF") == 101
    assert protos.OptimizerOptions.L0 == -1 and protos.SaverDef.V2 == 2
    assert protos.Code.Value("OUT_OF_RANGE") == 11


def test_fields_of_newer_writers_are_kept() -> None:
    unknown = bytes.fromhex("a23f0178")
    assert protos.GraphDef.FromString(unknown).SerializeToString() == unknown


@pytest.mark.oracle
def test_tensorflow_reads_and_writes_the_same(oracle: Oracle) -> None:
    names = [name for name in DESCRIPTORS if not name.startswith("HParamDef")]  # of 1.15 alone
    messages = [(name, _random(name, seed)) for name in names for seed in SEEDS]
    asked = [(name, message.SerializeToString()) for name, message in messages]
    answers = oracle.call(oracle_messages.reread_all, asked)
    for (name, message), (text, data) in zip(messages, answers, strict=True):
        assert text_format.Parse(text, type(message)()) == message, name
        assert type(message).FromString(data) == message, name
        assert data == message.SerializeToString(deterministic=True), name
