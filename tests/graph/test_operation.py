"""Operations and tensors of a graph."""

from __future__ import annotations

import pytest

import tfmini as tf


def test_an_input_can_be_replaced_by_one_of_its_type_and_shape_only() -> None:
    a, b = tf.constant(1), tf.constant(2)
    total = a + b
    total.op._update_input(0, b)
    assert b.consumers() == [total.op, total.op]
    assert a.experimental_ref() == a.experimental_ref() != b.experimental_ref()
    with pytest.raises(tf.errors.InvalidArgumentError, match="incompatible shapes"):
        total.op._update_input(0, tf.constant([1, 2]))
    with pytest.raises(tf.errors.OutOfRangeError, match="Input index"):
        total.op._update_input(2, a)
