"""Tensors filled with one value."""

from __future__ import annotations

import pytest

import tfmini as tf


def test_fill_refuses_a_value_that_is_not_scalar() -> None:
    with pytest.raises(ValueError, match="must be rank 0 but is rank 1"):
        tf.fill([3, 2], [1.0, 2.0])


def test_a_range_that_no_array_can_hold_exhausts_resources() -> None:
    with tf.Session() as session, pytest.raises(tf.errors.ResourceExhaustedError):
        session.run(tf.range(0, tf.placeholder_with_default(tf.constant(2**63 - 1, tf.int64), [])))
