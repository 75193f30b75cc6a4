"""Gradients of tensor arrays: reads become writes to a second array, and writes become reads.

Each call of ``tf.gradients`` has a second array of its own, so that two calls in one step do not add to
each other's gradients. The name scope of an arriving gradient identifies the call.
"""

from __future__ import annotations

from typing import Any

from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.flow import tensor_array_ops as array_ops
from tfmini.ops.flow.tensor_array import TensorArray


def _gradient_array(node: Operation, arriving: Any, flow: Tensor) -> TensorArray:
    dtype = node.attrs["T"] if "T" in node.attrs else node.attrs["dtype"]
    array = TensorArray(dtype, handle=node.inputs[0], flow=flow, colocate_with_first_write_call=False)
    return array.grad(source=_source_of(arriving), flow=flow)


def _source_of(arriving: Any) -> str:
    """The name scope of the innermost ``tf.gradients`` call that made a gradient.

    Raises:
      ValueError: when there is none.
    """
    parts = arriving.name.split("/")
    places = [i for i, part in enumerate(parts) if part.startswith("gradients")]
    if not places:
        raise ValueError(
            f"Expected op/tensor name to start with gradients (excluding scope), got: {arriving.name}. This means that"
            " a tf.gradients op with this op in its dependency path has a custom name that does not start with"
            " 'gradients'. Please make sure all calls to tf.gradients that have non-empty 'name' arguments use names"
            " that start with 'gradients'."
        )
    return "/".join(parts[: places[-1] + 1])


@array_ops.read_op.gradient
def _read_gradient(node: Operation, grad: Any) -> list[Any]:
    # The forward flow makes the array wait until the size of a growing one is final.
    array = _gradient_array(node, grad, node.inputs[2])
    return [None, None, array.write(node.inputs[1], grad).flow]


@array_ops.write_op.gradient
def _write_gradient(node: Operation, flow: Tensor) -> list[Any]:
    array = _gradient_array(node, flow, flow)
    return [None, None, array.read(node.inputs[1]), flow]


@array_ops.gather_op.gradient
def _gather_gradient(node: Operation, grad: Any) -> list[Any]:
    array = _gradient_array(node, grad, node.inputs[2])
    return [None, None, array.scatter(node.inputs[1], grad).flow]


@array_ops.scatter_op.gradient
def _scatter_gradient(node: Operation, flow: Tensor) -> list[Any]:
    array = _gradient_array(node, flow, flow)
    return [None, None, array.gather(node.inputs[1]), flow]


@array_ops.concat_op.gradient
def _concat_gradient(node: Operation, grad: Any, lengths_grad: Any) -> list[Any]:
    array = _gradient_array(node, grad, node.inputs[1])
    return [None, array.split(grad, lengths=node.outputs[1]).flow]


@array_ops.split_op.gradient
def _split_gradient(node: Operation, flow: Tensor) -> list[Any]:
    array = _gradient_array(node, flow, flow)
    return [None, array.concat(), None, flow]
