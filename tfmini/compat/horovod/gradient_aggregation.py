"""Local aggregation: gradients of several steps are added up on each worker before the workers reduce them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfmini.core_types import TensorLike
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import control_dependencies
from tfmini.ops import control
from tfmini.ops.array.identity import identity
from tfmini.ops.flow.cond import cond
from tfmini.ops.math.comparison import equal
from tfmini.ops.math.elementwise import floormod
from tfmini.ops.variables.assignment import assign, assign_add
from tfmini.ops.variables.initializers import zeros_initializer
from tfmini.ops.variables.scope import get_variable, variable_scope
from tfmini.train.optimizers.optimizer_inputs import GradAndVar


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


def _local(name: str, shape: Any, dtype: Any) -> Any:
    return get_variable(
        name, shape, dtype, zeros_initializer(), trainable=False, collections=[GraphKeys.LOCAL_VARIABLES]
    )
