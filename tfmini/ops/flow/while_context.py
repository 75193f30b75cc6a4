"""`WhileContext`: the context in which a loop is built, a forward loop or a backprop loop."""

from __future__ import annotations

from typing import Any

from tfmini.graph.families import Operation, Tensor, control_dependencies, get_default_graph
from tfmini.graph.flow_checks import output_context, while_context_of
from tfmini.graph.scoped_names import prepend_name_scope, strip_name_scope
from tfmini.graph.traits import ENTER_OPS, EXIT_OPS
from tfmini.ops.array.identity import identity
from tfmini.ops.flow import flow_ops as flow
from tfmini.ops.flow.control_flow_context import ControlFlowContext

# A backprop loop has these computed in the forward loop: the stack then holds a few numbers instead
# of a tensor.
_COMPUTED_FORWARD = frozenset({"Shape", "Size", "Rank"})


class WhileContext(ControlFlowContext):
    """A loop.

    Args:
      maximum_iterations: a scalar tensor, or None.
      parallel_iterations: how many iterations may be in flight.
      back_prop: whether gradients may pass.
      swap_memory: accepted and unused; memory is not swapped.
      name: of the context, made unique: the frame name.
      grad_state: the `GradLoopState` if this is a backprop loop.

    Raises:
      ValueError: when ``parallel_iterations`` is not a positive integer.
    """

    def __init__(
        self, maximum_iterations: Tensor | None = None, parallel_iterations: int = 10, back_prop: bool = True,
        swap_memory: bool = False, name: str = "while_context", grad_state: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if not isinstance(parallel_iterations, int) or parallel_iterations <= 0:
            raise ValueError(f"`parallel_iterations` must be a positive integer: {parallel_iterations}")
        self._name = self._graph.unique_name(name)
        self._maximum_iterations = maximum_iterations
        self._parallel_iterations = parallel_iterations
        self._back_prop = back_prop
        self._swap_memory = swap_memory
        # Alive in every evaluation of the predicate, and in every iteration of the body.
        self._pivot_for_pred: Tensor | None = None
        self._pivot_for_body: Tensor | None = None
        self._pivot: Tensor | None = None
        self._loop_exits: list[Tensor] = []
        self._loop_enters: list[Tensor] = []
        self._grad_state = grad_state

    @property
    def maximum_iterations(self) -> Tensor | None:
        return self._maximum_iterations

    @property
    def parallel_iterations(self) -> int:
        return self._parallel_iterations

    @property
    def back_prop(self) -> bool:
        return self._back_prop

    @property
    def swap_memory(self) -> bool:
        return self._swap_memory

    @property
    def pivot(self) -> Tensor:
        """The LoopCond: whether there is another iteration."""
        assert self._pivot is not None
        return self._pivot

    @property
    def loop_enters(self) -> list[Tensor]:
        """The Enter tensors of the loop variables and invariants."""
        return self._loop_enters

    @property
    def loop_exits(self) -> list[Tensor]:
        """The Exit tensors of the loop variables."""
        return self._loop_exits

    @property
    def grad_state(self) -> Any:
        return self._grad_state

    def GetWhileContext(self) -> WhileContext:
        return self

    def GetControlPivot(self) -> Tensor | None:
        return self._pivot_for_pred if self._pivot_for_body is None else self._pivot_for_body

    def IsWhileContext(self) -> bool:
        return True

    # ---- values --------------------------------------------------------------------------------

    def AddValue(self, val: Tensor) -> Tensor:
        name = val.name
        if name in self._values or val.op._control_flow_context is self:
            return self._external_values.get(name, val)
        self._values.add(name)
        remembered = self._from_forward_loop(val)
        if remembered is not None:
            self._external_values[name] = remembered
            return remembered
        outside = val if self._outer_context is None else self._outer_context.AddValue(val)
        with control_dependencies(None):
            entered: Tensor = self.enter(outside, is_constant=True)
            self._graph.prevent_feeding(entered)
            if self._outer_context is not None:
                self._outer_context.AddInnerOp(entered.op)
        self.adopt_enters([entered])
        self._values.add(entered.name)
        self._external_values[name] = entered
        return entered

    def _from_forward_loop(self, val: Tensor) -> Tensor | None:
        """The tensor in a backprop loop for a value of its forward loop: its value in the same iteration."""
        current = while_context_of(self._graph._get_control_flow_context())
        if current is None or current.grad_state is None:
            return None
        source = while_context_of(val.op._control_flow_context)
        if source is not None and val.op.type in EXIT_OPS:
            source = while_context_of(source.outer_context)
        if source is not current.grad_state.forward_context:
            return None
        return current.grad_state.GetRealValue(val)  # type: ignore[no-any-return]

    def enter(self, value: Any, name: str | None = None, **options: Any) -> Any:
        """An Enter of this loop."""
        return flow.enter(value, self._name, parallel_iterations=self._parallel_iterations, name=name, **options)

    def adopt_enters(self, enters: list[Tensor]) -> None:
        """Adds Enters that were made outside of any context to this loop.

        They get the current control dependencies that are within the outer loop.
        """
        scopes = self._graph.scopes
        outer_loop = while_context_of(self._outer_context)
        for tensor in enters:
            op = tensor.op
            kept = [
                control for control in scopes.control_inputs_for([op.inputs[0]])
                if self._is_around(output_context(control), outer_loop)
            ]  # fmt: skip
            op._set_control_flow_context(self)
            op._add_control_inputs(kept)
            for scope in scopes.control:
                scope.made.add(op)

    def _is_around(self, context: Any, outer_loop: Any) -> bool:
        """Whether ``context`` is around this loop, but not around the outer loop."""
        outer = self._outer_context
        while outer is not context:
            if outer is None or outer is outer_loop:
                return False
            outer = outer.outer_context
        return True

    # ---- ops -----------------------------------------------------------------------------------

    def _add_op(self, op: Operation) -> None:
        forward = self._forward_context_for(op) if op.type in _COMPUTED_FORWARD else None
        if forward is None:
            self.add_op_here(op)
        else:
            op._set_control_flow_context(forward)
            add = forward.add_op_here if isinstance(forward, WhileContext) else forward._add_op
            add(op)

    def _forward_context_for(self, op: Operation) -> Any:
        """The forward loop's context, if this is its backprop loop and the op's input is in it."""
        current = while_context_of(self._graph._get_control_flow_context())
        if current is None or current.grad_state is None:
            return None
        context = op.inputs[0].op._control_flow_context
        return context if while_context_of(context) is current.grad_state.forward_context else None

    def add_op_here(self, op: Operation) -> None:
        """Adds an op to this loop."""
        if op.inputs:
            self._replace_inputs(op)
            external = self._drop_external_controls(op)
            if not op.control_inputs and all(is_loop_constant(t.op) for t in op.inputs):
                # Loop invariants are available before the first iteration, and without any.
                self._tie_to_pivot(op)
        else:
            external = self._drop_external_controls(op)
            if not op.control_inputs:
                self._tie_to_pivot(op)
        self._values.update(t.name for t in op.outputs)
        if external:
            self._wait_for(op, external)
        if self._outer_context is not None or op.type not in EXIT_OPS:
            self._graph.prevent_fetching(op)
            for tensor in op.outputs:
                self._graph.prevent_feeding(tensor)
        if self._outer_context is not None:
            self._outer_context.AddInnerOp(op)

    def _tie_to_pivot(self, op: Operation) -> None:
        pivot = self.GetControlPivot()
        assert pivot is not None
        op._add_control_input(pivot.op)

    def _wait_for(self, op: Operation, external: list[Operation]) -> None:
        """Replaces control inputs from outside by control inputs on copies of their outputs in the loop."""
        with control_dependencies(None):
            self.Enter()
            copies = [identity(control.outputs[0]).op for control in external if control.outputs]
            self.Exit()
        op._add_control_inputs(copies)

    # ---- messages ------------------------------------------------------------------------------

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The context as a ``WhileContextDef`` message, or None when it is not in the scope."""
        from tfmini import protos  # Imported here because protobuf is slow to import.

        if export_scope is not None and not self._name.startswith(export_scope):
            return None

        def text(tensor: Tensor | None) -> str:
            return "" if tensor is None else strip_name_scope(tensor.name, export_scope)

        message = protos.WhileContextDef(
            context_name=strip_name_scope(self._name, export_scope),
            parallel_iterations=self._parallel_iterations,
            back_prop=self._back_prop,
            swap_memory=self._swap_memory,
            pivot_name=text(self._pivot),
            pivot_for_pred_name=text(self._pivot_for_pred),
            pivot_for_body_name=text(self._pivot_for_body),
            loop_exit_names=[text(t) for t in self._loop_exits],
            loop_enter_names=[text(t) for t in self._loop_enters],
            maximum_iterations_name=text(self._maximum_iterations),
        )
        self._values_to_proto(message.values_def, export_scope)
        for nested in self._nested_contexts:
            nested.to_control_flow_context_def(message.nested_contexts.add(), export_scope)
        return message

    def to_control_flow_context_def(self, context_def: Any, export_scope: str | None = None) -> None:
        context_def.while_ctxt.CopyFrom(self.to_proto(export_scope))

    @classmethod
    def _restored(cls, message: Any, import_scope: str | None) -> WhileContext:
        """The context without its nested contexts, for ops that are in the default graph."""
        self = cls.__new__(cls)
        graph = get_default_graph()

        def tensor(name: str) -> Any:
            return graph.as_graph_element(prepend_name_scope(name, import_scope)) if name else None

        ControlFlowContext.__init__(self)
        self._name = prepend_name_scope(message.context_name, import_scope)
        self._maximum_iterations = tensor(message.maximum_iterations_name)
        self._parallel_iterations = message.parallel_iterations
        self._back_prop, self._swap_memory = message.back_prop, message.swap_memory
        self._pivot = tensor(message.pivot_name)
        self._pivot_for_pred = tensor(message.pivot_for_pred_name)
        self._pivot_for_body = tensor(message.pivot_for_body_name)
        self._loop_exits = [tensor(name) for name in message.loop_exit_names]
        self._loop_enters = [tensor(name) for name in message.loop_enter_names]
        self._grad_state = None
        self._values_from_proto(message.values_def, import_scope)
        if import_scope:
            self._rename_frame(message.context_name.encode())
        return self

    def _rename_frame(self, old_name: bytes) -> None:
        for name in self._values:
            op = self._graph.as_graph_element(name).op
            if op.type in ENTER_OPS and op.attrs["frame_name"] == old_name:
                op.attrs["frame_name"] = self._name.encode()


def is_loop_constant(op: Operation) -> bool:
    """Whether ``op`` is the Enter of a loop invariant."""
    return op.type in ENTER_OPS and bool(op.attrs["is_constant"])
