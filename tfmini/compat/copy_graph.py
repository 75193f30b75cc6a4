"""Copies of ops and variables in another graph, with all that they are computed from (``tf.contrib.copy_graph``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfmini.export import export
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.ref_variable import RefVariable
from tfmini.runtime.client.session import Session

_SHARED = (GraphKeys.GLOBAL_VARIABLES, GraphKeys.TRAINABLE_VARIABLES)


@export("tf.contrib.copy_graph.copy_variable_to_graph")
def copy_variable_to_graph(org_instance: Variable, to_graph: Graph, scope: str = "") -> RefVariable:
    """A variable of another graph with the same name and initial value.

    ``tf.contrib.copy_graph.copy_variable_to_graph``. The initial value is computed now, in a session of the
    variable's own graph.

    Args:
      org_instance: the variable.
      to_graph: where the copy goes.
      scope: a name scope of the copy. Its collections have it before their names, too, but for those of all variables.

    Returns:
      A reference variable of unknown static shape.

    Raises:
      TypeError: when ``org_instance`` is no variable.
    """
    if not isinstance(org_instance, Variable):
        raise TypeError(f"{org_instance} is not a Variable")
    with Session(graph=org_instance.graph) as session:
        value = session.run(org_instance.initial_value)
    collections = _collections(org_instance, org_instance.graph, scope)
    with to_graph.as_default():
        return RefVariable(
            value,
            GraphKeys.TRAINABLE_VARIABLES in collections,
            name=_name(org_instance.op.name, scope),
            collections=collections,
            validate_shape=False,
        )


@export("tf.contrib.copy_graph.copy_op_to_graph")
def copy_op_to_graph(org_instance: Any, to_graph: Graph, variables: Iterable[Variable], scope: str = "") -> Any:
    """A copy of an op or tensor in another graph (``tf.contrib.copy_graph.copy_op_to_graph``).

    What it is computed from is copied as well. An op whose name the graph has already is not.

    Args:
      org_instance: the op or tensor, or a variable.
      to_graph: where the copies go.
      variables: the variables that `copy_variable_to_graph` made there.
      scope: a name scope of the copies.

    Returns:
      The copied op or tensor; a tensor for a variable.

    Raises:
      TypeError: when ``org_instance`` is neither.
    """
    if isinstance(org_instance, Variable):
        org_instance = org_instance.op.outputs[0]
    if not isinstance(org_instance, (Operation, Tensor)):
        raise TypeError(f"Could not copy instance: {org_instance}")
    known = {variable.name: variable for variable in variables}
    name = _name(org_instance.name, scope)
    if name in known:
        return to_graph.get_tensor_by_name(known[name].name)
    if isinstance(org_instance, Tensor):
        copied = _copied(org_instance.op, to_graph, scope)
        made = copied.outputs[org_instance.value_index]
        for collection in _collections(org_instance, org_instance.graph, scope):
            if made not in to_graph.get_collection(collection):
                to_graph.add_to_collection(collection, made)
        return made
    return _copied(org_instance, to_graph, scope)


def _copied(op: Operation, graph: Graph, scope: str) -> Operation:
    """The namesake of an op, made with what it needs if there is none."""
    waiting = [op]
    while waiting:
        top = waiting[-1]
        needed = [*(t.op for t in top.inputs), *top.control_inputs]
        missing = [other for other in needed if _namesake(other, graph, scope) is None]
        if missing and _namesake(top, graph, scope) is None:
            waiting += missing
            continue
        waiting.pop()
        if _namesake(top, graph, scope) is None:
            _copy(top, graph, scope)
    return graph.get_operation_by_name(_name(op.name, scope))


def _copy(op: Operation, graph: Graph, scope: str) -> None:
    inputs = [graph.get_tensor_by_name(_name(t.name, scope)) for t in op.inputs]
    kinds = [t.dtype for t in op.outputs]
    with graph.as_default(), graph.control_dependencies(None), graph.device(None), graph.colocate_with(None, True):
        made = graph.add_op(op.handle, graph.unique_name(_name(op.name, scope)), inputs, dict(op.attrs), kinds)
    made._set_device(op.device)
    made._add_control_inputs([graph.get_operation_by_name(_name(other.name, scope)) for other in op.control_inputs])
    for old, new in [(op, made), *zip(op.outputs, made.outputs)]:
        for collection in _collections(old, op.graph, scope):
            graph.add_to_collection(collection, new)


def _namesake(op: Operation, graph: Graph, scope: str) -> Operation | None:
    try:
        return graph.get_operation_by_name(_name(op.name, scope))
    except KeyError:
        return None


def _name(name: str, scope: str) -> str:
    return f"{scope}/{name}" if scope else name


def _collections(thing: object, graph: Graph, scope: str) -> list[Any]:
    """The collections of the copy of a thing."""
    keys = graph.get_all_collection_keys()
    held = [key for key in keys if any(thing is one for one in graph.get_collection_ref(key))]
    return [key if key in _SHARED or not scope else f"{scope}/{key}" for key in held]


@export("tf.contrib.copy_graph.get_copied_op")
def get_copied_op(org_instance: Any, graph: Graph, scope: str = "") -> Any:
    """The namesake of an op, tensor or variable in another graph (``tf.contrib.copy_graph.get_copied_op``).

    Args:
      org_instance: the op, tensor or variable.
      graph: the other graph.
      scope: the name scope that it has there.

    Raises:
      KeyError: when the graph has none.
    """
    return graph.as_graph_element(_name(org_instance.name, scope), allow_tensor=True, allow_operation=True)
