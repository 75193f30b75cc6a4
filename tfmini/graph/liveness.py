"""Static analysis of conditionals: the conditions under which each node of a graph runs.

A ``Switch`` passes its value to one of two outputs and makes the other one *dead*. A node with a dead input is dead
itself, until a ``Merge`` joins the branches. The *guard* of a value is the set of conditions that must hold for it to
be alive. A value with an empty guard is always alive.
"""

from __future__ import annotations

from collections.abc import Callable

from tfmini.graph.frames import LoopFrame, contract
from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.traits import ENTER_OPS, EXIT_OPS, MERGE_OPS, NEXT_OPS, SWITCH_OPS

Atom = tuple[Endpoint, "bool | None"]
"""One condition: an endpoint and the value that it must have; with None, it must be alive, with any value."""

Guard = frozenset[Atom]
ALWAYS: Guard = frozenset()


class NodeGuards:
    """The guards of the nodes of one graph. The caller passes the nodes to `admit` in topological order.

    Args:
      canonical: maps an endpoint to the one of which it is a copy, so that a predicate has one name only.
    """

    def __init__(self, canonical: Callable[[Endpoint], Endpoint] = lambda endpoint: endpoint) -> None:
        self._canonical = canonical
        self._nodes: dict[str, Guard] = {}
        self._endpoints: dict[Endpoint, Guard] = {}

    def of_node(self, name: str) -> Guard:
        """Returns the guard of the node: the conditions under which it runs."""
        return self._nodes.get(name, ALWAYS)

    def of(self, endpoint: Endpoint) -> Guard:
        """Returns the guard of the value: the conditions under which it is alive."""
        guard = self._endpoints.get(endpoint)
        return self._nodes.get(endpoint[0], ALWAYS) if guard is None else guard

    def doubt(self, endpoint: Endpoint) -> None:
        """Declares that whether the value is alive can only be seen at run time, from the value."""
        guard = self.of(endpoint) | {(endpoint, None)}
        self._endpoints[endpoint] = self._nodes[endpoint[0]] = guard

    def doubt_value(self, endpoint: Endpoint) -> None:
        """As `doubt`, for one of several values of a node that runs all the same."""
        self._endpoints[endpoint] = self.of_node(endpoint[0]) | {(endpoint, None)}

    def needs(self, node: Node) -> Guard:
        """Returns the conditions under which all inputs of a node are alive."""
        found = ALWAYS
        for endpoint in node.inputs:
            found = _union(found, self.of(endpoint))
        for source in node.controls:
            found = _union(found, self._nodes.get(source, ALWAYS))
        return found

    def admit(self, node: Node) -> Guard:
        """Computes the guard of the next node."""
        if node.op == "ControlTrigger":
            guard = ALWAYS  # it runs after its control inputs, even if they are dead
        elif node.op in MERGE_OPS:
            guard = self._merge(node)
        else:
            guard = self.needs(node)
            if node.op in SWITCH_OPS:
                predicate = self._canonical(node.inputs[1])
                for way in (False, True):
                    self._endpoints[node.name, int(way)] = guard | {(predicate, way)}
        if guard:
            self._nodes[node.name] = guard
        return guard

    def _merge(self, node: Node) -> Guard:
        """Computes the guard of a merge: one input must be alive. Of the two outputs of a switch one always is."""
        guards = [self.of(e) for e in node.inputs]
        common = frozenset.intersection(*guards) if guards else ALWAYS
        rests = [guard - common for guard in guards]
        for source in node.controls:
            common = _union(common, self._nodes.get(source, ALWAYS))
        if all(rests) and not _complementary(rests):
            return common | {((node.name, 0), None)}
        return common


def _union(a: Guard, b: Guard) -> Guard:
    return a if a is b or not b else b if not a else a | b


def _complementary(rests: list[Guard]) -> bool:
    """Whether the guards are two of which exactly one always holds."""
    if len(rests) != 2 or len(rests[0]) != 1 or len(rests[1]) != 1:
        return False
    (one, way), (other, other_way) = *rests[0], *rests[1]
    return one == other and way is not None and other_way is (not way)


def uncertain_values(nodes: Nodes) -> Callable[[Endpoint], bool]:
    """Returns a function that tells whether a value, or a node (index -1), may be dead.

    Args:
      nodes: a whole graph in topological order.
    """
    places: dict[str, tuple[NodeGuards, str, bool]] = {}
    outer, loops = contract(nodes)
    _survey(outer, loops, places)

    def is_uncertain(endpoint: Endpoint) -> bool:
        liveness, name, doubtful = places[endpoint[0]]
        return doubtful or bool(liveness.of_node(name) if endpoint[1] < 0 else liveness.of((name, endpoint[1])))

    return is_uncertain


def _survey(nodes: Nodes, loops: dict[str, LoopFrame], places: dict[str, tuple[NodeGuards, str, bool]]) -> bool:
    """Notes the guards of one level and of the loops in it; returns whether an Exit in it may never be alive."""
    liveness = NodeGuards()
    nexts = {name for name, node in nodes.items() if node.op in NEXT_OPS}
    may_not_leave = {name for name, loop in loops.items() if _survey(loop.nodes, loop.loops, places)}
    for name, node in nodes.items():
        places[name] = (liveness, name, False)
        if not any(source in nexts for source, _ in node.inputs):  # a loop variable always has a value
            liveness.admit(node)
        if name in may_not_leave:
            for i in range(len(loops[name].exits)):
                liveness.doubt_value((name, i))
    conditions = {liveness.of_node(name) for name in nexts}  # several: loop variables that go on under different ones
    doubtful = len(conditions) > 1 or bool(nexts) and _enters_once(nodes)
    if doubtful:
        places.update({name: (liveness, name, True) for name in nodes})
    for name, loop in loops.items():
        for i, node in enumerate(loop.exits):
            places[node.name] = (liveness, name, places[node.name][2] or bool(liveness.of((name, i))))
    left = {(endpoint, not way) for condition in conditions for endpoint, way in condition}
    return doubtful or any(not liveness.of_node(n.name) <= left for n in nodes.values() if n.op in EXIT_OPS)


def _enters_once(nodes: Nodes) -> bool:
    """Whether a value enters a loop for its first iteration only, so that what needs it is dead in the later ones."""
    once = {n.name for n in nodes.values() if n.op in ENTER_OPS and not n.attrs.get("is_constant")}
    return any(source in once for n in nodes.values() if n.op not in MERGE_OPS for source, _ in n.inputs)
