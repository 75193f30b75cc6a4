"""Learning rates that change with the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.stateful import run
from tests.oracle import Oracle
from tests.train.optimizers import schedule_cases as cases


@pytest.fixture(scope="module")
def theirs(oracle: Oracle) -> dict[str, Any]:
    return oracle.call(cases.outcomes)


@pytest.mark.oracle
@pytest.mark.parametrize("case", cases.CASES)
def test_rates_are_tensorflows(case: str, theirs: dict[str, Any]) -> None:
    name, values = cases.outcome(tf, case)
    assert name == theirs[case][0]
    assert all(value.dtype == np.float32 for value in values)
    np.testing.assert_allclose(values, theirs[case][1], rtol=2e-6, atol=1e-7)


def test_wrong_arguments_of_schedules_are_refused() -> None:
    with pytest.raises(ValueError, match="global_step is required for exponential_decay."):
        tf.train.exponential_decay(0.1, None, 10, 0.5)
    with pytest.raises(ValueError, match="The length of boundaries should be 1 less than the length of values"):
        tf.train.piecewise_constant(tf.constant(1), [1, 2], [0.1, 0.2])
    with pytest.raises(ValueError, match="must have the same dtype as x"):
        tf.train.piecewise_constant(tf.constant(1), [1.0], [0.1, 0.2])


def test_noisy_decay_is_the_plain_decay_plus_noise() -> None:
    tf.get_default_graph().seed = 3
    step = tf.constant(4)
    plain = tf.train.linear_cosine_decay(0.1, step, 10)
    silent = tf.train.noisy_linear_cosine_decay(0.1, step, 10, initial_variance=0.0)
    assert run(silent) == pytest.approx(run(plain))
    noisy = tf.train.noisy_linear_cosine_decay(0.1, step, 10, initial_variance=4.0, variance_decay=1.0)
    values = np.array([run(noisy) for _ in range(300)])
    wave = 0.5 * (1 + np.cos(np.pi * 0.4))
    np.testing.assert_allclose(values.std(), 0.1 * wave * 2.0 / np.sqrt(5.0), rtol=0.2)
