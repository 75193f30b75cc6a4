"""Numbers of elements that are known before a dataset is read."""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.data.elements import elements

Dataset = tf.data.Dataset
experimental = tf.data.experimental


COUNTED = {
    "slices": lambda d: Dataset.from_tensor_slices([[1], [2], [3]]),
    "one": lambda d: Dataset.from_tensors([1, 2]),
    "map": lambda d: d.map(lambda x: x, 2).shuffle(3).prefetch(2).cache(),
    "batch": lambda d: d.batch(2),
    "batch_drop": lambda d: d.batch(2, drop_remainder=True),
    "take": lambda d: d.take(3),
    "take_more": lambda d: d.take(9),
    "take_all": lambda d: d.take(-1),
    "skip": lambda d: d.skip(2),
    "skip_more": lambda d: d.skip(9),
    "shard": lambda d: d.shard(3, 1),
    "repeat": lambda d: d.repeat(3),
    "never": lambda d: d.repeat(0),
    "part of what has no end": lambda d: d.repeat().take(4),
    "zip": lambda d: Dataset.zip((d, d.repeat(), d.skip(1))),
    "concatenate": lambda d: d.concatenate(d),
    "window": lambda d: d.window(2, 1, drop_remainder=True),
    "window_gap": lambda d: d.window(2, 3),
    "window_stride": lambda d: d.window(2, 1, 2, drop_remainder=True),
    "nothing": lambda d: d.skip(9).repeat(),
}


@pytest.mark.parametrize("name", list(COUNTED))
def test_the_number_of_elements_is_known_beforehand(name: str) -> None:
    data = COUNTED[name](Dataset.range(5))
    with tf.Session() as session:
        count = session.run(experimental.cardinality(data))
    if "window" in name:
        data = data.flat_map(lambda w: w.batch(9))
    assert count == len(elements(data))


def test_a_number_of_elements_may_be_infinite_or_unknown() -> None:
    data = Dataset.range(5)
    odd = data.filter(lambda x: x > 2)
    for made, expected in [
        (data.repeat(), experimental.INFINITE_CARDINALITY),
        (data.repeat().batch(2).concatenate(odd), experimental.INFINITE_CARDINALITY),
        (odd.repeat(), experimental.INFINITE_CARDINALITY),
        (odd.batch(2), experimental.UNKNOWN_CARDINALITY),
        (odd.take(2), experimental.UNKNOWN_CARDINALITY),
        (data.flat_map(lambda x: Dataset.range(x)), experimental.UNKNOWN_CARDINALITY),
        (Dataset.zip((data, odd)), experimental.UNKNOWN_CARDINALITY),
        (Dataset.zip((data.repeat(), data.repeat())), experimental.INFINITE_CARDINALITY),
    ]:
        with tf.Session() as session:
            assert session.run(experimental.cardinality(made)) == expected
