"""What a thread computes is read from its stack."""

from __future__ import annotations

from threading import get_ident

import numpy as np
import pytest

import tfmini as tf
from tfmini.rpc import handshake, link
from tfmini.runtime.worker.worker_service import describe_computing
from tfmini.testing import ProcessCluster


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


def test_a_task_that_computes_a_step_for_long_is_not_wedged(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers meanwhile, since a loop runs in a thread of its own."""
    for module in (handshake, link):
        monkeypatch.setattr(module, "WEDGED_AFTER_S", 6.0)
    with ProcessCluster(ps=1, workers=1, local=("worker", 0)) as cluster, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            forever = tf.while_loop(lambda i: i >= 0, lambda i: i * 1, [tf.constant(1)])
        with tf.Session(cluster.server.target) as session:
            session.run(tf.constant(1.0))
            with pytest.raises(tf.errors.DeadlineExceededError, match="/job:ps/replica:0/task:0"):
                session.run(forever, options=tf.RunOptions(timeout_in_ms=15_000))
