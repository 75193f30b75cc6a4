"""Tensors put together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf


def test_a_list_of_tensors_is_packed_as_the_dtype_of_the_others() -> None:
    number = tf.constant(3)
    assert tf.concat([tf.zeros([2, 1], tf.int64), [[number], [number]]], axis=1).dtype == tf.int64


def test_numbers_in_front_of_tensors_take_their_dtype() -> None:
    """The values and the names are those of TensorFlow 1.15.5."""
    wide, row = tf.constant(2.0, tf.float64), tf.constant([1.0, 2.0])
    first = tf.stack([1.0, wide, -wide])
    assert (first.dtype, first.op.inputs[0].op.name) == (tf.float64, "stack/0")
    assert tf.stack((1.0, wide), axis=-1).dtype == tf.float64
    assert tf.stack([np.float64(1.0), tf.constant(3.0)]).dtype == tf.float32
    columns = tf.stack([np.array([3.0, 4.0]), row], axis=1)
    with tf.Session() as session:
        assert session.run(first).tolist() == [1.0, 2.0, -2.0]
        assert session.run(columns).tolist() == [[3.0, 1.0], [4.0, 2.0]]


def test_rows_of_another_type_are_not_cast_in_silence() -> None:
    wide = tf.constant(2.5, tf.float64)
    with pytest.raises(TypeError, match=r"types \[int32, float64\] that don't all match"):
        tf.stack([[1, 2], [wide, wide]], axis=1)  # it was [[1, 2], [2, 2]]
    with pytest.raises(TypeError, match=r"types \[float32, int32\] that don't all match"):
        tf.stack([1.0, tf.constant(3)])


def test_scalars_cannot_be_concatenated() -> None:
    with pytest.raises(ValueError, match="empty list"):
        tf.concat([], 0)
    with pytest.raises(ValueError, match="Can't concatenate scalars"):
        tf.concat([tf.constant(7), tf.constant(8)], tf.placeholder(tf.int32, []))


@pytest.mark.parametrize(
    ("axis", "shapes", "told"),
    [
        (1, [[[2, 3]], [[2, 7]]], "should be a vector"), (4, [[2, 3, 5], [2, 7, 5]], "out of range: 4 vs. 3"),
        (1, [[2, 3, 5], [2, 7, 5, 10]], "should contain 3 elem"),
        (1, [[2, 3, 5], [2, 7, 10]], r"except 1 must match. Input 1 has shape \[2 7 10\] and doesn't match input 0"),
    ],
)  # fmt: skip
def test_offsets_of_shapes_that_do_not_fit_are_refused(axis: int, shapes: Any, told: str) -> None:
    offsets = tf.raw_ops.ConcatOffset(concat_dim=axis, shape=[tf.constant(one) for one in shapes])
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=told):
        session.run(offsets)


def test_a_sparse_gradient_along_a_negative_axis_needs_the_rank() -> None:
    parts = [tf.placeholder(tf.float32), tf.placeholder(tf.float32)]
    with pytest.raises(ValueError, match="known rank"):
        tf.gradients(tf.gather(tf.concat(parts, -2), [2, 0]), parts)


def test_an_axis_outside_of_the_rank_is_refused_by_the_kernel() -> None:
    x = tf.placeholder(tf.float32)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=r"axis = 3 not in \[-1, 1\)"):
        session.run(tf.stack([x, x], 3), {x: 1.0})


def test_a_tensor_is_the_stack_of_its_rows() -> None:
    rows, fed = tf.concat([[3], [4]], 0), tf.placeholder(tf.float32)
    assert tf.stack(rows) is rows and tf.stack(fed) is fed
    assert tf.zeros(tf.stack(rows)).shape.as_list() == [3, 4]
    variable = tf.get_variable("v", initializer=[[1.0, 2.0]], use_resource=True)
    assert tf.stack(variable).shape.as_list() == [1, 2]
    with pytest.raises(TypeError, match="Expected list for 'values' argument to 'Pack' Op"):
        tf.stack(fed, axis=-1)
