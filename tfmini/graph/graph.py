"""`Graph`: operations under construction, with their names, scopes and collections (``tf.Graph``)."""

from __future__ import annotations

import logging
import threading
from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from tfmini import dtypes, protos
from tfmini.errors import InvalidArgumentError
from tfmini.export import export
from tfmini.graph import default_session
from tfmini.graph.attr_values import shape_proto
from tfmini.graph.creation_stack import capture_stack
from tfmini.graph.flow_checks import check_inputs
from tfmini.graph.graph_def import fill_node_def, plain_attr
from tfmini.graph.graph_scopes import GraphScopes
from tfmini.graph.op_def import infer_attrs_from_inputs, output_dtypes
from tfmini.graph.op_types import OPS, OpType
from tfmini.graph.operation import Operation, Tensor, node_of, op_of
from tfmini.shapes import RawShape, format_raw

_log = logging.getLogger("tensorflow")
_LOOK_S = 0.5  # seconds between two looks whether a wait is over, for a session that is closed meanwhile
_VERBS = {"eval": "evaluate tensor using `eval()`", "run": "execute operation using `run()`"}
_NOUNS = {"eval": "evaluate tensor: the tensor's", "run": "execute operation: the operation's"}


def _latest_source(op: Operation) -> int:
    """The number of the latest op that an op refers to."""
    return max((source._id for source in (*(t.op for t in op.inputs), *op._control_inputs)), default=0)


@export("tf.Graph")
class Graph(GraphScopes):
    """A dataflow graph. Several threads may add ops; they share the scopes (see `switch_to_thread_local`)."""

    tensor_class: ClassVar[type[Tensor]] = Tensor
    prefers_resources: ClassVar[bool] = False  # whether variables are resources unless asked for otherwise

    def __init__(self) -> None:
        super().__init__()
        # By thread: how many ops there were when its block of `building` began, and how deep such blocks are nested.
        self._builders: dict[int, tuple[int, int]] = {}
        self._built = threading.Condition(self._lock)
        self._unfeedable: set[Tensor] = set()
        self._unfetchable: set[Operation] = set()
        self.seed: int | None = None
        # For the graph of a function: the graph that it is traced in.
        self.outer: Graph | None = None
        self._is_function = False
        # The number of ops that sessions have sent to a master: a later change of one of them gives a warning.
        self._sent_version = 0
        self._wrong_inputs: dict[tuple[Operation, int], dtypes.DType] = {}
        self._last_loss_reduction: Any = None
        # Objects that live as long as the graph (py_func tokens, the variable store, …), by a key of their module.
        self.attachments: dict[Any, Any] = {}

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Makes this graph, or that of the function being traced inside it, the thread's default for a block."""
        graph = innermost(self)
        default_stack.graphs.append(graph)
        try:
            yield graph
        finally:
            if default_stack.graphs[-1] is not graph:
                raise AssertionError(f"Nesting violated for default stack of {Graph} objects")
            default_stack.graphs.pop()

    # ---- ops --------------------------------------------------------------------------------

    def add_op(
        self,
        handle: OpType,
        name: str,
        inputs: list[Tensor],
        attrs: dict[str, Any],
        output_dtypes: list[dtypes.DType],
        output_shapes: list[RawShape] | None = None,
        joins_context: bool = True,
    ) -> Operation:
        """Adds one op under the current scopes. This is the hot path of graph construction.

        Args:
          handle: the op type.
          name: the full name, already unique.
          inputs: tensors of this graph.
          attrs: all attrs, defaults included. The op keeps the dict; the caller must not change it.
          output_dtypes: one per output.
          output_shapes: instead of the shape function's result.
          joins_context: whether to add the op to the current cond or loop. If False, the caller does it later.

        Raises:
          RuntimeError: the graph is finalized.
          ValueError: the shape function refuses the inputs.
        """
        if self._finalized_at is not None:
            self._refuse_change(f"the op '{name}' of type {handle.name}")
        state = self.scopes
        if state.colocation:
            state.check_colocation(self, name)
        op = Operation(self, handle, name, inputs, attrs)
        op._control_flow_context = state.control_flow_context
        confined = [t.op for t in inputs if t.op._control_flow_context is not None]
        if confined:
            check_inputs(op, confined)
        op._stack = capture_stack()
        op._sites = state.sites
        shapes = _infer_shapes(op, handle, len(output_dtypes)) if output_shapes is None else output_shapes
        make = self.tensor_class
        op.outputs = [make(op, i, dtype, shapes[i]) for i, dtype in enumerate(output_dtypes)]
        if state.container or state.gradient_map or state.attr_scope:
            state.apply_attrs(op)
        if state.control:
            state.apply_control(op)
        with self._lock:  # until it is complete: a session in another thread may send it at once
            self._add(op)
            if state.device_text is None:
                state.resolve_device(op)
            else:
                op._device = state.device_text
            if state.colocation:
                state.apply_colocation(op)
            if state.control_flow_context is not None and joins_context:
                state.control_flow_context.AddOp(op)
        return op

    def _add(self, op: Operation) -> None:
        """Adds the op to the graph and to the consumers of its inputs."""
        op._id = len(self._order) + 1
        self._order.append(op)
        self._ops[op.name] = op
        for tensor in op.inputs:
            tensor._add_consumer(op)
        for control in op._control_inputs:
            control._add_dependent(op)

    @contextmanager
    def building(self) -> Iterator[None]:
        """A block that changes ops which it has made before: sessions wait for its end before they send these."""
        me = get_ident()
        with self._lock:
            start, depth = self._builders.get(me, (len(self._order), 0))
            self._builders[me] = start, depth + 1
        try:
            yield
        finally:
            with self._lock:
                if depth:
                    self._builders[me] = start, depth
                else:
                    del self._builders[me]
                    self._built.notify_all()

    @contextmanager
    def whole_ops(self, sent: int) -> Iterator[list[Operation]]:
        """The ops after the first ``sent`` that nobody builds at the moment and that refer to none of those.

        They stay as they are in the block.
        """
        with self._lock:
            yield self._order[sent : self._whole_end(sent)]

    def wait_until_built(self, sent: int, last: int, is_over: Callable[[], bool]) -> bool:
        """Waits while another thread builds one of the ops with the numbers from ``sent`` + 1 to ``last``.

        Returns:
          False if ``is_over`` has come true first.

        Raises:
          InvalidArgumentError: when the calling thread builds one of them itself.
        """
        with self._built:
            while self._whole_end(sent) < last:
                if is_over():
                    return False
                if get_ident() in self._builders:
                    text = f"{self._order[last - 1].name} is run inside the loop or gradient that is being built."
                    raise InvalidArgumentError.of(f"{text} Build it before that, or run it afterwards.")
                self._built.wait(_LOOK_S)
        return True

    def _whole_end(self, sent: int) -> int:
        """How many of the ops are whole. Another thread may have made others since a block of `building` began."""
        end = len(self._order)
        if not self._builders:
            return end
        end = min(start for start, _ in self._builders.values())
        while True:  # a gradient adds control edges to older loops
            beyond = (i for i in range(sent, end) if _latest_source(self._order[i]) > end)
            before, end = end, next(beyond, end)
            if end == before:
                return max(end, sent)

    def create_op(
        self,
        op_type: str,
        inputs: Any,
        dtypes: Any = None,  # noqa: A002 - TensorFlow's argument name
        input_types: Any = None,
        name: str | None = None,
        attrs: Any = None,
        op_def: Any = None,
        compute_shapes: bool = True,
        compute_device: bool = True,
    ) -> Operation:
        """Adds an op of a given type and inputs (``tf.Graph.create_op``); attrs may be AttrValue protos.

        Raises:
          ValueError: the op type is unknown, or the name is not valid.
          TypeError: an input is no tensor.
        """
        handle, tensors = handle_of(op_type), self._own(list(inputs))
        values = handle.plan.defaults.copy()
        values.update((attr, plain_attr(value)) for attr, value in dict(attrs or {}).items())
        infer_attrs_from_inputs(handle.op_def, tensors, values)
        for attr in handle.plan.required:
            if attr not in values:
                raise ValueError(f"NodeDef missing attr '{attr}' from Op<name={op_type}>")
        return self.add_op(
            handle, self._full_name(name, op_type), tensors, values, output_dtypes(handle.op_def, values)
        )

    def _own(self, inputs: list[Any]) -> list[Tensor]:
        """Returns tensors of this graph for some inputs; the graph of a function captures those of others."""
        for index, tensor in enumerate(inputs):
            if not isinstance(tensor, Tensor):
                raise TypeError(f"Input #{index} is not a tensor: {tensor}")
            if self.outer is None:
                self._check_same(tensor, str(tensor))
        return [tensor if tensor.op.graph is self else self.capture(tensor) for tensor in inputs]

    # ---- state ------------------------------------------------------------------------------

    @property
    def finalized(self) -> bool:
        """Whether the graph is read-only."""
        return self._finalized_at is not None

    def finalize(self) -> None:
        """Makes the graph read-only, so that it can be shared and cannot grow in a loop."""
        if self._finalized_at is None:
            self._finalized_at = capture_stack()

    def _unsafe_unfinalize(self) -> None:
        self._finalized_at = None

    @property
    def building_function(self) -> bool:
        """Whether this is the graph of a function that is being traced; `tf.init_scope` leaves such graphs."""
        return self.outer is not None or self._is_function

    @property
    def _building_function(self) -> bool:
        """TensorFlow's private name. It can be set, for a graph that a library makes for a function of its own."""
        return self.building_function

    @_building_function.setter
    def _building_function(self, value: bool) -> None:
        self._is_function = bool(value)

    @property
    def _variable_creator_stack(self) -> list[Any]:
        """The functions of ``tf.variable_creator_scope``, outermost first (TensorFlow's private name)."""
        found: list[Any] = self.attachments.get("variable_creators", [])
        return found

    @_variable_creator_stack.setter
    def _variable_creator_stack(self, creators: list[Any]) -> None:
        self.attachments["variable_creators"] = creators

    def prevent_feeding(self, tensor: Tensor) -> None:
        """Marks a tensor as one that must not be fed."""
        self._unfeedable.add(tensor)

    def is_feedable(self, tensor: Tensor) -> bool:
        return tensor not in self._unfeedable

    def prevent_fetching(self, op: Operation) -> None:
        """Marks an op as one that must not be fetched."""
        self._unfetchable.add(op)

    def is_fetchable(self, tensor_or_op: Any) -> bool:
        return op_of(tensor_or_op) not in self._unfetchable

    def as_graph_def(self, from_version: int | None = None, add_shapes: bool = False) -> Any:
        """Converts the graph to a GraphDef.

        Args:
          from_version: leave out the first ``from_version`` ops.
          add_shapes: store the static shapes of each op's outputs in its attr ``_output_shapes``.

        Raises:
          ValueError: the message would be larger than 2 GiB.
        """
        graph_def = protos.GraphDef(versions=self.graph_def_versions)
        for op in self._order[from_version or 0 :]:
            node_def = graph_def.node.add()
            fill_node_def(node_def, node_of(op))
            if add_shapes and op.outputs:
                shapes = node_def.attr["_output_shapes"].list.shape
                shapes.extend(shape_proto(tensor.raw_shape) for tensor in op.outputs)
        if graph_def.ByteSize() >= 2**31:
            raise ValueError("GraphDef cannot be larger than 2GB.")
        return graph_def

    def _note_input_type(self, op: Operation, index: int, dtype: dtypes.DType) -> None:
        """Remembers the dtype that the op was built for if an update of its input has changed it."""
        wanted = self._wrong_inputs.pop((op, index), dtype.base_dtype)
        if op.inputs[index].dtype.base_dtype != wanted:
            self._wrong_inputs[op, index] = wanted

    def check_input_types(self) -> None:
        """Refuses ops whose inputs were replaced by tensors of another dtype.

        Raises:
          InvalidArgumentError: names the first of them.
        """
        for (op, index), wanted in self._wrong_inputs.items():
            found = op.inputs[index]
            raise InvalidArgumentError(None, op, (
                f"Input {index} of node {op.name} was passed {found.dtype.base_dtype.name} from {found.name}"
                f" incompatible with expected {wanted.name}."
            ))  # fmt: skip

    def _note_mutation(self, op: Operation, how: str) -> None:
        if op._id <= self._sent_version and op._id > 0:
            _log.warning(
                "Operation '%s' was changed by %s after it was run by a session. This mutation will have no effect,"
                " and will trigger an error in the future. Either don't modify nodes after running them or create a"
                " new session.",
                op.name,
                how,
            )

    def _session_hook(self, kind: str, element: Any, feed_dict: Any, session: Any) -> Any:
        """Runs ``tensor.eval()`` and ``op.run()`` in a session, or in the thread's default session."""
        if session is None:
            session = default_session.get_default_session()
            if session is None:
                raise ValueError(
                    f"Cannot {_VERBS[kind]}: No default session is registered. Use `with sess.as_default()` or pass an"
                    f" explicit session to `{kind}(session=sess)`"
                )
            if session.graph is not self:
                raise ValueError(
                    f"Cannot use the default session to {_NOUNS[kind]} graph is different from the session's graph."
                    f" Pass an explicit session to `{kind}(session=sess)`."
                )
        elif session.graph is not self:
            raise ValueError(
                f"Cannot use the given session to {_NOUNS[kind]} graph is different from the session's graph."
            )
        return session.run(element, feed_dict)

    def is_inside(self, other: Graph) -> bool:
        """Whether this is the graph of a function that is traced in ``other`` or in a function inside it."""
        around = self.outer
        while around is not None and around is not other:
            around = around.outer
        return around is not None

    def capture(self, tensor: Tensor) -> Tensor:
        """Makes another graph's tensor available in this one. Only the graph of a function can.

        Raises:
          ValueError: this is no graph of a function inside the other graph.
        """
        raise ValueError(f"{tensor} must be from the same graph as the other inputs.")

    def _check_same(self, tensor: Tensor, what: str) -> None:
        if tensor.op.graph is not self:
            raise ValueError(f"{what} must be from the same graph as {tensor}.")

    def __repr__(self) -> str:
        return f"<tf.Graph of {len(self._order)} ops at {id(self):#x}>"


class _DefaultStack(threading.local):
    """The default graphs of a thread's ``with`` blocks, innermost last."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []


default_stack = _DefaultStack()


def innermost(graph: Graph) -> Graph:
    """Returns the graph for new ops on tensors of ``graph``: that of a function being traced inside it, or itself."""
    graphs = default_stack.graphs
    if graphs and graphs[-1].outer is not None and graphs[-1].is_inside(graph):
        return graphs[-1]
    return graph


def _infer_shapes(op: Operation, handle: OpType, outputs: int) -> list[RawShape]:
    if handle.shape_function is None:
        return [None] * outputs
    try:
        shapes = handle.shape_function(op)
    except ValueError as error:
        given = ", ".join(format_raw(t.raw_shape) for t in op.inputs)
        text = str(error)
        if " for '" in text and "(op: " in text:
            raise
        raise ValueError(f"{text} for '{op.name}' (op: '{op.type}') with input shapes: {given}.") from None
    if not handle.shapes_checked or len(shapes) != outputs:
        _check_shapes(handle, shapes, outputs)
    return shapes


def _check_shapes(handle: OpType, shapes: Any, outputs: int) -> None:
    """Checks the first result of a shape function, and later ones of another length.

    Raises:
      TypeError: the result is not one shape per output; the message names the function.
    """
    code = getattr(handle.shape_function, "__code__", None)
    site = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else handle.site
    prefix = f"The shape function of {handle.name} at {site} returned {shapes!r}:"
    if not isinstance(shapes, (list, tuple)) or len(shapes) != outputs:
        raise TypeError(f"{prefix} a list of {outputs} shapes is wanted, one per output.")
    for shape in shapes:
        if shape is not None and not isinstance(shape, tuple):
            raise TypeError(f"{prefix} a shape is a tuple of sizes, or None where the rank is unknown.")
    handle.shapes_checked = True


def handle_of(op_type: str) -> OpType:
    """Returns the op type of a name.

    Raises:
      ValueError: tfmini has no such op.
    """
    handle = OPS.get(op_type)
    if handle is None:
        raise ValueError(f"Op type not registered '{op_type}': tfmini has no declaration of it.")
    return handle
