"""Stretches: the nodes of devices that compile, joined to nodes `_Stretch`, each of which one function computes.

A pass over the graph of a task, before everything else. A stretch has nodes of one device, one wave (so that it waits
for no arrival that a part of it does not need), one guard (so that it is alive as a whole) and one loop; and no path
leaves it and comes back. For that each node has a *stage*: that of its sources, and one more where it crosses from a
node outside. Nodes of one device, wave, guard and stage are a stretch.

Copies (``Identity`` without control edges), constants and groups of control edges (``NoOp``) are seen through, as in
`lowering`. ``_ToHost`` stands before each node of the host that takes a value of a device.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tfmini import dtypes
from tfmini.graph.device_types import DeviceType, type_of
from tfmini.graph.families import op
from tfmini.graph.liveness import LOOP_OP, Guard, LoopFrame, NodeGuards, contract
from tfmini.graph.lowering import LOOSE, LoweringRule, lowering_of
from tfmini.graph.node import (
    FEED,
    FETCH,
    MADE_BY_PASSES,
    RECEIVE,
    SEND,
    Endpoint,
    Node,
    Nodes,
    input_dtypes,
    output_dtypes,
)
from tfmini.graph.omission import is_update
from tfmini.graph.op_types import FLOW_OPS, NEXT_OPS, OPS, may_wait, ops_with, trait_of
from tfmini.graph.prune import in_topological_order
from tfmini.library_log import library_logger
from tfmini.placement.task_graph import INNER, TaskGraph
from tfmini.placement.waves import Wave, joined
from tfmini.runtime.compiler.kernels import STRETCH, UPDATES, op_facts
from tfmini.runtime.compiler.whole import WHOLE, Wholes, cond_key, find_wholes, known_inputs

if TYPE_CHECKING:
    from tfmini.runtime.compiler.levels import Program

_CONTROL_ONLY = ops_with("control_only")
_HAND_ON = ops_with("hands_on")
_SHRINK = ops_with("work", "input")
_INTEGERS = frozenset({dtypes.int32, dtypes.int64, dtypes.bool, dtypes.uint8, dtypes.int16, dtypes.int8})
_OPAQUE = frozenset({dtypes.resource, dtypes.variant, dtypes.string})
_numbers = itertools.count(1)

stretch_op = op(
    "_Stretch(states: Ref(N * T), statics: Tstatics, args: Targs) -> results: Tresults; N: int; T: type;"
    " Tstatics: list(type); Targs: list(type); Tresults: list(type)",
    slow_io=True,  # the first call compiles, so it must not run in the thread that polls the sockets
)
to_host_op = op("_ToHost(value: T) -> host: T; T: type")


@stretch_op.kernel_factory("CPU")
def _stretch_kernel(node: Node) -> Callable[..., Any]:
    return type_of(node.device).compile(node.attrs[STRETCH])


@to_host_op.kernel_factory("CPU")
def _to_host_kernel(node: Node) -> Callable[..., Any]:
    return type_of(node.attrs["from"]).to_host


Drive: TypeAlias = "Callable[[TaskGraph], Callable[[], Program]]"


@dataclass
class Stretch:
    """What a function of a device computes.

    Attributes:
      nodes: in order. Their inputs are endpoints of each other, or those below.
      states: the variables that it reads or changes; ``written``: which of them it may change.
      statics: the values from outside on which shapes depend; ``args``: the other ones.
      constants: endpoint -> value.
      results: the endpoints that others need; ``leaving``: the numbers of those that go to the host.
      labels: what people call the statics and args.
      foreign: the numbers of args that another device than this one or the host has.
      streams: node -> its stream of random numbers (`LoweringRule.draw`), which all programs of a session share.
      driven: of a stretch with wholes: makes the program whose loops and conditionals the host drives instead, whose
        feeds are the statics and args.
    """

    name: str
    device: str
    nodes: list[Node]
    states: list[Endpoint] = field(default_factory=list)
    statics: list[Endpoint] = field(default_factory=list)
    args: list[Endpoint] = field(default_factory=list)
    constants: dict[Endpoint, Any] = field(default_factory=dict)
    results: list[Endpoint] = field(default_factory=list)
    leaving: set[int] = field(default_factory=set)
    foreign: set[int] = field(default_factory=set)
    labels: dict[Endpoint, str] = field(default_factory=dict)
    written: frozenset[Endpoint] = frozenset()
    streams: dict[str, Callable[..., Any]] = field(default_factory=dict)
    driven: Callable[[], Callable[[], Program]] | None = None


def with_stretches(graph: TaskGraph, streams: dict[str, Callable[..., Any]], drive: Drive | None) -> TaskGraph:
    """The graph with stretches in place of the nodes of devices that compile.

    Args:
      streams: node -> stream of random numbers, of the session; new ones are added.
      drive: compiles a part of the graph without wholes, and gives a function that returns the program with the task's
        variables; None: make none here.
    """
    kinds = {device: type_of(device) for device in {node.device for node in graph.nodes.values()}}
    refused: dict[str, str] = {}
    while True:
        joining = _Joining(graph, kinds, streams, drive, refused)
        found = joining.join()
        if not found:
            break
        refused.update(found)
    for what, reason in joining.wholes.reasons.items():
        library_logger().info("%s is not compiled as a whole: %s.", what[0].upper() + what[1:], reason)
    return joining.run()


def is_copy(node: Node) -> bool:
    """Whether the compiler lets the input of a node stand for it."""
    handle = None if node.controls or node.op in MADE_BY_PASSES else OPS.get(node.op)
    inline = None if handle is None else handle.inline_expression
    return inline is not None and inline(node) == "{0}"


_WHOLE_RULE = LoweringRule(None)

_Key = tuple[str, Guard, Wave, int, int]
"""Device, guard, wave, level and stage: what the nodes of a stretch have in common."""


class _Joining:
    def __init__(
        self, graph: TaskGraph, kinds: dict[str, DeviceType], streams: dict[str, Callable[..., Any]],
        drive: Drive | None, refused: dict[str, str],
    ) -> None:  # fmt: skip
        self.graph, self.kinds, self.streams, self.drive = graph, kinds, streams, drive
        nodes = {name: self._loosened(node) for name, node in graph.nodes.items()}
        self.wholes = Wholes(nodes)
        if drive is not None:
            self.wholes = find_wholes(nodes, graph.receives, is_copy, refused)
        self.nodes = self.wholes.nodes
        self.lowerings: dict[str, LoweringRule] = {}
        for name, node in self.nodes.items():
            lowering = self._lowering(node)
            if lowering is not None:
                self.lowerings[name] = lowering
        self.key_of: dict[str, _Key] = {}
        self.members: dict[_Key, list[str]] = {}
        self.stretch_of: dict[str, Stretch] = {}
        self._levels = itertools.count()
        self._behind: dict[str, tuple[str, ...]] = {}
        self._traceable: dict[Endpoint, bool] = {}
        self.made: Nodes = {}

    def join(self) -> dict[str, str]:
        """Joins the nodes to stretches. Returns which loops and conditionals must not be wholes, and why: those that do
        not come into one stretch with all that belongs to them.
        """
        outer, loops = contract(self.nodes)
        self._group(outer, loops)
        for names in self.members.values():
            self._begin(names)
        return {**self._torn_arrays(), **self._torn_conds()}

    def _torn_arrays(self) -> dict[str, str]:
        wholes = self.wholes
        places: dict[str, set[str]] = {}
        for name in self.nodes:
            stretch = self.stretch_of.get(name)
            for part in wholes.parts(name):
                if part in wholes.arrays:
                    places.setdefault(wholes.arrays[part], set()).add("" if stretch is None else stretch.name)
        return {
            maker: f"its array '{maker}' is used by several parts of the step, with other work between them"
            for maker, found in places.items() if len(found) > 1 or "" in found
        }  # fmt: skip

    def _torn_conds(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for node in self.nodes.values():
            for endpoint in map(self.canonical, node.inputs):
                if endpoint in self.wholes.half_dead and not is_copy(node):
                    maker, taker = self.stretch_of.get(endpoint[0]), self.stretch_of.get(node.name)
                    if maker is not taker:
                        pred = self.nodes[endpoint[0]].attrs[WHOLE].pred
                        found[cond_key(pred)] = f"'{node.name}' takes a value of one branch in another part of the step"
        return found

    def run(self) -> TaskGraph:
        stretches = list({id(s): s for s in self.stretch_of.values()}.values())
        for stretch in stretches:
            self._collect(stretch)
        others = self._others()
        for node in others:
            self._note_results(node)
        for stretch in stretches:
            if any(WHOLE in node.attrs for node in stretch.nodes):
                stretch.driven = _Driven(self, stretch).program
            self._put_stretch(stretch)
        for node in others:
            self._put_other(node)
        return replace(self.graph, nodes=in_topological_order(self.made))

    def _loosened(self, node: Node) -> Node:
        """A node with the attr `LOOSE`, if its lowering need not know some inputs that it usually needs to."""
        rule = lowering_of(node.op) if self.kinds[node.device].compiles and node.op not in MADE_BY_PASSES else None
        if rule is None or rule.loosen is None:
            return node
        found = rule.loosen(node, self._entries)
        return node if found is None else node.replace(attrs={**node.attrs, LOOSE: found})

    def _entries(self, endpoint: Endpoint) -> list[int | None] | None:
        """The numbers in a vector; None for those, or for all, that the graph does not tell."""
        node = self._source(endpoint)
        if node.op == "Const" and np.ndim(node.attrs["value"]) == 1:
            return list(node.attrs["value"].tolist())
        if node.op == "Pack" and not node.attrs["axis"]:
            parts = [self._source(e) for e in node.inputs]
            return [int(p.attrs["value"]) if p.op == "Const" and not np.ndim(p.attrs["value"]) else None for p in parts]
        return None

    def _source(self, endpoint: Endpoint) -> Node:
        node = self.graph.nodes[endpoint[0]]
        while is_copy(node) or node.op == "Enter" and node.attrs["is_constant"]:
            node = self.graph.nodes[node.inputs[0][0]]
        return node

    # ---- what a node is ---------------------------------------------------------------------

    def _lowering(self, node: Node) -> LoweringRule | None:
        """The lowering of a node that becomes part of a stretch."""
        kind = self.kinds[node.device]
        if WHOLE in node.attrs:
            return _WHOLE_RULE
        if node.name in self.wholes.arrays:
            return lowering_of(node.op)
        if not kind.compiles or node.op in MADE_BY_PASSES or node.op in FLOW_OPS or node.op == "Const":
            return None
        if kind.lacks(node) is not None or is_copy(node):
            return None
        facts = op_facts(node.op, "CPU")
        if facts is None or facts.kernel.makes_state:
            return None
        rule = lowering_of(node.op)
        return None if rule is not None and rule.on_host else rule

    def canonical(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint of which an endpoint is a copy."""
        node = self.nodes.get(endpoint[0])
        while node is not None and is_copy(node):
            endpoint = node.inputs[0]
            node = self.nodes.get(endpoint[0])
        return endpoint

    def behind(self, name: str) -> tuple[str, ...]:
        """What a control edge from a node waits for: seen through groups, constants, and copies of members' values."""
        found = self._behind.get(name)
        if found is None:
            node = self.nodes.get(name)
            if node is None or name in self.lowerings:
                found = (name,)
            elif (node.op == "NoOp" or node.op == "Const") and node.controls:
                found = tuple(dict.fromkeys(n for c in node.controls for n in self.behind(c)))
            elif is_copy(node) and self.canonical((name, 0))[0] in self.lowerings:
                found = (self.canonical((name, 0))[0],)
            else:
                found = (name,)
            self._behind[name] = found
        return found

    # ---- groups -----------------------------------------------------------------------------

    def _group(self, nodes: Nodes, loops: dict[str, LoopFrame]) -> None:
        """Finds the stage of each node of a level, and of the levels inside."""
        _Level(self, nodes, loops, next(self._levels)).group()
        for loop in loops.values():
            self._group(loop.nodes, loop.loops)

    def can_be_known(self, endpoint: Endpoint) -> bool:
        """Whether a value can be known in a trace: from constants, shapes, and integers of the host."""
        endpoint = self.canonical(endpoint)
        found = self._traceable.get(endpoint)
        if found is None:
            self._traceable[endpoint] = False  # a loop's counter
            found = self._traceable[endpoint] = self._find_known(endpoint)
        return found

    def _find_known(self, endpoint: Endpoint) -> bool:
        node = self.nodes.get(endpoint[0])
        if node is None or node.op == "Const" or endpoint in self.wholes.half_dead:  # of these the trace finds out
            return True
        lowering = self.lowerings.get(node.name)
        if lowering is None:
            return output_dtypes(node)[endpoint[1]].base_dtype in _INTEGERS if node.op != LOOP_OP else False
        if lowering.keeps_shape_only:
            return True
        facts = op_facts(node.op, "CPU")
        if facts is None or not facts.foldable or node.op in _SHRINK and not self._is_fixed(node.inputs[0]):
            return False
        return all(self.can_be_known(e) for e in node.inputs)

    def _is_fixed(self, endpoint: Endpoint) -> bool:
        """Whether a value does not depend on numbers from outside, but on shapes only."""
        node = self.nodes.get(self.canonical(endpoint)[0])
        if node is None or node.op == "Const":
            return True
        lowering = self.lowerings.get(node.name)
        if lowering is None:
            return False
        return lowering.keeps_shape_only or all(self._is_fixed(e) for e in node.inputs) and bool(node.inputs)

    # ---- the parts of a stretch -------------------------------------------------------------

    def _begin(self, names: list[str]) -> None:
        nodes = []
        for name in names:
            node = self.nodes[name]
            nodes.append(node.replace(inputs=tuple(self.canonical(e) for e in node.inputs)))
        stretch = Stretch(f"stretch_{next(_numbers)}", nodes[0].device, nodes)
        for node in nodes:
            self.stretch_of[node.name] = stretch
            draw = self.lowerings[node.name].draw
            if draw is not None:
                if node.name not in self.streams:
                    self.streams[node.name] = draw(node)
                stretch.streams[node.name] = self.streams[node.name]

    def _collect(self, stretch: Stretch) -> None:
        """Finds what a stretch takes from outside."""
        statics = self._statics(stretch)
        written: set[Endpoint] = set()
        for node in stretch.nodes:
            writes = trait_of(node.op, "writes")
            for endpoint in node.inputs:
                outside = self._outside(stretch, endpoint)
                if outside is None:
                    continue
                self._take(stretch, outside, statics)
                if writes and outside in stretch.states:
                    written.add(outside)
        stretch.written = frozenset(written)

    def _outside(self, stretch: Stretch, endpoint: Endpoint) -> Endpoint | None:
        """The endpoint outside that an input stands for; None for a value of the stretch itself, or a constant."""
        root = self.root(endpoint)
        if self.stretch_of.get(root[0]) is stretch:
            return None
        node = self.nodes.get(root[0])
        if node is not None and node.op == "Const":
            stretch.constants[root] = node.attrs["value"]
            return None
        return root

    def root(self, endpoint: Endpoint) -> Endpoint:
        """The variable behind a reference that members pass on; else the endpoint without copies."""
        endpoint = self.canonical(endpoint)
        while endpoint[0] in self.lowerings and self.dtype(endpoint)._is_ref_dtype:
            endpoint = self.canonical(self.nodes[endpoint[0]].inputs[0])
        return endpoint

    def dtype(self, endpoint: Endpoint) -> dtypes.DType:
        """The type of an endpoint."""
        return output_dtypes(self.nodes[endpoint[0]])[endpoint[1]]

    def _take(self, stretch: Stretch, outside: Endpoint, statics: set[Endpoint]) -> None:
        dtype = self.dtype(outside)
        kind = stretch.args
        if dtype._is_ref_dtype or dtype is dtypes.resource:
            kind = stretch.states
        elif outside in statics:
            kind = stretch.statics
        if outside in kind:
            return
        kind.append(outside)
        stretch.labels[outside] = self._label(outside[0])
        maker = self.stretch_of.get(outside[0])
        if maker is not None:
            self._give(maker, outside, to_host=kind is stretch.statics)
        if kind is stretch.args and self._is_foreign(outside, stretch.device):
            stretch.foreign.add(len(stretch.args) - 1)

    def _label(self, name: str) -> str:
        """The name of what a node outside has: that of a fed or received tensor is the sender's."""
        receive = self.graph.receives.get(name)
        if receive is not None:
            name = receive.tensor.split("_", 2)[-1]
        return next((tensor[0] for fed, tensor in self.graph.feeds if fed == name), name)

    def _is_foreign(self, endpoint: Endpoint, device: str) -> bool:
        receive = self.graph.receives.get(endpoint[0])
        return receive is not None and receive.group == INNER and type_of(receive.peer.device).compiles

    def _give(self, stretch: Stretch, endpoint: Endpoint, to_host: bool) -> int:
        if endpoint not in stretch.results:
            stretch.results.append(endpoint)
        number = stretch.results.index(endpoint)
        if to_host:
            stretch.leaving.add(number)
        return number

    def _statics(self, stretch: Stretch) -> set[Endpoint]:
        """The values from outside that must be known while the stretch is traced."""
        found: set[Endpoint] = set()
        by_name = {node.name: node for node in stretch.nodes}
        stack = [e for node in stretch.nodes for e in known_inputs(node)]
        seen: set[Endpoint] = set()
        while stack:
            endpoint = self.canonical(stack.pop())
            if endpoint in seen:
                continue
            seen.add(endpoint)
            node = by_name.get(endpoint[0])
            if node is None:
                found.add(endpoint)
            elif not self.lowerings[node.name].keeps_shape_only and endpoint not in self.wholes.half_dead:
                stack.extend(node.inputs)
        return found

    def _others(self) -> list[Node]:
        """The nodes outside of stretches, without copies that only stretches see through."""
        wanted: set[str] = set()
        found: list[Node] = []
        for node in self.nodes.values():
            wanted.update(node.controls)
        for node in reversed(self.nodes.values()):
            if node.name not in self.stretch_of and not (is_copy(node) and node.name not in wanted):
                found.append(node)
                wanted.update(source for source, _ in node.inputs)
        return found[::-1]

    # ---- the new graph ----------------------------------------------------------------------

    def _note_results(self, node: Node) -> None:
        """Notes which results of stretches a node outside takes."""
        leaves = not self._passes_on(node)
        for endpoint in node.inputs:
            root = self.root(endpoint) if endpoint[0] in self.stretch_of else endpoint
            stretch = self.stretch_of.get(root[0])
            if stretch is not None:
                self._give(stretch, root, to_host=leaves or node.op == SEND)

    def _passes_on(self, node: Node) -> bool:
        """Whether a node outside does nothing with its inputs that needs numpy's arrays."""
        if node.op == SEND:
            end = self.graph.sends.get(node.name)
            return end is not None and end.group == INNER
        return node.op in FLOW_OPS or node.op in (FEED, RECEIVE, "Const") or node.op in _HAND_ON or is_copy(node)

    def _put_stretch(self, stretch: Stretch) -> None:
        inputs = [*stretch.states, *stretch.statics, *stretch.args]
        own = {node.name for node in stretch.nodes}
        controls: dict[str, None] = {}
        for node in stretch.nodes:
            sources = [*node.controls, *(s for s, _ in node.inputs if self.nodes[s].op == "Const")]
            refs = [s for s, i in node.inputs if s in self.lowerings and self.dtype((s, i))._is_ref_dtype]
            for name in (*(b for source in sources for b in self.behind(source)), *refs):
                if name not in own and self.nodes[name].op != "Const":
                    controls[self._name(name)] = None
        attrs: dict[str, Any] = {
            "N": len(stretch.states), "T": dtypes.float32, STRETCH: stretch,
            "Tstatics": [self.dtype(e).base_dtype for e in stretch.statics],
            "Targs": [self.dtype(e).base_dtype for e in stretch.args],
            "Tresults": [self.dtype(e).base_dtype for e in stretch.results],
            UPDATES: tuple(node.name for node in stretch.nodes if is_update(node)),
        }  # fmt: skip
        controls.pop(stretch.name, None)
        self._add(Node(stretch.name, "_Stretch", stretch.device, [self._mapped(e) for e in inputs], controls, attrs))

    def _put_other(self, node: Node) -> None:
        """Puts a node of the host, with the new names of its sources."""
        controls: dict[str, None] = {}
        for control in node.controls:
            controls[self._name(control)] = None
        inputs: list[Endpoint] = []
        for endpoint in node.inputs:
            if endpoint[0] in self.stretch_of:
                root = self.root(endpoint)
                if root != endpoint:  # a reference that an update passes on: the variable, after the update
                    controls[self._name(endpoint[0])] = None
                endpoint = root
            inputs.append(self._mapped(endpoint))
        if not self._passes_on(node) and inputs:
            inputs = self._from_device(node, inputs, controls)
        self._add(node.replace(inputs=tuple(inputs), controls=tuple(controls)))

    def _from_device(self, node: Node, inputs: list[Endpoint], controls: Iterable[str]) -> list[Endpoint]:
        """The inputs of a node of the host, through `_ToHost` where they may come from a device that compiles."""
        taken = takes_itself(node)
        found = []
        for i, (endpoint, original) in enumerate(zip(inputs, node.inputs)):
            source = self._source_device(original)
            if source is None or taken[i] or self.dtype(original).base_dtype in _OPAQUE:
                found.append(endpoint)
                continue
            name = f"{node.name}/to_host_{i}"
            while name in self.nodes or name in self.made:
                name += "_"
            attrs = {"T": self.dtype(original).base_dtype, "from": source}
            # A variable is read when the node would have read it.
            is_value = endpoint[0].startswith("stretch_") and endpoint[0] not in self.nodes
            self._add(Node(name, "_ToHost", node.device, [endpoint], () if is_value else tuple(controls), attrs))
            found.append((name, 0))
        return found

    def _source_device(self, endpoint: Endpoint) -> str | None:
        """The device that compiles whose value an endpoint may be; None if it is the host's."""
        receive = self.graph.receives.get(endpoint[0])
        device = self.nodes[endpoint[0]].device
        if receive is not None and receive.group == INNER:
            device = receive.peer.device
        return device if type_of(device).compiles else None

    def _mapped(self, endpoint: Endpoint) -> Endpoint:
        stretch = self.stretch_of.get(endpoint[0])
        return endpoint if stretch is None else (stretch.name, stretch.results.index(endpoint))

    def _name(self, name: str) -> str:
        stretch = self.stretch_of.get(name)
        return name if stretch is None else stretch.name

    def _add(self, node: Node) -> None:
        self.made[node.name] = node


def takes_itself(node: Node) -> list[bool]:
    """Per input, whether a node takes the variable, TensorArray or stack itself."""
    if node.handle is None:
        return [False] * len(node.inputs)
    return [dtype._is_ref_dtype or dtype is dtypes.resource for dtype in input_dtypes(node)]


class _Driven:
    """The program of a stretch in which the executor drives the loops and conditionals."""

    def __init__(self, joining: _Joining, stretch: Stretch) -> None:
        self.joining, self.stretch = joining, stretch
        self.original = joining.graph.nodes
        names = [part for node in stretch.nodes for part in joining.wholes.parts(node.name)]
        self.names = dict.fromkeys(names)
        self.feeds = {e: f"{stretch.name}/feed_{i}" for i, e in enumerate((*stretch.statics, *stretch.args))}
        self.nodes: Nodes = {}

    def program(self) -> Callable[[], Program]:
        """Compiles it. Returns what gives it with the task's variables."""
        stretch, joining = self.stretch, self.joining
        for endpoint, name in self.feeds.items():
            self.nodes[name] = Node(name, FEED, stretch.device, attrs={"T": joining.dtype(endpoint).base_dtype})
        for source, _ in stretch.states:
            self.nodes[source] = self.original[source].replace(controls=())
        for name in self.names:
            node = self.original[name]
            controls = [c for c in node.controls if c in self.names]
            self.nodes[name] = node.replace(inputs=tuple(map(self._source, node.inputs)), controls=tuple(controls))
        fetches = []
        for i, endpoint in enumerate(stretch.results):
            name, origin = f"{stretch.name}/fetch_{i}", joining.wholes.origin.get(endpoint, endpoint)
            self.nodes[name] = Node(name, FETCH, stretch.device, [origin], attrs={"T": joining.dtype(endpoint)})
            fetches.append((name, origin))
        feeds = tuple((name, endpoint) for endpoint, name in self.feeds.items())
        assert joining.drive is not None
        return joining.drive(TaskGraph(in_topological_order(self.nodes), feeds=feeds, fetches=tuple(fetches)))

    def _source(self, endpoint: Endpoint) -> Endpoint:
        """An input of a node in the program: of a node in it, a feed, a constant or a variable."""
        while endpoint[0] not in self.names and is_copy(self.original[endpoint[0]]):
            endpoint = self.original[endpoint[0]].inputs[0]
        if endpoint[0] in self.names:
            return endpoint
        outside = self.joining.root(self.joining.wholes.renamed(endpoint))
        if outside in self.feeds:
            return self.feeds[outside], 0
        if outside not in self.stretch.states:
            self.nodes[outside[0]] = self.original[outside[0]].replace(controls=())
        return outside


class _Level:
    """The nodes outside all loops, or inside one: their waves, guards and stages."""

    def __init__(self, joining: _Joining, nodes: Nodes, loops: dict[str, LoopFrame], number: int) -> None:
        self.joining, self.nodes, self.loops, self.number = joining, nodes, loops, number
        self.guards = NodeGuards(joining.canonical)
        self.waves: dict[str, Wave] = {}
        self.stages: dict[str, int] = {}
        self.keys: dict[str, tuple[str, Guard, Wave]] = {}
        self._bits: dict[object, Wave] = {}
        self._nexts = {name for name, node in nodes.items() if node.op in NEXT_OPS}

    def group(self) -> None:
        joining = self.joining
        for name, node in self.nodes.items():
            guard = self._guard(node)
            wave = self.waves[name] = self._wave(node)
            if name not in joining.lowerings:
                self.stages[name] = max((self.stages.get(s, -1) for s in _sources(node)), default=-1)
                continue
            key = self.keys[name] = (node.device, guard, wave)
            stage = self.stages[name] = self._stage(node, key)
            joining.members.setdefault((*key, self.number, stage), []).append(name)

    def _guard(self, node: Node) -> Guard:
        if any(source in self._nexts for source, _ in node.inputs):
            return self.guards.of_node(node.name)  # a loop variable always has a value
        return self.guards.admit(node)

    def _wave(self, node: Node) -> Wave:
        wave = joined(node, self.waves)
        receive = self.joining.graph.receives.get(node.name)
        if receive is not None:
            return wave if receive.group == INNER else wave | self._bit(receive.group)
        if node.op == LOOP_OP:
            return wave | self._bit(node.name) if self._loop_waits(self.loops[node.name]) else wave
        if node.op not in MADE_BY_PASSES and may_wait(node.op):
            return wave | self._bit(node.name)
        return wave

    def _loop_waits(self, loop: LoopFrame) -> bool:
        receives = self.joining.graph.receives
        return any(
            receives[node.name].group != INNER if node.name in receives
            else node.op not in MADE_BY_PASSES and node.op != LOOP_OP and may_wait(node.op)
            for node in loop.all_nodes()
        )  # fmt: skip

    def _bit(self, key: object) -> Wave:
        return self._bits.setdefault(key, 1 << len(self._bits))

    def _stage(self, node: Node, key: tuple[str, Guard, Wave]) -> int:
        joining = self.joining
        sources = [joining.canonical(e)[0] for e in node.inputs]
        sources += node.controls
        sources = [b for source in sources for b in joining.behind(source)]
        stage = 0
        for source in sources:
            there = self.stages.get(source)
            if there is not None and self.nodes[source].op != "Const":
                stage = max(stage, there if self.keys.get(source) == key else there + 1)
        for endpoint in known_inputs(node):
            source, index = joining.canonical(endpoint)
            if source in joining.lowerings and source in self.stages and not joining.can_be_known((source, index)):
                stage = max(stage, self.stages[source] + 1)
        return stage


def _sources(node: Node) -> list[str]:
    return [*(source for source, _ in node.inputs), *node.controls]
