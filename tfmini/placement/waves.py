"""Which sends travel in one message.

Two sends of one device to the same other device may share a message if neither can be held up
by something that the other does not wait for: else the message could wait for an answer to
itself. What can hold up a node is an arrival (a ``_Recv``) or an op that waits for other steps
or tasks (a dequeue, a collective). So: the *wave* of a send is the set of such ops that it needs
in its own partition, and sends of one link and one wave form a group. All that is between is
arithmetic, which only takes time.

The sets are bit sets, shared by all nodes of a chain that adds nothing, so a sweep is cheap.
Loops are swept again until nothing changes, because a value may come round.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tfmini.graph.node import Node, Nodes
from tfmini.graph.prune import BACK_EDGE_OPS

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
            _number_sends(sends, _needs(part, feeds_may_wait), receivers)


def _number_sends(sends: list[Node], needs: dict[str, int], receivers: dict[bytes, Node]) -> None:
    groups: dict[bytes, dict[int, int]] = {}
    for send in sends:
        waves = groups.setdefault(send.attrs["recv_device"], {})
        group = waves.setdefault(needs[send.name], len(waves))
        send.attrs["_group"] = receivers[send.attrs["tensor_name"]].attrs["_group"] = group


def _needs(part: Nodes, feeds_may_wait: bool) -> dict[str, int]:
    """Per node the set of waiting ops that it needs, itself included, as a bit set."""
    bits: dict[str, int] = {}
    for name, node in part.items():
        if _waits(node.op) or (
            node.op == "_Recv" and (feeds_may_wait or not node.attrs["client_terminated"])
        ):
            bits[name] = 1 << len(bits)
    needs = dict.fromkeys(part, 0)
    while _sweep(part, bits, needs):
        pass
    return needs


def _sweep(part: Nodes, bits: dict[str, int], needs: dict[str, int]) -> bool:
    """Updates ``needs`` in place; True when a value that goes round a loop has changed."""
    came_round = False
    for name, node in part.items():
        mask = bits.get(name, 0)
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
