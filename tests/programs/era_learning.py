"""Programs with losses and metrics of ``tf.contrib``: a part of `tests.programs.era`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.programs.era import outcome, program, run


def _numbers(*shape: int) -> Any:
    return np.sin(np.arange(np.prod(shape)) * 1.3 + np.arange(np.prod(shape)) ** 2).reshape(shape).astype(np.float32)


@program
def losses_of_metric_learning(tf: Any) -> Any:
    losses = tf.contrib.losses.metric_learning
    x, y = tf.constant(_numbers(6, 3)), tf.constant(_numbers(6, 3)[::-1] * 0.5)
    unit = tf.nn.l2_normalize(x, 1)
    labels = [[0, 1, 0, 2, 1, 0], [0, 0, 1, 1, 2, 2], [3, 3, 3, 1, 1, 1]]
    sparse = [tf.SparseTensor([[i % 3], [3]], [1, 1], [4]) for i in range(6)]
    made = [losses.triplet_semihard_loss(tf.constant(ids), unit, margin) for ids in labels for margin in (1.0, 0.2)]
    made += [losses.lifted_struct_loss(tf.constant(ids), x) for ids in labels]
    made += [losses.contrastive_loss(tf.constant([1, 0, 0, 1, 1, 0]), x, y, 0.7)]
    made += [losses.npairs_loss(tf.constant([0, 1, 2, 3, 1, 5]), x, y), losses.npairs_loss(tf.range(6), x, y, 0.5)]
    made += [losses.npairs_loss_multilabel(sparse, x, y)]
    slopes = [tf.gradients(loss, x)[0] for loss in made]
    return run(tf, [made, slopes]), outcome(lambda: losses.npairs_loss_multilabel([1, 2], x, y))
