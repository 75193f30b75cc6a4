"""Tensors between workers: dead ones, and ones that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId
from tfmini.runtime.worker import worker as worker_module

Servers = tuple[tf.train.Server, tf.train.Server]


@pytest.fixture
def servers() -> Iterator[Servers]:
    """A ps and a worker in this process."""
    reserved = reserve_cluster([TaskId("ps", 0), TaskId("worker", 0)])
    for listener in reserved.listeners.values():
        listener.close()
    with tf.train.Server(reserved.spec, "ps", 0) as ps, tf.train.Server(reserved.spec, "worker", 0) as worker:
        yield ps, worker


@pytest.mark.parametrize("count", [9, 65, 130])
def test_many_dead_tensors_travel_in_one_message(servers: Servers, count: int) -> None:
    is_taken, x = tf.placeholder(tf.bool, []), tf.placeholder(tf.float32, [])
    with tf.device("/job:ps/task:0"):
        variables = [tf.Variable(0.0) for _ in range(count)]
    with tf.device("/job:worker/task:0"):
        increments = [x * float(i) for i in range(count)]

        def add() -> Any:
            assignments = []
            for variable, increment in zip(variables, increments):
                with tf.device(variable.device):
                    assignments.append(tf.assign_add(variable, increment).op)
            with tf.control_dependencies(assignments):
                return tf.constant(1)

        taken = tf.cond(is_taken, add, lambda: tf.constant(0))
    with tf.Session(servers[1].target) as session:
        session.run(tf.global_variables_initializer())
        assert session.run(taken, {is_taken: True, x: 1.0}) == 1
        assert session.run(taken, {is_taken: False, x: 1.0}) == 0
        assert session.run(variables) == [float(i) for i in range(count)]


def test_tensors_that_cannot_be_used_end_their_step(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    ps, worker = servers
    with tf.device("/job:ps/task:0"):
        sent = tf.random_uniform([])
    with tf.device("/job:worker/task:0"):
        result = sent + 1.0
    with tf.Session(worker.target) as session:
        with monkeypatch.context() as patch:
            patch.setattr(worker.worker, "receive", lambda *args: {}["no such run"])
            with pytest.raises(tf.errors.InternalError, match="cannot use tensors that .*/job:ps/.* sent for step"):
                session.run(result)
        assert 1.0 <= session.run(result) < 2.0


def test_tensors_of_another_type_end_their_step(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    ps, worker = servers
    with tf.device("/job:ps/task:0"):
        sent = tf.random_uniform([])
    with tf.device("/job:worker/task:0"):
        result = sent + 1.0
    with tf.Session(worker.target) as session:
        assert 1.0 <= session.run(result) < 2.0
        packed = worker_module.packed
        with monkeypatch.context() as patch:
            patch.setattr(worker_module, "packed", lambda *args: packed(*args[:3], (np.ones(()),), args[4]))
            with pytest.raises(tf.errors.InvalidArgumentError, match="type float64 came where float32 is expected"):
                session.run(result)
        assert 1.0 <= session.run(result) < 2.0


@pytest.mark.parametrize("device", ["/job:worker/task:0", "/job:ps/task:0"])
def test_a_gradient_that_is_dead_reaches_no_kernel(servers: Servers, device: str) -> None:
    """As in TensorFlow: the control edge enters the gradient's loop, and is dead after its first iteration."""
    with tf.device(device):
        v = tf.Variable([1.0, 2.0])
        u = tf.Variable(0.0, trainable=False)
    with tf.device("/job:worker/task:0"):
        loss = tf.reduce_sum(tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, tf.tanh(a)), [0, v * 2.0])[1])
        with tf.control_dependencies([tf.assign(u, 1.0)]):
            train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
            gradient = tf.gradients(loss, v, gate_gradients=True)
    with tf.Session(servers[1].target) as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        assert session.run(v).tolist() == [1.0, 2.0]
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Retval\[0\] does not have value"):
            session.run(gradient)
