"""Finds the layers and variables of a layer or model: in its attributes, and in their lists and dictionaries.

Each attribute is noted when it is set, in this order; what lists and dictionaries have is looked up when it is asked
for, so that a program may change them as it likes.
"""

from __future__ import annotations

import collections
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tfmini.compat.tf_keras.state import LIBRARY as NAME
from tfmini.compat.tf_keras.state import library_root, track_variable
from tfmini.ops.variables.base import variable_creator_scope
from tfmini.train.checkpointing.module import NoDependency

# Lists and dictionaries of the library itself, whose layers, metrics and variables are known otherwise or no part.
_LIBRARYS = {
    "_layers", "_metrics", "_trainable_weights", "_non_trainable_weights", "_collected_trainable_weights",
    "_updates", "_losses", "_inbound_nodes", "_outbound_nodes",
    "_compile_metrics", "_compile_weighted_metrics", "_compile_metric_functions", "_output_loss_metrics",
    "_per_output_metrics", "_per_output_weighted_metrics",
}  # fmt: skip
_CONTAINERS = (list, tuple, dict, collections.OrderedDict)


def tracked(owner: object, name: str, value: object) -> Any:
    """Notes the value that an attribute gets, and forgets the one that it had; returns the value."""
    if isinstance(value, NoDependency):
        return value.value
    if name not in _LIBRARYS and _notes_attributes(owner) and not _is_property(owner, name):
        _forget(owner, name, value)
        for variable in filter(_is_variable, _contents(value)):
            track_variable(variable)
        if getattr(value, "_tracked", False):
            _share(owner, value)
        if type(value) in _CONTAINERS or isinstance(value, _layer_class()) and not isinstance(value, _metric_class()):
            noted = owner.__dict__.setdefault("_noted", [])
            if not any(value is known for known in noted):
                noted.append(value)
    return value


def takes_positions(make: Callable[..., None]) -> Callable[..., None]:
    """A layer's ``__init__`` whose first arguments may come without their names, as in TensorFlow."""

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, **dict(zip(("trainable", "name", "dtype", "dynamic"), args)), **kwargs)

    return __init__


def _share(owner: object, weight: Any) -> None:
    """Makes a layer's weight one of its owner as well, which may take it from the layer afterwards."""
    listed = owner.__dict__.setdefault("_trainable_weights" if weight.trainable else "_non_trainable_weights", [])
    if not any(weight is known for known in listed):
        listed.append(weight)


def untracked(owner: object, name: str) -> None:
    """Deletes an attribute, and forgets its value."""
    if name not in _LIBRARYS:
        _forget(owner, name, None)
    object.__delattr__(owner, name)


def layers_of(owner: object) -> Any:
    """The layers of a layer or model, each once; of models of inputs and outputs, and sequences, the library's list."""
    listed = owner.__dict__.get("_layers", [])
    if not _takes_containers(owner):
        return listed
    found = _contents(owner.__dict__.get("_noted", []))
    return _once([*(value for value in found if isinstance(value, _layer_class())), *listed])


def own_weights(owner: object, kind: str) -> list[Any]:
    """The weights of a layer or model that are of no layer of it: those that train, or those that do not."""
    listed = owner.__dict__.get(kind, [])
    if not _takes_containers(owner):
        return list(listed)
    trains = kind == "_trainable_weights"
    found = [value for value in _contents(owner.__dict__.get("_noted", [])) if _is_variable(value)]
    return _once([*listed, *(value for value in found if bool(value.trainable) is trains)])


def set_trainable(self: Any, value: bool) -> None:
    """Says of a layer, and of all layers that it has now, whether they are trained."""
    vars(self)["_trainable"] = value
    for below in layers_of(self):
        below.trainable = value


def weights_by_layer(self: Any) -> list[Any]:
    """All weights in the order of the layers, and then the model's own; Keras 2.3 puts those that are trained first."""
    if not self._is_graph_network and "build" in vars(type(self)) and not self.built:
        raise ValueError(
            f"Weights for model {self.name} have not yet been created. They are when the model is first called on"
            " inputs, or by `build()` with an `input_shape`."
        )
    own = [*vars(self)["_trainable_weights"], *vars(self)["_non_trainable_weights"]]
    return list(dict.fromkeys([*_of_parts(self, "weights"), *own]))


def trained_by_layer(self: Any) -> list[Any]:
    """The weights that are trained: those of the layers, and then the model's own."""
    if not self.trainable:
        return []
    return [*_of_parts(self, "trainable_weights"), *vars(self)["_trainable_weights"]]


def others_by_layer(self: Any) -> list[Any]:
    """The weights that are not trained; those that a model would train, if it does not, are the first."""
    found = [*_of_parts(self, "non_trainable_weights"), *vars(self)["_non_trainable_weights"]]
    if self.trainable:
        return found
    return [*_of_parts(self, "trainable_weights"), *vars(self)["_trainable_weights"], *found]


def _of_parts(model: Any, kind: str) -> list[Any]:
    """The weights of a kind of a model's layers, and of its variables in lists and dictionaries, in their order."""
    if not _takes_containers(model):
        return [weight for layer in model.layers for weight in getattr(layer, kind)]
    found: list[Any] = []
    for part in _once([*_contents(vars(model).get("_noted", [])), *layers_of(model)]):
        if isinstance(part, _layer_class()):
            found += getattr(part, kind)
        elif _is_variable(part) and kind in ("weights", ("non_trainable_weights", "trainable_weights")[part.trainable]):
            found.append(part)
    return found


def takes_layers(owner: object) -> bool:
    """Whether a layer that an attribute gets is one of the owner's: not of a model of inputs and outputs."""
    return not owner.__dict__.get("_is_graph_network", False) and type(owner).__name__ != "Sequential"


def _takes_containers(owner: object) -> bool:
    return takes_layers(owner) and not isinstance(owner, sys.modules[f"{NAME}.engine.sequential"].Sequential)


def _notes_attributes(owner: object) -> bool:
    is_off = getattr(sys.modules[f"{NAME}.engine.base_layer"]._DISABLE_TRACKING, "value", False)
    return not is_off and takes_layers(owner)


def _is_property(owner: object, name: str) -> bool:
    """Whether a class says what setting an attribute does; and the states of recurrent layers, which are no weights."""
    owned = getattr(type(owner), name, None)
    return isinstance(owned, property) or name == "states" and hasattr(type(owner), "reset_states")


def _forget(owner: object, name: str, value: object) -> None:
    """Removes the value of an attribute from those of the owner, unless another attribute has it too."""
    attributes = owner.__dict__
    old = attributes.get(name)
    if old is None or old is value or any(other is old for key, other in attributes.items() if key != name):
        return
    if takes_layers(owner):
        for listed in ("_noted", "_layers", "_trainable_weights", "_non_trainable_weights"):
            if isinstance(attributes.get(listed), list):
                attributes[listed][:] = [known for known in attributes[listed] if known is not old]


def _contents(value: Any, seen: frozenset[int] = frozenset()) -> Iterator[Any]:
    """What is in lists, tuples and dictionaries (by their keys), one in another."""
    if id(value) in seen or type(value) not in _CONTAINERS:
        yield value
        return
    is_dict = isinstance(value, dict)
    for part in [value[key] for key in sorted(value, key=str)] if is_dict else value:
        yield from _contents(part, seen | {id(value)})


def _once(values: list[Any]) -> list[Any]:
    return list({id(value): value for value in values}.values())


def _is_variable(value: object) -> bool:
    """Whether it is a variable that no layer has yet."""
    known = getattr(value, "_tracked", False) or isinstance(value, _layer_class())
    return not known and all(hasattr(value, name) for name in ("initializer", "trainable", "get_shape"))


def _layer_class() -> Any:
    return sys.modules[f"{NAME}.engine.base_layer"].Layer


def _metric_class() -> Any:
    return sys.modules[f"{NAME}.metrics"].Metric


def submodules(self: Any) -> tuple[Any, ...]:
    """All layers below a layer, its attributes and theirs (``tf.Module.submodules``)."""
    layer_type = library_root().engine.base_layer.Layer
    found: dict[int, Any] = {}
    waiting, seen = list(vars(self).values()), set()
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, layer_type) and value is not self and id(value) not in found:
            found[id(value)] = value
            waiting += vars(value).values()
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen.add(id(value))  # the keys of a dictionary have no order here: they may be of several types
            waiting += value.values() if isinstance(value, dict) else value
    return tuple(found.values())


def create_once(layer: Any, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
    """Makes a variable of a `Lambda`'s function, unless it has one of that name; subclasses may make it otherwise."""
    made, name = vars(layer).setdefault("_variable_dict", {}), kwargs.get("name")
    if name not in made:
        made[name] = next_creator(**kwargs)
        (layer._trainable_weights if made[name].trainable else layer._non_trainable_weights).append(made[name])
        track_variable(made[name])
    return made[name]


def with_variables(layer: Any, inputs: Any, arguments: dict[str, Any]) -> Any:
    """Calls the function of a `Lambda`, which owns the variables that it makes."""
    with variable_creator_scope(layer._variable_creator):
        return layer.function(inputs, **arguments)
