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

from collections.abc import Mapping, Sequence

from tfmini.graph.liveness import FramePath, frame_paths, has_flow
from tfmini.graph.node import MADE_BY_PASSES, RECEIVE, Node, Nodes
from tfmini.graph.op_types import ENTER_OPS, EXIT_OPS, NEXT_OPS, may_wait
from tfmini.placement.task_graph import Pair

Wave = int
"""A bit set of arrivals and waiting ops."""


def joined(node: Node, waves: Mapping[str, Wave], wave: Wave = 0) -> Wave:
    """The wave of a node: what its inputs and controls need, and ``wave``.

    An input that comes round in a loop, and so has no wave yet, counts for nothing.
    """
    for source, _ in node.inputs:
        other = waves.get(source, 0)
        if wave != other:  # avoids new objects for equal sets
            wave = wave | other if wave else other
    for source in node.controls:
        other = waves[source]
        if wave != other:
            wave = wave | other if wave else other
    return wave


def waiting_ops(nodes: Nodes) -> set[str]:
    """The types of the ops of a graph that may wait for other steps or tasks."""
    return {op for op in {node.op for node in nodes.values()} if op not in MADE_BY_PASSES and may_wait(op)}


def number_messages(parts: Mapping[str, Nodes], pairs: Sequence[Pair]) -> dict[str, int]:
    """Returns the number of each send's message, by the name of its node, counted per (source, destination).

    Messages get numbers in the order of their first sends in the source partition.
    """
    grouping = _Grouping(parts, pairs)
    links = {(pair.src, pair.dst) for pair in pairs}
    count, before = grouping.number_all(), 0
    while grouping.merges and count not in (before, len(links)):  # one message per link: none can become one more
        count, before = grouping.number_all(), count
    return grouping.numbers


class _Grouping:
    """The messages as the passes so far have found them.

    Attributes:
      numbers: send node -> the number of its message.
      merges: whether arrivals that have the same message so far count as one.
    """

    def __init__(self, parts: Mapping[str, Nodes], pairs: Sequence[Pair]) -> None:
        self.parts = sorted(parts.values(), key=len)  # the largest last: more of its arrivals are one then
        self.sent = {pair.send: pair for pair in pairs}
        self.received = {pair.recv: pair for pair in pairs}
        self.numbers: dict[str, int] = {}
        self.merges = not any(map(has_flow, parts.values()))

    def number_all(self) -> int:
        """Makes one pass over all partitions; returns the number of messages."""
        count = 0
        for part in self.parts:
            sends = [name for name in part if name in self.sent]
            if sends:
                paths = {} if self.merges else frame_paths(part)
                needs = self._waves(part, sends, paths)
                messages: dict[str, dict[object, int]] = {}
                for name in sends:
                    numbers = messages.setdefault(self.sent[name].dst.device, {})
                    self.numbers[name] = numbers.setdefault((paths.get(name, ()), needs[name]), len(numbers))
                count += sum(map(len, messages.values()))
        return count

    def _waves(self, part: Nodes, names: list[str], paths: dict[str, FramePath]) -> dict[str, tuple[Wave, Wave]]:
        """Returns what the nodes of these names need: in the same iteration, and in any.

        A node that waits is in its own wave.
        """
        bits: dict[str, Wave] = {}
        arrivals: dict[object, Wave] = {}
        late = 0
        waiting = waiting_ops(part)
        for name, node in part.items():
            pair = self.received.get(name) if node.op == RECEIVE else None
            if pair is None and node.op not in waiting:
                continue
            number = self.numbers.get(pair.send) if pair is not None and self.merges else None
            arrival = name if pair is None or number is None else (pair.src, number)
            bits[name] = arrivals.setdefault(arrival, 1 << len(arrivals))
            if pair is None or pair.is_late:
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
    next_ops = {op for op in {node.op for node in part.values()} if op in NEXT_OPS}
    come_round = [name for name, node in part.items() if node.op in next_ops]
    while True:
        before = [needs[name] for name in come_round]
        _sweep(part, bits, needs)
        if before == [needs[name] for name in come_round] and not _close_loops(part, paths, needs, late):
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


def _sweep(part: Nodes, bits: dict[str, int], needs: dict[str, int]) -> None:
    """Updates ``needs`` in place, in one pass."""
    for name, node in part.items():
        needs[name] = joined(node, needs, bits.get(name, 0) | needs[name])  # keeps what `_close_loops` has added
