"""Ops of staging areas: ``Stage``, ``Unstage``, … and the ``MapStage`` and ``OrderedMapStage`` families.

They have no handle: an op finds the area by container and name on its own device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.dtypes import DType, int64
from tfmini.graph.families import ShapeRule, all_of, unknown_shapes
from tfmini.graph.waiting import Wait
from tfmini.ops.array.kernel_arguments import ComponentWait, refuse
from tfmini.ops.queues.staging_state import MapStageState, StageState
from tfmini.ops.shared_state import state_op

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


def _area(resources: Any, container: bytes, shared_name: bytes, node: Any, capacity: int, memory: int) -> StageState:
    name = shared_name.decode() or node.name
    return resources.lookup_or_create(  # type: ignore[no-any-return]
        container, "staging area", name, lambda: StageState(name, capacity, memory)
    )


@stage.async_kernel("CPU")
def _stage(
    wait: Wait, values: list[Any], *, resources: Any, container: bytes, shared_name: bytes, node: Any, capacity: int,
    memory_limit: int,
) -> None:  # fmt: skip
    _area(resources, container, shared_name, node, capacity, memory_limit).put(wait, values)


@unstage.async_kernel("CPU")
def _unstage(
    wait: Wait, *, resources: Any, container: bytes, shared_name: bytes, node: Any, capacity: int, memory_limit: int,
    dtypes: list[DType],
) -> None:  # fmt: skip
    area = _area(resources, container, shared_name, node, capacity, memory_limit)
    area.get(ComponentWait(wait, dtypes), len(dtypes))


@stage_peek.async_kernel("CPU")
def _peek(
    wait: Wait, index: Any, *, resources: Any, container: bytes, shared_name: bytes, node: Any, capacity: int,
    memory_limit: int, dtypes: list[DType],
) -> None:  # fmt: skip
    area = _area(resources, container, shared_name, node, capacity, memory_limit)
    area.peek(ComponentWait(wait, dtypes), int(index), len(dtypes))


@stage_size.kernel("CPU")
def _size(*, resources: Any, container: bytes, shared_name: bytes, node: Any, capacity: int, memory_limit: int) -> Any:
    return np.int32(_area(resources, container, shared_name, node, capacity, memory_limit).size())


@stage_clear.kernel("CPU")
def _clear(
    *, resources: Any, container: bytes, shared_name: bytes, node: Any, capacity: int, memory_limit: int
) -> tuple[()]:
    _area(resources, container, shared_name, node, capacity, memory_limit).empty()
    return ()


# ---- MapStage -------------------------------------------------------------------------------


def _map_area(resources: Any, node: Any) -> MapStageState:
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


def _key(key: Any) -> int:
    if not np.size(key):
        refuse("key must not be empty")
    if np.size(key) != 1:
        refuse(f"key must be an int64 scalar, got tensor with shape: {list(np.shape(key))}")
    return int(np.ravel(key)[0])


def _indices(indices: Any) -> list[int]:
    return [int(i) for i in np.ravel(indices)]


def _typed(wait: Wait, node: Any) -> Any:
    """A wait that refuses other values than those that the node says it gets."""
    return ComponentWait(wait, node.attrs["dtypes"])


@all_of(map_ops.put, ordered_map_ops.put).async_kernel("CPU")
def _map_put(wait: Wait, key: Any, indices: Any, values: list[Any], *, resources: Any, node: Any) -> None:
    _map_area(resources, node).put(wait, _key(key), _indices(indices), values)


@all_of(map_ops.peek, ordered_map_ops.peek).async_kernel("CPU")
def _map_peek(wait: Wait, key: Any, indices: Any, *, resources: Any, node: Any) -> None:
    _map_area(resources, node).get(_typed(wait, node), _key(key), _indices(indices), remove=False)


@all_of(map_ops.pop, ordered_map_ops.pop).async_kernel("CPU")
def _map_pop(wait: Wait, key: Any, indices: Any, *, resources: Any, node: Any) -> None:
    _map_area(resources, node).get(_typed(wait, node), _key(key), _indices(indices), remove=True)


@all_of(map_ops.pop_any, ordered_map_ops.pop_any).async_kernel("CPU")
def _map_pop_any(wait: Wait, indices: Any, *, resources: Any, node: Any) -> None:
    _map_area(resources, node).get_any(ComponentWait(wait, [int64, *node.attrs["dtypes"]]), _indices(indices))


@all_of(map_ops.size, ordered_map_ops.size).kernel("CPU")
def _map_size(*, resources: Any, node: Any) -> Any:
    return np.int32(len(_map_area(resources, node).complete))


@all_of(map_ops.incomplete_size, ordered_map_ops.incomplete_size).kernel("CPU")
def _map_incomplete_size(*, resources: Any, node: Any) -> Any:
    return np.int32(len(_map_area(resources, node).incomplete))


@all_of(map_ops.clear, ordered_map_ops.clear).kernel("CPU")
def _map_clear(*, resources: Any, node: Any) -> tuple[()]:
    _map_area(resources, node).empty()
    return ()
