"""The optimizer FTRL."""

from __future__ import annotations

import pytest

import tfmini as tf


@pytest.mark.parametrize("shrinkage", [0.0, 0.1])
def test_a_scalar_is_updated(shrinkage: float) -> None:
    x = tf.Variable(3.0)
    l1 = 0.1 if shrinkage else 0.0
    optimizer = tf.train.FtrlOptimizer(
        0.1, l1_regularization_strength=l1, l2_shrinkage_regularization_strength=shrinkage
    )
    op = optimizer.minimize(x * x)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(op)
        session.run(op)
        assert session.run(x) == pytest.approx(2.656606 if shrinkage else 2.674826)  # TensorFlow's values


def test_hyper_parameters_of_the_wrong_sign_are_refused() -> None:
    for arguments in ({"learning_rate_power": 0.1}, {"initial_accumulator_value": -1.0}):
        with pytest.raises(ValueError, match=f"{next(iter(arguments))} .* needs to be"):
            tf.train.FtrlOptimizer(0.1, **arguments)
