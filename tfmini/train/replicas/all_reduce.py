"""Data-parallel training without parameter servers: every worker keeps all variables, gradients are all-reduced.

Each worker builds the same graph in a session of its own; the collectives meet by their keys, which are
counted in the order of construction. In the order in which back-propagation yields them, gradients are packed into
*buckets*. The all-reduce of a bucket starts as soon as its gradients are there, and the others are computed
meanwhile: see `tfmini.runtime.start_order`.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops import array_joining, array_shape, collective_ops, control, math_elementwise
from tfmini.ops.scoping import device, name_scope
from tfmini.ops.state_functions import assign
from tfmini.ops.variables import global_variables
from tfmini.train.collective_dtypes import as_bits, for_arithmetic
from tfmini.train.optimizer import GradAndVar, Optimizer
from tfmini.train.session_run_hook import SessionRunHook

BUCKET_BYTES = 1 << 20
"""The most that gradients of one dtype are fused into; a larger gradient travels alone.

A collective costs its ranks a fraction of a millisecond whatever its size; what is fused is copied once more, and sets
out when its last part is there. CPU time of a step with 40 gradients of 40 KB, two ranks: each alone 47 ms, buckets of
256 KB 17, 1 MB 13, 4 MB 12.
"""

_keys: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()


class Ranks:
    """The group of workers of a graph: makes collectives with keys that are counted per graph and group.

    Args:
      size: number of workers.
      rank: of this one; 0 is the chief.
      group_key: which group; another one for another set of workers.
      device: where the collectives run: a device of this worker; None: where the session is.
    """

    def __init__(self, size: int, rank: int = 0, group_key: int = 1, device: Any = None) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"rank must be in [0, {size}), got {rank}.")
        self.size, self.rank, self.group_key, self.device = size, rank, group_key, device

    def _instance(self) -> int:
        counters = _keys.setdefault(get_default_graph(), {})
        return next(counters.setdefault(self.group_key, itertools.count(1)))  # type: ignore[no-any-return]

    def _scope(self, value: Tensor, name: str, **more: Any) -> Any:
        """Attrs of a collective that other ranks compare with theirs: more than TF's op has."""
        return get_default_graph()._attr_scope(
            {"_collective_name": name.encode(), "_collective_dtype": value.dtype.name.encode(), **more}
        )

    def all_reduce(self, tensor: Any, name: str = "", merge: str = "Add", mean: bool = False) -> Tensor:
        """The sum (``merge``: ``Mul``, ``Min``, ``Max``) of a tensor over all workers, or the mean.

        Integers wrap around, and their mean is rounded towards zero; of booleans Add and Max are any, Mul and Min all.

        Raises:
          TypeError: for strings and other tensors that are no numbers, the order or mean of uint64, the product or
            order of complex numbers, the mean of booleans.
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
        """The workers' tensors joined along the first dimension, in which they may differ.

        Raises:
          TypeError: for strings and other tensors that are no numbers.
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
        """The tensor of one worker, on all. Its static shape must be known.

        Raises:
          ValueError: when it is not.
          TypeError: as `all_gather`.
        """
        value = convert_to_tensor(tensor)
        if not 0 <= root_rank < self.size:
            raise ValueError(f"root_rank must be in [0, {self.size}), got {root_rank}.")
        if self.size == 1:
            return value
        if not value.shape.is_fully_defined():
            raise ValueError(f"A tensor to broadcast needs a known shape; {value.name} has {value.shape}.")
        keys = (self.size, self.group_key, self._instance())
        carried, restored = as_bits(value)
        with device(self.device), self._scope(value, name, _collective_root=root_rank):
            if self.rank == root_rank:
                got = collective_ops.broadcast_send(carried, carried.shape, carried.dtype, *keys)
            else:
                got = collective_ops.broadcast_recv(carried.shape, carried.dtype, *keys)
        return restored(got)

    def broadcast_variables(self, variables: Iterable[Any], root_rank: int = 0) -> Operation:
        """An operation that gives variables the values that they have at one worker."""
        updates = []
        with name_scope("broadcast_variables"):
            for variable in variables:
                value = self.broadcast(variable.value(), root_rank, variable.op.name)
                updates.append(value.op if self.rank == root_rank else assign(variable, value).op)
            return control.group(*updates)


class AllReduceOptimizer(Optimizer):
    """Wraps an optimizer so that every worker applies the mean gradient of all workers.

    Dense gradients go round a ring of workers. Sparse ones (`IndexedSlices`) are gathered from all workers,
    unless their variable is on a parameter server (``/job:ps``): then each worker applies its own share there.

    Args:
      opt: the optimizer that computes and applies gradients.
      num_workers: how many workers there are.
      rank: the number of this worker; 0 is the chief, whose initial variables all begin with.
      group_key: see `Ranks`.
      bucket_bytes: the most that small gradients are fused into.
      mean: the mean of the gradients (default), or their sum.
      device: where the collectives run.
      use_locking, name: as for `Optimizer`.

    Raises:
      ValueError: for a rank that is not below ``num_workers``.
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
        super().__init__(use_locking, name or f"AllReduce{opt.get_name()}")
        self._opt = opt
        self._bucket_bytes = bucket_bytes
        self._mean = mean
        self.ranks = Ranks(num_workers, rank, group_key, device)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[GradAndVar]:
        """`compute_gradients` of the optimizer within, reduced over all workers."""
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
        parts = array_joining.split(total, [grad.shape.num_elements() for grad in grads], 0)
        return [array_shape.reshape(part, grad.shape.as_list()) for part, grad in zip(parts, grads)]

    def _reduce_sparse(self, grad: IndexedSlices, variable: Any) -> IndexedSlices:
        values = math_elementwise.divide(grad.values, float(self.ranks.size)) if self._mean else grad.values
        if "/job:ps" in variable.device:
            return IndexedSlices(values, grad.indices, grad.dense_shape)
        name = variable.op.name
        gathered = self.ranks.all_gather(values, f"{name}/values")
        return IndexedSlices(gathered, self.ranks.all_gather(grad.indices, f"{name}/indices"), grad.dense_shape)

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Operation:
        """`apply_gradients` of the optimizer within."""
        return self._opt.apply_gradients(*args, **kwargs)

    def get_slot(self, var: Any, name: str) -> Any:
        """`get_slot` of the optimizer within."""
        return self._opt.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """`get_slot_names` of the optimizer within."""
        return self._opt.get_slot_names()

    def variables(self) -> list[Any]:
        """`variables` of the optimizer within."""
        return self._opt.variables()

    def make_session_run_hook(self) -> BroadcastVariablesHook:
        """The hook that gives all workers the chief's initial variables.

        All workers are to run ``MonitoredTrainingSession(is_chief=True)``, for each has variables to initialise;
        only rank 0 gets a ``checkpoint_dir``.
        """
        return BroadcastVariablesHook(self.ranks)


class BroadcastVariablesHook(SessionRunHook):
    """Broadcasts the global variables of one worker when a session has been made."""

    def __init__(self, ranks: Ranks, root_rank: int = 0) -> None:
        self._ranks, self._root = ranks, root_rank
        self._op: Operation | None = None

    def begin(self) -> None:
        """Adds the operation to the graph, after the training ops on every worker."""
        if self._op is None or self._op.graph is not get_default_graph():
            variables = [v for v in global_variables() if "/job:ps" not in v.device]
            self._op = self._ranks.broadcast_variables(variables, self._root)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs it."""
        session.run(self._op)


def buckets(pairs: Sequence[GradAndVar], limit: int) -> list[list[int]]:
    """Which dense gradients travel together, in the order in which back-propagation yields them.

    That is the order in which it has made their ops: the last layer's come first, and the gradient of a variable
    with several uses when the last of them is there. A bucket holds gradients of one dtype and known shapes that
    stand side by side in it, and at most ``limit`` bytes unless it holds one only: so none waits for others longer
    than it takes to compute that many bytes.
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
