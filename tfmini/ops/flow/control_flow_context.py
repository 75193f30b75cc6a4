"""`ControlFlowContext`: the base of the contexts in which conds and loops are built.

A context is active while the functions of a cond branch or a loop are called. The graph passes each op
that is made meanwhile to `AddOp`, which brings inputs from outside into the branch or loop (`AddValue`).
The methods have TensorFlow's names because programs that build loops by hand and graph serialisers call
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.attr_checks import is_within, output_context
from tfmini.graph.families import Operation, Tensor, get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.names import prepend_name_scope, strip_name_scope


@export("tensorflow.python.ops.control_flow_ops.ControlFlowContext")
class ControlFlowContext:
    """A cond branch or a loop.

    Attributes:
      outer_context: the context in which this one was made, or None.
    """

    _name: str

    def __init__(self) -> None:
        self._graph: Graph = get_default_graph()
        self._outer_context: ControlFlowContext | None = self._graph._get_control_flow_context()
        self._nested_contexts: list[ControlFlowContext] = []
        if self._outer_context is not None:
            self._outer_context._nested_contexts.append(self)
        self._entered_from: list[Any] = []
        # The names of the tensors that can be used here, and the tensors that replace those from outside.
        self._values: set[str] = set()
        self._external_values: dict[str, Tensor] = {}

    @property
    def name(self) -> str:
        """The unique name within the graph; a loop's is its frame name."""
        return self._name

    @property
    def outer_context(self) -> Any:
        return self._outer_context

    @property
    def grad_state(self) -> Any:
        """The `GradLoopState` of a backprop loop (here or around), else None."""
        raise NotImplementedError

    @property
    def back_prop(self) -> bool:
        """Whether gradients may pass through the loop."""
        raise NotImplementedError

    # ---- building ------------------------------------------------------------------------------

    def Enter(self) -> None:
        """Makes this the context of new ops."""
        self._entered_from.append(self._graph._get_control_flow_context())
        self._graph._set_control_flow_context(self)

    def Exit(self) -> None:
        """Undoes `Enter`."""
        self._graph._set_control_flow_context(self._entered_from.pop())

    def ExitResult(self, result: Any) -> None:
        """Adds the tensors of ``result`` to the outer context."""
        outer = self._outer_context
        if outer is not None:
            for tensor in nest.flatten(result, expand_composites=True):
                outer.AddName(tensor.name)

    def AddName(self, name: str) -> None:
        """Marks a tensor as usable in this context."""
        self._values.add(name)

    def AddValue(self, val: Tensor) -> Tensor:
        """The tensor that stands for ``val`` in this context."""
        raise NotImplementedError

    def AddOp(self, op: Operation) -> None:
        """Takes a new op into this context. New Switch and Enter ops are named after it."""
        scopes = self._graph.name_scopes
        outer = scopes.current
        if op.type != "Const":  # A Const has no inputs; it belongs to the op that it is made for.
            scopes.current = op.name
        try:
            self._add_op(op)
        finally:
            scopes.current = outer

    def _add_op(self, op: Operation) -> None:
        raise NotImplementedError

    def AddInnerOp(self, op: Operation) -> None:
        """Called with each op of a nested context."""
        if self._outer_context is not None:
            self._outer_context.AddInnerOp(op)

    def _replace_inputs(self, op: Operation) -> None:
        """Replaces the inputs of ``op`` by the tensors that stand for them in this context."""
        for index, tensor in enumerate(op.inputs):
            # The back edge of a loop that is being imported: its NextIteration joins this context later.
            if tensor.op.type == "NextIteration" and op.type == "Merge":
                continue
            here = self.AddValue(tensor)
            if here is not tensor:
                op._update_input(index, here)

    def _drop_external_controls(self, op: Operation) -> list[Operation]:
        """Removes the control inputs of ``op`` from outside of the innermost loop, and returns them."""
        loop = self.GetWhileContext()
        if loop is None or not op.control_inputs:
            return []
        inside = []
        for control in op.control_inputs:
            context = output_context(control)
            if context is not None and context.GetWhileContext() is loop:
                inside.append(control)
        outside = [control for control in op.control_inputs if control not in inside]
        if outside:
            op._remove_all_control_inputs()
            op._add_control_inputs(inside)
        return outside

    # ---- what it is ----------------------------------------------------------------------------

    def GetWhileContext(self) -> Any:
        """The innermost loop: this one or one around it."""
        return None if self._outer_context is None else self._outer_context.GetWhileContext()

    def GetControlPivot(self) -> Tensor | None:
        """The tensor whose op is alive if and only if this context runs."""
        return None

    def IsWhileContext(self) -> bool:
        return False

    def IsCondContext(self) -> bool:
        return False

    def IsXLAContext(self) -> bool:
        return False

    def __str__(self) -> str:
        return self._name

    # ---- messages ------------------------------------------------------------------------------

    def to_control_flow_context_def(self, context_def: object, export_scope: str | None = None) -> None:
        """Writes the context into a ``ControlFlowContextDef`` message."""
        raise NotImplementedError

    def _values_to_proto(self, message: Any, export_scope: str | None) -> None:
        message.values.extend(strip_name_scope(name, export_scope) for name in sorted(self._values))
        for outside, here in self._external_values.items():
            message.external_values[strip_name_scope(outside, export_scope)] = strip_name_scope(here.name, export_scope)

    def _values_from_proto(self, message: Any, import_scope: str | None) -> None:
        graph = self._graph
        self._values = {prepend_name_scope(name, import_scope) for name in message.values}
        self._external_values = {
            prepend_name_scope(outside, import_scope): graph.as_graph_element(prepend_name_scope(here, import_scope))
            for outside, here in message.external_values.items()
        }
        for name in {value.split(":")[0] for value in self._values - set(self._external_values)}:
            graph.as_graph_element(name)._set_control_flow_context(self)


def is_op_in(op: Operation, context: object) -> bool:
    """Whether ``op`` belongs to ``context`` or to one nested in it."""
    return is_within(op._control_flow_context, context)


@contextmanager
def inside(context: ControlFlowContext | None) -> Iterator[None]:
    """While it lasts, new ops are made in ``context``; None keeps the current context."""
    if context is None:
        yield
        return
    context.Enter()
    try:
        yield
    finally:
        context.Exit()


@contextmanager
def outside(context: ControlFlowContext) -> Iterator[None]:
    """While it lasts, new ops are made where they were made before ``context``, the current one, was entered."""
    context.Exit()
    try:
        yield
    finally:
        context.Enter()
