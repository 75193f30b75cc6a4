"""How a session follows variables that have moved, and which variables of a graph move together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfmini import errors
from tfmini.devices import parse
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


class Followed(NamedTuple):
    """Where the nodes of a graph are, by what tasks have told.

    Attributes:
      placement: the device of each node.
      came_from: the task from which each node came that has moved.
      places: those to which the latest telling leads.
    """

    placement: dict[str, str]
    came_from: dict[str, str]
    places: set[NewPlace]


def followed(nodes: Nodes, asked: Mapping[str, str], told: Mapping[str, Forwarding]) -> Followed:
    """Goes the way of each node from task to task.

    What a task told may be old: a variable may have come back since. Then the way is a circle, and it ends at the task
    of the circle that told first. That one has the variable, or tells anew, and is the last of them to be asked again.

    Args:
      asked: the placement as if nothing had moved.
      told: what tasks have told, the latest last.

    Raises:
      FailedPreconditionError: see `relocated`.
    """
    found, latest = Followed(dict(asked), {}, set()), ["", *told][-1]
    ways: dict[str, list[str]] = {}
    going: Iterable[str] = asked
    while going:
        step: dict[str, str] = {}
        for source, forwarding in told.items():
            here = {name: found.placement[name] for name in going if _is_on(found.placement[name], source)}
            devices, places = relocated({name: nodes[name] for name in here}, here, source, forwarding)
            step |= devices
            found.came_from.update(dict.fromkeys(devices, source))
            found.places.update(places if source == latest else ())
        going = [name for name, device in step.items() if _goes_on(name, device, ways, found.placement, told)]
    return found


def _goes_on(
    name: str, device: str, ways: dict[str, list[str]], placement: dict[str, str], told: Mapping[str, Forwarding]
) -> bool:
    """Puts a node on a device; False if its way has become a circle: then it is put where that ends."""
    way = ways.setdefault(name, [])
    way.append(_task_of(placement[name]))
    placement[name] = device
    if _task_of(device) not in way:
        return True
    circle = way[way.index(_task_of(device)) :]
    placement[name] = _on(next(source for source in told if source in circle), device)
    return False


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
        for name, device in placement.items():
            if name not in found and _is_on(device, source):
                found[name] = _on(told.rest.task, device)
    return found, places


def _task_of(device: str) -> str:
    return device[: device.index("/device:")]


def _is_on(device: str, task: str) -> bool:
    return device.startswith(f"{task}/device:")


def _on(task: str, device: str) -> str:
    return task + device[device.index("/device:") :]


def _torn(group: VariableGroup, told: Forwarding, source: str) -> errors.OpError:
    where = {name: told.moved[_, name].task if (_, name) in told.moved else source for _, name in sorted(group.keys)}
    shown = ", ".join(f"{name} on {task}" for name, task in where.items())
    return errors.FailedPreconditionError.of(
        f"This graph keeps variables on one task that are on several now: {shown}. They were moved when no graph kept"
        " them together. Move them to one task by tf.move_variables."
    )
