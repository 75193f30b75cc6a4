"""Integers of variable length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfmini.checkpoint import files


@given(st.integers(0, 2**64 - 1))
def test_a_varint_is_decoded_as_it_was_encoded(value: int) -> None:
    assert files.decode(files.encode(value), 0) == (value, len(files.encode(value)))


def test_a_varint_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="truncated or too long"):
        files.decode(b"\x80" * 12, 0)
