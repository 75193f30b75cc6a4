"""Errors of a step as the client sees them: with its own operation and source line."""

from __future__ import annotations

import re

from tfmini import errors
from tfmini.devices import parse
from tfmini.graph.graph import Graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Operation
from tfmini.graph.traits import VARIABLE_OPS
from tfmini.shapes import format_raw

_PLACEMENT = re.compile(r"Cannot (assign a device|colocate)")
_NODE = re.compile(r"\[\[\{\{node ([^}]+)\}\}\]\]")
_UNINITIALIZED = re.compile(
    r"Attempting to use uninitialized value (\S+)|Error while reading resource variable (\S+) from Container"
)
_ASSIGNED = re.compile(r"Assign requires shapes of both tensors to match\. lhs shape= (\[.*?\]) rhs")
_ANY_NODE = re.compile(r"\{\{(?:colocation_)?node ([^}]+)\}\}( ?)")


def located(error: errors.OpError, graph: Graph) -> errors.OpError:
    """The same error with the client's operation attached and node tags replaced by source lines."""
    match = _NODE.search(error.message)
    name = error.node_name or (match.group(1) if match else "")
    op = graph._ops.get(name)
    message = _ANY_NODE.sub(lambda found: _describe(found[1], found[2], graph), error.message)
    if error.error_code == errors.FAILED_PRECONDITION:
        message += _remedy(error, graph)
    elif op is not None and (shapes := _ASSIGNED.search(error.message)):
        message += _owner(op, shapes[1], error.device)
    elif op is not None and _PLACEMENT.match(error.message):
        message += "".join(f"\nA scope around {name}: {site}." for site in (*op._sites[1], *op._device_assignments))
    found = errors.from_code(
        error.error_code,
        message,
        op=op,
        node_name=name,
        device=error.device,
        task=error.task,
        derived=error.derived,
    )
    found.unfinished = error.unfinished
    return found


def _describe(name: str, space: str, graph: Graph) -> str:
    """The text that replaces a node tag and the space, if any, that follows it."""
    op = graph._ops.get(name)
    if op is None:
        return f"node {name}{space}"
    file, line = op.creation_site()
    return f"node {name} (defined at {file}:{line}) "


def _remedy(error: errors.OpError, graph: Graph) -> str:
    """The op to run first, and the task of the variable, after an error about a variable without a value."""
    match = _UNINITIALIZED.search(error.message)
    if match is None:
        return ""
    name = match.group(1) or match.group(2)
    initializer = "local_variables_initializer" if _is_local(name, graph) else "global_variables_initializer"
    found = f"\nRun tf.{initializer}(), or restore, first"
    place = parse(error.device) if error.device else None
    if place is None or place.job in (None, "localhost"):
        return f"{found}."
    return f"{found}; it is a variable on /job:{place.job}/task:{place.task}."


def _owner(assignment: Operation, found: str, device: str) -> str:
    """The variable of an assignment of another shape, and whether it is one that an earlier job has left."""
    variable = assignment.inputs[0]
    declared = variable.raw_shape
    if variable.op.type not in VARIABLE_OPS:
        return ""
    if declared is None or None in declared or format_raw(declared) == found:
        return f"\nIt assigns to the variable '{variable.op.name}'."
    task = f"on {device.partition('/device:')[0]}" if device else "there"
    return (
        f"\nThe variable '{variable.op.name}' has shape {format_raw(declared)} in this graph, so that of shape {found}"
        f" {task} is left from an earlier job. Start its servers again, or drop their variables by"
        " tf.Session.reset(target)."
    )


def _is_local(name: str, graph: Graph) -> bool:
    local = graph.get_collection(GraphKeys.LOCAL_VARIABLES)
    return any(getattr(variable, "op", None) is not None and variable.op.name == name for variable in local)
