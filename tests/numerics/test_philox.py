"""The random generator Philox."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfmini.numerics import philox


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**34))
def test_words_do_not_depend_on_the_position_of_the_first_one(seed, seed2, skip):
    generator = philox.PhiloxGenerator(seed, seed2)
    start = generator.reserve(skip) + 2**64 - 3
    whole = generator.words(start, 6)
    again = np.concatenate([generator.words(start + i, 1) for i in range(6)])
    assert np.array_equal(whole, again)


def test_words_are_those_of_the_known_answer_test():
    # Known-answer test of Random123: counter and key of all ones.
    generator = philox.PhiloxGenerator(2**64 - 1, 2**64 - 1)
    words = generator.words(2**128 - 1, 1)
    assert [f"{w:08x}" for w in words[0]] == ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"]


@pytest.mark.parametrize("draw", [philox.normal, philox.truncated_normal])
def test_normal_values_take_little_more_memory_than_they_have(draw):
    size = 2_000_003
    tracemalloc.start()
    try:
        values = draw(philox.PhiloxGenerator(1, 2), size, np.dtype(np.float32))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert values.shape == (size,) and peak < 2 * values.nbytes
    # The beginning of a long draw is a short one: passes are no new streams.
    for count in (5, 100_001):
        assert np.array_equal(draw(philox.PhiloxGenerator(1, 2), count, np.dtype(np.float32)), values[:count])
