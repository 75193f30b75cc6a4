"""Optimizers that control a session (`tf.contrib.opt.ScipyOptimizerInterface`); 1.15.5 with scipy finds the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.train.optimizers import research_optimizers


def best(use_resource: bool = False, **options: Any) -> tuple[list[float], float, list[Any]]:
    """The variables v and w that minimize ``2 * |v|² + (w - 1)²``, and what the loss callback saw."""
    with tf.Graph().as_default():
        v = tf.get_variable("v", initializer=np.float32([7.0, 7.0]), use_resource=use_resource)
        w = tf.get_variable("w", initializer=np.float32(2.0), use_resource=use_resource)
        scale = tf.placeholder_with_default(1.0, [])
        loss = tf.reduce_sum(tf.square(v)) * scale + tf.square(w - 1.0)
        made = {key: value(v, w) if callable(value) else value for key, value in options.items()}
        seen: list[Any] = []
        optimizer = tf.contrib.opt.ScipyOptimizerInterface(loss, **made)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            optimizer.minimize(session, {scale: 2.0}, [loss, w], loss_callback=lambda *values: seen.append(values))
            return session.run(v).tolist(), float(session.run(w)), seen


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ([0, 0], 1)),
        ({"method": "CG"}, ([0, 0], 1)),
        ({"var_to_bounds": lambda v, w: {v: ([1, 2], np.inf)}}, ([1, 2], 1)),
        ({"var_to_bounds": lambda v, w: {w: (None, 0.5), v: (2.0, None)}}, ([2, 2], 0.5)),
        ({"equalities": lambda v, w: [v[1] - 1.0], "inequalities": lambda v, w: [v[0] - 1.0], "method": "SLSQP"},
         ([1, 1], 1)),
        ({"var_list": lambda v, w: [v], "options": {"maxiter": 50}}, ([0, 0], 2)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("use_resource", [False, True])
def test_scipy_finds_the_minimum(options: dict[str, Callable[..., Any]], expected: Any, use_resource: bool) -> None:
    v, w, seen = best(use_resource, **options)
    np.testing.assert_allclose([*v, w], [*expected[0], expected[1]], atol=1e-3)
    assert len(seen) > 1 and seen[0][0] == pytest.approx(196 + (seen[0][1] - 1) ** 2)  # the loss and w at the start


def test_arguments_that_the_interface_sets_are_refused() -> None:
    with pytest.raises(ValueError, match="'jac' is set automatically"):
        best(jac=True)


def test_a_base_class_has_no_method() -> None:
    v = tf.get_variable("v", initializer=1.0)
    interface = tf.contrib.opt.ExternalOptimizerInterface(v * v)
    with tf.Session() as session, pytest.raises(NotImplementedError):
        session.run(tf.global_variables_initializer())
        interface.minimize(session)


def test_what_is_missing_is_named() -> None:
    v = tf.get_variable("v", initializer=1.0)
    with pytest.raises(ValueError, match="minimize has no session: give it one"):
        tf.contrib.opt.ScipyOptimizerInterface(v * v).minimize()
    decay = research_optimizers.get_restart_decay_fn(3)
    with pytest.raises(ValueError, match="global_step is required for a decay"):
        tf.contrib.opt.AddSignOptimizer(sign_decay_fn=decay).minimize(v * v)


def test_a_row_that_a_gradient_has_twice_is_clipped_once() -> None:
    v = tf.get_variable("v", initializer=np.float32([[3.0, 4.0], [0.3, 0.4]]))
    inner = tf.train.GradientDescentOptimizer(0.0)
    loss = tf.reduce_sum(tf.gather(v, [0, 1, 0]))
    step = tf.contrib.opt.VariableClippingOptimizer(inner, {v: [1]}, 1.0).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(step)
        np.testing.assert_allclose(session.run(v), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6)
