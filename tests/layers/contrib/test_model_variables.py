"""Variables of a model, found by scope and name."""

from __future__ import annotations

import pytest

import tfmini as tf

layers, slim = tf.contrib.layers, tf.contrib.slim


def test_variables_are_found_by_scope_and_suffix() -> None:
    framework = tf.contrib.framework
    with tf.variable_scope("a"):
        framework.model_variable("w", shape=[2], initializer=tf.zeros_initializer())
        framework.variable("b", shape=[1], trainable=False)
    framework.local_variable(1.0, name="local")
    assert [v.op.name for v in framework.get_variables("a")] == ["a/w", "a/b"]
    assert [v.op.name for v in framework.get_variables_by_suffix("w")] == ["a/w"]
    assert [v.op.name for v in framework.get_model_variables()] == ["a/w"]
    assert [v.op.name for v in framework.get_local_variables()] == ["local"]
    assert [v.op.name for v in framework.get_variables_to_restore(exclude=["a/b"])] == ["a/w"]
    assert framework.get_unique_variable("a/w").op.name == "a/w"
    with pytest.raises(ValueError, match="does not uniquely identify"):
        framework.get_unique_variable("c")
