"""Regularizers and initializers."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run

layers, slim = tf.contrib.layers, tf.contrib.slim


@pytest.mark.parametrize(
    ("regularizer", "wanted"),
    [
        (lambda: layers.l1_regularizer(0.5), 0.5 * 3),
        (lambda: layers.l2_regularizer(0.5), 0.5 * 5 / 2),
        (lambda: layers.l1_l2_regularizer(0.5, 0.5), 0.5 * 3 + 0.5 * 5 / 2),
        (lambda: layers.sum_regularizer([layers.l1_regularizer(1.0), None]), 3),
    ],
)
def test_regularizers_sum_the_norms_of_weights(regularizer, wanted: float) -> None:
    assert run(regularizer()(tf.constant([1.0, -2.0]))) == pytest.approx(wanted)


def test_regularizers_check_their_scale() -> None:
    assert layers.l2_regularizer(0.0)(tf.constant(1.0)) is None
    for scale, told in ((1, "cannot be an integer"), (-1.0, "less than 0")):
        with pytest.raises(ValueError, match=told):
            layers.l2_regularizer(scale)


def test_initializers_have_the_wanted_spread() -> None:
    uniform = layers.xavier_initializer(seed=1)([300, 200])
    normal = layers.variance_scaling_initializer(seed=1)([300, 200])
    u, n = run([uniform, normal])
    assert u.std() == pytest.approx(np.sqrt(2 / 500), rel=0.02)
    assert n.std() == pytest.approx(np.sqrt(2.0 / 300), rel=0.02)
