"""``tf.unique``: distinct elements in order of first appearance, found in a table or by sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfmini as tf
from tfmini.ops.array import partition


def by_dictionary(x: Any) -> tuple[list[Any], list[int], list[int]]:
    """Values, numbers and counts, element by element."""
    places: dict[Any, int] = {}
    numbers = [places.setdefault(value, len(places)) for value in x.tolist()]
    return list(places), numbers, [numbers.count(i) for i in range(len(places))]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 9), st.integers(-3, 120), st.integers(0, 127)), max_size=40),
    st.sampled_from([np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float32]),
)
def test_unique_elements_come_in_order_of_appearance(elements: list[int], dtype: Any) -> None:
    x = np.array([abs(e) for e in elements] if np.dtype(dtype).kind == "u" else elements, dtype)
    with tf.Graph().as_default(), tf.Session() as session:
        values, numbers = session.run(tf.unique(x))
    wanted_values, wanted_numbers, _ = by_dictionary(x)
    assert values.dtype == dtype
    np.testing.assert_array_equal(values, np.array(wanted_values, dtype))
    np.testing.assert_array_equal(numbers, wanted_numbers)


@pytest.mark.parametrize("largest", [3, partition.TABLE_SIZE - 1, partition.TABLE_SIZE, 1 << 62])
def test_large_integers_are_sorted(largest: int) -> None:
    x = np.array([largest, 1, largest, 2, 1], np.int64)
    with tf.Graph().as_default(), tf.Session() as session:
        values, numbers, counts = session.run(tf.unique_with_counts(x))
    np.testing.assert_array_equal(values, [largest, 1, 2])
    np.testing.assert_array_equal(numbers, [0, 1, 0, 2, 1])
    np.testing.assert_array_equal(counts, [2, 2, 1])


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_each_nan_is_an_element_of_its_own(dtype: Any) -> None:
    """As in TensorFlow 1.15.5."""
    x = tf.constant([np.nan, 1, np.nan, -0.0, 0.0, np.inf, 1], dtype)
    with tf.Session() as session:
        for found in (tf.unique_with_counts(x), tf.raw_ops.UniqueWithCountsV2(x=x, axis=[0])):
            values, numbers, counts = session.run(found)
            np.testing.assert_array_equal(values, [np.nan, 1, np.nan, 0, np.inf])
            assert numbers.tolist() == [0, 1, 2, 3, 3, 4, 1] and counts.tolist() == [1, 2, 1, 2, 1]
