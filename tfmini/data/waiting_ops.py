"""Detection of pipelines that may wait: for a generator, another thread or a Python function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tfmini.graph import op_types
from tfmini.graph.node import FunctionBody
from tfmini.graph.operation import Operation


def node_may_wait(op_type: str, attrs: Mapping[str, Any]) -> bool:
    """Whether an op may wait, or one in the functions that it calls."""
    if op_types.may_wait(op_type):
        return True
    bodies = [value for value in attrs.values() if isinstance(value, FunctionBody)]
    return any(node_may_wait(node.op, node.attrs) for body in bodies for node in body.nodes)


def may_wait(operations: Iterable[Operation]) -> bool:
    """Whether one of these operations or of their ancestors may take long to answer."""
    seen: set[Operation] = set()
    stack = list(operations)
    while stack:
        operation = stack.pop()
        if operation in seen:
            continue
        seen.add(operation)
        if node_may_wait(operation.type, operation.attrs):
            return True
        stack += [tensor.op for tensor in operation.inputs]
    return False
