"""``tf.graph_util``: functions on GraphDef messages and their nodes."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes, protos
from tfmini.export import export
from tfmini.graph.graph import Graph
from tfmini.graph.graph_def import parse_endpoint
from tfmini.graph.operation import Operation
from tfmini.graph.prune import traverse
from tfmini.protos import GraphDef, NodeDef
from tfmini.shapes import TensorShape

# The list of TensorFlow's must_run_on_cpu. Not all of them are variables or change one.
_VARIABLE_OPS = frozenset(
    {
        *("Variable", "VariableV2", "Assign", "AssignAdd", "AssignSub"),
        *("ScatterAdd", "ScatterSub", "ScatterUpdate", "Queue", "TruncatedNormal"),
    }
)


@export("tf.graph_util.extract_sub_graph")
def extract_sub_graph(graph_def: GraphDef, dest_nodes: list[str]) -> Any:
    """Extracts the nodes that ``dest_nodes`` need (``tf.graph_util.extract_sub_graph``), in their order.

    A node also needs the nodes with which it is colocated.

    Raises:
      TypeError: ``graph_def`` is no GraphDef, or ``dest_nodes`` is no list.
      AssertionError: a node is not in the graph.
    """
    if getattr(getattr(graph_def, "DESCRIPTOR", None), "name", None) != "GraphDef":
        raise TypeError("graph_def must be a graph_pb2.GraphDef proto.")
    if isinstance(dest_nodes, str):
        raise TypeError("dest_nodes must be a list.")
    by_name = {node.name: node for node in graph_def.node}
    for name in dest_nodes:
        if name not in by_name:
            raise AssertionError(f"{name} is not in graph")
    needed = set(traverse(dest_nodes, lambda name: _needs(by_name[name]) if name in by_name else ()))
    kept = [node for node in graph_def.node if node.name in needed]
    return type(graph_def)(node=kept, library=graph_def.library, versions=graph_def.versions)


def _needs(node_def: NodeDef) -> list[str]:
    names = [text[1:] if text.startswith("^") else parse_endpoint(text)[0] for text in node_def.input]
    if "_class" in node_def.attr:
        groups = node_def.attr["_class"].list.s
        names.extend(group[5:].decode() for group in groups if group.startswith(b"loc:@"))
    return names


@export("tf.graph_util.must_run_on_cpu")
def must_run_on_cpu(node: Any, pin_variables_on_cpu: bool = False) -> bool:
    """Whether an Operation or NodeDef can only run on a CPU (``tf.graph_util.must_run_on_cpu``)."""
    node_def = node.node_def if isinstance(node, Operation) else node
    if pin_variables_on_cpu and node_def.op in _VARIABLE_OPS:
        return True
    if node_def.op == "Const":
        enum = node_def.attr["dtype"].type
        return enum in (dtypes.string.as_datatype_enum, dtypes.int32.as_datatype_enum)
    type_attr = {"DynamicStitch": "T", "ParallelDynamicStitch": "T", "Cast": "SrcT"}.get(node_def.op)
    return type_attr is not None and node_def.attr[type_attr].type == protos.DataType.Value("DT_INT32")


@export("tf.graph_util.tensor_shape_from_node_def_name")
def tensor_shape_from_node_def_name(graph: Graph, input_name: str) -> TensorShape:
    """Returns the static shape of the tensor with the name ``"a"`` or ``"a:1"``, as in a NodeDef's inputs."""
    name, index = parse_endpoint(input_name)
    return graph.get_tensor_by_name(f"{name}:{index}").get_shape()
