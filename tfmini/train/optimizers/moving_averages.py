"""Exponential moving averages of variables (``tf.train.ExponentialMovingAverage``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tfmini import dtypes
from tfmini.core_types import GraphTensor, TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.op_types import VARIABLE_OPS
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import add_to_collection, colocate_with, get_collection, init_scope, name_scope
from tfmini.ops import control
from tfmini.ops.array.identity import cast
from tfmini.ops.math import elementwise as math_elementwise
from tfmini.ops.math.unary import pow as power_of
from tfmini.ops.variables.functions import Variable, global_variables, trainable_variables
from tfmini.ops.variables.initializers import zeros_initializer
from tfmini.ops.variables.scope import get_variable, get_variable_scope, variable_scope
from tfmini.train.optimizers import optimizer
from tfmini.train.strategy import ReduceOp, get_replica_context

_AVERAGED_DTYPES = (dtypes.bfloat16, dtypes.float16, dtypes.float32, dtypes.float64)


def assign_moving_average(
    variable: Any, value: Any, decay: Tensor | float, zero_debias: bool = True, name: str | None = None
) -> Any:
    """variable -= (1 - decay) * (variable - value).

    The difference is computed on the current device, as in TensorFlow 1.15, and the variable changed on its own: in a
    step of a worker, the average goes from the ps to the worker, and what is subtracted from it goes back.

    ``zero_debias`` corrects the bias towards the initial zero. For this, the variables ``<variable>/biased`` and
    ``<variable>/local_step`` hold the biased average and the number of updates.
    """
    replica = get_replica_context()
    if replica is not None and replica.num_replicas_in_sync > 1:  # the average of the mean of all replicas
        mean = replica.all_reduce(ReduceOp.MEAN, convert_to_tensor(value))
        return replica.merge_call(lambda _: assign_moving_average(variable, mean, decay, zero_debias, name))
    with name_scope(name, "AssignMovingAvg", [variable, value, decay]) as scope:
        rest = convert_to_tensor(1.0 - decay, name="decay")
        rest = cast(rest, variable.dtype.base_dtype)
        if zero_debias:
            return _zero_debias(variable, value, rest, scope)
        return variable.assign_sub((variable - value) * rest, name=scope)


def _zero_debias(variable: Variable, value: GraphTensor, rest: Tensor, scope: str) -> Any:
    with variable_scope(variable.op.name, values=[variable, value, rest]), colocate_with(variable):
        biased = get_variable(
            _unused_name("biased"),
            initializer=zeros_initializer(),
            shape=variable.get_shape(),
            dtype=variable.dtype.base_dtype,
            trainable=False,
        )
        local_step = get_variable(
            _unused_name("local_step"),
            shape=[],
            dtype=variable.dtype.base_dtype,
            initializer=zeros_initializer(),
            trainable=False,
        )
    updated = biased.assign_sub((biased - value) * rest)
    count = local_step.assign_add(1)
    correction = 1 - power_of(1.0 - rest, count)
    return variable.assign(updated / correction, name=scope)


def _unused_name(name: str) -> str:
    """``name``, made unique by a suffix if the current variable scope has a variable of that name."""
    current = get_variable_scope()
    if current.reuse:
        return name
    taken = {v.op.name for v in global_variables()}
    full, index, result = f"{current.name}/{name}", 1, name
    while (f"{full}_{index - 1}" if index > 1 else full) in taken:
        result = f"{name}_{index}"
        index += 1
    return result


@export("tf.train.ExponentialMovingAverage")
class ExponentialMovingAverage:
    """Maintains moving averages of variables in shadow variables (``tf.train.ExponentialMovingAverage``).

    Args:
      decay: the weight of the old average in an update, close to 1.
      num_updates: the number of updates so far; it makes the decay start small:
        ``min(decay, (1 + num_updates) / (10 + num_updates))``.
      zero_debias: correct the averages of tensors for the bias towards the initial zero.
      name: suffix of the shadow variables' names: ``<variable>/<name>``.
    """

    def __init__(
        self,
        decay: TensorLike,
        num_updates: TensorLike | None = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        self._decay = decay
        self._num_updates = num_updates
        self._zero_debias = zero_debias
        self._name = name
        self._averages: dict[int, Any] = {}
        # Keeps the variables alive, whose ids are the keys of `_averages`.
        self._averaged: list[Any] = []

    @property
    def name(self) -> str:
        """The name given to the constructor."""
        return self._name

    def apply(self, var_list: Iterable[Any] | None = None) -> Operation:
        """The operation that updates the averages of variables or tensors; creates missing shadow variables.

        The shadow of a variable starts at the variable's initial value, that of a tensor at zero. Averaged
        variables are added to the collection ``moving_average_variables``.

        Raises:
          TypeError: when a dtype is not float16, bfloat16, float32 or float64.
        """
        chosen = trainable_variables() if var_list is None else list(var_list)
        debiased = set()
        for var in chosen:
            if var.dtype.base_dtype not in _AVERAGED_DTYPES:
                raise TypeError(f"The variables must be half, float, or double: {var.name}")
            if id(var) not in self._averages:
                with init_scope():
                    average = self._make_shadow(var)
                self._averages[id(var)] = average
                self._averaged.append(var)
                if self._zero_debias and not isinstance(var, Variable):
                    debiased.add(id(var))
        with name_scope(self._name) as scope:
            decay = self._current_decay()
            updates = [
                assign_moving_average(self._averages[id(var)], var, decay, id(var) in debiased) for var in chosen
            ]
            return control.group(*updates, name=scope)

    def _make_shadow(self, var: GraphTensor) -> Any:
        if isinstance(var, Variable):
            initial_value = var.initialized_value()  # type: ignore[attr-defined]
            shadow = optimizer.create_slot(var, initial_value, self._name)
            add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, var)
            return shadow
        with_primary = var.op.type in VARIABLE_OPS
        return optimizer.create_zeros_slot(var, self._name, colocate_with_primary=with_primary)

    def _current_decay(self) -> Any:
        decay = convert_to_tensor(self._decay, name="decay")
        if self._num_updates is None:
            return decay
        count = cast(self._num_updates, dtypes.float32, name="num_updates")
        return math_elementwise.minimum(decay, (1.0 + count) / (10.0 + count))

    def average(self, var: GraphTensor) -> Any:
        """The shadow variable of ``var``, or None."""
        return self._averages.get(id(var))

    def average_name(self, var: GraphTensor) -> str:
        """The name of the shadow variable's op, even before it exists; for restoring from a checkpoint."""
        if id(var) in self._averages:
            return self._averages[id(var)].op.name  # type: ignore[no-any-return]
        return get_default_graph().unique_name(f"{var.op.name}/{self._name}", mark_as_used=False)

    def variables_to_restore(self, moving_avg_variables: Iterable[Any] | None = None) -> dict[str, Any]:
        """Name in a checkpoint -> variable; a Saver with this mapping restores averages into their variables."""
        if moving_avg_variables is None:
            averaged = trainable_variables() + get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES)
        else:
            averaged = list(moving_avg_variables)
        names = {self.average_name(v): v for v in dict.fromkeys(averaged)}
        own = {v.op.name for v in averaged}
        for v in global_variables():
            if v.op.name not in own:
                names.setdefault(v.op.name, v)
        return names
