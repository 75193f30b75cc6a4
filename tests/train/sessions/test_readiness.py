"""What is said about variables that nobody has initialised."""

from __future__ import annotations

import tfmini as tf
from tfmini.train.sessions.readiness import advice

OWN = "/job:worker/replica:0/task:1"


def test_a_variable_on_a_workers_own_task_is_none_of_the_chiefs() -> None:
    with tf.device("/job:worker/task:1"):
        tf.get_variable("mine", initializer=0.0)
    with tf.device("/job:ps/task:0"):
        tf.get_variable("shared", initializer=0.0)
    graph = tf.get_default_graph()
    said = advice("Variables not initialized: shared, mine", graph, OWN)
    assert f"variable mine lies on this task, {OWN}" in said and "tf.GraphKeys.LOCAL_VARIABLES" in said
    assert advice("Variables not initialized: shared", graph, OWN) == ""
    assert advice("Variables not initialized: mine", graph, "") == ""
    assert advice("a reason of one's own", graph, OWN) == advice(None, graph, OWN) == ""
    assert advice("Variables not initialized: unknown", graph, OWN) == ""


def test_a_variable_without_a_device_is_each_worker_s_own() -> None:
    tf.get_variable("outside", initializer=0.0)
    said = advice("Variables not initialized: outside", tf.get_default_graph(), OWN)
    assert f"variable outside has no device, so it lies on this task, {OWN}" in said and "replica_device_setter" in said


def test_the_variables_of_a_rank_of_an_all_reduce_are_its_own() -> None:
    with tf.device("/job:worker/task:1"):
        optimizer = tf.train.AllReduceOptimizer(tf.train.GradientDescentOptimizer(0.1), 3, 1)
        optimizer.minimize(tf.square(tf.get_variable("mine", initializer=1.0)))
    said = advice("Variables not initialized: mine", tf.get_default_graph(), OWN)
    assert "each rank initialises its own variables" in said and said.endswith("is_chief=True")
    assert "LOCAL_VARIABLES" not in said
