"""Objects between workers travel as data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfmini.compat.horovod.functions import decode, encode

_plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
_keys = st.integers() | st.text() | st.tuples(st.integers(), st.text())
_objects = st.recursive(
    _plain | st.complex_numbers(allow_nan=False) | st.frozensets(st.integers()) | st.sets(st.text()),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(_keys, inner),
)


@settings(max_examples=100, deadline=None)
@given(_objects)
def test_what_is_sent_comes(value: object) -> None:
    got = decode(encode(value))
    assert got == value and type(got) is type(value)


def test_arrays_keep_dtype_and_shape() -> None:
    array, scalar = decode(encode([np.arange(6, dtype=">i2").reshape(2, 3), np.float32(1.5)]))
    assert array.dtype == ">i2" and array.tolist() == [[0, 1, 2], [3, 4, 5]] and array.flags.writeable
    assert type(scalar) is np.float32 and scalar == 1.5


@pytest.mark.parametrize("value", [object(), [len], {"a": np.array([object()])}, range(3)])
def test_what_is_no_data_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="data only. Send numbers"):
        encode(value)
