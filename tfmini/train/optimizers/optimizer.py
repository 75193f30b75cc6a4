"""`Optimizer`: from a loss to the operation that updates the variables.

A training op has two halves. `Optimizer.compute_gradients` adds the gradients, on the devices of
the task that builds the graph; `Optimizer.apply_gradients` adds one update per variable, on the
device of that variable. With variables on parameter servers, the gradients are thus sent to the
servers, and the updates run there.

A subclass says what state it needs (`_create_slots`), turns its hyper-parameters into tensors
(`_prepare`) and adds the update of a variable: `_apply_dense` and `_apply_sparse` for reference
variables, `_resource_apply_dense` and `_resource_apply_sparse` for resource variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tfmini.ops.array_slicing  # gives tensors their indexing
import tfmini.ops.operators  # noqa: F401 - gives tensors their operators
from tfmini import dtypes
from tfmini.graph import nest
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor, convert_to_tensor_or_indexed_slices
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import handle_of
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops import array_sets, array_shape, control, math_segments
from tfmini.ops.gradients import gradients
from tfmini.ops.scoping import (
    colocate_with,
    control_dependencies,
    get_collection,
    get_collection_ref,
    init_scope,
    name_scope,
)
from tfmini.ops.variables import Variable, trainable_variables
from tfmini.train import slot_creator

GradAndVar = tuple[Any, Any]
_VALID_DTYPES = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def is_resource(variable: Any) -> bool:
    """Whether a variable is a resource variable (rather than a reference variable)."""
    return bool(variable.op.type == "VarHandleOp")


def state_of(variable: Any) -> Tensor:
    """What an update op takes for a variable: its handle or its reference."""
    return variable.handle if is_resource(variable) else variable._ref()  # type: ignore[no-any-return]


def sum_duplicates(slices: IndexedSlices) -> IndexedSlices:
    """The same gradient with each row number once: rows that share a number are added up."""
    unique_indices, positions = array_sets.unique(slices.indices)
    count = array_shape.shape(unique_indices)[0]
    summed = math_segments.unsorted_segment_sum(slices.values, positions, count)
    return IndexedSlices(summed, unique_indices, slices.dense_shape)


class Optimizer:
    """Base class of the optimizers (``tf.train.Optimizer``).

    Args:
      use_locking: kept in the update ops for graphs that go to TensorFlow; updates of one
        variable never interleave here, with or without it.
      name: the name of the update operation and its scope.

    Raises:
      ValueError: for an empty name.
    """

    # How much of the gradients must be computed before any is applied.
    GATE_NONE = 0
    GATE_OP = 1
    GATE_GRAPH = 2

    def __init__(self, use_locking: bool, name: str) -> None:
        if not name:
            raise ValueError("Must specify the optimizer name")
        self._use_locking = use_locking
        self._name = name
        # Slot name -> variable key -> slot variable.
        self._slots: dict[str, dict[Any, Any]] = {}
        # (name, graph) -> variable that belongs to no single variable.
        self._non_slot_dict: dict[tuple[str, Any], Any] = {}

    def get_name(self) -> str:
        """The name given to the constructor."""
        return self._name

    # ---- the two halves ---------------------------------------------------------------------

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Operation:
        """The operation that takes one step against the gradient of ``loss``.

        Args:
          loss: the tensor to make small, or a function of no arguments that returns it.
          global_step: a variable to add one to after the update.
          var_list: the variables to update; default: all trainable ones of the graph.
          gate_gradients: ``GATE_NONE``, ``GATE_OP`` (no gradient of an op is used before all of
            that op's are computed) or ``GATE_GRAPH`` (before all are).
          aggregation_method: one of `AggregationMethod`.
          colocate_gradients_with_ops: compute gradients where the forward ops run.
          name: of the operation; default: the optimizer's.
          grad_loss: the gradient of the loss; default: ones.

        Raises:
          ValueError: when there is no variable, none that the loss depends on, or a dtype or an
            argument is not allowed.
        """
        pairs = self.compute_gradients(
            loss, var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss
        )
        if all(grad is None for grad, _ in pairs):
            raise ValueError(
                "No gradients provided for any variable, check your graph for ops that do not support gradients,"
                f" between variables {[str(v) for _, v in pairs]} and loss {loss}."
            )
        return self.apply_gradients(pairs, global_step=global_step, name=name)

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[GradAndVar]:
        """Pairs of gradient and variable, in the order of ``var_list``; None where the loss does not depend on it.

        Arguments and errors: as `minimize`.
        """
        if callable(loss):
            loss = loss()
        if gate_gradients not in (Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH):
            raise ValueError(
                "gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH."
                f"  Not {gate_gradients}"
            )
        self._assert_valid_dtypes([loss] if grad_loss is None else [loss, grad_loss])
        chosen = _chosen_variables(var_list)
        found = gradients(
            loss,
            [_target(v) for v in chosen],
            grad_ys=grad_loss,
            gate_gradients=gate_gradients == Optimizer.GATE_OP,
            aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )
        if gate_gradients == Optimizer.GATE_GRAPH:
            found = control.tuple(found)
        pairs = list(zip(found, chosen))
        self._assert_valid_dtypes([v for g, v in pairs if g is not None and v.dtype != dtypes.resource])
        return pairs

    def apply_gradients(
        self, grads_and_vars: Iterable[GradAndVar], global_step: Any = None, name: str | None = None
    ) -> Operation:
        """The operation that applies the gradients and then, if given, adds one to ``global_step``.

        Args:
          grads_and_vars: as `compute_gradients` returns them; pairs without gradient are skipped.
          global_step: a variable to increment.
          name: of the operation; default: the optimizer's.

        Raises:
          ValueError: without any pair, or any gradient.
          TypeError: for a gradient that is no tensor and no `IndexedSlices`.
          RuntimeError: for a sparse gradient of a variable with a constraint.
        """
        pairs = _converted(grads_and_vars)
        with_gradient = [v for g, v in pairs if g is not None]
        if not with_gradient:
            raise ValueError(f"No gradients provided for any variable: {[str(v) for _, v in pairs]}.")
        with init_scope():
            self._create_slots(with_gradient)
        with name_scope(self._name if name is None else name) as scope:
            self._prepare()
            updates = [self._update(grad, var) for grad, var in pairs if grad is not None]
            if global_step is None:
                result = self._finish(updates, scope)
            else:
                with control_dependencies([self._finish(updates, "update")]), colocate_with(global_step):
                    result = _increment(global_step, scope)
        train_op = get_collection_ref(GraphKeys.TRAIN_OP)
        if result not in train_op:
            train_op.append(result)
        return result

    def _update(self, grad: Any, var: Any) -> Any:
        """Adds the update of one variable, on the variable's device."""
        with name_scope("update_" + var.op.name), colocate_with(var):
            if not isinstance(var, Variable):
                raise NotImplementedError(f"Trying to update a Tensor {var}: give the variable itself in var_list.")
            if isinstance(grad, IndexedSlices):
                return self._sparse_update(grad, var)
            apply = self._resource_apply_dense if is_resource(var) else self._apply_dense
            update = apply(grad, var)
            if var.constraint is None:
                return update
            with control_dependencies([update]):
                return var.assign(var.constraint(var))

    def _sparse_update(self, grad: IndexedSlices, var: Any) -> Any:
        if var.constraint is not None:
            raise RuntimeError("Cannot use a constraint function on a sparse variable.")
        if is_resource(var):
            return self._resource_apply_sparse_duplicate_indices(grad.values, var, grad.indices)
        return self._apply_sparse_duplicate_indices(grad, var)

    # ---- state ------------------------------------------------------------------------------

    def get_slot(self, var: Any, name: str) -> Any:
        """The slot ``name`` of a variable, or None when there is none."""
        return self._slots.get(name, {}).get(_key(var))

    def get_slot_names(self) -> list[str]:
        """The names of the slots made so far, sorted."""
        return sorted(self._slots)

    def variables(self) -> list[Any]:
        """The variables that hold this optimizer's state in the default graph, by name."""
        graph = get_default_graph()
        found = list(self._non_slot_variables())
        for slots in self._slots.values():
            found.extend(slots.values())
        return sorted((v for v in found if v.op.graph is graph), key=lambda v: v.name)

    def _slot_dict(self, slot_name: str) -> dict[Any, Any]:
        return self._slots.setdefault(slot_name, {})

    def _get_or_make_slot(self, var: Any, val: Tensor, slot_name: str, op_name: str) -> Any:
        """The slot of a variable, made with the initial value ``val`` when there is none yet."""
        slots = self._slot_dict(slot_name)
        if _key(var) not in slots:
            slots[_key(var)] = slot_creator.create_slot(var, val, op_name)
        return slots[_key(var)]

    def _get_or_make_slot_with_initializer(
        self, var: Any, initializer: Any, shape: Any, dtype: Any, slot_name: str, op_name: str
    ) -> Any:
        """The slot of a variable, made by an initializer when there is none yet."""
        slots = self._slot_dict(slot_name)
        if _key(var) not in slots:
            slots[_key(var)] = slot_creator.create_slot_with_initializer(var, initializer, shape, dtype, op_name)
        return slots[_key(var)]

    def _zeros_slot(self, var: Any, slot_name: str, op_name: str) -> Any:
        """The slot of a variable, made of zeros when there is none yet."""
        slots = self._slot_dict(slot_name)
        if _key(var) not in slots:
            slots[_key(var)] = slot_creator.create_zeros_slot(var, op_name)
        return slots[_key(var)]

    def _create_non_slot_variable(self, initial_value: Any, name: str, colocate_with: Any) -> Any:
        """A variable of the optimizer itself, on the device of ``colocate_with``."""
        graph = colocate_with.graph
        variable = self._non_slot_dict.get((name, graph))
        if variable is None:
            with graph.colocate_with(colocate_with):
                kind: Any = {"use_resource": is_resource(colocate_with)}
                variable = Variable(initial_value, name=name, trainable=False, **kind)
            self._non_slot_dict[name, graph] = variable
        return variable

    def _get_non_slot_variable(self, name: str, graph: Any = None) -> Any:
        return self._non_slot_dict.get((name, graph))

    def _non_slot_variables(self) -> Iterable[Any]:
        return self._non_slot_dict.values()

    def _named_non_slot_variables(self) -> list[tuple[str, Any]]:
        """(name, variable) of the state in the default graph that belongs to no variable, by name."""
        graph = get_default_graph()
        found = [(name, v) for (name, _), v in self._non_slot_dict.items() if v.op.graph is graph]
        return sorted(found, key=lambda pair: pair[0])

    # ---- for subclasses ---------------------------------------------------------------------

    def _valid_dtypes(self) -> Iterable[dtypes.DType]:
        """The dtypes allowed for the loss, the variables and the gradients."""
        return _VALID_DTYPES

    def _assert_valid_dtypes(self, tensors: Iterable[Any]) -> None:
        valid = self._valid_dtypes()
        for tensor in tensors:
            dtype = tensor.dtype.base_dtype
            if dtype not in valid:
                raise ValueError(f"Invalid type {dtype!r} for {tensor.name}, expected: {list(valid)}.")

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        """Makes the slots of the variables; none by default."""

    def _prepare(self) -> None:
        """Makes the tensors that all updates share, in the name scope of the operation; none by default."""

    def _apply_dense(self, grad: Tensor, var: Any) -> Any:
        """The update of a reference variable by a dense gradient."""
        raise self._unwritten(var, "a dense gradient", "_apply_dense(self, grad, var)")

    def _resource_apply_dense(self, grad: Tensor, handle: Any) -> Any:
        """The update of a resource variable by a dense gradient."""
        raise self._unwritten(handle, "a dense gradient", "_resource_apply_dense(self, grad, handle)")

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        """The update of a reference variable by rows whose numbers are all different."""
        raise self._unwritten(var, "a sparse gradient", "_apply_sparse(self, grad, var)")

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        """The update of a resource variable by rows whose numbers are all different."""
        method = "_resource_apply_sparse(self, grad, handle, indices)"
        raise self._unwritten(handle, "a sparse gradient", method)

    def _unwritten(self, var: Any, gradient: str, method: str) -> NotImplementedError:
        kind = "resource variable" if is_resource(var) else "variable"
        name = type(self).__name__
        return NotImplementedError(
            f"{name} cannot update the {kind} {var.op.name!r} by {gradient}: write its method {method}."
        )

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Any:
        """Like `_apply_sparse`, but row numbers may repeat; adds up duplicates by default."""
        return self._apply_sparse(sum_duplicates(grad), var)

    def _resource_apply_sparse_duplicate_indices(self, grad: Tensor, handle: Any, indices: Tensor) -> Any:
        """Like `_resource_apply_sparse`, but row numbers may repeat; adds up duplicates by default."""
        summed = sum_duplicates(IndexedSlices(grad, indices))
        return self._resource_apply_sparse(summed.values, handle, summed.indices)

    def _finish(self, update_ops: Sequence[Any], name_scope: str) -> Operation:
        """The operation that stands for all updates, called ``name_scope``."""
        return control.group(*update_ops, name=name_scope)

    def _hyper_parameter(self, value: Any, name: str) -> Tensor:
        """A hyper-parameter as a tensor called ``name``.

        Raises:
          TypeError: when it is no number.
        """
        given = self._call_if_callable(value)
        tensor = convert_to_tensor(given, name=name)
        if tensor.dtype.base_dtype.is_floating or tensor.dtype.base_dtype.is_integer:
            return tensor
        raise TypeError(
            f"{type(self).__name__}: {name} must be a number, or a tensor of one, but got {given!r}"
            f" ({tensor.dtype.base_dtype.name})."
        )

    def _call_if_callable(self, param: Any) -> Any:
        """A hyper-parameter's value: what it returns if it is a function."""
        return param() if callable(param) else param


def _key(var: Any) -> tuple[Any, str]:
    return var.op.graph, var.op.name


def _chosen_variables(var_list: Any) -> list[Any]:
    if var_list is None:
        chosen = trainable_variables() + get_collection(GraphKeys.TRAINABLE_RESOURCE_VARIABLES)
    else:
        chosen = nest.flatten(var_list)
    if not chosen:
        raise ValueError("No variables to optimize.")
    return chosen


def _target(var: Any) -> Any:
    """What to differentiate by for a variable."""
    if isinstance(var, Variable):
        return var if is_resource(var) else state_of(var)
    if isinstance(var, Tensor):
        return var
    raise NotImplementedError(f"Trying to optimize unsupported type {type(var).__name__}: {var!r} is no variable.")


def _converted(grads_and_vars: Iterable[GradAndVar]) -> list[GradAndVar]:
    pairs = [(None if grad is None else _as_gradient(grad), var) for grad, var in grads_and_vars]
    if not pairs:
        raise ValueError("No variables provided.")
    for _, var in pairs:
        _target(var)
    return pairs


def _as_gradient(grad: Any) -> Any:
    try:
        grad = convert_to_tensor_or_indexed_slices(grad)
    except TypeError:
        raise TypeError(f"Gradient must be convertible to a Tensor or IndexedSlices, or None: {grad}") from None
    if not isinstance(grad, (Tensor, IndexedSlices)):
        raise TypeError(f"Gradient must be a Tensor, IndexedSlices, or None: {grad}")
    return grad


def _increment(global_step: Any, name: str) -> Operation:
    if is_resource(global_step):
        one = convert_to_tensor(1, dtype=global_step.dtype)
        return handle_of("AssignAddVariableOp")(global_step.handle, one, name=name)  # type: ignore[no-any-return]
    reference = state_of(global_step) if isinstance(global_step, Variable) else global_step
    return handle_of("AssignAdd")(reference, 1, name=name).op  # type: ignore[no-any-return]
