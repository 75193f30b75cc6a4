"""`GradLoopState`: a loop and the loop that computes its gradients.

The backprop loop runs as many iterations as the forward loop did, in reverse order. The forward loop
pushes the values that it needs on stacks, and the backprop loop pops them; control edges keep pushes
and pops in the order of the iterations. The graph has the same nodes as TensorFlow's.
"""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.graph.attr_checks import output_context
from tfmini.graph.families import Operation, Tensor, colocate_with, control_dependencies
from tfmini.ops.array.constant import constant
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.control import control_trigger
from tfmini.ops.flow import flow_ops
from tfmini.ops.flow.cond import CondContext
from tfmini.ops.flow.control_flow_context import inside, outside
from tfmini.ops.flow.while_loop import WhileContext, is_loop_constant
from tfmini.ops.math.comparison import greater_equal
from tfmini.ops.math.elementwise import add, subtract

_PASSES_ON = frozenset({"Switch", "RefSwitch", "Identity", "RefIdentity"})


class GradLoopState:
    """The state of one loop in one call of ``tf.gradients``.

    Args:
      forward_context: the loop.
      outer_grad_state: the state of the outer loop, if that is differentiated, too.

    Attributes:
      grad_context: the backprop loop.
      forward_loop_exits: the exits of the loop's own variables.
      history: by name of a forward tensor, its value in the backprop loop.
      switch_map: by forward Switch, the Merge of its gradient.
      pending_exits: the number of exits that have not been reached yet.
      deferred_exits: the exits that were reached, until all are.
      unused_exits: the exits without consumers.
    """

    def __init__(self, forward_context: WhileContext, outer_grad_state: GradLoopState | None) -> None:
        self.forward_context = forward_context
        self.outer_grad_state = outer_grad_state
        self.forward_loop_exits = list(forward_context.loop_exits)
        self.pending_exits = len(self.forward_loop_exits)
        self.deferred_exits: list[Tensor] = []
        self.unused_exits: list[Tensor] = []
        self.history: dict[str, Tensor] = {}
        self.switch_map: dict[Operation, Any] = {}
        self._forward_sync: Operation | None = None
        self._grad_sync: Operation | None = None
        outer_forward = forward_context.outer_context if outer_grad_state is None else outer_grad_state.forward_context
        with inside(outer_forward):
            count, self.forward_index = self._add_forward_counter()
        if outer_grad_state is None:
            with inside(outer_forward):
                self.grad_context = self._make_grad_context()
                self.grad_index = self._add_backprop_counter(count)
            return
        # The inner loop's number of iterations, for each iteration of the outer one.
        outer_forward.AddName(count.name)
        history = outer_grad_state.add_forward_accumulator(count)
        with inside(outer_grad_state.grad_context):
            self.grad_context = self._make_grad_context()
            remembered = outer_grad_state.add_accumulated_value(history, count)
            self.grad_index = self._add_backprop_counter(remembered)

    def _make_grad_context(self) -> WhileContext:
        forward = self.forward_context
        return WhileContext(
            forward.maximum_iterations, forward.parallel_iterations, forward.back_prop, forward.swap_memory,
            forward.name, grad_state=self,
        )  # fmt: skip

    # ---- counters ------------------------------------------------------------------------------

    def _add_forward_counter(self) -> tuple[Tensor, Tensor]:
        """Adds ``n = 0; while …: n += 1``; returns (n after the loop, n for the next iteration)."""
        forward = self.forward_context
        n = constant(0, name="f_count")
        if self.outer_grad_state is not None:
            # An execution of the inner loop pushes after all earlier executions have.
            n.op._add_control_input(self.outer_grad_state.forward_index.op.inputs[0].op)
        with inside(forward):
            forward.AddName(n.name)
            entered = forward.enter(n, name="f_count")
            forward.loop_enters.append(entered)
            merged = flow_ops.merge([entered, entered])[0]
            done, going_on = flow_ops.switch(merged, forward.pivot)
            following = flow_ops.next_iteration(add(going_on, 1))
            merged.op._update_input(1, following)
            total = flow_ops.exit(done, name="f_count")
            forward.loop_exits.append(total)
            forward.ExitResult([total])
        return total, following

    def _add_backprop_counter(self, count: Tensor) -> Tensor:
        """Adds ``while count >= 1: count -= 1``, which drives the backprop loop; returns the next count."""
        grad = self.grad_context
        one = constant(1, name="b_count")
        with inside(grad):
            grad.AddName(count.name)
            entered = grad.enter(count, name="b_count")
            grad.loop_enters.append(entered)
            merged = flow_ops.merge([entered, entered])[0]
            grad._pivot_for_pred = merged
            grad._pivot = flow_ops.loop_cond(greater_equal(merged, one), name="b_count")
            done, going_on = flow_ops.switch(merged, grad.pivot)
            index = subtract(going_on, one)
            grad._pivot_for_body = index
            following: Tensor = flow_ops.next_iteration(index)
            merged.op._update_input(1, following)
            final = flow_ops.exit(done, name="b_count")
            grad.loop_exits.append(final)
            if self.outer_grad_state is not None:
                # An execution of the inner loop pops after all later executions have.
                self.outer_grad_state.grad_sync._add_control_input(final.op)
            grad.ExitResult([final])
        return following

    @property
    def forward_sync(self) -> Operation:
        """An op that runs after all pushes of an iteration, also those in branches; the next iteration waits for it."""
        if self._forward_sync is None:
            with control_dependencies(None):
                self._forward_sync = control_trigger(name="f_sync")
            self._forward_sync._set_control_flow_context(self.forward_context)
            self.forward_index.op._add_control_input(self._forward_sync)
        return self._forward_sync

    @property
    def grad_sync(self) -> Operation:
        """An op that runs after all pops of an iteration; the next backprop iteration waits for it."""
        if self._grad_sync is None:
            with control_dependencies(None):
                self._grad_sync = control_trigger(name="b_sync")
            self._grad_sync._set_control_flow_context(self.grad_context)
            self.grad_index.op._add_control_input(self._grad_sync)
            if self.grad_context.outer_context is not None:
                self.grad_context.outer_context.AddInnerOp(self._grad_sync)
        return self._grad_sync

    # ---- history -------------------------------------------------------------------------------

    def add_forward_accumulator(self, value: Tensor, dead_branch: bool = False) -> Tensor:
        """Adds a stack on which every forward iteration pushes ``value``; returns its handle.

        Called in the context of the call of ``tf.gradients``.

        Args:
          value: a tensor of the forward loop.
          dead_branch: whether it is pushed when its cond branch is not taken.

        Raises:
          TypeError: when the value is neither directly in the loop nor in a cond of it.
        """
        forward = self.forward_context
        current = forward._graph._get_control_flow_context()
        with control_dependencies(None):
            with inside(current), colocate_with(value):
                handle = flow_ops.stack_op(constant(-1, dtypes.int32), elem_type=value.dtype.base_dtype, name="f_acc")
            entered = forward.AddValue(handle)
            context = output_context(value.op)
            if context is forward:
                with inside(forward):
                    push = flow_ops.push_op(entered, value, swap_memory=forward.swap_memory).op
                self.forward_index.op._add_control_input(push)
            else:
                push = self._push_in_cond(entered, value, context, dead_branch)
                self.forward_sync._add_control_input(push)
            push._add_control_input(self.forward_index.op.inputs[0].op)
        return handle

    def _push_in_cond(self, handle: Tensor, value: Tensor, context: CondContext, dead_branch: bool) -> Operation:
        if not isinstance(context, CondContext):
            raise TypeError(f"value_ctxt is not a CondContext: {context}")
        with inside(context.outer_context if dead_branch else context):
            push: Operation = flow_ops.push_op(handle, value, swap_memory=self.forward_context.swap_memory).op
        if dead_branch:
            push._set_control_flow_context(context)
        return push

    def add_accumulated_value(self, history: Tensor, value: Tensor, dead_branch: bool = False) -> Tensor:
        """Adds the pop from the stack of ``value``: its value in the forward iteration.

        Args:
          history: the stack's handle.
          value: the tensor that is pushed on it.
          dead_branch: as given for the push.
        """
        cond = self._cond_between(value.op._control_flow_context, history.op._control_flow_context)
        with control_dependencies(None), inside(self.grad_context):
            if cond is not None:
                branch = 1 - cond.branch if dead_branch else cond.branch
                history = flow_ops.switch_beside(history, self._remembered_pred(cond))[branch]
            pop: Tensor = flow_ops.pop_op(history, elem_type=value.dtype.base_dtype)
            pop.set_shape(value.shape)
        if self.grad_context.parallel_iterations > 1:
            self.grad_sync._add_control_input(pop.op)
        return pop

    def _cond_between(self, inner: Any, outer: object) -> CondContext | None:
        """The cond whose branch decides whether the value was pushed."""
        while inner is not None and inner is not outer:
            if isinstance(inner, CondContext):
                return inner
            inner = inner.outer_context
        return None

    def _remembered_pred(self, cond: CondContext) -> Tensor:
        state: GradLoopState | None = self
        while state is not None:
            found = state.history.get(cond.pred.name)
            if found is not None:
                return found
            state = state.outer_grad_state
        return cond.pred

    def GetRealValue(self, value: Tensor) -> Tensor:
        """The tensor for a forward value in the backprop loop; called in the backprop loop's context."""
        found = self.history.get(value.name)
        if found is None:
            found = self.history[value.name] = self._real_value(value)
        return found

    def _real_value(self, value: Tensor) -> Tensor:
        state: GradLoopState | None = self
        while state is not None:
            invariant = _invariant_source(value)
            if invariant is None:
                break
            value, state = invariant, state.outer_grad_state
        if state is None:
            # A loop invariant: the same in every iteration.
            return self.grad_context.AddValue(value)
        if value.op.type == "Const":
            return constant(constant_value(value), dtype=value.dtype)
        with outside(self.grad_context):
            history = state.add_forward_accumulator(value)
        popped = state.add_accumulated_value(history, value)
        return popped if state is self else self.grad_context.AddValue(popped)

    def remembered(self, value: Tensor, dead_branch: bool = False) -> Tensor:
        """Pushes ``value`` in the forward loop and pops it in the backprop loop, whose context is active."""
        with outside(self.grad_context):
            history = self.add_forward_accumulator(value, dead_branch)
        return self.add_accumulated_value(history, value, dead_branch)


def _invariant_source(value: Tensor) -> Tensor | None:
    """The tensor outside of the loop that ``value`` passes on, if it is a loop invariant."""
    op = value.op
    while op.type in _PASSES_ON:
        op = op.inputs[0].op
    return op.inputs[0] if is_loop_constant(op) else None
