"""Distributions whose shapes must be known: an unknown number of axes is an error, never none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tfmini as tf

ds = tf.contrib.distributions
CASES: dict[str, Callable[[Any], Any]] = {
    "independent": lambda x: ds.Independent(ds.Normal(x, 1.0)).log_prob(x),
    "batch": lambda x: ds.BatchReshape(ds.Normal(x, 1.0), [6]).sample(),
    "event": lambda x: ds.TransformedDistribution(ds.Normal(0.0, 1.0), event_shape=tf.cast(x, tf.int32)).log_prob(x),
}


@pytest.mark.parametrize("name", CASES)
def test_an_unknown_number_of_axes_is_told(name: str) -> None:
    with pytest.raises(ValueError, match="number of axes of .* must be known; give the placeholder"):
        CASES[name](tf.placeholder(tf.float32))


def test_the_vectors_of_a_scale_are_known_without_those_of_the_means() -> None:
    x = tf.placeholder(tf.float32)
    with tf.Session() as session:
        found = session.run(ds.MultivariateNormalDiag(x, [1.0, 2.0]).log_prob(x), {x: [[1.0, 2.0], [3.0, 4.0]]})
    assert found.tolist() == pytest.approx([-2.5310242] * 2)


def test_with_the_number_given_nothing_must_be_known() -> None:
    x = tf.placeholder(tf.float32)
    found = ds.Independent(ds.Normal(x, 1.0), reinterpreted_batch_ndims=1).log_prob(x)
    with tf.Session() as session:
        assert session.run(found, {x: [[0.0, 0.0]]}) == pytest.approx([-1.837877])
