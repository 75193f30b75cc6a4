"""Images to make layers of, and the names of what is made."""

from __future__ import annotations

import numpy as np

import tfmini as tf

IMAGES = np.sin(np.arange(2 * 8 * 8 * 3, dtype=np.float32)).reshape(2, 8, 8, 3)


def names(collection: str = tf.GraphKeys.GLOBAL_VARIABLES) -> list[str]:
    return [v.op.name for v in tf.get_collection(collection)]
