"""Data-parallel training without parameter servers: every worker keeps all variables and all-reduces gradients.

Each worker builds the same graph and runs it in its own session (`Ranks`). Gradients are packed into *buckets*, in
the order in which back-propagation computes them. The all-reduce of a bucket starts when its gradients are computed
and overlaps with the computation of the others: see `tfmini.runtime.compiler.levels`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import identity
from tfmini.ops.array import joining as array_joining
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.constant import constant
from tfmini.ops.array.joining import split
from tfmini.ops.array.layout import pad
from tfmini.ops.custom_gradient import custom_gradient
from tfmini.ops.math import elementwise as math_elementwise
from tfmini.ops.math import reductions
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.functions import global_variables
from tfmini.runtime.client.session import BaseSession
from tfmini.train.coordinator import Coordinator
from tfmini.train.optimizers.loss_scale import OptimizerWrapper
from tfmini.train.optimizers.optimizer import GradAndVar, Optimizer
from tfmini.train.replicas.compressed import ErrorFeedback
from tfmini.train.replicas.elastic import ElasticHook, Ranks
from tfmini.train.session_run_hook import SessionRunHook
from tfmini.train.strategy import get_strategy

BUCKET_BYTES = 1 << 20
"""The maximum size of a bucket of fused gradients; a larger gradient has a collective of its own.

A collective costs each rank a fraction of a millisecond whatever its size. But fused gradients are copied once
more, and their collective starts only when the last of them is computed. CPU time of a step with 40 gradients of
40 KB on two ranks: 47 ms without fusion; with buckets of 256 KB 17 ms, of 1 MB 13 ms, of 4 MB 12 ms.
"""


class AllReducing(OptimizerWrapper):
    """What `AllReduceOptimizer` does, as a mix-in (see `MixIn`): also for the optimizers that reduce seldom."""

    def __init__(
        self,
        opt: Optimizer,
        num_workers: int,
        rank: int = 0,
        group_key: int = 1,
        bucket_bytes: int = BUCKET_BYTES,
        mean: bool = True,
        device: str | Callable[..., Any] | None = None,
        use_locking: bool = False,
        name: str | None = None,
        least_workers: int = 0,
        compression: str | None = None,
    ) -> None:
        super().__init__(opt, use_locking, name or f"AllReduce{opt.get_name()}")
        self._feedback = ErrorFeedback(compression, self._name)
        self._bucket_bytes = bucket_bytes
        self._mean = mean
        self.ranks = Ranks(num_workers, rank, group_key, device, least_workers)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[GradAndVar]:
        """`Optimizer.compute_gradients` of the wrapped optimizer, reduced over all workers."""
        if get_strategy().num_replicas_in_sync > 1:
            raise ValueError(f"{get_strategy()} reduces gradients itself: use the wrapped optimizer of {self._name}.")
        return self.reduce_pairs(self._opt.compute_gradients(*args, **kwargs))

    def reduce_pairs(self, pairs: Sequence[GradAndVar]) -> list[GradAndVar]:
        """(gradient, variable) of this worker -> those of all workers together."""
        if self.ranks.size == 1:
            return list(pairs)
        with name_scope(f"{self._name}_reduce"):
            reduced: list[Any] = [g for g, _ in pairs]
            for bucket in self._buckets(pairs):
                bucket.sort(key=lambda i: str(pairs[i][1].op.name))  # workers may have built them in another order
                for i, value in zip(bucket, self._reduce([pairs[i] for i in bucket])):
                    reduced[i] = value
            for i, (grad, variable) in enumerate(pairs):
                if isinstance(grad, IndexedSlices):
                    reduced[i] = self._reduce_sparse(grad, variable)
        return [(value, variable) for value, (_, variable) in zip(reduced, pairs)]

    def _buckets(self, pairs: Sequence[GradAndVar]) -> list[list[int]]:
        """The dense gradients that travel together, as indices into ``pairs``; those of a bucket have one dtype."""
        return buckets(pairs, self._bucket_bytes)

    def _reduce(self, pairs: Sequence[GradAndVar]) -> list[Tensor]:
        names = "+".join(variable.op.name for _, variable in pairs)
        if not all(self._feedback.takes(grad) for grad, _ in pairs):
            return self._reduce_as_they_are([grad for grad, _ in pairs], names)
        if not self._feedback.compression.adds_up:
            return self._feedback.gathered(self.ranks, pairs, names, self._mean)
        small = [sent for grad, variable in pairs for sent in self._feedback.sent(grad, variable)]
        reduced = self._reduce_as_they_are(small, names)
        return [identity.cast(value, grad.dtype.base_dtype) for value, (grad, _) in zip(reduced, pairs)]

    def _reduce_as_they_are(self, grads: Sequence[Tensor], names: str) -> list[Tensor]:
        if len(grads) == 1:
            return [self.ranks.all_reduce(grads[0], names, mean=self._mean)]
        flat = array_joining.concat([array_shape.reshape(grad, [-1]) for grad in grads], 0)
        total = self.ranks.all_reduce(flat, names, mean=self._mean)
        parts = split(total, [grad.shape.num_elements() for grad in grads], 0)
        return [array_shape.reshape(part, grad.shape.as_list()) for part, grad in zip(parts, grads)]

    def _reduce_sparse(self, grad: IndexedSlices, variable: Variable) -> IndexedSlices:
        values = math_elementwise.divide(grad.values, self._divisor(grad, variable)) if self._mean else grad.values
        if "/job:ps" in variable.device:
            return IndexedSlices(values, grad.indices, grad.dense_shape)
        name = variable.op.name
        gathered = self.ranks.all_gather(values, f"{name}/values")
        return IndexedSlices(gathered, self.ranks.all_gather(grad.indices, f"{name}/indices"), grad.dense_shape)

    def _divisor(self, grad: IndexedSlices, variable: Variable) -> Any:
        """The number of workers: that of the present step if the group is elastic."""
        if not self.ranks.least:
            return float(self.ranks.size)
        one = constant(1, grad.values.dtype.base_dtype)
        return self.ranks.all_reduce(one, f"{variable.op.name}/number_of_workers")

    def make_session_run_hook(self, commit_every_steps: int = 10) -> SessionRunHook:
        """A hook that gives the chief's initial variables to all workers.

        Every worker must use ``MonitoredTrainingSession(is_chief=True)``, since each initializes its own variables.
        Only rank 0 gets a ``checkpoint_dir``.

        Args:
          commit_every_steps: with ``least_workers``, after how many steps each worker keeps a copy of the variables;
            see `ElasticHook`.
        """
        if self.ranks.least:
            return ElasticHook(self.ranks, commit_every_steps)
        return BroadcastVariablesHook(self.ranks)


@export("tf.train.AllReduceOptimizer")
class AllReduceOptimizer(AllReducing, Optimizer):
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
      least_workers: training goes on with so many workers when others are lost, and with up to ``num_workers`` when
        they come (back); 0: it needs all of them. See `elastic`.
      compression: of dense gradients, as in `CompressedGradientOptimizer`. Those of ``fp16`` are all-reduced; of the
        others each worker sends all that it has to all others.

    Raises:
      ValueError: when the rank is not below ``num_workers``, or there is no such compression.
    """


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

    def after_create_session(self, session: BaseSession, coord: Coordinator) -> None:
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


# ---- Differentiable collectives: the gradient of a rank's input includes the losses of all ranks -------------------
# The definitions are Horovod's. Each rank contributes the gradient of its own loss. The gradient of a reduction is
# reduced in the same way; those of a gather and of a broadcast are means over the ranks.


def all_reduce(ranks: Ranks, tensor: TensorLike, name: str = "", merge: str = "Add", mean: bool = False) -> Tensor:
    """`Ranks.all_reduce`; its gradient is reduced in the same way.

    Raises (when differentiated):
      LookupError: when ``merge`` is not ``Add``.
    """

    def reduce(value: Tensor) -> tuple[Tensor, Any]:
        def gradient(grad: Tensor) -> Tensor:
            _check_merge(merge)
            return ranks.all_reduce(grad, _of_gradient(name), mean=mean)

        return ranks.all_reduce(value, name, merge, mean), gradient

    return _differentiable(reduce, tensor)


def all_reduce_packed(
    ranks: Ranks, tensors: Sequence[Tensor], name: str = "", merge: str = "Add", mean: bool = False
) -> list[Tensor]:
    """`all_reduce` of several tensors of one dtype in one collective; their gradients have one collective, too."""

    def reduce(*values: Tensor) -> tuple[list[Tensor], Any]:
        def gradient(*grads: Tensor) -> list[Tensor]:
            _check_merge(merge)
            return _packed(ranks, grads, _of_gradient(name), "Add", mean)

        return _packed(ranks, values, name, merge, mean), gradient

    if not tensors[0].dtype.is_floating:
        return reduce(*tensors)[0]
    return custom_gradient(reduce)(*tensors)  # type: ignore[no-any-return]


def _packed(ranks: Ranks, values: Sequence[Tensor], name: str, merge: str, mean: bool) -> list[Tensor]:
    """Reduces the concatenation of several tensors."""
    if len(values) == 1 or ranks.size == 1:
        return [ranks.all_reduce(value, name, merge, mean) for value in values]
    flat = array_joining.concat([array_shape.reshape(value, [-1]) for value in values], 0)
    total = ranks.all_reduce(flat, name, merge, mean)
    sizes = [array_shape.size(value) for value in values]
    parts = split(total, array_joining.stack(sizes), 0, num=len(values))
    whole = [array_shape.reshape(part, array_shape.shape(value)) for part, value in zip(parts, values)]
    for part, value in zip(whole, values):
        part.set_shape(value.shape)
    return whole


def all_gather(ranks: Ranks, tensor: TensorLike, name: str = "") -> Tensor:
    """`Ranks.all_gather`; its gradient is the mean of all ranks' gradients, restricted to this rank's rows."""

    def gather(value: Tensor) -> tuple[Tensor, Any]:
        def gradient(grad: Tensor) -> Tensor:
            inner = _of_gradient(name)
            total = ranks.all_reduce(grad, inner, mean=True)
            rows = array_shape.shape(value)[:1]
            counts = ranks.all_gather(rows, f"{inner}/rows" if inner else "")
            before = reductions.reduce_sum(counts[: ranks.rank])
            own = total[before : before + rows[0]]
            own.set_shape(value.shape)
            return own

        return ranks.all_gather(value, name), gradient

    return _differentiable(gather, tensor)


def broadcast(ranks: Ranks, tensor: TensorLike, root_rank: int = 0, name: str = "") -> Tensor:
    """`Ranks.broadcast`; its gradient is the mean of all ranks' gradients on the root, and zero on other ranks."""

    def send(value: Tensor) -> tuple[Tensor, Any]:
        def gradient(grad: Tensor) -> Tensor:
            total = ranks.all_reduce(grad, _of_gradient(name), mean=True)
            return total if ranks.rank == root_rank else total * 0  # all ranks must take part in the all-reduce

        return ranks.broadcast(value, root_rank, name), gradient

    return _differentiable(send, tensor)


def reduce_scatter(ranks: Ranks, tensor: TensorLike, name: str = "", merge: str = "Add", mean: bool = False) -> Tensor:
    """`Ranks.reduce_scatter`; its gradient gathers the gradients of all parts, for a sum times the number of ranks.

    Raises (when differentiated):
      LookupError: when ``merge`` is not ``Add``.
    """

    def reduce(value: Tensor) -> tuple[Tensor, Any]:
        def gradient(grad: Tensor) -> Tensor:
            _check_merge(merge)
            whole = ranks.all_gather(grad if mean else grad * ranks.size, _of_gradient(name))
            whole.set_shape(value.shape)
            return whole

        return ranks.reduce_scatter(value, name, merge, mean), gradient

    return _differentiable(reduce, tensor)


def all_to_all(
    ranks: Ranks, tensor: TensorLike, splits: TensorLike | None = None, name: str = ""
) -> tuple[Tensor, Tensor]:
    """`Ranks.all_to_all`; its gradient sends each row's gradient back, and is zero for rows that no rank got."""

    def exchange(value: Tensor) -> tuple[list[Tensor], Any]:
        def gradient(grad: Tensor, _: Any = None) -> Tensor:
            back, _ = ranks.all_to_all(grad, received, _of_gradient(name))
            unsent = array_shape.shape(value)[0] - array_shape.shape(back)[0]
            rest = array_filling.zeros(array_joining.stack([array_shape.rank(value) - 1, 2]), "int32")
            margins = array_joining.concat([[[0, unsent]], rest], 0)
            own = pad(back, margins)
            own.set_shape(value.shape)
            return own

        rows, received = ranks.all_to_all(value, splits, name)
        return [rows, received], gradient

    value = convert_to_tensor(tensor)
    rows, received = exchange(value)[0] if not value.dtype.is_floating else custom_gradient(exchange)(value)
    return rows, received


def _of_gradient(name: str) -> str:
    return f"{name}/gradient" if name else ""


def _check_merge(merge: str) -> None:
    if merge != "Add":
        raise LookupError(f"A reduction by {merge} has no gradient; reduce by hvd.Sum or hvd.Average.")


def _differentiable(collective: Any, tensor: TensorLike) -> Tensor:
    value = convert_to_tensor(tensor)
    if not value.dtype.is_floating:
        return collective(value)[0]  # type: ignore[no-any-return]
    return custom_gradient(collective)(value)  # type: ignore[no-any-return]
