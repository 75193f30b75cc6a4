"""What an op costs, from its static shapes: floating-point operations and bytes of state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tfmini.dtypes import DType
from tfmini.graph.node import Endpoint, Node
from tfmini.shapes import RawShape

VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp", "AutoReloadVariable"})
# What only hands on, moves or selects values.
_FREE = VARIABLES | {
    "Assign", "AssignVariableOp", "BroadcastTo", "Cast", "Concat", "ConcatV2", "Const", "DynamicPartition",
    "DynamicStitch", "Enter", "Exit", "ExpandDims", "Fill", "Gather", "GatherV2", "Identity", "IdentityN",
    "LoopCond", "Merge", "NextIteration", "NoOp", "OnesLike", "Pack", "Pad", "Placeholder",
    "PlaceholderWithDefault", "Range", "Rank", "ReadVariableOp", "RefEnter", "Reshape", "ResourceGather",
    "Shape", "ShapeN", "Size", "Slice", "Split", "SplitV", "Squeeze", "StopGradient", "StridedSlice", "Switch",
    "Tile", "Transpose", "Unique", "Unpack", "ZerosLike", "_Recv", "_Send",
}  # fmt: skip
_BY_ROW = ("SparseApply", "ResourceSparseApply", "Scatter", "ResourceScatter")
_ROWS = frozenset({"grad", "updates"})
_REDUCTIONS = frozenset({"Sum", "Mean", "Max", "Min", "Prod"})

Shapes = Mapping[Endpoint, RawShape]
Rule = Callable[[Node, Shapes], "int | None"]


def state_bytes(node: Node) -> int | None:
    """The bytes of a variable, None when its shape is not fully known or its elements have no fixed size."""
    count, dtype = size(node.attrs.get("shape")), node.attrs.get("dtype")
    if count is None or not isinstance(dtype, DType) or dtype.name in ("string", "variant", "resource"):
        return None
    return count * dtype.size


def size(shape: RawShape) -> int | None:
    """The number of elements, None when the shape is not fully known."""
    if shape is None or any(d is None for d in shape):
        return None
    return math.prod(d for d in shape if d is not None)


def flops(node: Node, shapes: Shapes) -> int | None:
    """Floating-point operations (a multiply-add counts two), None when the shapes of a costly op are unknown.

    Cheap ops of unknown shape count nothing.
    """
    rule = _RULES.get(node.op)
    if rule is not None:
        return rule(node, shapes)
    if node.op in _FREE:
        return 0
    if node.op.startswith(_BY_ROW):
        return _row_update(node, shapes)
    if node.op in _REDUCTIONS and node.inputs:
        return size(shapes.get(node.inputs[0])) or 0
    return size(shapes.get((node.name, 0))) or 0


def _row_update(node: Node, shapes: Shapes) -> int:
    """As many as there are values in the rows, not in the variable."""
    names = node.handle.op_def.inputs if node.handle is not None else ()
    slot = next((i for i, arg in enumerate(names) if arg.name in _ROWS), None)
    return 0 if slot is None else size(shapes.get(node.inputs[slot])) or 0


def _matmul(node: Node, shapes: Shapes) -> int | None:
    out, left = size(shapes.get((node.name, 0))), shapes.get(node.inputs[0])
    if out is None or left is None:
        return None
    transposed = node.attrs.get("transpose_a") or node.attrs.get("adj_x")
    inner = left[-2] if transposed else left[-1]
    return None if inner is None else 2 * out * inner


def _convolution(node: Node, shapes: Shapes) -> int | None:
    # The gradients do the same multiplications as the convolution, seen from another side.
    own, last = (node.name, 0), node.inputs[-1]
    filters = shapes.get(own if node.op == "Conv2DBackpropFilter" else node.inputs[1])
    image = shapes.get(own if node.op == "Conv2D" else last)
    kernel, positions = size(filters), size(image)
    if kernel is None or positions is None or filters is None or not filters[-1]:
        return None
    return 2 * positions * kernel // filters[-1]


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2"), _matmul),
    **dict.fromkeys(("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"), _convolution),
}
