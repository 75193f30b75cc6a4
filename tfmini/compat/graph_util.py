"""``tf.graph_util``: reduces GraphDefs to the needed nodes and converts variables to constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.attr_values import tensor_proto
from tfmini.graph.graph_util import extract_sub_graph
from tfmini.graph.traits import ENTER_OPS, MERGE_OPS, SWITCH_OPS, VARIABLE_OPS


def _forwards_handle(op_type: str) -> bool:
    """Whether ops of a type forward the handle of a variable, into a conditional or a loop."""
    return op_type == "Identity" or op_type in SWITCH_OPS or op_type in ENTER_OPS


def _node_name(input_name: str) -> str:
    """The node of an input of a NodeDef: ``a`` for ``^a`` and ``a:1``."""
    return input_name.lstrip("^").partition(":")[0]


def _with_nodes(graph_def: Any, nodes: Iterable[Any]) -> Any:
    found = type(graph_def)()
    found.node.extend(nodes)
    found.library.CopyFrom(graph_def.library)
    found.versions.CopyFrom(graph_def.versions)
    return found


@export("tf.graph_util.convert_variables_to_constants")
def convert_variables_to_constants(
    sess: Any, input_graph_def: Any, output_node_names: list[str], variable_names_whitelist: Any = None,
    variable_names_blacklist: Any = None,
) -> Any:  # fmt: skip
    """Converts the variables of a GraphDef to constants with their current values.

    Args:
      sess: the session that has the values.
      input_graph_def: the graph of the session.
      output_node_names: the nodes that the result must be able to compute.
      variable_names_whitelist, variable_names_blacklist: the variables to convert, and not to convert.
    """
    inference = extract_sub_graph(input_graph_def, output_node_names)
    by_name = {node.name: node for node in inference.node}
    chosen = [
        node for node in inference.node
        if node.op in VARIABLE_OPS
        and (variable_names_whitelist is None or node.name in variable_names_whitelist)
        and (variable_names_blacklist is None or node.name not in variable_names_blacklist)
    ]  # fmt: skip
    names = [f"{node.name}/Read/ReadVariableOp:0" if node.op == "VarHandleOp" else f"{node.name}:0" for node in chosen]
    values = sess.run(names) if names else []
    constants = {node.name: value for node, value in zip(chosen, values)}
    frozen = [_frozen(node, by_name, constants) for node in inference.node]
    axes = [_axis_of(made) for made, node in zip(frozen, inference.node) if made.op != node.op == "ResourceGather"]
    return _with_nodes(inference, axes + frozen)


def _axis_of(gather: Any) -> Any:
    """Makes the constant 0, the axis of a gather."""
    made = type(gather)(name=gather.input[2], op="Const", device=gather.device)
    made.attr["dtype"].type = dtypes.int32.as_datatype_enum
    made.attr["value"].tensor.CopyFrom(tensor_proto(np.int32(0)))
    return made


def _frozen(node: Any, by_name: dict[str, Any], constants: dict[str, Any]) -> Any:
    """Returns the node, or the constant or copy that replaces it."""
    made = type(node)(name=node.name, device=node.device)
    if node.name in constants:
        dtype = dtypes.as_dtype(node.attr["dtype"].type)
        made.op = "Const"
        made.attr["dtype"].type = dtype.as_datatype_enum
        made.attr["value"].tensor.CopyFrom(tensor_proto(constants[node.name]))
        return made
    source = _handle_of(node, by_name)
    if source not in constants:
        return node
    if node.op == "ReadVariableOp":
        made.op = "Identity"
        made.input.extend(node.input)
        made.attr["T"].CopyFrom(node.attr["dtype"])
        return made
    if node.op == "ResourceGather":
        _gather(made, node)
        return made
    if _forwards_handle(node.op):
        made.CopyFrom(node)
        made.attr["T"].CopyFrom(by_name[source].attr["dtype"])
        return made
    return node


def _handle_of(node: Any, by_name: dict[str, Any]) -> str:
    """The variable of the node's first input, through any nodes that forward handles; "" if there is none."""
    while node.input:
        node = by_name[_node_name(node.input[0])]
        if node.op == "VarHandleOp":
            return str(node.name)
        if not _forwards_handle(node.op):
            return ""
    return ""


def _gather(made: Any, node: Any) -> None:
    made.op = "GatherV2"
    made.input.extend([node.input[0], node.input[1], f"{node.name}/axis"])
    made.attr["Tparams"].CopyFrom(node.attr["dtype"])
    made.attr["Tindices"].CopyFrom(node.attr["Tindices"])
    made.attr["Taxis"].type = dtypes.int32.as_datatype_enum


@export("tf.graph_util.remove_training_nodes")
def remove_training_nodes(input_graph: Any, protected_nodes: Any = None) -> Any:
    """Removes nodes that only training needs: CheckNumerics, and Identity nodes that are not protected."""
    protected = set(protected_nodes or ())
    checked = _without(input_graph, lambda node: node.op == "CheckNumerics" and node.name not in protected)
    depended_on = {source.lstrip("^") for node in checked.node for source in node.input if source.startswith("^")}
    flow = SWITCH_OPS | MERGE_OPS
    several = {_node_name(s) for node in checked.node for s in node.input if node.op in flow}

    def plain_copy(node: Any) -> bool:
        return node.op == "Identity" and len(node.input) == 1 and node.name not in protected | depended_on | several

    return _without(checked, plain_copy)


def _without(graph_def: Any, dropped: Callable[[Any], bool]) -> Any:
    """Removes the chosen nodes; their consumers get their inputs directly."""
    inputs = {node.name: node.input[0] for node in graph_def.node if dropped(node)}

    def source(name: str) -> str:
        while name in inputs:
            name = inputs[name]
        return name

    kept = []
    for node in graph_def.node:
        if node.name not in inputs:
            made = type(node)()
            made.CopyFrom(node)
            del made.input[:]
            made.input.extend(source(name) for name in node.input)
            kept.append(made)
    return _with_nodes(graph_def, kept)
