"""Layers without weights."""

from __future__ import annotations

import numpy as np

import tfmini as tf
from tests.ops.session_run import run

layers, slim = tf.contrib.layers, tf.contrib.slim


def test_dropout_follows_is_training() -> None:
    on = layers.dropout(tf.ones([1000]), 0.5)
    off = layers.dropout(tf.ones([1000]), 0.5, is_training=False)
    on_value, off_value = run([on, off])
    assert set(np.unique(on_value)) == {0.0, 2.0} and (off_value == 1).all()
