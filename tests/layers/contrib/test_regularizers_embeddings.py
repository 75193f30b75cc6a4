"""Embeddings, maxout, and gradients that are scaled."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run

layers, slim = tf.contrib.layers, tf.contrib.slim


def test_words_are_embedded_one_by_one_or_as_a_bag() -> None:
    table = tf.constant_initializer(np.arange(8, dtype=np.float32).reshape(4, 2))
    ids = [[1, 3], [2, 0]]
    plain = layers.embed_sequence(ids, 4, 2, initializer=table)
    once = layers.embed_sequence(ids, 4, 2, unique=True, initializer=table)
    bag = layers.bow_encoder(ids, 4, 2, initializer=table)
    dense = layers.bow_encoder(ids, 4, 2, sparse_lookup=False, initializer=table)
    found = run([plain, once, bag, dense])
    np.testing.assert_array_equal(found[0], [[[2, 3], [6, 7]], [[4, 5], [0, 1]]])
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], [[4, 5], [4, 5]])  # 0 is padding
    np.testing.assert_array_equal(found[3], [[4, 5], [2, 3]])
    with pytest.raises(ValueError, match="Must specify vocab size and embedding dimension"):
        layers.embed_sequence(ids)


def test_maxout_takes_maxima_and_scale_gradient_scales() -> None:
    x = tf.reshape(tf.range(12.0), [2, 6])
    (gradient,) = tf.gradients(layers.scale_gradient(x, 0.25), x)
    found = run([layers.maxout(x, 3), gradient])
    np.testing.assert_array_equal(found[0], [[1, 3, 5], [7, 9, 11]])
    np.testing.assert_array_equal(found[1], np.full((2, 6), 0.25))
    with pytest.raises(ValueError, match=r"number of features\(6\) is not a multiple of num_units\(4\)"):
        layers.maxout(x, 4)
