"""Discrete distributions: values from their formulas, samples against their means."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run

tfd = tf.distributions


def test_bernoulli() -> None:
    d = tfd.Bernoulli(probs=[0.2, 0.5])
    assert np.allclose(run(d.prob([1, 0])), [0.2, 0.5]) and run(d.mode()).tolist() == [0, 0]
    assert np.allclose(run(d.entropy()), -np.array([0.2 * np.log(0.2) + 0.8 * np.log(0.8), np.log(0.5)]))
    assert np.allclose(run([d.mean(), d.variance()]), [[0.2, 0.5], [0.16, 0.25]]) and d.dtype == tf.int32
    assert np.allclose(run(d.sample(20000, seed=1)).mean(0), [0.2, 0.5], atol=0.02)
    assert np.isclose(run(tfd.kl_divergence(tfd.Bernoulli(0.3), tfd.Bernoulli(1.0))), 0.05683, atol=1e-4)


def test_categorical() -> None:
    probs = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
    d = tfd.Categorical(probs=probs.astype(np.float32))
    assert np.allclose(run(d.log_prob([2, 0])), np.log([0.7, 0.3]), atol=1e-5)
    assert np.allclose(run(d.entropy()), -(probs * np.log(probs)).sum(1), atol=1e-5)
    assert run(d.mode()).tolist() == [2, 2] and d.batch_shape.as_list() == [2] and d.event_shape.as_list() == []
    drawn = run(d.sample([100, 200], seed=1))
    assert drawn.shape == (100, 200, 2) and drawn.dtype == np.int32
    assert np.allclose([(drawn == k).mean((0, 1)) for k in range(3)], probs.T, atol=0.02)
    assert run(tfd.kl_divergence(d, d)).tolist() == [0, 0]
    with pytest.raises(ValueError, match="probs or logits"):
        tfd.Categorical()


def test_multinomial() -> None:
    d = tfd.Multinomial(4.0, probs=[0.2, 0.8])
    assert np.isclose(run(d.prob([1.0, 3.0])), 4 * 0.2 * 0.8**3) and np.allclose(run(d.mean()), [0.8, 3.2])
    drawn = run(d.sample(5000, seed=1))
    assert (drawn.sum(1) == 4).all() and np.allclose(drawn.mean(0), [0.8, 3.2], atol=0.05)
    assert np.allclose(run(d.covariance()), [[0.64, -0.64], [-0.64, 0.64]])


def test_multinomials_may_have_different_numbers_of_draws() -> None:
    """The values are TensorFlow's."""
    one = tfd.Multinomial([4.0, 3.0], probs=[0.2, 0.8])
    assert one.batch_shape.as_list() == [2] and run(one.batch_shape_tensor()).tolist() == [2]
    assert np.allclose(run(one.mean()), [[0.8, 3.2], [0.6, 2.4]])
    two = tfd.Multinomial([4.0, 3.0], logits=[[0.2, 0.8], [0.1, 0.3]])
    assert np.allclose(run(two.mean()), [[1.4174, 2.5826], [1.3505, 1.6495]], atol=1e-4)
    assert np.allclose(run(two.variance()), [[0.9151, 0.9151], [0.7425, 0.7425]], atol=1e-4)
    assert np.allclose(run(two.covariance())[1], [[0.7425, -0.7425], [-0.7425, 0.7425]], atol=1e-4)
    for d in (one, two):
        drawn = run(d.sample(5000, seed=1))
        assert drawn.shape == (5000, 2, 2) and (drawn.sum(2) == [4, 3]).all()
        assert np.allclose(drawn.mean(0), run(d.mean()), atol=0.06)
