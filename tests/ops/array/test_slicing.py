"""Indices of tensors."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf


class Index:
    """An object of a library that becomes a tensor."""

    def __init__(self, value: int) -> None:
        self.value = value


def _converted(index: Index, dtype: Any = None, name: str | None = None, as_ref: bool = False) -> tf.Tensor:
    return tf.constant(index.value, dtype, name=name)


tf.register_tensor_conversion_function(Index, _converted)


def test_an_index_may_be_an_object_with_a_conversion_function() -> None:
    x = tf.constant([1, 2, 3])
    with tf.Session() as session:
        one, some = session.run([x[Index(1)], x[Index(1) :]])
    assert one == 2 and some.tolist() == [2, 3]


def test_a_slice_that_begins_behind_the_end_is_refused_when_it_is_built() -> None:
    """Its shape had a negative size."""
    with pytest.raises(ValueError, match="Negative dimension size caused by subtracting 4 from 3"):
        tf.slice(tf.ones([3]), [4], [-1])
    with pytest.raises(ValueError, match="Invalid value in tensor used for shape: -2"):
        tf.slice(tf.ones([3]), [1], [-2])
    assert tf.slice(tf.ones([3]), [3], [-1]).shape.as_list() == [0]


def test_a_slice_beyond_the_end_is_refused_when_it_runs() -> None:
    padded = tf.placeholder(tf.bool)
    x = tf.zeros([2, 2])
    made = tf.cond(padded, lambda: tf.pad(x, [[0, 1], [0, 0]]), lambda: tf.slice(x, [0, 0], [3, 2]))
    with tf.Session() as session:
        assert session.run(made, {padded: True}).shape == (3, 2)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Expected size\[0\] in \[0, 2\], but got 3"):
            session.run(made, {padded: False})


def test_the_shape_of_a_slice_from_a_partly_known_begin_is_that_of_tensorflow() -> None:
    step, x = tf.placeholder(tf.int32, []), tf.placeholder(tf.float32, [4, 5, 6])
    cases = (
        ([step, 0, 0], [1, -1, -1], [1, 5, 6]),
        ([step, 2, 5], [-1, -1, 3], [None, 3, 3]),  # only a wholly known begin is checked against other sizes
        ([step, 2, 0], [step, -1, -1], [None, None, None]),
        (tf.shape(x) - 1, [1, -1, -1], [1, 1, 1]),
        ([step, -1, 0], [1, -1, -1], [1, None, 6]),
    )
    for begin, size, shape in cases:
        assert tf.slice(x, begin, size).shape.as_list() == shape
    with pytest.raises(ValueError, match="Negative dimension size caused by subtracting 7 from 5"):
        tf.slice(x, [step, 7, 0], [-1, -1, 3])
