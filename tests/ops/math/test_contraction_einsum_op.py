"""The op Einsum."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf


def test_the_gradient_of_a_repeated_subscript_is_its_slope() -> None:
    x = tf.constant(np.random.RandomState(0).rand(3, 2, 3), tf.float32)
    y = tf.constant(np.random.RandomState(1).rand(2, 4), tf.float32)
    out = tf.einsum("iji,jk->ik", x, y)
    with tf.Session():
        assert tf.test.compute_gradient_error(x, [3, 2, 3], out, [3, 4]) < 1e-3


def test_operands_must_be_as_many_as_the_equation_has() -> None:
    with pytest.raises(ValueError, match="expecting 1"):
        tf.einsum("ij->i", tf.ones([3, 2]), tf.ones([2, 4]))
