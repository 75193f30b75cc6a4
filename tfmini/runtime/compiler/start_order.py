"""The order of the units of a segment: sends and asynchronous ops start as early as their inputs allow.

A send, or the start of an op that answers later (a collective, a dequeue), takes time in which this task can
compute something else. So the units that it needs come first, then the start, then the other units. Of several
starts, the one with the shortest chain of units before it comes first: the gradient of the last layer before that
of the first, in whichever order the graph was built. The other units keep their order.
"""

from __future__ import annotations

from tfmini.graph.traits import NEXT_OPS
from tfmini.placement.task_graph import INNER
from tfmini.runtime.compiler.lowering import Lowering
from tfmini.runtime.compiler.units import Form, Unit

_STARTS = frozenset({Form.SEND, Form.BEGIN, Form.BEGIN_LOOP})


def starts_first(lowering: Lowering) -> list[Unit]:
    """The units of a level in that order, with every unit after those of its wave that it needs.

    Units of different waves are in different segments: their order does not matter.
    """
    units, shared = lowering.units, lowering.compilation
    if not (shared.waits or shared.send_tasks):
        return units
    links = _links(lowering)
    late = len(units)
    ranks = dict.fromkeys(map(id, units), late)
    ranks.update((id(start), rank) for rank, start in enumerate(_by_depth(links)))
    wanted: dict[str, int] = {}  # node -> the first start that needs it, by rank
    for name, unit, sources in reversed(links):
        rank = wanted.get(name, late)
        if unit is not None:
            rank = ranks[id(unit)] = min(rank, ranks[id(unit)])
        if rank < late:
            for source in sources:
                if wanted.get(source, late) > rank:
                    wanted[source] = rank
    return sorted(units, key=lambda unit: ranks[id(unit)])


_Link = tuple[str, Unit | None, list[str]]
"""A node, its unit if it has one, and the nodes that it needs within its wave."""


def _links(lowering: Lowering) -> list[_Link]:
    """In an order in which sources come first."""
    sends = lowering.compilation.graph.sends
    waves, nodes, alias, arrivals = lowering.waves, lowering.nodes, lowering.alias, lowering.arrival_nodes
    units: dict[str, list[Unit]] = {}
    for unit in lowering.units:
        units.setdefault(unit.node.name, []).append(unit)
    # Arrivals are there when the wave begins, and a loop variable has its value of the iteration before.
    within = {name: wave for name, wave in waves.items() if name not in arrivals}
    for name in [name for name in within if name in nodes and nodes[name].op in NEXT_OPS]:
        del within[name]
    links: list[_Link] = []
    senders: dict[int, str] = {}
    for name, node in nodes.items():
        edges = [source for source, _ in node.inputs]
        edges += node.controls
        send = sends.get(name)
        if send is not None and send.group != INNER:
            # They leave in one message, after the inputs of all of them: the last one has the unit, the others none.
            before = senders.get(send.group)
            edges += [] if before is None else [before]
            senders[send.group] = name
        if (name, 0) in alias:
            edges.append(lowering.canonical((name, 0))[0])
        for unit in units.get(name, ()):
            wave = unit.wave
            if unit.guard or unit.ways or unit.inputs != list(node.inputs):  # it may read the value of another unit
                edges = edges + [n for n, _ in unit.reads()]
            links.append((name, unit, [n for n in edges if within.get(n) == wave]))
        if name not in units:
            wave = waves[name]
            links.append((name, None, [n for n in edges if within.get(n) == wave]))
    return links


def _by_depth(links: list[_Link]) -> list[Unit]:
    """The starts, those with the shortest chains of units before them first."""
    depths: dict[str, int] = {}
    starts: list[tuple[int, Unit]] = []
    for name, unit, sources in links:
        depth = depths.get(name, 0)
        for source in sources:
            if depths.get(source, 0) > depth:
                depth = depths[source]
        if unit is not None:
            if unit.form in _STARTS:
                starts.append((depth, unit))
            depth += 1
        depths[name] = depth
    starts.sort(key=lambda start: start[0])
    return [unit for _, unit in starts]
