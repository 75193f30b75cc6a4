"""Sweeps over numbers of workers."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf
from tests.show.simulation.profiles import plain
from tfmini.show.simulation.predictor import MOST_STEPS, knee, mode_of, steps_each, sweep, worker_counts


def _inspected(workers: int) -> Any:
    setter = tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")
    with tf.Graph().as_default() as graph, tf.device(setter):
        w = tf.get_variable("w", [100_000, 10])
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(w))
    return tf.inspect(graph, ps=1, workers=workers)


def test_numbers_of_workers() -> None:
    assert worker_counts("3") == [3]
    assert worker_counts("1..100") == [1, 2, 4, 8, 16, 32, 64, 100]
    for wrong in ("0", "4..2", "many"):
        with pytest.raises(ValueError, match="number of workers"):
            worker_counts(wrong)


def test_the_knee_is_where_the_link_of_the_ps_is_full() -> None:
    points = sweep(worker_counts("1..16"), _inspected, plain(), "1Gbit", steps=5)
    turn = knee(points)
    assert turn is not None
    assert 2 <= turn.workers <= 8
    name, share = turn.prediction.bottleneck()
    assert name.startswith("ps/0 ")
    assert share > 0.8
    assert mode_of(_inspected(1)) == "async"


def test_each_worker_of_a_large_sweep_makes_fewer_steps() -> None:
    assert steps_each([1, 2, 4], 10) == 10
    assert steps_each([1000], 10) == MOST_STEPS // 1000
    assert steps_each([1000, 2000], 10) == 3  # its first and its last do not count
    assert steps_each([1000, 2000], 2) == 2
