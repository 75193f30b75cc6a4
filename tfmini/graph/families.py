"""What a family of ops takes from the graph, in one place: its modules import these names from here.

`registry` declares ops, `conversion` makes tensors of arguments, `scoping` gives names and places, and
`shape_functions` has the rules of shapes that families share.
"""

from __future__ import annotations

from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import OpHandle, all_of, op
from tfmini.graph.op_types import ShapeRule
from tfmini.graph.scoping import colocate_with, control_dependencies, device, name_scope
from tfmini.graph.shape_functions import (
    broadcast_shape,
    declared_shape,
    same_shape,
    second_shape,
    sized,
    unknown_shapes,
)

__all__ = [
    "IndexedSlices", "OpHandle", "Operation", "ShapeRule", "Tensor", "all_of", "broadcast_shape", "colocate_with",
    "control_dependencies", "convert_to_tensor", "declared_shape", "device", "get_default_graph", "name_scope", "op",
    "same_shape", "second_shape", "sized", "unknown_shapes",
]  # fmt: skip
