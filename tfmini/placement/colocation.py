"""Colocation: the groups of ops that must share a device, from edges that are no arrays and from colocation attrs.

Only ops with such an edge or attr are in a `ColocationGroup`. For all others one look-up of their type is enough. The
smaller of two groups is merged into the larger one, so the total time is about linear.

A reference or resource edge overrides the device request of its consumer, because state cannot leave its device; a
reason records this. So does a variant edge (of a dataset, an optional), because no message can carry its value: the
whole chain goes where the state at one of its ends is, such as an iterator. A colocation attr overrides no request: if
two requests contradict each other, that is an error, or with soft placement the attr is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tfmini import dtypes
from tfmini.devices import ParsedDevice, intersects, parse
from tfmini.errors import InvalidArgumentError
from tfmini.graph.node import INPUT_TYPES, Node, Nodes, input_dtypes
from tfmini.graph.op_types import OPS
from tfmini.placement import decision
from tfmini.placement.decision import Reason

GROUP_PREFIX = b"loc:@"


@dataclass(frozen=True)
class SignatureFacts:
    """Facts about an op type that follow from its declared inputs and outputs."""

    takes_references: bool = False  # or resources or variants
    type_attrs: tuple[str, ...] = ()  # the type attrs of inputs: a node takes a resource if one of them is ``resource``
    holds_state: bool = False  # no input, one output, a reference or resource
    is_generator: bool = False  # no input, one output, not a reference


_NO_ARRAYS = (dtypes.resource, dtypes.variant)
_UNKNOWN_OP = SignatureFacts(type_attrs=(INPUT_TYPES,))


def facts_of(op_type: str) -> SignatureFacts:
    """Returns the facts of an op type. Of an unknown one only the types in its nodes' attrs are known."""
    handle = OPS.get(op_type)
    if handle is None:
        return _UNKNOWN_OP
    op_def = handle.op_def
    attrs = {a.type_attr or a.type_list_attr for a in op_def.inputs}
    sole = op_def.outputs[0] if not op_def.inputs and len(op_def.outputs) == 1 else None
    if sole is not None and sole.is_list:
        sole = None
    return SignatureFacts(
        takes_references=any(a.is_ref or a.dtype in _NO_ARRAYS for a in op_def.inputs),
        type_attrs=tuple(sorted(a for a in attrs if a is not None)),
        holds_state=sole is not None and (sole.is_ref or sole.dtype is dtypes.resource),
        is_generator=sole is not None and not sole.is_ref,
    )


def _is_handle(dtype: dtypes.DType) -> bool:
    return dtype is dtypes.resource or dtype._is_ref_dtype


def _is_tied(dtype: dtypes.DType) -> bool:
    return dtype is dtypes.variant or _is_handle(dtype)


@dataclass(eq=False)
class ColocationGroup:
    """Ops that share a device.

    Attributes:
      members: their names, in any order.
      request: the merged device requests of the members.
      asked_by: the members whose requests are in ``request``, oldest first.
      is_hard: whether a holder of state, or an op placed earlier, made the request.
      assigned: the device of members that were placed earlier, or "".
      kept: the name of one of those.
      accepted: requested devices that are known to add nothing to ``request``.
    """

    members: list[str]
    request: ParsedDevice
    asked_by: list[str] = field(default_factory=list)
    is_hard: bool = False
    assigned: str = ""
    kept: str = ""
    accepted: set[str] = field(default_factory=lambda: {""})


@dataclass
class Colocation:
    """The groups of a graph, and for each op the reasons why it is in its group."""

    group_of: dict[str, ColocationGroup] = field(default_factory=dict)
    links: dict[str, list[Reason]] = field(default_factory=dict)


def colocate(nodes: Nodes, assigned: Mapping[str, str], facts: dict[str, SignatureFacts], soft: bool) -> Colocation:
    """Finds the groups.

    Args:
      nodes: the whole graph.
      assigned: devices of ops placed earlier.
      facts: receives the facts of every op type in the graph.
      soft: drop device types and numbers that contradict each other, and ignore colocation attrs of ops that request
        different tasks, instead of raising an error.

    Raises:
      InvalidArgumentError: requests contradict each other, or a device is malformed.
    """
    return _Builder(nodes, assigned, facts, soft).build()


def requested(node: Node) -> ParsedDevice:
    """Parses the node's own device request.

    Raises:
      InvalidArgumentError: it is malformed.
    """
    try:
        return parse(node.device)
    except ValueError as error:
        message = f"{error}\n\t [[{{{{node {node.name}}}}}]]"
        wrapped = InvalidArgumentError.of(message)
        wrapped.node_name = node.name
        raise wrapped from None


class _Builder:
    def __init__(self, nodes: Nodes, assigned: Mapping[str, str], facts: dict[str, SignatureFacts], soft: bool) -> None:
        self.nodes = nodes
        self.assigned = assigned
        self.facts = facts
        self.soft = soft
        self.result = Colocation()

    def build(self) -> Colocation:
        consumers, grouped = self._scan()
        for node in consumers:
            self._follow_references(node)
        leaders: dict[bytes, tuple[str, Reason]] = {}
        for node in grouped:
            self._join_named_groups(node, leaders)
        return self.result

    def _scan(self) -> tuple[list[Node], list[Node]]:
        """Returns the nodes that take references, and those with the attr ``_class``."""
        facts, assigned = self.facts, self.assigned
        consumers, grouped = [], []
        for name, node in self.nodes.items():
            known = facts.get(node.op)
            if known is None:
                known = facts[node.op] = facts_of(node.op)
            attrs = node.attrs
            if "_class" in attrs:
                grouped.append(node)
            if name in assigned:
                continue
            if known.takes_references:
                consumers.append(node)
            elif known.type_attrs:
                for attr in known.type_attrs:
                    value = attrs.get(attr)
                    if (
                        value is dtypes.resource
                        or value is dtypes.variant
                        or (type(value) is list and any(map(_is_tied, value)))
                    ):
                        consumers.append(node)
                        break
        return consumers, grouped

    def _group(self, name: str) -> ColocationGroup:
        group = self.result.group_of.get(name)
        if group is None:
            group = self.result.group_of[name] = self._new_group(name)
        return group

    def _new_group(self, name: str) -> ColocationGroup:
        node = self.nodes[name]
        device = self.assigned.get(name, "")
        if device:
            return ColocationGroup([name], parse(device), [name], True, device, name)
        if not node.device:
            return ColocationGroup([name], ParsedDevice())
        return ColocationGroup([name], requested(node), [name], self.facts[node.op].holds_state)

    def _note(self, name: str, reason: Reason) -> None:
        self.result.links.setdefault(name, []).append(reason)

    # -------- reference edges

    def _follow_references(self, node: Node) -> None:
        tied = [(s, t) for (s, _), t in zip(node.inputs, input_dtypes(node)) if _is_tied(t) and s in self.nodes]
        for source, dtype in tied:
            if dtype is not dtypes.variant:
                self._note(node.name, decision.reference(source))
                self._tie(source, node.name)
        for source, dtype in tied:  # afterwards, since state decides where they are
            if dtype is dtypes.variant and not self._may_stay_apart(source, node.name):
                self._note(node.name, decision.variant(source))
                self._tie(source, node.name, decision.ignored_for_variant)

    def _may_stay_apart(self, source: str, consumer: str) -> bool:
        """Whether state on two devices of one task keeps both: a variant may cross there.

        Raises:
          InvalidArgumentError: the state is on two tasks.
        """
        holder, user = self._group(source), self._group(consumer)
        if holder is user or not (holder.is_hard and user.is_hard):
            return False
        clash = _first_clash(holder.request, user.request)
        if clash in _HARD_FIELDS:
            raise _variant_conflict(holder, user, source, consumer)
        return clash is not None

    def _tie(self, source: str, consumer: str, ignored: Callable[[str, str], Reason] = decision.ignored) -> None:
        holder, user = self._group(source), self._group(consumer)
        if holder is user:
            return
        self._refuse_two_homes(holder, user, source, consumer)
        if intersects(holder.request, user.request):
            request = user.request.completed_by(holder.request)
            asked = _askers(holder, user, request)
        elif holder.is_hard and user.is_hard:
            raise _state_conflict(holder, user, source, consumer)
        else:
            winner, loser = (user, holder) if user.is_hard else (holder, user)
            for name in loser.asked_by:
                self._note(name, ignored(self.nodes[name].device, source))
            request, asked = winner.request, winner.asked_by
        self._merge(holder, user, request, asked)

    # -------- colocation attrs

    def _join_named_groups(self, node: Node, leaders: dict[bytes, tuple[str, Reason]]) -> None:
        for group_name in node.attrs["_class"]:
            if not group_name.startswith(GROUP_PREFIX):
                continue
            known = leaders.get(group_name)
            if known is None:
                leader = self._leader(group_name, node)
                known = leaders[group_name] = leader, decision.colocated(leader, group_name.decode(errors="replace"))
            leader, reason = known
            if leader != node.name:
                self._note(node.name, self._join(leader, node, reason))

    def _leader(self, group_name: bytes, first: Node) -> str:
        """Returns the op that the group is named after, or ``first`` if that op is colocated with others itself."""
        name = group_name[len(GROUP_PREFIX) :].decode(errors="replace")
        owner = self.nodes.get(name)
        return name if owner is not None and "_class" not in owner.attrs else first.name

    def _join(self, leader: str, node: Node, reason: Reason) -> Reason:
        """Merges the groups of both ops; returns ``reason``, or the reason why the attr is ignored."""
        member = node.name
        first = self._group(leader)
        if node.device in first.accepted and member not in self.result.group_of and member not in self.assigned:
            # The common case: an op without a group that adds no request.
            self.result.group_of[member] = first
            first.members.append(member)
            return reason
        second = self._group(member)
        if first is not second:
            if self.soft and _first_clash(first.request, second.request) in _HARD_FIELDS:
                return decision.set_apart(leader, second.request.to_string(), first.request.to_string())
            request = self._merged_request(first, second, leader, member, reason)
            self._refuse_two_homes(first, second, leader, member)
            alone = len(second.members) == 1 and not second.assigned
            self._merge(first, second, request, _askers(first, second, request))
            if alone:
                self._group(leader).accepted.add(node.device)
        return reason

    def _merged_request(
        self, first: ColocationGroup, second: ColocationGroup, leader: str, member: str, reason: Reason
    ) -> ParsedDevice:
        clash = _first_clash(first.request, second.request)
        merged = second.request.completed_by(first.request)
        if clash is None:
            return merged
        if self.soft:
            return merged._replace(device_type=None, device_index=None)
        what = _PLURALS[clash]
        mine, theirs = second.request.to_string(), first.request.to_string()
        asks = ", ".join(f"'{n}' asks for '{self._request_text(n)}'" for n in (second.asked_by + first.asked_by)[:4])
        message = (
            f"Cannot colocate nodes {{{{colocation_node {member}}}}} and {{{{colocation_node {leader}}}}}: "
            f"Cannot merge devices with incompatible {what}: '{mine}' and '{theirs}'\n"
            f"\t [[{{{{node {member}}}}}]]\n"
            f"'{member}' is {reason.text}; {asks}. Ask for the same device in both places, build one "
            "of them outside tf.colocate_with, or set allow_soft_placement=True in ConfigProto, which ignores the"
            " colocation."
        )
        raise _at(member, message)

    def _request_text(self, name: str) -> str:
        return self.assigned.get(name) or self.nodes[name].device

    # -------- both

    def _refuse_two_homes(self, a: ColocationGroup, b: ColocationGroup, source: str, consumer: str) -> None:
        if a.assigned and b.assigned and a.assigned != b.assigned:
            message = (
                "Nodes were connected by a reference connection (requiring them to be on the same "
                "device), but the "
                f"two nodes were assigned two different devices: '{source}' is on {a.assigned} and "
                f"'{consumer}' on "
                f"{b.assigned} since an earlier run of this session. Start a new session."
            )
            raise _at(consumer, message)

    def _merge(self, a: ColocationGroup, b: ColocationGroup, request: ParsedDevice, asked_by: list[str]) -> None:
        large, small = (a, b) if len(a.members) >= len(b.members) else (b, a)
        large.request = request
        large.asked_by = asked_by
        large.is_hard |= small.is_hard
        large.assigned = large.assigned or small.assigned
        large.kept = large.kept or small.kept
        large.members += small.members
        for name in small.members:
            self.result.group_of[name] = large


_HARD_FIELDS = ("job", "replica", "task")  # soft placement never moves an op to another task
_PLURALS = {
    "job": "jobs",
    "replica": "replicas",
    "task": "tasks",
    "device_type": "types",
    "device_index": "ids",
}


def _askers(a: ColocationGroup, b: ColocationGroup, request: ParsedDevice) -> list[str]:
    """Returns the members whose requests make up the merged request: at most one per field."""
    if request == a.request:
        return a.asked_by
    return b.asked_by if request == b.request else a.asked_by + b.asked_by


def _first_clash(a: ParsedDevice, b: ParsedDevice) -> str | None:
    """Returns the first field that both set to different values, or None."""
    for name, x, y in zip(ParsedDevice._fields, a, b):
        if x is not None and y is not None and x != y:
            return name
    return None


def _state_conflict(holder: ColocationGroup, user: ColocationGroup, source: str, consumer: str) -> InvalidArgumentError:
    message = (
        "Cannot place the graph because a reference or resource edge connects colocation groups with "
        "incompatible "
        f"resource devices: {holder.request.to_string()} vs {user.request.to_string()}. The edge src node is "
        f"{source} , and the dst node is {consumer}\n\t [[{{{{node {consumer}}}}}]]\n"
        f"The devices were asked for by {', '.join(holder.asked_by)} and by {', '.join(user.asked_by)}; "
        f"state that "
        "one op uses together must be created on one device."
    )
    return _at(consumer, message)


def _variant_conflict(
    holder: ColocationGroup, user: ColocationGroup, source: str, consumer: str
) -> InvalidArgumentError:
    asked = [f"{group.request.to_string()} (because of {', '.join(group.asked_by)})" for group in (holder, user)]
    message = (
        f"Cannot place '{consumer}' with '{source}', of which it takes a dataset, an optional or another value that is"
        f" no array and cannot be sent to another task: '{source}' has to be on {asked[0]}, but '{consumer}' on"
        f" {asked[1]}. A dataset goes where its iterator is, and so must the variables, tables and queues that its"
        " functions use. Create these there, or use them on what the iterator's get_next() gives.\n\t"
        f" [[{{{{node {consumer}}}}}]]"
    )
    return _at(consumer, message)


def _at(node_name: str, message: str) -> InvalidArgumentError:
    error = InvalidArgumentError.of(message)
    error.node_name = node_name
    return error
