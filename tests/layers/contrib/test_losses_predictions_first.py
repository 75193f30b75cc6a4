"""``tf.contrib.losses``, which ``slim.losses`` are: other arguments and weights than those of ``tf.losses``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf

_P, _L, _Z = [[0.2, 0.8], [0.6, 0.4]], [[0.0, 1.0], [1.0, 0.0]], [[2.0, -1.0], [0.5, 3.0]]

# What TensorFlow 1.15.5 gives.
_CASES: dict[str, tuple[Callable[[Any, Any, Any, Any], Any], Any]] = {
    "softmax": (lambda of, p, y, z: of.softmax_cross_entropy(z, y), 2.8137),
    "softmax of int labels": (lambda of, p, y, z: of.softmax_cross_entropy(z, tf.cast(y, tf.int32)), 2.8137),
    "weights of examples": (lambda of, p, y, z: of.softmax_cross_entropy(z, y, [1.0, 3.0], 0.1), 5.1301),
    "sigmoid": (lambda of, p, y, z: of.sigmoid_cross_entropy(z, y), 1.7407),
    "smoothed": (lambda of, p, y, z: of.sigmoid_cross_entropy(z, y, 1.0, 0.2), 1.6032),
    "names": (lambda of, p, y, z: of.sigmoid_cross_entropy(logits=z, multi_class_labels=y, weights=2.0), 3.4814),
    "sparse": (lambda of, p, y, z: of.sparse_softmax_cross_entropy(z, [1, 0], [2.0, 0.0]), 6.0972),
    "sparse column": (lambda of, p, y, z: of.sparse_softmax_cross_entropy(z, [[1], [0]], 2.0), 5.6275),
    "hinge": (lambda of, p, y, z: of.hinge_loss(z, y), [[3.0, 2.0], [0.5, 4.0]]),
    "log": (lambda of, p, y, z: of.log_loss(p, y, [[2.0], [0.0]], 1e-3), 0.4438),
    "absolute": (lambda of, p, y, z: of.absolute_difference(p, y, [0.0, 3.0]), 1.2),
    "absolute, all weights": (lambda of, p, y, z: of.absolute_difference(p, y, [[0.0, 3.0], [1.0, 0.0]]), 0.5),
    "squared": (lambda of, p, y, z: of.mean_squared_error(p, y, [1.0, 3.0]), 0.26),
    "cosine": (lambda of, p, y, z: of.cosine_distance(p, y, dim=1), 0.3),
    "pairs": (lambda of, p, y, z: of.mean_pairwise_squared_error(p, y, [1.0, 2.0]), 0.72),
    "weighted": (lambda of, p, y, z: of.compute_weighted_loss([1.0, 2.0], [1.0, 0.0]), 1.0),
}


@pytest.mark.parametrize("case", _CASES)
def test_losses_take_predictions_first(case: str) -> None:
    build, wanted = _CASES[case]
    loss = build(tf.contrib.slim.losses, *map(tf.constant, (_P, _L, _Z)))
    with tf.Session() as session:
        assert np.allclose(session.run(loss), wanted, atol=1e-4)


def test_a_loss_is_collected_except_the_elements_of_hinge_loss() -> None:
    losses, (p, y, z) = tf.contrib.losses, map(tf.constant, (_P, _L, _Z))
    losses.hinge_loss(z, y)
    kept = [losses.softmax_cross_entropy(z, y, scope="mine"), losses.mean_pairwise_squared_error(p, y)]
    assert losses.get_losses() == kept and kept[0].name == "mine/value:0"


def test_cosine_distance_needs_an_axis() -> None:
    with pytest.raises(ValueError, match="axis"):
        tf.contrib.losses.cosine_distance(tf.constant(_P), tf.constant(_L))
