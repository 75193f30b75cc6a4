"""One run in a session of its own."""

from __future__ import annotations

from typing import Any

import tfmini as tf


def run(fetches: Any, feeds: Any = None) -> Any:
    """The values of ``fetches`` in the default graph, after its variables have been initialized."""
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        return session.run(fetches, feeds)
