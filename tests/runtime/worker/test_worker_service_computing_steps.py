"""Which step a thread computes."""

from __future__ import annotations

import numpy as np

import tfmini as tf
from tfmini.runtime.worker.worker_service import computing_steps


def test_a_step_that_a_clients_thread_runs_alone_is_found() -> None:
    found: list[list[str]] = []

    def look(value: np.ndarray) -> np.ndarray:
        found.append(list(computing_steps().values()))
        return value

    result = tf.py_func(look, [tf.constant(1.0) + 1.0], tf.float32, name="looked")
    with tf.Session() as session:
        assert session.run(result) == 2.0
    assert found == [["PyFunc (node looked)"]]
