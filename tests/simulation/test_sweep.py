"""Sweeps over numbers of workers."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf
import tfmini.simulation.sweep as sweep_module
from tests.simulation.profiles import plain
from tfmini.simulation.sweep import knee, mode_of, sweep, worker_counts


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
    assert "/job:ps/replica:0/task:0" in name
    assert share > 0.8
    assert mode_of(_inspected(1)) == "async"


def test_large_sweeps_are_by_the_event_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(point.is_fast for point in sweep([1, 2], _inspected, plain(), steps=3))
    assert all(point.is_fast for point in sweep([1, 2], _inspected, plain(), steps=3, fast=True))
    monkeypatch.setattr(sweep_module, "MOST_STEPS", 6)
    assert not any(point.is_fast for point in sweep([2], _inspected, plain(), steps=3))
    assert all(point.is_fast for point in sweep([1, 2], _inspected, plain(), steps=3))
