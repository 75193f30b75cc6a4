"""Slices of tensors: their keys in a checkpoint, and their specifications."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfmini import protos
from tfmini.checkpoint import reader
from tfmini.checkpoint.reader import FULL, Slice


@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62)), min_size=2, max_size=2))
def test_encoded_numbers_sort_like_the_numbers(pairs: list[tuple[int, int]]) -> None:
    keys = [reader.encode_key("w", Slice((pair,))) for pair in pairs]
    assert (keys[0] < keys[1]) == (pairs[0] < pairs[1])


def test_keys_of_slices_are_tensorflows() -> None:
    key = reader.encode_key("p", Slice(((4, 3), (0, 3))))
    assert key == b"\x00p\x00\x01\x01\x02\x84\x83\x80\x83"
    assert reader.encode_key("p", Slice((FULL,)))[-2:] == b"\x80\x7f"
    assert reader.encode_key("p", Slice(((64, 8192),)))[-5:] == bytes.fromhex("c040 e02000")


def test_a_specification_is_parsed_to_shape_and_slice() -> None:
    shape, part = reader.parse("10 3 2,4:-")
    assert (shape, part.extents, part.shape(shape), part.text) == ((10, 3), ((2, 4), FULL), (4, 3), "2,4:-")
    proto = protos.TensorSliceProto()
    part.to_proto(proto)
    assert Slice.from_proto(proto) == part
    assert Slice(((0, 10), FULL)).covers(shape) and not part.covers(shape)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "Need least two elements in shape_and_slice specification: x"),
        ("3 a", "'start,length' or '-' per axis"),
        ("3 0,0", "'start,length' or '-' per axis"),
        ("3 3 0,1", "Shape rank 2 does not match slice rank 1"),
        ("3 2,2", "Extent in dimension 0 out of bounds: shape = \\[3\\], slice = 2,2"),
    ],
)
def test_invalid_specifications(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reader.parse(text)
