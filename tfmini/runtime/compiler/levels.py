"""Levels, the output of the compiler: one outside all while loops, and one per loop that has to wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfmini.graph.op_types import NEXT_OPS
from tfmini.placement.task_graph import INNER
from tfmini.runtime.compiler.lowering import Lowering
from tfmini.runtime.compiler.units import Form, Unit

LONG_S = 0.003  # a longer segment runs in the pool


@dataclass
class Segment:
    """A run of units between two waits.

    Attributes:
      run: ``run(step, slots)``, the generated function.
      pending: how many arrivals and predecessor segments must come first.
      successors: indices of the segments that wait for this one.
      marks: the nodes in it that change shared state, as `graph.omission` defines them: each with its own name, or of a
        loop that runs at once with the names of those inside it.
      taken: such nodes among those for whose answers it waits, or inside loops for whose end it waits.
      begins: such nodes inside the loops that it starts and that end later.
      seconds: a lower bound of the times of its latest runs; 0 before the first.
      is_apart: whether it computes for one of several devices of the task; another device's may run at the same time.
      is_open_ended: whether a loop or the reading of a dataset in it may go on for ever, however short it was before.
    """

    run: Callable[[Any, list[Any]], None]
    pending: int
    successors: list[int]
    marks: tuple[tuple[str, tuple[str, ...]], ...] = ()
    taken: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()
    seconds: float = 0.0
    is_apart: bool = False
    is_open_ended: bool = False

    @property
    def updates(self) -> tuple[str, ...]:
        """All the names of its `marks`."""
        return tuple(name for _, names in self.marks for name in names)

    @property
    def is_long(self) -> bool:
        """Whether the worker's pool should run it, so that the thread that polls the sockets can answer."""
        return self.seconds >= LONG_S

    def note(self, seconds: float) -> None:
        """Notes the time of a run. It takes several long runs in a row to be long: one may have been interrupted."""
        self.seconds = min(seconds, 1.5 * self.seconds + 0.0005)


@dataclass
class Level:
    """Segments with their slots.

    Attributes:
      template: the initial slots.
      arrivals: received group (0 and up) or answered event (below 0) -> (slots of its values, segment).
      pending: the segments' counts, to be copied.
    """

    segments: list[Segment]
    template: list[Any]
    arrivals: dict[int, tuple[list[int], int]]
    pending: list[int]


@dataclass
class LoopEntry:
    """Values that come into a loop together.

    Attributes:
      key: the arrival to which they lead in each iteration; None if an iteration does not begin without them.
      constants: (position among the values, slot): the same in every iteration.
      once: likewise, in the first iteration only; in later ones the slot holds `DEAD`.
      initial: (number of a round, positions of its first values; -1 for a value that is absent then).
    """

    key: int | None
    constants: list[tuple[int, int]]
    once: list[tuple[int, int]]
    initial: list[tuple[int, list[int]]]


@dataclass
class Round:
    """Values that go from iteration to iteration together, because one segment computes them.

    Attributes:
      key: the arrival to which they lead; None if an iteration does not begin without them.
      slots: where they lie.
    """

    key: int | None
    slots: list[int]


@dataclass
class WaitingLoop:
    """A while loop that receives, sends or waits on its way: a level that runs once per iteration.

    Attributes:
      entries: the values that enter, by the segment around the loop that has them.
      rounds: the values that go round.
      leads: whether the values of the first round decide alone whether there is another iteration.
      exits: slot per value that leaves.
      window: how many iterations may be under way.
    """

    name: str
    level: Level
    entries: list[LoopEntry]
    rounds: list[Round]
    leads: bool
    exits: list[int]
    window: int


# ---- The order of the units of a segment: sends and asynchronous ops start as early as their inputs allow ----------
# A send, or the start of an op that answers later (a collective, a dequeue), takes time in which this task can
# compute something else. So the units that it needs come first, then the start, then the other units. Of several
# starts, the one with the shortest chain of units before it comes first: the gradient of the last layer before that
# of the first, in whichever order the graph was built. The other units keep their order.

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
