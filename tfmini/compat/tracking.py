"""``tensorflow.python.training.tracking``: what libraries import of the rules by which checkpoints find objects."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, MutableSet
from contextlib import contextmanager
from typing import Any

from tfmini.export import export, export_names
from tfmini.train.checkpointing.module import NoDependency as NoDependency
from tfmini.train.checkpointing.object_graph import ObjectGraph
from tfmini.train.checkpointing.object_graph import Trackable as Trackable
from tfmini.train.checkpointing.object_graph import TrackableReference as TrackableReference


@export("tensorflow.python.training.tracking.base.no_automatic_dependency_tracking_scope")
@contextmanager
def no_automatic_dependency_tracking_scope(obj: Any) -> Iterator[None]:
    """Within, checkpoints leave out the attributes that an object gets."""
    before = set(vars(obj))
    try:
        yield
    finally:
        vars(obj).setdefault("_left_out", set()).update(set(vars(obj)) - before)


@export("tensorflow.python.training.tracking.base.no_automatic_dependency_tracking")
def no_automatic_dependency_tracking(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method so that checkpoints leave out the attributes that it sets."""

    @functools.wraps(method)
    def untracked(self: Any, *args: Any, **kwargs: Any) -> Any:
        with no_automatic_dependency_tracking_scope(self):
            return method(self, *args, **kwargs)

    return untracked


@export("tf.contrib.checkpoint.list_objects", "tensorflow.python.training.tracking.util.list_objects")
def list_objects(root_trackable: Any) -> list[Any]:
    """The objects that a checkpoint of an object has; of a layer or model of Keras, its variables among them."""
    if hasattr(root_trackable, "_inbound_nodes"):
        from tfmini.compat.tf_keras import saving, state

        root_trackable = saving.tree_of(state.library_root(), root_trackable)
    return [reached.thing for reached in ObjectGraph(root_trackable).reached]


@export("tensorflow.python.util.object_identity.ObjectIdentitySet")
class ObjectIdentitySet(MutableSet[Any]):
    """A set of objects that need no hash: two are the same if they are one."""

    def __init__(self, iterable: Iterable[Any] = ()) -> None:
        self._items = {id(item): item for item in iterable}

    def __contains__(self, item: object) -> bool:
        return id(item) in self._items

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    def add(self, value: Any) -> None:
        """Adds an object."""
        self._items[id(value)] = value

    def discard(self, value: Any) -> None:
        """Removes an object, if the set has it."""
        self._items.pop(id(value), None)


export_names("tensorflow.python.training.tracking.base", "Trackable TrackableReference")
export_names("tensorflow.python.training.tracking.tracking", "AutoTrackable=Trackable")
export_names("tensorflow.python.training.tracking.data_structures", "NoDependency")
