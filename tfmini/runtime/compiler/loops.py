"""While loops: a frame of the graph becomes a Python loop.

A loop that neither receives, sends nor waits becomes one function, called like a kernel. Another
becomes a `WaitingLoop`: a level whose segments run once per iteration, driven by arrivals like
the segments around it. Its iterations overlap as in TensorFlow, and it starts before the inputs that come late (see
`split_rounds`). In the first form an iteration ends before the next one begins, and the loop starts when all its inputs
have arrived; as it never waits, nobody can tell.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tfmini import errors
from tfmini.graph.liveness import ALWAYS, LOOP_OP, Atom, Guard, LoopFrame
from tfmini.graph.node import SEND, Endpoint, Node, Nodes, output_dtypes
from tfmini.graph.omission import is_update
from tfmini.graph.op_types import ENTER_OPS, EXIT_OPS, MERGE_OPS, NEXT_OPS
from tfmini.placement.task_graph import INNER
from tfmini.placement.waves import Wave, joined
from tfmini.runtime.compiler.codegen import writer_of
from tfmini.runtime.compiler.kernels import op_facts
from tfmini.runtime.compiler.layout import context_of, lay_out, without_joins
from tfmini.runtime.compiler.levels import LoopEntry, Round, WaitingLoop
from tfmini.runtime.compiler.lowering import Compilation, Lowering
from tfmini.runtime.compiler.units import Condition, Form, Unit

# Stands for the updates of variables in the iteration before: a variable that is sent is read after them.
_UPDATED = "<updated>"


def _forget(parent: Lowering, loop: LoopFrame) -> None:
    """Drops what stands for values of a loop by a lowering that took too much for certain."""
    names = {node.name for node in loop.all_nodes()}
    for endpoint in [endpoint for endpoint in parent.alias if endpoint[0] in names]:
        del parent.alias[endpoint]


def lower_loop(parent: Lowering, node: Node, loop: LoopFrame) -> None:
    """Adds the unit of a loop to the level around it."""
    inputs = [parent.canonical(e) for e in node.inputs]
    waits = any(_waits(n, parent.compilation) for n in loop.all_nodes())
    entries = _entries_of(parent, node) if waits else [0] * len(inputs)
    inside = _LoopLowering(parent, loop, inputs, entries, waits, careful=False)
    inside.run()
    if not inside.is_plain():
        _forget(parent, loop)
        inside = _LoopLowering(parent, loop, inputs, entries, waits, careful=True)
        inside.run()
    derefs = [e in parent.references and n.op == "Enter" for n, e in zip(loop.enters, inputs)]
    guard = parent.condition(parent.liveness.of_node(node.name))
    updates = tuple(n.name for n in loop.all_nodes() if is_update(n))
    unit = Unit(node, inputs, derefs, 0, parent.waves[node.name], guard=guard, updates=updates)
    for i, exit_node in enumerate(loop.exits):
        if exit_node.op == "RefExit":
            parent.references.add((node.name, i))
        if inside.careful or not inside.surely_leaves():  # the loop may end without this Exit having been alive
            parent.liveness.doubt_value((node.name, i))
    if waits:
        _begin_waiting(parent, unit, inside)
    else:
        unit.form, unit.outputs = Form.LOOP, len(loop.exits)
        unit.function = f"loop{len(parent.compilation.namespace)}"
        parent.compilation.namespace[unit.function] = _LoopWriter(inside).write()
        parent.add(unit)
    for reference in {inside.entering.get(e[0], e) for e in inside.update_waves} & parent.references:
        parent.note_update(reference, parent.waves[node.name])


def _entries_of(parent: Lowering, node: Node) -> list[int]:
    """The entry of each input of a loop; one for all if some may be dead while others are alive."""
    if len({parent.liveness.of(e) for e in node.inputs}) > 1:
        return [0] * len(node.inputs)
    late = parent.compilation.late_groups
    arrivals = [parent.keys(parent.waves.get(source, 0)) for source, _ in node.inputs]
    return split_entries([frozenset(key for key in wave if key < 0 or key in late) for wave in arrivals])


def _waits(node: Node, compilation: Compilation) -> bool:
    end = compilation.graph.sends.get(node.name) or compilation.graph.receives.get(node.name)
    if end is not None:
        return end.group != INNER
    facts = op_facts(node.op, compilation.device_type)
    return facts is not None and compilation.answers_later(facts)


def _begin_waiting(parent: Lowering, unit: Unit, inside: _LoopLowering) -> None:
    compilation, node = parent.compilation, unit.node
    key = compilation.new_event(node)
    compilation.loops[key] = inside.waiting_loop()
    compilation.loop_updates[key] = unit.updates
    compilation.loop_groups.update(group for group in inside.arrivals if group >= 0)
    for number in range(max(inside.entries, default=0) + 1):
        places = [i for i, entry in enumerate(inside.entries) if entry == number]
        inputs = [node.inputs[i] for i in places]
        entering = node.replace(inputs=tuple(inputs))
        values, derefs = [unit.inputs[i] for i in places], [unit.derefs[i] for i in places]
        parent.add(
            Unit(
                entering,
                values,
                derefs,
                0,
                parent.ranked(joined(entering, parent.waves)),
                Form.BEGIN_LOOP,
                key=key,
                entry=number,
                guard=unit.guard,
                updates=unit.updates,
            )  # fmt: skip
        )
    parent.await_values(key, node.name, [(i, (node.name, i)) for i in range(len(inside.loop.exits))], unit.wave)


class _LoopLowering(Lowering):
    """The inside of a loop.

    Args:
      entering: in the level around, where the value of each Enter comes from.
      entries: the number of the entry with which it comes.
      waits: whether the loop becomes a `WaitingLoop`.
      careful: decide per value and iteration whether it is alive. Otherwise the loop must be a plain
        one, where a single condition decides whether everything goes round or everything leaves.
    """

    def __init__(
        self,
        parent: Lowering,
        loop: LoopFrame,
        entering: list[Endpoint],
        entries: list[int],
        waits: bool,
        careful: bool,
    ) -> None:
        super().__init__(parent.compilation, loop.nodes, loop.loops)
        self.slot_count = 0
        self.loop, self.entries, self.waits = loop, entries, waits
        self.entering = {enter.name: source for enter, source in zip(loop.enters, entering)}
        self.careful = careful
        self.nexts = [n for n in loop.nodes.values() if n.op in NEXT_OPS]
        next_names = {n.name for n in self.nexts}
        self.merges: dict[str, tuple[Endpoint, str]] = {}
        for node in loop.nodes.values():
            if node.op in MERGE_OPS and any(source in next_names for source, _ in node.inputs):
                self.merges[node.name] = self._loop_variable(node, next_names)
        self.merged_enters = {enter[0] for enter, _ in self.merges.values()}
        merged_nexts = {name for _, name in self.merges.values()}
        # A loop variable may start as a value and go on as a reference: then it is read each time.
        self.value_nexts = {later for name, (_, later) in self.merges.items() if loop.nodes[name].op == "Merge"}
        # Values that go round without a merge: alive from the second iteration on.
        self.bare_nexts = [
            n for n in self.nexts
            if n.name not in merged_nexts and any((n.name, 0) in m.inputs for m in loop.nodes.values())
        ]  # fmt: skip
        self.next_sources: dict[str, tuple[Endpoint, bool, Guard]] = {}
        self.exit_sources: dict[str, tuple[Endpoint, bool, Guard]] = {}
        self._flows = True
        for node in self.bare_nexts:
            self.waves[node.name] = 0
            self.liveness.doubt((node.name, 0))
        self.rounds: list[list[str]] = []
        self.leads = False
        self.round_keys: dict[str, int] = {}
        self.entry_keys: dict[int, int] = {}
        self.updated_key: int | None = None
        if waits:
            self._split()

    def _split(self) -> None:
        """Decides what comes into an iteration together, and by which arrivals."""
        entry_of = {enter.name: entry for enter, entry in zip(self.loop.enters, self.entries)}
        if self.bare_nexts:
            self.rounds, self.leads = [[*self.merges, *(n.name for n in self.bare_nexts)]], True
            self.entries = [0] * len(self.entries)
        else:
            variables = {name: (entry_of[enter], later) for name, ((enter, _), later) in self.merges.items()}
            waits = {n.name for n in self.nodes.values() if self._delays(n)}
            self.rounds, self.leads = split_rounds(
                self.nodes, variables, entry_of, lambda node: node.name in waits, not self.careful
            )
        for names in self.rounds[1 if self.leads else 0 :]:
            self.round_keys.update(dict.fromkeys(names, self.compilation.new_key()))
        numbers = set(self.entries)
        if len(numbers) > 1:
            first = entry_of[self.merges[self.rounds[0][0]][0][0]] if self.leads else None
            self.entry_keys = {number: self.compilation.new_key() for number in sorted(numbers) if number != first}
        self.updates = [n.name for n in self.nodes.values() if is_update(n) or n.op == LOOP_OP and self._updates_in(n)]
        if self.updates and any(self._sends_reference(n) for n in self.nodes.values()):
            key = self.updated_key = self.compilation.new_key()
            self.waves[_UPDATED] = self.arrival_waves[key] = self.ranked(self.bit(key))
            self.arrival_nodes.add(_UPDATED)
            self.arrivals[key] = []

    def _updates_in(self, node: Node) -> bool:
        return any(is_update(inner) for inner in self.loops[node.name].all_nodes())

    def _sends_reference(self, node: Node) -> bool:
        if node.op != SEND:
            return False
        name, index = node.inputs[0]
        source = self.nodes.get(name)
        if source is not None and source.op == LOOP_OP:
            source, index = self.loops[name].exits[index], 0
        return source is not None and output_dtypes(source)[index]._is_ref_dtype

    def _admit_send(self, node: Node, wave: Wave, guard: Guard) -> None:
        # A variable is read when it is sent. In TensorFlow, the receiver asks for it when it wants to read it.
        if _UPDATED in self.waves and self._sends_reference(node):
            wave = self.waves[node.name] = self.ranked(wave | self.waves[_UPDATED])
            node = node.replace(controls=(*node.controls, _UPDATED))
        super()._admit_send(node, wave, guard)

    def _delays(self, node: Node) -> bool:
        if node.op == LOOP_OP:
            return any(_waits(inner, self.compilation) for inner in self.loops[node.name].all_nodes())
        return node.op != SEND and _waits(node, self.compilation)

    def _loop_variable(self, node: Node, nexts: set[str]) -> tuple[Endpoint, str]:
        """The initial value of a loop's merge, and the node that gives its later ones."""
        initial = [e for e in node.inputs if e[0] not in nexts]
        later = [e[0] for e in node.inputs if e[0] in nexts]
        if len(initial) != 1 or len(later) != 1 or self.loop.nodes[initial[0][0]].op not in ENTER_OPS:
            text = (
                f"Merge '{node.name}' in while loop '{self.loop.name}' joins {[e[0] for e in node.inputs]}; "
                "a loop variable's Merge joins one Enter and one NextIteration."
            )
            raise errors.UnimplementedError.of(text)
        return initial[0], later[0]

    def finish(self) -> None:
        sources = [*self.next_sources.values(), *self.exit_sources.values()]
        for endpoint, _, guard in sources:
            self.wanted.update((endpoint, *(condition for condition, _ in guard)))

    # ---- nodes that only stand in loops -----------------------------------------------------

    def _admit_flow(self, node: Node, wave: Wave) -> None:
        if node.op in ENTER_OPS:
            self._admit_enter(node)
        elif node.name in self.merges:
            self._admit_variable(node)
        elif node.op in NEXT_OPS:
            self.next_sources[node.name] = self._source(node)
        elif node.op in EXIT_OPS:
            self.exit_sources[node.name] = self._source(node)
        else:
            super()._admit_flow(node, wave)

    def _source(self, node: Node) -> tuple[Endpoint, bool, Guard]:
        source = self.canonical(node.inputs[0])
        reads = not output_dtypes(node)[0]._is_ref_dtype or node.name in self.value_nexts
        return source, source in self.references and reads, self.liveness.needs(node)

    def _admit_enter(self, node: Node) -> None:
        endpoint = (node.name, 0)
        self.waves[node.name] = 0
        source = self.entering[node.name]
        stays = self._stays(node)
        is_fixed = source in self.constants or source in self.compilation.state_names
        if stays and is_fixed and node.name not in self.merged_enters:
            # Also for a variable that is read: its user reads it then, as outside of loops.
            self.alias[endpoint] = source
            return
        if node.op == "RefEnter":
            self.references.add(endpoint)
        if not stays:
            self.liveness.doubt(endpoint)
        position = next(i for i, enter in enumerate(self.loop.enters) if enter.name == node.name)
        key = self.entry_keys.get(self.entries[position])
        if key is not None and self._is_read(node):
            self.await_values(key, node.name, [(position, endpoint)], 0)

    def _is_read(self, enter: Node) -> bool:
        """Whether an Enter's value is used other than as the first one of a loop variable."""
        return any((enter.name, 0) in n.inputs and n.name not in self.merges for n in self.nodes.values())

    def _stays(self, node: Node) -> bool:
        """Whether an Enter's value is there in every iteration (or wanted in the first one only)."""
        constant = bool(node.attrs.get("is_constant"))
        return constant or node.name in self.merged_enters or not (self.nexts and self.careful)

    def _admit_variable(self, node: Node) -> None:
        self.waves[node.name] = 0
        if node.name in self.round_keys:
            self.await_values(self.round_keys[node.name], node.name, [(node.name, (node.name, 0))], 0)
        if node.op == "RefMerge":
            self.references.add((node.name, 0))
        if any((node.name, 1) in n.inputs for n in self.nodes.values()):
            text = f"The value_index of '{node.name}', the Merge of a loop variable, is used; tfmini does not keep it."
            raise errors.UnimplementedError.of(text)
        if self.careful:
            self.liveness.doubt((node.name, 0))

    # ---- what kind of loop ------------------------------------------------------------------

    def is_plain(self) -> bool:
        """Whether the level may be written as it is."""
        if self.careful:
            return True
        loose = [
            e for e in self.loop.enters
            if not e.attrs.get("is_constant") and e.name not in self.merged_enters
            and any((e.name, 0) in n.inputs for n in self.nodes.values())
        ]  # fmt: skip
        if self.bare_nexts or loose and self.nexts:
            return False
        goes_on = self.goes_on
        if len(goes_on) > 1 or any(guard != goes_on for _, _, guard in self.next_sources.values()):
            return False
        if not self.waits and not self.surely_leaves():
            return False
        return self.waits or self._splits()

    def surely_leaves(self) -> bool:
        """Whether every Exit of a plain loop is alive in the iteration after which the loop does not go on."""
        left = frozenset((endpoint, not way) for endpoint, way in self.goes_on)
        return all(guard <= left for _, _, guard in self.exit_sources.values())

    @property
    def goes_on(self) -> Guard:
        """The condition for another iteration."""
        return next((guard for _, _, guard in self.next_sources.values()), ALWAYS)

    def _splits(self) -> bool:
        """Whether the units before the decision to go on need no value of the units after it."""
        if not self.nexts:
            return True
        if not self.goes_on or any(way is None for _, way in self.goes_on):
            return False
        head, body = self.head_and_body()
        made = {unit.node.name for unit in body}
        leaving = {source[0] for source, _, _ in self.exit_sources.values()}
        return not any(e[0] in made for unit in head for e in unit.reads()) and not leaving & made

    def head_and_body(self) -> tuple[list[Unit], list[Unit]]:
        """The units that run in every iteration, and those that run if there is another one."""
        [atom] = self.goes_on
        head: list[Unit] = []
        body: list[Unit] = []
        for unit in self.units:
            (body if atom in unit.guard else head).append(unit)
        return head, body

    # ---- a loop that waits ------------------------------------------------------------------

    def waiting_loop(self) -> WaitingLoop:
        """The level that runs once per iteration."""
        carried = self.carry()
        rounds = []
        handed: dict[str, Wave] = {}  # per loop variable, the wave of the unit that hands it on
        for number, names in enumerate(self.rounds):
            later = [self.merges[name][1] if name in self.merges else name for name in names]
            values = [carried[name] for name in later]
            wave = self._joined(later)
            node = Node(f"{self.loop.name}/hand_on{number}", "NoOp")
            self.add(Unit(node, values, [False] * len(values), 0, wave, Form.HAND_ON, key=number))
            rounds.append(Round(self.round_keys.get(names[0]), [self.slot_for((name, 0)) for name in names]))
            handed.update(dict.fromkeys(names, wave))
        leaving = self.leave(handed)
        if _UPDATED in self.waves:
            node = Node(f"{self.loop.name}/updated", "NoOp", controls=self.updates)
            wave = self._joined(self.updates)
            self.add(Unit(node, [], [], 0, wave, Form.HAND_ON, key=len(rounds)))
            rounds.append(Round(self.updated_key, []))
        self.kept.update(leaving)
        entries = self._entries()
        if _UPDATED in self.waves:
            entries[0].initial.append((len(rounds) - 1, []))
        level = without_joins(lay_out(self))
        exits = [self.slots[e] for e in leaving]
        window = max([1, *(enter.attrs.get("parallel_iterations", 10) for enter in self.loop.enters)])
        return WaitingLoop(self.loop.name, level, entries, rounds, self.leads, exits, window)

    def _joined(self, names: Sequence[str]) -> Wave:
        return self.ranked(functools.reduce(operator.or_, (self.waves[name] for name in names), 0))

    def _entries(self) -> list[LoopEntry]:
        entries = [LoopEntry(self.entry_keys.get(n), [], [], []) for n in range(max(self.entries, default=0) + 1)]
        places: dict[str, int] = {}  # the position of an Enter among the values of its entry
        counts = [0] * len(entries)
        for enter, number in zip(self.loop.enters, self.entries):
            places[enter.name] = place = counts[number]
            counts[number] += 1
            if (enter.name, 0) not in self.alias and self._is_read(enter):
                kind = entries[number].constants if self._stays(enter) else entries[number].once
                kind.append((place, self.slot_for((enter.name, 0))))
        entry_of = {enter.name: number for enter, number in zip(self.loop.enters, self.entries)}
        for number, names in enumerate(self.rounds):
            firsts = [self.merges[name][0][0] if name in self.merges else None for name in names]
            entry = next((entry_of[enter] for enter in firsts if enter is not None), 0)
            entries[entry].initial.append((number, [-1 if enter is None else places[enter] for enter in firsts]))
        return entries

    def carry(self) -> dict[str, Endpoint]:
        """Adds what each NextIteration hands to the next iteration; `DEAD` where it hands on nothing."""
        return {n.name: self._carry(n, self.next_sources[n.name], self.waves[n.name]) for n in self.nexts}

    def leave(self, handed: Mapping[str, Wave] = MappingProxyType({})) -> list[Endpoint]:
        """Adds what each Exit hands out in this iteration, likewise.

        Args:
          handed: loop variable -> a wave in which something is done in any case. As nobody looks at what leaves before
            the iteration has ended, it takes no segment of its own.
        """
        found = []
        for node in self.loop.exits:
            wave = self.waves[node.name]
            later = handed.get(self._variable_of(node), wave)
            if wave | later == later:
                wave = later
            found.append(self._carry(node, self.exit_sources[node.name], wave))
        return found

    def _variable_of(self, node: Node) -> str:
        """The loop variable whose last value an Exit usually hands out."""
        switch = self.nodes.get(node.inputs[0][0])
        return switch.inputs[0][0] if switch is not None and switch.inputs else ""

    def _carry(self, node: Node, source: tuple[Endpoint, bool, Guard], wave: Wave) -> Endpoint:
        endpoint, deref, guard = source
        return self.select(node, 1, endpoint, deref, guard, wave)


class _LoopWriter:
    """Writes a loop that does not wait as one function ``loop(step, *entering) -> leaving``."""

    def __init__(self, inside: _LoopLowering) -> None:
        self.inside = inside
        self.carried = inside.carry() if inside.careful else {}
        self.leaving = inside.leave() if inside.careful else []
        self.writer = writer_of(context_of(inside), inside.units)
        self.variables: list[str] = []

    def write(self) -> Callable[..., Any]:
        inside, writer = self.inside, self.writer
        enters = inside.loop.enters
        for i, enter in enumerate(enters):
            writer.pin((enter.name, 0), f"p{i}")
        for endpoint, _, _ in [*inside.next_sources.values(), *inside.exit_sources.values()]:
            writer.keep(endpoint)
        for endpoint in [*self.carried.values(), *self.leaving]:
            writer.keep(endpoint)
        writer.emit("run = step.run")
        writer.start_clock()
        for name, (initial, _) in inside.merges.items():
            self._variable((name, 0), writer.value(initial, False))
        for node in inside.bare_nexts:
            self._variable((node.name, 0), "DEAD")
        for i in range(len(self.leaving)):
            writer.emit(f"x{i} = DEAD")
        writer.emit("while True:")
        writer.indent += 1
        writer.emit('if run.stopped: run.raise_stopped("runs a while loop")')
        (self._write_careful if inside.careful else self._write_plain)()
        return writer.function(", ".join(["step", *(f"p{i}" for i in range(len(enters)))]))

    def _variable(self, endpoint: Endpoint, initial: str) -> None:
        name = f"w{len(self.variables)}"  # v0, v1, … are the states of variables
        self.variables.append(name)
        self.writer.emit(f"{name} = {initial}")
        self.writer.pin(endpoint, name)

    def _write_plain(self) -> None:
        inside, writer = self.inside, self.writer
        if not inside.nexts:
            writer.write_all()
            writer.emit(f"return {self._exits()}")
            return
        head, body = inside.head_and_body()
        [atom] = inside.goes_on
        writer.keep(atom[0])
        for unit in head:
            writer.write_unit(unit)
        writer.close_guard()
        writer.emit(f"if {writer.atom((atom[0], not atom[1]))}: return {self._exits()}")
        for unit in body:
            unit.guard = _without(unit.guard, atom)
            unit.ways = [_without(way, atom) for way in unit.ways]
            writer.write_unit(unit)
        writer.close_guard()
        sources = [inside.next_sources[later] for _, later in inside.merges.values()]
        self._go_round([writer.value(e, deref) for e, deref, _ in sources])

    def _exits(self) -> str:
        sources = [self.inside.exit_sources[node.name] for node in self.inside.loop.exits]
        return "(" + "".join(f"{self.writer.value(e, deref)}, " for e, deref, _ in sources) + ")"

    def _write_careful(self) -> None:
        inside, writer = self.inside, self.writer
        writer.write_all()
        for i, endpoint in enumerate(self.leaving):
            value = writer.value(endpoint, False)
            writer.emit(f"if {value} is not DEAD: x{i} = {value}")
        carried = {name: writer.value(e, False) for name, e in self.carried.items()}
        dead = " and ".join(f"{value} is DEAD" for value in carried.values()) or "True"
        writer.emit(f"if {dead}: return ({''.join(f'x{i}, ' for i in range(len(self.leaving)))})")
        for i, enter in enumerate(inside.loop.enters):
            if enter.name not in inside.merged_enters and not enter.attrs.get("is_constant"):
                writer.emit(f"p{i} = DEAD")
        sources = [carried[later] for _, later in inside.merges.values()]
        self._go_round(sources + [carried[node.name] for node in inside.bare_nexts])

    def _go_round(self, values: list[str]) -> None:
        if values:
            self.writer.emit(f"{', '.join(self.variables)}, = {', '.join(values)},")


def _without(condition: Condition, atom: Atom) -> Condition:
    return tuple(a for a in condition if a != atom)


# ---- Entries and rounds: what comes into an iteration of a loop that waits, together -------------------------------
# The iterations of such a loop overlap. A value goes to the next iteration as soon as the segment that computes it has
# run, so those that the same segment computes form a *round*. The counter of a loop is usually a round by itself: it
# runs ahead while the other variables wait. What enters the loop is split likewise into *entries*, where a value may
# have to wait for the loop.

Arrival = tuple[str, object]
Needs = frozenset[Arrival]
"""What must have come in an iteration: ("round", number), ("entry", number) or ("wait", the name of a node)."""


def split_entries(lateness: Sequence[frozenset[int]]) -> list[int]:
    """The number of the entry of each value that enters, for what may come late of the things that it needs.

    Number 0 is the entry that needs the least.
    """
    order = sorted(set(lateness), key=lambda late: (len(late), sorted(late)))
    return [order.index(late) for late in lateness]


def split_rounds(
    nodes: Nodes, variables: Mapping[str, tuple[int, str]], entries: Mapping[str, int], waits: Callable[[Node], bool],
    one_decides: bool,
) -> tuple[list[list[str]], bool]:  # fmt: skip
    """The coarsest division of the loop variables in which those of one round are computed by one segment.

    Args:
      nodes: of the loop, in topological order without regard to back edges.
      variables: the Merge of each loop variable -> (the entry with its first value, the NextIteration of the others).
      entries: other Enter -> the number of its entry.
      waits: whether what follows a node is in another segment than what it follows.
      one_decides: whether either all variables go on or none, so that one round can tell.

    Returns:
      The rounds, and whether the first is always there when another one is, and so may decide.
    """
    rounds = {name: entry for name, (entry, _) in variables.items()}
    while True:
        needs = _needs(nodes, rounds, entries, waits)
        numbers: dict[tuple[int, Needs], int] = {}
        refined = {
            name: numbers.setdefault((rounds[name], needs[later]), len(numbers))
            for name, (_, later) in variables.items()
        }
        if len(numbers) == len(set(rounds.values())):
            break
        rounds = refined
    groups: dict[int, list[str]] = {}
    for name, number in rounds.items():
        groups.setdefault(number, []).append(name)
    if len(groups) < 2:
        return list(groups.values()), bool(groups)
    of_group = {number: needs[variables[names[0]][1]] for number, names in groups.items()}
    first = min(groups, key=lambda number: len(of_group[number]))
    leads = one_decides and all(of_group[first] <= other for other in of_group.values())
    return [groups[first], *(names for number, names in groups.items() if number != first)], leads


def _needs(
    nodes: Nodes, rounds: Mapping[str, int], entries: Mapping[str, int], waits: Callable[[Node], bool]
) -> dict[str, Needs]:
    found: dict[str, Needs] = {}
    for name, node in nodes.items():
        if name in rounds:
            found[name] = frozenset({("round", rounds[name])})
            continue
        parts = [found[s] for s in (*(s for s, _ in node.inputs), *node.controls) if s in found]
        if name in entries:
            parts = [frozenset({("entry", entries[name])})]
        if waits(node):
            parts.append(frozenset({("wait", name)}))
        distinct = set(parts)
        found[name] = distinct.pop() if len(distinct) == 1 else frozenset().union(*distinct)
    return found
