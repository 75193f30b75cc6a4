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
