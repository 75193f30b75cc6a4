"""Fractional pooling: windows drawn at random, and what is refused. Its numbers are in `tests.programs.era_ops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.evaluate import evaluate

X = np.arange(72, dtype=np.float32).reshape(1, 8, 9, 1)
POOLS = [tf.nn.fractional_max_pool, tf.nn.fractional_avg_pool]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("pseudo_random", [False, True])
def test_windows_without_a_seed_differ_by_one_element_and_from_run_to_run(
    pool: Callable[..., Any], pseudo_random: bool
) -> None:
    image = tf.placeholder(tf.float32, [1, 60, 1, 1])
    bounds = pool(image, [1, 1.4, 1, 1], pseudo_random=pseudo_random)[1]
    with tf.Session() as session:
        drawn = [session.run(bounds, {image: np.zeros((1, 60, 1, 1))}) for _ in range(8)]
    assert len({tuple(each.tolist()) for each in drawn}) > 1
    for each in drawn:
        assert (each[0], each[-1], len(each)) == (0, 60, 43) and set(np.diff(each)) == {1, 2}


def test_a_deterministic_pool_without_a_seed_keeps_its_windows() -> None:
    image = tf.placeholder(tf.float32, [1, 60, 1, 1])
    bounds = tf.nn.fractional_max_pool(image, [1, 1.4, 1, 1], deterministic=True)[1]
    with tf.Session() as session:
        drawn = [session.run(bounds, {image: np.zeros((1, 60, 1, 1))}).tolist() for _ in range(3)]
    assert drawn[0] == drawn[1] == drawn[2]


def test_the_gradient_of_an_image_of_unknown_size_is_that_of_a_known_one() -> None:
    known, unknown = tf.constant(X), tf.placeholder_with_default(X, None)
    grads = [tf.gradients(tf.nn.fractional_avg_pool(x, [1, 1.7, 2.2, 1], True, True, True, 5, 2)[0], [x])[0]
             for x in (known, unknown)]  # fmt: skip
    one, other = evaluate(grads)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("ratio", "options", "error", "message"),
    [
        ([1, 9, 1, 1], {}, tf.errors.InvalidArgumentError, "Pooling ratio is higher than input dimension size"),
        ([1, 0.5, 1, 1], {}, tf.errors.InvalidArgumentError, "cannot be smaller than 1"),
        ([2, 1, 1, 1], {}, tf.errors.UnimplementedError, "not yet supported on the batch"),
        ([1, 2, 1, 1], {"seed": 3}, tf.errors.InvalidArgumentError, "should be 0 if deterministic is false"),
    ],
)
def test_odd_windows_are_refused(ratio: list[float], options: dict[str, int], error: Any, message: str) -> None:
    image = tf.placeholder_with_default(X, None)
    with pytest.raises(error, match=message):
        evaluate(tf.nn.fractional_max_pool(image, ratio, **options)[0])


@pytest.mark.parametrize("rows", [[0, 2], [0, 3, 3], [-1, 2, 4], [0, 2, 9]])
def test_bounds_outside_the_image_are_refused(rows: list[int]) -> None:
    grad = tf.raw_ops.FractionalAvgPoolGrad(
        orig_input_tensor_shape=np.array([1, 4, 2, 1]), out_backprop=np.ones((1, 2, 1, 1), np.float32),
        row_pooling_sequence=tf.constant(rows, tf.int64), col_pooling_sequence=tf.constant([0, 2], tf.int64),
    )  # fmt: skip
    with pytest.raises(tf.errors.InvalidArgumentError, match="row_pooling_sequence must"):
        evaluate(grad)
