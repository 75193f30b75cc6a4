"""Leaving out of a step what an earlier attempt at the step has done already.

A step that is repeated after the loss of a connection must not update a variable twice. `omit` is the graph pass that
takes the updates out that have been made; what depends on them gets the present values.
"""

from __future__ import annotations

from collections.abc import Collection

from tfmini import errors
from tfmini.graph.node import Node, Nodes
from tfmini.graph.traits import ENTER_OPS, ops_with

STAND_IN = "_stand_in"
"""An attr of a dequeue that must not be repeated: the name of the variable whose value stands for the element."""

_WRITES = ops_with("writes")
_ACCUMULATES = ops_with("accumulator", "apply")


def is_update(node: Node) -> bool:
    """Whether the node changes a variable or an accumulator, or takes an element that must not be taken twice."""
    return node.op in _WRITES or node.op in _ACCUMULATES or STAND_IN in node.attrs


def omit(nodes: Nodes, names: Collection[str]) -> Nodes:
    """The nodes with the updates of these names replaced by nodes that change nothing.

    Raises:
      UnimplementedError: for an update whose output is neither a reference nor replaceable.
    """
    return {**nodes, **{name: _omitted(nodes[name], nodes) for name in names if name in nodes}}


def _omitted(node: Node, nodes: Nodes) -> Node:
    if STAND_IN in node.attrs:
        return _value_of(node, nodes[node.attrs[STAND_IN].decode()])
    assert node.handle is not None
    outputs = node.handle.op_def.outputs
    if not outputs:
        # In a loop it still has to run once per iteration, so it depends on the handle, which enters the loop.
        entering = [name for name, _ in node.inputs[:1] if name in nodes and nodes[name].op in ENTER_OPS]
        return node.replace(op="NoOp", inputs=(), controls=(*node.controls, *entering), attrs={})
    if len(outputs) == 1 and outputs[0].is_ref:
        return node.replace(op="RefIdentity", inputs=node.inputs[:1], attrs={"T": node.attrs["T"]})
    raise errors.UnimplementedError.of(
        f"{node.name} ({node.op}) has been run in a step that failed afterwards, and the step cannot be repeated"
        " without it."
    )


def _value_of(node: Node, variable: Node) -> Node:
    """Reads a variable in place of a node."""
    dtype = variable.attrs["dtype"]
    if variable.op == "VarHandleOp":
        return node.replace(op="ReadVariableOp", inputs=((variable.name, 0),), attrs={"dtype": dtype})
    return node.replace(op="Identity", inputs=((variable.name, 0),), attrs={"T": dtype})
