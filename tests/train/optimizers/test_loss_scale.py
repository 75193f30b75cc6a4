"""Loss scales, and the optimizer that uses them."""

from __future__ import annotations

import math

import pytest

import tfmini as tf
from tfmini.train.optimizers.loss_scale import get


def test_fixed_scale_ignores_gradients() -> None:
    scale = tf.train.experimental.FixedLossScale(8)
    _, may_apply = scale.update([tf.constant(math.nan)])
    assert may_apply is True
    assert repr(type(scale).from_config(scale.get_config())) == "FixedLossScale(8.0)"


@pytest.mark.parametrize("value", [0, "8"])
def test_a_fixed_scale_below_one_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="loss_scale_value must be"):
        tf.train.experimental.FixedLossScale(value)


def test_dynamic_scale_follows_the_gradients() -> None:
    scale = tf.train.experimental.DynamicLossScale(4, increment_period=2, multiplier=2)
    grad = tf.placeholder(tf.float32, [])
    update, may_apply = scale.update([None, grad])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        seen = []
        for value in [1, 1, math.nan, math.inf, math.nan, math.nan, 1]:
            allowed = session.run([update, may_apply], {grad: value})[1]
            assert allowed == math.isfinite(value)
            seen.append(float(session.run(scale())))
    assert seen == [4, 8, 4, 2, 1, 1, 1]


def test_get_names_what_it_cannot_read() -> None:
    assert get(None) is None
    assert get(3)().dtype == tf.float32
    with pytest.raises(ValueError, match="Could not interpret loss scale identifier: high"):
        get("high")


def test_optimizer_skips_a_step_whose_gradients_are_not_finite() -> None:
    var = tf.Variable([1.0, 2.0])
    factor = tf.placeholder(tf.float32, [])
    step = tf.train.get_or_create_global_step()
    scale = tf.train.experimental.DynamicLossScale(2, increment_period=1)
    optimizer = tf.train.experimental.MixedPrecisionLossScaleOptimizer(tf.train.GradientDescentOptimizer(1.0), scale)
    train = optimizer.minimize(factor * tf.reduce_sum(var), global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train, {factor: math.nan})
        assert session.run(var).tolist() == [1.0, 2.0]
        assert session.run([step, scale()]) == [0, 1.0]
        session.run(train, {factor: 0.5})
        assert session.run(var).tolist() == [0.5, 1.5]
        assert session.run([step, scale()]) == [1, 2.0]
