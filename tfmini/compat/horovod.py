"""Horovod's interface for TensorFlow 1 scripts: ``import tfmini.compat.horovod as hvd``.

Under ``tfmini run`` and ``tfmini launch --ps 0 --workers N`` a script may also say
``import horovod.tensorflow as hvd``. `init` takes the role from TF_CONFIG, starts this worker's server, and
makes it the target of sessions that name none, as Horovod's scripts do. Without TF_CONFIG there is one worker.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from tfmini.cluster import ClusterSpec
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops import casting, math_elementwise
from tfmini.ops.variables import global_variables
from tfmini.runtime import servers
from tfmini.runtime.server import Server
from tfmini.train.all_reduce import AllReduceOptimizer, BroadcastVariablesHook, Ranks
from tfmini.train.optimizer import GradAndVar, Optimizer

__all__ = [
    "BroadcastGlobalVariablesHook", "Compression", "DistributedOptimizer", "allgather", "allreduce", "broadcast",
    "broadcast_global_variables", "broadcast_variables", "init", "is_initialized", "local_rank", "local_size",
    "mpi_threads_supported", "rank", "shutdown", "size",
]  # fmt: skip

_GROUP_KEY = 0x6876  # apart from the groups that a script makes itself


class _World:
    """This process among the workers."""

    def __init__(self, hosts: list[str], rank: int, server: Server | None) -> None:
        self.hosts, self.server = hosts, server
        self.ranks = Ranks(len(hosts), rank, _GROUP_KEY)


_worlds: list[_World] = []  # one when initialised


def init(comm: Any = None) -> None:
    """Finds out who this worker is and starts its server. A second call does nothing.

    Raises:
      ValueError: for ``comm`` (communicators of MPI are not supported), or a task that is no worker.
    """
    if comm is not None:
        raise ValueError("hvd.init(comm=...) is not supported: the workers are those of TF_CONFIG.")
    if not _worlds:
        _worlds.append(_world_of(json.loads(os.environ.get("TF_CONFIG") or "{}")))


def _world_of(config: dict[str, Any]) -> _World:
    if not config.get("cluster"):
        return _World(["localhost"], 0, None)
    cluster = ClusterSpec(config["cluster"])
    job, index = config["task"]["type"], int(config["task"]["index"])
    workers = [t for name in ("chief", "worker") for t in cluster.tasks() if t.job == name]
    places = [(t.job, t.task) for t in workers]
    if (job, index) not in places:
        raise ValueError(f"/job:{job}/task:{index} takes no part in Horovod: launch workers only (--ps 0).")
    server = Server(cluster, job_name=job, task_index=index)
    servers.set_default_target(server.target)
    return _World([t.address.rpartition(":")[0] for t in workers], places.index((job, index)), server)


def _world() -> _World:
    if not _worlds:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return _worlds[0]


def shutdown() -> None:
    """Stops this worker's server."""
    if _worlds:
        server = _worlds.pop().server
        if server is not None:
            servers.set_default_target("")
            server.stop()


def is_initialized() -> bool:
    """Whether `init` has been called."""
    return bool(_worlds)


def rank() -> int:
    """The number of this worker."""
    return _world().ranks.rank


def size() -> int:
    """How many workers there are."""
    return _world().ranks.size


def local_rank() -> int:
    """The number of this worker among those on its host."""
    world = _world()
    return world.hosts[: world.ranks.rank].count(world.hosts[world.ranks.rank])


def local_size() -> int:
    """How many workers are on this host."""
    world = _world()
    return world.hosts.count(world.hosts[world.ranks.rank])


def mpi_threads_supported() -> bool:
    """False: there is no MPI here."""
    return False


class _NoneCompressor:
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        return tensor


class _FP16Compressor:
    """Sends floats as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return (casting.cast(tensor, "float16") if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        return casting.cast(tensor, context)


class Compression:
    """How tensors travel."""

    none = _NoneCompressor
    fp16 = _FP16Compressor


def allreduce(
    tensor: Any,
    average: bool = True,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    name: str | None = None,
) -> Any:
    """The mean (or sum) of a tensor over all workers; of `IndexedSlices`, all of them.

    Args:
      tensor: of the same shape and dtype on all workers.
      average: mean or sum.
      device_dense, device_sparse: accepted; the work is done on the CPU.
      compression: from `Compression`.
      name: for error messages; workers that call it differently get an error.
    """
    ranks = _world().ranks
    if isinstance(tensor, IndexedSlices):
        values = math_elementwise.divide(tensor.values, float(ranks.size)) if average else tensor.values
        gathered = ranks.all_gather(values, f"{name or ''}")
        return IndexedSlices(gathered, ranks.all_gather(tensor.indices, f"{name or ''}"), tensor.dense_shape)
    small, context = compression.compress(convert_to_tensor(tensor))
    return compression.decompress(ranks.all_reduce(small, name or "", mean=average), context)


def allgather(tensor: Any, name: str | None = None) -> Tensor:
    """The workers' tensors joined along the first dimension, which may differ."""
    return _world().ranks.all_gather(tensor, name or "")


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> Tensor:
    """The tensor of ``root_rank``, on all workers."""
    return _world().ranks.broadcast(tensor, root_rank, name or "")


def broadcast_variables(variables: Iterable[Any], root_rank: int) -> Operation:
    """An operation that gives variables the values that they have at ``root_rank``."""
    return _world().ranks.broadcast_variables(variables, root_rank)


def broadcast_global_variables(root_rank: int) -> Operation:
    """`broadcast_variables` of all global variables."""
    return broadcast_variables(global_variables(), root_rank)


class BroadcastGlobalVariablesHook(BroadcastVariablesHook):
    """Broadcasts all global variables of ``root_rank`` when a session has been made.

    Args:
      root_rank: whose.
      device: accepted.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__(_world().ranks, root_rank)


class _Distributed(AllReduceOptimizer):
    """An `AllReduceOptimizer` with compression and dense reduction of sparse gradients."""

    def __init__(self, opt: Optimizer, name: str | None, compression: Any, sparse_as_dense: bool) -> None:
        ranks = _world().ranks
        name = name or f"Distributed{type(opt).__name__}"
        super().__init__(opt, ranks.size, ranks.rank, ranks.group_key, name=name)
        self._compression, self._sparse_as_dense = compression, sparse_as_dense

    def _reduce(self, pairs: Any) -> list[Tensor]:
        small = [self._compression.compress(grad) for grad, _ in pairs]
        reduced = super()._reduce([(value, variable) for (value, _), (_, variable) in zip(small, pairs)])
        return [self._compression.decompress(value, context) for value, (_, context) in zip(reduced, small)]

    def _reduce_sparse(self, grad: IndexedSlices, variable: Any) -> Any:
        if not self._sparse_as_dense:
            return super()._reduce_sparse(grad, variable)
        pair: GradAndVar = convert_to_tensor(grad), variable
        return self._reduce([pair])[0]


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: Optimizer,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
) -> Optimizer:
    """An optimizer that applies the mean gradient of all workers (see `tfmini.train.AllReduceOptimizer`).

    Args:
      optimizer: the one to wrap.
      name: default: ``Distributed`` and the optimizer's class.
      use_locking, device_dense, device_sparse: accepted.
      compression: from `Compression`.
      sparse_as_dense: reduce sparse gradients as dense ones.
    """
    return _Distributed(optimizer, name, compression, sparse_as_dense)
