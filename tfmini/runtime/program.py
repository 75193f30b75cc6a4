"""Compilation: the part of a graph that runs on one task becomes a `Program`.

A program is a list of *segments*. A segment is straight-line Python, generated once, that needs
nothing more from the network once it has started; its nodes are those that depend on the same
set of received groups. A step (see `step_run`) starts a segment when its predecessors are done
and its groups have arrived. What a segment leaves for another, and what comes in and goes out,
lies in a flat list of slots. `codegen` writes the text of a segment; this module decides what
belongs to which.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.runtime.codegen import BlockContext, Unit, generate_block
from tfmini.runtime.kernel_calls import (
    OpFacts,
    bound_arguments,
    grouped,
    list_lengths,
    make_callable,
    op_facts,
    output_count,
    takes_reference,
)
from tfmini.runtime.resources import ResourceManager

_MAX_FOLDED_BYTES = 10 << 20
# Pure, but somebody may have made them for the error they raise.
_CHECKS = frozenset({"CheckNumerics", "EnsureShape", "Reshape", "Cast"})
# CPython compiles a very long function slowly: a longer segment is cut into blocks of this many nodes.
_BLOCK_NODES = 1000


@dataclass
class Segment:
    """A run of nodes between two waits.

    Attributes:
      run: ``run(step, slots)``, the generated function.
      pending: how many groups and predecessor segments must come first.
      successors: indices of the segments that wait for this one.
      seconds: smoothed duration, which decides whether the reactor may run it itself.
    """

    run: Callable[[Any, list[Any]], None]
    pending: int
    successors: list[int]
    seconds: float = 0.0


@dataclass
class Program:
    """The compiled part of a graph that one task runs.

    Attributes:
      template: the initial slots (fetched constants are in place).
      feeds: slot per fed value, in the order of the request.
      fetches: slot per fetched value.
      copies: per fetch, whether the value may share memory with a variable or a constant.
      groups: received group -> (slots of its values, segment).
      sends: sent group -> destination task.
    """

    segments: list[Segment]
    template: list[Any]
    feeds: list[int]
    fetches: list[int]
    copies: list[bool]
    groups: dict[int, tuple[list[int], int]]
    sends: dict[int, str]
    states: dict[str, Callable[[ResourceManager], Any]]
    namespace: dict[str, Any]
    node_count: int
    pending: list[int]
    generation: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def bind(self, resources: ResourceManager) -> None:
        """Looks up the variables and other resources that the program names, if that is due."""
        if self.generation == resources.generation:
            return
        with self._lock:
            generation = resources.generation
            for name, create in self.states.items():
                self.namespace[name] = create(resources)
            self.generation = generation

    @property
    def is_simple(self) -> bool:
        """One segment that neither sends nor receives: it can run as a function call."""
        return len(self.segments) <= 1 and not self.groups and not self.sends


def compile_program(
    nodes: Sequence[Node],
    *,
    task_of: Callable[[str], str],
    resources: ResourceManager,
    device_type: str = "CPU",
    feeds: Sequence[str] = (),
    fetches: Sequence[str] = (),
    fold_constants: bool = True,
) -> Program:
    """Compiles the nodes of one task.

    Args:
      nodes: the partitions of the task, together in a topological order.
      task_of: full device name -> full task name.
      resources: where kernels that ask for it find their state.
      feeds: tensor names of the client-terminated receives, in the order of the values of a run.
      fetches: tensor names of the client-terminated sends, in the order of the results.
      fold_constants: compute constant parts now.

    Raises:
      InvalidArgumentError: when an op has no kernel here.
    """
    return _Compiler(nodes, task_of, resources, device_type, list(feeds), list(fetches), fold_constants).compile()


class _Compiler:
    def __init__(
        self, nodes: Sequence[Node], task_of: Callable[[str], str], resources: ResourceManager, device_type: str,
        feeds: list[str], fetches: list[str], fold: bool,
    ) -> None:  # fmt: skip
        self.nodes = nodes
        self.task_of = task_of
        self.device_type = device_type
        self.feed_names, self.fetch_names = feeds, fetches
        self.fold = fold
        self.alias: dict[Endpoint, Endpoint] = {}
        self.constants: dict[Endpoint, Any] = {}
        # Endpoints whose value is a reference, and those that read one: their arrays belong to a variable.
        self.references: set[Endpoint] = set()
        self.reads: set[Endpoint] = set()
        self.namespace: dict[str, Any] = {"resources": resources}
        self.states: dict[str, Callable[[ResourceManager], Any]] = {}
        self.state_names: dict[Endpoint, str] = {}
        self.units: list[Unit] = []
        self.waves: dict[str, int] = {}
        self.wave_sets: list[frozenset[int]] = [frozenset()]
        self.wave_ids: dict[frozenset[int], int] = {frozenset(): 0}
        self.fetch_sources: dict[str, Endpoint] = {}
        self.received: dict[int, list[tuple[bytes, Endpoint]]] = {}
        # Per group to send: its values, and after which unit the last of its Send nodes comes.
        self.sent: dict[int, list[tuple[bytes, Endpoint]]] = {}
        self.send_nodes: dict[int, tuple[int, Node, int]] = {}
        self.send_tasks: dict[int, str] = {}
        self.local_sends: dict[tuple[bytes, bytes, bytes], Endpoint] = {}
        self.slots: dict[Endpoint, int] = {}
        self.slot_count = len(feeds)
        self.feed_slots = {name: i for i, name in enumerate(feeds)}

    def compile(self) -> Program:
        for node in self.nodes:
            self._admit(node)
        self._add_sends()
        self._drop_unused()
        group_waves = {g: self.waves[entries[0][1][0]] for g, entries in self.received.items()}
        used = {u.wave for u in self.units} | set(group_waves.values()) or {0}
        order = sorted(used, key=lambda wave: (len(self.wave_sets[wave]), wave))
        index = {wave: i for i, wave in enumerate(order)}
        blocks = self._blocks(order)
        self._assign_slots()
        predecessors = self._predecessors(index, group_waves)
        groups = {
            g: ([self.slots[e] for _, e in sorted(entries)], index[group_waves[g]])
            for g, entries in self.received.items()
        }
        pending = [len(before) for before in predecessors]
        for _, segment in groups.values():
            pending[segment] += 1
        segments = []
        for i, wave in enumerate(order):
            successors = [j for j, before in enumerate(predecessors) if i in before]
            segments.append(Segment(self._segment_function(blocks[wave]), pending[i], successors))
        return self._program(segments, groups, pending)

    def _program(
        self, segments: list[Segment], groups: dict[int, tuple[list[int], int]], pending: list[int]
    ) -> Program:
        template: list[Any] = [None] * self.slot_count
        fetches, copies = [], []
        for name in self.fetch_names:
            source = self.fetch_sources[name]
            slot = self.slots[source]
            if source in self.constants:
                template[slot] = self.constants[source]
            # A variable's, a constant's or a feed's array is not the client's, nor is one it gets twice.
            copies.append(
                source in self.reads or source in self.constants or slot < len(self.feed_names) or slot in fetches
            )
            fetches.append(slot)
        feeds = [self.feed_slots[name] for name in self.feed_names]
        return Program(
            segments, template, feeds, fetches, copies, groups, self.send_tasks, self.states, self.namespace,
            len(self.nodes), pending,
        )  # fmt: skip

    # ---- analysis ---------------------------------------------------------------------------

    def _admit(self, node: Node) -> None:
        """Takes one node into account: receive, send, constant, alias, or code to generate."""
        waves = self.waves
        sources = [waves[s] for s, _ in node.inputs]
        if node.controls:
            sources += [waves[c] for c in node.controls]
        wave = waves[node.name] = self._join(sources)
        op = node.op
        if op == "_Recv" or op == "_HostRecv":
            self._admit_receive(node, wave)
        elif op == "_Send" or op == "_HostSend":
            self._admit_send(node, wave)
        elif op == "Const":
            self.constants[node.name, 0] = node.attrs["value"]
        elif op != "NoOp":
            self._admit_computation(node, wave)

    def _join(self, waves: list[int]) -> int:
        """The wave of something that needs several: the union of their groups."""
        if not waves:
            return 0
        first = waves[0]
        if waves.count(first) == len(waves):
            return first
        return self._intern(frozenset().union(*(self.wave_sets[w] for w in set(waves))))

    def _intern(self, groups: frozenset[int]) -> int:
        wave = self.wave_ids.get(groups)
        if wave is None:
            wave = self.wave_ids[groups] = len(self.wave_sets)
            self.wave_sets.append(groups)
        return wave

    def _admit_receive(self, node: Node, wave: int) -> None:
        attrs = node.attrs
        endpoint = (node.name, 0)
        if attrs.get("client_terminated"):
            self.slots[endpoint] = self.feed_slots[attrs["tensor_name"].decode()]
            return
        source = self.local_sends.get((attrs["tensor_name"], attrs["send_device"], attrs["recv_device"]))
        if source is not None:  # another device of this same task
            self.alias[endpoint] = source
            self.waves[node.name] = self._join([wave, self.waves[source[0]]])
            return
        group = attrs["_group"]
        self.waves[node.name] = self._intern(self.wave_sets[wave] | {group})
        self.slots[endpoint] = self._new_slot()
        self.received.setdefault(group, []).append((attrs["tensor_name"], endpoint))

    def _admit_send(self, node: Node, wave: int) -> None:
        attrs = node.attrs
        source = self._canonical(node.inputs[0])
        if source in self.references or source in self.state_names:
            # What leaves the device is the variable's value now.
            self.units.append(Unit(node.replace(op="Identity"), [source], [True], 1, wave))
            source = (node.name, 0)
            self.reads.add(source)
        if attrs.get("client_terminated"):
            self.fetch_sources[attrs["tensor_name"].decode()] = source
            return
        receiver = self.task_of(attrs["recv_device"].decode())
        if self.task_of(attrs["send_device"].decode()) == receiver:
            self.local_sends[attrs["tensor_name"], attrs["send_device"], attrs["recv_device"]] = source
            return
        group = attrs["_group"]
        self.sent.setdefault(group, []).append((attrs["tensor_name"], source))
        self.send_tasks[group] = receiver
        _, _, others = self.send_nodes.get(group, (0, node, wave))
        self.send_nodes[group] = (len(self.units), node, self._join([wave, others]))

    def _admit_computation(self, node: Node, wave: int) -> None:
        facts = op_facts(node.op, self.device_type)
        if facts is None:
            text = (
                f"No OpKernel was registered to support Op '{node.op}'"
                f" used by {{{{node {node.name}}}}} on {node.device}."
            )
            raise errors.InvalidArgumentError(None, None, text)
        if facts.kernel.makes_state:
            self._admit_state(node, facts)
            return
        inputs = [self._canonical(e) for e in node.inputs] if self.alias else list(node.inputs)
        derefs = self._derefs(node, facts, inputs)
        for position in facts.reference_outputs:
            self.references.add((node.name, position))
        if self.fold and facts.foldable and inputs and not node.controls and self._folds(node, facts, inputs):
            return
        inline = facts.handle.inline_expression
        if inline is not None and inline(node) == "{0}":
            if not node.controls:
                # Also for a reference: who uses `v/read` reads the variable when it starts, as in
                # TensorFlow, where the two share a buffer.
                self.alias[node.name, 0] = inputs[0]
                return
            if derefs[0]:
                self.reads.add((node.name, 0))
        elif node.op == "ReadVariableOp":
            self.reads.add((node.name, 0))
        count = len(facts.op_def.outputs) if facts.flat else output_count(facts.op_def, node)
        self.units.append(Unit(node, inputs, derefs, count, wave))

    def _derefs(self, node: Node, facts: OpFacts, inputs: list[Endpoint]) -> list[bool]:
        """Per input, whether it is a variable whose value is wanted."""
        references = self.references
        if not facts.references:
            return [e in references for e in inputs]
        return [e in references and not ref for e, ref in zip(inputs, takes_reference(facts.op_def, node))]

    def _admit_state(self, node: Node, facts: OpFacts) -> None:
        name = f"v{len(self.states)}"
        kernel = facts.kernel
        bound = bound_arguments(kernel, node)
        self.states[name] = lambda resources: kernel.function(resources, **bound)
        self.state_names[node.name, 0] = name
        if facts.reference_outputs:  # a resource handle is passed on, never read implicitly
            self.references.add((node.name, 0))

    def _canonical(self, endpoint: Endpoint) -> Endpoint:
        alias = self.alias
        while endpoint in alias:
            endpoint = alias[endpoint]
        return endpoint

    def _folds(self, node: Node, facts: OpFacts, inputs: list[Endpoint]) -> bool:
        """Computes a node of constants now, where that is possible and the result is not huge."""
        constants = self.constants
        for endpoint in inputs:
            if endpoint not in constants:
                return False
        values = grouped(list_lengths(facts.op_def, node), [constants[e] for e in inputs])
        try:
            with np.errstate(all="ignore"):
                result = make_callable(facts.kernel, node)(*values)
        except Exception:  # noqa: BLE001 - whatever it is, it belongs to the step that runs the node
            return False
        outputs = (result,) if facts.single else result
        if sum(np.asarray(o).nbytes for o in outputs) > _MAX_FOLDED_BYTES:
            return False
        for i, output in enumerate(outputs):
            self.constants[node.name, i] = output
        return True

    def _add_sends(self) -> None:
        """Puts the sending of each group where its last Send node stands in the order.

        That is after everything the Send nodes depend on, control edges included.
        """
        for group, (position, node, wave) in sorted(self.send_nodes.items(), key=lambda item: -item[1][0]):
            values = [e for _, e in sorted(self.sent[group])]
            self.units.insert(position, Unit(node, values, [False] * len(values), 0, wave, group=group))

    def _drop_unused(self) -> None:
        """Leaves out pure nodes whose values nobody takes and that are there only to be waited for.

        Such are the gradients of inputs that `tf.gradients(gate_gradients=True)` groups with those
        that are wanted. Waiting for such a node is waiting for its inputs. What was asked for by
        name as a target has no control edges and stays.
        """
        waited_for = {c for node in self.nodes for c in node.controls}
        taken = {e[0] for e in self.fetch_sources.values()} | {e[0] for e in self.local_sends.values()}
        kept = []
        for unit in reversed(self.units):
            node = unit.node
            if unit.group is None and node.name in waited_for and node.name not in taken and node.op not in _CHECKS:
                facts = op_facts(node.op, self.device_type)
                if facts is not None and facts.foldable and not facts.reference_outputs:
                    continue
            taken.update(e[0] for e in unit.inputs)
            kept.append(unit)
        kept.reverse()
        self.units = kept

    # ---- blocks, slots and order ------------------------------------------------------------

    def _blocks(self, order: list[int]) -> dict[int, list[list[Unit]]]:
        """The units of each wave, cut into blocks; each unit learns the number of its block."""
        by_wave: dict[int, list[Unit]] = {wave: [] for wave in order}
        for unit in self.units:
            by_wave[unit.wave].append(unit)
        number = 0
        blocks: dict[int, list[list[Unit]]] = {}
        for wave, units in by_wave.items():
            blocks[wave] = [units[i : i + _BLOCK_NODES] for i in range(0, len(units), _BLOCK_NODES)] or [[]]
            for block in blocks[wave]:
                number += 1
                for unit in block:
                    unit.block = number
        return blocks

    def _assign_slots(self) -> None:
        """Gives a slot to every value that is used outside the block that computes it."""
        block_of = {(u.node.name, i): u.block for u in self.units for i in range(u.outputs)}
        for unit in self.units:
            for endpoint in unit.inputs:
                if block_of.get(endpoint, unit.block) != unit.block:
                    self._slot_for(endpoint)
        for source in self.fetch_sources.values():
            self._slot_for(source)

    def _new_slot(self) -> int:
        self.slot_count += 1
        return self.slot_count - 1

    def _slot_for(self, endpoint: Endpoint) -> None:
        if endpoint not in self.slots:
            self.slots[endpoint] = self._new_slot()

    def _segment_function(self, blocks: list[list[Unit]]) -> Callable[..., None]:
        context = BlockContext(self.constants, self.state_names, self.slots, self.namespace, self.device_type)
        functions = [generate_block(context, block) for block in blocks]
        if len(functions) == 1:
            return functions[0]

        def run(step: Any, s: list[Any]) -> None:
            for function in functions:
                function(step, s)

        return run

    def _predecessors(self, index: dict[int, int], group_waves: dict[int, int]) -> list[set[int]]:
        """Per segment, the segments that must have run before it."""
        found: list[set[int]] = [set() for _ in index]
        if len(index) == 1:
            return found
        computed = {unit.node.name for unit in self.units if unit.group is None}
        for unit in self.units:
            mine = found[index[unit.wave]]
            sources = [e[0] for e in unit.inputs] + list(unit.node.controls)
            if unit.group is not None:  # a control edge is sent as a constant that waits
                sources += [c for name in sources if name in self._by_name for c in self._by_name[name].controls]
            for source in sources:
                mine.update(self._segments_behind(source, computed, index))
        for group, entries in self.received.items():
            for _, (name, _) in entries:
                for control in self._by_name[name].controls:
                    found[index[group_waves[group]]].update(self._segments_behind(control, computed, index))
        for i, before in enumerate(found):
            before.discard(i)
        return found

    @cached_property
    def _by_name(self) -> Nodes:
        return {node.name: node for node in self.nodes}

    def _segments_behind(self, name: str, computed: set[str], index: dict[int, int]) -> set[int]:
        """The segments that compute or receive what a name stands for, seen through nodes without code."""
        found: set[int] = set()
        stack, seen = [name], {name}
        while stack:
            current = stack.pop()
            if current in computed or (current, 0) in self.slots and self.waves[current] in index:
                if self.waves[current] in index:
                    found.add(index[self.waves[current]])
                continue
            node = self._by_name.get(current)
            if node is None:
                continue
            behind = [*node.controls, *(self._canonical(e)[0] for e in node.inputs)]
            if (current, 0) in self.alias:
                behind.append(self._canonical((current, 0))[0])
            stack.extend(b for b in behind if b not in seen)
            seen.update(behind)
        return found
