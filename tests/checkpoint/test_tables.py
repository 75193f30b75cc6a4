"""Tables, slices and string tensors: the encodings that checkpoint files are made of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfmini import protos
from tfmini.checkpoint import checksums, encoding, slices, sstable, varint
from tfmini.checkpoint.slices import FULL, Slice

KEYS = st.dictionaries(st.binary(max_size=12), st.binary(max_size=40), max_size=60)


@given(KEYS, st.sampled_from([16, 200, 262144]))
def test_a_table_gives_back_what_was_put_in(items: dict[bytes, bytes], block_size: int) -> None:
    ordered = sorted(items.items())
    assert list(sstable.read(sstable.build(ordered, block_size))) == ordered


def test_keys_must_rise() -> None:
    with pytest.raises(ValueError, match="keys out of order: b'a' after b'b'"):
        sstable.build([(b"b", b""), (b"a", b"")])


def test_the_bytes_of_an_empty_table() -> None:
    table = sstable.build([])
    # Meta-index and index: one restart at 0 each, and their checksums.
    block = bytes.fromhex("00000000 01000000 00")
    assert table.startswith(block) and len(table) == 2 * 13 + 48
    assert table.endswith(bytes.fromhex("57fb808b247547db"))


@given(st.data())
def test_no_altered_byte_of_a_table_goes_unnoticed(data: st.DataObject) -> None:
    items = [(b"key%03d" % i, b"value" * (i % 4)) for i in range(40)]
    table = sstable.build(items, 100)
    position = data.draw(st.integers(0, len(table) - 1))
    altered = bytearray(table)
    altered[position] ^= data.draw(st.integers(1, 255))
    try:
        found = list(sstable.read(bytes(altered)))
    except sstable.TableError:
        return
    assert found == items  # a byte that says nothing: the footer's padding, the handle of the empty meta-index


@given(st.integers(0, 1500))
def test_a_torn_table_is_refused(size: int) -> None:
    table = sstable.build([(b"key%03d" % i, b"value") for i in range(100)], 200)
    with pytest.raises(sstable.TableError):
        list(sstable.read(table[: min(size, len(table) - 1)]))


@given(st.integers(0, 2**64 - 1))
def test_varints(value: int) -> None:
    assert varint.decode(varint.encode(value), 0) == (value, len(varint.encode(value)))


def test_a_varint_that_does_not_end() -> None:
    with pytest.raises(ValueError, match="cut short or too long"):
        varint.decode(b"\x80" * 12, 0)


@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62)), min_size=2, max_size=2))
def test_the_code_of_numbers_sorts_as_they_do(pairs: list[tuple[int, int]]) -> None:
    keys = [slices.encode_key("w", Slice((pair,))) for pair in pairs]
    assert (keys[0] < keys[1]) == (pairs[0] < pairs[1])


def test_keys_of_slices_are_tensorflows() -> None:
    key = slices.encode_key("p", Slice(((4, 3), (0, 3))))
    assert key == b"\x00p\x00\x01\x01\x02\x84\x83\x80\x83"
    assert slices.encode_key("p", Slice((FULL,)))[-2:] == b"\x80\x7f"
    assert slices.encode_key("p", Slice(((64, 8192),)))[-5:] == bytes.fromhex("c040 e02000")


def test_specifications_of_slices() -> None:
    shape, part = slices.parse("10 3 2,4:-")
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
def test_specifications_that_are_none(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        slices.parse(text)


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_strings(texts: list[bytes]) -> None:
    data, crc = encoding.encode_strings(texts)
    assert encoding.decode_strings(data, len(texts)) == (texts, crc)


def test_checksums() -> None:
    assert checksums.extend(0, b"123456789") == 0xE3069283
    assert checksums.masked(0) == 0xA282EAD8
    long = np.arange(3 * checksums.PIECE, dtype=np.uint8)
    assert checksums.extend(0, long) == checksums.extend(checksums.extend(0, long[:5]), long[5:])
