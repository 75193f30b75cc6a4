"""Object graphs: the objects that are reachable from a checkpoint's root, and their keys in its files.

A key is the path of attributes from the root to an object, not the name of a variable:
``model/weights/.ATTRIBUTES/VARIABLE_VALUE``. The key of an optimizer's slot consists of the variable's path and
the optimizer's. A checkpoint holds its object graph as a message under `OBJECT_GRAPH_KEY`.
"""

from __future__ import annotations

import abc
import collections
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tfmini import errors, protos
from tfmini.export import export
from tfmini.layers.base import Layer
from tfmini.ops.tables import LookupInterface
from tfmini.ops.variables.base import Variable
from tfmini.train.checkpointing.graph_files import CheckpointReader
from tfmini.train.checkpointing.saver_builder import (
    GATHER,
    SaveableObject,
    all_saveables,
    named_saveables,
    validated_saveables,
)
from tfmini.train.optimizers.optimizer import Optimizer

OBJECT_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "VARIABLE_VALUE"
_STATE = "py_state"
_NAMED = "_self_named_for_checkpoints"  # an attribute of trackable objects, which programs do not call so


class TrackableReference(NamedTuple):
    """What checkpoints save of an object: another one, and its name there."""

    name: str
    ref: Any


@dataclass
class _NamedChildren:
    """What checkpoints save beside attributes."""

    listed: list[TrackableReference] = field(default_factory=list)
    by_name: dict[str, Any] = field(default_factory=dict)
    overwriting: set[str] = field(default_factory=set)


@export("tf.contrib.checkpoint.Checkpointable", "tf.contrib.checkpoint.CheckpointableBase")
class Trackable:
    """Base class of objects whose attributes are saved in checkpoints.

    These are variables, optimizers, layers, trackable objects, and lists and dictionaries of them.
    """

    def _trackable_children(self) -> list[tuple[str, Any]]:
        """Pairs (attribute, object) in the order in which the attributes were set; then what has a name only."""
        left_out = vars(self).get("_left_out", ())
        attributes = {
            name: value
            for name, value in vars(self).items()
            if is_trackable(value, inside=True) and name not in left_out
        }
        named: _NamedChildren | None = vars(self).get(_NAMED)
        if named is not None:  # an attribute that came later than the name stands for it
            attributes |= {n: v for n, v in named.listed if n not in attributes or n in named.overwriting}
        return list(attributes.items())

    def _track_trackable(self, trackable: object, name: str, overwrite: bool = False) -> object:
        """Has checkpoints save an object under a name, whatever the attributes are; returns the object.

        Raises:
          TypeError: no checkpoint saves such an object.
          ValueError: the name has another object, and ``overwrite`` is false.
        """
        if not is_trackable(trackable, inside=True):
            raise TypeError(f"Trackable._track_trackable() passed type {type(trackable)}, not a Trackable.")
        named = self._unconditional_dependency_names
        if overwrite:
            self._named_children.overwriting.add(name)
        elif (dict(children_of(self)) | named).get(name, trackable) is not trackable:
            raise ValueError(f"Called Trackable._track_trackable() with name='{name}', which has another object.")
        listed = self._unconditional_checkpoint_dependencies
        listed[:] = [*(known for known in listed if known.name != name), TrackableReference(name, trackable)]
        named[name] = trackable
        return trackable

    def _lookup_dependency(self, name: str) -> Any:
        """What has a name for checkpoints, or None; restoring asks for each name that the file has."""
        return self._unconditional_dependency_names.get(name, dict(self._trackable_children()).get(name))

    @property
    def _named_children(self) -> _NamedChildren:
        found: _NamedChildren = vars(self).setdefault(_NAMED, _NamedChildren())
        return found

    @property
    def _unconditional_checkpoint_dependencies(self) -> list[TrackableReference]:
        return self._named_children.listed

    @property
    def _checkpoint_dependencies(self) -> list[TrackableReference]:
        return [TrackableReference(name, child) for name, child in children_of(self)]

    @property
    def _unconditional_dependency_names(self) -> dict[str, Any]:
        return self._named_children.by_name


@export("tf.train.experimental.PythonState", "tf.contrib.checkpoint.PythonStateWrapper")
class PythonState(Trackable, abc.ABC):
    """Base class of objects that write their state to checkpoints and read it from them themselves.

    `Checkpoint.save` calls ``serialize``. `Checkpoint.restore` calls ``deserialize`` at once, without a session.
    """

    @abc.abstractmethod
    def serialize(self) -> str | bytes:
        """The state."""

    @abc.abstractmethod
    def deserialize(self, string_value: bytes) -> None:
        """Takes over a state that ``serialize`` has returned."""

    def _trackable_children(self) -> list[tuple[str, Any]]:
        return []  # its attributes are its own affair


def is_trackable(thing: object, inside: bool = False) -> bool:
    """Whether a checkpoint saves ``thing``; with ``inside``, also lists and dictionaries of such objects."""
    if inside and isinstance(thing, (list, dict)):
        return any(is_trackable(item, inside=True) for item in (thing.values() if isinstance(thing, dict) else thing))
    return isinstance(thing, (Variable, Optimizer, Layer, Trackable)) or _tells_its_children(thing)


def _tells_its_children(thing: object) -> bool:
    """Whether it has `Trackable._trackable_children`, also if it is of another class: a layer or optimizer of Keras."""
    return hasattr(type(thing), "_trackable_children")


def children_of(thing: object) -> list[tuple[str, Any]]:
    """Pairs (name, object) of the trackable objects that an object holds."""
    if _tells_its_children(thing):
        return list(thing._trackable_children())  # type: ignore[attr-defined]
    if isinstance(thing, Optimizer):
        return thing._named_non_slot_variables()
    named: Iterable[tuple[Any, Any]] = ()
    if isinstance(thing, dict):
        named = thing.items()
    elif isinstance(thing, list):
        named = enumerate(thing)
    elif isinstance(thing, Layer):
        public = [(name, value) for name, value in vars(thing).items() if not name.startswith("_")]
        named = [(name, value) for name, value in public if not isinstance(value, LookupInterface)]  # as in 1.15.5
    return [(str(name), value) for name, value in named if is_trackable(value, inside=True)]


def _names_of_state(thing: object) -> list[str]:
    """What a checkpoint calls the parts of an object's state that savers save."""
    return [_VALUE] if isinstance(thing, Variable) else list(_factories(thing))


def _factories(thing: object) -> dict[str, Any]:
    """Of an object that makes its saveables itself, as TensorFlow's do, a table for one: name of a part -> function."""
    return thing._gather_saveables_for_checkpoint() if hasattr(type(thing), GATHER) else {}  # type: ignore[attr-defined]


def saved_as(thing: Any, key: str) -> Any:
    """What a saver saves of an object under a key of a checkpoint of objects: a variable or a saveable."""
    if isinstance(thing, Variable):
        return thing
    part = key.rpartition("/")[2]
    made = next(made for name, made in _factories(thing).items() if _escaped(name) == part)
    return made(name=key) if callable(made) else made


def saver_items(things: list[Any]) -> dict[str, Any]:
    """The variables of a list of objects by their names, and what other objects of it have for savers."""
    items = {thing.op.name: thing for thing in things if isinstance(thing, Variable)}
    return items | named_saveables([thing for thing in things if not isinstance(thing, Variable) and _factories(thing)])


@dataclass
class Reached:
    """An object of an object graph.

    Attributes:
      thing: the object.
      path: the path of attributes from the root.
      children: pairs (name, number) of the objects that it holds.
      slots: triples (name, number of the variable, number of the slot) of an optimizer's slots.
    """

    thing: Any
    path: str
    children: list[tuple[str, int]] = field(default_factory=list)
    slots: list[tuple[str, int, int]] = field(default_factory=list)

    def key(self, part: str) -> str:
        """The key of a part of its state in a checkpoint."""
        return f"{self.path}/.ATTRIBUTES/{_escaped(part)}"


class ObjectGraph:
    """The objects that are reachable from a root, by shortest paths; the slots of optimizers come last.

    Attributes:
      reached: the objects; the index of an object is its number.
    """

    def __init__(self, root: object) -> None:
        self.reached: list[Reached] = []
        self._numbers: dict[int, int] = {}
        self._add(root, "")
        waiting = collections.deque(self.reached)
        while waiting:
            holder = waiting.popleft()
            for name, thing in children_of(holder.thing):
                if id(thing) not in self._numbers:
                    path = _escaped(name)
                    self._add(thing, f"{holder.path}/{path}" if holder.path else path)
                    waiting.append(self.reached[-1])
                holder.children.append((name, self._numbers[id(thing)]))
        for holder in list(self.reached):
            if hasattr(holder.thing, "get_slot_names"):
                self._add_slots(holder)

    def _add(self, thing: object, path: str) -> int:
        number = self._numbers[id(thing)] = len(self.reached)
        self.reached.append(Reached(thing, path))
        return number

    def _add_slots(self, optimizer: Reached) -> None:
        variables = [(i, r) for i, r in enumerate(self.reached) if isinstance(r.thing, Variable)]
        for name in optimizer.thing.get_slot_names():
            for number, variable in variables:
                slot = _slot(optimizer.thing, variable.thing, name)
                if slot is not None and id(slot) not in self._numbers:
                    path = f"{variable.path}/.OPTIMIZER_SLOT/{optimizer.path}/{_escaped(name)}"
                    optimizer.slots.append((name, number, self._add(slot, path)))

    @property
    def variables(self) -> dict[str, Any]:
        """Key -> variable, or other object that has its state under this key."""
        return {r.key(part): r.thing for r in self.reached for part in _names_of_state(r.thing)}

    @property
    def states(self) -> dict[str, PythonState]:
        """Key -> object with a Python state."""
        return {r.key(_STATE): r.thing for r in self.reached if isinstance(r.thing, PythonState)}

    def to_proto(self) -> Any:
        """The TrackableObjectGraph message."""
        graph: Any = protos.TrackableObjectGraph()
        for item in self.reached:
            node = graph.nodes.add()
            for name, number in item.children:
                node.children.add(local_name=name, node_id=number)
            for name, original, slot in item.slots:
                node.slot_variables.add(slot_name=name, original_variable_node_id=original, slot_variable_node_id=slot)
            name_there = item.thing.op.name if isinstance(item.thing, Variable) else ""
            for part in [_STATE] if isinstance(item.thing, PythonState) else _names_of_state(item.thing):
                node.attributes.add(name=part, full_name=name_there, checkpoint_key=item.key(part))
        return graph


def _escaped(name: str) -> str:
    return name.replace(".", "..").replace("/", ".S")


@dataclass
class Match:
    """The Python objects that correspond to the objects of a checkpoint.

    Attributes:
      found: number in the checkpoint -> object.
      variables: key in the checkpoint -> variable, or other object that savers save.
      states: key in the checkpoint -> object with a Python state.
      unused: pairs (key, attribute) of values whose objects have no such state.
    """

    found: dict[int, Any]
    variables: dict[str, Any]
    states: dict[str, PythonState]
    unused: list[tuple[str, str]]


def match(root: object, graph: Any) -> Match:
    """Matches the objects below ``root`` with those of a TrackableObjectGraph message by their paths."""
    found: dict[int, Any] = {0: root}
    waiting = collections.deque([0])
    while waiting:
        number = waiting.popleft()
        here = dict(children_of(found[number]))
        for child in graph.nodes[number].children:
            below = here.get(child.local_name)
            if below is None and isinstance(found[number], Trackable):
                below = found[number]._lookup_dependency(child.local_name)
            if below is not None and child.node_id not in found:
                found[child.node_id] = below
                waiting.append(child.node_id)
    for number, thing in list(found.items()):
        if hasattr(thing, "get_slot_names"):
            _match_slots(thing, graph.nodes[number].slot_variables, found)
    made = Match(found, {}, {}, [])
    for number, thing in found.items():
        for attribute in graph.nodes[number].attributes:
            if attribute.name in _names_of_state(thing):
                made.variables[attribute.checkpoint_key] = thing
            elif isinstance(thing, PythonState) and attribute.name == _STATE:
                made.states[attribute.checkpoint_key] = thing
            elif not attribute.optional_restore:
                made.unused.append((attribute.checkpoint_key, attribute.name))
    return made


def _slot(optimizer: Any, variable: Any, name: str) -> Any:
    """The slot of a variable, or None; optimizers of Keras raise KeyError."""
    try:
        return optimizer.get_slot(variable, name)
    except KeyError:
        return None


def _match_slots(optimizer: Any, slots: Any, found: dict[int, Any]) -> None:
    for slot in slots:
        variable = found.get(slot.original_variable_node_id)
        here = _slot(optimizer, variable, slot.slot_name) if isinstance(variable, Variable) else None
        if here is not None:
            found[slot.slot_variable_node_id] = here


def object_graph_of(reader: CheckpointReader) -> Any:
    """The TrackableObjectGraph message of a checkpoint, or None when a `Saver` wrote it."""
    if not reader.has_tensor(OBJECT_GRAPH_KEY):
        return None
    return protos.TrackableObjectGraph.FromString(reader.get_tensor(OBJECT_GRAPH_KEY))


def names_in(graph: Any) -> list[str]:
    """A readable path of each object of a TrackableObjectGraph message, for error messages."""
    names = {0: "(root)"}
    waiting = collections.deque([0])
    while waiting:
        number = waiting.popleft()
        node = graph.nodes[number]
        for child in node.children:
            if child.node_id not in names:
                names[child.node_id] = f"{names[number]}.{child.local_name}"
                waiting.append(child.node_id)
    for number, node in enumerate(graph.nodes):
        for slot in node.slot_variables:
            of = names.get(slot.original_variable_node_id, "?")
            names[slot.slot_variable_node_id] = f"{names.get(number, '?')}'s state '{slot.slot_name}' for {of}"
    return [names.get(number, "?") for number in range(len(graph.nodes))]


# ---- Restoring a `Checkpoint`'s file with a `Saver`: maps the names of variables to object-based keys --------------


def keys_by_name(prefix: str) -> dict[str, str] | None:
    """Name of a variable -> its key in an object-based checkpoint; None for a name-based checkpoint."""
    graph = object_graph_of(CheckpointReader(prefix))
    if graph is None:
        return None
    return {a.full_name: a.checkpoint_key for node in graph.nodes for a in node.attributes}


def renamed_saveables(var_list: Sequence[Variable] | Mapping[str, Any], keys: dict[str, str]) -> list[SaveableObject]:
    """The saveables of a Saver's ``var_list`` (default: of the graph), named by their object-based keys.

    Raises:
      NotFoundError: when saveables have no key in the checkpoint.
    """
    saveables = validated_saveables(all_saveables() if var_list is None else var_list)
    specs = [spec for saveable in saveables for spec in saveable.specs]
    names = {spec.name for spec in specs}
    missing = sorted(names - set(keys))
    if missing:
        raise errors.NotFoundError.of(
            f"Existing variables not in the checkpoint: {', '.join(missing)}. Variables names when this checkpoint was"
            f" written which don't exist now: {', '.join(sorted(set(keys) - names))}. The checkpoint was saved using"
            " tf.train.Checkpoint: restore it with one, or give the Saver a dictionary with the old names."
        )
    for spec in specs:
        spec.name = keys[spec.name]
    return saveables
