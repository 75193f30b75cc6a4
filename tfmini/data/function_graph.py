"""Tracing: a Python function of tensors becomes a little graph that runs per element of a dataset.

The function is called once, in a `FunctionGraph`. A tensor of the surrounding graph that it uses is
*captured*: it becomes one more parameter, whose value is taken when the dataset is made.
Small constants are copied instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tfmini.data.sparse_values import component_of, value_of
from tfmini.data.structure import Structure, normalize, structure_of
from tfmini.graph import nest
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.node import DEFINED_AT, FunctionBody, Node, node_of
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scopes import ControlScope
from tfmini.ops.array_identity import identity, placeholder
from tfmini.ops.constant import const

# Stateful, but nothing happens when nobody looks at the result.
_ONLY_READ = frozenset({"ReadVariableOp", "VarHandleOp", "Placeholder", "HashTableV2", "MutableHashTableV2"})


class FunctionGraph(Graph):
    """The graph of a function under construction inside another graph.

    Attributes:
      captures: tensor of the outer graph -> the Placeholder that stands for it.
    """

    def __init__(self, outer: Graph) -> None:
        super().__init__()
        self.outer = outer
        self.seed = outer.seed
        self.attachments = outer.attachments  # variable stores and the functions of py_func ops
        self.captures: dict[Tensor, Tensor] = {}
        self._copies: dict[Tensor, Tensor] = {}

    def capture(self, tensor: Tensor) -> Tensor:
        """The tensor of this graph that stands for one of the graphs around it.

        Raises:
          ValueError: for a tensor of a graph that is not around this one.
        """
        around = self.outer
        while around is not None and around is not tensor.op.graph:
            around = around.outer
        if around is None:
            raise ValueError(f"{tensor} must be from the same graph as the function that uses it.")
        if tensor.op.type == "Const":
            return self._copy(tensor)
        if tensor not in self.captures:
            with self.as_default(), self.control_dependencies(None):
                made = placeholder(tensor.dtype.base_dtype, tensor.shape, name=f"captured_{tensor.op.name}")
            self.captures[tensor] = made
        return self.captures[tensor]

    def _copy(self, tensor: Tensor) -> Tensor:
        if tensor not in self._copies:
            attrs = tensor.op.attrs
            with self.as_default(), self.control_dependencies(None):
                self._copies[tensor] = const(value=attrs["value"], dtype=attrs["dtype"], name=tensor.op.name)
        return self._copies[tensor]

    def control_dependencies(self, control_inputs: Iterable[Any] | None) -> ControlScope:
        """As in `Graph`; what lies outside is done before the function runs."""
        if control_inputs is None:
            return super().control_dependencies(None)
        inside = [item for item in control_inputs if getattr(item, "graph", self) is self]
        return super().control_dependencies(inside)


@dataclass(frozen=True)
class Traced:
    """A function as a body, with what it captured and what it returns."""

    body: FunctionBody
    captures: list[Tensor]
    structure: Structure


def trace(function: Callable[..., Any], structures: list[Structure], name: str, unpack: bool = True) -> Traced:
    """Calls ``function`` once with placeholders.

    Args:
      structures: of the arguments. A single one that is a tuple is unpacked into several.
      name: for messages and nodes.
      unpack: whether it is.

    Raises:
      TypeError: when the function returns what cannot become tensors.
    """
    graph = FunctionGraph(get_default_graph())
    with graph.as_default():
        parameters = [
            placeholder(leaf.component_dtype, leaf.component_shape, name="argument")
            for structure in structures
            for leaf in structure.leaves
        ]
        waiting = iter(parameters)
        arguments = [
            structure.pack([value_of(leaf, next(waiting)) for leaf in structure.leaves]) for structure in structures
        ]
        if unpack and len(arguments) == 1 and type(arguments[0]) is tuple:
            arguments = list(arguments[0])
        returned = function(*arguments)
        result = _normalized(returned, function)
        components = [component_of(value) for value in nest.flatten(result)]
        results = [identity(t if t.op.graph is graph else graph.capture(t)) for t in components]
    return Traced(_body(graph, name, parameters, results), list(graph.captures), structure_of(result))


def _normalized(returned: Any, function: Any) -> Any:
    if isinstance(returned, list):
        returned = tuple(returned)
    try:
        return normalize(returned)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"Unsupported return value from function passed to a dataset ({function}): {returned}. {error}"
        ) from error


def _body(graph: FunctionGraph, name: str, parameters: list[Tensor], results: list[Tensor]) -> FunctionBody:
    operations = graph.get_operations()
    return FunctionBody(
        name,
        [_located_node(operation) for operation in operations],
        [t.op.name for t in (*parameters, *graph.captures.values())],
        [(t.op.name, t.value_index) for t in results],
        [operation.name for operation in operations if _has_effect(operation)],
    )


def _located_node(operation: Operation) -> Node:
    """The node, with its source line for error messages: the client cannot look it up in a graph of its own."""
    node = node_of(operation)
    file, line = operation.creation_site()
    return node.replace(attrs={**node.attrs, DEFINED_AT: f"{file}:{line}".encode()})


def _has_effect(operation: Operation) -> bool:
    if not operation.op_def.is_stateful or operation.type in _ONLY_READ:
        return False
    return not any(t.dtype.name in ("variant", "resource") for t in operation.outputs)


def ancestors_body(result: Tensor, name: str) -> FunctionBody:
    """The part of a graph that a dataset is made by, as a function without parameters.

    Raises:
      ValueError: when it reads a placeholder, a variable or other state.
    """
    found: dict[str, Operation] = {}
    stack = [result.op]
    while stack:
        operation = stack.pop()
        if operation.name not in found:
            _check_copyable(operation)
            found[operation.name] = operation
            stack += [t.op for t in operation.inputs]
            stack += operation.control_inputs
    ordered = sorted(found.values(), key=lambda operation: operation._id)
    return FunctionBody(name, [node_of(o) for o in ordered], [], [(result.op.name, result.value_index)], [])


def _check_copyable(operation: Operation) -> None:
    if operation.type in ("Placeholder", "PlaceholderV2"):
        what = "a placeholder"
    elif operation.op_def.is_stateful and not all(t.dtype.name == "variant" for t in operation.outputs):
        if operation.type in ("Assert", "MatchingFiles"):
            return
        what = "a stateful node"
    elif operation.type in ("Variable", "VariableV2"):
        what = "a stateful node"
    else:
        return
    raise ValueError(
        "Failed to create a one-shot iterator for a dataset. `Dataset.make_one_shot_iterator()` does not support"
        " datasets that capture stateful objects, such as a `Variable` or `LookupTable`. In these cases, use"
        f" `Dataset.make_initializable_iterator()`. (Original error: Cannot capture {what} (name:{operation.name},"
        f" type:{operation.type}) by value.)"
    )
