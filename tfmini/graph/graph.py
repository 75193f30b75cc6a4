"""`Graph`: operations under construction, with their names, scopes and collections (``tf.Graph``)."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tfmini import dtypes
from tfmini.graph import default_graph, default_session
from tfmini.graph.collections import CollectionStore
from tfmini.graph.flow_checks import check_inputs
from tfmini.graph.operation import Operation, Tensor, capture_stack
from tfmini.graph.registry import OPS, OpHandle
from tfmini.graph.scopes import ControlScope, ScopeState, device_level
from tfmini.shapes import RawShape, format_raw

_log = logging.getLogger("tfmini")
_VALID_OP_NAME = re.compile(r"^[A-Za-z0-9.][A-Za-z0-9_.\-/]*$")
_VERBS = {"eval": "evaluate tensor using `eval()`", "run": "execute operation using `run()`"}
_NOUNS = {"eval": "evaluate tensor: the tensor's", "run": "execute operation: the operation's"}
_VALID_SCOPE_NAME = re.compile(r"^[A-Za-z0-9_.\-/]*$")


class Graph(CollectionStore):
    """A dataflow graph. Adding ops is safe from several threads; the scopes are shared by them."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._ops: dict[str, Operation] = {}
        self._order: list[Operation] = []
        self._names_in_use: dict[str, int] = {}
        self._state = ScopeState()
        self._local_states: threading.local | None = None
        self._finalized = False
        self._unfeedable: set[Tensor] = set()
        self._unfetchable: set[Operation] = set()
        self.seed: int | None = None
        # For the graph of a function: the graph that it is traced in.
        self.outer: Graph | None = None
        # Sessions of this graph note here up to which op they have sent it, to warn of later mutations.
        self._sent_version = 0
        self._last_loss_reduction: Any = None
        # Objects that live as long as the graph, by their owner's key (py_func tokens, variable store…).
        self.attachments: dict[Any, Any] = {}

    # ---- scopes -----------------------------------------------------------------------------

    @property
    def scopes(self) -> ScopeState:
        """The scope stacks in force for this thread."""
        if self._local_states is None:
            return self._state
        try:
            return self._local_states.state  # type: ignore[no-any-return]
        except AttributeError:
            self._local_states.state = self._state.copy()
            return self._local_states.state  # type: ignore[no-any-return]

    def switch_to_thread_local(self) -> None:
        """From now on each thread has its own scope stacks, starting from the present ones."""
        if self._local_states is None:
            self._local_states = threading.local()

    def as_default(self) -> AbstractContextManager[Graph]:
        """A context in which this graph is the default of the thread."""
        return default_graph.as_default(self)

    @contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """Prefixes the names of the ops made inside; yields the scope's name with a final ``/``.

        Raises:
          ValueError: for a name that is no scope name.
        """
        if name is not None:
            if isinstance(name, bytes):
                name = name.decode()
            pattern = _VALID_SCOPE_NAME if self.scopes.name else _VALID_OP_NAME
            if name and not pattern.match(name):
                raise ValueError(f"'{name}' is not a valid scope name")
        state = self.scopes
        saved = state.name
        if not name:
            state.name = ""
        elif name[-1] == "/":
            state.name = name[:-1]
        else:
            state.name = self.unique_name(name)
        try:
            yield state.name + "/" if state.name else ""
        finally:
            state.name = saved

    def get_name_scope(self) -> str:
        """The name scope in force, without a final ``/``."""
        return self.scopes.name

    @property
    def _name_stack(self) -> str:
        return self.scopes.name

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """``name`` under the name scope, made unique (ignoring case) by a numeric suffix."""
        prefix = self.scopes.name
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

    @contextmanager
    def device(self, device_name_or_function: Any) -> Iterator[None]:
        """Requests a device for the ops made inside: a string, `DeviceSpec`, function or None.

        Raises:
          ValueError: for a string that does not parse.
          RuntimeError: when scopes are left out of order.
        """
        level = device_level(device_name_or_function)
        state = self.scopes
        outer = state.devices
        inner = outer + [level]
        state.set_devices(inner)
        try:
            yield
        finally:
            if state.devices is not inner:
                raise RuntimeError("Exiting device scope without proper scope nesting.")
            state.set_devices(outer)

    @contextmanager
    def colocate_with(self, op: Any, ignore_existing: bool = False) -> Iterator[None]:
        """Puts the ops made inside on the device of ``op``, whatever the surrounding device scopes.

        Raises:
          ValueError: for None without ``ignore_existing``.
        """
        if op is None and not ignore_existing:
            raise ValueError("Trying to reset colocation (op is None) but ignore_existing is not True")
        anchor = op_of(op)
        state = self.scopes
        saved_devices, saved_colocation = state.devices, state.colocation
        state.set_devices([])
        if ignore_existing:
            state.colocation = []
        if anchor is not None:
            state.colocation = state.colocation + [anchor]
        try:
            yield
        finally:
            state.set_devices(saved_devices)
            state.colocation = saved_colocation

    def control_dependencies(self, control_inputs: Iterable[Any] | None) -> ControlScope:
        """A context whose ops wait for ``control_inputs``; None clears the surrounding ones.

        Raises:
          TypeError: when an element is no operation or tensor.
        """
        if control_inputs is None:
            return ControlScope(self.scopes, None)
        needed: list[Operation] = []
        for item in control_inputs:
            item = getattr(item, "values", item) if type(item).__name__ == "IndexedSlices" else item
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

    @contextmanager
    def gradient_override_map(self, op_type_map: dict[str, str]) -> Iterator[None]:
        """Uses other registered gradients for the ops of these types made inside."""
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
        given = {name: _attr_value(value) for name, value in attr_map.items()}
        merged = {**state.attr_scope, **given}
        kept = {name: value for name, value in merged.items() if value is not None}
        saved, state.attr_scope = state.attr_scope, kept
        try:
            yield
        finally:
            state.attr_scope = saved

    @contextmanager
    def _original_op(self, _op: Any) -> Iterator[None]:
        yield

    def _get_control_flow_context(self) -> Any:
        return self.scopes.control_flow_context

    def _set_control_flow_context(self, context: Any) -> None:
        self.scopes.control_flow_context = context

    # ---- ops --------------------------------------------------------------------------------

    def add_op(
        self,
        handle: OpHandle,
        name: str,
        inputs: list[Tensor],
        attrs: dict[str, Any],
        output_dtypes: list[dtypes.DType],
        output_shapes: list[RawShape] | None = None,
        joins_context: bool = True,
    ) -> Operation:
        """Adds one op under the scopes in force: the hot path of graph construction.

        Args:
          handle: the op type.
          name: the full name, already unique.
          inputs: tensors of this graph.
          attrs: all attrs, defaults included; the graph takes the dict over.
          output_dtypes: one per output.
          output_shapes: instead of the shape function's result.
          joins_context: whether the cond or loop in force is told; if not, the caller tells it later.

        Raises:
          RuntimeError: when the graph is finalized.
          ValueError: when the shape function refuses the inputs.
        """
        if self._finalized:
            raise RuntimeError("Graph is finalized and cannot be modified.")
        op = Operation(self, handle, name, inputs, attrs)
        state = self.scopes
        op._control_flow_context = state.control_flow_context
        confined = [t.op for t in inputs if t.op._control_flow_context is not None]
        if confined:
            check_inputs(op, confined)
        op._stack = capture_stack()
        if handle.shape_function is None or output_shapes is not None:
            shapes = output_shapes or [None] * len(output_dtypes)
        else:
            shapes = _infer_shapes(op, handle)
        op._outputs = [Tensor(op, i, dtype, shapes[i]) for i, dtype in enumerate(output_dtypes)]
        if state.container and attrs.get("container") == b"":
            attrs["container"] = state.container.encode()
        if state.gradient_map and handle.name in state.gradient_map:
            attrs["_gradient_op_type"] = state.gradient_map[handle.name].encode()
        if state.attr_scope:
            attrs.update(state.attr_scope)
        if state.control:
            op._control_inputs = state.control_inputs_for(inputs)
            for scope in state.control:
                scope.made.add(op)
        with self._lock:
            op._id = len(self._order) + 1
            self._order.append(op)
            self._ops[name] = op
        for tensor in inputs:
            tensor._add_consumer(op)
        for control in op._control_inputs:
            control._add_dependent(op)
        if state.device_text is None:
            state.resolve_device(op)
        else:
            op._device = state.device_text
        if state.colocation:
            state.apply_colocation(op)
        if state.control_flow_context is not None and joins_context:
            state.control_flow_context.AddOp(op)
        return op

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
          ValueError: for an unknown op type or a bad name.
          TypeError: when an input is no tensor.
        """
        from tfmini.graph.building import create_raw

        return create_raw(self, op_type, list(inputs), name, dict(attrs or {}))

    def _full_name(self, name: str | None, op_type: str) -> str:
        """The unique name of a new op: as it stands when it ends in ``/``."""
        name = name or op_type
        if name[-1] == "/":
            name = name[:-1]
            if name in self._ops:
                raise ValueError(f"Duplicate node name in graph: '{name}'")
            self._names_in_use.setdefault(name.lower(), 1)
            return name
        if not _VALID_OP_NAME.match(name):
            raise ValueError(f"'{name}' is not a valid node name")
        return self.unique_name(name)

    # ---- lookup -----------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The number of ops made so far; it grows with every op."""
        return len(self._order)

    @property
    def graph_def_versions(self) -> Any:
        from tfmini import protos

        return protos.VersionDef(producer=134, min_consumer=0)

    def get_operations(self) -> list[Operation]:
        """All operations, in order of creation."""
        return list(self._order)

    def get_operation_by_name(self, name: str) -> Operation:
        """The operation of that name.

        Raises:
          TypeError: when ``name`` is no string.
          KeyError: when there is none.
        """
        if not isinstance(name, str):
            raise TypeError(f"Operation names are strings (or similar), not {type(name).__name__}.")
        return self.as_graph_element(name, allow_tensor=False, allow_operation=True)  # type: ignore[no-any-return]

    def get_tensor_by_name(self, name: str) -> Tensor:
        """The tensor called ``"op:index"``.

        Raises:
          TypeError: when ``name`` is no string.
          KeyError: when there is none.
        """
        if not isinstance(name, str):
            raise TypeError(f"Tensor names are strings (or similar), not {type(name).__name__}.")
        return self.as_graph_element(name, allow_tensor=True, allow_operation=False)  # type: ignore[no-any-return]

    def as_graph_element(self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True) -> Any:
        """The tensor or operation that ``obj`` (an object or a name) stands for.

        Raises:
          TypeError: when it is neither.
          ValueError: when it belongs to another graph, or is of the kind not allowed.
          KeyError: when there is no such name.
        """
        wanted = " or ".join(["Tensor"] * allow_tensor + ["Operation"] * allow_operation)
        convert = getattr(obj, "_as_graph_element", None)
        if convert is not None:
            obj = convert()
        if isinstance(obj, bytes):
            obj = obj.decode()
        if isinstance(obj, str):
            return self._element_by_name(obj, allow_tensor, allow_operation)
        if isinstance(obj, Tensor) and allow_tensor or isinstance(obj, Operation) and allow_operation:
            if obj.graph is not self:
                raise ValueError(
                    f"{'Tensor' if isinstance(obj, Tensor) else 'Operation'} {obj} is not an element of this graph."
                )
            return obj
        raise TypeError(f"Can not convert a {type(obj).__name__} into a {wanted}.")

    def _element_by_name(self, name: str, allow_tensor: bool, allow_operation: bool) -> Any:
        op_name, colon, index = name.partition(":")
        if colon and allow_tensor:
            if not index.isdigit():
                raise ValueError(
                    f"The name {name!r} looks a like a Tensor name, but is not a valid one. Tensor names must be of the"
                    ' form "<op_name>:<output_index>".'
                )
            op = self._ops.get(op_name)
            if op is None:
                raise KeyError(
                    f"The name {name!r} refers to a Tensor which does not exist. The operation, {op_name!r}, does not"
                    " exist in the graph."
                )
            if int(index) >= len(op._outputs):
                raise KeyError(
                    f"The name {name!r} refers to a Tensor which does not exist. The operation, {op_name!r}, exists but"
                    f" only has {len(op._outputs)} outputs."
                )
            return op._outputs[int(index)]
        if colon:
            raise ValueError(f"The name {name!r} appears to refer to a Tensor, not a Operation.")
        if not allow_operation:
            if name in self._ops:
                raise ValueError(
                    f"The name {name!r} refers to an Operation, not a Tensor. Tensor names must be of the form"
                    ' "<op_name>:<output_index>".'
                )
            raise ValueError(
                f"The name {name!r} looks like an (invalid) Operation name, not a Tensor. Tensor names must be of the"
                ' form "<op_name>:<output_index>".'
            )
        if name not in self._ops:
            raise KeyError(f"The name {name!r} refers to an Operation not in the graph.")
        return self._ops[name]

    def _as_graph_element_by_name(self, name: str) -> Any:
        return self._element_by_name(name, True, True)

    # ---- state ------------------------------------------------------------------------------

    @property
    def finalized(self) -> bool:
        """Whether the graph refuses new ops."""
        return self._finalized

    def finalize(self) -> None:
        """Makes the graph read-only, so that it can be shared and cannot grow in a loop."""
        self._finalized = True

    def _unsafe_unfinalize(self) -> None:
        self._finalized = False

    @property
    def building_function(self) -> bool:
        return False

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
        """The graph as a GraphDef proto, from the op of number ``from_version`` on."""
        from tfmini.graph.graph_def import graph_to_graph_def

        return graph_to_graph_def(self, from_version, add_shapes)

    def _note_mutation(self, op: Operation, how: str) -> None:
        if op._id <= self._sent_version and op._id > 0:
            _log.warning(
                "Operation '%s' was changed by %s after it was run by a session. This mutation will have no effect,"
                " and will trigger an error in the future. Either don't modify nodes after running them or create a"
                " new session.",
                op._name,
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

    def capture(self, tensor: Tensor) -> Tensor:
        """A tensor of this graph that stands for one of another graph; only functions have such.

        Raises:
          ValueError: the graphs have nothing to do with each other.
        """
        raise ValueError(f"{tensor} must be from the same graph as the other inputs.")

    def _check_same(self, tensor: Tensor, what: str) -> None:
        if tensor.op.graph is not self:
            raise ValueError(f"{what} must be from the same graph as {tensor}.")

    def __repr__(self) -> str:
        return f"<tf.Graph of {len(self._order)} ops at {id(self):#x}>"


def op_of(op_or_tensor: Any) -> Operation | None:
    """The operation of a tensor, variable or operation; None for None."""
    if op_or_tensor is None or isinstance(op_or_tensor, Operation):
        return op_or_tensor
    return op_or_tensor.op  # type: ignore[no-any-return]


def _infer_shapes(op: Operation, handle: OpHandle) -> list[RawShape]:
    try:
        return handle.shape_function(op)  # type: ignore[misc]
    except ValueError as error:
        shapes = ", ".join(format_raw(t._shape) for t in op._inputs)
        text = str(error)
        if " for '" in text and "(op: " in text:
            raise
        raise ValueError(f"{text} for '{op._name}' (op: '{op.type}') with input shapes: {shapes}.") from None


def _attr_value(value: Any) -> Any:
    """An attr of `Graph._attr_scope` as ops keep it, whether given so or as an AttrValue."""
    if not hasattr(value, "WhichOneof"):
        return value
    from tfmini.graph.attr_values import from_proto

    return from_proto(value)


def handle_of(op_type: str) -> OpHandle:
    """The handle of an op type.

    Raises:
      ValueError: when tfmini has no such op.
    """
    handle = OPS.get(op_type)
    if handle is None:
        raise ValueError(f"Op type not registered '{op_type}': tfmini has no declaration of it.")
    return handle
