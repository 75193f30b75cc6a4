"""The wire table of a session's step."""

from __future__ import annotations

import pytest

import tfmini as tf
from tfmini.testing import ProcessCluster
from tfmini.tools.inspect import step_table, step_transfers


def test_a_local_step_sends_nothing() -> None:
    doubled = tf.constant(1.0) * 2.0
    with tf.Session() as session:
        session.run(doubled)
        assert step_transfers(session, doubled) == []
        assert step_table(session, doubled) == "no transfers between devices\n"


def test_a_step_that_never_ran_has_no_plan() -> None:
    doubled = tf.constant(1.0) * 2.0
    with tf.Session() as session, pytest.raises(tf.errors.FailedPreconditionError, match="run it once first"):
        step_transfers(session, doubled)


@pytest.mark.cluster
def test_a_training_step_reads_the_variable_and_sends_its_gradient() -> None:
    with ProcessCluster(ps=1, workers=1, local=("worker", 0)) as cluster:
        with tf.device(tf.train.replica_device_setter(cluster=cluster.spec)):
            weights = tf.Variable(tf.zeros([3, 2]), name="W")
            loss = tf.reduce_sum(tf.square(weights - 1.0))
            train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
            init = tf.global_variables_initializer()
        with tf.Session(cluster.server.target) as session:
            session.run(init)
            session.run(train)
            found = {(t.role, t.bytes) for t in step_transfers(session, train) if not t.control}
        assert {("variable read", 24), ("gradient of W", 24)} <= found


@pytest.mark.cluster
def test_a_master_in_another_process_keeps_its_plans() -> None:
    with ProcessCluster(ps=0, workers=1) as cluster:
        doubled = tf.constant(1.0) * 2.0
        with tf.Session(cluster.target("worker", 0)) as session:
            session.run(doubled)
            with pytest.raises(tf.errors.UnimplementedError, match="in another process"):
                step_table(session, doubled)
