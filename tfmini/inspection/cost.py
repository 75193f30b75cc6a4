"""Estimates an op's cost from its static shapes: floating-point operations and bytes of state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tfmini.dtypes import DType
from tfmini.graph.node import Endpoint, Node
from tfmini.graph.node_types import MADE_BY_PASSES
from tfmini.graph.traits import ops_with, trait_of
from tfmini.shapes import RawShape

# Ops with one of these traits only forward, move or select values.
_FREE = tuple(map(ops_with, ("variable", "placeholder", "flow", "control_only", "forwards", "looks_up", "shape_only")))
_ASSIGNS = ops_with("writes", "assign")
_CHANGES = frozenset({"grad", "delta", "updates"})

Shapes = Mapping[Endpoint, RawShape]
Rule = Callable[[Node, Shapes], "int | None"]


def state_bytes(node: Node) -> int | None:
    """The bytes of a variable; None if its shape is not fully known or its elements have no fixed size."""
    count, dtype = size(node.attrs.get("shape")), node.attrs.get("dtype")
    if count is None or not isinstance(dtype, DType) or dtype.name in ("string", "variant", "resource"):
        return None
    return count * dtype.size


def size(shape: RawShape) -> int | None:
    """The number of elements; None if the shape is not fully known."""
    if shape is None or any(d is None for d in shape):
        return None
    return math.prod(d for d in shape if d is not None)


def flops(node: Node, shapes: Shapes) -> int | None:
    """The floating-point operations of an op (a multiply-add counts as two); None if a costly op has unknown shapes.

    Cheap ops of unknown shape count as 0.
    """
    rule = _RULES.get(trait_of(node.op, "work"))
    if rule is not None:
        return rule(node, shapes)
    if node.op in MADE_BY_PASSES or node.op in _ASSIGNS or any(node.op in ops for ops in _FREE):
        return 0
    inputs = _inputs(node)
    change = next((name for name in inputs if name in _CHANGES), None) if trait_of(node.op, "writes") else None
    # An update costs one operation per value of the gradient, which may cover only some rows of the variable.
    return size(shapes.get((node.name, 0) if change is None else inputs[change])) or 0


def _inputs(node: Node) -> dict[str, Endpoint]:
    """The sources of a node's inputs by declared name; wrong if an input is a list."""
    names = node.handle.op_def.inputs if node.handle is not None else ()
    return {arg.name: source for arg, source in zip(names, node.inputs)}


def _nothing(node: Node, shapes: Shapes) -> int:
    return 0


def _reduction(node: Node, shapes: Shapes) -> int:
    return size(shapes.get(node.inputs[0])) or 0


def _matmul(node: Node, shapes: Shapes) -> int | None:
    out, left = size(shapes.get((node.name, 0))), shapes.get(node.inputs[0])
    if out is None or left is None:
        return None
    transposed = node.attrs.get("transpose_a") or node.attrs.get("adj_x")
    inner = left[-2] if transposed else left[-1]
    return None if inner is None else 2 * out * inner


def _convolution(node: Node, shapes: Shapes) -> int | None:
    # The gradients need the same multiplications as the convolution.
    own, inputs = (node.name, 0), _inputs(node)
    filters = shapes.get(inputs.get("filter", own))
    image = shapes.get(inputs.get("out_backprop", own))
    kernel, positions = size(filters), size(image)
    if kernel is None or positions is None or filters is None or not filters[-1]:
        return None
    return 2 * positions * kernel // filters[-1]


_RULES: dict[str | None, Rule] = {
    "none": _nothing, "input": _reduction, "matmul": _matmul, "convolution": _convolution,
}  # fmt: skip
