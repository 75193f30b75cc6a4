"""Structures as the messages of SavedModels; the bytes are TensorFlow 1.15.5's."""

from __future__ import annotations

import collections
from typing import Any

import pytest

import tfmini as tf
from tfmini.train.checkpointing import structure_coder

Pair = collections.namedtuple("Pair", ("a", "b"))
_OPEN = b"\x0b\x08" + b"\xff" * 9 + b"\x01"  # an unknown size
# What TensorFlow 1.15.5 writes.
MESSAGES: list[tuple[Any, bytes]] = [
    (
        [1, 2.5, "s", None, True, (3,)],
        b"\x9a\x03%\n\x02`\x02\n\tY\0\0\0\0\0\0\x04@\n\x03j\x01s\n\x02\n\0\n\x02p\x01\n\x07\xa2\x03\x04\n\x02`\x06",
    ),
    (
        Pair(tf.TensorShape([1, None]), tf.float32),
        b"\xb2\x03+\n\x04Pair\x12\x19\n\x01a\x12\x14\xfa\x01\x11\x12\x02\x08\x01\x12" + _OPEN
        + b"\x12\x08\n\x01b\x12\x03\x80\x02\x01",
    ),
    (tf.TensorSpec([2, None], tf.int32, "n"), b"\x8a\x02\x18\n\x01n\x12\x11\x12\x02\x08\x02\x12" + _OPEN + b"\x18\x03"),
    (tf.TensorSpec(None, tf.int32), b"\x8a\x02\x06\x12\x02\x18\x01\x18\x03"),
    (
        tf.RaggedTensorSpec([2, None], tf.int64),
        b"\x92\x02=\x08\x03\x12'\xa2\x03$\n\x14\xfa\x01\x11\x12\x02\x08\x02\x12" + _OPEN
        + b"\n\x03\x80\x02\t\n\x02`\x02\n\x03\x80\x02\t\x1a\x10RaggedTensorSpec",
    ),
    (
        tf.SparseTensorSpec([2, None], tf.int64),
        b"\x92\x024\x08\x01\x12\x1e\xa2\x03\x1b\n\x14\xfa\x01\x11\x12\x02\x08\x02\x12" + _OPEN
        + b"\n\x03\x80\x02\t\x1a\x10SparseTensorSpec",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("value", "message"), MESSAGES)
def test_structures_are_the_messages_of_tensorflow(value: Any, message: bytes) -> None:
    coder = structure_coder.StructureCoder()
    found = coder.encode_structure(value)
    assert found.SerializeToString() == message
    back = coder.decode_proto(type(found).FromString(message))
    assert repr(back) == repr(value) and type(back).__name__ == type(value).__name__


def test_what_no_message_can_hold_is_refused() -> None:
    coder = structure_coder.StructureCoder()
    assert coder.can_encode({"a": [1]}) and not coder.can_encode([object()])
    with pytest.raises(structure_coder.NotEncodableError, match="No encoder for object"):
        coder.encode_structure([{1}])
