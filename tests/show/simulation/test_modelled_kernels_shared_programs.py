"""Programs that replicas of a worker share."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf
from tests.show.simulation.profiles import plain
from tfmini.runtime.compiler import layout
from tfmini.show.inspection.findings import Inspection
from tfmini.show.simulation.prediction import Prediction, Topology
from tfmini.show.simulation.predictor import StepModel, _Simulation, tasks_of


def _synchronous(workers: int) -> Inspection:
    """Its steps and tokens decide, and each worker has a variable of its own for its step."""
    setter = tf.train.replica_device_setter(ps_tasks=2, worker_device="/job:worker/task:0")
    with tf.Graph().as_default() as graph, tf.device(setter):
        step = tf.train.get_or_create_global_step()
        x: Any = tf.placeholder(tf.float32, [16, 64])
        for i in range(2):
            x = tf.nn.relu(tf.matmul(x, tf.get_variable(f"w{i}", [64, 64])))
        _, x = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.tanh(y)), [0, x])
        plain_optimizer: Any = tf.train.GradientDescentOptimizer(0.1)
        optimizer = tf.train.SyncReplicasOptimizer(plain_optimizer, workers, workers)
        train = optimizer.minimize(tf.reduce_mean(x), global_step=step)
    return tf.inspect(graph, ps=2, workers=workers, fetches=train)


def _predicted(found: Inspection, workers: int) -> Prediction:
    cluster = Topology.on_own_machines(tasks_of(found), plain(), "1Gbit")
    return StepModel(found, cluster, plain(), workers, steps=5).predict()


@pytest.mark.parametrize("nodes", [1000, 5])  # of a block; a segment of more has several blocks
def test_shared_programs_run_as_programs_of_their_own(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "BLOCK_NODES", nodes)
    found = _synchronous(3)
    shared = _predicted(found, 3)
    monkeypatch.setattr(_Simulation, "shares_programs", False)
    own = _predicted(found, 3)
    assert shared.steps_s == pytest.approx(own.steps_s)
    assert shared.nbytes == own.nbytes
    assert shared.busy == pytest.approx(own.busy, abs=0.01)
    assert sorted({e.task for e in shared.critical}) == sorted({e.task for e in own.critical})
