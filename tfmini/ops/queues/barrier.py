"""``Barrier``: a map from keys to tuples, filled component by component; complete tuples are taken in order."""

from __future__ import annotations

import threading
from _thread import start_new_thread
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tfmini import dtypes, errors
from tfmini.core_types import Array, DTypeLike, ShapeLike, TensorLike
from tfmini.dtypes import DType, cpp_name
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.families import Operation, Tensor, get_default_graph, unknown_shapes
from tfmini.graph.node import Node
from tfmini.graph.op_types import DeviceResources, Wait
from tfmini.graph.scoping import add_to_collection, colocate_with, control_dependencies, get_collection, name_scope
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.identity import identity
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.control import group
from tfmini.ops.control import tuple as tuple_of
from tfmini.ops.queues.queue_state import PriorityQueueState
from tfmini.ops.queues.queues import as_shape_list, as_type_list
from tfmini.ops.waiting_line import OVER, STUCK, Attempt, WaitingState, find_or_create, handle_value, own, state_op
from tfmini.shapes import RawShape, TensorShape, format_raw, unknown_shape

barrier_op = state_op(
    """Barrier() -> handle: Ref(string)
        component_types: list(type) >= 1
        shapes: list(shape) >= 0 = []
        capacity: int = -1
        container: string = ''
        shared_name: string = ''""",
    [(2,)],
    meeting=True,
)
insert_many_op = state_op(
    "BarrierInsertMany(handle: Ref(string), keys: string, values: T); T: type; component_index: int", [], keeps=True
)
take_many_op = state_op(
    """BarrierTakeMany(handle: Ref(string), num_elements: int32) -> indices: int64, keys: string, values: component_types
        component_types: list(type) >= 1
        allow_small_batch: bool = false
        wait_for_incomplete: bool = false
        timeout_ms: int = -1""",  # noqa: E501 - a declaration is one line
    unknown_shapes,
)
close_op = state_op("BarrierClose(handle: Ref(string)); cancel_pending_enqueues: bool = false", [])
ready_size_op = state_op("BarrierReadySize(handle: Ref(string)) -> size: int32", [()])
ready_size_op.kernel("CPU")(lambda state: np.int32(state.ready.size()))
incomplete_size_op = state_op("BarrierIncompleteSize(handle: Ref(string)) -> size: int32", [()])
incomplete_size_op.kernel("CPU")(lambda state: np.int32(len(state.incomplete)))


class BarrierState:
    """The tuples of a barrier: incomplete ones by key, complete ones in a priority queue by age.

    Attributes:
      dtypes, shapes: of the components of a value.
    """

    def __init__(self, name: str, types: list[DType], shapes: list[RawShape]) -> None:
        self.name = name
        self.dtypes = types
        self.shapes = shapes
        self.ready = PriorityQueueState(f"{name}_queue", -1, [dtypes.int64, dtypes.string, *types], [(), (), *shapes])
        self.incomplete: dict[bytes, list[Any]] = {}
        self.is_closed = False
        self._cancels = False
        self._next = -(2**63)
        self._lock = threading.Lock()

    def insert_many(self, component: int, keys: Array, values: Array) -> None:
        """Inserts one component for each of ``keys``; tuples that become complete can be taken.

        Raises:
          InvalidArgumentError: for a component that was inserted before, or of another shape.
          CancelledError: for new keys after closing.
        """
        if len(keys) and not np.size(values):
            refuse(f"Tensors with no elements are not supported {self.name}: received shape {_text(values)}")
        values = own(values)
        complete: list[tuple[Any, ...]] = []
        with self._lock:
            self._refuse_if_closed(len(keys))
            seen = len(self.incomplete)
            for i, key in enumerate(keys.tolist()):
                self._insert(i, key, component, values[i], complete)
            if len(self.incomplete) + len(complete) > seen:
                self._next += 1
            drained = self.is_closed and not self.incomplete
        self._enqueue(complete, drained)

    def _refuse_if_closed(self, count: int) -> None:
        if self.is_closed and (self._cancels or (count and not self.incomplete)):
            raise errors.CancelledError.of(
                f"Barrier {self.name} is closed.  Pending enqueues cancelled: {int(self._cancels)}."
                f"  Number of new insertions: {count}.  Number of incomplete keys: {len(self.incomplete)}."
            )

    def _insert(self, i: int, key: bytes, component: int, value: Array, complete: list[tuple[Any, ...]]) -> None:
        parts = self.incomplete.get(key)
        if parts is None:
            if self.is_closed:
                raise errors.CancelledError.of(
                    f"Barrier {self.name} is closed, but attempted to insert a brand new key: {key.decode()}."
                    f"  Pending enqueues cancelled: {int(self._cancels)}.  Insertion index: {i}."
                    f"  Number of incomplete keys: {len(self.incomplete)}."
                )
            parts = self.incomplete[key] = [np.int64(self._next)] + [None] * len(self.dtypes)
        if parts[1 + component] is not None:
            refuse(f"Key {key.decode()} already has a value for component {component} in barrier {self.name}")
        parts[1 + component] = value
        if all(part is not None for part in parts):
            del self.incomplete[key]
            element = (parts[0], key, *parts[1:])
            self.ready.check_element(element)
            complete.append(element)

    def _enqueue(self, complete: list[tuple[Any, ...]], close: bool) -> None:
        with self.ready.lock:
            for element in complete:
                self.ready.push(element)
            self.ready.is_closed |= close
        self.ready.changed()

    def take_many(self, wait: Wait, count: int, allow_small_batch: bool) -> None:
        """Takes ``count`` complete tuples, oldest first; fewer if allowed and the barrier is closed."""
        with self._lock:
            if self.is_closed:
                available = self.ready.size()
                if allow_small_batch:
                    count = min(count, available)
                else:
                    available += len(self.incomplete)
                if available < max(count, 1):
                    raise errors.OutOfRangeError.of(
                        f"Barrier '{self.name}' is closed and has insufficient elements (requested {count},"
                        f" total size {available})"
                    )
        self.ready.dequeue_many(wait, count, allow_small_batch)

    def close(self, cancel: bool) -> None:
        """Refuses new keys; with ``cancel``, incomplete tuples are dropped.

        Raises:
          CancelledError: when it is closed already, except for the first call with ``cancel``.
        """
        with self._lock:
            if self.is_closed and (self._cancels or not cancel):
                raise errors.CancelledError.of(f"Barrier '{self.name}' is already closed.")
            self.is_closed, self._cancels = True, cancel
            if cancel:
                self.incomplete.clear()
            drained = not self.incomplete
        if drained:
            self._enqueue([], True)

    def read(self) -> Any:
        """The value of the reference."""
        return handle_value(self.name)

    def clear(self) -> None:
        """Called when the task removes the barrier."""
        self.ready.clear()


def _text(value: Any) -> str:
    return format_raw(np.shape(value))


# ---- kernels --------------------------------------------------------------------------------


@barrier_op.state_kernel("CPU")
def _state(
    resources: DeviceResources, *, container: bytes, shared_name: bytes, node: Node, component_types: list[DType],
    shapes: list[RawShape], capacity: int,
) -> BarrierState:  # fmt: skip
    if len(shapes) != len(component_types):
        refuse("All of the component shapes must be specified")
    if capacity != -1:
        text = "Barrier only accepts capacity=-1.  Feed the inputs to your Barrier through a queue to enforce a limited capacity."  # noqa: E501
        refuse(text)

    def create(name: str) -> BarrierState:
        return BarrierState(name, component_types, shapes)

    state = find_or_create(resources, container, shared_name, node, "barrier", create)
    sides_of = {
        "types": (list(map(cpp_name, state.dtypes)), list(map(cpp_name, component_types))),
        "shapes": (list(map(format_raw, state.shapes)), list(map(format_raw, shapes))),
    }
    for what, (has, wanted) in sides_of.items():
        if has != wanted:
            sides = [", ".join(has), ", ".join(wanted)]
            refuse(
                f"Shared barrier '{state.name}' has component {what} {sides[0]} but requested component {what} were"
                f" {sides[1]}"
            )
    return state


@insert_many_op.kernel("CPU")
def _insert_many(state: BarrierState, keys: Array, values: Array, *, T: DType, component_index: int) -> tuple[()]:
    if component_index >= len(state.dtypes):
        refuse(f"The component ID is out of range {component_index} > num_components (= {len(state.dtypes)})")
    if T is not state.dtypes[component_index]:
        expected = cpp_name(state.dtypes[component_index])
        refuse(f"Signature mismatch, have: string_ref,string,{cpp_name(T)}-> expected: string_ref,string,{expected}->")
    state.insert_many(component_index, keys, values)
    return ()


@take_many_op.async_kernel("CPU")
def _take_many(
    wait: Wait, state: BarrierState, num_elements: Array, *, allow_small_batch: bool, component_types: list[DType]
) -> None:
    if np.ndim(num_elements):
        refuse("num_elements must be a scalar.")
    if list(state.dtypes) != list(component_types):
        have, wanted = (", ".join(map(cpp_name, types)) for types in (state.dtypes, component_types))
        refuse(f"The barrier '{state.name}' has components {have}, not {wanted}")
    state.take_many(wait, int(num_elements), allow_small_batch)


@close_op.kernel("CPU")
def _close(state: BarrierState, *, cancel_pending_enqueues: bool) -> tuple[()]:
    state.close(cancel_pending_enqueues)
    return ()


@export("tf.Barrier")
class Barrier:
    """A map whose values are completed component by component (``data_flow_ops.Barrier``).

    Args:
      types: of the components of a value.
      shapes: fully defined, of the components.
      shared_name: the name by which other sessions find it.
      name: of the handle.

    Raises:
      ValueError: for shapes without elements.
    """

    def __init__(
        self, types: DTypeLike | Sequence[DTypeLike], shapes: ShapeLike | Sequence[ShapeLike] | None = None,
        shared_name: str | None = None, name: str = "barrier",
    ) -> None:  # fmt: skip
        self._types = as_type_list(types)
        known = as_shape_list(shapes)
        self._shapes = [unknown_shape() for _ in self._types] if known is None else [TensorShape(s) for s in known]
        for i, shape in enumerate(self._shapes):
            if shape.num_elements() == 0:
                raise ValueError(f"Empty tensors are not supported, but received shape '{shape}' at index {i}")
        self._barrier_ref: Tensor = barrier_op(
            component_types=self._types, shapes=self._shapes, shared_name=shared_name or "", name=name
        )
        self._name = self._barrier_ref.op.name.split("/")[-1]

    @property
    def barrier_ref(self) -> Tensor:
        """The handle."""
        return self._barrier_ref

    @property
    def name(self) -> str:
        """The name of the handle's op."""
        return self._barrier_ref.op.name

    def insert_many(
        self, component_index: int, keys: TensorLike, values: TensorLike, name: str | None = None
    ) -> Operation:
        """Inserts ``values[i]`` as that component of the tuple of ``keys[i]``."""
        name = name or f"{self._name}_BarrierInsertMany"
        done: Operation = insert_many_op(self._barrier_ref, keys, values, component_index=component_index, name=name)
        return done

    def take_many(
        self, num_elements: TensorLike, allow_small_batch: bool = False, timeout: int | None = None,
        name: str | None = None,
    ) -> Any:  # fmt: skip
        """Takes complete tuples in the order of their first components; waits for them.

        Returns:
          (indices, keys, values): int64 [n] order numbers, string [n], and a list of [n, …].
        """
        found = take_many_op(
            self._barrier_ref, num_elements, component_types=self._types, allow_small_batch=allow_small_batch,
            timeout_ms=timeout, name=name or f"{self._name}_BarrierTakeMany",
        )  # fmt: skip
        operation = found[0].op
        count = None if allow_small_batch else constant_value(operation.inputs[1])
        batch = TensorShape([None if count is None else int(count)])
        for output, shape in zip(operation.outputs, [TensorShape([]), TensorShape([]), *self._shapes]):
            output.set_shape(batch.concatenate(shape))
        return found

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Operation:
        """Refuses new keys; with ``cancel_pending_enqueues``, also further components of incomplete tuples."""
        name = name or f"{self._name}_BarrierClose"
        done: Operation = close_op(self._barrier_ref, cancel_pending_enqueues=cancel_pending_enqueues, name=name)
        return done

    def ready_size(self, name: str | None = None) -> Tensor:
        """The number of complete tuples, an int32 scalar."""
        found: Tensor = ready_size_op(self._barrier_ref, name=name or f"{self._name}_BarrierReadySize")
        return found

    def incomplete_size(self, name: str | None = None) -> Tensor:
        """The number of incomplete tuples, an int32 scalar."""
        found: Tensor = incomplete_size_op(self._barrier_ref, name=name or f"{self._name}_BarrierIncompleteSize")
        return found


# ---- Mutexes of a task: ``MutexV2``, ``MutexLock``, ``ConsumeMutexLock`` -------------------------------------------
# The output of ``MutexLock`` is a token that holds the mutex. The mutex is released when the token is
# consumed, and at the latest when the step has ended and nothing refers to the token. So a step that fails
# in between does not keep the mutex.

mutex_op = state_op("MutexV2() -> resource: resource; container: string = ''; shared_name: string = ''", [()])
mutex_lock_op = state_op("MutexLock(mutex: resource) -> mutex_lock: variant", [()])
consume_lock_op = state_op("ConsumeMutexLock(mutex_lock: variant)", [])


class Held(Protocol):
    """What a token can hold: a mutex, or the lead of a round."""

    def release(self) -> None: ...


class LockToken:
    """Holds a mutex until the token is released or garbage-collected; None: nothing."""

    __slots__ = ("_mutex",)

    def __init__(self, mutex: Held | None) -> None:
        self._mutex = mutex

    def release(self) -> None:
        """Gives the mutex to the next waiting op; a second call does nothing."""
        mutex, self._mutex = self._mutex, None
        if mutex is not None:
            mutex.release()

    def abandon(self) -> None:
        """Makes the token meaningless, because nobody has received it."""
        self._mutex = None

    def __del__(self) -> None:
        # The garbage collector calls this inside any call of any thread, which may hold locks of other steps. To answer
        # the next waiting op here would run that step inside this call.
        mutex, self._mutex = self._mutex, None
        if mutex is None:
            return
        try:
            start_new_thread(mutex.release, ())
        except RuntimeError:  # the interpreter ends, or there are too many threads
            mutex.release()


class _Lock(Attempt):
    """Waits for the mutex."""

    __slots__ = ("mutex",)
    kind = "lock"

    def __init__(self, wait: Wait, mutex: MutexState) -> None:
        super().__init__(wait)
        self.mutex = mutex

    def cause(self) -> str:
        return f'mutex "{self.mutex.name}"'

    def advance(self) -> int:
        if self.mutex.is_locked:
            return STUCK
        self.mutex.is_locked = True
        self.mutex.holder = getattr(self.wait.step, "step_id", 0)
        self.result = LockToken(self.mutex)
        return OVER

    def give_back(self) -> None:
        if self.result != ():
            self.result.abandon()
            self.mutex.is_locked = False


class MutexState(WaitingState):
    """A mutex and the ops that wait for it.

    Attributes:
      holder: the id of the step that holds it, or held it last.
    """

    def __init__(self, name: str) -> None:
        super().__init__(1)
        self.name = name
        self.is_locked = False
        self.holder = 0

    def acquire(self, wait: Wait) -> None:
        """Answers with a token once the mutex is free."""
        self.submit(self.lines[0], _Lock(wait, self))

    def release(self) -> None:
        """Frees the mutex; called for tokens."""
        with self.lock:
            self.is_locked = False
        self.changed()


@mutex_op.state_kernel("CPU")
def _mutex(resources: Any, *, container: bytes, shared_name: bytes, node: Node) -> MutexState:
    name = shared_name.decode() or node.name
    return resources.lookup_or_create(container, "mutex", name, lambda: MutexState(name))  # type: ignore[no-any-return]


@mutex_lock_op.async_kernel("CPU")
def _lock(wait: Wait, mutex: MutexState) -> None:
    mutex.acquire(wait)


@consume_lock_op.kernel("CPU")
def _consume(token: LockToken) -> tuple[()]:
    token.release()
    return ()


# ---- ``tf.CriticalSection``: mutual exclusion of parts of steps ----------------------------------------------------

CRITICAL_SECTIONS = "critical_sections"
CRITICAL_SECTION_EXECUTIONS = "critical_section_executions"


class _Execution(NamedTuple):
    """One call of ``execute``: the resources that it uses, and whether its access is exclusive."""

    op: Operation
    handle: Tensor
    resources: list[Tensor]
    exclusive_resource_access: bool


def _identity(value: TensorLike) -> Any:
    if hasattr(value, "identity"):  # Such as a TensorArray.
        return value.identity()
    return group(value) if isinstance(value, Operation) else identity(value)


@export("tf.CriticalSection")
class CriticalSection:
    """A mutex around parts of the graph (``tf.CriticalSection``).

    Args:
      name: of the mutex.
      shared_name: the name by which other sessions find it; default: the name.

    Raises:
      NotImplementedError: for ``critical_section_def``, as in TensorFlow.
    """

    def __init__(
        self, name: str | None = None, shared_name: str | None = None, critical_section_def: Any = None,
        import_scope: str | None = None,
    ) -> None:  # fmt: skip
        if critical_section_def:
            if name is not None:
                raise ValueError("critical_section_def and shared_name are mutually exclusive.")
            raise NotImplementedError(
                "tfmini makes no CriticalSection from a critical_section_def; give the shared_name of the other one."
            )
        with name_scope(name, "CriticalSection", []) as scope:
            self._handle: Tensor = mutex_op(shared_name=scope if shared_name is None else shared_name, name=scope)
        add_to_collection(CRITICAL_SECTIONS, self)

    @property
    def name(self) -> str:
        """The name of the mutex."""
        return self._handle.op.name

    def execute(self, fn: Callable[[], Any], exclusive_resource_access: bool = True, name: str | None = None) -> Any:
        """Calls ``fn``, whose ops then run in one step at a time.

        Args:
          fn: takes nothing, returns tensors or operations.
          exclusive_resource_access: whether no other critical section may use its resources.
          name: of the name scope.

        Returns:
          The result of ``fn``, available after the mutex has been released.

        Raises:
          ValueError: when ``fn`` uses the section itself, or resources of another section.
        """
        graph = get_default_graph()
        with name_scope(name, "critical_section_execute", []), graph.building():
            lock: Tensor = mutex_lock_op(self._handle)
            before = len(graph._order)
            with control_dependencies([lock]):
                result = fn()
            created = graph._order[before:]
            _wait_for_arguments(created, lock.op)
            used = list({id(t): t for op in created for t in op.inputs if t.dtype is dtypes.resource}.values())
            self._check_resources(used, exclusive_resource_access)
            flat = [_identity(value) for value in nest.flatten(result)]
            with control_dependencies(flat):
                with colocate_with(self._handle):
                    released = consume_lock_op(lock)
                result = nest.pack_sequence_as(result, tuple_of(nest.flatten(result)) if flat else [])
            with control_dependencies([released]):
                outputs = nest.map_structure(_identity, result)
            add_to_collection(
                CRITICAL_SECTION_EXECUTIONS, _Execution(lock.op, self._handle, used, exclusive_resource_access)
            )
        return outputs

    def _is_self(self, handle: Tensor) -> bool:
        if handle.op.type != "MutexV2" or handle.op.get_attr("shared_name") != self._handle.op.get_attr("shared_name"):
            return False
        same_place = handle.op.device == self._handle.op.device
        return same_place or handle.op.attrs.get("_class") == self._handle.op.attrs.get("_class")

    def _check_resources(self, used: list[Tensor], exclusive: bool) -> None:
        if any(self._is_self(handle) for handle in used):
            raise ValueError(
                "The function fn attempts to directly access the CriticalSection in which it would be running.  "
                "This is illegal and would cause deadlocks."
            )
        for other in get_collection(CRITICAL_SECTION_EXECUTIONS):
            if self._is_self(other.handle) or not (exclusive or other.exclusive_resource_access):
                continue
            both = [handle for handle in used if any(handle is theirs for theirs in other.resources)]
            if both:
                raise ValueError(
                    f"This execution would access resources: {both}.  Either this lock (CriticalSection:"
                    f" {self._handle}) or lock '{other}' (CriticalSection: {other.handle}) requested exclusive resource"
                    " access of this resource.  Did you mean to call execute with keyword argument"
                    " exclusive_resource_access=False?"
                )


def _wait_for_arguments(created: list[Operation], lock: Operation) -> None:
    """Locks only after all inputs from outside are computed, so that no op waits for them while holding the mutex."""
    inside = {*created, lock, *lock.control_inputs, *(t.op for t in lock.inputs)}
    outside = {source for op in created for source in (*(t.op for t in op.inputs), *op.control_inputs)} - inside
    if outside:
        lock._add_control_input(group(*sorted(outside, key=lambda op: op._id)))
