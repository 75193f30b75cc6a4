"""Which ops of a simulated step really run."""

from __future__ import annotations

from typing import Any

import tfmini as tf
from tfmini.show.simulation.cores import Deciding
from tfmini.show.simulation.predictor import steps_of


def _deciding(train: Any) -> tuple[Deciding, Any]:
    found = tf.inspect(train.graph, ps=1, workers=2, fetches=train, batch=8)
    return Deciding(found.nodes, found.shapes, steps_of(found)), found


def _synchronous(workers: int = 2) -> Any:
    with tf.Graph().as_default(), tf.device(tf.train.replica_device_setter(ps_tasks=1)):
        step = tf.train.get_or_create_global_step()
        x = tf.placeholder(tf.float32, [None, 4])
        loss = tf.reduce_mean(tf.matmul(x, tf.get_variable("w", [4, 2])))
        optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), workers, workers)
        return optimizer.minimize(loss, global_step=step)


def test_steps_and_tokens_are_real_and_weights_are_not() -> None:
    deciding, found = _deciding(_synchronous())
    assert set(deciding.variables()) == {"global_step", "sync_rep_local_step"}
    runs = {node.op for node in found.nodes.values() if deciding.runs(node)}
    assert {"QueueDequeueV2", "QueueEnqueueManyV2"} & runs
    assert any("AccumulatorApplyGradient" in op for op in runs)
    assert not {"MatMul", "ApplyGradientDescent"} & runs


def test_the_tokens_of_many_workers_are_real() -> None:
    """They once were phantoms beyond 64, and the workers waited for ever."""
    deciding, found = _deciding(_synchronous(200))
    [adds] = [node for node in found.nodes.values() if node.op == "QueueEnqueueManyV2" and deciding.runs(node)]
    assert all(deciding.is_known(source) for source, _ in adds.inputs)


def test_a_queue_that_no_step_fills_is_a_phantom() -> None:
    with tf.Graph().as_default():
        batch = tf.train.batch([tf.random_uniform([4])], 8)
        train = tf.group(tf.reduce_sum(batch))
    deciding, found = _deciding(train)
    [taken] = [node for node in found.nodes.values() if node.op == "QueueDequeueManyV2"]
    assert not deciding.runs(taken)


def test_shapes_and_loop_counters_are_real() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 4])
        rows = tf.shape(x, name="rows")[0]
        last, _ = tf.while_loop(lambda i, y: i < rows, lambda i, y: (i + 1, tf.tanh(y)), [0, x])
        train = tf.group(last, tf.cast(tf.reduce_sum(x), tf.int32, name="cast"))
    deciding, found = _deciding(train)
    for name, node in found.nodes.items():
        if node.op in ("Shape", "StridedSlice", "Less", "LoopCond"):
            assert deciding.is_known(name), name
        elif node.op in ("Tanh", "Placeholder", "Sum", "Cast"):
            assert not deciding.is_known(name), name
