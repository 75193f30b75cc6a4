"""``tf.graph_util``: GraphDefs cut to what is needed, with variables turned into constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.graph.attr_values import tensor_proto
from tfmini.graph.importing import import_graph_def

__all__ = [
    "convert_variables_to_constants", "extract_sub_graph", "import_graph_def", "must_run_on_cpu",
    "remove_training_nodes", "tensor_shape_from_node_def_name",
]  # fmt: skip

def _node_name(input_name: str) -> str:
    """The node of an input as a NodeDef spells it: ``^a`` and ``a:1`` are of ``a``."""
    return input_name.lstrip("^").partition(":")[0]


def must_run_on_cpu(node: Any, pin_variables_on_cpu: bool = False) -> bool:
    """Whether a node, an Operation or a NodeDef, needs a CPU: variables if asked for, and strings."""
    definition = getattr(node, "node_def", node)
    if pin_variables_on_cpu and definition.op in ("Variable", "VariableV2"):
        return True
    if definition.op == "Const" and definition.attr["dtype"].type == dtypes.string.as_datatype_enum:
        return True
    return definition.op in ("DynamicStitch", "ParallelDynamicStitch")


def extract_sub_graph(graph_def: Any, dest_nodes: Iterable[str]) -> Any:
    """The GraphDef of what the named nodes need.

    Raises:
      TypeError: for something else than a GraphDef, or a string in place of the list.
      AssertionError: for a name that the graph does not have.
    """
    if not hasattr(graph_def, "node"):
        raise TypeError("graph_def must be a graph_pb2.GraphDef proto.")
    if isinstance(dest_nodes, str):
        raise TypeError("dest_nodes must be a list.")
    by_name = {node.name: node for node in graph_def.node}
    needed: set[str] = set()
    waiting = list(dest_nodes)
    for name in waiting:
        assert name in by_name, f"{name} is not in graph"
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting.extend(_node_name(source) for source in by_name[name].input)
    return _with_nodes(graph_def, (node for node in graph_def.node if node.name in needed))


def _with_nodes(graph_def: Any, nodes: Iterable[Any]) -> Any:
    found = type(graph_def)()
    found.node.extend(nodes)
    found.library.CopyFrom(graph_def.library)
    found.versions.CopyFrom(graph_def.versions)
    return found


def tensor_shape_from_node_def_name(graph: Any, input_name: str) -> Any:
    """The static shape of a tensor; a name without a number means the first output."""
    name = input_name if ":" in input_name else f"{input_name}:0"
    return graph.get_tensor_by_name(name).shape


def convert_variables_to_constants(
    sess: Any, input_graph_def: Any, output_node_names: Iterable[str], variable_names_whitelist: Any = None,
    variable_names_blacklist: Any = None,
) -> Any:  # fmt: skip
    """A GraphDef in which variables have become constants with their present values.

    Args:
      sess: the session that has the values.
      input_graph_def: the graph of the session.
      output_node_names: what the result must be able to compute.
      variable_names_whitelist, variable_names_blacklist: which variables become constants.
    """
    inference = extract_sub_graph(input_graph_def, output_node_names)
    by_name = {node.name: node for node in inference.node}
    chosen = [
        node for node in inference.node
        if node.op in ("Variable", "VariableV2", "VarHandleOp")
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
    """The constant 0 that a gather takes as its axis."""
    made = type(gather)(name=gather.input[2], op="Const", device=gather.device)
    made.attr["dtype"].type = dtypes.int32.as_datatype_enum
    made.attr["value"].tensor.CopyFrom(tensor_proto(np.int32(0)))
    return made


def _frozen(node: Any, by_name: dict[str, Any], constants: dict[str, Any]) -> Any:
    """The node, or the constant or copy that takes its place."""
    made = type(node)(name=node.name, device=node.device)
    if node.name in constants:
        dtype = dtypes.as_dtype(node.attr["dtype"].type)
        made.op = "Const"
        made.attr["dtype"].type = dtype.as_datatype_enum
        made.attr["value"].tensor.CopyFrom(tensor_proto(constants[node.name]))
        return made
    source = _handle_of(node, by_name)
    if source in constants and node.op in ("ReadVariableOp", "ResourceGather"):
        if node.op == "ReadVariableOp":
            made.op = "Identity"
            made.input.extend(node.input)
            made.attr["T"].CopyFrom(node.attr["dtype"])
        else:
            _gather(made, node)
        return made
    if source in constants and node.op == "Identity":  # it passed the handle on
        made.CopyFrom(node)
        made.attr["T"].CopyFrom(by_name[source].attr["dtype"])
        return made
    return node


def _handle_of(node: Any, by_name: dict[str, Any]) -> str:
    """The variable whose handle or value comes in first, through any copies; "" if there is none."""
    while node.input:
        node = by_name[_node_name(node.input[0])]
        if node.op == "VarHandleOp":
            return str(node.name)
        if node.op != "Identity":
            return ""
    return ""


def _gather(made: Any, node: Any) -> None:
    made.op = "GatherV2"
    made.input.extend([node.input[0], node.input[1], f"{node.name}/axis"])
    made.attr["Tparams"].CopyFrom(node.attr["dtype"])
    made.attr["Tindices"].CopyFrom(node.attr["Tindices"])
    made.attr["Taxis"].type = dtypes.int32.as_datatype_enum


def remove_training_nodes(input_graph: Any, protected_nodes: Any = None) -> Any:
    """A GraphDef without what only training needs: CheckNumerics, and Identity nodes that nobody names."""
    protected = set(protected_nodes or ())
    checked = _without(input_graph, lambda node: node.op == "CheckNumerics" and node.name not in protected)
    depended_on = {source.lstrip("^") for node in checked.node for source in node.input if source.startswith("^")}
    several = {_node_name(s) for node in checked.node for s in node.input if node.op in ("Switch", "Merge")}

    def plain_copy(node: Any) -> bool:
        return (
            node.op == "Identity" and len(node.input) == 1 and node.name not in protected | depended_on | several
        )

    return _without(checked, plain_copy)


def _without(graph_def: Any, dropped: Callable[[Any], bool]) -> Any:
    """The graph in which the chosen nodes' users take their inputs directly."""
    stand_ins = {node.name: node.input[0] for node in graph_def.node if dropped(node)}

    def source(name: str) -> str:
        while name in stand_ins:
            name = stand_ins[name]
        return name

    kept = []
    for node in graph_def.node:
        if node.name not in stand_ins:
            made = type(node)()
            made.CopyFrom(node)
            del made.input[:]
            made.input.extend(source(name) for name in node.input)
            kept.append(made)
    return _with_nodes(graph_def, kept)
