"""Two devices of one process compute at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.runtime.compiler.levels import Segment


def towers() -> Any:
    """The sum of two products, one on each device, of a variable that both read."""
    with tf.device("/cpu:0"):
        shared = tf.Variable(np.eye(3, dtype=np.float32), name="shared")
        twice = shared * 2.0  # cheap: both towers read it
    products = []
    for i in range(2):
        with tf.device(f"/cpu:{i}"):
            products.append(tf.tanh(tf.matmul(twice, twice)))
    with tf.device("/cpu:0"):
        return tf.matmul(tf.add_n(products), shared)


def session() -> Any:
    return tf.Session(config=tf.ConfigProto(device_count={"CPU": 2}))


def test_the_work_of_two_devices_runs_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    both, threads = threading.Barrier(2), set()
    made = Segment.__init__

    def init(self: Segment, run: Callable[..., None], *args: Any) -> None:
        def meet(step: Any, slots: list[Any]) -> None:
            if self.is_apart and self.successors:  # a tower, and not what follows both
                both.wait(60)
                threads.add(threading.current_thread())
            run(step, slots)

        made(self, meet, *args)
        self.seconds = 1.0  # as if it had been long before

    monkeypatch.setattr(Segment, "__init__", init)
    with tf.Graph().as_default(), session() as sess:
        total = towers()
        sess.run(tf.global_variables_initializer())
        np.testing.assert_allclose(sess.run(total), np.eye(3) * 2 * np.tanh(4), rtol=1e-6)
    assert len(threads) == 2


def test_short_work_stays_in_the_thread_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def note(self: Segment, seconds: float) -> None:
        threads.append(threading.current_thread())

    monkeypatch.setattr(Segment, "note", note)
    with tf.Graph().as_default(), session() as sess:
        total = towers()
        sess.run(tf.global_variables_initializer())
        threads.clear()
        sess.run(total)
    assert len(threads) == 4 and set(threads) == {threading.current_thread()}


def test_an_error_on_one_device_ends_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Segment, "is_long", True)
    with tf.Graph().as_default(), session() as sess:
        x = tf.placeholder(tf.float32)
        with tf.device("/cpu:0"):
            good = tf.matmul(x, x)
        with tf.device("/cpu:1"):
            bad = tf.matmul(x, tf.placeholder_with_default(np.ones((3, 3), np.float32), None), name="bad")
        with tf.device("/cpu:0"):
            total = tf.reduce_sum(good) + tf.reduce_sum(bad)
        with pytest.raises(tf.errors.InvalidArgumentError, match="bad"):
            sess.run(total, {x: np.ones((2, 2))})
        assert sess.run(total, {x: np.ones((3, 3))}) == 27 + 27
