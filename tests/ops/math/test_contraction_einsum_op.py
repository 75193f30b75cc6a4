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


def test_a_lone_term_that_is_its_own_mirror_image_means_the_trace_of_the_last_axes() -> None:
    # As in 1.15.5, whose answer for these numbers this is; numpy and TensorFlow 2 sum over both subscripts.
    x = tf.constant(np.arange(16.0).reshape(2, 2, 2, 2))
    with tf.Session() as sess:
        matrices, trace, total = sess.run([tf.einsum("ijji", x), tf.einsum("ii", x[0, 0]), tf.einsum("ijji->", x)])
    assert matrices.tolist() == [[3.0, 11.0], [19.0, 27.0]]
    assert (trace, total) == (3.0, 30.0)
