"""The random generator Philox."""

from __future__ import annotations

import numpy as np
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
