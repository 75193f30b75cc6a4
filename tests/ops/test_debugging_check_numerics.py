"""Checks for numbers that are not finite."""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.ops.session_run import run


def test_nan_and_inf_are_refused_where_they_first_appear() -> None:
    value = tf.placeholder(tf.float32)
    check = tf.debugging.assert_all_finite(tf.log(value), "logarithm")
    assert run(check, {value: 1.0}) == 0
    with pytest.raises(tf.errors.InvalidArgumentError, match="logarithm"):
        run(check, {value: -1.0})
    with pytest.raises(tf.errors.InvalidArgumentError, match="Inf"):
        run(tf.add_check_numerics_ops(), {value: 0.0})
