"""Tensors filled with one value."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf


def test_fill_refuses_a_value_that_is_not_scalar() -> None:
    with pytest.raises(ValueError, match="must be rank 0 but is rank 1"):
        tf.fill([3, 2], [1.0, 2.0])


def test_a_range_that_no_array_can_hold_exhausts_resources() -> None:
    with tf.Session() as session, pytest.raises(tf.errors.ResourceExhaustedError):
        session.run(tf.range(0, tf.placeholder_with_default(tf.constant(2**63 - 1, tf.int64), [])))


def test_kernels_refuse_other_ranks_than_the_shape_function() -> None:
    def unknown(value: object) -> tf.Tensor:
        return tf.placeholder_with_default(tf.constant(value), None)

    cases = [
        (tf.fill(unknown(2), 3), "dims must be a vector"),
        (tf.fill([2], unknown([3])), "value must be a scalar"),
        (tf.range(unknown([0]), 3, 2), "start must be a scalar"),
        (tf.concat([[2], [3]], unknown([0])), "axis tensor should be a scalar integer"),
    ]
    with tf.Session() as session:
        for tensor, message in cases:
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                session.run(tensor)


def test_a_negative_zero_fills_as_one() -> None:
    values = [tf.fill([2], -0.0), tf.constant(-0.0, shape=[2]), tf.one_hot([5], 2, 1.0, -0.0)]
    with tf.Session() as session:
        assert all(np.signbit(found).all() for found in session.run(values))
