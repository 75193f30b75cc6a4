"""What a client gets is its own, and what it has given may be used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.runtime.executor.registered_graph import make_private

_WAYS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda v: v,
    "cond": lambda v: tf.cond(tf.constant(True), lambda: v, lambda: v * 2.0),
    "while_loop": lambda v: tf.while_loop(lambda i, _: i < 2, lambda i, x: (i + 1, x), [0, v])[1],
    "check_numerics": lambda v: tf.check_numerics(v, "bad"),
    "placeholder_with_default": lambda v: tf.placeholder_with_default(v, [4]),
    "ensure_shape": lambda v: tf.ensure_shape(v, [4]),
    "squeeze": lambda v: tf.squeeze(v),
    "reshape": lambda v: tf.reshape(v, [2, 2]),
    "TensorArray": lambda v: tf.TensorArray(tf.float32, 1).write(0, v).read(0),
    "constant": lambda _: tf.constant(np.ones(4, np.float32)),
}


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize("served", [False, True], ids=["local", "served"])
def test_writing_into_a_result_changes_nothing_else(way: str, served: bool) -> None:
    fetched = _WAYS[way](tf.Variable(np.ones(4, np.float32), name="v"))
    server = tf.train.Server.create_local_server() if served else None
    with tf.Session(server.target if server else "") as session:
        session.run(tf.global_variables_initializer())
        session.run(fetched)[...] = 7.0
        np.testing.assert_array_equal(np.ravel(session.run(fetched)), np.ones(4))
    if server:
        server.stop()


def test_a_result_without_other_references_is_not_copied() -> None:
    array = np.zeros(3)
    place = array.__array_interface__["data"]
    values = [array]
    del array
    assert make_private(values)[0].__array_interface__["data"] == place
    held = values[0]
    assert make_private(values)[0] is not held


def test_one_array_that_is_fetched_twice_becomes_two() -> None:
    x = tf.random_uniform([3])
    with tf.Session() as session:
        one, two = session.run([x, tf.identity(x)])
    one[...] = 5.0
    assert not np.shares_memory(one, two) and two.max() < 1.0


def test_a_buffer_may_be_fed_again_after_it_was_enqueued() -> None:
    queue = tf.FIFOQueue(3, tf.float32, shapes=[[2]])
    x = tf.placeholder(tf.float32, [2])
    put, get = queue.enqueue([x]), queue.dequeue()
    buffer = np.zeros(2, np.float32)
    with tf.Session() as session:
        for number in range(2):
            buffer[...] = number
            session.run(put, {x: buffer})
        assert [session.run(get).tolist() for _ in range(2)] == [[0.0, 0.0], [1.0, 1.0]]
