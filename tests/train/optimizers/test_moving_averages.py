"""Moving averages of variables and tensors."""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.ops.stateful import initialize, read, run
from tfmini.train.optimizers.moving_averages import assign_moving_average


def test_a_tensor_is_averaged() -> None:
    value = tf.placeholder(tf.float32, [], name="value")
    average = tf.train.ExponentialMovingAverage(0.9)
    assert average.average_name(value) == "value/ExponentialMovingAverage"
    update = average.apply([value])
    assert update.name == "ExponentialMovingAverage"
    assert average.average_name(value) == average.average(value).op.name
    initialize()
    for fed, wanted in ((10.0, 1.0), (20.0, 2.9)):
        run([update], {value: fed})
        assert read(average.average(value)) == pytest.approx(wanted)


def test_the_decay_starts_small_when_updates_are_counted() -> None:
    value = tf.constant(10.0)
    average = tf.train.ExponentialMovingAverage(0.9, num_updates=0)
    update = average.apply([value])
    initialize()
    run(update)
    assert read(average.average(value)) == pytest.approx(9.0)


def test_an_average_without_its_zeros_is_the_average_of_the_values() -> None:
    value = tf.placeholder(tf.float32, [])
    shadow = tf.Variable(0.0, name="shadow")
    update = assign_moving_average(shadow, value, 0.9)
    initialize()
    run([update], {value: 10.0})
    assert read(shadow) == pytest.approx(10.0)
    run([update], {value: 20.0})
    assert read(shadow) == pytest.approx((10.0 * 0.09 + 20.0 * 0.1) / 0.19)


def test_an_average_of_integers_is_refused() -> None:
    with pytest.raises(TypeError, match="The variables must be half, float, or double: Const:0"):
        tf.train.ExponentialMovingAverage(0.9).apply([tf.constant(1)])


def test_the_average_of_a_variable_on_a_ps_stands_beside_it() -> None:
    cluster = tf.train.ClusterSpec({"ps": ["localhost:2222"], "worker": ["localhost:2223"]})
    with tf.device(tf.train.replica_device_setter(worker_device="/job:worker/task:0", cluster=cluster)):
        variable = tf.Variable(tf.ones([3]), name="w")
        average = tf.train.ExponentialMovingAverage(0.9)
        average.apply([variable])
    ops = {op.name: op for op in tf.get_default_graph().get_operations()}
    # As in TensorFlow 1.15.5: the initial value stays on the worker, where it is made; the slot is with the variable.
    switch = ops["w/ExponentialMovingAverage/cond/Switch_1"]
    assert (switch.device, switch.colocation_groups()) == ("/job:worker/task:0", [b"loc:@ones"])
    assert average.average(variable).device == "/job:ps/task:0"
    assert ops["cond/Merge"].device == "/job:worker/task:0"


@pytest.mark.parametrize("zero_debias", [False, True])
def test_an_average_on_a_ps_is_computed_by_the_worker_as_in_tensorflow(zero_debias: bool) -> None:
    with tf.device(tf.train.replica_device_setter(ps_tasks=2, worker_device="/job:worker/task:0")):
        value = tf.Variable(tf.ones([3]), name="w") * 2.0
        tf.train.ExponentialMovingAverage(0.9, zero_debias=zero_debias).apply([value])
    devices = {op.name: op.device for op in tf.get_default_graph().get_operations()}
    update = "ExponentialMovingAverage/AssignMovingAvg"
    computed = {devices[f"{update}/{name}"] for name in ("sub_1", "mul")}
    shadow = "mul/ExponentialMovingAverage"
    kept = {devices[name] for name in devices if name in (shadow, f"{shadow}/biased", f"{shadow}/local_step", update)}
    assert (computed, kept) == ({"/job:worker/task:0"}, {"/job:ps/task:1"})
