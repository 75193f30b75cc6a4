"""`CondContext`: the context in which one branch of a cond is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini.graph import nest
from tfmini.graph.families import Operation, Tensor, control_dependencies, convert_to_tensor, get_default_graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.scoped_names import prepend_name_scope, strip_name_scope
from tfmini.graph.traits import EXIT_OPS
from tfmini.ops.array.identity import identity
from tfmini.ops.control import group, no_op, with_dependencies
from tfmini.ops.flow import flow_ops as flow
from tfmini.ops.flow.control_flow_context import ControlFlowContext, is_op_in
from tfmini.ops.flow.tensor_array import TensorArray


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

    def _branch_output(self, value: Any) -> Tensor:
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


def _after_controls(value: Any) -> Any:
    """``value`` after the current control dependencies."""
    if isinstance(value, TensorArray):
        return value.identity()
    return group(value) if isinstance(value, Operation) else identity(value)
