"""Checks that every float of a graph is finite: ``tf.add_check_numerics_ops``, ``tf.verify_tensor_all_finite``."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.deprecated_arguments import either
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.families import Operation, Tensor, colocate_with, control_dependencies, convert_to_tensor, name_scope
from tfmini.ops.array.identity import check_numerics
from tfmini.ops.control import group, with_dependencies

_CHECKED = (dtypes.float16, dtypes.float32, dtypes.float64)


@export("tf.verify_tensor_all_finite", "tf.debugging.assert_all_finite")
def verify_tensor_all_finite(
    t: Any = None, msg: str | None = None, name: str | None = None, x: Any = None, message: str | None = None
) -> Tensor:
    """``t``; the step fails when it holds a NaN or an infinity (``tf.verify_tensor_all_finite``).

    Args:
      msg: the error message.
    """
    value, text = either("x", x, "t", t), either("message", message, "msg", msg)
    with name_scope(name, "VerifyFinite", [value]):
        tensor = convert_to_tensor(value, name="t")
        with colocate_with(tensor):
            check = check_numerics(tensor, message=text)
            return with_dependencies([check], tensor)


@export("tf.add_check_numerics_ops")
def add_check_numerics_ops() -> Operation:
    """A check of each float tensor of the graph, in the order of the ops (``tf.add_check_numerics_ops``).

    Returns:
      The op that runs all checks.

    Raises:
      ValueError: when a float is computed in a conditional or a loop.
    """
    checks: list[Any] = []
    for node in get_default_graph().get_operations():
        for output in node.outputs:
            if output.dtype not in _CHECKED:
                continue
            if node._get_control_flow_context() is not None:
                raise ValueError(
                    "`tf.add_check_numerics_ops() is not compatible with TensorFlow control flow operations such as"
                    " `tf.cond()` or `tf.while_loop()`."
                )
            with control_dependencies(checks):
                checks = [check_numerics(output, message=f"{node.name}:{output.value_index}")]
    return group(*checks)
