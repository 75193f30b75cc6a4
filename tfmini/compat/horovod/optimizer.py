"""``hvd.DistributedOptimizer``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tfmini.compat.horovod.compression import Compression, Compressor
from tfmini.compat.horovod.operations import Average, ReduceOp, chosen, scaled
from tfmini.compat.horovod.world import ProcessSet, global_process_set, world
from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import control_dependencies
from tfmini.ops import control
from tfmini.ops.array.identity import identity
from tfmini.ops.flow.cond import cond
from tfmini.ops.math.comparison import equal
from tfmini.ops.math.elementwise import floormod
from tfmini.ops.variables.assignment import assign, assign_add
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.initializers import zeros_initializer
from tfmini.ops.variables.scope import get_variable, variable_scope
from tfmini.placement.wire_table import EVERY_STEPS
from tfmini.train.optimizers.optimizer import GradAndVar, Optimizer
from tfmini.train.replicas.all_reduce import AllReduceOptimizer
from tfmini.train.replicas.elastic import Ranks

Groups = int | list[list[Any]] | None


class _Distributed(AllReduceOptimizer):
    """An `AllReduceOptimizer` with Horovod's options; see `DistributedOptimizer`."""

    def __init__(
        self, opt: Optimizer, name: str, use_locking: bool, compression: type[Compressor], as_dense: bool, op: ReduceOp,
        predivide: float, groups: Groups, ranks: Ranks, scale_local: bool,
    ) -> None:  # fmt: skip
        feedback = getattr(compression, "feedback", None)
        super().__init__(
            opt, ranks.size, ranks.rank, ranks.group_key, mean=op.mean, use_locking=use_locking, name=name,
            compression=feedback,
        )  # fmt: skip
        self._compression, self._sparse_as_dense = Compression.none if feedback else compression, as_dense
        self._predivide, self._groups, self._scale_local = predivide, groups, scale_local
        self._local_variables: list[Any] = []
        self.aggregation: LocalGradientAggregation | None = None

    @property
    def _optimizer(self) -> Optimizer:
        """The wrapped optimizer, under the name that scripts know."""
        return self._opt

    def register_local_var(self, var: Variable) -> None:
        """Excludes a variable from the reduction: each worker applies its own gradient, divided by their number."""
        self._local_variables.append(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[GradAndVar]:
        """`Optimizer.compute_gradients` of the wrapped optimizer, reduced over all workers."""
        pairs = self._opt.compute_gradients(*args, **kwargs)
        if self.aggregation is not None:
            return self.aggregation.compute_gradients(pairs)
        return self.reduced(pairs)

    def reduced(self, pairs: Sequence[GradAndVar]) -> list[GradAndVar]:
        """Gradients reduced over all workers, but for those of local variables."""
        local = [any(variable is other for other in self._local_variables) for _, variable in pairs]
        shared = iter(self.reduce_pairs([pair for pair, is_local in zip(pairs, local) if not is_local]))
        return [
            (self._of_local(grad), variable) if is_local else next(shared)
            for (grad, variable), is_local in zip(pairs, local)
        ]

    def _of_local(self, grad: Tensor | IndexedSlices) -> Any:
        if grad is None or not self._scale_local:
            return grad
        factor = 1 / self.ranks.size
        if isinstance(grad, IndexedSlices):
            return IndexedSlices(scaled(grad.values, factor), grad.indices, grad.dense_shape)
        return scaled(grad, factor)

    def apply_gradients(
        self, grads_and_vars: Iterable[Any], global_step: Any = None, name: str | None = None, **more: Any
    ) -> Operation:
        """`Optimizer.apply_gradients` of the wrapped optimizer; with local aggregation in some of the steps only."""
        pairs = list(grads_and_vars)
        if self.aggregation is None:
            return self._opt.apply_gradients(pairs, global_step=global_step, name=name, **more)
        return self.aggregation.apply_gradients(
            pairs, lambda: self._opt.apply_gradients(pairs, global_step=global_step, name=name, **more), global_step
        )

    def _buckets(self, pairs: Sequence[GradAndVar]) -> list[list[int]]:
        if self._groups is None:
            return super()._buckets(pairs)
        dense = [i for i, (grad, _) in enumerate(pairs) if isinstance(grad, Tensor)]
        if isinstance(self._groups, int):
            size = -(-len(dense) // self._groups) or 1
            found = [dense[low : low + size] for low in range(0, len(dense), size)]
        else:
            found = [[i for i in dense if any(pairs[i][1] is v for v in group)] for group in self._groups]
            grouped = {i for group in found for i in group}
            found += [[i] for i in dense if i not in grouped]
        return [same for group in found for same in _of_one_dtype(group, pairs)]

    def _reduce(self, pairs: Sequence[Any]) -> list[Tensor]:
        small = [self._compression.compress(grad) for grad, _ in pairs]
        sent = [(scaled(value, 1 / self._predivide), variable) for (value, _), (_, variable) in zip(small, pairs)]
        reduced = [scaled(value, self._predivide) for value in super()._reduce(sent)]
        return [self._compression.decompress(value, context) for value, (_, context) in zip(reduced, small)]

    def _reduce_sparse(self, grad: IndexedSlices, variable: Variable) -> Any:
        if not self._sparse_as_dense:
            return super()._reduce_sparse(grad, variable)
        pair: GradAndVar = convert_to_tensor(grad), variable
        return self._reduce([pair])[0]


def _of_one_dtype(group: list[int], pairs: Sequence[GradAndVar]) -> list[list[int]]:
    found: dict[Any, list[int]] = {}
    for i in group:
        found.setdefault(pairs[i][0].dtype.base_dtype, []).append(i)
    return list(found.values())


def _check(optimizer: Optimizer, op: ReduceOp, predivide: float, groups: Groups) -> None:
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"Provided optimizer doesn't inherit from tf.train.Optimizer: {optimizer!r}")
    if op.merge != "Add":
        raise ValueError(f"op must be hvd.Average or hvd.Sum for gradients, got {op!r}.")
    if predivide != 1.0 and not op.mean:
        raise ValueError(f"gradient_predivide_factor is for hvd.Average, got {op!r}.")
    if isinstance(groups, int) and groups <= 0:
        raise ValueError(f"groups must be a positive number or a list of lists of variables, got {groups!r}.")


def DistributedOptimizer(  # noqa: N802 - Horovod's name
    optimizer: Optimizer,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: ReduceOp | None = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Optimizer:
    """An optimizer that applies the mean gradient of all workers (see `tfmini.train.AllReduceOptimizer`).

    Args:
      optimizer: the optimizer to wrap.
      name: default: ``Distributed`` and the optimizer's class.
      use_locking: passed on.
      device_dense, device_sparse: ignored.
      compression: from `Compression`. What ``int8`` and ``topk`` need is in local variables.
      sparse_as_dense: reduce sparse gradients as dense ones.
      backward_passes_per_step: the workers reduce and apply the sum of the gradients of so many steps; the steps
        between change no variable. The sums are in local variables.
      op: `Average` or `Sum`.
      gradient_predivide_factor: with `Average`: divides the gradients before the sum and multiplies the mean after
        it, so that small dtypes do not overflow.
      average_aggregated_gradients: divide the sum by ``backward_passes_per_step``.
      num_groups, groups: how gradients travel together: in so many groups, or a group for each list of variables.
      process_set: the workers that take part; the others apply their own gradients.
      scale_local_gradients: divide the gradients of local variables (``register_local_var``) by the number of workers.

    Raises:
      ValueError: ``optimizer`` is no ``tf.train.Optimizer``, or an option does not go with ``op``.
      NotImplementedError: for `Adasum`.
    """
    reduction, groups = chosen(op), groups if groups is not None or not num_groups else num_groups
    _check(optimizer, reduction, gradient_predivide_factor, groups)
    # A worker outside of the set is alone in its group: it applies its own gradients.
    ranks = world().group(process_set.process_set_id) or Ranks(1)
    name = name or f"Distributed{type(optimizer).__name__}"
    made = _Distributed(
        optimizer, name, use_locking, compression, sparse_as_dense, reduction, gradient_predivide_factor, groups,
        ranks, scale_local_gradients,
    )  # fmt: skip
    if backward_passes_per_step != 1:
        made.aggregation = LocalGradientAggregation(
            backward_passes_per_step,
            lambda grads, variables: [grad for grad, _ in made.reduced(list(zip(grads, variables)))],
            average_aggregated_gradients, sparse_as_dense, name,
        )  # fmt: skip
    return made


# ---- gradient aggregation ----------------------------------------
# Local aggregation: gradients of several steps are added up on each worker before the workers reduce them.


class LocalGradientAggregation:
    """Adds up gradients in local variables, and reduces and applies them every so many steps.

    The variables are in the collection of local variables, so each worker initialises and keeps its own.

    Args:
      passes: the number of steps between two reductions.
      reduce: (gradients, variables) -> reduced gradients, called inside a conditional.
      mean: divide the sum by ``passes``.
      sparse_as_dense: convert `IndexedSlices`.
      name: prefix of the local variables' names.

    Raises:
      ValueError: ``passes`` is not positive.
    """

    def __init__(
        self, passes: int, reduce: Callable[[list[Tensor], list[Any]], list[Tensor]], mean: bool,
        sparse_as_dense: bool, name: str,
    ) -> None:  # fmt: skip
        if passes <= 0:
            raise ValueError(f"backward_passes_per_step must be > 0, got {passes}.")
        self._passes, self._reduce, self._mean = passes, reduce, mean
        self._sparse_as_dense, self._name = sparse_as_dense, name
        self._counter: Any = None

    def compute_gradients(self, pairs: Sequence[GradAndVar]) -> list[GradAndVar]:
        """Adds gradients to the sums; the result is the reduced sums in each ``passes``-th step, else unchanged."""
        known = [(self._dense(grad), variable) for grad, variable in pairs if grad is not None]
        with variable_scope(None, f"aggregation_variables_{self._name}"):
            self._counter = _local("aggregation_counter", [], "int32")
            sums = [_local(str(i), grad.shape, grad.dtype.base_dtype) for i, (grad, _) in enumerate(known)]
        grads = [grad for grad, _ in known]
        is_first = equal(identity(self._counter.read_value()), 0)
        added = cond(
            is_first,
            lambda: control.group(*[assign(total, grad) for total, grad in zip(sums, grads)]),
            lambda: control.group(*[assign_add(total, grad) for total, grad in zip(sums, grads)]),
        )
        with control_dependencies([added]):
            count = identity(assign(self._counter, floormod(self._counter.read_value() + 1, self._passes)))
        variables = [variable for _, variable in known]
        with control_dependencies([count]):
            reduced = cond(
                equal(count, 0), lambda: self._communicated(sums, variables), lambda: [identity(grad) for grad in grads]
            )
        found = iter(reduced if isinstance(reduced, (list, tuple)) else [reduced])
        return [(None if grad is None else next(found), variable) for grad, variable in pairs]

    def _dense(self, grad: TensorLike) -> Tensor:
        if isinstance(grad, IndexedSlices) and not self._sparse_as_dense:
            raise ValueError(
                "Sparse gradients cannot be aggregated with backward_passes_per_step > 1; give sparse_as_dense=True."
            )
        value = convert_to_tensor(grad)
        if not value.shape.is_fully_defined():
            raise ValueError(f"A gradient to aggregate needs a known shape; {value.name} has {value.shape}.")
        return value

    def _communicated(self, sums: list[Any], variables: list[Any]) -> list[Tensor]:
        """The reduced sums, or their means over the steps."""
        with get_default_graph()._attr_scope({EVERY_STEPS: self._passes}):
            reduced = self._reduce([total.read_value() for total in sums], variables)
        return [identity(value / self._passes if self._mean else value) for value in reduced]

    def apply_gradients(self, pairs: Sequence[GradAndVar], apply: Callable[[], Operation], step: Any) -> Operation:
        """Applies gradients in the steps that have reduced them; the others only increment the global step."""

        def skip() -> Operation:
            return control.no_op() if step is None else assign_add(step, 1).op

        with control_dependencies([grad for grad, _ in pairs if grad is not None]):
            is_new = equal(identity(self._counter.read_value()), 0)
        with control_dependencies([is_new]):
            done = cond(is_new, lambda: _after(apply()), lambda: _after(skip()))
        return done.op  # type: ignore[no-any-return]


def _after(operation: Any) -> Tensor:
    with control_dependencies([operation]):
        return convert_to_tensor(True)


def _local(name: str, shape: ShapeLike, dtype: DTypeLike) -> Any:
    return get_variable(
        name, shape, dtype, zeros_initializer(), trainable=False, collections=[GraphKeys.LOCAL_VARIABLES]
    )
