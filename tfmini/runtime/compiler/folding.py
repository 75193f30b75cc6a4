"""Nodes of constants that the compiler computes in advance, and bounds of what that may cost.

A graph is compiled in the thread that answers other tasks, and its nodes may come from any client. So the size of a
result is known before it is computed: from the op's shape function, or else from the sizes of the inputs.

A node behind control edges is folded as well, as a Const with some is a constant: it leaves no code, and what waits for
it waits for what is behind it. Else each step would compute the gradients that `tf.gradients` gates, as of a sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.graph.node import Endpoint, Node
from tfmini.graph.node_types import output_dtypes
from tfmini.graph.shape_functions import broadcast_shape, same_shape
from tfmini.runtime.compiler import kernel_checks
from tfmini.runtime.compiler.kernel_calls import OpFacts, grouped, list_lengths, make_callable

INPUT_BYTES, TOTAL_BYTES = 1 << 20, 64 << 20  # that a node may have, and all nodes of a program together
RESULT_BYTES = 10 << 20  # of a node; all results together may have `TOTAL_BYTES`, too
_ELEMENTWISE, _FEW = {same_shape, broadcast_shape}, 10_000  # no need to ask for the size of so few elements
_SIZE_RANK, _SIZE_COUNT = 1, 64  # an input like this may be a shape or a count


class Folding:
    """The folding of one program.

    Args:
      constants: the values that are known; those of folded nodes are added.
    """

    def __init__(self, constants: dict[Endpoint, Any]) -> None:
        self._constants = constants
        self._left = self._room = TOTAL_BYTES  # of inputs, of results

    def folds(self, node: Node, facts: OpFacts, inputs: list[Endpoint]) -> bool:
        """Computes a node of constants now, where that is possible and neither it nor its result is expensive."""
        constants = self._constants
        for endpoint in inputs:
            if endpoint not in constants:
                return False
        inline = facts.handle.inline_expression
        if inline is not None and inline(node) == "{0}":  # many gradients are copies of one constant
            constants[node.name, 0] = constants[inputs[0]]
            return True
        values = [constants[e] for e in inputs]
        if not self._is_cheap(node, facts, values):
            return False
        try:
            function = make_callable(facts.kernel, node)
            if kernel_checks.ENABLED:
                function = kernel_checks.checked(function, facts.kernel, node)
            with np.errstate(all="ignore"):
                result = function(*(values if facts.flat else grouped(list_lengths(facts.op_def, node), values)))
        except Exception:  # noqa: BLE001 - any error belongs to the step that runs the node
            return False
        outputs = (result,) if facts.single else result
        nbytes = sum(np.asarray(o).nbytes for o in outputs)
        if nbytes > min(RESULT_BYTES, self._room):
            return False
        self._room -= nbytes
        for i, output in enumerate(outputs):
            constants[node.name, i] = output
        return True

    def _is_cheap(self, node: Node, facts: OpFacts, values: list[Any]) -> bool:
        """Whether the inputs and the outputs are small: `tf.fill` makes much of little, and so does `tf.range`."""
        arrays = [np.asarray(value) for value in values]
        nbytes = sum(array.nbytes for array in arrays)
        if nbytes > INPUT_BYTES or nbytes > self._left:
            return False
        if facts.handle.shape_function not in _ELEMENTWISE or math.prod([array.size for array in arrays]) > _FEW:
            result = _result_bytes(node, facts, arrays)
            if (_most_bytes(arrays) if result is None else result) > min(RESULT_BYTES, self._room):
                return False
        self._left -= nbytes
        return True


class _Known:
    """A constant, as shape functions read the inputs of an operation."""

    type = "Const"

    def __init__(self, value: Any) -> None:
        self.attrs = {"value": value}
        self.raw_shape = value.shape

    @property
    def op(self) -> _Known:
        return self

    @property
    def dtype(self) -> Any:
        return dtypes.as_dtype(self.attrs["value"].dtype)


class _Operation:
    """A node of constants, as shape functions read an operation."""

    def __init__(self, node: Node, facts: OpFacts, arrays: Sequence[Any]) -> None:
        self.name, self.type, self.attrs, self.op_def = node.name, node.op, node.attrs, facts.op_def
        self.inputs = [_Known(array) for array in arrays]


def _result_bytes(node: Node, facts: OpFacts, arrays: Sequence[Any]) -> int | None:
    """The bytes of the outputs, as the op's shape function has them; None if it does not know them."""
    if facts.handle.shape_function is None:
        return None
    try:
        shapes = facts.handle.shape_function(_Operation(node, facts, arrays))
    except Exception:  # noqa: BLE001 - the inputs do not fit, or the function wants more than is known here
        return None
    nbytes = 0
    for shape, dtype in zip(shapes, output_dtypes(node)):
        if shape is None or None in shape:
            return None
        nbytes += math.prod(shape) * int(dtype.size or 8)
    return nbytes


def _most_bytes(arrays: Sequence[Any]) -> int:
    """A bound of the bytes of outputs of unknown shape: each element may meet each other one, and be repeated."""
    numbers = [array for array in arrays if _may_be_sizes(array)]
    sizes = [abs(int(number)) for array in numbers for number in array.flat]
    elements = [int(array.size) for array in arrays if not _may_be_sizes(array)]
    return 8 * math.prod(size for size in (*sizes, *elements) if size)


def _may_be_sizes(array: Any) -> bool:
    return array.dtype.kind in "iu" and array.ndim <= _SIZE_RANK and array.size <= _SIZE_COUNT
