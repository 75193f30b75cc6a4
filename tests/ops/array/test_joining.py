"""Tensors put together."""

from __future__ import annotations

import tfmini as tf


def test_a_list_of_tensors_is_packed_as_the_dtype_of_the_others() -> None:
    number = tf.constant(3)
    assert tf.concat([tf.zeros([2, 1], tf.int64), [[number], [number]]], axis=1).dtype == tf.int64
