"""Moments and normalisation."""

from __future__ import annotations

import numpy as np

import tfmini as tf
from tests.ops.session_run import run


def test_weighted_moments_and_sufficient_statistics_are_numpys() -> None:
    x, weights = np.random.RandomState(0).randn(4, 3), np.array([[1.0], [2.0], [0.0], [3.0]])
    mean, variance = run(tf.nn.weighted_moments(tf.constant(x), [0], weights))
    expected = np.average(x, axis=0, weights=weights[:, 0])
    np.testing.assert_allclose(mean, expected)
    np.testing.assert_allclose(variance, np.average((x - expected) ** 2, axis=0, weights=weights[:, 0]))
    count, total, squares, _ = tf.nn.sufficient_statistics(tf.constant(x), [0, 1], shift=1.0)
    found = run([count, total, squares])
    np.testing.assert_allclose(found, [12, (x - 1).sum(), ((x - 1) ** 2).sum()])
