"""Sorted string tables, the format of a checkpoint's index."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfmini.checkpoint import reader

KEYS = st.dictionaries(st.binary(max_size=12), st.binary(max_size=40), max_size=60)


@given(KEYS, st.sampled_from([16, 200, 262144]))
def test_a_table_round_trips(items: dict[bytes, bytes], block_size: int) -> None:
    ordered = sorted(items.items())
    assert list(reader.read(reader.build(ordered, block_size))) == ordered


def test_keys_must_be_increasing() -> None:
    with pytest.raises(ValueError, match="keys out of order: b'a' after b'b'"):
        reader.build([(b"b", b""), (b"a", b"")])


def test_an_empty_table_has_the_known_bytes() -> None:
    table = reader.build([])
    # Meta-index and index: one restart at 0 each, and their checksums.
    block = bytes.fromhex("00000000 01000000 00")
    assert table.startswith(block) and len(table) == 2 * 13 + 48
    assert table.endswith(bytes.fromhex("57fb808b247547db"))


@given(st.data())
def test_every_corrupt_byte_of_a_table_is_detected(data: st.DataObject) -> None:
    items = [(b"key%03d" % i, b"value" * (i % 4)) for i in range(40)]
    table = reader.build(items, 100)
    position = data.draw(st.integers(0, len(table) - 1))
    corrupt = bytearray(table)
    corrupt[position] ^= data.draw(st.integers(1, 255))
    try:
        found = list(reader.read(bytes(corrupt)))
    except reader.TableError:
        return
    assert found == items  # a byte that says nothing: the footer's padding, the handle of the empty meta-index


@given(st.integers(0, 1500))
def test_a_truncated_table_is_refused(size: int) -> None:
    table = reader.build([(b"key%03d" % i, b"value") for i in range(100)], 200)
    with pytest.raises(reader.TableError):
        list(reader.read(table[: min(size, len(table) - 1)]))
