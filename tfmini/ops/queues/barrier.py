"""``Barrier``: a map from keys to tuples, filled component by component; complete tuples are taken in order."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.dtypes import DType, cpp_name
from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, unknown_shapes
from tfmini.graph.waiting import Wait
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.kept_values import own
from tfmini.ops.queues.component_arguments import as_shape_list, as_type_list
from tfmini.ops.queues.queue_state import PriorityQueueState
from tfmini.ops.shared_state import find_or_create, handle_value, state_op
from tfmini.shapes import RawShape, TensorShape, format_raw, unknown_shape

barrier_op = state_op(
    """Barrier() -> handle: Ref(string)
        component_types: list(type) >= 1
        shapes: list(shape) >= 0 = []
        capacity: int = -1
        container: string = ''
        shared_name: string = ''""",
    [(2,)],
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

    def insert_many(self, component: int, keys: Any, values: Any) -> None:
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

    def _insert(self, i: int, key: bytes, component: int, value: Any, complete: list[tuple[Any, ...]]) -> None:
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
    resources: Any, *, container: bytes, shared_name: bytes, node: Any, component_types: list[DType],
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
def _insert_many(state: BarrierState, keys: Any, values: Any, *, T: DType, component_index: int) -> tuple[()]:
    if component_index >= len(state.dtypes):
        refuse(f"The component ID is out of range {component_index} > num_components (= {len(state.dtypes)})")
    if T is not state.dtypes[component_index]:
        expected = cpp_name(state.dtypes[component_index])
        refuse(f"Signature mismatch, have: string_ref,string,{cpp_name(T)}-> expected: string_ref,string,{expected}->")
    state.insert_many(component_index, keys, values)
    return ()


@take_many_op.async_kernel("CPU")
def _take_many(
    wait: Wait, state: BarrierState, num_elements: Any, *, allow_small_batch: bool, component_types: list[DType]
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

    def __init__(self, types: Any, shapes: Any = None, shared_name: str | None = None, name: str = "barrier") -> None:
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

    def insert_many(self, component_index: int, keys: Any, values: Any, name: str | None = None) -> Operation:
        """Inserts ``values[i]`` as that component of the tuple of ``keys[i]``."""
        name = name or f"{self._name}_BarrierInsertMany"
        return insert_many_op(self._barrier_ref, keys, values, component_index=component_index, name=name)

    def take_many(
        self, num_elements: Any, allow_small_batch: bool = False, timeout: int | None = None, name: str | None = None
    ) -> Any:
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
        return close_op(self._barrier_ref, cancel_pending_enqueues=cancel_pending_enqueues, name=name)

    def ready_size(self, name: str | None = None) -> Tensor:
        """The number of complete tuples, an int32 scalar."""
        return ready_size_op(self._barrier_ref, name=name or f"{self._name}_BarrierReadySize")

    def incomplete_size(self, name: str | None = None) -> Tensor:
        """The number of incomplete tuples, an int32 scalar."""
        return incomplete_size_op(self._barrier_ref, name=name or f"{self._name}_BarrierIncompleteSize")
