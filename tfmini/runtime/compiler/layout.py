"""Cuts units into segments, gives values their slots, and finds the predecessors of each segment."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from tfmini.graph.node import Endpoint, Node
from tfmini.graph.omission import is_update
from tfmini.graph.op_types import NEXT_OPS, OPS, ops_with
from tfmini.placement.task_graph import INNER
from tfmini.placement.waves import Wave
from tfmini.runtime.compiler.codegen import BlockContext, generate_block, into_rule, nothing
from tfmini.runtime.compiler.kernels import UPDATES
from tfmini.runtime.compiler.levels import Level, Segment
from tfmini.runtime.compiler.lowering import Lowering
from tfmini.runtime.compiler.units import Form, Unit

# CPython compiles a very long function slowly: a longer segment is cut into blocks of this many nodes.
BLOCK_NODES = 1000
# A segment with such an op goes to the pool from its first run on: a save of gigabytes in the reactor would leave the
# task deaf, and its peers would take it for lost.
_SLOW_IO = ops_with("slow_io")
_READS = ops_with("waits")  # those that run at once look for an element that a dataset may never have


def context_of(lowering: Lowering, sent: Mapping[Endpoint, int] = MappingProxyType({})) -> BlockContext:
    """The values that generated text of a level may refer to. ``sent``: see `BlockContext`."""
    shared = lowering.compilation
    return BlockContext(
        shared.constants, shared.state_names, lowering.slots, shared.namespace, shared.device_type, shared.trace,
        shared.kernels, None if shared.model is None else shared.model.writer, sent,
    )  # fmt: skip


def lay_out(lowering: Lowering) -> Level:
    """The segments of a level. Values that `lowering.kept` names get a slot."""
    return _Layout(lowering).level()


def without_joins(level: Level) -> Level:
    """The level of a loop without the segments that only join what one other segment waits for.

    That other one waits for it itself. (Of the outermost level `PartitionRun.outcome` tells what has arrived by them.)
    """
    following = {
        i: segment.successors[0]
        for i, segment in enumerate(level.segments)
        if segment.run is nothing and len(segment.successors) == 1
    }
    kept = [i for i in range(len(level.segments)) if i not in following]
    number = {old: new for new, old in enumerate(kept)}

    def found(i: int) -> int:
        while i in following:
            i = following[i]
        return number[i]

    segments = [level.segments[i] for i in kept]
    arrivals = {key: (slots, found(i)) for key, (slots, i) in level.arrivals.items()}
    for segment in segments:
        segment.successors = sorted({found(i) for i in segment.successors})
    behind = collections.Counter(i for _, i in arrivals.values())
    behind.update(i for segment in segments for i in segment.successors)
    for i, segment in enumerate(segments):
        segment.pending = behind[i]
    return Level(segments, level.template, arrivals, [segment.pending for segment in segments])


def _updates(nodes: Iterable[Node]) -> tuple[str, ...]:
    return tuple(name for node in nodes for name in ((node.name,) if is_update(node) else node.attrs.get(UPDATES, ())))


def _marks(blocks: Iterable[Iterable[Unit]], *forms: Form) -> tuple[tuple[str, tuple[str, ...]], ...]:
    units = [unit for block in blocks for unit in block if unit.form in forms]
    found = [(unit.node.name, (*_updates([unit.node]), *unit.updates)) for unit in units]
    return tuple(mark for mark in found if mark[1])


class _Layout:
    def __init__(self, lowering: Lowering) -> None:
        self.lowering = lowering
        used = {u.wave for u in lowering.units} | set(lowering.arrival_waves.values()) or {0}
        self.order = sorted(used, key=lambda wave: (wave.bit_count(), lowering.wave_ranks[wave]))
        self.index = {wave: i for i, wave in enumerate(self.order)}
        is_cpu = lowering.compilation.device_type == "CPU"
        self.sent = sent_results(lowering) if is_cpu else {}  # the rules are those of CPU kernels

    def level(self) -> Level:
        lowering, index = self.lowering, self.index
        blocks = self._blocks()
        self._assign_slots()
        predecessors = self._predecessors()
        arrivals = {
            key: ([lowering.slots[e] for _, e in sorted(lowering.arrivals[key])], index[wave])
            for key, wave in lowering.arrival_waves.items()
        }
        pending = [len(before) for before in predecessors]
        for _, segment in arrivals.values():
            pending[segment] += 1
        successors: list[list[int]] = [[] for _ in self.order]
        for j, before in enumerate(predecessors):
            for i in before:
                successors[i].append(j)
        segments = [
            self._segment(
                blocks[wave],
                pending[i],
                successors[i],
                _marks(blocks[wave], Form.COMPUTE, Form.LOOP),
                self._taken(wave),
                tuple(name for _, names in _marks(blocks[wave], Form.BEGIN_LOOP) for name in names),
                _first_guess(blocks[wave]),
                wave & lowering.device_bits != 0,
                _is_open_ended(blocks[wave]),
            )
            for i, wave in enumerate(self.order)
        ]
        return Level(segments, [None] * lowering.slot_count, arrivals, pending)

    def _segment(self, blocks: list[list[Unit]], *fields: Any) -> Segment:
        segment, model = Segment(self._segment_function(blocks), *fields), self.lowering.compilation.model
        return segment if model is None else model.segment(segment, [unit for block in blocks for unit in block])

    def _blocks(self) -> dict[Wave, list[list[Unit]]]:
        """The units of each wave, cut into blocks; each unit learns the number of its block."""
        by_wave: dict[Wave, list[Unit]] = {wave: [] for wave in self.order}
        for unit in starts_first(self.lowering):
            by_wave[unit.wave].append(unit)
        number = 0
        blocks: dict[Wave, list[list[Unit]]] = {}
        for wave, units in by_wave.items():
            blocks[wave] = [units[i : i + BLOCK_NODES] for i in range(0, len(units), BLOCK_NODES)] or [[]]
            for block in blocks[wave]:
                number += 1
                for unit in block:
                    unit.block = number
        return blocks

    def _taken(self, wave: Wave) -> tuple[str, ...]:
        shared = self.lowering.compilation
        keys = [key for key, arrival in self.lowering.arrival_waves.items() if arrival == wave]
        loops = [name for key in keys for name in shared.loop_updates.get(key, ())]
        return (*_updates(shared.waits[key] for key in keys if key in shared.waits), *loops)

    def _assign_slots(self) -> None:
        """Gives a slot to every value that is used outside the block that computes it."""
        lowering = self.lowering
        makers: dict[str, list[Unit]] = {}
        for unit in lowering.units:
            makers.setdefault(unit.node.name, []).append(unit)
        for unit in lowering.units:
            block = unit.block
            for endpoint in unit.reads():
                for maker in reversed(makers.get(endpoint[0], ())):
                    if endpoint[1] < maker.outputs:
                        if maker.block != block:
                            lowering.slot_for(endpoint)
                        break
        for endpoint in lowering.kept:
            lowering.slot_for(endpoint)

    def _segment_function(self, blocks: list[list[Unit]]) -> Callable[..., None]:
        context = context_of(self.lowering, self.sent)
        functions = [generate_block(context, block) for block in blocks]
        if len(functions) == 1:
            return functions[0]

        def run(step: Any, s: list[Any]) -> None:
            for function in functions:
                function(step, s)

        return run

    def _predecessors(self) -> list[set[int]]:
        """Per segment, the segments that must have run before it."""
        lowering, index = self.lowering, self.index
        found: list[set[int]] = [set() for _ in index]
        if len(index) == 1:
            return found
        nodes = lowering.nodes
        computed = {unit.node.name for unit in lowering.units if unit.form is not Form.SEND}
        behind: dict[str, set[int]] = {}  # many units read the same constants and wait for the same nodes
        for unit in lowering.units:
            mine = found[index[unit.wave]]
            sources = [e[0] for e in unit.reads()]
            sources += unit.node.controls
            if unit.form is Form.SEND:  # a control edge is sent as a constant that waits
                sources += [c for name in sources if name in nodes for c in nodes[name].controls]
            for source in sources:
                if source not in behind:
                    behind[source] = self._segments_behind(source, computed)
                mine |= behind[source]
        for key, wave in lowering.arrival_waves.items():
            for _, (name, _) in lowering.arrivals[key]:
                for control in nodes[name].controls:
                    found[index[wave]].update(self._segments_behind(control, computed))
        for i, before in enumerate(found):
            before.discard(i)
        return found

    def _segments_behind(self, name: str, computed: set[str]) -> set[int]:
        """The segments that compute or receive the value of a name, seen through nodes without code."""
        lowering, index = self.lowering, self.index
        first = lowering.nodes.get(name)
        if (name in computed or name in lowering.arrival_nodes) and (first is None or first.op not in NEXT_OPS):
            return {index[lowering.waves[name]]}
        found: set[int] = set()
        stack, seen = [name], {name}
        while stack:
            current = stack.pop()
            node = lowering.nodes.get(current)
            if node is not None and node.op in NEXT_OPS:
                continue  # its value is of the iteration before
            if current in computed or current in lowering.arrival_nodes:
                found.add(index[lowering.waves[current]])
                continue
            if node is None:
                continue
            behind = [*node.controls, *(lowering.canonical(e)[0] for e in node.inputs)]
            if (current, 0) in lowering.alias:
                behind.append(lowering.canonical((current, 0))[0])
            stack.extend(b for b in behind if b not in seen)
            seen.update(behind)
        return found


def _is_open_ended(blocks: list[list[Unit]]) -> bool:
    """Whether nothing but the end of its step may end a segment."""
    units = (unit for block in blocks for unit in block)
    return any(unit.form is Form.LOOP or unit.form is Form.COMPUTE and unit.node.op in _READS for unit in units)


def _first_guess(blocks: list[list[Unit]]) -> float:
    """Seconds that a segment may take, before it has run."""
    return float(any(unit.node.op in _SLOW_IO for block in blocks for unit in block))


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


# ---- Which results are computed in the memory of a connection ------------------------------------------------------
# A result that only one message to another task takes needs no memory here. Its kernel can write into the connection's
# shared memory, if the op has a rule for that (`OpHandle.into`), so that sending it takes no copy. Whether there is
# such memory is known when the kernel runs: `RegisteredGraph.sent_array` decides it by the size and the connection.

# Tensors of a message. Each has a block of its own, of which a connection lends few (`rpc.lane_memory.PART_LIMIT`); and
# many tensors are small ones.
_FEW_TENSORS = 16


def sent_results(lowering: Lowering) -> dict[Endpoint, int]:
    """Results whose only consumer is one message, each with that message's group."""
    if lowering.compilation.model is not None:  # its kernels compute nothing
        return {}
    sends = [unit for unit in lowering.units if unit.form is Form.SEND and len(unit.inputs) <= _FEW_TENSORS]
    if not sends:
        return {}
    takers = collections.Counter(endpoint for unit in lowering.units for endpoint in unit.reads())
    makers = {unit.node.name: unit for unit in lowering.units if unit.form is Form.COMPUTE and unit.outputs == 1}
    also_taken = lowering.kept | lowering.wanted
    found: dict[Endpoint, int] = {}
    for send in sends:
        for taken in send.inputs:
            endpoint: Endpoint | None = taken
            while endpoint is not None and takers[endpoint] == 1 and endpoint not in also_taken:
                maker = makers.get(endpoint[0])
                if maker is not None and into_rule(maker) is not None:
                    found[endpoint] = send.key
                endpoint = _handed_on(maker)
    return found


def _handed_on(unit: Unit | None) -> Endpoint | None:
    """The input of a node that hands it on unchanged, as one that waits for control edges does; None for others."""
    if unit is None or unit.derefs != [False]:
        return None
    inline = OPS[unit.node.op].inline_expression
    return unit.inputs[0] if inline is not None and inline(unit.node) == "{0}" else None
