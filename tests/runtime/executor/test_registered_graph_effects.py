"""What partitions do to queues and accumulators."""

from __future__ import annotations

import tfmini as tf
from tfmini.graph.operation import node_of
from tfmini.runtime.executor.registered_graph import effects_of, is_training


def test_effects_name_the_object_also_through_an_identity() -> None:
    with tf.Graph().as_default() as graph:
        queue = tf.FIFOQueue(3, tf.float32, shapes=(), name="q")
        queue.enqueue(1.0, name="put")
        queue.dequeue_many(2, name="take")
        accumulator = tf.ConditionalAccumulator(tf.float32, shape=(), name="acc")
        accumulator.apply_grad(tf.constant(1.0), name="apply")
        accumulator.take_grad(2, name="mean")
        nodes = [node_of(op) for op in graph.get_operations()]
    found = {(effect.node, effect.action, effect.handle.name) for effect in effects_of(nodes)}
    assert found == {("put", "put", "q"), ("take", "take", "q"), ("apply", "put", "acc"), ("mean", "take", "acc")}


def test_giving_a_variable_its_first_value_is_no_training() -> None:
    with tf.Graph().as_default() as graph:
        variable = tf.Variable(1.0)
        before = [node_of(op) for op in graph.get_operations()]
        variable.assign_add(1.0)
        after = [node_of(op) for op in graph.get_operations()]
    assert (is_training(before), is_training(after)) == (False, True)
