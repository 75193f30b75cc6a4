"""``tf.while_loop``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfmini.core_types import ShapeLike, TensorLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.attr_checks import output_context, while_context_of
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor, convert_to_tensor_or_indexed_slices
from tfmini.graph.families import Operation, Tensor, control_dependencies, get_default_graph
from tfmini.graph.names import GraphKeys, prepend_name_scope, strip_name_scope
from tfmini.graph.op_types import ENTER_OPS, EXIT_OPS
from tfmini.graph.scoping import add_to_collection, name_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import identity
from tfmini.ops.composites import SparseTensor, TypeSpec
from tfmini.ops.flow import flow_ops as flow
from tfmini.ops.flow.control_flow_context import ControlFlowContext, inside
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.math.comparison import less, logical_and
from tfmini.shapes import RawShape, TensorShape, merge_raw

# ---- `WhileContext`: the context in which a loop is built, a forward loop or a backprop loop -----------------------

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
        swap_memory: bool = False, name: str = "while_context", grad_state: object = None,
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

    def enter(self, value: TensorLike, name: str | None = None, **options: Any) -> Any:
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

    def _is_around(self, context: WhileContext, outer_loop: object) -> bool:
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


# ---- ``tf.while_loop``: builds the loop, and its back edges --------------------------------------------------------

Function = Callable[..., Any]


@export("tf.while_loop")
def while_loop(
    cond: Function, body: Function, loop_vars: Any, shape_invariants: Any = None, parallel_iterations: int = 10,
    back_prop: bool = True, swap_memory: bool = False, name: str | None = None, maximum_iterations: Any = None,
    return_same_structure: bool = False,
) -> Any:  # fmt: skip
    """Repeats ``body`` while ``cond`` is true (``tf.while_loop``).

    Both functions are called once, by this call, with symbolic tensors for the loop variables of one iteration.

    Args:
      cond: loop variables -> scalar bool tensor.
      body: loop variables -> their next values, in the same structure.
      loop_vars: a list or tuple of initial values: tensors, composites, `TensorArray`s, and
        structures of those.
      shape_invariants: a `TensorShape` per loop variable, for loops in which shapes change.
      parallel_iterations: how many iterations may be in flight.
      back_prop: whether gradients may pass.
      swap_memory: accepted and unused.
      name: of the name scope.
      maximum_iterations: scalar; the loop ends after this many iterations at the latest.
      return_same_structure: whether a single loop variable is returned in a list.

    Returns:
      The final values, in the structure of ``loop_vars``; without ``return_same_structure``, a single
      value is returned alone.

    Raises:
      TypeError: when a function is not callable, or structures or types differ.
      ValueError: without loop variables, and when a shape does not match its invariant.
    """
    if not callable(cond):
        raise TypeError("cond must be callable.")
    if not callable(body):
        raise TypeError("body must be callable.")
    if parallel_iterations < 1:
        raise TypeError("parallel_iterations must be a positive integer.")
    with name_scope(name, "while", nest.flatten(loop_vars, expand_composites=True)):
        if not loop_vars:
            raise ValueError("No loop variables provided")
        if maximum_iterations is not None:
            single = len(loop_vars) == 1 and not return_same_structure
            maximum_iterations, cond, body, loop_vars = _counted(maximum_iterations, cond, body, loop_vars, single)
            if shape_invariants is not None:
                shape_invariants = (TensorShape([]), shape_invariants[0] if single else shape_invariants)
        if shape_invariants is not None:
            nest.assert_same_structure(loop_vars, shape_invariants)
        context = WhileContext(maximum_iterations, parallel_iterations, back_prop, swap_memory)
        if context.outer_context is None:
            # A nested context is exported with its outer context.
            add_to_collection(GraphKeys.WHILE_CONTEXT, context)
        with get_default_graph().building():
            result = _Loop(context, loop_vars, shape_invariants).build(cond, body, return_same_structure)
        return result if maximum_iterations is None else result[1]


def _counted(limit: Any, cond: Function, body: Function, loop_vars: Any, single: bool) -> Any:
    """The loop's functions and variables, with a counter as the first variable."""
    limit = convert_to_tensor(limit, name="maximum_iterations")
    if limit.shape.ndims != 0:
        raise ValueError(f"maximum_iterations must be a scalar, saw shape: {limit.shape}")
    counter = constant(0, dtype=limit.dtype, name="iteration_counter")

    def counted_cond(i: Tensor, inner: Any) -> Tensor:
        return logical_and(less(i, limit), cond(inner) if single else cond(*inner))

    def counted_body(i: Tensor, inner: Any) -> tuple[Any, Any]:
        return i + 1, body(inner) if single else body(*inner)

    return limit, counted_cond, counted_body, (counter, loop_vars[0] if single else loop_vars)


class _Loop:
    """Builds one loop."""

    def __init__(
        self, context: WhileContext, loop_vars: TensorLike | Sequence[Any] | Mapping[str, Any], invariants: object
    ) -> None:
        self.context = context
        self.structure = loop_vars
        leaves = nest.flatten(loop_vars)
        values = [_value(leaf) for leaf in leaves]
        self.tensors: list[Tensor] = nest.flatten(values, expand_composites=True)
        self.has_invariants = invariants is not None
        shapes = nest.flatten(invariants) if self.has_invariants else [None] * len(leaves)
        self.invariants: list[RawShape] = [
            raw for value, shape in zip(values, shapes) for raw in _invariants_of(value, shape)
        ]

    def build(self, cond: Function, body: Function, keep_structure: bool) -> Any:
        with inside(self.context):
            merges = self._enter()
            pivot = flow.loop_cond(convert_to_tensor(cond(*self._packed(merges))), name="LoopCond")
            self.context._pivot = pivot
            switches = [flow.switch_beside(merge, pivot) for merge in merges]
            result, exits = self._add_body(body, merges, switches)
        flat = nest.flatten(result, expand_composites=True)
        packed = nest.pack_sequence_as(result, _with_arrays(flat, exits), expand_composites=True)
        return packed if keep_structure or len(exits) != 1 else packed[0]

    def _enter(self) -> list[Tensor]:
        """Makes Enter and Merge of the loop variables."""
        context = self.context
        outer = context.outer_context
        context._values = {tensor.name for tensor in self.tensors}
        sources = self.tensors if outer is None else [outer.AddValue(tensor) for tensor in self.tensors]
        # Where the invariant is less specific than the source, it alone gives the shape.
        fixed = [not self.has_invariants and _is_at_most(raw, s.raw_shape) for s, raw in zip(sources, self.invariants)]
        with control_dependencies(None):
            enters = [context.enter(source, use_input_shape=f) for source, f in zip(sources, fixed)]
            for tensor in enters:
                context._graph.prevent_feeding(tensor)
                if outer is not None:
                    outer.AddInnerOp(tensor.op)
        self._tie_invariant_sources(enters)
        for source, tensor, raw in zip(sources, enters, self.invariants):
            _check_invariant(source, raw)
            tensor.raw_shape = merge_raw(tensor.raw_shape, raw)
        context.adopt_enters(enters)
        context._values = {tensor.name for tensor in enters}
        context._loop_enters = enters
        merges = [flow.merge([tensor, tensor])[0] for tensor in enters]
        context._pivot_for_pred = merges[0]
        return merges

    def _tie_invariant_sources(self, enters: list[Tensor]) -> None:
        """Makes Enters of an outer loop's invariants wait for an iteration of the outer loop."""
        outer, pivot = self.context.outer_context, None
        while outer is not None and pivot is None:
            pivot, outer = outer.GetControlPivot(), outer.outer_context
        if pivot is None:
            return
        for tensor in enters:
            if is_loop_constant(tensor.op.inputs[0].op):
                tensor.op._add_control_input(pivot.op)

    def _packed(self, tensors: list[Tensor]) -> Any:
        """``tensors``, one per loop variable, in the structure that the functions take."""
        flat = nest.flatten(self.structure, expand_composites=True)
        return nest.pack_sequence_as(self.structure, _with_arrays(flat, tensors), expand_composites=True)

    def _add_body(self, body: Function, merges: list[Tensor], switches: list[Any]) -> tuple[Any, list[Tensor]]:
        context = self.context
        inner = [flow.identity(switch[1]) for switch in switches]
        context._pivot_for_body = inner[0]
        arguments = self._packed(inner)
        result = self._call_body(body, arguments)
        # The outermost level may be a tuple here and a list there.
        nest.assert_same_structure(list(arguments), list(result), expand_composites=True)
        nexts = [_value(leaf) for leaf in nest.flatten(result)]
        for merge, value in zip(merges, nest.flatten(nexts, expand_composites=True)):
            add_back_edge(merge, value)
        exits = [flow.exit(switch[0]) for switch in switches]
        context._loop_exits = exits
        context.ExitResult(exits)
        return result, exits

    def _call_body(self, body: Function, arguments: Sequence[Any]) -> Any:
        summaries = self.context._graph.get_collection_ref(GraphKeys._SUMMARY_COLLECTION)
        count = len(summaries)
        result = body(*arguments)
        if not nest.is_nested_or_composite(result) or nest.is_composite(result):
            result = [result]
        added = summaries[count:]
        if added:
            # A summary of the body runs in every iteration; it cannot be fetched from outside.
            del summaries[count:]
            with control_dependencies(added):
                result = nest.map_structure(
                    lambda x: x if isinstance(x, TensorArray) else identity(x), result, expand_composites=True
                )
        return result


def add_back_edge(merge: Tensor, value: TensorLike, enforce_shape: bool = True) -> None:
    """Makes ``value`` the value of ``merge`` in the next iteration.

    Args:
      merge: a tensor or composite; both inputs of its Merges are the Enter so far.
      value: becomes their second input.
      enforce_shape: whether the shape is checked.

    Raises:
      TypeError: when the types differ.
      ValueError: when the shape is less specific than the loop variable's.
    """
    if nest.is_composite(merge):
        value = flow.as_indexed_slices(value) if isinstance(merge, IndexedSlices) else value
        parts = nest.flatten(merge, expand_composites=True), nest.flatten(value, expand_composites=True)
        for part, following in zip(*parts):
            part.op._update_input(1, flow.next_iteration(following))
        return
    following = flow.next_iteration(convert_to_tensor(value))
    if following.dtype.base_dtype is not merge.dtype.base_dtype:
        raise TypeError(
            f"Input 1 of node {merge.op.name} was passed {following.dtype.name} from {following.name} incompatible with"
            f" expected {merge.dtype.name}: loop variable '{_source_of(merge).name}' must keep its type."
        )
    if enforce_shape and not _is_at_most(following.raw_shape, merge.raw_shape):
        source = _source_of(merge)
        raise ValueError(
            f"Input tensor '{source.name}' enters the loop with shape {source.shape}, but has shape {following.shape}"
            " after one iteration. To allow the shape to vary across iterations, use the `shape_invariants` argument of"
            " tf.while_loop to specify a less-specific shape."
        )
    merge.op._update_input(1, following)


def _source_of(merge: Tensor) -> Tensor:
    """The initial value of a loop variable."""
    return merge.op.inputs[0].op.inputs[0]


def _value(leaf: object) -> Any:
    if isinstance(leaf, TensorArray):
        return leaf.flow
    if isinstance(leaf, SparseTensor):
        return leaf
    return convert_to_tensor_or_indexed_slices(leaf)


def _with_arrays(originals: list[Any], tensors: list[Tensor]) -> list[Any]:
    """``tensors``, with a `TensorArray` around each flow."""
    return [
        original.with_flow(tensor) if isinstance(original, TensorArray) else tensor
        for original, tensor in zip(originals, tensors)
    ]


# ---- shape invariants -------------------------------------------------------------------------


def _invariants_of(value: Any, shape: Any) -> list[RawShape]:
    """The shape invariants of a loop variable's tensors."""
    if isinstance(shape, TypeSpec):
        shape = _shape_of_spec(value, shape)
    if isinstance(value, Tensor):
        return [value.raw_shape if shape is None else _checked(shape)]
    if isinstance(value, SparseTensor):
        return _sparse_invariants(value, shape)
    if shape is None:
        return [part.raw_shape for part in nest.flatten(value, expand_composites=True)]
    raw = _checked(shape)
    rows = None if raw is None else raw[0]
    parts: list[RawShape] = [raw, (rows,)]
    return parts if value.dense_shape is None else [*parts, (None if raw is None else len(raw),)]


def _sparse_invariants(value: SparseTensor, shape: ShapeLike) -> list[RawShape]:
    """The number of values may change; the rank may if an invariant says so."""
    if shape is None:
        rank = value.shape.ndims
    else:
        raw = _checked(shape)
        rank = None if raw is None else raw[0]
    return [(None, rank), (None,), (rank,)]


def _shape_of_spec(value: Any, spec: TypeSpec) -> TensorShape:
    """The shape of a loop variable's spec, as a plain invariant."""
    position = 1 if isinstance(value, SparseTensor) else 0
    matches, parts = isinstance(value, spec.value_type), nest.flatten(spec._component_specs)
    if not matches or parts[position].dtype is not value.dtype.base_dtype:
        raise TypeError(f"TypeSpec {spec!r} is not compatible with {value!r}")
    shape: TensorShape = spec._shape  # type: ignore[attr-defined]
    return TensorShape([shape.ndims]) if isinstance(value, SparseTensor) else shape


def _checked(shape: ShapeLike) -> RawShape:
    if not isinstance(shape, TensorShape):
        raise ValueError("`shapes` must be a (possibly nested) list of shapes.")
    return shape.raw


def _is_at_most(raw: RawShape, bound: RawShape) -> bool:
    """Whether ``bound`` allows every shape that ``raw`` allows."""
    if bound is None:
        return True
    if raw is None or len(raw) != len(bound):
        return False
    return all(limit is None or size == limit for size, limit in zip(raw, bound))


def _check_invariant(source: Tensor, raw: RawShape) -> None:
    if not _is_at_most(source.raw_shape, raw):
        raise ValueError(
            f"The shape invariant specified for {source.name} is not compatible with the initial shape of the loop"
            f" variable. It enters the loop with shape {source.shape}, but the specified shape invariant is"
            f" {TensorShape.from_raw(raw)}."
        )
