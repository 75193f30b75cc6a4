"""Wholes: loops and conditionals of one device as nodes that `stretches` treats as any other, `_While` and `_Cond`.

A frame of the graph becomes a `_While`, and the nodes that one predicate guards, with the Merges behind them, become a
`_Cond`, if a device that compiles has a lowering of everything in it and nothing in it has an effect. What is inside
becomes one first. So a loop with conditionals in its body is one node, which the backend compiles as one loop.

The TensorArrays and stacks of such loops are values of the trace: all that touches one must come into one stretch,
or else the loop stays as it is. Whether a loop can be compiled is only sure when the shapes are known (`NotWhole`), so
a stretch with wholes keeps what it was made of (`Wholes.made_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfmini import dtypes
from tfmini.errors import InternalError
from tfmini.graph.device_types import type_of
from tfmini.graph.families import op
from tfmini.graph.liveness import LOOP_OP, Guard, LoopFrame, NodeGuards, contract
from tfmini.graph.lowering import LOOSE, LoweringRule, lowering_of
from tfmini.graph.node import MADE_BY_PASSES, Endpoint, Node, Nodes, output_dtypes
from tfmini.graph.op_types import (
    ENTER_OPS,
    EXIT_OPS,
    FLOW_OPS,
    MERGE_OPS,
    NEXT_OPS,
    SWITCH_OPS,
    may_wait,
    ops_with,
    trait_of,
)  # fmt: skip
from tfmini.graph.prune import in_topological_order
from tfmini.placement.task_graph import INNER, End
from tfmini.placement.waves import Wave, joined
from tfmini.runtime.compiler.kernels import list_lengths, op_facts

while_op = op("_While(args: Targs) -> results: Tresults; Targs: list(type); Tresults: list(type)", stateful=True)
cond_op = op(
    "_Cond(pred: bool, args: Targs) -> results: Tresults; Targs: list(type); Tresults: list(type)", stateful=True
)
WHOLE = "whole"
"""The attr of such a node with its `WholeLoop` or `WholeCond`."""
_CONTROL_ONLY = ops_with("control_only")


@while_op.kernel("CPU")
def _while(args: list[Any], *, node: Node) -> Any:
    raise InternalError.of(f"{node.name} is a part of a stretch")


@cond_op.kernel("CPU")
def _cond(pred: Any, args: list[Any], *, node: Node) -> Any:
    raise InternalError.of(f"{node.name} is a part of a stretch")


class NotWhole(Exception):
    """The reason why a loop or conditional is not compiled as a whole."""


@dataclass
class WholeLoop:
    """A loop as one node.

    Attributes:
      enters: the values that it takes, in the order of the node's inputs; ``exits``: likewise for its results.
      variables: Merge of a loop variable -> (its Enter, its NextIteration).
      condition: the endpoint that decides whether it goes on.
      head: what runs before the decision, in order; ``body``: what runs if it goes on.
      known: the numbers of the inputs whose values must be known when it is traced.
    """

    name: str
    enters: list[Node]
    exits: list[Node]
    variables: dict[str, tuple[str, str]]
    condition: Endpoint
    head: list[Node]
    body: list[Node]
    nexts: dict[str, Node]
    known: list[int]


@dataclass
class WholeCond:
    """The nodes that one predicate guards, as one node.

    Attributes:
      pred: the endpoint that it was found by.
      takes: the endpoints outside that the node's inputs, after the predicate, are.
      branches: the nodes that run if the predicate is false, and if it is true.
      results: per result, its source in the two branches; None where it has no value there.
      known: as in `WholeLoop`.
    """

    name: str
    pred: Endpoint
    takes: list[Endpoint]
    branches: tuple[list[Node], list[Node]]
    results: list[tuple[Endpoint | None, Endpoint | None]]
    known: list[int]


_Group = tuple[Endpoint, Guard]
"""A predicate, and the guard that the nodes which it guards have in common besides."""


@dataclass
class Wholes:
    """A graph with its wholes.

    Attributes:
      nodes: in topological order.
      made_of: whole -> the names of the nodes of the graph before that it stands for.
      origin: result of a whole -> the endpoint that it was.
      becomes: the inverse.
      half_dead: the results of wholes that have a value in one branch only.
      arrays: node that uses a TensorArray or stack -> the one that makes it, of those which the trace has.
      reasons: what has not become one -> why.
    """

    nodes: Nodes
    made_of: dict[str, list[str]] = field(default_factory=dict)
    origin: dict[Endpoint, Endpoint] = field(default_factory=dict)
    becomes: dict[Endpoint, Endpoint] = field(default_factory=dict)
    half_dead: set[Endpoint] = field(default_factory=set)
    arrays: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def parts(self, name: str) -> list[str]:
        """The nodes of the graph before that a node stands for, or is."""
        return self.made_of.get(name, [name])

    def renamed(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint that an endpoint of the graph before has become."""
        return self.becomes.get(endpoint, endpoint)


def find_wholes(
    nodes: Nodes, receives: Mapping[str, End], is_copy: Callable[[Node], bool], refused: Mapping[str, str]
) -> Wholes:
    """Makes a whole of each loop and conditional that can be one.

    Args:
      nodes, receives: of one task, as in `TaskGraph`.
      is_copy: whether a node only passes its input on.
      refused: names of loops, conditionals and makers of arrays that must not be in one -> why.
    """
    if not any(node.op in FLOW_OPS and type_of(node.device).compiles for node in nodes.values()):
        return Wholes(nodes)
    return _Search(nodes, receives, is_copy, refused).run()


class _Search:
    def __init__(
        self, nodes: Nodes, receives: Mapping[str, End], is_copy: Callable[[Node], bool], refused: Mapping[str, str]
    ) -> None:
        self.original, self.receives, self.is_copy, self.refused = nodes, receives, is_copy, refused
        self.arrays = _arrays(nodes)
        self.alias: dict[Endpoint, Endpoint] = {}
        self.gone: dict[str, str] = {}
        self.made: dict[str, Node] = {}
        self.found = Wholes(nodes)
        self.exits: dict[Endpoint, Endpoint] = {}
        self.tried: set[_Group] = set()

    def run(self) -> Wholes:
        outer, loops = contract(self.original)
        self.exits = _exits_of(loops.values())
        for loop in list(loops.values()):
            self._try_loop(outer, loop)
        self._try_conds(outer)
        if not self.made:
            return self.found
        stays = {e: exit_ for e, exit_ in self.exits.items() if e[0] not in self.made}
        nodes = (*self.original.values(), *self.made.values())
        done = {node.name: self.renamed(node, stays) for node in nodes if node.name not in self.gone}
        found = self.found
        found.nodes = in_topological_order(done)
        found.made_of = {name: parts for name, parts in found.made_of.items() if name not in self.gone}
        found.becomes = {origin: result for result, origin in found.origin.items() if result[0] not in self.gone}
        wanted = {self.arrays[part] for parts in found.made_of.values() for part in parts if part in self.arrays}
        found.arrays = {name: maker for name, maker in self.arrays.items() if maker in wanted}
        return found

    def renamed(self, node: Node, stays: Mapping[Endpoint, Endpoint]) -> Node:
        """A node with the new names of its sources.

        Args:
          stays: results of nodes of loops -> the Exits of those that are no wholes.
        """
        inputs = []
        for endpoint in node.inputs:
            while endpoint in self.alias:
                endpoint = self.alias[endpoint]
            inputs.append(stays.get(endpoint, endpoint))
        controls: dict[str, None] = {}
        for control in node.controls:
            while control in self.gone:
                control = self.gone[control]
            controls[stays.get((control, 0), (control, 0))[0]] = None
        controls.pop(node.name, None)
        return node.replace(inputs=tuple(inputs), controls=tuple(controls))

    # ---- what may be inside -----------------------------------------------------------------

    def _check(self, node: Node) -> str:
        """The device of a node that may be in a whole; "" if any may have it.

        Raises:
          NotWhole: with the reason.
        """
        what = f"'{node.name}' ({node.op})"
        if node.name in self.made:
            return node.device
        if node.op in MADE_BY_PASSES or node.op == LOOP_OP:
            raise NotWhole(f"{what} is no part that can be compiled")
        if any(dtype._is_ref_dtype for dtype in output_dtypes(node)):
            raise NotWhole(f"{what} passes a variable on")
        if node.op in FLOW_OPS or node.op in _CONTROL_ONLY or self.is_copy(node):
            return ""
        if node.op == "Const" or node.op == "LoopCond":
            return ""
        kind = type_of(node.device)
        if not kind.compiles:
            raise NotWhole(f"{what} runs on {node.device}")
        if use_of_array(node):
            maker = self.arrays.get(node.name)
            if maker is None or maker in self.refused:
                raise NotWhole(self.refused.get(maker or "", f"{what} has an array from outside"))
            return node.device
        rule = lowering_of(node.op)
        if rule is None or rule.on_host or kind.lacks(node) is not None:
            raise NotWhole(f"{what} has no lowering")
        if rule.draw is not None or trait_of(node.op, "writes"):
            raise NotWhole(f"{what} " + ("changes a variable" if rule.draw is None else "draws random numbers"))
        return node.device

    def device(self, nodes: Iterable[Node], beside: str) -> str:
        devices = {self._check(node) for node in nodes} - {""} or {beside}
        if len(devices) > 1:
            raise NotWhole(f"it is on several devices: {', '.join(sorted(devices))}")
        device = devices.pop()
        if not type_of(device).compiles:
            raise NotWhole(f"it is on {device}")
        return device

    def note(
        self, name: str, device: str, inputs: Iterable[Endpoint], controls: Iterable[str], whole: WholeLoop | WholeCond,
        types: list[Any], parts: Iterable[Node],
    ) -> Node:  # fmt: skip
        """Puts a whole in the place of its parts."""
        inputs = tuple(inputs)
        pred = isinstance(whole, WholeCond)
        attrs = {"Targs": [self._dtype(e) for e in inputs[pred:]], "Tresults": types, WHOLE: whole}
        node = Node(name, "_Cond" if pred else "_While", device, inputs, controls, attrs)
        self.made[name] = node
        flat: list[str] = []
        for part in parts:
            self.gone[part.name] = name
            flat += self.found.made_of.get(part.name, [part.name])
        self.found.made_of[name] = flat
        return node

    def _dtype(self, endpoint: Endpoint) -> Any:
        if endpoint[0] not in self.made:
            endpoint = self.exits.get(endpoint, endpoint)
        node = self.made.get(endpoint[0]) or self.original[endpoint[0]]
        return output_dtypes(node)[endpoint[1]].base_dtype

    # ---- loops ------------------------------------------------------------------------------

    def _try_loop(self, around: Nodes, loop: LoopFrame) -> None:
        """Makes wholes of what is in a loop, and then of the loop, in the nodes of the level around it."""
        for inner in list(loop.loops.values()):
            self._try_loop(loop.nodes, inner)
        self._try_conds(loop.nodes)
        name = loop.name.removesuffix(f"/{LOOP_OP}")
        if not any(type_of(node.device).compiles for node in loop.nodes.values()):
            return
        try:
            if name in self.refused:
                raise NotWhole(self.refused[name])
            around[loop.name] = self._loop(around[loop.name], loop)
        except NotWhole as reason:
            self.found.reasons[f"the loop '{name}'"] = str(reason)

    def _loop(self, node: Node, loop: LoopFrame) -> Node:
        nodes = loop.nodes
        device = self.device(nodes.values(), node.device)
        guards, condition = self._loop_guards(nodes)
        goes_on = frozenset({(condition, True)})
        nexts = {n.name: n for n in nodes.values() if n.op in NEXT_OPS}
        variables: dict[str, tuple[str, str]] = {}
        head: list[Node] = []
        body: list[Node] = []
        for each in nodes.values():
            if each.op in MERGE_OPS:
                variables[each.name] = _variable(each, nodes)
            elif each.op in ENTER_OPS or each.op in NEXT_OPS or each.op in EXIT_OPS:
                continue
            elif guards.of_node(each.name) == goes_on:
                body.append(each)
            elif guards.of_node(each.name):
                raise NotWhole(f"'{each.name}' is in a conditional that cannot be compiled")
            else:
                head.append(each)
        self._check_loop(nodes, variables, head, guards, goes_on)
        whole = WholeLoop(loop.name, loop.enters, loop.exits, variables, condition, head, body, nexts, [])
        whole.known = self._known_enters(whole, nodes)
        types = [output_dtypes(n)[0].base_dtype for n in loop.exits]
        made = self.note(loop.name, device, node.inputs, node.controls, whole, types, nodes.values())
        for i, exit_node in enumerate(loop.exits):
            self.alias[exit_node.name, 0] = (loop.name, i)
            self.found.origin[loop.name, i] = (exit_node.name, 0)
        return made

    def _loop_guards(self, nodes: Nodes) -> tuple[NodeGuards, Endpoint]:
        conditions = [name for name, node in nodes.items() if node.op == "LoopCond"]
        if len(conditions) != 1:
            raise NotWhole(f"it has {len(conditions)} conditions")
        return self.guards(nodes), (conditions[0], 0)

    def guards(self, nodes: Nodes) -> NodeGuards:
        guards = NodeGuards(lambda endpoint: self.canonical(nodes, endpoint))
        nexts = {name for name, node in nodes.items() if node.op in NEXT_OPS}
        for node in nodes.values():
            if not any(source in nexts for source, _ in node.inputs):
                guards.admit(node)
        return guards

    def waves(self, nodes: Nodes) -> dict[str, Wave]:
        """What each node of a level waits for."""
        found: dict[str, Wave] = {}
        bits: dict[object, Wave] = {}
        for name, node in nodes.items():
            receive = self.receives.get(name)
            key: object = None
            if receive is not None:
                key = receive.group if receive.group != INNER else None
            elif node.op == LOOP_OP or node.op not in MADE_BY_PASSES and may_wait(node.op):
                key = name
            found[name] = joined(node, found) | (0 if key is None else bits.setdefault(key, 1 << len(bits)))
        return found

    def canonical(self, nodes: Nodes, endpoint: Endpoint) -> Endpoint:
        node = nodes.get(endpoint[0])
        while node is not None and node.op not in ENTER_OPS and self.is_copy(node):
            endpoint = node.inputs[0]
            node = nodes.get(endpoint[0])
        return endpoint

    def _check_loop(self, nodes: Nodes, variables: Mapping[str, Any], head: list[Node], guards: NodeGuards,
                    goes_on: Any) -> None:  # fmt: skip
        """Refuses what `tf.while_loop` does not make."""
        merged = {enter for enter, _ in variables.values()}
        for node in nodes.values():
            if node.op in ENTER_OPS and not node.attrs.get("is_constant") and node.name not in merged:
                raise NotWhole(f"'{node.name}' enters it for the first iteration only")
            if node.op in NEXT_OPS and guards.of_node(node.name) != goes_on:
                raise NotWhole(f"'{node.name}' does not go on with the others")
            if node.op in EXIT_OPS:
                switch = nodes.get(node.inputs[0][0])
                if switch is None or switch.op not in SWITCH_OPS or node.inputs[0][1] != 0:
                    raise NotWhole(f"'{node.name}' leaves it in another way than a loop variable")
                if switch.inputs[0][0] not in variables:
                    raise NotWhole(f"'{node.name}' is not the last value of a loop variable")
        for node in head:
            if use_of_array(node) == "changes":
                raise NotWhole(f"'{node.name}' ({node.op}) runs once more than the body")

    def _known_enters(self, whole: WholeLoop, nodes: Nodes) -> list[int]:
        """The inputs on which shapes inside depend."""
        numbers = {enter.name: i for i, enter in enumerate(whole.enters)}
        found: set[int] = set()
        for endpoint in self.wanted_inside((*whole.head, *whole.body), nodes):
            node = nodes[endpoint[0]]
            if node.op in ENTER_OPS and node.attrs.get("is_constant"):
                found.add(numbers[node.name])
            elif node.op != "Const":
                raise NotWhole(f"a shape depends on '{endpoint[0]}', which changes from iteration to iteration")
        return sorted(found)

    def wanted_inside(self, inside: Iterable[Node], nodes: Nodes) -> Iterator[Endpoint]:
        """The endpoints from which the inputs come that must be known: they are outside, or cannot be known."""
        members = {node.name: node for node in inside}
        stack = [e for node in members.values() for e in known_inputs(node)]
        seen: set[Endpoint] = set()
        while stack:
            endpoint = stack.pop()
            if endpoint in seen:
                continue
            seen.add(endpoint)
            node = members.get(endpoint[0])
            if node is None or node.op == "Const":
                if node is None:
                    yield endpoint
                continue
            if node.op in SWITCH_OPS:
                stack.append(node.inputs[0])
                continue
            rule, facts = lowering_of(node.op), op_facts(node.op, "CPU")
            if rule is not None and rule.keeps_shape_only or node.op == "StackPopV2":
                continue  # a gradient's loop pops shapes; the trace finds out
            if rule is None or facts is None or not facts.foldable:
                yield endpoint
            else:
                stack.extend(node.inputs)

    # ---- conditionals -----------------------------------------------------------------------

    def _try_conds(self, level: Nodes) -> None:
        """Makes wholes of the conditionals of one level, in its nodes; the innermost ones first."""
        while any(self._try_cond(level, group, names) for group, names in self._groups(level).items()):
            pass

    def _try_cond(self, level: Nodes, group: _Group, names: list[str]) -> bool:
        """Makes a whole of a conditional. Returns whether it can be one."""
        if group in self.tried:
            return False
        pred, common = group
        key, what = cond_key(pred), f"the conditional on '{pred[0]}'"
        try:
            if key in self.refused:
                raise NotWhole(self.refused[key])
            _CondSearch(self, level, pred, common, names).run()
        except NotWhole as reason:
            self.tried.add(group)
            self.found.reasons[what] = str(reason)
            return False
        self.found.reasons.pop(what, None)  # of the same nodes, seen as if another conditional were around this one
        return True

    def _groups(self, level: Nodes) -> dict[_Group, list[str]]:
        """The nodes that a predicate guards, of those that guard no other conditional."""
        guards = self.guards(level)
        found: dict[_Group, list[str]] = {}
        for name in level:
            guard = guards.of_node(name)
            for endpoint, way in guard:
                if way is not None and endpoint[0] in level and level[endpoint[0]].op != "LoopCond":
                    found.setdefault((endpoint, guard - {(endpoint, way)}), []).append(name)
        around = {(endpoint, common - {(endpoint, way)}) for _, common in found for endpoint, way in common}
        return {group: names for group, names in found.items() if group not in around}


class _CondSearch:
    """One conditional of a level: a `_Cond` per part without a path that leaves it and comes back."""

    def __init__(self, search: _Search, level: Nodes, pred: Endpoint, common: Any, names: list[str]) -> None:
        self.search, self.level, self.pred, self.common = search, level, pred, common
        self.guards = search.guards(level)
        self.members = {name: (pred, True) in self.guards.of_node(name) for name in names}
        self.switches = {
            name: node.inputs[0] for name, node in level.items()
            if node.op in SWITCH_OPS and search.canonical(level, node.inputs[1]) == pred and name not in self.members
            and self.guards.of_node(name) == common
        }  # fmt: skip
        self.joins = {name: ways for name, node in level.items() if (ways := self._ways(node)) is not None}

    def _ways(self, node: Node) -> tuple[Endpoint, Endpoint] | None:
        """The inputs of a Merge behind the conditional: if the predicate is false, and if it is true."""
        if node.op not in MERGE_OPS or len(node.inputs) != 2:
            return None
        ways = [self.guards.of(e) - self.common for e in node.inputs]
        for (one, other), first in ((node.inputs, 0), (node.inputs[::-1], 1)):
            if ways[first] == {(self.pred, False)} and ways[1 - first] == {(self.pred, True)}:
                return one, other
        return None

    def run(self) -> None:
        search, level = self.search, self.level
        nodes = [level[name] for name in (*self.members, *self.joins)]
        device = search.device(nodes, next(iter(nodes)).device)
        self._check_takers()
        parts: dict[tuple[int, Wave], list[str]] = {}
        for name, key in self._places().items():
            parts.setdefault(key, []).append(name)
        makers = {name: key for key, names in parts.items() for name in names}
        plans = [self._plan(number, names, makers) for number, names in enumerate(parts.values())]
        made = [self._make(device, names, *plan) for names, plan in zip(parts.values(), plans)]
        for name in (*self.members, *self.joins, *self.switches):
            del level[name]
        for name in self.switches:
            search.gone[name] = made[0].name
            search.found.made_of[made[0].name].append(name)
        for node in made:
            level[node.name] = node
        for name, node in list(level.items()):
            level[name] = search.renamed(node, {})
        ordered = in_topological_order(level)
        level.clear()
        level.update(ordered)

    def _check_takers(self) -> None:
        inside = {*self.members, *self.joins}
        for node in self.level.values():
            if node.name in inside:
                continue
            for source, _ in node.inputs:
                if source in self.members or source in self.switches:
                    raise NotWhole(f"'{node.name}' ({node.op}) takes a value of one branch, '{source}'")
            if node.op != "ControlTrigger":
                for source in node.controls:
                    if source in self.members:
                        raise NotWhole(f"'{node.name}' ({node.op}) waits for '{source}', which is in one branch")
        for name in self.joins:
            if self.level[name].op != "Merge":
                raise NotWhole(f"'{name}' passes a variable on")

    def _places(self) -> dict[str, tuple[int, Wave]]:
        """Per member and join, its part: how often a path to it leaves the conditional, and what it waits for."""
        depth: dict[str, int] = {}
        waves = self.search.waves(self.level)
        found: dict[str, tuple[int, Wave]] = {}
        for name, node in self.level.items():
            own = name in self.members or name in self.joins
            here = 0
            for source in (*(s for s, _ in node.inputs), *node.controls):
                if source in self.members:
                    here = max(here, depth[source] + (0 if own else 1))
                elif source in self.joins:
                    here = max(here, depth[source] + 1)
                else:
                    here = max(here, depth.get(source, 0))
            depth[name] = here
            if own:
                found[name] = here, waves[name]
        return found

    def _plan(
        self, number: int, names: list[str], makers: Mapping[str, Any]
    ) -> tuple[WholeCond, dict[str, None], list[Endpoint]]:
        """What a part becomes, what it waits for, and the endpoints that its results were."""
        level, own = self.level, set(names)
        takes: dict[Endpoint, None] = {}
        branches: tuple[list[Node], list[Node]] = ([], [])
        controls: dict[str, None] = {}
        for member in names:
            node = level[member]
            inputs = [self._data(e) for e in node.inputs]
            takes.update({e: None for e in inputs if e[0] not in own})
            controls.update({c: None for c in node.controls if c not in own and c not in self.switches})
            if member in self.members:
                branches[self.members[member]].append(node.replace(inputs=tuple(inputs)))
        ends = self._results(names, makers)
        known = self._known((*branches[0], *branches[1]), list(takes))
        results = [self._sources(endpoint) for endpoint in ends]
        return WholeCond(f"{names[0]}/_Cond{number}", self.pred, list(takes), branches, results, known), controls, ends

    def _sources(self, endpoint: Endpoint) -> tuple[Endpoint | None, Endpoint | None]:
        """Where a result comes from in the two branches."""
        ways = self.joins.get(endpoint[0])
        if ways is None:
            return (None, endpoint) if self.members[endpoint[0]] else (endpoint, None)
        if endpoint[1]:
            raise NotWhole(f"the number of the branch that '{endpoint[0]}' took is used")
        return self._data(ways[0]), self._data(ways[1])

    def _make(
        self, device: str, names: list[str], whole: WholeCond, controls: dict[str, None], ends: list[Endpoint]
    ) -> Node:
        search = self.search
        for i, endpoint in enumerate(ends):
            search.alias[endpoint] = (whole.name, i)
            search.found.origin[whole.name, i] = endpoint
            if endpoint[0] in self.members:
                search.found.half_dead.add((whole.name, i))
        types = [output_dtypes(self.level[source])[index].base_dtype for source, index in ends]
        parts = [self.level[member] for member in names]
        return search.note(whole.name, device, [self.pred, *whole.takes], controls, whole, types, parts)

    def _known(self, inside: Iterable[Node], takes: list[Endpoint]) -> list[int]:
        found = []
        for endpoint in self.search.wanted_inside(inside, self.level):
            if endpoint not in takes:
                raise NotWhole(f"a shape depends on '{endpoint[0]}'")
            found.append(takes.index(endpoint) + 1)
        return sorted(found)

    def _data(self, endpoint: Endpoint) -> Endpoint:
        """What a Switch of the conditional passes on, in place of its value."""
        while endpoint[0] in self.switches:
            endpoint = self.switches[endpoint[0]]
        return endpoint

    def _results(self, names: list[str], makers: Mapping[str, Any]) -> list[Endpoint]:
        """The endpoints that others take."""
        own, key = set(names), makers[names[0]]
        found: dict[Endpoint, None] = {}
        for node in self.level.values():
            for endpoint in map(self._data, node.inputs):
                if endpoint[0] in own and (endpoint[0] in self.joins or makers.get(node.name) != key):
                    found[endpoint] = None
        return list(found)


# ---- parts ---------------------------------------------------------------------------------------------------------


def known_inputs(node: Node) -> list[Endpoint]:
    """The inputs of a node whose values must be known when it is traced."""
    whole = node.attrs.get(WHOLE)
    if whole is not None:
        return [node.inputs[i] for i in whole.known]
    rule = lowering_of(node.op)
    return [] if rule is None else [node.inputs[i] for i in host_positions(node, rule)]


def use_of_array(node: Node) -> str:
    """What a node does with a TensorArray or stack (`LoweringRule.array`); "" if it has none."""
    rule = lowering_of(node.op)
    return "" if rule is None else rule.array


def cond_key(pred: Endpoint) -> str:
    """The name of the conditional on a predicate among what is refused."""
    return f"cond {pred[0]}:{pred[1]}"


def host_positions(node: Node, lowering: LoweringRule) -> list[int]:
    """The flat positions of the inputs whose values a lowering must know."""
    host = lowering.host if LOOSE not in node.attrs else lowering.host - lowering.loose
    if not host:
        return []
    handle = node.handle
    assert handle is not None
    found: list[int] = []
    position = 0
    for arg, count in zip(handle.op_def.inputs, list_lengths(handle.op_def, node)):
        width = 1 if count is None else count
        if arg.name in host:
            found += range(position, position + width)
        position += width
    return found


def _variable(merge: Node, nodes: Nodes) -> tuple[str, str]:
    """The Enter and the NextIteration of a loop variable."""
    first = [s for s, _ in merge.inputs if s in nodes and nodes[s].op in ENTER_OPS]
    later = [s for s, _ in merge.inputs if s in nodes and nodes[s].op in NEXT_OPS]
    if len(first) != 1 or len(later) != 1:
        raise NotWhole(f"'{merge.name}' is no loop variable")
    return first[0], later[0]


def _exits_of(loops: Iterable[LoopFrame]) -> dict[Endpoint, Endpoint]:
    """Output of a loop's node, as `contract` makes it -> the Exit that it was."""
    found: dict[Endpoint, Endpoint] = {}
    for loop in loops:
        found.update({(loop.name, i): (node.name, 0) for i, node in enumerate(loop.exits)})
        found.update(_exits_of(loop.loops.values()))
    return found


def _arrays(nodes: Nodes) -> dict[str, str]:
    """Node that uses a TensorArray or stack -> the one that makes it."""
    found: dict[str, str] = {}
    strange: set[str] = set()
    for name, node in nodes.items():
        use = use_of_array(node)
        if use == "makes":
            found[name] = name
        elif use:
            source = nodes.get(node.inputs[0][0])
            while source is not None and not use_of_array(source):
                source = nodes.get(source.inputs[0][0]) if _passes(source) else None
            if source is not None and source.name in found:
                found[name] = found[source.name]
        elif not _passes(node):
            for giver, index in node.inputs:
                if giver in found and output_dtypes(nodes[giver])[index] is dtypes.resource:
                    strange.add(found[giver])
    return {name: maker for name, maker in found.items() if maker not in strange}


def _passes(node: Node) -> bool:
    return node.op in ENTER_OPS or node.op in SWITCH_OPS or node.op == "Identity"
