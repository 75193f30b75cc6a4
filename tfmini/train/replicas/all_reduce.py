"""Data-parallel training without parameter servers: every worker keeps all variables and all-reduces gradients.

Each worker builds the same graph and runs it in its own session. Keys, which count the collectives in the order
of construction, match the collectives of different workers. Gradients are packed into *buckets*, in the order in
which back-propagation computes them. The all-reduce of a bucket starts when its gradients are computed and
overlaps with the computation of the others: see `tfmini.runtime.compiler.start_order`.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import device, name_scope
from tfmini.ops import collectives as collective_ops
from tfmini.ops import control
from tfmini.ops.array import joining as array_joining
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.splitting import split
from tfmini.ops.math import elementwise as math_elementwise
from tfmini.ops.variables.assignment import assign
from tfmini.ops.variables.functions import global_variables
from tfmini.train.hooks.session_run_hook import SessionRunHook
from tfmini.train.optimizers.optimizer import Optimizer
from tfmini.train.optimizers.optimizer_inputs import GradAndVar
from tfmini.train.optimizers.optimizer_wrapper import OptimizerWrapper
from tfmini.train.replicas.collective_dtypes import as_bits, for_arithmetic

BUCKET_BYTES = 1 << 20
"""The maximum size of a bucket of fused gradients; a larger gradient has a collective of its own.

A collective costs each rank a fraction of a millisecond whatever its size. But fused gradients are copied once
more, and their collective starts only when the last of them is computed. CPU time of a step with 40 gradients of
40 KB on two ranks: 47 ms without fusion; with buckets of 256 KB 17 ms, of 1 MB 13 ms, of 4 MB 12 ms.
"""

_keys: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()


class Ranks:
    """A group of workers, which makes collectives; their keys are counted per graph and group.

    Args:
      size: number of workers.
      rank: rank of this worker; 0 is the chief.
      group_key: number of the group; different sets of workers need different numbers.
      device: the device of this worker that runs the collectives; None for the session's.
    """

    def __init__(self, size: int, rank: int = 0, group_key: int = 1, device: Any = None) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank must be in [0, {size}), got {rank}.")
        self.size, self.rank, self.group_key, self.device = size, rank, group_key, device

    def _instance(self) -> int:
        counters = _keys.setdefault(get_default_graph(), {})
        return next(counters.setdefault(self.group_key, itertools.count(1)))  # type: ignore[no-any-return]

    def _scope(self, value: Tensor, name: str, **more: Any) -> Any:
        """Adds attrs to a collective, beyond those of TensorFlow's op, that the ranks compare."""
        return get_default_graph()._attr_scope(
            {"_collective_name": name.encode(), "_collective_dtype": value.dtype.name.encode(), **more}
        )

    def all_reduce(self, tensor: Any, name: str = "", merge: str = "Add", mean: bool = False) -> Tensor:
        """The sum of a tensor over all workers, its mean, or its ``Mul``, ``Min`` or ``Max`` (``merge``).

        Integers wrap around, and their mean is rounded towards zero. For booleans, Add and Max mean "any", Mul and
        Min mean "all".

        Raises:
          TypeError: for tensors that are no numbers, and for operations that a dtype does not support: Min, Max and
            mean of uint64; Mul, Min and Max of complex numbers; the mean of booleans.
        """
        value = convert_to_tensor(tensor)
        if self.size == 1:
            return value
        carried, restored = for_arithmetic(value, merge, mean)
        with device(self.device), self._scope(value, name):
            keys = (self.size, self.group_key, self._instance())
            got = collective_ops.all_reduce(carried, *keys, merge, "Div" if mean else "Id")
        return restored(got)

    def all_gather(self, tensor: Any, name: str = "") -> Tensor:
        """The workers' tensors concatenated along the first dimension, whose lengths may differ.

        Raises:
          TypeError: for tensors that are no numbers.
        """
        value = convert_to_tensor(tensor)
        if self.size == 1:
            return value
        carried, restored = as_bits(value)
        shape = carried.shape if carried.shape.ndims is None else [None, *carried.shape.as_list()[1:]]
        with device(self.device), self._scope(value, name, _collective_any_rows=True):
            got = collective_ops.collective_gather(
                carried, shape=shape, group_size=self.size, group_key=self.group_key, instance_key=self._instance(),
            )  # fmt: skip
        return restored(got)

    def broadcast(self, tensor: Any, root_rank: int = 0, name: str = "") -> Tensor:
        """The tensor of worker ``root_rank``, on all workers.

        Raises:
          ValueError: when the static shape of the tensor is not fully known.
          TypeError: for tensors that are no numbers.
        """
        return self._broadcast(tensor, root_rank, name)

    def _broadcast(self, tensor: Any, root_rank: int, name: str, **more: Any) -> Tensor:
        value = convert_to_tensor(tensor)
        if not 0 <= root_rank < self.size:
            raise ValueError(f"root_rank must be in [0, {self.size}), got {root_rank}.")
        if self.size == 1:
            return value
        if not value.shape.is_fully_defined():
            raise ValueError(f"A tensor to broadcast needs a known shape; {value.name} has {value.shape}.")
        keys = (self.size, self.group_key, self._instance())
        carried, restored = as_bits(value)
        with device(self.device), self._scope(value, name, _collective_root=root_rank, **more):
            if self.rank == root_rank:
                got = collective_ops.broadcast_send(carried, carried.shape, carried.dtype, *keys)
            else:
                got = collective_ops.broadcast_recv(carried.shape, carried.dtype, *keys)
        return restored(got)

    def broadcast_variables(self, variables: Iterable[Any], root_rank: int = 0) -> Operation:
        """An operation that assigns to variables the values that they have on worker ``root_rank``.

        After a failure, workers that have come to different steps may begin anew with it.
        """
        updates = []
        with name_scope("broadcast_variables"):
            for variable in variables:
                value = self._broadcast(variable.value(), root_rank, variable.op.name, _collective_begins=True)
                updates.append(value.op if self.rank == root_rank else assign(variable, value).op)
            return control.group(*updates)


class AllReduceOptimizer(OptimizerWrapper):
    """Wraps an optimizer so that every worker applies the mean gradient of all workers.

    Dense gradients are all-reduced. Sparse ones (`IndexedSlices`) are gathered from all workers, unless their
    variable is on a parameter server (``/job:ps``): then each worker applies its own part there.

    Args:
      opt: the optimizer that computes and applies gradients.
      num_workers: number of workers.
      rank: rank of this worker; 0 is the chief, whose initial values all workers use.
      group_key: see `Ranks`.
      bucket_bytes: the maximum size of a bucket of fused gradients.
      mean: apply the mean of the gradients (default) rather than their sum.
      device: the device that runs the collectives.
      use_locking, name: as in `Optimizer`.

    Raises:
      ValueError: when the rank is not below ``num_workers``.
    """

    def __init__(
        self,
        opt: Optimizer,
        num_workers: int,
        rank: int = 0,
        group_key: int = 1,
        bucket_bytes: int = BUCKET_BYTES,
        mean: bool = True,
        device: Any = None,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(opt, use_locking, name or f"AllReduce{opt.get_name()}")
        self._bucket_bytes = bucket_bytes
        self._mean = mean
        self.ranks = Ranks(num_workers, rank, group_key, device)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[GradAndVar]:
        """`Optimizer.compute_gradients` of the wrapped optimizer, reduced over all workers."""
        pairs = self._opt.compute_gradients(*args, **kwargs)
        if self.ranks.size == 1:
            return pairs
        with name_scope(f"{self._name}_reduce"):
            reduced: list[Any] = [g for g, _ in pairs]
            for bucket in buckets(pairs, self._bucket_bytes):
                for i, value in zip(bucket, self._reduce([pairs[i] for i in bucket])):
                    reduced[i] = value
            for i, (grad, variable) in enumerate(pairs):
                if isinstance(grad, IndexedSlices):
                    reduced[i] = self._reduce_sparse(grad, variable)
        return [(value, variable) for value, (_, variable) in zip(reduced, pairs)]

    def _reduce(self, pairs: Sequence[GradAndVar]) -> list[Tensor]:
        names = "+".join(variable.op.name for _, variable in pairs)
        grads = [grad for grad, _ in pairs]
        if len(grads) == 1:
            return [self.ranks.all_reduce(grads[0], names, mean=self._mean)]
        flat = array_joining.concat([array_shape.reshape(grad, [-1]) for grad in grads], 0)
        total = self.ranks.all_reduce(flat, names, mean=self._mean)
        parts = split(total, [grad.shape.num_elements() for grad in grads], 0)
        return [array_shape.reshape(part, grad.shape.as_list()) for part, grad in zip(parts, grads)]

    def _reduce_sparse(self, grad: IndexedSlices, variable: Any) -> IndexedSlices:
        values = math_elementwise.divide(grad.values, float(self.ranks.size)) if self._mean else grad.values
        if "/job:ps" in variable.device:
            return IndexedSlices(values, grad.indices, grad.dense_shape)
        name = variable.op.name
        gathered = self.ranks.all_gather(values, f"{name}/values")
        return IndexedSlices(gathered, self.ranks.all_gather(grad.indices, f"{name}/indices"), grad.dense_shape)

    def make_session_run_hook(self) -> BroadcastVariablesHook:
        """A hook that broadcasts the chief's initial variables to all workers.

        Every worker must use ``MonitoredTrainingSession(is_chief=True)``, since each initializes its own variables.
        Only rank 0 gets a ``checkpoint_dir``.
        """
        return BroadcastVariablesHook(self.ranks)


class BroadcastVariablesHook(SessionRunHook):
    """Broadcasts the global variables of one worker after a session is created."""

    def __init__(self, ranks: Ranks, root_rank: int = 0) -> None:
        self._ranks, self._root = ranks, root_rank
        self._op: Operation | None = None

    def begin(self) -> None:
        """Adds the broadcast to the graph; on every worker this happens after the training ops were added."""
        if self._op is None or self._op.graph is not get_default_graph():
            variables = [v for v in global_variables() if "/job:ps" not in v.device]
            self._op = self._ranks.broadcast_variables(variables, self._root)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs the broadcast."""
        session.run(self._op)


def buckets(pairs: Sequence[GradAndVar], limit: int) -> list[list[int]]:
    """The dense gradients of each bucket, as indices into ``pairs``, in the order of back-propagation.

    That is the order of creation of the gradients' ops: those of the last layer come first; the gradient of a
    variable with several uses comes after the last of them. A bucket holds consecutive gradients of one dtype and
    known shapes, and at most ``limit`` bytes unless it holds a single gradient. So no gradient waits longer than
    the computation of that many bytes takes.
    """
    found: list[list[int]] = []
    room, kind = 0, None
    dense = [i for i, (grad, _) in enumerate(pairs) if not (grad is None or isinstance(grad, IndexedSlices))]
    for i in sorted(dense, key=lambda i: pairs[i][0].op):
        grad = pairs[i][0]
        count = grad.shape.num_elements()
        nbytes = limit + 1 if count is None else count * grad.dtype.size
        if not found or nbytes > room or grad.dtype != kind:
            found.append([])
            room, kind = limit, grad.dtype
        found[-1].append(i)
        room -= nbytes
    return found
