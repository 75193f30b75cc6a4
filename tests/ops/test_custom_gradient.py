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
