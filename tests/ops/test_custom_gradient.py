"""Functions with gradients of their own."""

from __future__ import annotations

from typing import Any

import tfmini as tf
from tests.ops.session_run import run


def test_a_custom_gradient_replaces_the_derived_one() -> None:
    @tf.custom_gradient
    def log1pexp(x: Any) -> Any:
        e = tf.exp(x)
        return tf.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))

    x = tf.constant(100.0)
    assert run(tf.gradients(log1pexp(x), x)[0]) == 1.0
    y = tf.constant(3.0)
    assert run(tf.gradients(tf.grad_pass_through(tf.square)(y), y)[0]) == 1.0


def test_results_and_gradients_may_be_nested() -> None:
    @tf.custom_gradient
    def scaled(x: tf.Tensor, y: tf.Tensor, z: tf.Tensor) -> Any:
        return (x * 2.0, {"y": y * 3.0, "z": [z]}), lambda *grads: ([grads[0], (grads[1] * 10.0,)], grads[2])

    one = tf.constant(1.0)
    first, rest = scaled(one, one, one)
    found = tf.gradients([first, rest["y"], rest["z"][0]], one)
    with tf.Session() as session:
        assert session.run([first, rest, found]) == [2.0, {"y": 3.0, "z": [1.0]}, [12.0]]
