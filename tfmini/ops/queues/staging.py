"""``StagingArea`` and ``MapStagingArea`` (``tf.contrib.staging``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tfmini import dtypes as types
from tfmini.core_types import Array, TensorLike
from tfmini.dtypes import DType, int64
from tfmini.export import export
from tfmini.graph.families import (
    Operation,
    ShapeRule,
    Tensor,
    all_of,
    convert_to_tensor,
    get_default_graph,
    unknown_shapes,
)
from tfmini.graph.node import Node
from tfmini.graph.op_types import DeviceResources, Wait
from tfmini.graph.scoping import colocate_with, container, name_scope
from tfmini.ops.array.kernel_arguments import ComponentWait, refuse
from tfmini.ops.control import identity, no_op
from tfmini.ops.queues.queues import values_of
from tfmini.ops.queues.staging_state import MapStageState, StageState
from tfmini.ops.waiting_line import state_op
from tfmini.shapes import TensorShape, unknown_shape

# ---- Ops of staging areas: ``Stage``, ``Unstage``, … and the ``MapStage`` and ``OrderedMapStage`` families ---------
# They have no handle: an op finds the area by container and name on its own device.

_ATTRS = """capacity: int >= 0 = 0
    memory_limit: int >= 0 = 0
    dtypes: list(type)
    container: string = ''
    shared_name: string = ''"""
_SOME = _ATTRS.replace("dtypes: list(type)", "dtypes: list(type) >= 1")

stage = state_op(f"Stage(values: dtypes)\n{_SOME}", [], keeps=True)
unstage = state_op(f"Unstage() -> values: dtypes\n{_SOME}", unknown_shapes)
stage_peek = state_op(f"StagePeek(index: int32) -> values: dtypes\n{_SOME}", unknown_shapes)
stage_size = state_op(f"StageSize() -> size: int32\n{_ATTRS}", [()])
stage_clear = state_op(f"StageClear()\n{_ATTRS}", [])


class MapOps:
    """The ops of one kind of map staging area."""

    def __init__(self, prefix: str) -> None:
        def make(name: str, signature: str, attrs: str, shape: ShapeRule = unknown_shapes, keeps: bool = False) -> Any:
            return state_op(f"{prefix}{name}{signature}\n{attrs}", shape, keeps=keeps)

        put_attrs = f"{_ATTRS}\nfake_dtypes: list(type) >= 1"
        self.put = make("Stage", "(key: int64, indices: int32, values: fake_dtypes)", put_attrs, [], keeps=True)
        self.peek = make("Peek", "(key: int64, indices: int32) -> values: dtypes", _SOME)
        self.pop = make("Unstage", "(key: int64, indices: int32) -> values: dtypes", _SOME)
        self.pop_any = make("UnstageNoKey", "(indices: int32) -> key: int64, values: dtypes", _SOME)
        self.size = make("Size", "() -> size: int32", _ATTRS, [()])
        self.incomplete_size = make("IncompleteSize", "() -> size: int32", _ATTRS, [()])
        self.clear = make("Clear", "()", _ATTRS, [])


map_ops, ordered_map_ops = MapOps("Map"), MapOps("OrderedMap")


# ---- Stage ----------------------------------------------------------------------------------


def _area(resources: Any, container: bytes, shared_name: bytes, node: Node, capacity: int, memory: int) -> StageState:
    name = shared_name.decode() or node.name
    return resources.lookup_or_create(  # type: ignore[no-any-return]
        container, "staging area", name, lambda: StageState(name, capacity, memory)
    )


@stage.async_kernel("CPU")
def _stage(
    wait: Wait, values: list[Any], *, resources: DeviceResources, container: bytes, shared_name: bytes, node: Node,
    capacity: int, memory_limit: int,
) -> None:  # fmt: skip
    _area(resources, container, shared_name, node, capacity, memory_limit).put(wait, values)


@unstage.async_kernel("CPU")
def _unstage(
    wait: Wait, *, resources: DeviceResources, container: bytes, shared_name: bytes, node: Node, capacity: int,
    memory_limit: int, dtypes: list[DType],
) -> None:  # fmt: skip
    area = _area(resources, container, shared_name, node, capacity, memory_limit)
    area.get(ComponentWait(wait, dtypes), len(dtypes))


@stage_peek.async_kernel("CPU")
def _peek(
    wait: Wait, index: Array, *, resources: DeviceResources, container: bytes, shared_name: bytes, node: Node,
    capacity: int, memory_limit: int, dtypes: list[DType],
) -> None:  # fmt: skip
    area = _area(resources, container, shared_name, node, capacity, memory_limit)
    area.peek(ComponentWait(wait, dtypes), int(index), len(dtypes))


@stage_size.kernel("CPU")
def _size(
    *, resources: DeviceResources, container: bytes, shared_name: bytes, node: Node, capacity: int, memory_limit: int
) -> Any:
    return np.int32(_area(resources, container, shared_name, node, capacity, memory_limit).size())


@stage_clear.kernel("CPU")
def _clear(
    *, resources: DeviceResources, container: bytes, shared_name: bytes, node: Node, capacity: int, memory_limit: int
) -> tuple[()]:
    _area(resources, container, shared_name, node, capacity, memory_limit).empty()
    return ()


# ---- MapStage -------------------------------------------------------------------------------


def _map_area(resources: DeviceResources, node: Node) -> MapStageState:
    attrs = node.attrs
    name = attrs["shared_name"].decode() or node.name
    ordered = node.op.startswith("Ordered")
    limits = attrs["capacity"], attrs["memory_limit"]
    area: MapStageState = resources.lookup_or_create(
        attrs["container"],
        "ordered staging map" if ordered else "staging map",
        name,
        lambda: MapStageState(name, *limits, len(attrs["dtypes"]), ordered),
    )
    # Ops that take values have only the types of those values, so the op with the most types gives the tuple's width.
    area.width = max(area.width, len(attrs["dtypes"]))
    return area


def _key(key: Array) -> int:
    if not np.size(key):
        refuse("key must not be empty")
    if np.size(key) != 1:
        refuse(f"key must be an int64 scalar, got tensor with shape: {list(np.shape(key))}")
    return int(np.ravel(key)[0])


def _indices(indices: Array) -> list[int]:
    return [int(i) for i in np.ravel(indices)]


def _typed(wait: Wait, node: Node) -> Any:
    """A wait that refuses other values than those that the node says it gets."""
    return ComponentWait(wait, node.attrs["dtypes"])


@all_of(map_ops.put, ordered_map_ops.put).async_kernel("CPU")
def _map_put(
    wait: Wait, key: Array, indices: Array, values: list[Any], *, resources: DeviceResources, node: Node
) -> None:
    _map_area(resources, node).put(wait, _key(key), _indices(indices), values)


@all_of(map_ops.peek, ordered_map_ops.peek).async_kernel("CPU")
def _map_peek(wait: Wait, key: Array, indices: Array, *, resources: DeviceResources, node: Node) -> None:
    _map_area(resources, node).get(_typed(wait, node), _key(key), _indices(indices), remove=False)


@all_of(map_ops.pop, ordered_map_ops.pop).async_kernel("CPU")
def _map_pop(wait: Wait, key: Array, indices: Array, *, resources: DeviceResources, node: Node) -> None:
    _map_area(resources, node).get(_typed(wait, node), _key(key), _indices(indices), remove=True)


@all_of(map_ops.pop_any, ordered_map_ops.pop_any).async_kernel("CPU")
def _map_pop_any(wait: Wait, indices: Array, *, resources: DeviceResources, node: Node) -> None:
    _map_area(resources, node).get_any(ComponentWait(wait, [int64, *node.attrs["dtypes"]]), _indices(indices))


@all_of(map_ops.size, ordered_map_ops.size).kernel("CPU")
def _map_size(*, resources: DeviceResources, node: Node) -> Any:
    return np.int32(len(_map_area(resources, node).complete))


@all_of(map_ops.incomplete_size, ordered_map_ops.incomplete_size).kernel("CPU")
def _map_incomplete_size(*, resources: DeviceResources, node: Node) -> Any:
    return np.int32(len(_map_area(resources, node).incomplete))


@all_of(map_ops.clear, ordered_map_ops.clear).kernel("CPU")
def _map_clear(*, resources: DeviceResources, node: Node) -> tuple[()]:
    _map_area(resources, node).empty()
    return ()


# ---- The classes of staging areas ----------------------------------------------------------------------------------


class BaseStagingArea:
    """Base of the staging areas.

    Args:
      dtypes: of the values of a tuple.
      shapes: of the values, or None.
      names: of the values; if given, tuples are dictionaries.
      shared_name: the name by which other graphs find it.
      capacity: the most tuples; 0 for no limit.
      memory_limit: the most bytes; 0 for no limit.

    Raises:
      ValueError: when the lists differ in length.
    """

    def __init__(
        self, dtypes: Any, shapes: Any = None, names: Any = None, shared_name: str | None = None, capacity: int = 0,
        memory_limit: int = 0,
    ) -> None:  # fmt: skip
        if shared_name is None:
            self._name = get_default_graph().unique_name(type(self).__name__)
        elif isinstance(shared_name, str):
            self._name = shared_name
        else:
            raise ValueError("shared_name must be a string")
        self._dtypes = dtypes
        if shapes is not None and len(shapes) != len(dtypes):
            raise ValueError("StagingArea shapes must be the same length as dtypes")
        self._shapes = [unknown_shape() for _ in dtypes] if shapes is None else [TensorShape(s) for s in shapes]
        if names is not None and len(names) != len(dtypes):
            raise ValueError("StagingArea names must be the same length as dtypes")
        self._names = names
        self._capacity = capacity
        self._memory_limit = memory_limit
        # An area is found by device, container and name, so all ops on it have those of its making.
        self._container = get_default_graph()._container
        with name_scope(f"{self._name}_root"):
            self._coloc_op = no_op()

    @property
    def name(self) -> str:
        """The name of the area."""
        return self._name

    @property
    def dtypes(self) -> Any:
        """The types of the values."""
        return self._dtypes

    @property
    def shapes(self) -> list[TensorShape]:
        """The shapes of the values."""
        return self._shapes

    @property
    def names(self) -> Any:
        """The names of the values, if they have any."""
        return self._names

    @property
    def capacity(self) -> int:
        """The most tuples, 0 for no limit."""
        return self._capacity

    @property
    def memory_limit(self) -> int:
        """The most bytes, 0 for no limit."""
        return self._memory_limit

    def _attrs(self) -> dict[str, Any]:
        return {"shared_name": self._name, "capacity": self._capacity, "memory_limit": self._memory_limit}

    @contextmanager
    def _at_its_place(self) -> Iterator[None]:
        """The scopes for an op on the area, whatever the scopes around the call are."""
        with colocate_with(self._coloc_op), container(self._container):
            yield

    def _check_put_dtypes(self, vals: Any, indices: Any = None) -> tuple[list[Tensor], Any]:
        if isinstance(vals, dict):
            vals, indices = self._named(vals)
        elif self._names:
            raise ValueError("You must enqueue a dictionary in a staging area with names")
        elif indices is None:
            raise ValueError("Indices must be supplied when inserting a list of tensors")
        else:
            if len(indices) != len(vals):
                raise ValueError(f"Number of indices '{len(indices)}' doesn't match number of values '{len(vals)}'")
            if not isinstance(vals, (list, tuple)):
                vals, indices = [vals], [0]
        if len(vals) > len(self._dtypes):
            raise ValueError(f"Unexpected number of inputs '{len(vals)}' vs '{len(self._dtypes)}'")
        tensors = []
        for value, i in zip(vals, indices):
            dtype, shape = types.as_dtype(self._dtypes[i]), self._shapes[i]
            tensor = value if isinstance(value, Tensor) else convert_to_tensor(value, dtype, name=f"component_{i}")
            if tensor.dtype.base_dtype is not dtype:
                raise ValueError(f"Datatypes do not match. '{tensor.dtype}' != '{dtype}'")
            tensor.shape.assert_is_compatible_with(shape)
            tensors.append(tensor)
        return tensors, indices

    def _named(self, vals: dict[str, Any]) -> tuple[list[Any], list[int]]:
        if not self._names:
            raise ValueError("Staging areas must have names to enqueue a dictionary")
        if not set(vals) <= set(self._names):
            raise ValueError(
                "Keys in dictionary to put do not match names of staging area. "
                f"Dictionary: ({sorted(vals)}), Queue: ({sorted(self._names)})"
            )
        indices = [i for i, name in enumerate(self._names) if name in vals]
        return [vals[self._names[i]] for i in indices], indices

    def _here(self, tensors: Any) -> list[Tensor]:
        """The tensors on the current device, which may differ from the area's."""
        found = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
        if no_op().device != self._coloc_op.device:
            found = [identity(t, None) for t in found]
        return found

    def _tuple(self, tensors: list[Tensor], indices: Any) -> Any:
        found = self._here(tensors)
        for output, i in zip(found, indices):
            output.set_shape(self._shapes[i])
        if self._names:
            return {self._names[i]: t for t, i in zip(found, indices)}
        return found


@export("tf.contrib.staging.StagingArea")
class StagingArea(BaseStagingArea):
    """A buffer of tuples, first in, first out (``tf.contrib.staging.StagingArea``); see `BaseStagingArea`."""

    def put(self, values: Any, name: str | None = None) -> Operation:
        """Adds a tuple (list, or dictionary with names); waits while the area is full."""
        with name_scope(name, f"{self._name}_put", values_of(values)) as scope:
            if not isinstance(values, (list, tuple, dict)):
                values = [values]
            tensors, _ = self._check_put_dtypes(values, list(range(len(values))))
            with self._at_its_place():
                done: Operation = stage(tensors, name=scope, **self._attrs())
                return done

    def get(self, name: str | None = None) -> Any:
        """Takes the oldest tuple; waits while the area is empty."""
        with self._at_its_place():
            found = unstage(dtypes=self._dtypes, name=name or f"{self._name}_get", **self._attrs())
        return self._tuple(found, range(len(self._dtypes)))

    def peek(self, index: TensorLike, name: str | None = None) -> Any:
        """Returns the tuple at ``index`` without taking it; waits until it exists."""
        with self._at_its_place():
            found = stage_peek(index, dtypes=self._dtypes, name=name or f"{self._name}_peek", **self._attrs())
        return self._tuple(found, range(len(self._dtypes)))

    def size(self, name: str | None = None) -> Tensor:
        """The number of tuples, an int32 scalar."""
        with self._at_its_place():
            found: Tensor = stage_size(dtypes=self._dtypes, name=name or f"{self._name}_size", **self._attrs())
            return found

    def clear(self, name: str | None = None) -> Operation:
        """Forgets all tuples."""
        with self._at_its_place():
            done: Operation = stage_clear(dtypes=self._dtypes, name=name or f"{self._name}_clear", **self._attrs())
            return done


@export("tf.contrib.staging.MapStagingArea")
class MapStagingArea(BaseStagingArea):
    """A map from int64 keys to tuples, which may be put and taken in parts (``tf.contrib.staging.MapStagingArea``).

    Args:
      ordered: whether `get` without a key returns the smallest key first.
    """

    def __init__(
        self, dtypes: Any, shapes: Any = None, names: Any = None, shared_name: str | None = None,
        ordered: bool = False, capacity: int = 0, memory_limit: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(dtypes, shapes, names, shared_name, capacity, memory_limit)
        self._ordered = ordered
        self._ops = ordered_map_ops if ordered else map_ops

    def put(
        self, key: TensorLike, vals: TensorLike | Mapping[str, TensorLike], indices: Sequence[int] | None = None,
        name: str | None = None,
    ) -> Operation:  # fmt: skip
        """Adds values to the tuple of ``key``; waits while the area is full.

        Args:
          vals: a list with ``indices``, or with names a dictionary.
          indices: the positions of the values in the tuple, increasing.
        """
        with name_scope(name, f"{self._name}_put", values_of(vals)) as scope:
            tensors, places = self._check_put_dtypes(vals, indices)
            with self._at_its_place():
                return self._ops.put(  # type: ignore[no-any-return]
                    key, list(places), tensors, dtypes=self._dtypes, name=scope, **self._attrs()
                )

    def _asked_for(self, indices: Any) -> tuple[list[int], list[Any]]:
        if indices is None:
            indices = list(range(len(self._dtypes)))
        if not isinstance(indices, (tuple, list)):
            raise TypeError(f"Invalid indices type '{type(indices)}'")
        if not indices:
            raise ValueError("Empty indices")
        if all(isinstance(i, str) for i in indices):
            if self._names is None:
                raise ValueError(
                    f"String indices provided '{indices}', but this Staging Area was not created with names."
                )
            for name in indices:
                if name not in self._names:
                    raise ValueError(f"Named index '{name}' not in Staging Area names '{self._names}'")
            indices = [list(self._names).index(name) for name in indices]
        elif not all(isinstance(i, int) for i in indices):
            raise TypeError(f"Mixed types in indices '{indices}'. May only be str or int")
        return list(indices), [self._dtypes[i] for i in indices]

    def peek(self, key: TensorLike, indices: Sequence[int] | None = None, name: str | None = None) -> Any:
        """Returns values of the tuple of ``key`` without taking them; waits for the key."""
        places, dtypes = self._asked_for(indices)
        with self._at_its_place():
            found = self._ops.peek(key, places, dtypes=dtypes, name=name or f"{self._name}_pop", **self._attrs())
        return self._tuple(found, places)

    def get(self, key: TensorLike | None = None, indices: Sequence[int] | None = None, name: str | None = None) -> Any:
        """Takes values of the tuple of ``key``, or of any tuple; waits for it.

        Returns:
          (key, values).
        """
        places, dtypes = self._asked_for(indices)
        if key is not None:
            with self._at_its_place():
                found = self._ops.pop(key, places, dtypes=dtypes, name=name or f"{self._name}_get", **self._attrs())
            return key, self._tuple(found, places)
        with self._at_its_place():
            found = self._ops.pop_any(places, dtypes=dtypes, name=name or f"{self._name}_get_nokey", **self._attrs())
        return self._here(found[0])[0], self._tuple(found[1], places)

    def size(self, name: str | None = None) -> Tensor:
        """The number of complete tuples, an int32 scalar."""
        with self._at_its_place():
            name = name or f"{self._name}_size"
            return self._ops.size(dtypes=self._dtypes, name=name, **self._attrs())  # type: ignore[no-any-return]

    def incomplete_size(self, name: str | None = None) -> Tensor:
        """The number of incomplete tuples, an int32 scalar."""
        with self._at_its_place():
            name = name or f"{self._name}_incomplete_size"
            return self._ops.incomplete_size(dtypes=self._dtypes, name=name, **self._attrs())  # type: ignore[no-any-return]

    def clear(self, name: str | None = None) -> Operation:
        """Forgets all tuples."""
        with self._at_its_place():
            name = name or f"{self._name}_clear"
            return self._ops.clear(dtypes=self._dtypes, name=name, **self._attrs())  # type: ignore[no-any-return]
