"""Tables that grow on parameter servers in processes of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.runtime.waits import variable_snapshots

pytestmark = pytest.mark.cluster
STEPS, IDS = 30, 50


def train(task: Any, parts: int) -> list[int]:
    """Takes one from each row that a batch has, as often as it has it; returns the ids that it used."""
    partitioner = tf.fixed_size_partitioner(parts)
    table = tf.get_embedding_variable("t", 4, initializer=tf.zeros_initializer(), partitioner=partitioner)
    ids = tf.placeholder(tf.int64, [None])
    loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids))
    update = tf.train.GradientDescentOptimizer(1.0).minimize(loss, tf.train.get_or_create_global_step())
    devices = {part.device for part in (table if parts > 1 else [table])}
    assert devices == {f"/job:ps/task:{index}" for index in range(parts)}
    random = np.random.default_rng(task.index)
    used: list[int] = []
    with tf.train.MonitoredTrainingSession(task.target, is_chief=task.is_chief) as session:
        for _ in range(STEPS):
            batch = random.integers(-IDS, IDS, 16)
            session.run(update, {ids: batch})
            used.extend(batch.tolist())
    return used


@pytest.mark.parametrize("ps", [1, 2])
def test_no_update_of_any_worker_is_lost(ps: int) -> None:
    with tf.LocalCluster(ps=ps, workers=2, processes=True) as cluster:
        used = np.concatenate(cluster.run(train, parts=ps)).astype(np.int64)
        with tf.Graph().as_default(), tf.Session(cluster.target) as session:
            with tf.device(tf.train.replica_device_setter(ps)):
                partitioner = tf.fixed_size_partitioner(ps)
                table = tf.get_embedding_variable("t", 4, initializer=tf.zeros_initializer(), partitioner=partitioner)
            exports = session.run([part.export() for part in (table if ps > 1 else [table])])
    for part, (keys, *_) in enumerate(exports):
        assert (keys % ps == part).all()
    keys, values = (np.concatenate(arrays) for arrays in list(zip(*exports))[:2])
    expected, counts = np.unique(used, return_counts=True)
    np.testing.assert_array_equal(np.sort(keys), expected)
    np.testing.assert_array_equal(values[np.argsort(keys)], np.repeat(-counts[:, None], 4, axis=1))


def test_the_status_of_a_task_counts_its_tables() -> None:
    server = tf.train.Server.create_local_server()
    with tf.Graph().as_default(), tf.Session(server.target) as session:
        table = tf.get_embedding_variable("t", 4)
        session.run(table.initializer)
        session.run(table.sparse_read([1, 2, 3]))
    found = variable_snapshots(server.worker)
    server.stop()
    assert [(each.name, each.shape) for each in found] == [("t", (3, 4))]
    assert found[0].bytes >= 3 * 4 * 4
