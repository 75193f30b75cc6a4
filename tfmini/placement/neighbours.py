"""The nodes that decide where new nodes of a growing graph go, so that placing them does not take the whole graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tfmini.graph.node import Node, Nodes
from tfmini.placement.colocation import GROUP_PREFIX


class ColocationLeaders:
    """Of each colocation group, the op that it is named after and its first member."""

    def __init__(self) -> None:
        self._first: dict[bytes, str] = {}

    def add(self, nodes: Iterable[Node]) -> None:
        """Notes the groups of nodes that have been placed, in creation order."""
        for node in nodes:
            for group in _groups(node):
                self._first.setdefault(group, node.name)

    def of(self, nodes: Iterable[Node]) -> list[str]:
        """The names of the ops that lead the groups of nodes: the first member, and the op of the name."""
        own = dict.fromkeys(group for node in nodes for group in _groups(node))
        named = [group[len(GROUP_PREFIX) :].decode(errors="replace") for group in own]
        return [*(self._first[group] for group in own if group in self._first), *named]


def with_neighbours(new: Nodes, known: Mapping[str, Node], leaders: ColocationLeaders) -> Nodes:
    """Returns ``new`` behind the nodes among ``known`` that matter to their placement, for `placer.place`.

    These are their inputs, without inputs of their own, and the leaders of their groups. All have devices already.
    """
    found: Nodes = {}
    wanted = leaders.of(new.values()) + [source for node in new.values() for source, _ in node.inputs]
    while wanted:
        near = {name: known[name] for name in wanted if name in known and name not in found}
        found.update((name, node.replace(inputs=(), controls=())) for name, node in near.items())
        wanted = leaders.of(near.values())
    return {**found, **new}


def _groups(node: Node) -> list[bytes]:
    return [name for name in node.attrs.get("_class", ()) if name.startswith(GROUP_PREFIX)]
