"""Which sends travel in one message.

Two sends of one device to the same other device may share a message if neither can be held up
by something that the other does not wait for: else the message could wait for an answer to
itself. What can hold up a node is an arrival (a ``_Recv``) or an op that waits for other steps
or tasks (a dequeue, a collective). So: the *wave* of a send is the set of such ops that it needs
in its own partition, and sends of one link and one wave form a group. All that is between is
arithmetic, which only takes time.

Inside a loop messages are sent once per iteration, so the frame is part of what sends must have in
common, and so is what they need of the *same* iteration: a value that comes round needs all that the
iteration before needed, and would else look as late as the iteration's own last one.

The sets are bit sets, shared by all nodes of a chain that adds nothing, so a sweep is cheap.
Loops are swept again until nothing changes, because a value may come round.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tfmini.graph.frames import ENTER_OPS, EXIT_OPS, FramePath, frame_paths, has_flow
from tfmini.graph.node import Node, Nodes
from tfmini.graph.prune import BACK_EDGE_OPS

Wave = tuple[int, int]
"""Bit sets of the waiting ops that a node needs: of its own iteration, and of any."""

# Op types that may wait for other steps or tasks; to name one too many only splits a message.
_WAITING = re.compile("Queue|Take|Barrier|Collective|Nccl|[Ss]tage|Reader|PyFunc|Iterator")


def number_groups(parts: dict[str, Nodes], feeds_may_wait: bool = False) -> None:
    """Gives both ends of every pair the attr ``_group``, an int counted per (source, destination).

    Groups are numbered in the order in which their first sends stand in the source partition.
    """
    receivers: dict[bytes, Node] = {}
    for part in parts.values():
        for node in part.values():
            if node.op == "_Recv" and not node.attrs["client_terminated"]:
                receivers[node.attrs["tensor_name"]] = node
    for part in parts.values():
        sends = [n for n in part.values() if n.op == "_Send" and not n.attrs["client_terminated"]]
        if sends:
            paths = frame_paths(part) if has_flow(part) else {}
            _number_sends(sends, _waves(part, feeds_may_wait, paths), paths, receivers)


def _number_sends(
    sends: list[Node], needs: dict[str, Wave], paths: dict[str, FramePath], receivers: dict[bytes, Node]
) -> None:
    groups: dict[bytes, dict[tuple[FramePath, Wave], int]] = {}
    for send in sends:
        waves = groups.setdefault(send.attrs["recv_device"], {})
        group = waves.setdefault((paths.get(send.name, ()), needs[send.name]), len(waves))
        send.attrs["_group"] = receivers[send.attrs["tensor_name"]].attrs["_group"] = group


def _waves(part: Nodes, feeds_may_wait: bool, paths: dict[str, FramePath]) -> dict[str, Wave]:
    """Per node the set of waiting ops that it needs, itself included, as a bit set: of its iteration, and of any."""
    bits: dict[str, int] = {}
    for name, node in part.items():
        if _waits(node.op) or (
            node.op == "_Recv" and (feeds_may_wait or not node.attrs["client_terminated"])
        ):
            bits[name] = 1 << len(bits)
    needs = _needs(part, bits, paths)
    if not paths:
        return {name: (mask, mask) for name, mask in needs.items()}
    once = {name: _begun(node, part) for name, node in part.items()}
    return {name: (mask, needs[name]) for name, mask in _needs(once, bits, paths).items()}


def _begun(node: Node, part: Nodes) -> Node:
    """The node without what comes to it from the iteration before."""
    here = [endpoint for endpoint in node.inputs if part[endpoint[0]].op not in BACK_EDGE_OPS]
    return node if len(here) == len(node.inputs) else node.replace(inputs=here)


def _needs(part: Nodes, bits: dict[str, int], paths: dict[str, FramePath]) -> dict[str, int]:
    needs = dict.fromkeys(part, 0)
    while _sweep(part, bits, needs) or paths and _close_loops(part, paths, needs):
        pass
    return needs


def _close_loops(part: Nodes, paths: dict[str, FramePath], needs: dict[str, int]) -> bool:
    """A loop starts when all that enters is there, and is left when all of it has ended."""
    entering: dict[FramePath, int] = {}
    inside: dict[FramePath, int] = {}
    for name, path in paths.items():
        if part[name].op in ENTER_OPS:
            entering[path] = entering.get(path, 0) | needs[name]
        for depth in range(1, len(path) + 1):
            inside[path[:depth]] = inside.get(path[:depth], 0) | needs[name]
    changed = False
    for name, path in paths.items():
        mask = inside[path] if part[name].op in EXIT_OPS else entering.get(path, 0)
        if mask | needs[name] != needs[name]:
            needs[name] |= mask
            changed = True
    return changed


def _sweep(part: Nodes, bits: dict[str, int], needs: dict[str, int]) -> bool:
    """Updates ``needs`` in place; True when a value that goes round a loop has changed."""
    came_round = False
    for name, node in part.items():
        mask = bits.get(name, 0) | needs[name]  # what a loop added stays
        for source, _ in node.inputs:
            if mask != needs[source]:  # equal sets stay one object
                mask = mask | needs[source] if mask else needs[source]
        for source in node.controls:
            if mask != needs[source]:
                mask = mask | needs[source] if mask else needs[source]
        if mask != needs[name]:
            came_round |= node.op in BACK_EDGE_OPS
            needs[name] = mask
    return came_round


@lru_cache(maxsize=4096)
def _waits(op_type: str) -> bool:
    return _WAITING.search(op_type) is not None
