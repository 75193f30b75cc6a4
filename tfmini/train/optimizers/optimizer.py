"""`Optimizer`: base class of the optimizers, which turns a loss into an operation that updates the variables.

A training op has two parts. `Optimizer.compute_gradients` adds the gradients, on the devices of the task
that builds the graph. `Optimizer.apply_gradients` adds one update per variable, on the variable's device.
So if variables are on parameter servers, the gradients are sent to the servers and the updates run there.

A subclass makes its slots (`_create_slots`), turns its hyper-parameters into tensors (`_prepare`) and adds
the update of a variable: `_apply_dense` and `_apply_sparse` for reference variables, `_resource_apply_dense`
and `_resource_apply_sparse` for resource variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, GraphTensor, ShapeLike, TensorLike
from tfmini.export import export
from tfmini.graph import nest, raw_ops
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor, convert_to_tensor_or_indexed_slices
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import (
    colocate_with,
    control_dependencies,
    get_collection,
    get_collection_ref,
    init_scope,
    name_scope,
)
from tfmini.ops import control
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import partition as array_partition
from tfmini.ops.array import shape as array_shape
from tfmini.ops.gradients import gradients
from tfmini.ops.growing.variable import EmbeddingVariable
from tfmini.ops.math import segments as math_segments
from tfmini.ops.variables.base import SaveSliceInfo
from tfmini.ops.variables.functions import Variable, trainable_variables
from tfmini.ops.variables.initializers import zeros_initializer
from tfmini.ops.variables.scope import get_variable, get_variable_scope, variable_scope
from tfmini.out_of_scope import Advising
from tfmini.shapes import TensorShape
from tfmini.train.global_steps import get_global_step
from tfmini.train.strategy import get_strategy, shared_loss

_VALID_DTYPES = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def sum_duplicates(slices: IndexedSlices) -> IndexedSlices:
    """Sums the rows that have the same index, so that every index occurs once."""
    unique_indices, positions = array_partition.unique(slices.indices)
    count = array_shape.shape(unique_indices)[0]
    summed = math_segments.unsorted_segment_sum(slices.values, positions, count)
    return IndexedSlices(summed, unique_indices, slices.dense_shape)


@export("tensorflow.python.training.optimizer._deduplicate_indexed_slices")
def deduplicate_indexed_slices(values: TensorLike, indices: TensorLike) -> tuple[Tensor, Tensor]:
    """Returns (the sums of the rows of each index, the indices, each once), for optimizers of libraries."""
    slices = sum_duplicates(IndexedSlices(convert_to_tensor(values), convert_to_tensor(indices)))
    return slices.values, slices.indices


@export("tf.train.Optimizer")
class Optimizer(Advising):
    """Base class of the optimizers (``tf.train.Optimizer``).

    Args:
      use_locking: an attr of the update ops, for graphs exported to TensorFlow. In tfmini the updates of
        one variable never interleave, with or without it.
      name: the name of the update operation and its scope.

    Raises:
      ValueError: when the name is empty.
    """

    # A slot gives the instances a layout of their own. So Python takes this class for the `__base__` of an optimizer
    # that has a mix-in before it (`FusedUpdates`), and libraries find tf.train's optimizers by `__base__`.
    __slots__ = ("__dict__", "__weakref__", "_slots")
    _global_step_of_rows: Any = None  # of the latest `apply_gradients`

    # Which gradients must be computed before one is applied: none, those of the same op, all of the graph.
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
        # (name, graph) -> variable of the optimizer itself.
        self._non_slot_dict: dict[tuple[str, Any], Any] = {}

    def get_name(self) -> str:
        """The name given to the constructor."""
        return self._name

    # ---- gradients and updates --------------------------------------------------------------

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Sequence[Any] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: TensorLike | Callable[[], Any] | None = None,
    ) -> Operation:
        """The operation that minimizes ``loss`` by one step.

        Args:
          loss: the tensor to minimize, or a function without arguments that returns it.
          global_step: a variable to increment after the update.
          var_list: the variables to update; default: all trainable variables of the graph.
          gate_gradients: ``GATE_NONE``, ``GATE_OP`` (a gradient of an op is used only when all gradients
            of that op are computed) or ``GATE_GRAPH`` (only when all gradients are computed).
          aggregation_method: one of `AggregationMethod`.
          colocate_gradients_with_ops: compute gradients on the devices of the forward ops.
          name: name of the operation; default: the optimizer's name.
          grad_loss: the gradient of the loss; default: ones.

        Raises:
          ValueError: when there is no variable, the loss depends on none, or a dtype or argument is invalid.
        """
        # By keyword, as TensorFlow does: an overriding method may take these in another order, or in **kwargs.
        pairs = self.compute_gradients(
            loss,
            var_list=var_list,
            gate_gradients=gate_gradients,
            aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
            grad_loss=grad_loss,
        )
        if all(grad is None for grad, _ in pairs):
            raise ValueError(
                "No gradients provided for any variable, check your graph for ops that do not support gradients,"
                f" between variables {[str(v) for _, v in pairs]} and loss {loss}."
            )
        return self.apply_gradients(pairs, global_step=global_step, name=name)

    def compute_gradients(
        self,
        loss: TensorLike | Callable[[], Any],
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: TensorLike | Callable[[], Any] | None = None,
    ) -> list[GradAndVar]:
        """Pairs (gradient, variable) in the order of ``var_list``; None if the loss does not depend on a variable.

        See `minimize` for arguments and errors.
        """
        if callable(loss):
            loss = loss()
        if gate_gradients not in (Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH):
            raise ValueError(
                "gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH."
                f"  Not {gate_gradients}"
            )
        self._assert_valid_dtypes([loss] if grad_loss is None else [loss, grad_loss])
        loss = shared_loss(loss)
        chosen = chosen_variables(var_list)
        found = gradients(
            loss,
            [differentiation_target(v) for v in chosen],
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
        """The operation that applies the gradients and then increments ``global_step``, if given.

        Args:
          grads_and_vars: the result of `compute_gradients`; pairs without gradient are skipped.
          global_step: a variable to increment.
          name: name of the operation; default: the optimizer's name.

        Raises:
          ValueError: when there are no pairs or no gradients.
          TypeError: when a gradient is neither a tensor nor an `IndexedSlices`.
          RuntimeError: when the gradient of a variable with a constraint is sparse.
        """
        with get_strategy().reduced(checked_pairs(grads_and_vars)) as pairs:
            return self._apply(pairs, global_step, name)

    def _apply(self, pairs: Sequence[GradAndVar], global_step: Any, name: str | None) -> Operation:
        with_gradient = [v for g, v in pairs if g is not None]
        if not with_gradient:
            raise ValueError(f"No gradients provided for any variable: {[str(v) for _, v in pairs]}.")
        with init_scope():
            self._create_slots(with_gradient)
        self._global_step_of_rows = global_step
        with name_scope(self._name if name is None else name) as scope:
            self._prepare()
            updates = [self._update(grad, var) for grad, var in pairs if grad is not None]
            if global_step is None:
                result = self._finish(updates, scope)
            else:
                with control_dependencies([self._finish(updates, "update")]), colocate_with(global_step):
                    result = increment_op(global_step, scope)
        train_op = get_collection_ref(GraphKeys.TRAIN_OP)
        if result not in train_op:
            train_op.append(result)
        return result

    def _update(self, grad: Tensor | IndexedSlices, var: Variable) -> Any:
        """Adds the update of one variable, on the variable's device."""
        with name_scope("update_" + var.op.name), colocate_with(var):
            if not isinstance(var, Variable):
                raise NotImplementedError(f"Trying to update a Tensor {var}: give the variable itself in var_list.")
            if isinstance(var, EmbeddingVariable):
                return self._update_rows(grad, var)
            if isinstance(grad, IndexedSlices):
                return self._sparse_update(grad, var)
            apply = self._resource_apply_dense if is_resource(var) else self._apply_dense
            update = apply(grad, var)
            if var.constraint is None:
                return update
            with control_dependencies([update]):
                return var.assign(var.constraint(var))

    def _sparse_update(self, grad: IndexedSlices, var: Variable) -> Any:
        if var.constraint is not None:
            raise RuntimeError("Cannot use a constraint function on a sparse variable.")
        if is_resource(var):
            return self._resource_apply_sparse_duplicate_indices(grad.values, var, grad.indices)
        return self._apply_sparse_duplicate_indices(grad, var)

    def _update_rows(self, grad: Tensor | IndexedSlices, var: EmbeddingVariable) -> Any:
        if not isinstance(grad, IndexedSlices):
            raise ValueError(f"The gradient of the table {var.name!r} must be IndexedSlices of ids, not {grad}.")
        step = get_global_step() if self._global_step_of_rows is None else self._global_step_of_rows
        if step is None and var.settings.steps_to_live:
            raise ValueError(
                f"The rows of the table {var.name!r} have an age (GlobalStepEvict): give minimize or apply_gradients a"
                " global_step, such as tf.train.get_or_create_global_step()."
            )
        return self._apply_to_rows(sum_duplicates(grad), var, 0 if step is None else step)

    # ---- state ------------------------------------------------------------------------------

    def get_slot(self, var: Variable, name: str) -> Any:
        """The slot ``name`` of a variable, or None."""
        return self._slots.get(name, {}).get(_key(var))

    def get_slot_names(self) -> list[str]:
        """The sorted names of the slots made so far."""
        return sorted(self._slots)

    def variables(self) -> list[Any]:
        """The variables of this optimizer's state in the default graph, sorted by name."""
        graph = get_default_graph()
        found = list(self._non_slot_variables())
        for slots in self._slots.values():
            found.extend(slots.values())
        return sorted((v for v in found if v.op.graph is graph), key=lambda v: v.name)

    def _slot_dict(self, slot_name: str) -> dict[Any, Any]:
        return self._slots.setdefault(slot_name, {})

    def _get_or_make_slot(self, var: Variable, val: Tensor, slot_name: str, op_name: str) -> Any:
        """The slot of a variable; created with the initial value ``val`` if it does not exist."""
        return self._slot(var, slot_name, lambda: create_slot(var, val, op_name))

    def _get_or_make_slot_with_initializer(
        self, var: Variable, initializer: Callable[..., Any], shape: Any, dtype: DTypeLike, slot_name: str, op_name: str
    ) -> Any:
        """The slot of a variable; created with an initializer if it does not exist."""
        create = create_slot_with_initializer
        return self._slot(var, slot_name, lambda: create(var, initializer, shape, dtype, op_name))

    def _zeros_slot(self, var: Variable, slot_name: str, op_name: str) -> Any:
        """The slot of a variable; created with zeros if it does not exist."""
        return self._slot(var, slot_name, lambda: create_zeros_slot(var, op_name))

    def _slot(self, var: Variable, slot_name: str, create: Callable[[], Any]) -> Any:
        slots = self._slot_dict(slot_name)
        if _key(var) not in slots:
            slots[_key(var)] = create()
        return slots[_key(var)]

    def _create_non_slot_variable(self, initial_value: TensorLike, name: str, colocate_with: Any) -> Any:
        """A variable of the optimizer itself, on the device of ``colocate_with``."""
        graph = colocate_with.graph
        variable = self._non_slot_dict.get((name, graph))
        if variable is None:
            with graph.colocate_with(colocate_with):
                kind: Any = {"use_resource": is_resource(colocate_with)}
                variable = Variable(initial_value, name=name, trainable=False, **kind)
            self._non_slot_dict[name, graph] = variable
        return variable

    def _get_non_slot_variable(self, name: str, graph: Graph | None = None) -> Any:
        return self._non_slot_dict.get((name, graph))

    def _non_slot_variables(self) -> Iterable[Any]:
        return self._non_slot_dict.values()

    def _named_non_slot_variables(self) -> list[tuple[str, Any]]:
        """(name, variable) of the state in the default graph that is no slot, sorted by name."""
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
        """Makes the slots of the variables; by default there are none."""

    def _prepare(self) -> None:
        """Makes the tensors that all updates share, in the operation's name scope; by default there are none."""

    def _apply_dense(self, grad: Tensor, var: Variable) -> Any:
        """Updates a reference variable with a dense gradient."""
        raise self._unwritten(var, "a dense gradient", "_apply_dense(self, grad, var)")

    def _resource_apply_dense(self, grad: Tensor, handle: Variable) -> Any:
        """Updates a resource variable with a dense gradient."""
        raise self._unwritten(handle, "a dense gradient", "_resource_apply_dense(self, grad, handle)")

    def _apply_sparse(self, grad: IndexedSlices, var: Variable) -> Any:
        """Updates a reference variable with a sparse gradient whose indices are distinct."""
        raise self._unwritten(var, "a sparse gradient", "_apply_sparse(self, grad, var)")

    def _resource_apply_sparse(self, grad: Tensor, handle: Variable, indices: Tensor) -> Any:
        """Updates a resource variable with a sparse gradient whose indices are distinct."""
        method = "_resource_apply_sparse(self, grad, handle, indices)"
        raise self._unwritten(handle, "a sparse gradient", method)

    def _apply_to_rows(self, grad: IndexedSlices, var: EmbeddingVariable, step: Any) -> Any:
        """Updates rows of a table that grows; the ids are distinct, and ``step`` is the global step."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot update the table {var.op.name!r}, which grows. The optimizers of tf.train"
            " whose update is one op can, such as GradientDescent, Adagrad, Adam and Ftrl."
        )

    def _unwritten(self, var: Variable, gradient: str, method: str) -> NotImplementedError:
        kind = "resource variable" if is_resource(var) else "variable"
        name = type(self).__name__
        return NotImplementedError(
            f"{name} cannot update the {kind} {var.op.name!r} by {gradient}: write its method {method}."
        )

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Variable) -> Any:
        """Like `_apply_sparse`, but indices may repeat; by default rows with the same index are summed."""
        return self._apply_sparse(sum_duplicates(grad), var)

    def _resource_apply_sparse_duplicate_indices(self, grad: Tensor, handle: Variable, indices: Tensor) -> Any:
        """Like `_resource_apply_sparse`, but indices may repeat; by default rows with the same index are summed."""
        summed = sum_duplicates(IndexedSlices(grad, indices))
        return self._resource_apply_sparse(summed.values, handle, summed.indices)

    def _finish(self, update_ops: Sequence[Any], name_scope: str) -> Operation:
        """The operation that groups all updates, called ``name_scope``."""
        return control.group(*update_ops, name=name_scope)

    def _hyper_parameter(self, value: TensorLike | Callable[[], Any], name: str) -> Tensor:
        """A hyper-parameter as a tensor called ``name``; raises TypeError unless it is a number."""
        given = self._call_if_callable(value)
        if given is None:
            raise ValueError(f"None values not supported. {type(self).__name__}: {name} must be a number, or a tensor.")
        tensor = convert_to_tensor(given, name=name)
        if tensor.dtype.base_dtype.is_floating or tensor.dtype.base_dtype.is_integer:
            return tensor
        raise TypeError(
            f"{type(self).__name__}: {name} must be a number, or a tensor of one, but got {given!r}"
            f" ({tensor.dtype.base_dtype.name})."
        )

    def _call_if_callable(self, param: object) -> Any:
        """The value of a hyper-parameter, which may be a function that returns it."""
        return param() if callable(param) else param


# What optimizers share is a mix-in before `Optimizer`. It must not derive from it, or it would be their `__base__`.
if TYPE_CHECKING:
    MixIn = Optimizer
else:
    MixIn = object


def _key(var: Variable) -> tuple[Any, str]:
    return var.op.graph, var.op.name


# ---- Creation of slots: variables that belong to another variable, such as an optimizer's accumulators -------------
# A slot is in the variable scope ``<variable>/<name>``, on the device of its variable, and not trainable. It is
# a resource variable if its variable is, and part of a partitioned variable if its variable is.


def create_slot(primary: GraphTensor, val: Tensor, name: str, colocate_with_primary: bool = True) -> Any:
    """Creates a slot of ``primary`` (a variable or tensor) with the initial value and type of ``val``."""
    complete = val.shape.is_fully_defined()
    return _in_slot_scope(primary, name, colocate_with_primary, lambda: _create(primary, val, complete, None, None))


def create_slot_with_initializer(
    primary: GraphTensor,
    initializer: Callable[..., Any],
    shape: TensorShape,
    dtype: DTypeLike,
    name: str,
    colocate_with_primary: bool = True,
) -> Any:
    """Creates a slot of ``primary`` of the given shape and dtype with an initializer."""
    complete = shape.is_fully_defined()
    return _in_slot_scope(
        primary, name, colocate_with_primary, lambda: _create(primary, initializer, complete, shape, dtype)
    )


def create_zeros_slot(
    primary: Any, name: str, dtype: DTypeLike | None = None, colocate_with_primary: bool = True
) -> Any:
    """Creates a slot of zeros of ``primary``'s shape; by default also of its dtype."""
    dtype = primary.dtype.base_dtype if dtype is None else dtype
    shape = primary.get_shape()
    if shape.is_fully_defined():
        initializer = zeros_initializer()
        return create_slot_with_initializer(primary, initializer, shape, dtype, name, colocate_with_primary)
    value = primary.initialized_value() if isinstance(primary, Variable) else primary  # type: ignore[attr-defined]
    zeros = array_filling.zeros(array_shape.shape(value), dtype=dtype)
    return create_slot(primary, zeros, name, colocate_with_primary)


def _in_slot_scope(primary: GraphTensor, name: str, colocate: bool, create: Callable[[], Any]) -> Any:
    place: AbstractContextManager[Any] = colocate_with(primary) if colocate else nullcontext()
    # A default name, which is made unique if a slot of that name exists.
    with variable_scope(None, primary.op.name + "/" + name), place:
        return create()


def _create(
    primary: GraphTensor,
    value: Callable[..., Any] | TensorLike,
    validate_shape: bool,
    shape: ShapeLike,
    dtype: DTypeLike | None,
) -> Any:
    scope = get_variable_scope()
    # The slot of a partition must not be partitioned again.
    partitioner = scope.partitioner
    scope.set_partitioner(None)
    try:
        slot = get_variable(
            "",
            initializer=value,
            trainable=False,
            use_resource=primary.op.type == "VarHandleOp" if isinstance(primary, Variable) else None,
            shape=shape if callable(value) else None,
            dtype=dtype,
            validate_shape=validate_shape,
        )
    finally:
        scope.set_partitioner(partitioner)
    if isinstance(primary, Variable) and primary._save_slice_info:
        _mark_as_slice(slot, primary)
    return slot


def _mark_as_slice(slot: Any, primary: Any) -> None:
    info = primary._save_slice_info
    own_name = slot.op.name[len(primary.op.name) + 1 :]
    slot._set_save_slice_info(
        SaveSliceInfo(f"{info.full_name}/{own_name}", info.full_shape[:], info.var_offset[:], info.var_shape[:])
    )


# ---- Conversion and checks of an optimizer's inputs: variables, gradients and the global step ----------------------

GradAndVar = tuple[Any, Any]


def is_resource(variable: Variable) -> bool:
    """Whether a variable is a resource variable (rather than a reference variable)."""
    return bool(variable.op.type == "VarHandleOp") or grows(variable)


def grows(variable: Variable) -> bool:
    """Whether a variable is a table of `tf.get_embedding_variable`, or a part of one."""
    return isinstance(variable, EmbeddingVariable)


def of_fixed_size(var_list: Iterable[Any]) -> list[Any]:
    """The variables but tables, which keep the slots of their rows themselves."""
    return [v for v in var_list if not grows(v)]


def state_of(variable: Any) -> Tensor:
    """The input of an update op for a variable: its handle or its reference."""
    return variable.handle if is_resource(variable) else variable._ref()  # type: ignore[no-any-return]


def chosen_variables(var_list: Iterable[Any]) -> list[Any]:
    """The given variables, or all trainable ones of the default graph; raises ValueError if there are none."""
    if var_list is None:
        chosen = trainable_variables() + get_collection(GraphKeys.TRAINABLE_RESOURCE_VARIABLES)
    else:
        chosen = nest.flatten(var_list)
    if not chosen:
        raise ValueError("No variables to optimize.")
    return chosen


def differentiation_target(var: Variable) -> Any:
    """The tensor or variable to differentiate by for ``var``; raises NotImplementedError for other types."""
    if isinstance(var, Variable):
        return var if is_resource(var) else state_of(var)
    if isinstance(var, Tensor):
        return var
    raise NotImplementedError(f"Trying to optimize unsupported type {type(var).__name__}: {var!r} is no variable.")


def checked_pairs(grads_and_vars: Iterable[GradAndVar]) -> list[GradAndVar]:
    """The pairs with gradients converted to tensors or `IndexedSlices`; raises ValueError if there are none."""
    pairs = [(None if grad is None else _as_gradient(grad), var) for grad, var in grads_and_vars]
    if not pairs:
        raise ValueError("No variables provided.")
    for _, var in pairs:
        differentiation_target(var)
    return pairs


def _as_gradient(grad: Tensor | IndexedSlices) -> Any:
    try:
        grad = convert_to_tensor_or_indexed_slices(grad)
    except TypeError:
        raise TypeError(f"Gradient must be convertible to a Tensor or IndexedSlices, or None: {grad}") from None
    if not isinstance(grad, (Tensor, IndexedSlices)):
        raise TypeError(f"Gradient must be a Tensor, IndexedSlices, or None: {grad}")
    return grad


def increment_op(global_step: Any, name: str) -> Operation:
    """An operation called ``name`` that adds one to the global step."""
    if is_resource(global_step):
        one = convert_to_tensor(1, dtype=global_step.dtype)
        return raw_ops.AssignAddVariableOp(global_step.handle, one, name=name)
    if isinstance(global_step, Tensor) and not global_step.dtype._is_ref_dtype:
        global_step.assign_add  # type: ignore[attr-defined]  # noqa: B018 - an AttributeError, as in TensorFlow
    reference = state_of(global_step) if isinstance(global_step, Variable) else global_step
    return raw_ops.AssignAdd(reference, 1, name=name).op
