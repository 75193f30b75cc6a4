"""What a partition does to the queues and gradient accumulators of its task: which step can end whose wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfmini.graph.node import Node
from tfmini.graph.traits import ops_with

PUT, TAKE = "put", "take"
_ACTIONS = (
    (ops_with("queue", "enqueue"), PUT),
    (ops_with("queue", "dequeue"), TAKE),
    (ops_with("accumulator", "apply"), PUT),
    (ops_with("accumulator", "take"), TAKE),
)
_FORWARDS = ops_with("forwards", "value")
_TRAINS = ops_with("writes", "optimize", "scatter", "update")
_HOPS = 10


@dataclass(frozen=True)
class Effect:
    """What one node does.

    Attributes:
      node: its name.
      action: `PUT` (it enqueues, or adds a gradient) or `TAKE`.
      handle: the node of the object.
      contributor: the device that an added gradient comes from, where the node tells.
    """

    node: str
    action: str
    handle: Node
    contributor: str = ""


def effects_of(nodes: Sequence[Node]) -> tuple[Effect, ...]:
    """The effects of a partition, in its order."""
    found = [(node, action) for node in nodes for ops, action in _ACTIONS if node.op in ops and node.inputs]
    if not found:
        return ()
    by_name = {node.name: node for node in nodes}
    effects = []
    for node, action in found:
        handle = _handle(node, by_name)
        if handle is not None:
            contributor = node.attrs.get("_contributor", b"")
            effects.append(Effect(node.name, action, handle, contributor.decode()))
    return tuple(effects)


def _handle(node: Node, by_name: dict[str, Node]) -> Node | None:
    """The node of the object that the first input names, through ops that only pass it on."""
    for _ in range(_HOPS):
        found = by_name.get(node.inputs[0][0]) if node.inputs else None
        if found is None or found.op not in _FORWARDS:
            return found
        node = found
    return None


def is_training(nodes: Iterable[Node]) -> bool:
    """Whether a partition updates variables, other than by giving them a value of their own."""
    return any(node.op in _TRAINS for node in nodes)
