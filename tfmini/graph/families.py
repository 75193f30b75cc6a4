"""What a family of ops takes from the graph, in one place: its modules import these names from here.

`registry` declares ops, `conversion` makes tensors of arguments, and `scoping` gives names and places. The rules of
shapes that families share stand here.
"""

from __future__ import annotations

from collections.abc import Callable

from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.op_def import output_dtypes
from tfmini.graph.op_types import ShapeRule
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import OpHandle, all_of, op
from tfmini.graph.scoping import colocate_with, control_dependencies, device, name_scope
from tfmini.shapes import RawShape, broadcast_raw, merge_dims, merge_raw, with_rank

# ---- Shape functions that several families of ops share: Operation -> one raw shape per output ---------------------
# `tfmini.ops.array.constant_value` has the one that reads the value of an input.


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
    return [None] * len(output_dtypes(node.handle.op_def, node.attrs))


def sized(text: str) -> Callable[[Operation], list[RawShape]]:
    """Makes a shape function of the sizes of inputs and outputs: ``"n k, n -> n"``.

    A word stands for one size wherever it stands, ``_`` for any, ``3`` for 3, and ``{attr}`` for the value of an attr.
    ``()`` is a scalar, ``*`` any shape (as an output: an unknown one), ``*1`` the shape of input 1. Inputs at the end
    that are not mentioned can have any shape.
    """
    before, after = ([shape.split() for shape in side.split(",") if shape.strip()] for side in text.split("->"))

    def shapes(node: Operation) -> list[RawShape]:
        known: dict[str, int | None] = {}
        for tensor, words in zip(node.inputs, before):
            if words == ["*"]:
                continue
            words = [] if words == ["()"] else words
            for word, size in zip(words, with_rank(tensor.raw_shape, len(words))):
                if word != "_":
                    known[word] = merge_dims(int(word) if word.isdigit() else known.get(word), size)
        return [_shape_of(node, words, known) for words in after]

    return shapes


def _shape_of(node: Operation, words: list[str], known: dict[str, int | None]) -> RawShape:
    if words[0].startswith("*"):
        return node.inputs[int(words[0][1:])].raw_shape if words[0][1:] else None
    return () if words == ["()"] else tuple(_size_of(node, word, known) for word in words)


def _size_of(node: Operation, word: str, known: dict[str, int | None]) -> int | None:
    if word.startswith("{"):
        return node.attrs[word[1:-1]]  # type: ignore[no-any-return]
    return int(word) if word.isdigit() else known.get(word)


# ---- The names that the modules of ops take from here --------------------------------------------------------------

__all__ = [
    "IndexedSlices", "OpHandle", "Operation", "ShapeRule", "Tensor", "all_of", "broadcast_shape", "colocate_with",
    "control_dependencies", "convert_to_tensor", "declared_shape", "device", "get_default_graph", "name_scope", "op",
    "same_shape", "second_shape", "sized", "unknown_shapes",
]  # fmt: skip
