"""`Graph`: operations under construction, with their names, scopes and collections (``tf.Graph``)."""

from __future__ import annotations

import logging
import re
import threading
from _thread import get_ident
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

from tfmini import dtypes, protos
from tfmini.core_types import ShapeLike
from tfmini.devices import merge_device
from tfmini.errors import InvalidArgumentError
from tfmini.export import export
from tfmini.graph.attr_checks import check_inputs
from tfmini.graph.attr_values import shape_proto
from tfmini.graph.graph_def import attr_of_scope, fill_node_def, plain_attr
from tfmini.graph.graph_elements import GraphElements
from tfmini.graph.op_def import infer_attrs_from_inputs, output_dtypes
from tfmini.graph.op_types import OPS, OpType
from tfmini.graph.operation import Operation, Tensor, node_of, op_of
from tfmini.graph.scopes import (
    ControlScope,
    DeviceLevel,
    ScopeSite,
    ScopeState,
    capture_stack,
    colocation_site,
    device_level,
    device_site,
    get_default_session,
)
from tfmini.shapes import RawShape, format_raw

# ---- graph scopes ----------------------------------------
# The scopes of a graph, as methods of `tfmini.graph.graph.Graph`: names, devices, colocation, dependencies, …
# The methods change a `tfmini.graph.scopes.ScopeState`. `Graph.add_op` applies it to each new op.

_VALID_OP_NAME = re.compile(r"^[A-Za-z0-9.][A-Za-z0-9_.\-/]*$")
_VALID_SCOPE_NAME = re.compile(r"^[A-Za-z0-9_.\-/]*$")


class _ThreadName(threading.local):
    """The name scope of one thread."""

    current = ""


class GraphScopes(GraphElements):
    """The scopes of a graph: names, devices, dependencies and so on for the next op."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._names_in_use: dict[str, int] = {}
        self.name_scopes = _ThreadName()
        self._state = ScopeState()
        self._local_states: threading.local | None = None

    @property
    def scopes(self) -> ScopeState:
        """The current scope stacks of this thread."""
        if self._local_states is None:
            return self._state
        try:
            return self._local_states.state  # type: ignore[no-any-return]
        except AttributeError:
            self._local_states.state = self._state.copy()
            return self._local_states.state  # type: ignore[no-any-return]

    def switch_to_thread_local(self) -> None:
        """Gives each thread its own scope stacks from now on. They start as a copy of the current ones."""
        if self._local_states is None:
            self._local_states = threading.local()

    @contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """Prefixes the names of the ops made inside; yields the scope's name with a final ``/``.

        Raises:
          ValueError: ``name`` is no valid scope name.
        """
        if name is not None:
            if isinstance(name, bytes):
                name = name.decode()
            pattern = _VALID_SCOPE_NAME if self.name_scopes.current else _VALID_OP_NAME
            if name and not pattern.match(name):
                raise ValueError(f"'{name}' is not a valid scope name")
        scopes = self.name_scopes
        saved = scopes.current
        if not name:
            scopes.current = ""
        elif name[-1] == "/":
            scopes.current = name[:-1]
        else:
            scopes.current = self.unique_name(name)
        try:
            # "/" is the outermost scope too, but a scope's name ends as it was written.
            yield scopes.current + "/" if scopes.current or name == "/" else ""
        finally:
            scopes.current = saved

    def get_name_scope(self) -> str:
        """Returns the current name scope of this thread, without a final ``/``."""
        return self.name_scopes.current

    @property
    def _name_stack(self) -> str:
        return self.name_scopes.current

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """Puts ``name`` into the current name scope and makes it unique, ignoring case, by a numeric suffix."""
        prefix = self.name_scopes.current
        if prefix:
            name = f"{prefix}/{name}"
        key = name.lower()
        with self._lock:
            used = self._names_in_use
            count = used.get(key, 0)
            if mark_as_used:
                used[key] = count + 1
            if not count:
                return name
            base = key
            while key in used:
                key = f"{base}_{count}"
                count += 1
            if mark_as_used:
                used[key] = 1
            return f"{name}_{count - 1}"

    def device(self, device_name_or_function: Any) -> AbstractContextManager[None]:
        """Requests a device for the ops made inside: a string, `DeviceSpec`, function or None.

        Raises:
          ValueError: the string does not parse.
          RuntimeError: device scopes are not left in the reverse order of entering.
        """
        return self._device_scope(device_level(device_name_or_function), device_site(device_name_or_function))

    def _apply_device_functions(self, op: Any) -> None:
        """Gives an object like an op the device of the current scopes; Keras asks so for their device."""
        for level in reversed(self.scopes.devices):
            if level is None:
                break
            chosen = level(op) if callable(level) else merge_device(level, op.device or "")
            op._set_device(chosen)

    @contextmanager
    def _device_scope(self, level: DeviceLevel, site: ScopeSite) -> Iterator[None]:
        state = self.scopes
        outer, outer_sites = state.devices, state.sites
        inner = outer + [level]
        state.set_devices(inner)
        state.sites = ((*outer_sites[0], site), outer_sites[1])
        try:
            yield
        finally:
            if state.devices is not inner:
                raise RuntimeError("Exiting device scope without proper scope nesting.")
            state.set_devices(outer)
            state.sites = outer_sites

    def colocate_with(self, op: Any, ignore_existing: bool = False) -> AbstractContextManager[None]:
        """Puts the ops made inside on the device of ``op``, whatever the enclosing device scopes request.

        Raises:
          ValueError: ``op`` is None, without ``ignore_existing``.
        """
        if op is None and not ignore_existing:
            raise ValueError("Trying to reset colocation (op is None) but ignore_existing is not True")
        anchor = op_of(op)
        sites = () if anchor is None else (colocation_site(anchor.name),)
        return self._colocation_scope(anchor, sites, ignore_existing)

    @contextmanager
    def _colocation_scope(
        self, anchor: Operation | None, sites: tuple[ScopeSite, ...], ignore_existing: bool
    ) -> Iterator[None]:
        state = self.scopes
        saved_devices, saved_colocation, saved_sites = state.devices, state.colocation, state.sites
        state.set_devices([])
        if ignore_existing:
            state.colocation = []
        if anchor is not None:
            state.colocation = state.colocation + [anchor]
        state.sites = ((), sites if ignore_existing else saved_sites[1] + sites)
        try:
            yield
        finally:
            state.set_devices(saved_devices)
            state.colocation, state.sites = saved_colocation, saved_sites

    def control_dependencies(self, control_inputs: Iterable[Any] | None) -> ControlScope:
        """Makes the ops made inside wait for ``control_inputs``; None cancels those of enclosing scopes.

        Raises:
          TypeError: an element is no operation or tensor.
        """
        if control_inputs is None:
            return ControlScope(self.scopes, None)
        needed: list[Operation] = []
        for item in control_inputs:
            item = getattr(item, "_parent_op", item)  # an assignment itself, not a read of its result
            op = self.as_graph_element(getattr(item, "_as_graph_element", lambda item=item: item)())
            op = op.op if isinstance(op, Tensor) else op
            if op not in needed:
                needed.append(op)
        return ControlScope(self.scopes, needed)

    @contextmanager
    def container(self, container_name: str) -> Iterator[str]:
        """Names the resource container of the stateful ops made inside."""
        state = self.scopes
        saved, state.container = state.container, container_name
        try:
            yield container_name
        finally:
            state.container = saved

    @property
    def _container(self) -> str:
        """The resource container of ops made now; public scripts read it to share a variable by name."""
        return self.scopes.container

    @contextmanager
    def gradient_override_map(self, op_type_map: dict[str, str]) -> Iterator[None]:
        """Maps op types to the registered gradients that their ops made inside use instead of their own."""
        if not isinstance(op_type_map, dict):
            raise TypeError("op_type_map must be a dictionary mapping strings to strings")
        state = self.scopes
        saved, state.gradient_map = state.gradient_map, {**state.gradient_map, **op_type_map}
        try:
            yield
        finally:
            state.gradient_map = saved

    @contextmanager
    def _attr_scope(self, attr_map: dict[str, Any]) -> Iterator[None]:
        state = self.scopes
        given = {name: attr_of_scope(value) for name, value in attr_map.items()}
        merged = {**state.attr_scope, **given}
        kept = {name: value for name, value in merged.items() if value is not None}
        saved, state.attr_scope = state.attr_scope, kept
        try:
            yield
        finally:
            state.attr_scope = saved

    def _get_control_flow_context(self) -> Any:
        return self.scopes.control_flow_context

    def _set_control_flow_context(self, context: Any) -> None:
        self.scopes.control_flow_context = context

    def _full_name(self, name: str | bytes | None, op_type: str) -> str:
        """Returns the unique name of a new op. A ``name`` that ends in ``/`` is the full name already."""
        name = name or op_type
        if isinstance(name, bytes):
            name = name.decode()
        if name[-1] == "/":
            name = name[:-1]
            if name in self._ops:
                raise ValueError(f"Duplicate node name in graph: '{name}'")
            self._names_in_use.setdefault(name.lower(), 1)
            return name
        if not _VALID_OP_NAME.match(name):
            raise ValueError(f"'{name}' is not a valid node name")
        return self.unique_name(name)


# ---- `Graph`, the stack of default graphs, and the shapes of new operations ----------------------------------------

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
            if default_stack.graphs and default_stack.graphs[-1] is not graph:
                raise AssertionError(f"Nesting violated for default stack of {Graph} objects")
            del default_stack.graphs[-1:]  # none where a test case began inside

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

    _c_graph = property(lambda graph: graph, doc="What TensorFlow's functions in C take for a graph.")

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
            session = get_default_session()
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


def _check_shapes(handle: OpType, shapes: ShapeLike, outputs: int) -> None:
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
