"""Learning rates to compare with TensorFlow: each is an expression over ``tf`` and a placeholder ``step``."""

from __future__ import annotations

from typing import Any

CASES = [
    "tf.train.exponential_decay(0.1, step, 10, 0.5)",
    "tf.train.exponential_decay(0.1, step, 10, 0.5, staircase=True, name='lr')",
    "tf.train.natural_exp_decay(0.1, step, 10, 0.5)",
    "tf.train.inverse_time_decay(0.1, step, 10, 0.5)",
    "tf.train.inverse_time_decay(0.1, step, 10, 0.5, staircase=True)",
    "tf.train.polynomial_decay(0.1, step, 10)",
    "tf.train.polynomial_decay(0.1, step, 10, 0.01, power=2.0)",
    "tf.train.polynomial_decay(0.1, step, 10, 0.01, cycle=True)",
    "tf.train.piecewise_constant(step, [3, 10], [0.1, 0.2, 0.3])",
    "tf.train.piecewise_constant(step, [9], [1.0, 0.5])",
    "tf.train.cosine_decay(0.1, step, 20)",
    "tf.train.cosine_decay(0.1, step, 20, alpha=0.3)",
    "tf.train.cosine_decay_restarts(0.1, step, 4)",
    "tf.train.cosine_decay_restarts(0.1, step, 4, t_mul=1.0, m_mul=0.5, alpha=0.1)",
    "tf.train.cosine_decay_restarts(0.1, step, 4, t_mul=1.5, m_mul=0.9)",
    "tf.train.linear_cosine_decay(0.1, step, 20)",
    "tf.train.linear_cosine_decay(0.1, step, 20, num_periods=2.0, alpha=0.1, beta=0.2)",
]
STEPS = [0, 1, 3, 4, 9, 10, 11, 20, 35]


def outcomes(tf: Any) -> dict[str, Any]:
    """expression -> its `outcome`."""
    return {case: outcome(tf, case) for case in CASES}


def outcome(tf: Any, case: str) -> list[Any]:
    """[name of the rate, its value at each of the steps]."""
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.placeholder(tf.int64, [])
        rate = eval(case, {"tf": tf, "step": step})
        return [rate.name, [session.run(rate, {step: n}) for n in STEPS]]
