"""TensorFlow's switches between the behaviour of 1.x and 2.x; tfmini has only that of 1.x."""

from __future__ import annotations

from tfmini.compat.eager_tensors import EagerGraph
from tfmini.export import export, export_names
from tfmini.graph.default_graph import get_default_graph


@export("tf.disable_v2_behavior")
def disable_v2_behavior() -> None:
    """``tf.disable_v2_behavior``: does nothing, tfmini always behaves like TensorFlow 1.x."""


disable_eager_execution = disable_v2_behavior
disable_v2_tensorshape = disable_v2_behavior
disable_control_flow_v2 = disable_v2_behavior
disable_tensor_equality = disable_v2_behavior


@export("tf.executing_eagerly")
def executing_eagerly() -> bool:
    """``tf.executing_eagerly``: False, except in a function of `tf.py_function`: ops build a graph for a `Session`."""
    return isinstance(get_default_graph(), EagerGraph)


@export("tf.control_flow_v2_enabled")
def control_flow_v2_enabled() -> bool:
    """``tf.control_flow_v2_enabled``: False."""
    return False


export_names("tf", "disable_control_flow_v2 disable_eager_execution disable_tensor_equality disable_v2_tensorshape")
