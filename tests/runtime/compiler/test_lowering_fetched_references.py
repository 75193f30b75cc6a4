"""A fetched variable by reference shows what the step has made of it, whatever the step waits for, as in TensorFlow."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf


def _from_queue() -> Any:
    queue = tf.FIFOQueue(10, tf.float32, shapes=[()])
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(1.0)]))
    return queue.dequeue()


def _from_python() -> Any:
    return tf.reshape(tf.py_func(lambda: np.float32(1), [], tf.float32), [])


def _from_dataset() -> Any:
    return tf.data.Dataset.from_tensors(1.0).repeat().make_one_shot_iterator().get_next()


@pytest.mark.parametrize("gradient", [lambda: tf.constant(1.0), _from_queue, _from_python, _from_dataset])
def test_a_step_counter_beside_its_training_op_has_counted_the_step(gradient: Callable[[], Any]) -> None:
    step = tf.train.get_or_create_global_step()
    loss = tf.get_variable("w", [2]) * gradient()
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    with tf.train.MonitoredTrainingSession() as session:
        assert [session.run([train, step, "global_step/read:0"])[1:] for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]


def test_all_updates_of_the_variable_are_shown() -> None:
    first, second = tf.FIFOQueue(1, tf.float32), tf.FIFOQueue(1, tf.float32)
    v = tf.Variable(0.0)
    added = tf.assign_add(v, first.dequeue())
    again = tf.assign_add(added, second.dequeue())  # it changes the variable that the first one hands on
    with tf.Session() as session:
        session.run([v.initializer, first.enqueue(1.0), second.enqueue(2.0)])
        assert session.run([v, added, again.op]) == [3.0, 3.0, None]


def test_an_update_in_a_branch_that_is_not_taken_is_not_waited_for_in_vain() -> None:
    queue = tf.FIFOQueue(1, tf.bool)
    v = tf.Variable(1.0)
    taken = queue.dequeue()
    taken.set_shape([])
    update = tf.cond(taken, lambda: tf.assign_add(v, 1.0), lambda: tf.constant(0.0))
    with tf.Session() as session:
        session.run(v.initializer)
        for value, expected in ((False, 1.0), (True, 2.0)):
            session.run(queue.enqueue(value))
            assert session.run([update.op, v])[1] == expected


@pytest.mark.parametrize("depth", [1, 2])
def test_updates_in_a_loop_that_waits_are_shown(depth: int) -> None:
    queue, begun = tf.FIFOQueue(9, tf.float32, [[]]), threading.Event()
    v, one = tf.Variable(0.0), queue.enqueue(1.0)
    begin = tf.py_func(begun.set, [], [], stateful=True)

    def add(i: Any) -> Any:
        with tf.control_dependencies([begin]), tf.control_dependencies([tf.assign_add(v, queue.dequeue())]):
            return i + 1

    def around(i: Any) -> Any:
        return tf.while_loop(lambda j: j < 3, add, [i]) if depth > 1 else add(i)

    loop = tf.while_loop(lambda i: i < 3, around, [0])
    with tf.Session() as session:

        def feed() -> None:
            assert begun.wait(60)
            for _ in range(3):
                session.run(one)

        session.run(v.initializer)
        feeding = threading.Thread(target=feed)
        feeding.start()
        assert session.run([v, loop]) == [3.0, 3]
        feeding.join()


def test_a_value_that_was_read_before_stays_as_it_was() -> None:
    queue = tf.FIFOQueue(1, tf.float32)
    v = tf.Variable(1.0)
    before = v + 0.5  # an op of its own, not a view of the variable
    update = tf.assign_add(v, queue.dequeue())
    with tf.Session() as session:
        session.run([v.initializer, queue.enqueue(1.0)])
        assert session.run([before, update]) == [1.5, 2.0]
