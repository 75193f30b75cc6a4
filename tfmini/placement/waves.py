"""Groups of sends: decides which tensors travel in one message.

A node may be delayed by an arrival (a ``_Recv``) or by an op that may wait for other steps or tasks (a dequeue, a
collective). Two sends from one device to another may share a message only if the same arrivals and waiting ops delay
both; otherwise the message could wait for an answer to itself. So the *wave* of a send is the set of arrivals and
waiting ops that it needs in its own partition, and the sends of one link and one wave form a group. All other ops only
take time.

Tensors of one message arrive together, so two of them are one arrival: a step that updates a thousand variables sends
their gradients to a ps in one message, as it got their values. Passes repeat until no two groups become one. No message
waits for itself: all tensors of a message need the same messages, so from a cycle of messages one could follow needs
from tensor to tensor for ever, and the graph of tensors has no cycle.

Inside a loop, messages are sent once per iteration. So the sends of a group must be in the same frame and need the same
arrivals of the *same* iteration. The second condition is necessary because a loop variable needs all arrivals of the
previous iteration; without it, the first values of an iteration would be grouped with its last ones.

Each arrival is one by itself in a graph with loops.

The sets are bit sets, and a node without a wait of its own shares the set of its input, so a pass is cheap. With loops,
passes repeat until no set changes.
"""

from __future__ import annotations

from tfmini.graph.frames import FramePath, frame_paths, has_flow
from tfmini.graph.node import Node, Nodes
from tfmini.graph.op_types import may_wait
from tfmini.graph.traits import ENTER_OPS, EXIT_OPS, NEXT_OPS

Wave = tuple[int, int]
"""Bit sets of the arrivals and waiting ops that a node needs: in the same iteration, and in any."""


def number_groups(parts: dict[str, Nodes], feeds_may_wait: bool = False) -> None:
    """Gives both ends of every pair the attr ``_group``, an int counted per (source, destination).

    Groups get numbers in the order of their first sends in the source partition.
    """
    receivers: dict[bytes, Node] = {}
    for part in parts.values():
        for node in part.values():
            if node.op == "_Recv" and not node.attrs["client_terminated"]:
                receivers[node.attrs["tensor_name"]] = node
    merges = not any(map(has_flow, parts.values()))
    links = {(recv.attrs["send_device"], recv.attrs["recv_device"]) for recv in receivers.values()}
    count, before = _number_all(parts, feeds_may_wait, receivers, merges), 0
    while merges and count not in (before, len(links)):  # one group per link: none can become one with another
        count, before = _number_all(parts, feeds_may_wait, receivers, merges), count


def _number_all(parts: dict[str, Nodes], feeds_may_wait: bool, receivers: dict[bytes, Node], merges: bool) -> int:
    """One pass over all partitions; returns the number of groups.

    Args:
      merges: whether arrivals that have the same group so far count as one.
    """
    count = 0
    for part in sorted(parts.values(), key=len):  # the largest last: more of its arrivals are one then
        sends = [n for n in part.values() if n.op == "_Send" and not n.attrs["client_terminated"]]
        if sends:
            paths = frame_paths(part) if has_flow(part) else {}
            names = [send.name for send in sends]
            count += _number_sends(sends, _waves(part, names, feeds_may_wait, paths, merges), paths, receivers)
    return count


def _number_sends(
    sends: list[Node], needs: dict[str, Wave], paths: dict[str, FramePath], receivers: dict[bytes, Node]
) -> int:
    """Numbers the groups of a partition; returns how many it has."""
    groups: dict[bytes, dict[tuple[FramePath, Wave], int]] = {}
    for send in sends:
        waves = groups.setdefault(send.attrs["recv_device"], {})
        group = waves.setdefault((paths.get(send.name, ()), needs[send.name]), len(waves))
        send.attrs["_group"] = receivers[send.attrs["tensor_name"]].attrs["_group"] = group
    return sum(map(len, groups.values()))


def _waves(
    part: Nodes, names: list[str], feeds_may_wait: bool, paths: dict[str, FramePath], merges: bool
) -> dict[str, Wave]:
    """Returns the waves of the nodes of these names. A node that waits is in its own wave."""
    bits: dict[str, int] = {}
    messages: dict[object, int] = {}
    late = 0
    waiting_ops = {op for op in {node.op for node in part.values()} if op != "_Send" and may_wait(op)}
    for name, node in part.items():
        if node.op == "_Recv":
            holds_up = feeds_may_wait or not node.attrs["client_terminated"]
        else:
            holds_up = node.op in waiting_ops
        if holds_up:
            group = node.attrs.get("_group") if merges else None
            message = name if group is None else (node.attrs["send_device"], group)
            bits[name] = messages.setdefault(message, 1 << len(messages))
            if node.op != "_Recv" or node.attrs.get("_late"):
                late |= bits[name]
    needs = _needs(part, bits, paths, late)
    if not paths:
        return {name: (needs[name], needs[name]) for name in names}
    begun = _needs({name: _begun(node, part) for name, node in part.items()}, bits, paths, late)
    return {name: (begun[name], needs[name]) for name in names}


def _begun(node: Node, part: Nodes) -> Node:
    """Returns the node without its inputs from the previous iteration."""
    here = [endpoint for endpoint in node.inputs if part[endpoint[0]].op not in NEXT_OPS]
    return node if len(here) == len(node.inputs) else node.replace(inputs=here)


def _needs(part: Nodes, bits: dict[str, int], paths: dict[str, FramePath], late: int) -> dict[str, int]:
    needs = dict.fromkeys(part, 0)
    while _sweep(part, bits, needs) or paths and _close_loops(part, paths, needs, late):
        pass
    return needs


def _close_loops(part: Nodes, paths: dict[str, FramePath], needs: dict[str, int], late: int) -> bool:
    """Adds waits of whole loops: a node needs what all Enters of its loop need, an Exit what any node inside needs.

    A loop starts before the inputs that are ``late``, which may wait for it: only what uses them needs them.
    """
    entering: dict[FramePath, int] = {}
    inside: dict[FramePath, int] = {}
    for name, path in paths.items():
        if part[name].op in ENTER_OPS:
            entering[path] = entering.get(path, 0) | needs[name]
        for depth in range(1, len(path) + 1):
            inside[path[:depth]] = inside.get(path[:depth], 0) | needs[name]
    changed = False
    for name, path in paths.items():
        mask = inside[path] if part[name].op in EXIT_OPS else entering.get(path, 0) & ~late
        if mask | needs[name] != needs[name]:
            needs[name] |= mask
            changed = True
    return changed


def _sweep(part: Nodes, bits: dict[str, int], needs: dict[str, int]) -> bool:
    """Updates ``needs`` in place, in one pass; returns whether the set of a NextIteration has changed."""
    came_round = False
    for name, node in part.items():
        mask = bits.get(name, 0) | needs[name]  # keeps what `_close_loops` has added
        for source, _ in node.inputs:
            if mask != needs[source]:  # avoids new objects for equal sets
                mask = mask | needs[source] if mask else needs[source]
        for source in node.controls:
            if mask != needs[source]:
                mask = mask | needs[source] if mask else needs[source]
        if mask != needs[name]:
            came_round |= node.op in NEXT_OPS
            needs[name] = mask
    return came_round
