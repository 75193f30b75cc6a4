"""Horovod's interface for TensorFlow 1 scripts: ``import tfmini.compat.horovod as hvd``.

Under ``tfmini run`` and ``tfmini launch --ps 0 --workers N``, ``import horovod.tensorflow as hvd`` works, too.
`init` reads the task from TF_CONFIG, starts this worker's server, and lets sessions without a target use its
collectives, since Horovod's scripts give no target. Without TF_CONFIG there is one worker.

The modules have the names of those of ``horovod.tensorflow`` where scripts import them (`mpi_ops`, `functions`,
`compression`, `util`, `elastic`).
"""

from __future__ import annotations

from typing import Any

from tfmini.compat.horovod import elastic, mpi_ops, util
from tfmini.compat.horovod import world as worlds
from tfmini.compat.horovod.compression import Compression, Compressor
from tfmini.compat.horovod.functions import allgather_object, broadcast_object, broadcast_object_fn
from tfmini.compat.horovod.mpi_ops import *  # noqa: F403 - its `__all__` is part of this one
from tfmini.compat.horovod.operations import (
    allreduce,
    broadcast_variables,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)  # fmt: skip
from tfmini.compat.horovod.optimizer import DistributedOptimizer
from tfmini.compat.horovod.util import _cache, _executing_eagerly, _make_subgraph, refs_to_vars, vars_to_refs
from tfmini.graph.operation import Operation
from tfmini.ops.variables.functions import global_variables
from tfmini.train.replicas.all_reduce import BroadcastVariablesHook

__version__ = "0.28.1"
__all__ = [
    *mpi_ops.__all__,
    "BroadcastGlobalVariablesHook", "Compression", "Compressor", "DistributedOptimizer", "allgather_object",
    "allreduce", "broadcast_global_variables", "broadcast_object", "broadcast_object_fn", "broadcast_variables",
    "elastic", "grouped_allreduce", "grouped_reducescatter", "mpi_ops", "reducescatter", "refs_to_vars", "util",
    "vars_to_refs",
]  # fmt: skip
__all__ += ["_cache", "_executing_eagerly", "_make_subgraph"]  # scripts use hvd._executing_eagerly

_ABSENT = {
    "callbacks": "import horovod.tensorflow.keras or horovod.keras for Keras",
    "SyncBatchNormalization": "use tf.layers.batch_normalization, with hvd.allreduce of its moments",
    "DistributedGradientTape": "eager mode is out of tfmini's scope; use hvd.DistributedOptimizer",
    "PartialDistributedGradientTape": "eager mode is out of tfmini's scope; use hvd.DistributedOptimizer",
    "join": "every rank must run the same number of steps; use tf.train.StopAtStepHook",
    "start_timeline": "use `tfmini trace`, or RunOptions.trace_level",
    "stop_timeline": "use `tfmini trace`, or RunOptions.trace_level",
}


def __getattr__(name: str) -> Any:
    if name in _ABSENT:
        raise AttributeError(f"tfmini's Horovod has no hvd.{name}: {_ABSENT[name]}.")
    raise AttributeError(f"module 'horovod.tensorflow' has no attribute {name!r} (tfmini.compat.horovod)")


def broadcast_global_variables(root_rank: int) -> Operation:
    """`broadcast_variables` of all global variables."""
    return broadcast_variables(global_variables(), root_rank)


class BroadcastGlobalVariablesHook(BroadcastVariablesHook):
    """Broadcasts all global variables of ``root_rank`` after a session is created.

    Args:
      root_rank: the worker that sends its values.
      device: ignored.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__(worlds.world().ranks, root_rank)
