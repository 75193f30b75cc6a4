"""The state of a variable: one array, updated in place, with atomic updates.

Consistency (see docs/concepts/consistency.md): updates of one variable never interleave; a reader gets
either the value before an update or the value after it; and the array that a reader got does not
change later. The common case makes no copy: a value without other references is updated in place.
A value that is still referenced (by a step, or by a message that is being sent) is replaced by an
updated copy. CPython's reference count distinguishes the two cases.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array
from tfmini.devices import parse
from tfmini.errors import AbortedError, FailedPreconditionError, OpError
from tfmini.graph import raw_ops
from tfmini.graph.device_types import type_of
from tfmini.graph.families import Operation, Tensor, colocate_with, get_default_graph, name_scope
from tfmini.graph.names import GraphKeys
from tfmini.graph.prune import traverse
from tfmini.memory import check_room
from tfmini.ops.array.identity import identity
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.shapes import RawShape, compatible_raw, format_raw


class _Busy:
    """Replaces the value while an update is changing it."""


BUSY: Any = _Busy()
"""Stands for a value that an update has taken: who needs it waits for the lock."""
_OBJECT = np.dtype(object)
_PAGE = 4096
_acquire: Callable[[Any], bool] = type(threading.Lock()).acquire


def _count_of_sole_holder() -> int:
    """The result of getrefcount for an object that only one local name holds; it depends on the Python version."""
    thing = object()
    return sys.getrefcount(thing)


ALONE = _count_of_sole_holder()
"""What getrefcount gives for an object that one local name holds, and nothing else."""


class VariableState:
    """The value of one variable of a task, shared by all sessions that name it.

    Attributes:
      name: the node or shared name, for messages.
      dtype: the element type.
      shape: the declared static shape, possibly partial.
      is_resource: whether it is a resource variable; None if it came from another task.
      moved_text: once the variable has moved to another task, the text of the error for who still looks for it here.
    """

    __slots__ = (
        "name", "container", "dtype", "shape", "is_resource", "lock", "_value", "uninitialized_message", "moved_text",
        "__weakref__",
    )  # fmt: skip

    def __init__(
        self, name: str, dtype: dtypes.DType, shape: RawShape, *, container: str = "", message: str | None = None,
        is_resource: bool | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.container = container
        self.dtype = dtype
        self.shape = shape
        self.is_resource = is_resource
        self.lock = threading.Lock()
        self._value: Any = None
        self.uninitialized_message = message or f"Attempting to use uninitialized value {name}"
        self.moved_text = ""

    @property
    def is_initialized(self) -> bool:
        if self._value is None and self.moved_text:
            raise AbortedError.of(self.moved_text)
        return self._value is not None

    def absent(self) -> OpError:
        """The error of who needs the value where there is none."""
        return (
            AbortedError.of(self.moved_text)
            if self.moved_text
            else FailedPreconditionError.of(self.uninitialized_message)
        )

    def extent(self) -> tuple[tuple[int, ...], int]:
        """(shape, bytes) of the value, without waiting for an update; () and 0 where there is none."""
        value = self._value
        if isinstance(value, np.ndarray):
            return value.shape, value.nbytes
        if value is None or self.shape is None or None in self.shape:
            return (), 0
        shape = tuple(size or 0 for size in self.shape)  # an update is changing the value
        return shape, int(np.prod(shape)) * np.dtype(self.dtype.numpy).itemsize

    def read(self) -> Any:
        """A snapshot of the value: later updates do not change it. Callers must not change it.

        Raises:
          FailedPreconditionError: when the variable was never assigned.
          AbortedError: when it has moved to another task.
        """
        value = self._value
        if value is BUSY:
            with self.lock:
                value = self._value
        if value is None:
            raise self.absent()
        if value.dtype is _OBJECT and not value.ndim:
            return value.item()  # A scalar string is plain bytes everywhere.
        return value

    def assign(self, value: Array, validate_shape: bool = True) -> None:
        """Replaces the value by a copy of ``value``, in the current buffer if it fits and has no other references.

        Raises:
          InvalidArgumentError: when the shapes differ and ``validate_shape`` is set.
        """
        if type(value) is not np.ndarray:
            value = np.asarray(value, self.dtype.numpy)
        with self.lock:
            old = self._value
            if old is None and self.moved_text:
                raise AbortedError.of(self.moved_text)
            if validate_shape:
                self._check_shape(self.shape if old is None else old.shape, value.shape)
            # The references are the local name and getrefcount's argument, as in _take, and the slot itself.
            reusable = old is not None and sys.getrefcount(old) <= ALONE + 1 and old.shape == value.shape
            if reusable and old.flags.writeable and old.dtype == value.dtype:
                self._assign_in_place(value)
            else:
                self._value = np.array(value, self.dtype.numpy, order="C")

    def _assign_in_place(self, value: Array) -> None:
        # A reader may have got the array after the count, so count again after BUSY is stored.
        old = self._value
        try:
            self._value = BUSY
            if sys.getrefcount(old) > ALONE + 1:  # One more, for the caller's name.
                old = np.array(value, order="C")
            else:
                np.copyto(old, value)
        finally:
            self._value = old  # the old array if there was no memory for a new one

    def _check_shape(self, expected: RawShape, shape: tuple[int, ...]) -> None:
        if not compatible_raw(expected, shape):
            text = "Assign requires shapes of both tensors to match. lhs shape= "
            refuse(f"{text}{format_raw(expected)} rhs shape= {format_raw(shape)}")

    def clear(self) -> None:
        """Makes the variable uninitialised."""
        with self.lock:
            self._value = None

    def fill(self, shape: tuple[int, ...], start: int, part: Array) -> None:
        """Writes a part of a value that no step can see yet.

        Args:
          shape: of the whole value.
          part: the numbers from that position on, flat.
        """
        with self.lock:
            self._allocated(shape)[start : start + part.size] = part.reshape(-1)

    def reserve(self, shape: tuple[int, ...], start: int, count: int) -> None:
        """Gets the memory for a part that `fill` is to bring: a system gives new memory when it is first written."""
        with self.lock:
            part = self._allocated(shape)[start : start + count]
            if part.dtype != _OBJECT:
                part.view(np.uint8)[::_PAGE] = 0

    def _allocated(self, shape: tuple[int, ...]) -> Array:
        """The value, flat: a new one if there is none of that shape."""
        if self._value is None or self._value.shape != shape:
            check_room(shape, self.dtype.numpy.itemsize)
            self._value = np.empty(shape, self.dtype.numpy)
        flat: Array = self._value.reshape(-1)
        return flat

    def give_up(self, text: str) -> None:
        """Drops the value for good: whoever still has the variable gets AbortedError with this text."""
        with self.lock:
            self._value, self.moved_text = None, text

    def pinned(self) -> Any:
        """The array of the value, None without one. As long as the caller has it, each update makes another array."""
        with self.lock:
            return self._value

    def update(self, function: Callable[..., Any], *args: object) -> Any:
        """Runs ``function(array, *args)``, which changes the array in place, exclusively.

        Raises:
          FailedPreconditionError: when the variable was never assigned.
        """
        with self.lock:
            buffer = self._take()
            try:
                return function(buffer, *args)
            finally:
                self._value = buffer

    def _take(self) -> Any:
        """Takes the array for an update, or a copy if it has other references."""
        buffer = self._value
        if buffer is None:
            raise self.absent()
        try:
            self._value = BUSY
            # A reader that got the array before BUSY was stored is counted; later readers cannot get it.
            if sys.getrefcount(buffer) > ALONE or not buffer.flags.writeable:
                buffer = buffer.copy()
        except BaseException:  # no memory, or Ctrl-C: the variable keeps its value
            self._value = buffer
            raise
        return buffer


def new_state(device: str, *args: Any, **kwargs: Any) -> VariableState:
    """The state of a variable, where the device of that name keeps values; the rest are `VariableState`'s arguments."""
    state: VariableState = type_of(device).new_variable(VariableState, device, *args, **kwargs)
    return state


def find_or_make(
    resources: Any, container: bytes, device: str, name: str, make: Callable[..., VariableState], *, is_resource: bool
) -> VariableState:
    """The state of a variable of a task, made by ``make(is_resource=...)`` when it is absent.

    Graphs of several clients may use one name for variables of both kinds. They are two variables, as in TensorFlow.
    """
    make = partial(make, is_resource=is_resource)
    state: VariableState = resources.lookup_or_create(container, "variable", name_on(device, name), make)
    if state.is_resource in (None, is_resource):
        return state
    other = f"{name} ({'resource' if is_resource else 'reference'} variable)"
    return resources.lookup_or_create(container, "variable", name_on(device, other), make)  # type: ignore[no-any-return]


def name_on(device: str, name: str) -> str:
    """The name of a variable among the resources of its task: of a device that compiles, with the device."""
    return f"{name}@{parse(device).local_name}" if type_of(device).compiles else name


def update_together(states: Sequence[VariableState], function: Callable[..., Any], *args: object) -> Any:
    """Runs ``function(*arrays, *args)`` on the arrays of several variables, exclusively.

    This is how an optimizer's kernel changes a variable and its slots as one update.

    Raises:
      FailedPreconditionError: when one of them was never assigned.
    """
    if len(states) == 1:
        return states[0].update(function, *args)
    # One global order of locking, so that two updates over the same variables cannot deadlock.
    held: list[threading.Lock] = []
    buffers: dict[VariableState, Any] = {}
    try:
        _hold_all(sorted(set(states), key=id), held)
        for state in states:
            buffers[state] = state._take()
        return function(*[buffers[state] for state in states], *args)
    finally:
        for state, buffer in buffers.items():
            state._value = buffer
        for lock in held:
            lock.release()


def _hold_all(states: Sequence[VariableState], held: list[threading.Lock]) -> None:
    """Takes the locks of variables one after the other; ``held`` gets each that is taken.

    It is one call into C, so that Ctrl-C, which Python raises while a lock is waited for or between two calls, finds
    every lock that has been taken in ``held``: nobody would release another one.
    """
    held.extend(filter(_acquire, [state.lock for state in states]))


def move_away(pinned: Mapping[VariableState, Any], texts: Mapping[VariableState, str]) -> list[VariableState]:
    """Takes the values out of variables whose copies stand ready on other tasks, if all are still what was copied.

    Args:
      pinned: the array of each (`VariableState.pinned`), which the caller has had since before it was copied.
      texts: ``moved_text`` of each.

    Returns:
      Those that were changed meanwhile: then none has moved. None of them: all have.
    """
    ordered = sorted(pinned, key=id)
    held: list[threading.Lock] = []
    try:
        _hold_all(ordered, held)
        changed = [state for state in ordered if state._value is not pinned[state]]
        for state in () if changed else ordered:
            state._value, state.moved_text = None, texts[state]
    finally:
        for lock in held:
            lock.release()
    return changed


# ---- Reads of variables that may be uninitialised: ``initialized_value`` and safe initial values -------------------
# An initial value that is computed from another variable would fail, or read an old value, when both
# are initialised in one step. So its graph is copied, and each read of a variable is replaced by its
# value if it has one, else by its initial value.

_READS_THAT_STAND = frozenset({"IsVariableInitialized", "VarIsInitializedOp", "ReadVariableOp"})
_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp"})


def initialized_value(variable: Any) -> Tensor:
    """The value of a reference variable, or its initial value while it is uninitialised."""
    has_value = variable.is_initialized()
    switch = raw_ops.Switch
    with name_scope("cond"):
        no_value, value_there = switch(has_value, has_value, name="Switch")
        identity(value_there, name="switch_t")
        identity(no_value, name="switch_f")
        chosen = identity(has_value, name="pred_id")
        # The variable may be a slot that is being made beside another one; a switch stands beside its own input.
        with colocate_with(variable.op, ignore_existing=True):
            _, alive = raw_ops.RefSwitch(variable._ref(), chosen, name="read/Switch")
        present = identity(alive, name="read")
        with colocate_with(variable.initial_value.op, ignore_existing=True):
            initial, _ = switch(variable.initial_value, chosen, name="Switch_1")
        return raw_ops.Merge([initial, present], name="Merge")[0]


def safe_initial_value(scope: str, value: Tensor) -> Tensor:
    """``value``, or a copy of it that reads initialised values of the variables it depends on.

    Args:
      scope: the new variable's name scope, with its final ``/``; copies are named after it.
      value: the initial value as given.
    """
    if not _depends_on_variable(value):
        return value
    return _Copier(scope).copy(value)


def _depends_on_variable(value: Tensor) -> bool:
    found = False
    for op in traverse([value.op], lambda op: () if op.type in _READS_THAT_STAND else [t.op for t in op.inputs]):
        if op._control_flow_context is not None or op.type in ("NextIteration", "RefNextIteration"):
            return False  # A loop cannot be copied op by op.
        found = found or op.type in ("Variable", "VariableV2")
    return found


class _Copier:
    """Copies the ops between an initial value and the variables it depends on."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.copies: dict[Operation, list[Tensor]] = {}
        graph = get_default_graph()
        known = graph.get_collection(GraphKeys.GLOBAL_VARIABLES) + graph.get_collection(GraphKeys.LOCAL_VARIABLES)
        self.variables = {v.op: v for v in known if not v._is_resource}

    def copy(self, tensor: Tensor) -> Tensor:
        """The tensor that replaces ``tensor`` in the safe value."""
        pending = [tensor.op]
        while pending:
            op = pending[-1]
            missing = [] if self._stands(op) else [t.op for t in op.inputs if t.op not in self.copies]
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            if op not in self.copies:
                self.copies[op] = self._copy_op(op)
        return self.copies[tensor.op][tensor.value_index]

    def _stands(self, op: Operation) -> bool:
        return op.type in _READS_THAT_STAND or op.type in _VARIABLES

    def _copy_op(self, op: Operation) -> list[Tensor]:
        variable = self.variables.get(op)
        if variable is not None and variable.initial_value is not None:
            return [initialized_value(variable)]
        if self._stands(op):
            return op.outputs
        inputs = tuple(self.copies[t.op][t.value_index] for t in op.inputs)
        if inputs == op.inputs:
            return op.outputs
        # The Switch of a reference becomes a Switch of a value.
        kind = op.type.removeprefix("Ref") if op.type in ("RefSwitch", "RefMerge", "RefIdentity") else op.type
        twin = op.graph.create_op(kind, list(inputs), name=f"{op.name}_{self.scope}", attrs=op.attrs)
        return twin.outputs
