"""Errors of a step as the client sees them: with its own operation and source line."""

from __future__ import annotations

import re

from tfmini import errors
from tfmini.graph.graph import Graph

_NODE = re.compile(r"\[\[\{\{node ([^}]+)\}\}\]\]")
_ANY_NODE = re.compile(r"\{\{(?:colocation_)?node ([^}]+)\}\}")


def located(error: errors.OpError, graph: Graph) -> errors.OpError:
    """The same error with the client's operation attached and node tags replaced by source lines."""
    match = _NODE.search(error.message)
    name = error.node_name or (match.group(1) if match else "")
    op = graph._ops.get(name)
    message = _ANY_NODE.sub(lambda found: _describe(found.group(1), graph), error.message)
    return errors.from_code(
        error.error_code,
        message,
        op=op,
        node_name=name,
        device=error.device,
        task=error.task,
        derived=error.derived,
    )


def _describe(name: str, graph: Graph) -> str:
    op = graph._ops.get(name)
    if op is None:
        return f"node {name}"
    file, line = op.creation_site()
    return f"node {name} (defined at {file}:{line}) "
