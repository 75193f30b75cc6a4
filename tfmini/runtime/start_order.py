"""In which order the units of a segment run: what goes on elsewhere sets out as early as it can.

A send, or the start of an op that answers later (a collective, a dequeue), takes time in which this task can
compute something else. So what it needs comes first, then itself, and what it does not need after it. Where several
set out, the one with the shortest chain of units before it comes first: the gradient of the last layer before that
of the first, in whichever order the graph was built. All else keeps its order.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfmini.graph.frames import NEXT_OPS
from tfmini.runtime.lowering import SENDS, Lowering
from tfmini.runtime.units import Form, Unit

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
    ranks = {id(unit): late for unit in units}
    ranks.update((id(start), rank) for rank, start in enumerate(_by_depth(links)))
    wanted: dict[str, int] = {}  # node -> the first start that needs it, by rank
    for link in reversed(links):
        rank = wanted.get(link.name, late)
        if link.unit is not None:
            rank = ranks[id(link.unit)] = min(rank, ranks[id(link.unit)])
        if rank < late:
            for source in link.sources:
                if wanted.get(source, late) > rank:
                    wanted[source] = rank
    return sorted(units, key=lambda unit: ranks[id(unit)])


@dataclass(slots=True)
class _Link:
    """A unit, or a node without one, and the nodes that it needs within its wave."""

    name: str
    unit: Unit | None
    sources: list[str]


def _links(lowering: Lowering) -> list[_Link]:
    """In an order in which sources come first."""
    waves, nodes, alias, arrivals = lowering.waves, lowering.nodes, lowering.alias, lowering.arrival_nodes
    units: dict[str, list[Unit]] = {}
    for unit in lowering.units:
        units.setdefault(unit.node.name, []).append(unit)

    def within(wave: int, names: list[str]) -> list[str]:
        # What arrives is there when the wave begins, and a value that goes round is of the iteration before.
        return [
            n for n in names
            if waves.get(n) == wave and n not in arrivals and (n not in nodes or nodes[n].op not in NEXT_OPS)
        ]  # fmt: skip

    links = []
    senders: dict[int, list[str]] = {}
    for name, node in nodes.items():
        edges = [source for source, _ in node.inputs]
        edges += node.controls
        if node.op in SENDS and "_group" in node.attrs:
            group = senders.setdefault(node.attrs["_group"], [])
            edges += group  # they leave together, after what each of them waits for
            group.append(name)
        if (name, 0) in alias:
            edges.append(lowering.canonical((name, 0))[0])
        for unit in units.get(name, ()):
            links.append(_Link(name, unit, within(unit.wave, [*edges, *(source for source, _ in unit.reads())])))
        if name not in units:
            links.append(_Link(name, None, within(waves[name], edges)))
    return links


def _by_depth(links: list[_Link]) -> list[Unit]:
    """The starts, those with the shortest chains of units before them first."""
    depths: dict[str, int] = {}
    starts: list[tuple[int, Unit]] = []
    for link in links:
        depth = max([depths.get(source, 0) for source in link.sources], default=0)
        if link.unit is not None:
            if link.unit.form in _STARTS:
                starts.append((depth, link.unit))
            depth += 1
        depths[link.name] = max(depth, depths.get(link.name, 0))
    starts.sort(key=lambda start: start[0])
    return [unit for _, unit in starts]
