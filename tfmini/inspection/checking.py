"""Functions that the checks of `lint` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tfmini.devices import parse, task_of_device
from tfmini.graph.node import Node
from tfmini.graph.traits import VARIABLE_OPS, ops_with
from tfmini.inspection.findings import Finding, Inspection

Check = Callable[[Inspection], Iterator[Finding]]
WORKER_JOBS = ("worker", "chief", "master")
_FORWARDS = ops_with("forwards", "value")


def ps_devices(found: Inspection) -> list[str]:
    """The devices of the job ``ps``."""
    return [d.device for d in found.devices if parse(d.device).job == "ps"]


def worker_tasks(found: Inspection) -> set[str]:
    """The tasks that can have a client with its own graph."""
    return {task_of_device(d.device) for d in found.devices if parse(d.device).job in WORKER_JOBS}


def variables(found: Inspection) -> list[str]:
    """The names of all variables of the graph."""
    return [name for name, node in found.nodes.items() if node.op in VARIABLE_OPS]


def local_variables(found: Inspection) -> set[str]:
    """The variables of which every worker has its own; guessed from their names if the source has no collections."""
    if found.local_variables is not None:
        return set(found.local_variables)
    return {
        name for name in variables(found) if "local_step" in name or name.split("/")[-1] in ("count", "total", "epochs")
    }


def running(found: Inspection) -> set[str]:
    """The graph's own ops that the step runs."""
    return {name for d in found.devices for name in d.ops}


def holder_of(found: Inspection, node: Node, slot: int = 0) -> str:
    """The op that owns the state of an input, found through ops that forward it."""
    name = node.inputs[slot][0] if slot < len(node.inputs) else ""
    while name in found.nodes and found.nodes[name].op in _FORWARDS:
        if not found.nodes[name].inputs:
            break
        name = found.nodes[name].inputs[0][0]
    return name


def some(names: Sequence[str]) -> str:
    """The first three names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
