"""Strategies of one replica."""

from __future__ import annotations

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
