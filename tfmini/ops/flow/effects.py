"""`Order`: makes ops with effects run in the order in which they were made, as those of a `tf.function` do."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from tfmini import dtypes
from tfmini.graph.attr_checks import output_context
from tfmini.graph.families import control_dependencies, get_default_graph
from tfmini.graph.importing import add_body
from tfmini.graph.op_types import ENTER_OPS, EXIT_OPS, MERGE_OPS, NEXT_OPS, SWITCH_OPS
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.array.identity import identity
from tfmini.ops.flow.control_flow_context import inside, is_op_in
from tfmini.ops.variables.resource_ops import PASSES_HANDLE_ON

_READS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp"}
_STEP_LOCAL = ("TensorArray", "Stack")  # their flows, and the gradients of loops, have ordered them already


class Order:
    """The ops with effects of a function's body, of a branch of a cond, or of a part of a loop.

    Those on one resource run in the order in which they were made, and so do those without a resource (prints,
    assertions, Python functions). A cond or a loop with effects is ordered inside by itself: it starts after all
    effects before it, and those after it wait for its end. Control inputs lead from an op to one that was made later,
    so they close no circle.

    Args:
      context: the control flow context; None outside of all.
      ops: its ops and those of the contexts inside it, in the order in which they were made.
    """

    def __init__(self, context: Any, ops: Sequence[Operation]) -> None:
        self._writes: dict[Tensor | None, Operation] = {}  # the last one on each resource; None: without resource
        self._reads: dict[Tensor | None, list[Operation]] = {}  # since that one
        self._barrier: list[Operation] = []  # the end of the last cond or loop
        inner: dict[Any, list[Operation]] = {}
        for op in ops:
            if (flow := _flow_inside(context, op._control_flow_context)) is not None:
                inner.setdefault(flow, []).append(op)
        for op in ops:
            flow = _flow_that_ends(context, op)
            if flow in inner:
                self._add_flow(flow, inner.pop(flow), op)
            elif op._control_flow_context is context and op not in _conditional and _touches(op):
                self._add(op)

    @property
    def ends(self) -> list[Operation]:
        """The ops after which all effects have happened."""
        reads = [op for ops in self._reads.values() for op in ops]
        return [*dict.fromkeys([*self._barrier, *self._writes.values(), *reads])]

    def _add(self, op: Operation) -> None:
        used: set[Tensor | None] = {_source(t) for t in op.inputs if t.dtype is dtypes.resource}
        for resource in used or {None}:
            before = [self._writes[resource]] if resource in self._writes else self._barrier
            if op.type in _READS:
                self._reads.setdefault(resource, []).append(op)
            else:
                before = [*before, *self._reads.pop(resource, ())]
                self._writes[resource] = op
            op._add_control_inputs([one for one in before if one is not op])

    def _add_flow(self, flow: Any, ops: list[Operation], end: Operation) -> None:
        """A cond, given by its predicate, or a loop, by its context; ``end`` is the first of its results."""
        if not any(map(_touches, ops)):
            return
        if isinstance(flow, Tensor):
            begins = [flow.op, ops[0]._control_flow_context.pivot.op.inputs[0].op]
            _order_branches(ops, end)
        else:
            begins = [tensor.op for tensor in flow.loop_enters]
            _order_loop(flow, ops)
        for op in begins:
            op._add_control_inputs(self.ends)
        self._writes, self._reads, self._barrier = {}, {}, [end]


def _order_branches(ops: Sequence[Operation], end: Operation) -> None:
    """Orders the branches of a cond; ``end``, the Merge of a result, waits for the effects of the one taken."""
    for index, tensor in enumerate(end.inputs):
        context = output_context(tensor.op)
        ends = Order(context, [op for op in ops if is_op_in(op, context)]).ends
        if ends:
            with inside(context), control_dependencies(ends):
                end._update_input(index, identity(tensor))


def _order_loop(context: Any, ops: Sequence[Operation]) -> None:
    """Orders the predicate and the body of a loop; each iteration waits for all effects of that before."""
    test = context.pivot.op
    test._add_control_inputs(Order(context, [op for op in ops if op._id < test._id]).ends)
    ends = Order(context, [op for op in ops if op._id > test._id]).ends
    for op in ops:
        if op.type == "NextIteration" and op._control_flow_context is context:
            op._add_control_inputs(ends)


def _flow_inside(context: Any, inner: Any) -> Any:
    """The cond (its predicate) or loop, right inside ``context``, that ``inner`` is or is in; None if there is none."""
    if inner is context:
        return None
    while inner is not None and inner.outer_context is not context:
        inner = inner.outer_context
    return inner.pred if inner is not None and inner.IsCondContext() else inner


def _flow_that_ends(context: Any, op: Operation) -> Any:
    """That of which ``op`` is a result in ``context``; None if it is none."""
    if op.type in EXIT_OPS and output_context(op) is context:
        return op._control_flow_context
    if op.type in MERGE_OPS and op._control_flow_context is context:
        return _flow_inside(context, output_context(op.inputs[0].op))
    return None


def _touches(op: Operation) -> bool:
    """Whether an op has an effect, or uses a resource."""
    # A variable keeps its shape; gradients ask the handles of branches that are not taken for it, which never answer.
    if op.type in PASSES_HANDLE_ON or op.type == "VariableShape" or op.type.startswith(_STEP_LOCAL):
        return False
    resources = [t for t in op.inputs if t.dtype is dtypes.resource]
    if resources:
        return not all(_source(t).op.type.startswith(_STEP_LOCAL) for t in resources)
    makes_handle = bool(op.outputs) and all(t.dtype is dtypes.resource for t in op.outputs)
    is_random = "seed2" in op.handle.op_def.attrs
    return op.handle.op_def.is_stateful and not makes_handle and not is_random


def _source(handle: Tensor) -> Tensor:
    """The handle from outside of the conds and loops that hand it on."""
    while handle.op.type in PASSES_HANDLE_ON:
        handle = handle.op.inputs[0]
    return handle


# ---- Bodies of functions from files --------------------------------------------------------------------------------

# Their ops in branches and loops, which have no context that says so: they are in order already, and what waited for
# one in a branch that is not taken would never run.
_conditional: weakref.WeakSet[Operation] = weakref.WeakSet()


def add_ordered_body(graph_def: Any, given: dict[str, Tensor], wanted: list[str], name: str) -> list[Any]:
    """`add_body`, for functions that are called in a `tf.function`: its results come after its effects."""
    graph = get_default_graph()
    begin = len(graph._order)
    found = add_body(graph_def, given, wanted, name)
    depths: dict[Operation, int] = {}
    for op in graph._order[begin:]:
        depths[op] = _depth(op, depths)
        if depths[op] > 0 or op.type in SWITCH_OPS or op.type in ENTER_OPS:
            _conditional.add(op)
    return found


def _depth(op: Operation, depths: dict[Operation, int]) -> int:
    """How many branches and loops of the body the results of an op are in."""
    outer = max((depths.get(source, 0) for source in [*(x.op for x in op.inputs), *op.control_inputs]), default=0)
    if op.type in EXIT_OPS:
        return outer - 1
    if op.type in MERGE_OPS:
        return outer - (not any(x.op.type in (*ENTER_OPS, *NEXT_OPS) for x in op.inputs))
    is_branch = op.type in SWITCH_OPS and op.inputs[1].op.type != "LoopCond"
    return outer + (is_branch or op.type in ENTER_OPS)
