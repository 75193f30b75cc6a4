"""Ops whose values are this worker's place, as the step finds it (``hvd.rank_op``), and the refusal of outsiders."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import errors
from tfmini.compat.horovod.world import GLOBAL, world
from tfmini.graph.operation import Tensor
from tfmini.graph.registry import op
from tfmini.graph.shape_functions import same_shape

_NOT_INITIALIZED, _UNKNOWN_SET = -1, -3  # Horovod's values of `process_set_included_op`

_rank = op("HorovodRank() -> rank: int32", stateful=True, shape=[()])
_local_rank = op("HorovodLocalRank() -> local_rank: int32", stateful=True, shape=[()])
_local_size = op("HorovodLocalSize() -> local_size: int32", stateful=True, shape=[()])
_size = op("HorovodSize() -> size: int32; process_set_id: int = 0", stateful=True, shape=[()])
_included = op("HorovodProcessSetIncluded() -> included: int32; process_set_id: int = 0", stateful=True, shape=[()])
_refuse = op("HorovodRefuse(input: T) -> output: T; T: type; message: string", stateful=True, shape=same_shape)

for _handle in (_rank, _local_rank, _local_size, _size, _included, _refuse):
    _handle.not_differentiable()


@_rank.kernel("CPU")
def _rank_kernel() -> Any:
    return np.int32(world().ranks.rank)


@_local_rank.kernel("CPU")
def _local_rank_kernel() -> Any:
    return np.int32(world().local_rank)


@_local_size.kernel("CPU")
def _local_size_kernel() -> Any:
    return np.int32(world().local_size)


@_size.kernel("CPU")
def _size_kernel(*, process_set_id: int) -> Any:
    return np.int32(len(world().members(process_set_id)))


@_included.kernel("CPU")
def _included_kernel(*, process_set_id: int) -> Any:
    try:
        here = world()
    except ValueError:
        return np.int32(_NOT_INITIALIZED)
    if process_set_id not in here.sets:
        return np.int32(_UNKNOWN_SET)
    return np.int32(here.ranks.rank in here.sets[process_set_id])


@_refuse.kernel("CPU")
def _refuse_kernel(value: Any, *, message: Any) -> Any:
    raise errors.InvalidArgumentError.of(message.decode())


def rank_op(name: str | None = None) -> Tensor:
    """An int32 scalar: the rank of the worker that runs the op, also where another process built the graph."""
    return _rank(name=name)


def local_rank_op(name: str | None = None) -> Tensor:
    """An int32 scalar: the number of the worker on its host."""
    return _local_rank(name=name)


def local_size_op(name: str | None = None) -> Tensor:
    """An int32 scalar: the number of workers on the host."""
    return _local_size(name=name)


def size_op(process_set_id: int = GLOBAL, name: str | None = None) -> Tensor:
    """An int32 scalar: the number of workers, or of those in a process set."""
    return _size(process_set_id=process_set_id, name=name)


def process_set_included_op(process_set_id: int = GLOBAL, name: str | None = None) -> Tensor:
    """An int32 scalar: 1 if the worker is in a process set, else 0; -1 before ``hvd.init``, -3 for an unknown set."""
    return _included(process_set_id=process_set_id, name=name)


def refused(value: Tensor, message: str) -> Tensor:
    """A tensor like ``value`` whose computation fails with an `InvalidArgumentError`."""
    return _refuse(value, message=message)
