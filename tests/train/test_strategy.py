"""Strategies of one replica."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf


def test_a_strategy_is_current_within_its_scope() -> None:
    assert not tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context()
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        assert tf.distribute.get_strategy() is strategy
        assert tf.distribute.in_cross_replica_context()
        made = strategy.experimental_run(lambda: tf.constant(1.0))
        with pytest.raises(RuntimeError, match="nest"), tf.distribute.MirroredStrategy().scope():
            pass
    assert made.device == "/device:CPU:0"
    assert not tf.distribute.has_strategy()


def test_several_devices_are_refused_with_an_alternative() -> None:
    with pytest.raises(tf.errors.UnimplementedError, match="one tower per device"):
        tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def test_the_default_strategy_updates_a_variable_beside_it() -> None:
    extended = tf.distribute.get_strategy().extended
    v = tf.Variable(1.0, use_resource=True)

    def add(variable: Any, x: float, y: float = 0.0) -> Any:
        assert tf.distribute.in_cross_replica_context()
        return variable.assign_add(x + y), [x]

    (grouped, same), (single, each) = (extended.update(v, add, (1.0,), {"y": 2.0}, group) for group in (True, False))
    assert grouped.op.colocation_groups() == [b"loc:@Variable"] and same == [1.0]
    assert isinstance(single, tuple) and each == [(1.0,)]
    with tf.Session() as session:
        session.run(v.initializer)
        session.run([grouped.op, single[0].op])
        assert session.run(extended.read_var(v)) == 7


def test_what_one_replica_reduces_is_its_value() -> None:
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    one, v = tf.constant(1.0), tf.Variable(1.0)
    extended = strategy.extended
    assert extended.reduce_to(tf.distribute.ReduceOp.SUM, one, v) is one and extended.value_container(one) is one
    assert extended.batch_reduce_to(tf.distribute.ReduceOp.MEAN, [(one, v)]) == [one]
    assert extended.update_non_slot(extended.non_slot_devices([v]), tf.constant, (2.0,)).device == "/device:CPU:0"
    data = tf.data.Dataset.range(2)
    assert strategy.experimental_distribute_dataset(data) is data
    with extended.colocate_vars_with(v):
        assert tf.Variable(2.0).op.colocation_groups() == [b"loc:@Variable"]


def test_inputs_and_steps_of_a_strategy() -> None:
    strategy = tf.distribute.experimental.ParameterServerStrategy()
    with strategy.scope():
        v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
        data = tf.data.Dataset.range(8).map(lambda i: tf.cast(i, tf.float32))
        inputs = strategy.make_input_fn_iterator(lambda context: data.batch(context.get_per_replica_batch_size(4)))

        def step(x: Any) -> Any:
            loss = tf.reduce_sum(v * tf.reduce_mean(x))
            with tf.control_dependencies([tf.train.GradientDescentOptimizer(0.1).minimize(loss)]):
                return tf.identity(loss)

        loss = strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.experimental_run(step, inputs))
    with tf.Session() as session:
        session.run([inputs.initialize(), v.initializer])
        # The numbers of TensorFlow 1.15.5.
        assert [session.run(loss) for _ in range(2)] == pytest.approx([3.0, 9.35])
        assert session.run(v) == pytest.approx([0.3, 0.3])
    with pytest.raises(ValueError, match="not divisible"):
        tf.distribute.InputContext(num_replicas_in_sync=2).get_per_replica_batch_size(3)


def test_parameter_servers_of_a_resolver_have_the_variables() -> None:
    cluster = tf.train.ClusterSpec({"ps": ["a:1", "a:2"], "worker": ["a:3"]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, task_type="worker", task_id=0)
    strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)

    def names(variable: str) -> list[str]:
        made = tf.get_variable(variable, [1])
        return [made.device, (made * 2).device]

    with strategy.scope():
        assert names("v") == ["/job:ps/task:0", "/job:worker/task:0"]
        assert strategy.experimental_run_v2(names, ("w",)) == ["/job:ps/task:1", "/job:worker/task:0"]


def test_strategies_of_contrib_take_one_gpu_at_most() -> None:
    contrib = tf.contrib.distribute
    assert contrib.MirroredStrategy(num_gpus=0).worker_devices == ("/device:CPU:0",)
    assert contrib.MirroredStrategy(num_gpus=1).worker_devices == ("/device:GPU:0",)
    assert contrib.CollectiveAllReduceStrategy(num_gpus_per_worker=1).worker_devices == ("/device:GPU:0",)
    for refused in (contrib.MirroredStrategy, contrib.ParameterServerStrategy, contrib.CollectiveAllReduceStrategy):
        with pytest.raises(tf.errors.UnimplementedError, match="not on 2"):
            refused(num_gpus_per_worker=2)
    with pytest.raises(ValueError, match="only specify one"):
        contrib.MirroredStrategy(["/cpu:0"], num_gpus=1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.distribute.MirroredStrategy(),
        lambda: tf.distribute.OneDeviceStrategy("/cpu:0"),
        lambda: tf.contrib.distribute.ParameterServerStrategy(),
        lambda: tf.contrib.distribute.CollectiveAllReduceStrategy(),
    ],
)
def test_the_variables_of_a_scope_are_resource_variables(make: Any) -> None:
    """With the answers of TensorFlow 1.15.5: the kind of a variable also decides the seeds of the ops after it."""
    tf.set_random_seed(3)
    with make().scope():
        made = [tf.get_variable("v", [3]), tf.Variable(1.0), tf.get_variable("u", [2], use_resource=False)]
    assert [v.op.type for v in made] == ["VarHandleOp"] * 3
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first, _, last = session.run(made)
    assert first.tolist() == pytest.approx([-0.55362725, 0.33607864, 0.41944432])
    assert last.tolist() == pytest.approx([0.6519396, -0.14192057])


def test_outside_of_a_scope_variables_are_as_before() -> None:
    with tf.distribute.get_strategy().scope():
        assert tf.get_variable("v", [3]).op.type == "VariableV2"
