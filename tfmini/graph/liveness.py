"""When a node of a graph with conditionals runs at all: guards, found without running anything.

A ``Switch`` passes its value to one of two outputs and leaves the other *dead*; what needs a dead
value is dead itself, until a ``Merge`` joins the ways again. The *guard* of a value is the set of
conditions that must hold for it to be alive. The empty guard means: always.
"""

from __future__ import annotations

from collections.abc import Callable

from tfmini.graph.frames import EXIT_OPS, MERGE_OPS, NEXT_OPS, SWITCH_OPS, Loop, contract
from tfmini.graph.node import Endpoint, Node, Nodes

Atom = tuple[Endpoint, "bool | None"]
"""One condition: a predicate's endpoint and the value it must have, or None: the value there is not dead."""

Guard = frozenset[Atom]
ALWAYS: Guard = frozenset()


class Liveness:
    """The guards of the nodes of one graph, told to it in topological order by `admit`.

    Args:
      canonical: endpoint -> the endpoint that stands for it, so that one predicate has one name.
    """

    def __init__(self, canonical: Callable[[Endpoint], Endpoint] = lambda endpoint: endpoint) -> None:
        self._canonical = canonical
        self._nodes: dict[str, Guard] = {}
        self._endpoints: dict[Endpoint, Guard] = {}

    def of_node(self, name: str) -> Guard:
        """When the node runs."""
        return self._nodes.get(name, ALWAYS)

    def of(self, endpoint: Endpoint) -> Guard:
        """When the value is alive."""
        guard = self._endpoints.get(endpoint)
        return self._nodes.get(endpoint[0], ALWAYS) if guard is None else guard

    def doubt(self, endpoint: Endpoint) -> None:
        """Declares that only looking at the value can tell whether it is alive."""
        guard = self.of(endpoint) | {(endpoint, None)}
        self._endpoints[endpoint] = self._nodes[endpoint[0]] = guard

    def needs(self, node: Node) -> Guard:
        """What holds when all inputs of a node are alive."""
        found = ALWAYS
        for endpoint in node.inputs:
            found = _union(found, self.of(endpoint))
        for source in node.controls:
            found = _union(found, self._nodes.get(source, ALWAYS))
        return found

    def admit(self, node: Node) -> Guard:
        """Works out the guard of the next node."""
        if node.op in MERGE_OPS:
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
        """A merge is alive when one of its inputs is; two ways of one switch are as good as none."""
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
    """Whether of two guards exactly one holds, whatever happens."""
    if len(rests) != 2 or len(rests[0]) != 1 or len(rests[1]) != 1:
        return False
    (one, way), (other, other_way) = *rests[0], *rests[1]
    return one == other and way is not None and other_way is (not way)


def uncertain_values(nodes: Nodes) -> Callable[[Endpoint], bool]:
    """A function that tells whether a value, or the run of a node (index -1), may be dead.

    Args:
      nodes: a whole graph in topological order.
    """
    places: dict[str, tuple[Liveness, str, bool]] = {}
    outer, loops = contract(nodes)
    _survey(outer, loops, places)

    def is_uncertain(endpoint: Endpoint) -> bool:
        liveness, name, doubtful = places[endpoint[0]]
        return doubtful or bool(liveness.of_node(name) if endpoint[1] < 0 else liveness.of((name, endpoint[1])))

    return is_uncertain


def _survey(nodes: Nodes, loops: dict[str, Loop], places: dict[str, tuple[Liveness, str, bool]]) -> None:
    liveness = Liveness()
    nexts = {name for name, node in nodes.items() if node.op in NEXT_OPS}
    for name, node in nodes.items():
        places[name] = (liveness, name, False)
        if not any(source in nexts for source, _ in node.inputs):  # a loop's variable is always there
            liveness.admit(node)
    if len({liveness.of_node(name) for name in nexts}) > 1:  # unless values go round on their own account
        places.update({name: (liveness, name, True) for name in nodes})
    for name, loop in loops.items():
        _survey(loop.nodes, loop.loops, places)
        for node in loop.nodes.values():
            if node.op in EXIT_OPS:
                places[node.name] = (liveness, name, places[node.name][2])
