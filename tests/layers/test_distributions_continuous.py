"""Continuous distributions: their functions against TensorFlow's, samples against their means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.expressions import check, outcome, outcomes

_FUNCTIONS = "d.prob(x), d.log_prob(x), d.cdf(x), d.mean()"
_MORE = f"{_FUNCTIONS}, d.entropy(), d.variance(), d.stddev()"
_LIST = "(lambda d, x: [{functions}])(tf.distributions.{made}, {value})"
CASES = {
    made: _LIST.format(functions=functions, made=made, value=value)
    for made, value, functions in (
        ("Normal([0., 1.], [[1.], [2.]])", "[.5, -1.]", _MORE + ", d.mode(), d.survival_function(x)"),
        ("Uniform([0., 1.], 3.)", "[.5, 3.]", _MORE), ("Laplace([0., 1.], 2.)", "[.5, -1.]", _MORE + ", d.mode()"),
        ("Normal(0., 1.)", "[-20., -9.9, -10.1, 6., 3.]", "d.log_cdf(x)"),
        ("Laplace(0., 1.)", "[-120., 120.]", "d.log_cdf(x), d.log_survival_function(x)"),
        ("Gamma([.5, 3.], [2., 1.])", "[.5, 1.]", _MORE + ", d.mode()"), ("Exponential([.5, 3.])", "[.5, 1.]", _MORE),
        ("Beta([1.5, 3.], [2., 2.])", "[.5, .9]", _MORE + ", d.mode()"),
        ("Beta([.5, 1., 3.], [2., 1., .5])", "[.5, .1, .2]", "d.mode(), d.prob(x)"),
        ("StudentT([.5, 1., 1.5, 2., 3., 5.], 0., 2.)", "[.5, 1., .1, .2, .3, 1.]", _MORE + ", d.mode()"),
        ("StudentT(3., [0., 1.], [[2.], [1.]])", "[.5, 1.]", _MORE), ("StudentT(3., 0., -2.)", "[.5, 1.]", _MORE),
        ("Dirichlet([[1., 2., 3.], [2., 2., 2.]])", "[.2, .3, .5]",
         "d.prob(x), d.mean(), d.variance(), d.entropy(), d.covariance()"),
        ("Dirichlet([.5, 2., 3.])", "[.2, .3, .5]", "d.mode()"),
        ("Dirichlet([1.5, 2., 3.])", "[.2, .3, .5]", "d.mode()"),
    )
}  # fmt: skip
CASES["divergences"] = (
    "[tf.distributions.kl_divergence(a, b) for a, b in ((tf.distributions.Normal(0., 1.),"
    " tf.distributions.Normal([1., 2.], 2.)), (tf.distributions.Gamma(2., 1.), tf.distributions.Gamma(3., 2.)),"
    " (tf.distributions.Beta(2., 1.), tf.distributions.Beta(3., 2.)),"
    " (tf.distributions.Dirichlet([2., 1.]), tf.distributions.Dirichlet([3., 2.])))]"
)


@pytest.fixture(scope="module")
def theirs(oracle: Any) -> dict[str, Any]:
    return oracle.call(outcomes, CASES)  # type: ignore[no-any-return]


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES)
def test_functions_are_tensorflows(case: str, theirs: dict[str, Any]) -> None:
    check(outcome(tf, CASES[case]), theirs[case], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("made", "mean"),
    [
        (lambda d: d.Normal(1.0, 2.0), 1.0), (lambda d: d.Gamma(3.0, 2.0), 1.5), (lambda d: d.Beta(2.0, 3.0), 0.4),
        (lambda d: d.Laplace(1.0, 1.0), 1.0), (lambda d: d.Exponential(2.0), 0.5), (lambda d: d.Uniform(1.0, 3.0), 2.0),
        (lambda d: d.StudentT(5.0, 1.0, 1.0), 1.0), (lambda d: d.Dirichlet([1.0, 3.0]), [0.25, 0.75]),
    ],
)  # fmt: skip
def test_samples_have_their_mean(made: Any, mean: Any) -> None:
    drawn = made(tf.distributions).sample(50000, seed=1)
    with tf.Session() as session:
        assert np.allclose(session.run(drawn).mean(0), mean, atol=0.03)


def test_gradients_flow_through_samples() -> None:
    loc, scale = tf.constant(1.0), tf.constant(2.0)
    drawn = tf.distributions.Normal(loc, scale).sample(3, seed=1)
    with tf.Session() as session:
        by_loc, by_scale, value = session.run([*tf.gradients(drawn, [loc, scale]), drawn])
    assert by_loc == 3 and np.isclose(by_scale, ((value - 1) / 2).sum())
