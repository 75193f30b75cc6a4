"""Gradients of loop invariants: the sum of the contributions of all backprop iterations."""

from __future__ import annotations

from typing import Any

from tfmini.graph.families import IndexedSlices, Operation, Tensor
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import zeros, zeros_like
from tfmini.ops.array.joining import concat
from tfmini.ops.flow import flow_ops as flow
from tfmini.ops.flow.control_flow_context import inside, outside
from tfmini.ops.flow.while_context import WhileContext
from tfmini.ops.flow.zeros_of_branches import sizes_of, value_shape
from tfmini.ops.math.elementwise import add, maximum


def accumulate(context: WhileContext, op: Operation, grad: Any) -> Any:
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
