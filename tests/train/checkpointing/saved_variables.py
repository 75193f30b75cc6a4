"""Variables to save and to restore."""

from __future__ import annotations

from typing import Any

import tfmini as tf


def variables() -> list[Any]:
    """One of each kind."""
    return [
        tf.get_variable("a", initializer=tf.constant([1.0, 2.0])),
        tf.get_variable("r", initializer=tf.constant([3, 4]), use_resource=True),
        *tf.get_variable("p", [5, 2], partitioner=tf.fixed_size_partitioner(2), initializer=tf.ones_initializer()),
        tf.Variable([b"x", b"yy"], name="s"),
    ]


def values(session: Any, every: list[Any]) -> list[Any]:
    return [value.tolist() for value in session.run(every)]
