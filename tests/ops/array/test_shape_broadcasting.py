"""Broadcasting by shapes that come with each step."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf


def broadcast(value: object, sizes: object) -> np.ndarray:
    """The value of `broadcast_to` whose operands are known in the step only."""
    x, shape = tf.placeholder(tf.float32), tf.placeholder(tf.int32)
    with tf.Session() as session:
        return session.run(tf.broadcast_to(x, shape), {x: value, shape: sizes})


@pytest.mark.parametrize("sizes", [(2, 3), (500, 3), (0, 3), (1, 1, 3)])  # small and large results
def test_broadcast_to_repeats_along_the_new_axes(sizes: tuple[int, ...]) -> None:
    assert np.array_equal(broadcast([1, 2, 3], sizes), np.broadcast_to(np.float32([1, 2, 3]), sizes))


@pytest.mark.parametrize(
    "value, sizes",
    [([1, 2, 3], [2]), ([[[1, 2, 3]]], [3]), ([[[1, 2, 3]]], [500, 3]), ([1, 2, 3], [-1, 3]), ([1, 2, 3], [-1, -3])],
)
def test_broadcast_to_refuses_sizes_that_do_not_fit(value: object, sizes: object) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="Incompatible shapes"):
        broadcast(value, sizes)


def test_axes_that_a_client_changes_are_right_in_the_next_step() -> None:
    a, b = tf.placeholder(tf.int32), tf.placeholder(tf.int32)
    axes = tf.raw_ops.BroadcastGradientArgs(s0=a, s1=b)
    with tf.Session() as session:
        for _ in range(2):
            left, right = session.run(axes, {a: [5, 3], b: [3]})
            assert (left.tolist(), right.tolist()) == ([], [0])
            right += 7


def test_axes_of_many_sizes() -> None:
    a, b = tf.placeholder(tf.int64), tf.placeholder(tf.int64)
    axes = tf.raw_ops.BroadcastGradientArgs(s0=a, s1=b)
    with tf.Session() as session:
        left, right = session.run(axes, {a: [2] * 100, b: [1] + [2] * 99})
    assert (left.tolist(), right.tolist()) == ([], [0])
    assert right.dtype == np.int64
