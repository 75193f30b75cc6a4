"""``tf.scatter_nd``: outputs without elements, and strings."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf


def test_updates_of_an_output_without_elements_are_refused() -> None:
    indices, updates = tf.placeholder(tf.int32), tf.placeholder(tf.int32)
    scattered = tf.scatter_nd(indices, updates, [0, 3, 2])
    block = np.zeros([2, 2, 2], np.int32)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="specified for empty output"):
        session.run(scattered, {indices: block, updates: block})


def test_strings_for_one_place_are_joined() -> None:
    with tf.Session() as session:
        found = session.run(tf.scatter_nd([[1], [1], [0]], ["b", "b", "a"], [3]))
    assert found.tolist() == [b"a", b"bb", b""]


def test_updates_of_an_output_that_is_known_to_be_empty_are_refused_in_the_graph() -> None:
    block = np.zeros([2, 2, 2], np.int32)
    with pytest.raises(ValueError, match="Indices and updates specified for empty output"):
        tf.scatter_nd(block, block, [0, 3, 2])
    nothing = np.zeros([2, 0], np.int32)
    with tf.Session() as session:
        assert session.run(tf.scatter_nd(nothing, nothing, [0])).shape == (0,)
