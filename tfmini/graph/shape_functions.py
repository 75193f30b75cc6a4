"""Shape functions that several families of ops share: Operation -> one raw shape per output.

`tfmini.ops.array.constant_value` has the one that reads the value of an input.
"""

from __future__ import annotations

from tfmini.graph.op_def import output_dtypes
from tfmini.graph.operation import Operation
from tfmini.shapes import RawShape, broadcast_raw, merge_raw


def same_shape(node: Operation) -> list[RawShape]:
    """Returns the shape of the first input, as for unary element-wise ops."""
    return [node.inputs[0].raw_shape]


def same_shapes(node: Operation) -> list[RawShape]:
    """Returns the shape of each input, for the output at the same position."""
    return [tensor.raw_shape for tensor in node.inputs]


def second_shape(node: Operation) -> list[RawShape]:
    """Returns the shape of the second input."""
    return [node.inputs[1].raw_shape]


def equal_shapes(node: Operation) -> list[RawShape]:
    """Merges the shapes of the first two inputs, which must be equal."""
    return [merge_raw(node.inputs[0].raw_shape, node.inputs[1].raw_shape)]


def broadcast_shape(node: Operation) -> list[RawShape]:
    """Broadcasts the shapes of two inputs, as for binary element-wise ops."""
    x, y = node.inputs
    return [broadcast_raw(x.raw_shape, y.raw_shape)]


def declared_shape(node: Operation) -> list[RawShape]:
    """Returns the shape in the attr ``shape``."""
    return [node.attrs["shape"]]


def unknown_shapes(node: Operation) -> list[RawShape]:
    """Returns an unknown shape for each output."""
    return [None] * len(output_dtypes(node.op_def, node.attrs))
