"""What a thread computes is read from its stack."""

from __future__ import annotations

from threading import get_ident

import numpy as np

import tfmini as tf
from tfmini.runtime.worker.computing import describe_computing


def test_the_node_that_a_thread_computes_is_named() -> None:
    found: list[str] = []

    def look(value: np.ndarray) -> np.ndarray:
        found.append(describe_computing([0, get_ident()]))
        return value

    result = tf.py_func(look, [tf.constant(1.0) + 1.0], tf.float32, name="looked")
    with tf.Session() as session:
        assert session.run(result) == 2.0
    assert found == ["computes PyFunc (node looked)"]


def test_a_thread_outside_steps_computes_nothing() -> None:
    assert describe_computing([get_ident()]) == ""
