"""Cuts units into segments, gives values their slots, and finds the predecessors of each segment."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from typing import Any

from tfmini.graph.node import Node
from tfmini.graph.omission import is_update
from tfmini.graph.op_types import NEXT_OPS, ops_with
from tfmini.placement.waves import Wave
from tfmini.runtime.compiler.codegen import BlockContext, generate_block, nothing, sent_results
from tfmini.runtime.compiler.levels import Level, Segment, starts_first
from tfmini.runtime.compiler.lowering import Lowering
from tfmini.runtime.compiler.units import Form, Unit

# CPython compiles a very long function slowly: a longer segment is cut into blocks of this many nodes.
BLOCK_NODES = 1000
# A segment with such an op goes to the pool from its first run on: a save of gigabytes in the reactor would leave the
# task deaf, and its peers would take it for lost.
_SLOW_IO = ops_with("slow_io")
_READS = ops_with("waits")  # those that run at once look for an element that a dataset may never have


def context_of(lowering: Lowering) -> BlockContext:
    """The values that generated text of a level may refer to."""
    shared = lowering.compilation
    return BlockContext(
        shared.constants, shared.state_names, lowering.slots, shared.namespace, shared.device_type, shared.trace,
        shared.kernels, shared.model,
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
    return tuple(node.name for node in nodes if is_update(node))


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
        self.sent = sent_results(lowering)

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
        context = context_of(self.lowering)
        context.sent = self.sent if context.device_type == "CPU" else {}  # the rules are those of CPU kernels
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
