"""Gradients of conds and loops: the ops' gradients, and the additional work of `gradients` for them.

The gradient of a loop is a loop: an Exit becomes an Enter, a Switch a Merge, a Merge a Switch and
an Enter an Exit. A loop's Switch is visited twice, from its Exit and from its body.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.dtypes import DType
from tfmini.graph import nest, raw_ops
from tfmini.graph.attr_checks import output_context, while_context_of
from tfmini.graph.families import IndexedSlices, Operation, Tensor, all_of, colocate_with, control_dependencies
from tfmini.graph.op_types import EXIT_OPS, FLOW_OPS, SWITCH_OPS
from tfmini.graph.prune import traverse
from tfmini.ops import gradients
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import zeros, zeros_like
from tfmini.ops.array.identity import identity
from tfmini.ops.array.joining import concat
from tfmini.ops.array.shape import shape_internal
from tfmini.ops.flow import flow_ops as flow
from tfmini.ops.flow.cond import CondContext
from tfmini.ops.flow.control_flow_context import inside, outside
from tfmini.ops.flow.loop_state import GradLoopState
from tfmini.ops.flow.while_loop import WhileContext, add_back_edge
from tfmini.ops.gradients import is_trainable
from tfmini.ops.math.comparison import equal
from tfmini.ops.math.elementwise import add, maximum
from tfmini.shapes import RawShape

# ---- Zeros as the gradients of outputs that have no gradient, in conds and loops -----------------------------------
# A branch of a cond contributes zeros only when it is not taken, so they depend on a Switch of the value
# whose gradient they are.


def _is_handle(tensor: Tensor) -> bool:
    return tensor.dtype.name == "resource"


def value_dtype(value: Tensor) -> dtypes.DType:
    """The dtype of a tensor, or of the variable behind a handle."""
    if not _is_handle(value):
        return value.dtype.base_dtype
    return dtypes.float32 if value.handle_data is None else value.handle_data[0]


def value_shape(value: Tensor) -> RawShape:
    """The static shape of a tensor, or of the variable behind a handle."""
    if not _is_handle(value):
        return value.raw_shape
    return None if value.handle_data is None else value.handle_data[1]


def sizes_of(value: Tensor, out_type: DType = dtypes.int32) -> Tensor:
    """The shape of a tensor, or of the variable behind a handle."""
    if _is_handle(value):
        return raw_ops.VariableShape(value, out_type=out_type)
    return shape_internal(value, optimize=False, out_type=out_type)


def zeros_outside_loops(op: Operation, index: int) -> Tensor:
    """Zeros like output ``index`` of an op that is in no loop."""
    value = op.outputs[index]
    dtype = value_dtype(value)
    context = op._control_flow_context
    if op.type not in SWITCH_OPS or context is None:
        return zeros(sizes_of(value), dtype) if _is_handle(value) else zeros_like(value, optimize=False)
    other: Tensor = flow.switch(op.inputs[0], context.pred)[1 - context.branch]
    pivot = identity(other)
    if _is_handle(value):
        with control_dependencies([pivot]):
            return zeros(sizes_of(other), dtype)
    sizes = sizes_of(other)
    # An op without inputs would run whichever branch is taken.
    with control_dependencies([pivot]):
        return zeros(sizes, dtype)


def zeros_in_loop(state: GradLoopState, op: Operation, index: int) -> Tensor:
    """Zeros like output ``index`` of an op of a loop, in the backprop loop, whose context is active."""
    value = op.outputs[index]
    is_dead_branch = op.type in SWITCH_OPS
    if _is_handle(value):
        return _zeros_of_handle(state, op, value, is_dead_branch)
    raw = value.raw_shape
    if raw is not None and None not in raw:
        result: Any = constant(0, shape=raw, dtype=value.dtype)
        return _on_other_branch(state, op, result) if is_dead_branch else result
    sizes = _sizes_of_dead_branch(op) if is_dead_branch else _sizes_in_context(op, value)
    remembered = state.remembered(sizes, is_dead_branch)
    return zeros(remembered, value.dtype.base_dtype)


def _on_other_branch(state: GradLoopState, op: Operation, value: Tensor) -> Tensor:
    context = op._control_flow_context
    pred = state.history.get(context.pred.name, context.pred)
    return flow.switch_beside(value, pred)[1 - context.branch]  # type: ignore[no-any-return]


def _sizes_in_context(op: Operation, value: Tensor) -> Tensor:
    with inside(op._control_flow_context):
        return shape_internal(value, optimize=False)


def _sizes_of_dead_branch(op: Operation) -> Tensor:
    """The shape of a Switch's value, as a tensor that is alive when the branch that it feeds is not taken."""
    context = op._control_flow_context
    with inside(context.outer_context):
        other: Tensor = flow.switch_beside(op.inputs[0], context.pred)[1 - context.branch]
        sizes = shape_internal(other, optimize=False)
    other.op._set_control_flow_context(context)
    sizes.op._set_control_flow_context(context)
    return sizes


def _zeros_of_handle(state: GradLoopState, op: Operation, value: Tensor, is_dead_branch: bool) -> Tensor:
    """Zeros like the variable of a handle. A handle is a loop invariant, so the backprop loop can read the shape."""
    handle = op.inputs[0] if is_dead_branch else value
    result = zeros(sizes_of(handle), value_dtype(handle))
    return _on_other_branch(state, op, result) if is_dead_branch else result


# ---- Gradients of loop invariants: the sum of the contributions of all backprop iterations -------------------------


def accumulate(context: WhileContext, op: Operation, grad: TensorLike) -> Any:
    """The sum over the iterations of ``grad``, a gradient of the loop invariant that ``op`` enters.

    Called in the backprop loop's context.

    Raises:
      TypeError: when the gradient is neither a tensor nor indexed slices.
    """
    if isinstance(grad, Tensor):
        return _accumulate_dense(context, op, grad)
    if isinstance(grad, IndexedSlices):
        return _accumulate_slices(context, op, grad)
    raise TypeError(f"Type {type(grad)} not supported")


def _accumulate_dense(context: WhileContext, op: Operation, grad: Tensor) -> Tensor:
    with outside(context):
        start = _zeros_outside(context, op, grad)
    context.AddName(start.name)
    entered = context.enter(start, name="b_acc")
    context.loop_enters.append(entered)
    merged = flow.merge([entered, entered], name="b_acc")[0]
    done, going_on = flow.switch(merged, context.pivot)
    merged.op._update_input(1, flow.next_iteration(add(going_on, grad)))
    result = flow.exit(done, name="b_acc")
    context.loop_exits.append(result)
    context.ExitResult([result])
    return result  # type: ignore[no-any-return]


def _zeros_outside(context: WhileContext, op: Operation, grad: Tensor) -> Tensor:
    """Zeros of the gradient's shape outside of the backprop loop: the sum over zero iterations."""
    raw, outer = grad.raw_shape, context.outer_context
    if raw is not None and None not in raw:
        with inside(outer):
            return constant(0, grad.dtype, shape=raw, name="b_acc")
    value = op.inputs[0]
    if isinstance(outer, WhileContext) and outer.grad_state is not None:
        # In a nested loop, the shape is that of the outer loop's forward iteration.
        state = context.grad_state
        with inside(state.forward_context.outer_context):
            sizes = sizes_of(value)
        outer_state = state.outer_grad_state
        history = outer_state.add_forward_accumulator(sizes)
        with inside(outer):
            return zeros(outer_state.add_accumulated_value(history, sizes), grad.dtype)
    with inside(outer):
        return zeros(sizes_of(value), grad.dtype)


def _accumulate_slices(context: WhileContext, op: Operation, grad: IndexedSlices) -> IndexedSlices:
    """All rows of all iterations, concatenated after a row of zeros."""
    with outside(context), inside(context.outer_context):
        starts = [constant([0], grad.indices.dtype), _zero_row(op, grad.values)]
        if grad.dense_shape is not None:
            starts.append(_zero_shape(op, grad.dense_shape))
    for start in starts:
        context.AddName(start.name)
    # The number of rows grows, so the loop variables get less specific shapes than their initial values.
    entered = [context.enter(start, use_input_shape=False, name="b_acc") for start in starts]
    entered[0].set_shape([None])
    if starts[1].raw_shape is not None:
        entered[1].set_shape([None, *starts[1].raw_shape[1:]])
    context.loop_enters.extend(entered)
    merged = [flow.merge([tensor, tensor], name="b_acc")[0] for tensor in entered]
    switched = [flow.switch(tensor, context.pivot) for tensor in merged]
    sums = [concat([before[1], part], 0) for before, part in zip(switched, (grad.indices, grad.values))]
    if grad.dense_shape is not None:
        sums.append(maximum(grad.dense_shape, switched[2][1]))
    for tensor, total in zip(merged, sums):
        tensor.op._update_input(1, flow.next_iteration(total))
    results = [flow.exit(switch[0], name="b_acc") for switch in switched]
    context.loop_exits.extend(results)
    context.ExitResult(results)
    return IndexedSlices(results[1], results[0], results[2] if grad.dense_shape is not None else None)


def _zero_row(op: Operation, values: Tensor) -> Tensor:
    raw = values.raw_shape
    if raw is not None and None not in raw:
        return constant(0, values.dtype, shape=(1, *raw[1:]), name="b_acc")
    source = op.inputs[0]
    known = value_shape(source) if source.dtype.name == "resource" else None
    row: Any = sizes_of(source)[1:] if known is None or None in known else list(known[1:])
    return zeros(concat([[1], row], 0), dtype=values.dtype)


def _zero_shape(op: Operation, dense_shape: Tensor) -> Tensor:
    raw = dense_shape.raw_shape
    if raw is not None and None not in raw:
        return constant(0, dense_shape.dtype, shape=raw)
    sizes = sizes_of(op.inputs[0], dense_shape.dtype)
    return zeros_like(sizes, optimize=False)


def _current(op: Operation) -> Any:
    return op.graph._get_control_flow_context()


# ---- The gradients of the control flow ops -------------------------------------------------------------------------


@all_of(flow.switch_op, flow.ref_switch_op).gradient
def _switch_gradient(node: Operation, *grads: Tensor) -> list[Any]:
    context = node._control_flow_context
    if isinstance(context, WhileContext):
        return [_loop_switch_gradient(node, grads, _current(node).grad_state.switch_map), None]
    if isinstance(context, CondContext):
        taken, other = grads[context.branch], grads[1 - context.branch]
        if other is None:
            # Zeros exist for values, but not for a handle.
            resource = node.inputs[0].dtype.name == "resource"
            return [flow.merge([taken, taken], name="cond_resource_grad")[0] if resource else None, None]
        return [flow.merge(grads, name="cond_grad")[0], None]
    pred = node.inputs[1]
    return [flow.merge([flow.switch(grads[0], pred)[0], flow.switch(grads[1], pred)[1]])[0], None]


def _loop_switch_gradient(node: Operation, grads: tuple[Any, ...], merges: dict[Operation, Any]) -> Any:
    merge = merges.get(node)
    if merge is not None:
        # The second visit, from the body: its gradient is for the next backprop iteration.
        if grads[1] is not None:
            add_back_edge(merge, grads[1], enforce_shape=False)
        return None
    if grads[0] is None:
        return None
    merges[node] = merge = flow.merge([grads[0], grads[0]], name="b_switch")[0]
    return merge


@all_of(flow.merge_op, flow.ref_merge_op).gradient
def _merge_gradient(node: Operation, grad: Tensor, _: object) -> list[Any]:
    context = output_context(node.inputs[0].op)
    current = _current(node)
    if isinstance(context, WhileContext):
        return list(flow.switch_beside(grad, current.pivot))
    if isinstance(context, CondContext):
        pred = context.pred
        if current is not None and current.grad_state is not None:
            pred = _predicate_in_loop(current.grad_state, pred)
        return list(flow.switch_beside(grad, pred, name="cond_grad"))
    chosen = [equal(node.outputs[1], i) for i in range(len(node.inputs))]
    return [flow.switch_beside(grad, one)[1] for one in chosen]


def _predicate_in_loop(state: GradLoopState, pred: Tensor) -> Tensor:
    """The value that a predicate had in the forward iteration."""
    found = state.history.get(pred.name)
    if found is None:
        found = state.history[pred.name] = state.remembered(pred)
    return found


@all_of(flow.exit_op, flow.ref_exit_op).gradient
def _exit_gradient(node: Operation, grad: Tensor) -> Any:
    context: WhileContext = _current(node)
    if not context.back_prop:
        return None
    if node._control_flow_context.grad_state is not None:
        raise TypeError("Second-order gradient for while loops not supported.")
    if not isinstance(grad, Tensor) and not nest.is_composite(grad):
        raise TypeError(f"Type {type(grad)} not supported")
    for part in nest.flatten(grad, expand_composites=True):
        context.AddName(part.name)
    with inside(context):
        entered = context.enter(grad, name="b_exit")
    context.loop_enters.extend(nest.flatten(entered, expand_composites=True))
    return entered


@all_of(flow.next_iteration_op, flow.ref_next_iteration_op).gradient
def _next_iteration_gradient(node: Operation, grad: Tensor) -> Any:
    # The NextIteration of the gradient is added at the second visit of the Switch.
    return grad


@all_of(flow.enter_op, flow.ref_enter_op).gradient
def _enter_gradient(node: Operation, grad: Tensor) -> Any:
    context = _current(node)
    if context is None or not context.back_prop or context.grad_state is None:
        return grad
    if node.attrs["is_constant"]:
        return accumulate(context, node, grad)
    result = flow.exit(grad)
    parts = nest.flatten(result, expand_composites=True)
    context.loop_exits.extend(parts)
    context.ExitResult(parts)
    return result


flow.loop_cond.gradient(lambda node, grad: None)


# ---- What the sweep of `gradients` does at conds and loops ---------------------------------------------------------


def is_loop_switch(op: Operation) -> bool:
    """Whether ``op`` is the Switch of a loop variable, and not one of a cond in a loop."""
    if op.type not in SWITCH_OPS:
        return False
    context = op._control_flow_context
    return context is not None and context.IsWhileContext() and not _is_cond_switch(op)


def _is_cond_switch(op: Operation) -> bool:
    """Whether all consumers are in conds; the Switch itself is outside of its cond."""
    for output in op.outputs:
        for consumer in output._consumers or ():
            context = consumer._control_flow_context
            if consumer.type in ("Enter", "RefEnter"):
                context = context.outer_context
            if context is None or not context.IsCondContext():
                return False
    return True


class FlowGradients(gradients.ControlFlowGradients):
    """Differentiation of a region with conds or loops."""

    is_plain = False

    def __init__(self, between: list[Operation], colocate: bool) -> None:
        super().__init__(between, colocate)
        self.states: dict[Any, GradLoopState] = {}
        known = set(between)
        for op in between:  # The loop appends to it.
            if op.type in EXIT_OPS:
                with colocate_with(op) if colocate else nullcontext():
                    self._add_loop(op, between, known)

    def _add_loop(self, op: Operation, between: list[Operation], known: set[Operation]) -> None:
        """Adds the backprop loop of the loop that an Exit belongs to; adds all exits of that loop to the region."""
        context = while_context_of(op._control_flow_context)
        if context is None:
            raise ValueError(
                "Failed to call gradients on a while loop without properly serializing graph via MetaGraphDef"
            )
        if context in self.states:
            return
        outer = while_context_of(context.outer_context)
        state = self.states[context] = GradLoopState(context, self.states.get(outer))
        for tensor in state.forward_loop_exits:
            if tensor.op not in known:
                known.add(tensor.op)
                between.append(tensor.op)

    def _state_of(self, op: Operation, outside_of_exit: bool = False) -> GradLoopState | None:
        context = output_context(op) if outside_of_exit else op._control_flow_context
        return self.states.get(while_context_of(context))

    def first_ready(self, pending: dict[Operation, int], targets: set[Operation]) -> list[Operation]:
        ready: list[Operation] = []
        for state in self.states.values():
            for tensor in state.forward_loop_exits:
                if pending[tensor.op] == 0:
                    state.pending_exits -= 1
                    if tensor.op not in targets:
                        state.unused_exits.append(tensor)
                    if state.pending_exits == 0:
                        ready.extend(self._with_zeros(state.unused_exits, trainable_only=True))
            # Enters are visited even if they lead to no x, because their gradient closes the loop.
            for tensor in state.forward_context.loop_enters:
                if not pending.get(tensor.op):
                    pending[tensor.op] = 1
        return ready

    def _with_zeros(self, exits: list[Tensor], trainable_only: bool = False) -> list[Operation]:
        """Gives zeros as gradients to ``exits`` of trainable types; returns the exits' ops."""
        ready = []
        for tensor in exits:
            if is_trainable(tensor):
                self.sweep.add(tensor, self._zeros_for_exit(tensor))
            if not trainable_only or is_trainable(tensor):
                ready.append(tensor.op)
        return ready

    def outside(self, op: Operation) -> AbstractContextManager[Any]:
        state = self._state_of(op, outside_of_exit=True)
        return inside(None if state is None else state.grad_context)

    def inside(self, op: Operation) -> AbstractContextManager[Any]:
        state = self._state_of(op)
        return inside(None if state is None else state.grad_context)

    def check(self, op: Operation, from_ops: list[Operation]) -> None:
        context = op._control_flow_context
        if op.type not in SWITCH_OPS or not isinstance(context, WhileContext) or context is not _current(op):
            return
        raise ValueError(
            f"Cannot compute gradient inside while loop with respect to op '{_first_behind(op, set(from_ops))}'. We do"
            " not support taking the gradient wrt or through the initial value of a loop variable. Gradients can be"
            " computed through loop invariants or wrt the input parameters to the loop body."
        )

    def released(self, op: Operation, pending: dict[Operation, int]) -> Iterable[Operation]:
        count = pending[op]
        if count and not (count > 0 and is_loop_switch(op)):
            return ()
        if op.type not in EXIT_OPS:
            return (op,)
        state = self._state_of(op)
        assert state is not None
        state.deferred_exits.append(op.outputs[0])
        state.pending_exits -= 1
        return () if state.pending_exits else self._all_exits(state)

    def _all_exits(self, state: GradLoopState) -> list[Operation]:
        """The exits of a loop after all were reached; those without a gradient get zeros if another exit has one."""
        used = [tensor for tensor in state.deferred_exits if self.sweep.has_gradient(tensor.op)]
        state.unused_exits.extend(tensor for tensor in state.deferred_exits if tensor not in used)
        if not used:
            return [tensor.op for tensor in state.unused_exits]
        return [tensor.op for tensor in used] + self._with_zeros(state.unused_exits)

    def _zeros_for_exit(self, tensor: Tensor) -> Tensor:
        """Zeros for an exit without consumers, in the context of the call of ``tf.gradients``."""
        forward = tensor.op._control_flow_context
        outer = self.states.get(while_context_of(forward.outer_context))
        raw, dtype = value_shape(tensor), value_dtype(tensor)
        known = raw is not None and None not in raw
        if outer is None:
            if known or tensor.dtype.name == "resource":
                return zeros(raw if known else sizes_of(tensor), dtype)
            return zeros_like(tensor, optimize=False)
        if known:
            with inside(outer.grad_context):
                return zeros(raw, dtype)
        with inside(forward.outer_context):
            sizes = sizes_of(tensor)
        history = outer.add_forward_accumulator(sizes)
        with inside(outer.grad_context):
            return zeros(outer.add_accumulated_value(history, sizes), dtype)

    def zeros_like(self, op: Operation, index: int) -> Tensor | None:
        if is_loop_switch(op):
            return None
        state = self._state_of(op)
        return zeros_outside_loops(op, index) if state is None else zeros_in_loop(state, op, index)

    def finish(self) -> None:
        """Closes the backprop loops of variables whose next value does not depend on the last one, with zeros."""
        for state in self.states.values():
            for merge in state.switch_map.values():
                if isinstance(merge, Tensor):
                    _close_with_zeros(state.grad_context, merge)
                else:
                    for part in nest.flatten(merge, expand_composites=True):
                        keep = isinstance(merge, IndexedSlices) and part is merge.dense_shape
                        _close_with_zeros(state.grad_context, part, keep_value=keep)


def _first_behind(op: Operation, from_ops: set[Operation]) -> str:
    behind = traverse([op], lambda found: [t.op for t in found.inputs])
    return next((found.name for found in behind if found in from_ops), op.name)


def _close_with_zeros(context: WhileContext, merge: Tensor, keep_value: bool = False) -> None:
    first, second = merge.op.inputs
    if first is not second:
        return
    raw = first.raw_shape
    if raw is not None and None not in raw and not keep_value:
        with inside(context):
            following = flow.next_iteration(constant(0, dtype=first.dtype, shape=raw))
    else:
        entered = first.op.inputs[0]
        if not keep_value:
            with inside(context.outer_context):
                entered = zeros(shape_internal(entered, optimize=False), entered.dtype)
        with inside(context):
            # The loop knows the first value as one of its own, and so would not enter it; zeros it enters by itself.
            source = context.enter(entered, is_constant=True) if keep_value else entered
            following = flow.next_iteration(source)
    merge.op._update_input(1, following)


def _gradients_for(between: list[Operation], colocate: bool) -> gradients.ControlFlowGradients:
    if any(op.type in FLOW_OPS for op in between):
        return FlowGradients(between, colocate)
    return gradients.ControlFlowGradients(between, colocate)


gradients.control_flow_gradients = _gradients_for
