"""Horovod's interface for TensorFlow 1 scripts: ``import tfmini.compat.horovod as hvd``.

Under ``tfmini run`` and ``tfmini launch --ps 0 --workers N``, ``import horovod.tensorflow as hvd`` works, too.
`init` reads the task from TF_CONFIG, starts this worker's server, and makes it the default target of sessions,
since Horovod's scripts give no target. Without TF_CONFIG there is one worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tfmini import dtypes
from tfmini.compat.horovod_compression import Compression, Compressor
from tfmini.compat.horovod_world import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
    world,
)  # fmt: skip
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.array.casting import cast
from tfmini.ops.variables.functions import global_variables
from tfmini.train.optimizers.optimizer import Optimizer
from tfmini.train.optimizers.optimizer_inputs import GradAndVar
from tfmini.train.replicas import collective_gradients
from tfmini.train.replicas.all_reduce import AllReduceOptimizer, BroadcastVariablesHook

__version__ = "0.19.5"
__all__ = [
    "Adasum", "Average", "BroadcastGlobalVariablesHook", "Compression", "Compressor", "DistributedOptimizer", "Max",
    "Min", "Product", "Sum", "allgather", "allreduce", "broadcast", "broadcast_global_variables",
    "broadcast_variables", "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "gloo_built",
    "gloo_enabled", "grouped_allreduce", "init", "is_homogeneous", "is_initialized", "local_rank", "local_size",
    "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank", "rocm_built", "shutdown", "size",
]  # fmt: skip

_ABSENT = {
    "callbacks": (
        "Keras is out of tfmini's scope; use hvd.BroadcastGlobalVariablesHook(0) in a MonitoredTrainingSession"
    ),
    "keras": "Keras is out of tfmini's scope; use hvd.DistributedOptimizer with tf.train's optimizers",
    "elastic": "the workers of a run are fixed; a restarted worker joins again automatically",
    "DistributedGradientTape": "eager mode is out of tfmini's scope; use hvd.DistributedOptimizer",
    "join": "every rank must run the same number of steps; use tf.train.StopAtStepHook",
    "alltoall": "tfmini has no all-to-all; use hvd.allgather and take this rank's part",
}


def __getattr__(name: str) -> Any:
    if name in _ABSENT:
        raise AttributeError(f"tfmini's Horovod has no hvd.{name}: {_ABSENT[name]}.")
    raise AttributeError(f"module 'horovod.tensorflow' has no attribute {name!r} (tfmini.compat.horovod)")


class _ReduceOp:
    """A reduction over the ranks (``hvd.Sum`` and others)."""

    def __init__(self, name: str, merge: str, mean: bool = False) -> None:
        self.name, self.merge, self.mean = name, merge, mean

    def __repr__(self) -> str:
        return f"hvd.{self.name}"


Average, Sum = _ReduceOp("Average", "Add", mean=True), _ReduceOp("Sum", "Add")
Min, Max, Product = _ReduceOp("Min", "Min"), _ReduceOp("Max", "Max"), _ReduceOp("Product", "Mul")
Adasum = _ReduceOp("Adasum", "")


def _chosen(op: Any, average: bool | None) -> _ReduceOp:
    """Selects the reduction from ``op`` and the older ``average``.

    Raises:
      ValueError: when both are given.
      NotImplementedError: for `Adasum`.
    """
    if op is not None and average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if op is None:
        return Sum if average is False else Average
    if not isinstance(op, _ReduceOp):
        raise ValueError(f"op must be hvd.Average, Sum, Min, Max or Product, got {op!r}.")
    if op is Adasum:
        raise NotImplementedError("hvd.Adasum is not supported; use hvd.Average.")
    return op


def mpi_threads_supported() -> bool:
    """False: tfmini does not use MPI."""
    return False


def _false() -> bool:
    """False: tfmini has its own transports."""
    return False


mpi_built = mpi_enabled = gloo_built = gloo_enabled = _false
nccl_built = ddl_built = ccl_built = cuda_built = rocm_built = _false


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> Any:
    """Reduces a tensor over all workers, by default to the mean; concatenates `IndexedSlices`. Differentiable.

    Args:
      tensor: of the same shape and dtype on all workers.
      average: mean (default) or sum.
      device_dense, device_sparse: ignored; the CPU does the work.
      compression: from `Compression`.
      op: `Average`, `Sum`, `Min`, `Max` or `Product`, instead of ``average``.
      prescale_factor, postscale_factor: factors before and after.
      name: default: the name of the tensor's op. If the names of the workers differ, they get an error, since
        they reduce different tensors.

    Raises:
      ValueError: for both ``average`` and ``op``.
      NotImplementedError: for `Adasum`, or slices with anything but a mean or sum.
    """
    chosen, ranks = _chosen(op, average), world().ranks
    if isinstance(tensor, IndexedSlices):
        if chosen.merge != "Add":
            raise NotImplementedError(f"{chosen!r} does not support sparse tensors; use tf.convert_to_tensor first.")
        factor = prescale_factor * postscale_factor / (ranks.size if chosen.mean else 1)
        values = _scaled(tensor.values, factor)
        name = name or tensor.values.op.name
        gathered = collective_gradients.all_gather(ranks, values, f"{name}/values")
        indices = ranks.all_gather(tensor.indices, f"{name}/indices")
        return IndexedSlices(gathered, indices, tensor.dense_shape)
    value = convert_to_tensor(tensor)
    small, context = compression.compress(_scaled(value, prescale_factor))
    total = collective_gradients.all_reduce(ranks, small, name or value.op.name, chosen.merge, chosen.mean)
    return _scaled(compression.decompress(total, context), postscale_factor)


def _scaled(tensor: Tensor, factor: float) -> Tensor:
    """The product, of the tensor's dtype; that of integers is rounded towards zero."""
    if factor == 1.0:
        return tensor
    if tensor.dtype.is_floating or tensor.dtype.is_complex:
        return tensor * factor
    scaled: Tensor = cast(cast(tensor, dtypes.float64) * factor, tensor.dtype)
    return scaled


def grouped_allreduce(tensors: Sequence[Any], *args: Any, **kwargs: Any) -> list[Any]:
    """`allreduce` of several tensors."""
    return [allreduce(tensor, *args, **kwargs) for tensor in tensors]


def allgather(tensor: Any, name: str | None = None) -> Tensor:
    """Concatenates the workers' tensors along the first dimension, which may differ. Differentiable.

    Args:
      tensor: of at least one dimension.
      name: as for `allreduce`.
    """
    value = convert_to_tensor(tensor)
    return collective_gradients.all_gather(world().ranks, value, name or value.op.name)


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> Tensor:
    """Returns the tensor of ``root_rank`` on all workers. Differentiable.

    Args:
      tensor: of a known shape.
      root_rank: the worker that sends its value; the same on all workers.
      name: as for `allreduce`.
    """
    value = convert_to_tensor(tensor)
    return collective_gradients.broadcast(world().ranks, value, root_rank, name or value.op.name)


def broadcast_variables(variables: Iterable[Any], root_rank: int) -> Operation:
    """Makes an operation that assigns the values of ``root_rank`` to variables."""
    return world().ranks.broadcast_variables(variables, root_rank)


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
        super().__init__(world().ranks, root_rank)


class _Distributed(AllReduceOptimizer):
    """An `AllReduceOptimizer` with compression and dense reduction of sparse gradients."""

    def __init__(
        self, opt: Optimizer, name: str | None, use_locking: bool, compression: Any, as_dense: bool, mean: bool
    ) -> None:
        ranks = world().ranks
        name = name or f"Distributed{type(opt).__name__}"
        super().__init__(opt, ranks.size, ranks.rank, ranks.group_key, mean=mean, use_locking=use_locking, name=name)
        self._compression, self._sparse_as_dense = compression, as_dense

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
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
) -> Optimizer:
    """An optimizer that applies the mean gradient of all workers (see `tfmini.train.AllReduceOptimizer`).

    Args:
      optimizer: the optimizer to wrap.
      name: default: ``Distributed`` and the optimizer's class.
      use_locking: passed on.
      device_dense, device_sparse: ignored.
      compression: from `Compression`.
      sparse_as_dense: reduce sparse gradients as dense ones.
      backward_passes_per_step: 1.
      op: `Average` or `Sum`.
      gradient_predivide_factor: ignored, since the mean does not depend on it.

    Raises:
      ValueError: ``optimizer`` is no ``tf.train.Optimizer``, or ``op`` another operation.
      NotImplementedError: for `Adasum` or more than one backward pass per step.
    """
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"Provided optimizer doesn't inherit from tf.train.Optimizer: {optimizer!r}")
    if backward_passes_per_step != 1:
        raise NotImplementedError(
            "hvd.DistributedOptimizer(backward_passes_per_step > 1) is not supported; use a larger batch."
        )
    chosen = _chosen(op, None)
    if chosen.merge != "Add":
        raise ValueError(f"op must be hvd.Average or hvd.Sum for gradients, got {chosen!r}.")
    return _Distributed(optimizer, name, use_locking, compression, sparse_as_dense, chosen.mean)
