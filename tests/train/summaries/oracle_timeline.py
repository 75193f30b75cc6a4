"""TensorFlow's `Timeline` on a message of ours. (Runs in its process, see `tests.oracle`.)"""

from __future__ import annotations

from typing import Any


def drawn(tf: Any, metadata: bytes) -> str:
    """The trace that TensorFlow draws of the step stats in a RunMetadata."""
    from tensorflow.python.client.timeline import Timeline

    stats = tf.RunMetadata.FromString(metadata).step_stats
    return Timeline(stats).generate_chrome_trace_format(show_memory=True)
