"""Tracing of a dataset's Python functions into function bodies, which run once per element.

The function is called once, in a `FunctionGraph`. If it uses a tensor of an outer graph, that tensor is
*captured*: it becomes a further parameter, whose value is taken when the dataset is made. Constants are copied.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tfmini.data.pipeline import components_of, element_of
from tfmini.data.structure import Structure, normalize, structure_of
from tfmini.graph.attr_checks import is_within
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.node import DEFINED_AT, FunctionBody, Node
from tfmini.graph.op_types import ENTER_OPS, MERGE_OPS, PLACEHOLDER_OPS, SWITCH_OPS, ops_with
from tfmini.graph.operation import Operation, Tensor, node_of
from tfmini.ops.array.identity import identity, placeholder
from tfmini.ops.flow import autograph
from tfmini.ops.flow.functional import FunctionGraph


@dataclass(frozen=True)
class Traced:
    """A traced function: its body, the tensors that it captures and the structure of its result."""

    body: FunctionBody
    captures: list[Tensor]
    structure: Structure


def trace(function: Callable[..., Any], structures: list[Structure], name: str, unpack: bool = True) -> Traced:
    """Calls ``function`` once with placeholders.

    Args:
      structures: the structures of the arguments.
      name: the body's name, for messages.
      unpack: pass a single argument that is a tuple as several arguments.

    Raises:
      TypeError: when a value that the function returns cannot be converted to a tensor.
    """
    graph = FunctionGraph(get_default_graph())
    with graph.as_default():
        parameters = [
            placeholder(leaf.component_dtype, leaf.component_shape, name="argument")
            for structure in structures
            for leaf in structure.leaves
        ]
        waiting = iter(parameters)
        arguments = [element_of(structure, islice(waiting, len(structure.leaves))) for structure in structures]
        if unpack and len(arguments) == 1 and type(arguments[0]) is tuple:
            arguments = list(arguments[0])
        returned = autograph.call(function, arguments, {})
        result = _normalized(returned, function)
        results = [identity(t if t.op.graph is graph else graph.capture(t)) for t in components_of(result)]
    _warn_of_outer_seed(graph, name)
    return Traced(_body(graph, name, parameters, results), list(graph.captures), structure_of(result))


def _warn_of_outer_seed(graph: FunctionGraph, name: str) -> None:
    """A random op without a seed of its own has that of the graph around, and repeats itself for each iterator."""
    outer = get_default_graph().seed
    if outer and graph.seed == outer and graph.used_seed:
        warnings.warn(
            f"Seed {outer} from outer graph might be getting used by function {name}, if the random op has not been"
            " provided any seed explicitly. Explicitly set the seed in the function if this is not the intended"
            " behavior.",
            stacklevel=6,
        )


def _normalized(returned: object, function: Callable[..., Any]) -> Any:
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
    """The node with its source line for error messages, since the client's graph does not have the node."""
    node = node_of(operation)
    if not operation.creation_stack():
        return node
    file, line = operation.creation_site()
    return node.replace(attrs={**node.attrs, DEFINED_AT: f"{file}:{line}".encode()})


def _has_effect(operation: Operation) -> bool:
    if not operation.handle.op_def.is_stateful or operation.type == "ReadVariableOp":
        return False
    return not any(t.dtype.name in ("variant", "resource") for t in operation.outputs)


def ancestors_body(result: Tensor, name: str) -> FunctionBody:
    """The subgraph that computes ``result``, as a function without parameters.

    As in TensorFlow, control inputs are left out. So the result may belong to a branch or a loop; what enters it from
    outside is read there.

    Raises:
      ValueError: when the subgraph reads a placeholder, a variable, a loop variable or other state.
    """
    context = result.graph._get_control_flow_context()
    found: dict[str, Node] = {}
    stack = [result.op]
    while stack:
        operation = stack.pop()
        if operation.name not in found:
            _check_copyable(operation, context)
            sources = [_outside(t, context) for t in operation.inputs]
            inputs = tuple((t.op.name, t.value_index) for t in sources)
            found[operation.name] = node_of(operation).replace(inputs=inputs, controls=())
            stack += [t.op for t in sources]
    ordered = sorted(found.values(), key=lambda node: result.graph.get_operation_by_name(node.name)._id)
    return FunctionBody(name, ordered, [], [(result.op.name, result.value_index)], [])


def _outside(tensor: Tensor, context: object) -> Tensor:
    """The value that a branch or loop around ``context`` passes on as ``tensor``, or the tensor itself."""
    while True:
        op = tensor.op
        passes = op.type in SWITCH_OPS or op.type in ENTER_OPS and op.attrs["is_constant"]
        around = op._control_flow_context
        if not passes or around is None or not is_within(context, around) or _begins_loop(op):
            return tensor
        tensor = op.inputs[0]


def _begins_loop(op: Operation) -> bool:
    """Whether a Switch is that of a loop variable."""
    return op.type in SWITCH_OPS and op.inputs[0].op.type in MERGE_OPS and op._control_flow_context.IsWhileContext()


def _check_copyable(operation: Operation, context: object) -> None:
    around = operation._control_flow_context
    if operation.type in PLACEHOLDER_OPS:
        what = "a placeholder"
    elif operation.type in MERGE_OPS and around is not None and around.IsWhileContext() and is_within(context, around):
        what = "a loop variable, which has another value in each iteration,"
    elif operation.handle.op_def.is_stateful and not all(t.dtype.name == "variant" for t in operation.outputs):
        if operation.type in ops_with("copyable"):
            return
        what = "a stateful node"
    else:
        return
    raise ValueError(
        "Failed to create a one-shot iterator for a dataset. `Dataset.make_one_shot_iterator()` does not support"
        " datasets that capture stateful objects, such as a `Variable` or `LookupTable`. In these cases, use"
        f" `Dataset.make_initializable_iterator()`. (Original error: Cannot capture {what} (name:{operation.name},"
        f" type:{operation.type}) by value.)"
    )
