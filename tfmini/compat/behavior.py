"""TensorFlow's switches between the behaviour of 1.x and 2.x; tfmini has only that of 1.x."""

from __future__ import annotations


def disable_v2_behavior() -> None:
    """``tf.disable_v2_behavior``: does nothing, tfmini always behaves like TensorFlow 1.x."""


disable_eager_execution = disable_v2_behavior
disable_v2_tensorshape = disable_v2_behavior
disable_control_flow_v2 = disable_v2_behavior
disable_tensor_equality = disable_v2_behavior


def executing_eagerly() -> bool:
    """``tf.executing_eagerly``: False; ops build a graph that a `Session` runs."""
    return False


def control_flow_v2_enabled() -> bool:
    """``tf.control_flow_v2_enabled``: False."""
    return False
