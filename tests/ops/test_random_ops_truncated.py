"""Truncated normal distributions with bounds for each row."""

from __future__ import annotations

import numpy as np

import tfmini as tf
from tests.ops.session_run import run


def test_values_are_within_their_bounds() -> None:
    for low, high in ((-1.0, 2.0), (4.0, np.inf), (-np.inf, -3.0), (0.1, 0.2)):
        values = run(
            tf.raw_ops.ParameterizedTruncatedNormal(
                shape=[2000], means=np.float32(0), stdevs=np.float32(1), minvals=np.float32(low),
                maxvals=np.float32(high), seed=3,
            )
        )  # fmt: skip
        assert low <= values.min() and values.max() <= high
