"""Moments and normalisation."""

from __future__ import annotations

import numpy as np
import pytest

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


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("version", ["", "V2", "V3"])
def test_the_unused_results_of_a_batch_norm_gradient_have_the_shapes_of_tensorflow(
    version: str, training: bool
) -> None:
    """A .meta file of TensorFlow 1.15 says them, and would be refused with others."""
    x, ones = tf.ones([2, 3, 3, 6]), tf.ones([6])
    saved = {f"reserve_space_{i}": ones for i in range(1, 4 if version == "V3" else 3)}
    op = getattr(tf.raw_ops, f"FusedBatchNormGrad{version}")
    tensors = list(op(y_backprop=x, x=x, scale=ones, is_training=training, **saved))
    assert [t.shape.as_list() for t in tensors[1:]] == [[6], [6], *[[0 if training else 6]] * 2]
    assert [list(value.shape) for value in run(tensors)] == [t.shape.as_list() for t in tensors]
