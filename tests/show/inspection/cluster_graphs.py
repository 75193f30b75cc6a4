"""Graphs for many tasks, as pictures and tests of the page need them."""

from __future__ import annotations

import tfmini as tf


def towers(ps: int, workers: int, layers: int = 6, heavy: int = 8, greedy: int | None = None) -> tf.Graph:
    """In-graph replication: a tower per worker, whose variables are on the ps in turns.

    Args:
      heavy: how many times as large the first layer's variable is as the others'. It makes its ps overloaded.
      greedy: the worker with a batch of sixteen times the size of the others'.
    """
    graph = tf.Graph()
    with graph.as_default():
        losses = []
        for i in range(workers):
            setter = tf.train.replica_device_setter(ps_tasks=ps, worker_device=f"/job:worker/task:{i}")
            with tf.variable_scope("model", reuse=tf.AUTO_REUSE), tf.name_scope(f"tower_{i}"), tf.device(setter):
                x = tf.placeholder(tf.float32, [256 if i == greedy else 16, 64 * heavy], name=f"x_{i}")
                for layer in range(layers):
                    with tf.variable_scope(f"layer_{layer}"):
                        weights = tf.get_variable("W", [x.shape[1], 64], use_resource=False)
                        x = tf.nn.relu(tf.matmul(x, weights))
                losses.append(tf.reduce_mean(x, name="loss"))
        with tf.device("/job:worker/task:0"):
            total = tf.add_n(losses, name="total")
        optimizer = tf.train.AdagradOptimizer(0.1)
        optimizer.minimize(total, colocate_gradients_with_ops=True)
    return graph
