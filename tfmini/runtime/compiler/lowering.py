"""From the nodes of a task to units: what is computed, sent, awaited, or needs no code at all.

A `Lowering` reads the nodes of one level (the graph outside all while loops, or the inside of one
loop) in topological order. Constants, copies of values, ``Switch`` and control edges leave no
code, nor do nodes that change nothing (``x * 1``) or compute what another one has computed; each
other node becomes a `Unit` with the *wave* in which it can run (the set of arrivals that it needs)
and the *guard* under which it runs (see `graph.liveness`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tfmini import dtypes, errors
from tfmini.graph.families import broadcast_shape, same_shape
from tfmini.graph.liveness import ALWAYS, LOOP_OP, Guard, LoopFrame, NodeGuards, has_flow
from tfmini.graph.node import FEED, FETCH, RECEIVE, SEND, Endpoint, Node, Nodes, output_dtypes
from tfmini.graph.op_types import FLOW_OPS, SWITCH_OPS, ops_with, trait_of
from tfmini.placement.task_graph import INNER, End, TaskGraph
from tfmini.placement.waves import Wave, joined
from tfmini.runtime.compiler.codegen import KernelModel
from tfmini.runtime.compiler.kernels import (
    OpFacts,
    are_checked,
    bound_arguments,
    checked,
    grouped,
    list_lengths,
    make_callable,
    named_errors,
    op_facts,
    output_count,
    takes_reference,
)
from tfmini.runtime.compiler.units import Condition, Form, Unit
from tfmini.runtime.resources import Resources
from tfmini.runtime.trace import TraceTable

# ---- The value that stands for "this branch was not taken" ---------------------------------------------------------


class _Dead:
    """The type of `DEAD`.

    Attributes:
      dtype: None, so that the types of received values can be compared without a look for this one.
    """

    __slots__ = ()
    dtype: None = None

    def __repr__(self) -> str:
        return "DEAD"


DEAD: Final = _Dead()
"""What a dead output holds where another part of the program must be able to see that it is dead."""


# ---- Nodes of constants that the compiler computes in advance, and bounds of what that may cost --------------------
# A graph is compiled in the thread that answers other tasks, and its nodes may come from any client. So the size of a
# result is known before it is computed: from the op's shape function, or else from the sizes of the inputs.
#
# A node behind control edges is folded as well, as a Const with some is a constant: it leaves no code, and what waits
# for it waits for what is behind it. Else each step would compute the gradients that `tf.gradients` gates, as of a
# sum.

INPUT_BYTES, TOTAL_BYTES = 1 << 20, 64 << 20  # that a node may have, and all nodes of a program together
RESULT_BYTES = 10 << 20  # of a node; all results together may have `TOTAL_BYTES`, too
_ELEMENTWISE, _FEW = {same_shape, broadcast_shape}, 10_000  # no need to ask for the size of so few elements
_SIZE_RANK, _SIZE_COUNT = 1, 64  # an input like this may be a shape or a count


class Folding:
    """The folding of one program.

    Args:
      constants: the values that are known; those of folded nodes are added.
    """

    def __init__(self, constants: dict[Endpoint, Any]) -> None:
        self._constants = constants
        self._left = self._room = TOTAL_BYTES  # of inputs, of results

    def folds(self, node: Node, facts: OpFacts, inputs: list[Endpoint]) -> bool:
        """Computes a node of constants now, where that is possible and neither it nor its result is expensive."""
        constants = self._constants
        for endpoint in inputs:
            if endpoint not in constants:
                return False
        inline = facts.handle.inline_expression
        if inline is not None and inline(node) == "{0}":  # many gradients are copies of one constant
            constants[node.name, 0] = constants[inputs[0]]
            return True
        values = [constants[e] for e in inputs]
        if not self._is_cheap(node, facts, values):
            return False
        try:
            function = make_callable(facts.kernel, node)
            if are_checked():
                function = checked(function, facts.kernel, node)
            with np.errstate(all="ignore"):
                result = function(*(values if facts.flat else grouped(list_lengths(facts.op_def, node), values)))
        except Exception:  # noqa: BLE001 - any error belongs to the step that runs the node
            return False
        outputs = (result,) if facts.single else result
        nbytes = sum(np.asarray(o).nbytes for o in outputs)
        if nbytes > min(RESULT_BYTES, self._room):
            return False
        self._room -= nbytes
        for i, output in enumerate(outputs):
            constants[node.name, i] = output
        return True

    def _is_cheap(self, node: Node, facts: OpFacts, values: list[Any]) -> bool:
        """Whether the inputs and the outputs are small: `tf.fill` makes much of little, and so does `tf.range`."""
        arrays = [np.asarray(value) for value in values]
        nbytes = sum(array.nbytes for array in arrays)
        if nbytes > INPUT_BYTES or nbytes > self._left:
            return False
        if facts.handle.shape_function not in _ELEMENTWISE or math.prod([array.size for array in arrays]) > _FEW:
            result = _result_bytes(node, facts, arrays)
            if (_most_bytes(arrays) if result is None else result) > min(RESULT_BYTES, self._room):
                return False
        self._left -= nbytes
        return True


class _Known:
    """A constant, as shape functions read the inputs of an operation."""

    type = "Const"

    def __init__(self, value: Any) -> None:
        self.attrs = {"value": value}
        self.raw_shape = value.shape

    @property
    def op(self) -> _Known:
        return self

    @property
    def dtype(self) -> Any:
        return dtypes.as_dtype(self.attrs["value"].dtype)


class _Operation:
    """A node of constants, as shape functions read an operation."""

    def __init__(self, node: Node, facts: OpFacts, arrays: Sequence[Any]) -> None:
        self.name, self.type, self.attrs, self.op_def = node.name, node.op, node.attrs, facts.op_def
        self.inputs = [_Known(array) for array in arrays]


def _result_bytes(node: Node, facts: OpFacts, arrays: Sequence[Any]) -> int | None:
    """The bytes of the outputs, as the op's shape function has them; None if it does not know them."""
    if facts.handle.shape_function is None:
        return None
    try:
        shapes = facts.handle.shape_function(_Operation(node, facts, arrays))
    except Exception:  # noqa: BLE001 - the inputs do not fit, or the function wants more than is known here
        return None
    nbytes = 0
    for shape, dtype in zip(shapes, output_dtypes(node)):
        if shape is None or None in shape:
            return None
        nbytes += math.prod(shape) * int(dtype.size or 8)
    return nbytes


def _most_bytes(arrays: Sequence[Any]) -> int:
    """A bound of the bytes of outputs of unknown shape: each element may meet each other one, and be repeated."""
    numbers = [array for array in arrays if _may_be_sizes(array)]
    sizes = [abs(int(number)) for array in numbers for number in array.flat]
    elements = [int(array.size) for array in arrays if not _may_be_sizes(array)]
    return 8 * math.prod(size for size in (*sizes, *elements) if size)


def _may_be_sizes(array: Any) -> bool:
    return array.dtype.kind in "iu" and array.ndim <= _SIZE_RANK and array.size <= _SIZE_COUNT


# ---- From nodes to units -------------------------------------------------------------------------------------------

_NEUTRAL = {"one": 1.0, "zero": 0.0, "minus_zero": -0.0}
_CHECKS = ops_with("checks")
_CONTROL_ONLY = ops_with("control_only")
_HEAVY = ops_with("work", "matmul", "convolution")
_SMALL = 64  # bytes of constants that are compared
_FIRST_DEVICE = 1 << 40  # among the keys of arrivals: groups and events are below


class Compilation:
    """The state that all levels of one program share.

    Args:
      resources: where kernels that ask for it find their state.
      fold: compute constant parts now.
      lower_loop: adds a while loop to the level around it.
      trace: for a traced program, the meaning of the numbers in its text.
      kernels, model: see `BlockContext`.
      threads: kernels that may block (see `op_types.Kernel`) run in threads of their own.
    """

    def __init__(
        self, graph: TaskGraph, resources: Resources, device_type: str, fold: bool,
        lower_loop: Callable[[Lowering, Node, LoopFrame], None],
        trace: TraceTable | None = None, threads: bool = False,
        kernels: dict[str, Callable[..., Any]] | None = None, model: KernelModel | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.device_type = graph, device_type
        self.fold = fold
        self.lower_loop = lower_loop
        self.trace = trace
        self.kernels = {} if kernels is None else kernels
        self.threads, self.model = threads, model
        self.alias: dict[Endpoint, Endpoint] = {}
        self.constants: dict[Endpoint, Any] = {}
        self.folding = Folding(self.constants)
        # Endpoints whose value is a reference, and those that read one: their arrays belong to a variable.
        self.references: set[Endpoint] = set()
        self.reads: set[Endpoint] = set()
        self.namespace: dict[str, Any] = {"resources": resources, "DEAD": DEAD}
        self.states: dict[str, Callable[[Resources], Any]] = {}
        self.state_names: dict[Endpoint, str] = {}
        slots = {tensor: i for i, tensor in enumerate(graph.fed)}  # they come first
        self.feed_slots = {name: slots[tensor] for name, tensor in graph.feeds}
        self.feed_count = len(slots)
        self.fetch_sources: dict[str, Endpoint] = {}
        self.uncertain_fetches: set[str] = set()
        self.send_tasks: dict[int, str] = {}
        self.uncertain_sends: set[int] = set()
        self.inner_sends: dict[str, Endpoint] = {}  # by tensor: what goes to another device of this task
        self.waits: dict[int, Node] = {}
        self.loops: dict[int, Any] = {}
        self.loop_updates: dict[int, tuple[str, ...]] = {}  # the updates inside each of them
        self.loop_groups: set[int] = set()
        self.late_groups: set[int] = set()  # those whose sender waits for more than time
        self.keeps_feeds = False
        self._events = 0

    def new_event(self, node: Node) -> int:
        """The key of the arrival to which a waiting node leads."""
        key = self.new_key()
        self.waits[key] = node
        return key

    def new_key(self) -> int:
        """The key of another arrival that is no message: negative, since groups count from 0."""
        self._events -= 1
        return self._events

    def answers_later(self, facts: OpFacts) -> bool:
        """Whether an op of that type begins in one segment and ends before another."""
        return facts.kernel.is_async or (self.threads and facts.kernel.may_block)

    def canonical(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint that an endpoint stands for."""
        alias = self.alias
        while endpoint in alias:
            endpoint = alias[endpoint]
        return endpoint


def _same_attrs(one: Node, other: Node) -> bool:
    try:
        return bool(one.attrs == other.attrs)
    except ValueError:  # arrays among them, which do not compare as one
        return False


class Lowering:
    """The units of one level; see the module.

    Attributes:
      waves: node -> its wave, and ``wave_ranks``: each wave -> its number, in the order in which they were found.
      device_bits: the bits of waves that stand for devices (see `tell_devices_apart`).
      arrivals: group or event -> (order, endpoint) of its values; ``arrival_waves`` their wave.
      kept: endpoints that are wanted after the level has run; ``wanted`` while it runs.
    """

    def __init__(self, compilation: Compilation, nodes: Nodes, loops: dict[str, LoopFrame]) -> None:
        self.compilation = compilation
        self.nodes = nodes
        self.loops = loops
        self.alias = compilation.alias
        self.constants = compilation.constants
        self.references = compilation.references
        self.units: list[Unit] = []
        self.waves: dict[str, Wave] = {}
        self.wave_ranks: dict[Wave, int] = {0: 0}
        self.device_bits: Wave = 0
        self._device_marks: dict[str, Wave] = {}
        self.arrivals: dict[int, list[tuple[Any, Endpoint]]] = {}
        self.arrival_waves: dict[int, Wave] = {}
        self.arrival_nodes: set[str] = set()
        self.kept: set[Endpoint] = set()
        self.wanted: set[Endpoint] = set()
        self.slots: dict[Endpoint, int] = {}
        self.slot_count = compilation.feed_count
        self.liveness = NodeGuards(self._predicate)
        self._bits: dict[int, Wave] = {}
        # Per group to send: its values, and after which unit the last of its Send nodes comes.
        self._sent: dict[int, list[tuple[str, Endpoint]]] = {}
        self._send_nodes: dict[int, tuple[int, Node, Wave]] = {}
        self._ranks: dict[Endpoint, int] = {}
        self._snapshots: dict[Endpoint, Endpoint] = {}
        self._variables: dict[Endpoint, Endpoint] = {}  # reference that an update hands on -> the variable
        self.update_waves: dict[Endpoint, Wave] = {}  # variable -> the wave of all its updates
        self._computed: dict[Any, list[Node]] = {}  # what computes an op of the same values, with different attrs
        receives = compilation.graph.receives.values()
        self._flows = bool(loops) or has_flow(nodes) or any(receive.may_be_dead for receive in receives)

    def tell_devices_apart(self) -> None:
        """Puts what several devices compute into segments of their own, which may run at one time.

        The wave of a node then also says which devices have worked for it: each product or convolution adds its device
        to its wave, and so to the waves of all that follow. So the towers of two devices are in segments that do not
        wait for each other, and their sum is in a third. Cheap nodes before the first product add nothing: both towers
        may read a variable or an input that one of the devices has prepared.
        """
        devices = sorted({node.device for node in self.nodes.values() if node.op in _HEAVY})
        if len(devices) > 1:
            self._device_marks = {device: self.bit(_FIRST_DEVICE + i) for i, device in enumerate(devices)}
            self.device_bits = sum(self._device_marks.values())

    def run(self) -> None:
        """Admits all nodes."""
        for node in self.nodes.values():
            self._admit(node)
        self.finish()
        self._add_sends()
        self._drop_unused()

    def finish(self) -> None:
        """Called when all nodes have been admitted."""

    def silent(self) -> list[Node]:
        """The nodes that take part in every run although no code was made for them: constants, views, variables."""
        shared = self.compilation
        return [
            node for name, node in self.nodes.items()
            if ((name, 0) in self.constants or (name, 0) in shared.state_names or node.op in _CONTROL_ONLY
                or (name, 0) in self.alias and node.op not in FLOW_OPS and node.op != RECEIVE)
            and not self.liveness.of_node(name)
        ]  # fmt: skip

    # ---- waves and guards -------------------------------------------------------------------

    def ranked(self, wave: Wave) -> Wave:
        """The same wave. It has a rank from now on, which orders the segments."""
        self.wave_ranks.setdefault(wave, len(self.wave_ranks))
        return wave

    def bit(self, key: int) -> Wave:
        """The wave of what needs one arrival: a group, an event or a device."""
        return self._bits.setdefault(key, 1 << len(self._bits))

    def keys(self, wave: Wave) -> frozenset[int]:
        """The arrivals of a wave."""
        return frozenset(key for key, bit in self._bits.items() if wave & bit)

    def condition(self, guard: Guard) -> Condition:
        """A guard's atoms, outer conditions first: an inner predicate has no value without them."""
        if not guard:
            return ()
        for endpoint, _ in guard:
            self._ranks.setdefault(endpoint, len(self._ranks))
        return tuple(sorted(guard, key=lambda atom: self._ranks[atom[0]]))

    def _predicate(self, endpoint: Endpoint) -> Endpoint:
        """Where the value of a predicate lies; a variable's is looked at once for all its switches."""
        source = self.canonical(endpoint)
        return self._snapshots.get(source, source)

    def canonical(self, endpoint: Endpoint) -> Endpoint:
        return self.compilation.canonical(endpoint)

    def add(self, unit: Unit) -> None:
        """Appends a unit."""
        self.units.append(unit)

    # ---- nodes ------------------------------------------------------------------------------

    def _admit(self, node: Node) -> None:
        """Takes one node into account: receive, send, constant, alias, or code to generate."""
        wave = self.waves[node.name] = self.ranked(joined(node, self.waves))
        op = node.op
        guard: Guard = ALWAYS
        if self._flows:
            if op in FLOW_OPS or op == LOOP_OP:
                self._admit_flow(node, wave)
                return
            guard = self.liveness.admit(node)
        if op == FEED:
            self.slots[node.name, 0] = self.compilation.feed_slots[node.name]
        elif op == RECEIVE and (receive := self.compilation.graph.receives.get(node.name)) is not None:
            self._admit_receive(node, receive, wave)
        elif op == FETCH or op == SEND and node.name in self.compilation.graph.sends:
            self._admit_send(node, wave, guard)
        elif op == "Const":
            self.constants[node.name, 0] = node.attrs["value"]
        elif op == "LoopCond":
            self.alias[node.name, 0] = self.canonical(node.inputs[0])
        elif op not in _CONTROL_ONLY:
            self._admit_computation(node, wave, self.condition(guard))

    def _admit_flow(self, node: Node, wave: Wave) -> None:
        """Lowers a Switch, a Merge or a loop. `loops._LoopLowering` handles the ops that stand only in loops."""
        if node.op == LOOP_OP:
            self.liveness.admit(node)
            self.compilation.lower_loop(self, node, self.loops[node.name])
        elif node.op in SWITCH_OPS:
            self._admit_switch(node, wave)
        else:
            self._admit_merge(node, wave)

    def _admit_switch(self, node: Node, wave: Wave) -> None:
        predicate = self.canonical(node.inputs[1])
        if predicate in self.references and predicate not in self._snapshots:
            copy = self._snapshots[predicate] = (node.name, 2)
            guard = self.condition(self.liveness.of(node.inputs[1]))
            way = Unit(node, [predicate], [True], 3, wave, Form.SELECT, guard=guard, ways=[()], certain=True)
            self.add(way)
            self.kept.add(copy)
        self.condition(frozenset({(self._predicate(node.inputs[1]), True)}))  # ranks it
        self.liveness.admit(node)
        source = self.canonical(node.inputs[0])
        self.alias[node.name, 0] = self.alias[node.name, 1] = source

    def _admit_merge(self, node: Node, wave: Wave) -> None:
        guard = self.liveness.admit(node)
        common = guard - {((node.name, 0), None)}
        inputs = [self.canonical(e) for e in node.inputs]
        is_reference = node.op == "RefMerge"
        derefs = [not is_reference and e in self.references for e in inputs]
        ways = [self.condition(self.liveness.of(e) - common) for e in node.inputs]
        if is_reference:
            self.references.add((node.name, 0))
        elif any(derefs):
            self.compilation.reads.add((node.name, 0))
        self.add(
            Unit(node, inputs, derefs, 2, wave, Form.SELECT, guard=self.condition(common), ways=ways,
                 certain=guard == common)
        )  # fmt: skip

    def select(self, node: Node, index: int, source: Endpoint, deref: bool, guard: Guard, wave: Wave) -> Endpoint:
        """Makes a value that may be dead into one that is always there: itself, or `DEAD`."""
        endpoint = (node.name, index)
        self.add(
            Unit(node, [source], [deref], index + 1, wave, Form.SELECT, ways=[self.condition(guard)],
                 certain=not guard)
        )  # fmt: skip
        if deref:
            self.compilation.reads.add(endpoint)
        return endpoint

    def _admit_receive(self, node: Node, receive: End, wave: Wave) -> None:
        endpoint = (node.name, 0)
        if receive.group == INNER:
            source = self.alias[endpoint] = self.compilation.inner_sends[receive.tensor]
            # What a loop's Enter stands for may be a constant or a variable of a level around: it is always there.
            self.waves[node.name] = self.ranked(wave | self.waves.get(source[0], 0))
            return
        if receive.may_be_dead:
            self.liveness.doubt(endpoint)
        if receive.is_late:
            self.compilation.late_groups.add(receive.group)
        self.await_values(receive.group, node.name, [(receive.tensor, endpoint)], wave)

    def await_values(self, key: int, name: str, values: list[tuple[Any, Endpoint]], wave: Wave) -> None:
        """Notes that a node's values arrive from outside the units."""
        self.waves[name] = self.arrival_waves[key] = self.ranked(wave | self.bit(key))
        self.arrival_nodes.add(name)
        self.arrivals.setdefault(key, []).extend(values)
        for _, endpoint in values:
            self.slot_for(endpoint)

    def _admit_send(self, node: Node, wave: Wave, guard: Guard) -> None:
        source = self.canonical(node.inputs[0])
        reference = source in self.references or source in self.compilation.state_names
        guard = guard | self.liveness.of(node.inputs[0]) if self._flows else ALWAYS
        shared = self.compilation
        send = shared.graph.sends.get(node.name)  # None: the client fetches it
        if send is None and source in self.references:
            # In TensorFlow a fetched reference shares the variable's buffer: it shows what the step has made of it.
            wave = self.ranked(wave | self.update_waves.get(self._variables.get(source, source), 0))
        is_inner = send is not None and send.group == INNER
        if reference or (guard and not is_inner):
            # Sends the variable's current value, or `DEAD` if it has none.
            source = self._snapshot(node, source, wave, guard, reference, is_inner)
        if send is None:
            shared.fetch_sources[node.name] = source
            if guard:
                shared.uncertain_fetches.add(node.name)
            self.kept.add(source)
        elif is_inner:
            shared.inner_sends[send.tensor] = source
            self.kept.add(source)
        else:
            self._send_later(node, send, source, wave)
            if guard:
                shared.uncertain_sends.add(send.group)

    def _snapshot(
        self, node: Node, source: Endpoint, wave: Wave, guard: Guard, reference: bool, is_inner: bool
    ) -> Endpoint:
        if guard and not is_inner:
            return self.select(node, 0, source, reference, guard, wave)
        # Nobody in this task looks at it without the guard. With it, it stays behind the updates of a loop's body.
        when = self.condition(guard)
        self.add(Unit(node, [source], [True], 1, wave, Form.SELECT, guard=when, ways=[()], certain=True))
        self.compilation.reads.add((node.name, 0))
        return (node.name, 0)

    def _send_later(self, node: Node, send: End, source: Endpoint, wave: Wave) -> None:
        group = send.group
        self._sent.setdefault(group, []).append((send.tensor, source))
        self.compilation.send_tasks[group] = send.peer.task
        _, _, others = self._send_nodes.get(group, (0, node, wave))
        self._send_nodes[group] = (len(self.units), node, self.ranked(wave | others))

    def _admit_computation(self, node: Node, wave: Wave, guard: Condition) -> None:
        facts = op_facts(node.op, self.compilation.device_type)
        if facts is None:
            text = (
                f"No OpKernel was registered to support Op '{node.op}'"
                f" used by {{{{node {node.name}}}}} on {node.device}."
            )
            raise errors.InvalidArgumentError.of(text)
        if facts.kernel.makes_state:
            self._admit_state(node, facts)
            return
        if self._device_marks and node.op in _HEAVY:
            wave = self.waves[node.name] = self.ranked(wave | self._device_marks[node.device])
        if trait_of(node.op, "keeps"):
            self.compilation.keeps_feeds = True
        inputs = [self.canonical(e) for e in node.inputs] if self.alias else list(node.inputs)
        derefs = self._derefs(node, facts, inputs)
        if facts.references:
            self._note_update(node, facts, inputs, derefs, wave)
        foldable = self.compilation.fold and facts.foldable and bool(inputs)
        foldable = foldable and not (node.controls and facts.kernel.may_block)
        if foldable and self.compilation.folding.folds(node, facts, inputs):
            return
        if self._replace_copy(node, facts, inputs, derefs):
            return
        if self.compilation.answers_later(facts):
            self._admit_waiting(node, facts, inputs, derefs, wave, guard)
            return
        count = len(facts.op_def.outputs) if facts.flat else output_count(facts.op_def, node)
        unit = Unit(node, inputs, derefs, count, wave, guard=guard)
        if not foldable or node.controls or True in derefs or not self._replace_repeated(unit):
            self.add(unit)

    def _note_update(self, node: Node, facts: OpFacts, inputs: list[Endpoint], derefs: list[bool], wave: Wave) -> None:
        taken = [e for e, deref in zip(inputs, derefs) if e in self.references and not deref]
        self.references.update((node.name, position) for position in facts.reference_outputs)
        for endpoint in taken:
            self.note_update(endpoint, wave)
            for position in facts.reference_outputs:
                self._variables.setdefault((node.name, position), self._variables.get(endpoint, endpoint))

    def note_update(self, reference: Endpoint, wave: Wave) -> None:
        """Notes that a variable changes in a wave, after which its fetched reference is read."""
        variable = self._variables.get(reference, reference)
        self.update_waves[variable] = self.update_waves.get(variable, 0) | wave

    def _replace_copy(self, node: Node, facts: OpFacts, inputs: list[Endpoint], derefs: list[bool]) -> bool:
        """Lets the input of a node that only hands it on stand for it, if it is one; also notes what it reads."""
        inline = facts.handle.inline_expression
        if inline is not None and inline(node) == "{0}":
            if not node.controls:
                # Also for a reference: a user of `v/read` reads the variable when it starts, as in
                # TensorFlow, where the two share a buffer.
                self.alias[node.name, 0] = inputs[0]
                return True
            if derefs[0]:
                self.compilation.reads.add((node.name, 0))
        elif node.op == "ReadVariableOp":
            self.compilation.reads.add((node.name, 0))
        elif "neutral" in facts.handle.traits and self._is_unchanged(node, inputs, derefs):
            self.alias[node.name, 0] = inputs[0]
            return True
        return False

    def _is_unchanged(self, node: Node, inputs: list[Endpoint], derefs: list[bool]) -> bool:
        """Whether a node multiplies by 1 or adds 0, as those of `random_uniform` between 0 and 1 do.

        A variable's value is not meant: such a node's result stays as it is while the variable changes.
        """
        if node.controls or not self.compilation.fold or derefs[0]:
            return False
        constant = self.constants.get(inputs[1])
        if constant is None or np.ndim(constant) or inputs[0] in self.compilation.reads:
            return False
        neutral = _NEUTRAL[trait_of(node.op, "neutral")]
        if constant.dtype.kind not in "iuf" or constant != neutral:
            return False
        source = self.nodes.get(inputs[0][0])
        no_sign = constant.dtype.kind != "f" or source is not None and trait_of(source.op, "not_below_zero")
        return bool(no_sign or np.signbit(constant) == np.signbit(neutral))  # -0.0 + 0.0 is 0.0, but -0.0 - 0.0 is -0.0

    def _replace_repeated(self, unit: Unit) -> bool:
        """Lets a unit that has computed the same of the same values stand for this one, if there is one."""
        node = unit.node
        values = tuple(map(self._identity, unit.inputs))
        alike = self._computed.setdefault((node.op, node.device, unit.wave, unit.guard, values), [])
        first = next((other for other in alike if _same_attrs(other, node)), None)
        if first is None:
            alike.append(node)
            return False
        for index in range(unit.outputs):
            self.alias[node.name, index] = (first.name, index)
        return True

    def _identity(self, endpoint: Endpoint) -> Any:
        """A key that two inputs share if they have the same value: one endpoint, or equal small constants."""
        if endpoint not in self.constants:
            return endpoint
        value = np.asarray(self.constants[endpoint])
        if value.nbytes > _SMALL or value.dtype.kind not in "biufc":
            return endpoint
        return value.dtype.str, value.shape, value.tobytes()

    def _derefs(self, node: Node, facts: OpFacts, inputs: list[Endpoint]) -> list[bool]:
        """Per input, whether it is a variable whose value is wanted."""
        references = self.references
        if not facts.references:
            return [e in references for e in inputs]
        return [e in references and not ref for e, ref in zip(inputs, takes_reference(facts.op_def, node))]

    def _admit_state(self, node: Node, facts: OpFacts) -> None:
        states = self.compilation.states
        name = f"v{len(states)}"
        kernel = facts.kernel
        with named_errors(node):
            bound = bound_arguments(kernel, node)

        def make(resources: Resources) -> Any:
            with named_errors(node):
                return kernel.function(resources, **bound)

        states[name] = make
        self.compilation.state_names[node.name, 0] = name
        if facts.reference_outputs:  # a resource handle is passed on, never read implicitly
            self.references.add((node.name, 0))

    def _admit_waiting(
        self, node: Node, facts: OpFacts, inputs: list[Endpoint], derefs: list[bool], wave: Wave, guard: Condition
    ) -> None:
        key = self.compilation.new_event(node)
        self.add(Unit(node, inputs, derefs, 0, wave, Form.BEGIN, key=key, guard=guard))
        count = output_count(facts.op_def, node)
        self.await_values(key, node.name, [(i, (node.name, i)) for i in range(count)], wave)

    # ---- afterwards -------------------------------------------------------------------------

    def _add_sends(self) -> None:
        """Puts the sending of each group where its last Send node stands in the order.

        That is after everything the Send nodes depend on, control edges included.
        """
        for group, (position, node, wave) in sorted(self._send_nodes.items(), key=lambda item: -item[1][0]):
            values = [e for _, e in sorted(self._sent[group])]
            self.units.insert(position, Unit(node, values, [False] * len(values), 0, wave, Form.SEND, key=group))

    def _drop_unused(self) -> None:
        """Removes pure nodes whose values no node reads and that are only control inputs.

        Such are the gradients of inputs that `tf.gradients(gate_gradients=True)` groups with those
        that are wanted. Waiting for such a node is waiting for its inputs. What was asked for by
        name as a target has no control edges and stays.
        """
        waited_for = {c for node in self.nodes.values() for c in node.controls}
        taken = {e[0] for e in self.kept | self.wanted}
        kept = []
        for unit in reversed(self.units):
            node = unit.node
            if unit.form is Form.COMPUTE and node.name in waited_for and node.name not in taken:
                facts = op_facts(node.op, self.compilation.device_type)
                if facts is not None and facts.foldable and not facts.reference_outputs and node.op not in _CHECKS:
                    continue
            taken.update([e[0] for e in unit.reads()])
            kept.append(unit)
        kept.reverse()
        self.units = kept

    # ---- slots ------------------------------------------------------------------------------

    def slot_for(self, endpoint: Endpoint) -> int:
        """The slot of a value, a new one if it has none."""
        if endpoint not in self.slots:
            self.slots[endpoint] = self.slot_count
            self.slot_count += 1
        return self.slots[endpoint]
