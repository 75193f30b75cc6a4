from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tfmini.numerics.update_rules import any_outside


@given(
    arrays.arrays(
        st.sampled_from(["int8", "int16", "int32", "int64", "uint8", "uint32"]),
        arrays.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
    ),
    st.one_of(st.integers(-2, 300), st.sampled_from([1 << 31, 1 << 33, 1 << 63])),
)
def test_it_finds_what_a_look_at_each_number_finds(ids, size):
    assert any_outside(ids, size) == any(not 0 <= number < size for number in ids.ravel().tolist())
    assert any_outside(ids[..., ::-1] if ids.ndim else ids, size) == any_outside(ids, size)
