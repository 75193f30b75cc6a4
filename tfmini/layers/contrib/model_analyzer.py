"""``tf.contrib.slim.model_analyzer``: the sizes of a graph's tensors and of variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfmini.export import export
from tfmini.graph.graph import Graph

_RULE = "---------"


@export("tf.contrib.slim.model_analyzer.tensor_description")
def tensor_description(var: Any) -> str:
    """The type and shape of a variable or tensor, as in ``(float32 1x8x8x1024)``."""
    return f"({var.dtype.name} {'x'.join(map(str, var.shape))})"


def _heading(text: str) -> None:
    print(_RULE, text, _RULE, sep="\n")


@export("tf.contrib.slim.model_analyzer.analyze_ops")
def analyze_ops(graph: Graph, print_info: bool = False) -> int:
    """The total number of elements of all ops' outputs; outputs of unknown shape count 0.

    Args:
      print_info: whether to print a line per op.
    """
    if print_info:
        _heading("Operations: name -> (type shapes) [size]")
    total = 0
    for op in graph.get_operations():
        size = sum(output.shape.num_elements() or 0 for output in op.outputs)
        if print_info:
            shapes = ", ".join(tensor_description(output) for output in op.outputs if output.shape)
            print(op.name, "\t->", shapes, f"[{size}]")
        total += size
    return total


@export("tf.contrib.slim.model_analyzer.analyze_vars")
def analyze_vars(variables: Iterable[Any], print_info: bool = False) -> tuple[int, int]:
    """The total (number of elements, bytes) of variables.

    Args:
      print_info: whether to print a line per variable and the totals.
    """
    if print_info:
        _heading("Variables: name (type shape) [size]")
    elements = octets = 0
    for variable in variables:
        size = variable.shape.num_elements() or 0
        if print_info:
            print(variable.name, tensor_description(variable), f"[{size}, bytes: {size * variable.dtype.size}]")
        elements, octets = elements + size, octets + size * variable.dtype.size
    if print_info:
        print(f"Total size of variables: {elements}")
        print(f"Total bytes of variables: {octets}")
    return elements, octets
