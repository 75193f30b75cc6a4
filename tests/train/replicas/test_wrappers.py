"""Optimizers around others: gradients that come too late, averages of variables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tfmini as tf


def test_a_gradient_that_comes_too_late_is_dropped_and_counted() -> None:
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", initializer=10.0)
    optimizer = tf.contrib.opt.DropStaleGradientOptimizer(tf.train.GradientDescentOptimizer(1.0), staleness=1)
    (gradient, _), *_ = optimizer.compute_gradients(w * 1.0)
    others = tf.placeholder(tf.int64, [])
    with tf.control_dependencies([gradient]):
        later = step.assign_add(others)
    with tf.control_dependencies([later]):
        slow = tf.identity(gradient)
    train = optimizer.apply_gradients([(slow, w)], global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        counted = [session.run(train, {others: n}) for n in (0, 1, 2, 1, 5)]
        assert counted == [0, 0, 1, 1, 2]
        assert session.run([w, step]) == [7.0, 3 + 9]


def test_a_stale_optimizer_asks_for_the_global_step() -> None:
    w = tf.get_variable("w", initializer=10.0)
    optimizer = tf.contrib.opt.DropStaleGradientOptimizer(tf.train.GradientDescentOptimizer(1.0), staleness=1)
    with pytest.raises(ValueError, match="global_step=tf.train.get_or_create_global_step"):
        optimizer.minimize(w * 1.0)


@pytest.mark.parametrize("sequential", [False, True])
def test_a_plain_saver_restores_the_averages(sequential: bool, tmp_path: Path) -> None:
    w = tf.get_variable("w", initializer=np.float32([1.0, 2.0]))
    parts = tf.get_variable("p", [2], initializer=tf.ones_initializer(), partitioner=tf.fixed_size_partitioner(2))
    plain = tf.train.GradientDescentOptimizer(0.5)
    optimizer = tf.contrib.opt.MovingAverageOptimizer(plain, average_decay=0.9, sequential_update=sequential)
    with pytest.raises(RuntimeError, match="before swapping_saver"):
        optimizer.swapping_saver()
    train = optimizer.minimize(tf.reduce_sum(w) + tf.reduce_sum(parts))
    with pytest.raises(ValueError, match="add the other"):
        optimizer.swapping_saver([w])
    saver, reader = optimizer.swapping_saver(), tf.train.Saver([w, parts])
    names = [
        "w/ExponentialMovingAverage:0",
        "p/part_0/ExponentialMovingAverage:0",
        "p/part_1/ExponentialMovingAverage:0",
    ]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        averages, value = session.run(names), session.run(w)
        if sequential:
            np.testing.assert_allclose(averages[0], [0.95, 1.95], rtol=1e-6)
        path = saver.save(session, str(tmp_path / "model"))
        reader.restore(session, path)
        assert session.run(w).tolist() == averages[0].tolist()
        assert session.run(parts.as_tensor()).tolist() == [*averages[1], *averages[2]]
        saver.restore(session, path)
        assert session.run(w).tolist() == value.tolist() == [0.5, 1.5]
