"""``tf.cond``: runs one of two branches, by a predicate of the step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.families import (
    IndexedSlices,
    Operation,
    Tensor,
    control_dependencies,
    convert_to_tensor,
    get_default_graph,
)
from tfmini.graph.names import GraphKeys, prepend_name_scope, strip_name_scope
from tfmini.graph.op_types import EXIT_OPS
from tfmini.graph.scoping import add_to_collection, name_scope
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.control import group, no_op, with_dependencies
from tfmini.ops.flow import flow_ops as flow
from tfmini.ops.flow.control_flow_context import ControlFlowContext, inside, is_op_in
from tfmini.ops.flow.tensor_array import TensorArray

# ---- `CondContext`: the context in which one branch of a cond is built ---------------------------------------------


class CondContext(ControlFlowContext):
    """One branch of a cond.

    Args:
      pred: the predicate.
      pivot: an identity of the predicate that is alive only if this branch is taken.
      branch: 1 for the true branch, 0 for the false one.
      name: of the context.
    """

    def __init__(self, pred: Tensor, pivot: Tensor, branch: int, name: str = "cond_text") -> None:
        self._name = get_default_graph().unique_name(name)
        super().__init__()
        self._pred, self._pivot, self._branch = pred, pivot, branch
        self._values.update((pred.name, pivot.name))
        self._external_values[pred.name] = pred
        pivot.op._set_control_flow_context(self)

    @property
    def pred(self) -> Tensor:
        return self._pred

    @property
    def pivot(self) -> Tensor:
        return self._pivot

    @property
    def branch(self) -> int:
        return self._branch

    @property
    def grad_state(self) -> Any:
        loop = self.GetWhileContext()
        return None if loop is None else loop.grad_state

    @property
    def back_prop(self) -> bool:
        return False

    def GetControlPivot(self) -> Tensor:
        return self._pivot

    def IsCondContext(self) -> bool:
        return True

    # ---- building ------------------------------------------------------------------------------

    def AddValue(self, val: Tensor) -> Tensor:
        name = val.name
        if name in self._values:
            return self._external_values.get(name, val)
        # From the outside in: a call per level would be too deep for Python if there are hundreds.
        chain = [self]
        while isinstance(outer := chain[-1]._outer_context, CondContext) and name not in outer._values:
            chain.append(outer)
        for context in reversed(chain):
            result = context._switched(val)
        return result

    def _switched(self, val: Tensor) -> Tensor:
        """A value from outside, which the context around knows, as it is in this branch."""
        name = val.name
        self._values.add(name)
        outside = self._outside(val)
        with control_dependencies(None):
            result: Tensor = flow.switch_beside(outside, self._pred)[self._branch]
            if self._outer_context is not None:
                self._outer_context.AddInnerOp(result.op)
        self._graph.prevent_fetching(result.op)
        result.op._set_control_flow_context(self)
        self._add_names([result])
        self._external_values[name] = result
        return result

    def _outside(self, val: Tensor) -> Tensor:
        """The tensor for ``val`` in the context around the cond."""
        if self._outer_context is None:
            return val
        found = self._outer_context.AddValue(val)
        self._values.add(found.name)
        self._external_values[found.name] = found
        return found

    def _add_names(self, tensors: list[Tensor]) -> None:
        names = [t.name for t in tensors]
        context: Any = self
        while context is not None:
            context._values.update(names)
            context = context._outer_context

    def _add_op(self, op: Operation) -> None:
        if op.inputs:
            self._replace_inputs(op)
            self._drop_external_controls(op)
        else:
            self._drop_external_controls(op)
            if not any(is_op_in(control, self) for control in op.control_inputs):
                op._add_control_input(self._pivot.op)
        self._add_names(op.outputs)
        if self._outer_context is not None or op.type not in EXIT_OPS:
            self._graph.prevent_fetching(op)
        if self._outer_context is not None:
            self._outer_context.AddInnerOp(op)

    def BuildCondBranch(self, fn: Callable[[], Any]) -> tuple[Any, Any]:
        """Calls the branch's function and makes its results the branch's outputs.

        Returns:
          (the result of ``fn``, the same structure with tensors for operations and arrays); both are
          None when ``fn`` returns nothing.
        """
        count = self.summaries()
        return self.branch_outputs(fn(), count)

    def summaries(self) -> int:
        """How many summaries the graph has, for `branch_outputs`."""
        return len(self._graph.get_collection_ref(GraphKeys._SUMMARY_COLLECTION))

    def branch_outputs(self, original: Any, count: int) -> tuple[Any, Any]:
        """What `BuildCondBranch` returns for a function that returned ``original``; ``count`` summaries were before."""
        summaries = self._graph.get_collection_ref(GraphKeys._SUMMARY_COLLECTION)
        added = summaries[count:]
        if added:
            # A summary of a branch runs with the branch; it cannot be fetched from outside.
            del summaries[count:]
            with control_dependencies(added):
                if original is None:
                    return no_op(), None
                original = nest.map_structure(_after_controls, original, expand_composites=True)
        if original is None:
            return None, None
        result = nest.map_structure(self._branch_output, original, expand_composites=True)
        return original, result if isinstance(result, (list, tuple)) else [result]

    def _branch_output(self, value: Operation | TensorLike) -> Tensor:
        if isinstance(value, Operation):
            return with_dependencies([value], self._pivot)
        if isinstance(value, TensorArray):
            value = value.flow
        tensor = convert_to_tensor(value)
        name = tensor.name
        if name in self._values:
            return self._external_values.get(name, tensor)
        # A function may return a tensor from outside: ``lambda: x``.
        self._values.add(name)
        outside = self._outside(tensor)
        result: Tensor = flow.switch_beside(outside, self._pred)[self._branch]
        self._external_values[name] = result
        return result

    # ---- messages ------------------------------------------------------------------------------

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The context as a ``CondContextDef`` message, or None when it is not in the scope."""
        from tfmini import protos  # Imported here because protobuf is slow to import.

        if export_scope is not None and not self._name.startswith(export_scope):
            return None
        message = protos.CondContextDef(
            context_name=strip_name_scope(self._name, export_scope),
            pred_name=strip_name_scope(self._pred.name, export_scope),
            pivot_name=strip_name_scope(self._pivot.name, export_scope),
            branch=self._branch,
        )
        self._values_to_proto(message.values_def, export_scope)
        for nested in self._nested_contexts:
            nested.to_control_flow_context_def(message.nested_contexts.add(), export_scope)
        return message

    def to_control_flow_context_def(self, context_def: Any, export_scope: str | None = None) -> None:
        context_def.cond_ctxt.CopyFrom(self.to_proto(export_scope))

    @classmethod
    def _restored(cls, message: Any, import_scope: str | None) -> CondContext:
        """The context without its nested contexts, for ops that are in the default graph."""
        self = cls.__new__(cls)
        graph = get_default_graph()
        self._name = prepend_name_scope(message.context_name, import_scope)
        ControlFlowContext.__init__(self)
        self._pred = graph.as_graph_element(prepend_name_scope(message.pred_name, import_scope))
        self._pivot = graph.as_graph_element(prepend_name_scope(message.pivot_name, import_scope))
        self._branch = message.branch
        self._values_from_proto(message.values_def, import_scope)
        return self


def _after_controls(value: TensorLike) -> Any:
    """``value`` after the current control dependencies."""
    if isinstance(value, TensorArray):
        return value.identity()
    return group(value) if isinstance(value, Operation) else identity(value)


# ---- ``tf.cond``: builds both branches and merges what they return -------------------------------------------------

Branch = Callable[[], Any]


@export("tf.cond")
def cond(
    pred: TensorLike, true_fn: Branch | None = None, false_fn: Branch | None = None, strict: bool = False,
    name: str | None = None, fn1: Branch | None = None, fn2: Branch | None = None,
) -> Any:  # fmt: skip
    """Returns the result of ``true_fn`` if ``pred`` is true, else that of ``false_fn`` (``tf.cond``).

    Both functions are called once, by this call. In a step, only ops made in the chosen branch run;
    ops from outside that they use run in any case.

    Args:
      pred: a scalar bool tensor.
      true_fn, false_fn: functions without arguments that return the same structure of tensors,
        operations or `TensorArray`s. A list of one element counts as that element.
      strict: keep lists of one element.
      name: of the name scope.
      fn1, fn2: old names of ``true_fn`` and ``false_fn``.

    Raises:
      TypeError: when a function is missing or not callable, structures differ, or ``pred`` is a bool.
      ValueError: when a function returns nothing, or types or structures differ.
    """
    true_fn = _branch("true_fn", true_fn, "fn1", fn1)
    false_fn = _branch("false_fn", false_fn, "fn2", fn2)
    if not callable(true_fn):
        raise TypeError("true_fn must be callable.")
    if not callable(false_fn):
        raise TypeError("false_fn must be callable.")
    return first_true([(pred, true_fn)], false_fn, strict, name)


def first_true(pairs: list[tuple[Any, Branch]], default: Branch, strict: bool = False, name: str | None = None) -> Any:
    """Nested conds: the result of the first function whose predicate is true, else that of ``default``.

    A level takes no frame of Python's stack, so that hundreds of branches can be built.

    Args:
      pairs: (scalar bool tensor, function); the first one is the outermost cond.
      default: as the functions.
      strict, name: as for `cond`.
    """
    levels: list[_Level] = []
    with ExitStack() as stack:
        for pred, function in pairs:
            levels.append(_Level(pred, function, strict, name))
            stack.push(levels[-1].undo)
            levels[-1].begin()
        result = default()
        for level in reversed(levels):
            result = level.end(result)
    return result


class _Level:
    """One of nested conds, while the functions of the others are called."""

    def __init__(self, pred: TensorLike, true_fn: Branch, strict: bool, name: str | None) -> None:
        self.pred, self.true_fn, self.strict, self.name = pred, true_fn, strict, name
        self.scope, self.branch = ExitStack(), ExitStack()

    def begin(self) -> None:
        """Builds the true branch, and enters the false one."""
        self.scope.enter_context(name_scope(self.name, "cond", [self.pred]))
        if isinstance(self.pred, bool):
            raise TypeError("pred must not be a Python bool")
        self.contexts = _contexts(self.pred)
        context = self.contexts[0]
        with inside(context):
            count = context.summaries()
            self.if_true = self._result(context, "true_fn", self.true_fn(), count)
        self.branch.enter_context(inside(self.contexts[1]))
        self.count = self.contexts[1].summaries()

    def end(self, original: object) -> Any:
        """Leaves the false branch, whose function returned ``original``, and merges both."""
        context = self.contexts[1]
        if_false = self._result(context, "false_fn", original, self.count)
        self.branch.close()
        merged = _merge(*zip(self.if_true, if_false))
        if context.outer_context is None:
            # A nested context is exported with its outer context.
            for context in self.contexts:
                add_to_collection(GraphKeys.COND_CONTEXT, context)
        self.scope.close()
        return merged if self.strict else unpack_if_single(merged)

    def _result(self, context: CondContext, name: str, original: object, summaries: int) -> tuple[Any, Any]:
        """A function's result, and the branch's output tensors in the same structure."""
        original, result = context.branch_outputs(original, summaries)
        if original is None:
            raise ValueError(f"{name} must have a return value.")
        context.ExitResult(result)
        return original if self.strict else unpack_if_single(original), result

    def undo(self, *error: Any) -> None:
        """Leaves what has been entered, after an error in the branch."""
        self.branch.__exit__(*error)
        self.scope.__exit__(*error)


def _branch(name: str, function: Branch | None, old_name: str, old_function: Branch | None) -> Any:
    if old_function is None:
        if function is None:
            raise TypeError(f"cond(): {name} argument required")
        return function
    if function is not None:
        raise TypeError(f"cond(): {name} and {old_name} may not be set simultaneously.")
    return old_function


def _contexts(pred: TensorLike) -> tuple[CondContext, CondContext]:
    """Makes the contexts of the true and the false branch, with their pivots."""
    if_false, if_true = flow.switch(pred, pred)
    pivots = identity(if_true, name="switch_t"), identity(if_false, name="switch_f")
    pred = identity(pred, name="pred_id")
    for tensor in (if_true, *pivots, pred):
        tensor.graph.prevent_fetching(tensor.op)
    return CondContext(pred, pivots[0], branch=1), CondContext(pred, pivots[1], branch=0)


def _merge(originals: tuple[Any, ...], results: tuple[Any, ...]) -> Any:
    """Merges the results of the two branches, in the structure that the functions returned."""
    _check_structures(originals)
    if not results[0]:
        raise ValueError("true_fn and false_fn must return at least one result.")
    pairs = list(zip(*map(nest.flatten, results)))
    if_true = nest.flatten([_with_wide_indices(a, b) for a, b in pairs], expand_composites=True)
    if_false = nest.flatten([_with_wide_indices(b, a) for a, b in pairs], expand_composites=True)
    for a, b in zip(if_true, if_false):
        if a.dtype.base_dtype is not b.dtype.base_dtype:
            raise ValueError(f"Outputs of true_fn and false_fn must have the same type: {a.dtype.name}, {b.dtype.name}")
    merges = [flow.merge(pair)[0] for pair in zip(if_false, if_true)]
    flat = nest.flatten(originals[0], expand_composites=True)
    merges = [o.with_flow(m) if isinstance(o, TensorArray) else m for o, m in zip(flat, merges)]
    return nest.pack_sequence_as(originals[0], merges, expand_composites=True)


def _check_structures(originals: tuple[Any, ...]) -> None:
    try:
        nest.assert_same_structure(originals[0], originals[1], expand_composites=True)
    except (TypeError, ValueError) as error:
        kind = "types" if isinstance(error, TypeError) else "values"
        raise type(error)(f"Incompatible return {kind} of true_fn and false_fn: {error}") from None


def _with_wide_indices(value: Tensor | IndexedSlices, other: Any) -> Any:
    """``value`` with int64 indices if both are indexed slices whose indices differ in type."""
    if not isinstance(value, IndexedSlices) or value.indices.dtype is other.indices.dtype:
        return value
    return IndexedSlices(value.values, cast(value.indices, dtypes.int64), value.dense_shape)


def unpack_if_single(value: object) -> Any:
    """The element of a list or tuple of one; any other value unchanged."""
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


# ---- conditions that may be known ---------------------------------------------------------------


@export("tf.contrib.framework.smart_constant_value")
def smart_constant_value(pred: TensorLike) -> bool | None:
    """The value of a predicate if it is a bool, 0, 1 or a constant tensor; None for other tensors.

    Raises:
      TypeError: for values of other types.
    """
    if pred is True or pred is False:
        return bool(pred)
    if isinstance(pred, Tensor):
        value = constant_value(pred)
        return None if value is None else bool(value)
    if isinstance(pred, (int, np.bool_)) and pred in (0, 1):
        return bool(pred)
    if hasattr(pred, "_as_graph_element"):  # a variable
        return None
    raise TypeError(f"`pred` must be a Tensor, or a Python bool, or 1 or 0. Found instead: {type(pred)}")


@export("tf.contrib.framework.smart_cond")
def smart_cond(
    pred: TensorLike, true_fn: Branch | None = None, false_fn: Branch | None = None, name: str | None = None
) -> Any:
    """`cond`, or only the chosen branch if ``pred`` is known (``tf.contrib.framework.smart_cond``).

    Raises:
      TypeError: when a function is not callable.
    """
    if not callable(true_fn):
        raise TypeError("`true_fn` must be callable.")
    if not callable(false_fn):
        raise TypeError("`false_fn` must be callable.")
    known = smart_constant_value(pred)
    if known is None:
        return cond(pred, true_fn=true_fn, false_fn=false_fn, name=name)
    return true_fn() if known else false_fn()


@export("tf.contrib.layers.utils.smart_cond")
def smart_cond_of_layers(pred: TensorLike, fn1: Branch, fn2: Branch, name: str | None = None) -> Any:
    """`smart_cond`, with other names of the functions (``tf.contrib.layers.utils.smart_cond``)."""
    return smart_cond(pred, fn1, fn2, name)
