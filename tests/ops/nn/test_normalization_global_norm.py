"""The deprecated op of batch normalisation."""

from __future__ import annotations

import numpy as np

import tfmini as tf
from tests.ops.session_run import run


def test_the_deprecated_normalisation_has_the_gradients_of_the_new_one() -> None:
    inputs = [tf.sin(tf.reshape(tf.range(24.0), [2, 3, 2, 2])),
              *(tf.constant(v) for v in ([1.0, 2.0], [0.5, 3.0], [1.0, 0.0], [2.0, 3.0]))]  # fmt: skip
    old = tf.raw_ops.BatchNormWithGlobalNormalization(
        **dict(zip(("t", "m", "v", "beta", "gamma"), inputs)), variance_epsilon=1e-3, scale_after_normalization=True
    )
    new = tf.nn.batch_normalization(*inputs, 1e-3)
    ours, theirs = run([[y, *tf.gradients(y**2, inputs)] for y in (old, new)])
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
