"""How a session follows variables that have moved, and which variables of a graph move together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tfmini import errors
from tfmini.devices import parse, task_of_device
from tfmini.graph.node import Nodes
from tfmini.graph.op_types import VARIABLE_OPS
from tfmini.placement.colocation import SignatureFacts, colocate
from tfmini.runtime.master.registration import Plan
from tfmini.runtime.worker.departures import Forwarding, NewPlace, VariableKey, key_from_wire, key_of, keys_of


@dataclass(frozen=True)
class VariableGroup:
    """Nodes of one task that must stay together.

    Attributes:
      members: their names.
      keys: the variables among them.
      fixed: those that hold other state, which cannot move.
    """

    members: tuple[str, ...]
    keys: frozenset[VariableKey]
    fixed: tuple[str, ...]

    def to_wire(self) -> list[Any]:
        """As a message carries it: keys, fixed."""
        return [sorted(map(list, self.keys)), list(self.fixed)]

    @staticmethod
    def from_wire(wire: Any) -> VariableGroup:
        """The group without the names of its members, which no message carries."""
        keys, fixed = wire
        return VariableGroup((), frozenset(map(key_from_wire, keys)), tuple(map(str, fixed)))


def container_of(task: str) -> str:
    """The default container of a task."""
    return parse(task).job or "localhost"


def groups_on(nodes: Nodes, placement: Mapping[str, str], task: str) -> list[VariableGroup]:
    """The groups with variables on a task."""
    where = f"{task}/device:"
    here = {name: node for name, node in nodes.items() if placement[name].startswith(where)}
    facts: dict[str, SignatureFacts] = {}
    group_of = colocate(here, {}, facts, True).group_of
    found: list[VariableGroup] = []
    seen: set[int] = set()
    for name, node in here.items():
        group = group_of.get(name)
        if node.op not in VARIABLE_OPS or group is not None and id(group) in seen:
            continue
        members = [name] if group is None else group.members
        seen.add(id(group))
        variables = [here[each] for each in members if here[each].op in VARIABLE_OPS]
        keys = frozenset(key_of(each, container_of(task)) for each in variables)
        fixed = [each for each in members if facts[here[each].op].holds_state and here[each].op not in VARIABLE_OPS]
        found.append(VariableGroup(tuple(members), keys, tuple(sorted(fixed))))
    return found


def closed_under(keys: Iterable[VariableKey], groups: Iterable[VariableGroup]) -> set[VariableKey]:
    """The keys, with all that are in a group with one of them, in a group with one of those, and so on."""
    found, left = set(keys), list(groups)
    while True:
        touched = [group for group in left if not found.isdisjoint(group.keys)]
        if not touched:
            return found
        left = [group for group in left if found.isdisjoint(group.keys)]
        found = found.union(*(group.keys for group in touched))


def plan_uses(plan: Plan, task: str, keys: set[VariableKey], whole: bool) -> bool:
    """Whether the steps of a plan use variables of a task; ``whole``: whether they use the task."""
    part = next((part for part in plan.parts if part.task == task), None)
    if part is None or whole:
        return part is not None
    return not keys.isdisjoint(keys_of(part.task_graph.nodes.values(), container_of(task)))


def relocated(
    nodes: Nodes, placement: Mapping[str, str], source: str, told: Forwarding
) -> tuple[dict[str, str], set[NewPlace]]:
    """The new devices of nodes on a task that has given variables away, and the places that these are on.

    Raises:
      FailedPreconditionError: the graph keeps variables together that are on different tasks now.
    """
    found: dict[str, str] = {}
    places: set[NewPlace] = set()
    for group in groups_on(nodes, placement, source):
        new = {told.moved[key] for key in group.keys if key in told.moved}
        stay = sorted(group.keys & told.kept)
        if new and (len({place.task for place in new}) > 1 or stay):
            raise _torn(group, told, source)
        for place in new or ({told.rest} if told.rest is not None else ()):
            places.add(place)
            found |= {name: _on(place.task, placement[name]) for name in group.members}
    if told.rest is not None:
        places.add(told.rest)
        for name in nodes:
            if name not in found and placement[name].startswith(f"{source}/device:"):
                found[name] = _on(told.rest.task, placement[name])
    return found, places


def followed(
    nodes: Nodes, asked: Mapping[str, str], told: Mapping[str, Forwarding]
) -> tuple[dict[str, dict[str, str]], set[NewPlace]]:
    """Where nodes are now, by what tasks have told, each at its time.

    Each group of nodes goes its own way, from the task where it would be if nothing had moved: each task that it comes
    to and that has told sends it on. A task tells where a variable went when it left for the last time, so a way that
    comes back to a task has a step that is out of date: of the tasks of that circle, the one that has told first has
    got the variable again since.

    Args:
      asked: the placement as if nothing had moved.
      told: by task, the latest telling last.

    Returns:
      The new devices, by the task that has told of them last; and the places to which the latest telling leads.

    Raises:
      FailedPreconditionError: as `relocated`.
    """
    order = {source: number for number, source in enumerate(told)}
    placement, found = dict(asked), dict[str, tuple[str, str]]()
    ways: dict[str, list[str]] = {}  # of each node: the tasks that it has left
    places, left, is_over = set[NewPlace](), dict(nodes), False
    while not is_over:
        is_over = True
        for source, forwarding in told.items():
            devices, leads_to = relocated(left, placement, source, forwarding)
            is_over = is_over and not devices
            places |= leads_to if order[source] == len(told) - 1 else set()
            for name, device in devices.items():
                way, task = ways.setdefault(name, []), task_of_device(device)
                way.append(source)
                if task in way:
                    device = _on(min(way[way.index(task) :], key=order.__getitem__), device)
                    del left[name]
                placement[name], found[name] = device, (source, device)
    by_source: dict[str, dict[str, str]] = {}
    for name, (source, device) in found.items():
        by_source.setdefault(source, {})[name] = device
    return by_source, places


def _on(task: str, device: str) -> str:
    return task + device[device.index("/device:") :]


def _torn(group: VariableGroup, told: Forwarding, source: str) -> errors.OpError:
    where = {name: told.moved[_, name].task if (_, name) in told.moved else source for _, name in sorted(group.keys)}
    shown = ", ".join(f"{name} on {task}" for name, task in where.items())
    return errors.FailedPreconditionError.of(
        f"This graph keeps variables on one task that are on several now: {shown}. They were moved when no graph kept"
        " them together. Move them to one task by tf.move_variables."
    )
