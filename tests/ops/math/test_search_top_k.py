"""`tf.nn.top_k` of a few of many numbers, which are chosen before they are sorted."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf


@pytest.mark.parametrize("count", [2, 30, 99])
@pytest.mark.parametrize("kind", ["distinct", "equal", "nan", "integers", "a row"])
def test_the_largest_of_many_come_in_the_order_of_a_whole_sort(kind: str, count: int) -> None:
    values = np.random.default_rng(count).normal(size=200).astype(np.float32)
    if kind == "equal":
        values = np.round(values)
    elif kind == "nan":
        values[::5] = np.nan
    elif kind == "integers":
        values = (values * 10).astype(np.int32)
    given = values[None] if kind == "a row" else values
    with tf.Session() as session:
        largest, places = session.run(tf.nn.top_k(given, count))
        # Of several rows, all are sorted.
        expected = session.run(tf.nn.top_k(np.stack([values, values]), count))
    np.testing.assert_array_equal(largest.reshape(-1), expected[0][0])
    np.testing.assert_array_equal(places.reshape(-1), expected[1][0])
    assert largest.shape == (*given.shape[:-1], count)
