"""Reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf


def test_the_gradient_of_a_complex_product_is_conjugate() -> None:
    x = tf.constant([1 + 3j, 2 - 1j], tf.complex64)
    (grad,) = tf.gradients(tf.reduce_prod(x), [x], grad_ys=[tf.constant(1, tf.complex64)])
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(grad), np.conj([2 - 1j, 1 + 3j]))


@pytest.mark.parametrize("reduction", [tf.reduce_sum, tf.reduce_mean, tf.reduce_max, tf.reduce_prod])
@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.int32, tf.int8])
def test_no_axes_leave_a_tensor_as_it_is(reduction: Any, dtype: tf.DType) -> None:
    x = tf.placeholder(dtype)
    values = np.array([[-0.0, 1], [-3, 100]], dtype.as_numpy_dtype)
    with tf.Session() as session:
        found = session.run(reduction(x, tf.placeholder_with_default(np.zeros(0, np.int32), [None])), {x: values})
    assert found.dtype == values.dtype
    assert found.tobytes() == values.tobytes()  # the sign of zero, too


def test_an_axis_named_twice_counts_once() -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    with tf.Session() as session:
        sums = [session.run(tf.reduce_sum(x, axes)) for axes in ((0, 0), (1, -1), (-2, -1, 0, 1))]
        assert [np.asarray(s).tolist() for s in sums] == [[5, 7, 9], [6, 15], 21]
        whole = tf.constant(x)
        (grad,) = tf.gradients(tf.reduce_mean(whole, (0, -2)), whole)
        assert session.run(grad).tolist() == [[0.5] * 3] * 2


def test_a_euclidean_norm_over_no_axes_keeps_the_signs() -> None:
    with tf.Session() as session:
        assert session.run(tf.math.reduce_euclidean_norm([-1.0, 3.0], [])).tolist() == [-1, 3]
