"""Which pipelines may wait: for a generator, for another thread, for whatever a Python function does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tfmini.graph.node import FunctionBody
from tfmini.graph.operation import Operation

_WAITING = frozenset({
    "_PyGeneratorDataset", "PrefetchDataset", "ParallelMapDataset", "MapAndBatchDataset", "PyFunc", "PyFuncStateless",
    "EagerPyFunc",
})  # fmt: skip


def node_may_wait(op_type: str, attrs: Mapping[str, Any]) -> bool:
    """Whether an op, or one in the functions that it calls, may take long to answer."""
    if op_type in _WAITING:
        return True
    bodies = [value for value in attrs.values() if isinstance(value, FunctionBody)]
    return any(node_may_wait(node.op, node.attrs) for body in bodies for node in body.nodes)


def may_wait(operations: Iterable[Operation]) -> bool:
    """Whether one of these operations, or of those that they read, may."""
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
