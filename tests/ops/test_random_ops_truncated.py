"""Truncated normal distributions with bounds for each row."""

from __future__ import annotations

import numpy as np

import tfmini as tf
from tests.ops.session_run import run
from tfmini.ops.random_functions import parameterized_truncated_normal


def test_values_are_within_their_bounds() -> None:
    for low, high in ((-1.0, 2.0), (4.0, np.inf), (-np.inf, -3.0), (0.1, 0.2)):
        values = run(
            tf.raw_ops.ParameterizedTruncatedNormal(
                shape=[2000], means=np.float32(0), stdevs=np.float32(1), minvals=np.float32(low),
                maxvals=np.float32(high), seed=3,
            )
        )  # fmt: skip
        assert low <= values.min() and values.max() <= high


def test_the_function_of_the_private_module_makes_tensorflows_ops() -> None:
    with tf.Graph().as_default() as graph:
        values = parameterized_truncated_normal([2, 3000], means=[0.0, 5.0], minvals=[1.0, 4.0], maxvals=9.0)
        base = "parameterized_truncated_normal"
        inputs = ("shape", "means", "stddevs", "minvals", "maxvals", "ParameterizedTruncatedNormal")
        assert [op.name for op in graph.get_operations()] == [f"{base}/{name}" for name in inputs]
        with tf.Session() as session:
            found = session.run(values)
    assert (found.min(1) >= [1, 4]).all()
    # the means of these distributions: density at the lower bound over the mass above it
    assert np.allclose(found.mean(1), [1.5251, 5.2876], atol=0.06)
