"""``tf.timestamp``: the time when the step runs."""

from __future__ import annotations

import time

import numpy as np

from tfmini.export import export
from tfmini.graph.families import Tensor, op

timestamp_op = op("Timestamp() -> ts: float64", stateful=True, shape=[()], differentiable=False)
timestamp_op.kernel("CPU")(lambda: np.float64(time.time()))


@export("tf.timestamp")
def timestamp(name: str | None = None) -> Tensor:
    """Seconds since the epoch, float64 (``tf.timestamp``)."""
    return timestamp_op(name=name)
