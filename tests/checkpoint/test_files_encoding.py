"""Tensors as bytes of a data file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfmini.checkpoint import files


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_strings_are_decoded_as_they_were_encoded(texts: list[bytes]) -> None:
    data, crc = files.encode_strings(texts)
    assert files.decode_strings(data, len(texts)) == (texts, crc)
