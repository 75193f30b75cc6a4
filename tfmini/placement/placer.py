"""The placer: gives every op a full device name and the reasons for it.

If several devices meet a request, the placer follows TensorFlow 2: it prefers devices of the client's own task, then
faster device types, then names in alphabetical order. So an op without a request runs on the task of the session's
master, not on the first task of the cluster. Queues, accumulators and barriers with a ``shared_name`` are placed as in
TensorFlow 1, on the first task: there the sessions of all tasks find the same one.

The decision for an op that is not colocated with others is made once per (op type, request).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfmini.devices import ParsedDevice, canonical_name, matches, parse
from tfmini.dtypes import DType
from tfmini.graph.device_types import device_type
from tfmini.graph.node import MADE_BY_PASSES, OUTPUT_TYPES, Node, Nodes
from tfmini.graph.op_types import MERGE_OPS, NEXT_OPS, ops_with
from tfmini.placement import decision
from tfmini.placement.colocation import GROUP_PREFIX, Colocation, ColocationGroup, SignatureFacts, colocate, requested
from tfmini.placement.decision import Decision, Placement, Reason

# On another device than its input, such an op would make the whole value cross.
_SHAPE_ONLY = ops_with("shape_only")
_MEETINGS = ops_with("meeting")
Types = frozenset[str]


@dataclass(frozen=True)
class DeviceAttributes:
    """A device of the cluster, as its task describes it.

    Attributes:
      name: full name, ``/job:ps/replica:0/task:0/device:CPU:0``.
      device_type: ``CPU``.
      memory_limit: bytes.
      incarnation: a random number that changes when the task restarts.
      physical_device_desc: what the device is, for people; known on its own task only.
    """

    name: str
    device_type: str
    memory_limit: int = 0
    incarnation: int = 0
    physical_device_desc: str = ""

    def __post_init__(self) -> None:
        if "/device:" not in self.name:
            object.__setattr__(self, "name", canonical_name(self.name))

    @property
    def memory_limit_bytes(self) -> int:
        """TensorFlow's name for `memory_limit`."""
        return self.memory_limit

    def __repr__(self) -> str:
        return f"_DeviceAttributes({self.name}, {self.device_type}, {self.memory_limit}, {self.incarnation})"


def place(
    nodes: Nodes,
    devices: Sequence[DeviceAttributes],
    *,
    default_device: str,
    soft_placement: bool = False,
    assigned: Mapping[str, str] | None = None,
    hidden: Sequence[str] = (),
) -> Placement:
    """Places a whole graph.

    Args:
      nodes: the graph of the client.
      devices: all devices of the cluster.
      default_device: full name of the master's device. Devices of its task are preferred.
      soft_placement: use another device of the same task if the requested type or number does not exist.
      assigned: the devices of ops that were placed earlier. These ops keep them, and their groups get the same.
      hidden: the names of devices of the cluster that the session's filters leave out, for messages.

    Raises:
      InvalidArgumentError: a request cannot be met, two contradict each other, or an op has no kernel.
    """
    return _Placer(nodes, devices, default_device, soft_placement, assigned or {}, hidden).run()


class _Placer:
    def __init__(
        self,
        nodes: Nodes,
        devices: Sequence[DeviceAttributes],
        default_device: str,
        soft: bool,
        assigned: Mapping[str, str],
        hidden: Sequence[str],
    ) -> None:
        self.nodes = nodes
        self.soft = soft
        self.hidden = hidden
        self.assigned = assigned
        self.home = parse(default_device)
        self.devices = [(parse(device.name), device.name) for device in sorted(devices, key=self._preference)]
        self.known_types: Types = frozenset(device.device_type for device in devices)
        self.facts: dict[str, SignatureFacts] = {}
        self._kinds = {name: device_type(name) for name in self.known_types}
        self._has_types = any(kind.compiles for kind in self._kinds.values())  # then an op's types count, too
        self._types: dict[str, Types] = {}
        self._found: dict[tuple[ParsedDevice, Types], list[str]] = {}
        self._free: dict[tuple[str, str], Decision] = {}
        self._key_of = _op_and_types if self._has_types else _op
        self._members: dict[tuple[int, str, int], Decision] = {}
        self._of_group: dict[int, tuple[str, tuple[Reason, ...]]] = {}
        self.result = Placement()

    def run(self) -> Placement:
        colocation = colocate(self.nodes, self.assigned, self.facts, self.soft)
        generators: dict[str, list[str]] = {}
        result, free, facts = self.result, self._free, self.facts
        assigned, group_of, plain = self.assigned, colocation.group_of, not self._has_types
        for name, node in self.nodes.items():
            op = node.op
            if name in assigned:
                result[name] = Decision(assigned[name], (decision.kept,))
            elif name in group_of:
                result[name] = self._member(node, group_of[name], colocation)
            elif facts[op].is_generator or op in _SHAPE_ONLY or op in MADE_BY_PASSES or op in _MEETINGS:
                result[name] = self._special(node, generators)
            else:
                # `_place_free` fills the table. In a large graph this look-up decides nearly every op.
                key = op if plain else self._key_of(node)
                result[name] = free.get((key, node.device)) or self._place_free(node)
        self._place_generators(generators)
        self._keep_loop_variables_together()
        return result

    def _preference(self, device: DeviceAttributes) -> tuple[bool, int, str]:
        away = parse(device.name).task_name != self.home.task_name
        return away, -device_type(device.device_type).priority, device.name

    # -------- free ops

    def _place_free(self, node: Node) -> Decision:
        request = requested(node)
        found, fallback = self._search(request, self._types_of(node))
        if not found:
            raise decision.no_device(node, request, request, self._names(), self._fits(request), self.hidden)
        chosen = self._free[self._key_of(node), node.device] = Decision(
            found[0], self._own_reasons(node, found[0], fallback)
        )
        return chosen

    def _own_reasons(self, node: Node, device: str, fallback: bool) -> tuple[Reason, ...]:
        if not node.device:
            return (decision.default(device),)
        asked = decision.explicit(node.device)
        return (decision.soft(node.device), asked) if fallback else (asked,)

    def _special(self, node: Node, generators: dict[str, list[str]]) -> Decision:
        if node.op in MADE_BY_PASSES and node.device and requested(node).is_full:
            return Decision(node.device, (decision.preset,))
        if _is_shared(node):  # of nobody yet, and yet it stays where it is placed now
            asked_by = [node.name] if node.device else []
            return Decision(*self._place_group(ColocationGroup([node.name], requested(node), asked_by)))
        plain = self._free.get((self._key_of(node), node.device)) or self._place_free(node)
        if self.facts[node.op].is_generator:
            generators[node.name] = []
            return plain
        if node.inputs and node.inputs[0][0] in self.result:
            source = node.inputs[0][0]
            return self._moved(node, plain, self.result[source].device, decision.follows_input(source))
        return plain

    def _moved(self, node: Node, plain: Decision, device: str, reason: Reason) -> Decision:
        """Returns the decision for ``device`` if the request allows it, else ``plain``."""
        if device == plain.device:
            return plain
        found, _ = self._search(requested(node), self._types_of(node))
        if device not in found:
            return plain
        own = (decision.explicit(node.device),) if node.device else ()
        return Decision(device, (reason, *own))

    def _place_generators(self, consumers: dict[str, list[str]]) -> None:
        if not consumers:
            return
        for name, node in self.nodes.items():
            for source, _ in node.inputs:
                if source in consumers:
                    consumers[source].append(name)
        for name, users in consumers.items():
            homes = {self.result[user].device for user in users}
            if len(homes) == 1:
                reason = decision.follows_consumer(users[0])
                self.result[name] = self._moved(self.nodes[name], self.result[name], homes.pop(), reason)

    def _keep_loop_variables_together(self) -> None:
        """Places the Enter and the NextIteration of a loop variable with its Merge."""
        for name, node in self.nodes.items():
            if node.op in MERGE_OPS and any(
                source in self.nodes and self.nodes[source].op in NEXT_OPS for source, _ in node.inputs
            ):
                device = self.result[name].device
                for source, _ in node.inputs:
                    if source not in self.result:  # a client has left it out, as the first step says
                        continue
                    if self.result[source].device != device and source not in self.assigned:
                        self.result[source] = Decision(device, (decision.loop_variable(name),))

    # -------- groups

    def _member(self, node: Node, group: ColocationGroup, colocation: Colocation) -> Decision:
        known = self._of_group.get(id(group))
        if known is None:
            known = self._of_group[id(group)] = self._place_group(group)
        device, origin = known
        links = colocation.links.get(node.name, ())
        # Members with the same request and the same single link share a decision.
        kind = (id(group), node.device, id(links[0])) if len(links) == 1 else None
        shared = self._members.get(kind) if kind else None
        if shared is not None:
            return shared
        reasons = [*links, *(reason for reason in origin if reason.other != node.name)]
        overruled = any(reason.kind == decision.IGNORED for reason in links)
        if node.device and not group.assigned and not overruled:
            reasons.insert(0, decision.explicit(node.device))
        chosen = Decision(device, tuple(reasons))
        if kind and node.name not in group.asked_by:
            self._members[kind] = chosen
        return chosen

    def _place_group(self, group: ColocationGroup) -> tuple[str, tuple[Reason, ...]]:
        if group.assigned:
            return group.assigned, (decision.kept_with(group.kept),)
        types = self._group_types(group)
        found, fallback = self._search(group.request, types)
        if not found:
            blamed = self._blamed(group)
            raise decision.no_device(
                blamed, requested(blamed), group.request, self._names(), self._fits(group.request), self.hidden
            )
        origin = [decision.explicit_of(name, self.nodes[name].device) for name in group.asked_by]
        if fallback:
            origin.insert(0, decision.soft(group.request.to_string()))
        holder = self._meeting(group)
        if holder is not None:
            device = min(found, key=_first_of_all)
            name = holder.attrs["shared_name"].decode(errors="replace")
            return device, (*origin, decision.meeting(device, name))
        return found[0], tuple(origin) or (decision.default(found[0]),)

    def _meeting(self, group: ColocationGroup) -> Node | None:
        """Returns the member whose state sessions of several tasks share, if the group has one and requests no task."""
        if group.request.job is not None and group.request.task is not None:
            return None
        members = (self.nodes[name] for name in group.members)
        return next((node for node in members if _is_shared(node)), None)

    def _group_types(self, group: ColocationGroup) -> Types:
        types = self.known_types
        for name in group.members:
            narrowed = types & self._types_of(self.nodes[name])
            if not narrowed:
                raise decision.no_common_type(self.nodes[name], [self.nodes[n] for n in group.members])
            types = narrowed
        return types

    def _blamed(self, group: ColocationGroup) -> Node:
        """Returns the first member that a device of the requested kind lacks something for, or that requested the
        group's device, else the oldest member.
        """
        kind = self._kinds.get(group.request.device_type or "")
        if kind is not None and kind.compiles:
            lacking = next((n for n in group.members if kind.lacks(self.nodes[n]) is not None), None)
            if lacking is not None:
                return self.nodes[lacking]
        if group.asked_by:
            return self.nodes[group.asked_by[0]]
        members = set(group.members)
        return next(node for name, node in self.nodes.items() if name in members)

    # -------- devices

    def _types_of(self, node: Node) -> Types:
        key = self._key_of(node)
        types = self._types.get(key)
        if types is None:
            types = frozenset(name for name, kind in self._kinds.items() if kind.lacks(node) is None)
            self._types[key] = types
        if types or node.op in MADE_BY_PASSES:
            return types or self.known_types
        if OUTPUT_TYPES in node.attrs or self._is_elsewhere(node):  # for the inspector, or its task may have a kernel
            return self.known_types
        raise decision.no_kernel(node, sorted(self.known_types))

    def _is_elsewhere(self, node: Node) -> bool:
        """Whether the node requests another task, which may have kernels that this one lacks."""
        request = requested(node)
        asks = request.job is not None or request.task is not None
        return asks and not matches(request._replace(device_type=None, device_index=None), self.home)

    def _search(self, request: ParsedDevice, types: Types) -> tuple[list[str], bool]:
        """Returns the candidates in order of preference, and whether type and number had to be dropped."""
        found = self._candidates(request, types)
        if found or not self.soft or request.device_type is None:
            return found, False
        return self._candidates(request._replace(device_type=None, device_index=None), types), True

    def _candidates(self, request: ParsedDevice, types: Types) -> list[str]:
        found = self._found.get((request, types))
        if found is None:
            found = [name for device, name in self.devices if device.device_type in types and matches(request, device)]
            self._found[request, types] = found
        return found

    def _fits(self, request: ParsedDevice) -> list[str]:
        return self._candidates(request, self.known_types)

    def _names(self) -> list[str]:
        return sorted(name for _, name in self.devices)


def _is_shared(node: Node) -> bool:
    """Whether sessions of several tasks find the node's state by its name."""
    return node.op in _MEETINGS and bool(node.attrs.get("shared_name"))


def _first_of_all(device: str) -> tuple[int, str]:
    """Orders devices in the same way for the sessions of every task."""
    return -device_type(parse(device).device_type or "").priority, device


def _op(node: Node) -> str:
    return node.op


def _op_and_types(node: Node) -> str:
    """The op with the types of a node: a device that compiles has no strings."""
    types = sorted(f"{name}={value}" for name, value in node.attrs.items() if _is_type(value))
    return f"{node.op} {types}" if types else node.op


def _is_type(value: object) -> bool:
    return isinstance(value, DType) or type(value) is list and bool(value) and isinstance(value[0], DType)


# ---- neighbours ----------------------------------------
# The nodes that decide where new nodes of a growing graph go, so that placing them does not take the whole graph.


class ColocationLeaders:
    """Of each colocation group, the op that it is named after and its first member."""

    def __init__(self) -> None:
        self._first: dict[bytes, str] = {}

    def add(self, nodes: Iterable[Node]) -> None:
        """Notes the groups of nodes that have been placed, in creation order."""
        for node in nodes:
            for group in _groups(node):
                self._first.setdefault(group, node.name)

    def of(self, nodes: Iterable[Node]) -> list[str]:
        """The names of the ops that lead the groups of nodes: the first member, and the op of the name."""
        own = dict.fromkeys(group for node in nodes for group in _groups(node))
        named = [group[len(GROUP_PREFIX) :].decode(errors="replace") for group in own]
        return [*(self._first[group] for group in own if group in self._first), *named]


def with_neighbours(new: Nodes, known: Mapping[str, Node], leaders: ColocationLeaders) -> Nodes:
    """Returns ``new`` behind the nodes among ``known`` that matter to their placement, for `placer.place`.

    These are their inputs, without inputs of their own, and the leaders of their groups. All have devices already.
    """
    found: Nodes = {}
    wanted = leaders.of(new.values()) + [source for node in new.values() for source, _ in node.inputs]
    while wanted:
        near = {name: known[name] for name in wanted if name in known and name not in found}
        found.update((name, node.replace(inputs=(), controls=())) for name, node in near.items())
        wanted = leaders.of(near.values())
    return {**found, **new}


def _groups(node: Node) -> list[bytes]:
    return [name for name in node.attrs.get("_class", ()) if name.startswith(GROUP_PREFIX)]
