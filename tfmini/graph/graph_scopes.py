"""The scopes of a graph, as methods of `tfmini.graph.graph.Graph`: names, devices, colocation, dependencies, …

The methods change a `tfmini.graph.scopes.ScopeState`. `Graph.add_op` applies it to each new op.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tfmini.graph.graph_def import plain_attr
from tfmini.graph.graph_elements import GraphElements
from tfmini.graph.operation import Operation, Tensor, op_of
from tfmini.graph.scope_sites import ScopeSite, colocation_site, device_site
from tfmini.graph.scopes import ControlScope, DeviceLevel, ScopeState, device_level

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
        given = {name: plain_attr(value) for name, value in attr_map.items()}
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
