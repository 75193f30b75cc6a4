"""Workers that train copies of the model: elastic averaging, and means after some steps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf

STEPS, RATE = 12, 0.1
TARGETS = np.float32([[1.0, -1.0], [5.0, 3.0]])  # where each of the two workers pulls its copy
RHO, MOVING_RATE = 0.5, 0.25


def _train(
    task: Any,
    spec: Any,
    optimizer_of: Callable[..., Any],
    getter_of: Callable[[str], Any],
    begins: Any,
    have_begun: Any,
) -> Any:
    """Trains one worker; returns its copies after each step, and the center and the global step at its end."""
    setter = tf.train.replica_device_setter(cluster=spec, worker_device=task.device)
    with tf.Graph().as_default():
        with tf.device(setter):
            step = tf.train.get_or_create_global_step()
            with tf.variable_scope("", custom_getter=getter_of(task.device)) as scope:
                w = tf.get_variable("w", initializer=np.float32([0.0, 0.0]))
            optimizer = optimizer_of(scope.custom_getter, task)
            loss = tf.reduce_sum(tf.square(w - TARGETS[task.index])) / 2
            train = optimizer.minimize(loss, global_step=step)
        center = next(v for v in tf.global_variables() if v.op.name == "global_center_variable/w")
        assert "ps" in center.device and "worker" in w.device and w in tf.local_variables()
        is_elastic = isinstance(optimizer, tf.contrib.opt.ElasticAverageOptimizer)
        hook = optimizer.make_session_run_hook(*((task.is_chief, task.index) if is_elastic else ()))
        with tf.train.MonitoredTrainingSession(task.target, is_chief=task.is_chief, hooks=[hook]) as session:
            have_begun.wait(30)  # so that all copies begin with the same center
            assert begins[task.index].wait(30)
            found = []
            for _ in range(STEPS):
                session.run(train)
                found.append(session.run(w))
            begins[-1 if task.index else 1].set()
            assert begins[-1].wait(30)  # the chief ends with the others, for its session may not be missed
            return found, session.run(center), session.run(step)


def _together(optimizer_of: Callable[..., Any], getter_of: Callable[[str], Any], in_turn: bool) -> list[Any]:
    begins = [threading.Event() for _ in range(3)]
    begins[0].set()
    if not in_turn:
        begins[1].set()
    with tf.LocalCluster(ps=1, workers=2, processes=False) as cluster:
        return cluster.run(
            _train, cluster.cluster_spec, optimizer_of, getter_of, begins, threading.Barrier(2), timeout_s=90
        )


@pytest.mark.parametrize("synchronous", [False, True])
def test_elastic_copies_and_the_center_approach_each_other(synchronous: bool) -> None:
    def optimizer(getter: Any, task: Any) -> Any:
        plain = tf.train.GradientDescentOptimizer(RATE)
        return tf.contrib.opt.ElasticAverageOptimizer(
            plain, 2, getter, communication_period=3, moving_rate=MOVING_RATE, rho=RHO, synchronous=synchronous
        )

    results = _together(optimizer, tf.contrib.opt.ElasticAverageCustomGetter, in_turn=True)
    center = np.zeros(2)
    seen = [np.zeros(2), np.zeros(2)]  # both saw the center when they began
    for worker in range(2):
        w = np.zeros(2)
        for number in range(1, STEPS + 1):
            w = w - RATE * (w - TARGETS[worker] + RHO * (w - seen[worker]))
            if number % 3 == 0:
                seen[worker] = center
                change = MOVING_RATE * (w - center)
                w, center = w - change, center + change
            np.testing.assert_allclose(results[worker][0][number - 1], w, atol=1e-5)
    np.testing.assert_allclose(results[1][1], center, atol=1e-5)
    assert results[1][2] == 2 * STEPS // 3


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_workers_go_on_from_the_mean_of_their_copies(momentum: float) -> None:
    def optimizer(getter: Any, task: Any) -> Any:
        plain = tf.train.MomentumOptimizer(RATE, momentum)
        return tf.contrib.opt.ModelAverageOptimizer(plain, 2, task.is_chief, getter, interval_steps=4)

    results = _together(optimizer, tf.contrib.opt.ModelAverageCustomGetter, in_turn=False)
    w, speed = np.zeros([2, 2]), np.zeros([2, 2])
    for number in range(1, STEPS + 1):
        speed = momentum * speed + (w - TARGETS)
        w = w - RATE * speed
        if number % 4 == 0:
            w = np.tile(w.mean(axis=0), (2, 1))
        np.testing.assert_allclose([results[i][0][number - 1] for i in range(2)], w, atol=1e-5)
    np.testing.assert_allclose(results[0][1], w[0], atol=1e-5)
    assert results[0][2] == STEPS // 4


def test_the_saver_of_an_elastic_worker_saves_the_center(tmp_path: Path) -> None:
    getter = tf.contrib.opt.ElasticAverageCustomGetter("")
    with tf.variable_scope("", custom_getter=getter):
        w = tf.get_variable("w", initializer=np.float32([1.0, 2.0]))
    plain = tf.train.GradientDescentOptimizer(0.5)
    optimizer = tf.contrib.opt.ElasticAverageOptimizer(plain, 1, getter, communication_period=1)
    train = optimizer.minimize(tf.reduce_sum(w))
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run(train)
        path = optimizer.swapping_saver().save(session, str(tmp_path / "model"))
        center = session.run(getter.centers[w])
    assert tf.train.load_checkpoint(path).get_tensor("w").tolist() == center.tolist()
    assert tf.train.list_variables(path) == [("w", [2])]


def test_an_elastic_worker_says_what_it_needs() -> None:
    getter = tf.contrib.opt.ElasticAverageCustomGetter("")
    with tf.Graph().as_default(), pytest.raises(ValueError, match="pass rho"):
        tf.contrib.opt.ElasticAverageOptimizer(tf.train.GradientDescentOptimizer(tf.constant(0.1)), 1, getter)
    optimizer = tf.contrib.opt.ElasticAverageOptimizer(tf.train.GradientDescentOptimizer(0.1), 1, getter)
    with pytest.raises(RuntimeError, match="custom_getter=ea_custom_getter"):
        optimizer.swapping_saver()
