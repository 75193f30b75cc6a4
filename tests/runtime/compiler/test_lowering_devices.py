"""Two devices of one process compute at the same time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def session(target: str = "") -> Any:
    return tf.Session(target, config=tf.ConfigProto(device_count={"CPU": 2}))


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


@contextmanager
def _places(tasks: int) -> Iterator[tuple[str, str, str]]:
    """A target and two devices, of one process without servers or of two tasks."""
    if tasks == 1:
        yield "", "/cpu:0", "/cpu:1"
        return
    addresses = []
    with socket.socket() as one, socket.socket() as other:
        for taken in (one, other):
            taken.bind(("127.0.0.1", 0))
            addresses.append(f"127.0.0.1:{taken.getsockname()[1]}")
    tasks_of = {"a": addresses[:1], "b": addresses[1:]}
    with tf.train.Server(tasks_of, "a", 0), tf.train.Server(tasks_of, "b", 0) as server:
        yield server.target, "/job:b", "/job:a"


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_variable_of_another_device_is_read_when_its_reader_may(tasks: int) -> None:
    """After an update, a whole training step, a loop that updates, and an update of the same iteration or branch."""

    def then(before: Any, variable: Any) -> Any:
        with tf.control_dependencies([before]):
            return variable.read_value()

    def body(i: Any, total: Any) -> Any:
        read = tf.cond(i % 2 > 0, lambda: then(looped.assign_add(1.0), looped), lambda: -1.0)
        return i + 1, total + read

    with tf.Graph().as_default(), _places(tasks) as (target, here, there):
        with tf.device(there):
            added, trained, looped, counted = (tf.Variable(1.0, use_resource=False) for _ in range(4))
        with tf.device(here):
            train = tf.train.GradientDescentOptimizer(0.25).minimize(trained * trained)
            loop = tf.while_loop(lambda i, _: i < 5, body, (0, 0.0), parallel_iterations=1)
            sums = tf.while_loop(lambda s: s < 9.0, lambda s: s + then(counted.assign_add(1.0 + 0 * s), counted), [0.0])
            found = [then(added.assign_add(1.0), added), then(train, trained), loop[1], then(loop[0], looped), sums]
        with session(target) as sess:
            sess.run(tf.global_variables_initializer())
            assert sess.run(found) == [2.0, 0.5, 2.0, 3.0, 9.0]
