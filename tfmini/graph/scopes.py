"""The scopes for new ops: names, devices, colocation, control dependencies, containers.

A `ScopeState` holds the scope stacks of a graph, but for the name scope, which each thread has for itself
(``graph.name_scopes``). All threads share it, as in TensorFlow, until ``graph.switch_to_thread_local()`` gives each
thread a copy.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfmini import devices
from tfmini.export import export

if TYPE_CHECKING:
    from tfmini.graph.graph import Graph
    from tfmini.graph.operation import Operation, Tensor


DeviceLevel = str | Callable[[Any], Any] | None


class ControlScope:
    """One level of ``tf.control_dependencies``: the control inputs of new ops, and the ops made inside."""

    __slots__ = ("state", "control_inputs", "new_stack", "made", "_saved", "_saved_context")

    def __init__(self, state: ScopeState, control_inputs: Iterable[Operation] | None) -> None:
        self.state = state
        self.new_stack = control_inputs is None
        self.control_inputs = list(control_inputs or ())
        self.made: set[Operation] = set()

    def __enter__(self) -> None:
        if self.new_stack:
            # control_dependencies(None) also leaves the enclosing cond or loop.
            self._saved, self.state.control = self.state.control, []
            self._saved_context, self.state.control_flow_context = self.state.control_flow_context, None
        else:
            self.state.control.append(self)

    def __exit__(self, *_: object) -> None:
        if self.new_stack:
            self.state.control = self._saved
            self.state.control_flow_context = self._saved_context
        else:
            self.state.control.remove(self)


class ScopeState:
    """The scope stacks that apply to the next op."""

    __slots__ = ("devices", "sites", "device_text", "colocation", "control", "container", "control_flow_context",
                 "gradient_map", "attr_scope")  # fmt: skip

    def __init__(self) -> None:
        self.devices: list[DeviceLevel] = []
        # The merged device if all levels are strings; None if one is a device function.
        self.device_text: str | None = ""
        # The blocks of devices and of colocations around, for `Operation`; replaced as a whole.
        self.sites: tuple[tuple[ScopeSite, ...], tuple[ScopeSite, ...]] = ((), ())
        self.colocation: list[Operation] = []
        self.control: list[ControlScope] = []
        self.container = ""
        self.control_flow_context: Any = None
        self.gradient_map: dict[str, str] = {}
        self.attr_scope: dict[str, Any] = {}

    def copy(self) -> ScopeState:
        twin = ScopeState()
        for slot in self.__slots__:
            value = getattr(self, slot)
            setattr(twin, slot, value.copy() if isinstance(value, (list, dict)) else value)
        return twin

    def set_devices(self, levels: list[DeviceLevel]) -> None:
        """Replaces the device stack, and merges its levels if all are strings."""
        self.devices = levels
        self.device_text = _merged_text(levels)

    @contextmanager
    def with_devices(self, levels: list[DeviceLevel]) -> Iterator[None]:
        """Replaces the device stack for a ``with`` block."""
        outer = self.devices
        self.set_devices(levels)
        try:
            yield
        finally:
            self.set_devices(outer)

    def resolve_device(self, op: Operation) -> None:
        """Applies the device stack to a new op, innermost level first."""
        for level in reversed(self.devices):
            if level is None:
                return
            if isinstance(level, str):
                op._device = devices.merge_device(level, op._device)
            else:
                chosen = level(op)
                op._device = _device_text(chosen)

    def apply_attrs(self, op: Operation) -> None:
        """Sets the attrs of a new op that the scopes of containers, gradients and attrs ask for."""
        if self.container and op.attrs.get("container") == b"":
            op.attrs["container"] = self.container.encode()
        if op.type in self.gradient_map:
            op.attrs["_gradient_op_type"] = self.gradient_map[op.type].encode()
        for name, value in self.attr_scope.items():
            chosen = value(op) if callable(value) else value
            if chosen is not None:
                op.attrs[name] = chosen

    def apply_control(self, op: Operation) -> None:
        """Adds the control inputs of the scopes of control dependencies to a new op."""
        op._control_inputs = self.control_inputs_for(op.inputs)
        for scope in self.control:
            scope.made.add(op)

    def control_inputs_for(self, inputs: Sequence[Tensor]) -> list[Operation]:
        """Returns the control inputs of a new op: those of each level inside which none of its inputs was made."""
        needed: list[Operation] = []
        sources = [t.op for t in inputs]
        for scope in self.control:
            if any(op in scope.made for op in sources):
                continue
            needed.extend(op for op in scope.control_inputs if op not in sources and op not in needed)
        return needed

    def check_colocation(self, graph: Graph, name: str) -> None:
        """Refuses to colocate a new op with one of another graph, whose name may be another op's here.

        Raises:
          ValueError: names both.
        """
        for anchor in self.colocation:
            if anchor.graph is not graph and not graph.is_inside(anchor.graph):
                raise ValueError(f"Cannot colocate '{name}' with {anchor!r}, which must be from the same graph.")

    def apply_colocation(self, op: Operation) -> None:
        """Puts an op into the groups of the colocation stack instead of its own, and requests their device for it."""
        groups: list[bytes] = []
        for anchor in self.colocation:
            if anchor.graph is not op.graph:
                continue  # a function runs where its caller does, and its graph has no op of that name
            groups.extend(anchor.colocation_groups())
            if anchor._device:
                op._device = anchor._device
        if groups:
            op.attrs["_class"] = sorted(set(groups))


def _merged_text(levels: list[DeviceLevel]) -> str | None:
    text = ""
    for level in reversed(levels):
        if level is None:
            break
        if not isinstance(level, str):
            return None
        text = devices.merge_device(level, text)
    return text


def _device_text(chosen: Any) -> str:
    if isinstance(chosen, str):
        return devices.canonical_name(chosen)
    if isinstance(chosen, devices.DeviceSpecV2):
        return chosen.to_string()
    raise TypeError(
        f"Expected binary or unicode string, got {chosen}: a device function must return a device name"
        ' ("" for no opinion)'
    )


def device_level(device_name_or_function: Any) -> DeviceLevel:
    """Converts the argument of ``tf.device`` to a level of the device stack.

    Raises:
      ValueError: the device string does not parse.
    """
    if device_name_or_function is None:
        return None
    if callable(device_name_or_function):
        chooser: Callable[[Any], Any] = device_name_or_function
        return chooser
    return devices.canonical_name(device_name_or_function)


# ---- Where the `with` blocks of devices and colocations begin that were in force when an op was made ---------------

_HOME = __file__.rsplit("/", 2)[0] + "/"


@dataclass(frozen=True, slots=True)
class ScopeSite:
    """One such block; TensorFlow's ``TraceableObject``.

    Attributes:
      obj: the device as it was given, or ``NAME<FILE, LINE>`` for a function; None for a colocation.
      filename, lineno: of the call of ``tf.device`` or ``tf.colocate_with``.
      anchor: the name of the op to colocate with; "" for a device.
    """

    obj: str | None
    filename: str
    lineno: int
    anchor: str = ""

    def __str__(self) -> str:
        what = f"tf.colocate_with({self.anchor})" if self.anchor else f"tf.device({self.obj})"
        return f"with {what} at {self.filename}:{self.lineno}"


def device_site(requested: Any) -> ScopeSite:
    """The site of a call of ``tf.device`` by the user's code, for a device or a device function."""
    return ScopeSite(_text(requested), *_caller())


def colocation_site(anchor: str) -> ScopeSite:
    """The site of a call of ``tf.colocate_with``."""
    return ScopeSite(None, *_caller(), anchor)


def _text(requested: Any) -> str:
    if requested is None or isinstance(requested, str):
        return str(requested)
    if not callable(requested):
        return str(requested.to_string())
    code = getattr(requested, "__code__", None)
    name = getattr(requested, "__name__", type(requested).__name__)
    return f"{name}<{code.co_filename}, {code.co_firstlineno}>" if code is not None else name


def _caller() -> tuple[str, int]:
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HOME):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


# ---- The stack of the call that made an op, kept in a form that costs little, since every op has one ---------------
# A stack is a tuple of code, instruction offset, code, … innermost first. Line numbers are computed when they are asked
# for.

_STACK_DEPTH = 20
_PACKAGE = __file__.rsplit("/", 2)[0]
# Modules that run a script from another program, as `python -m` and `tfmini run` do.
_BETWEEN = "/absl/app.py"  # `tf.app.run`, if absl is installed
_LAUNCHERS = ("<frozen runpy>", "/runpy.py", "/tfmini/tools/run.py", "/tfmini/tools/script.py")


def capture_stack() -> tuple[Any, ...]:
    """Returns the stack of the caller's caller: its innermost frames, and those from there to the user's first one."""
    frames: list[Any] = []
    frame = sys._getframe(2)
    for _ in range(_STACK_DEPTH):
        frames.append(frame.f_code)
        frames.append(frame.f_lasti)
        frame = frame.f_back  # type: ignore[assignment]
        if frame is None:
            return tuple(frames)
    # The outermost is nearly always the user's, so that the others are seldom looked at.
    if _PACKAGE in frames[-2].co_filename and not any(_is_users(code.co_filename) for code in frames[::2]):
        while frame is not None:
            frames += (frame.f_code, frame.f_lasti)
            if _is_users(frame.f_code.co_filename):
                break
            frame = frame.f_back  # type: ignore[assignment]
    return tuple(frames)


def _is_users(file: str) -> bool:
    return _PACKAGE not in file and not file.startswith("<frozen ") and not file.endswith(_BETWEEN)


def frames_of(stack: tuple[Any, ...]) -> Iterator[tuple[str, int, str]]:
    """The frames of a stack, innermost first: (file, line, function)."""
    for code, lasti in zip(stack[::2], stack[1::2]):
        yield code.co_filename, _line_of(code, lasti), code.co_name


def user_frames(stack: tuple[Any, ...]) -> list[tuple[str, int, str]]:
    """The user's frames of a stack, outermost first, from the script on.

    Frames of tfmini and of the program that runs the script are left out.
    """
    found = []
    for file, line, name in frames_of(stack):
        if file.endswith(_LAUNCHERS):
            break  # the frames above belong to the program that runs the script
        if _is_users(file):
            found.append((file, line, name))
    return found[::-1]


def _line_of(code: Any, lasti: int) -> int:
    """Returns the source line of an instruction offset."""
    line: int = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= lasti < end:
            return int(number or line)
        line = int(number or line)
    return line


# ---- The stack of default sessions, one per thread (``tf.get_default_session``) -------------------------------------


class _SessionStack(threading.local):
    def __init__(self) -> None:
        self.sessions: list[Any] = []


_session_stack = _SessionStack()


@export("tf.get_default_session")
def get_default_session() -> Any:
    """Returns this thread's innermost default session, or None (``tf.get_default_session``)."""
    return _session_stack.sessions[-1] if _session_stack.sessions else None


def default_sessions() -> tuple[Any, ...]:
    """This thread's default sessions, the innermost last."""
    return tuple(_session_stack.sessions)


@contextmanager
def session_scope(session: Any, enforce_nesting: bool = True) -> Iterator[Any]:
    """Makes ``session`` the default for the block."""
    _session_stack.sessions.append(session)
    try:
        yield session
    finally:
        if enforce_nesting and _session_stack.sessions[-1] is not session:
            raise AssertionError("Nesting violated for default stack of sessions")
        if session in _session_stack.sessions:
            _session_stack.sessions.remove(session)


@contextmanager
def without_default_sessions() -> Iterator[None]:
    """Runs the block without any default session, and restores the earlier ones afterwards."""
    before, _session_stack.sessions = _session_stack.sessions, []
    try:
        yield
    finally:
        _session_stack.sessions = before
