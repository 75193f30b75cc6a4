"""``tf.CriticalSection``: mutual exclusion of parts of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.families import Operation, Tensor, get_default_graph
from tfmini.graph.scoping import add_to_collection, colocate_with, control_dependencies, get_collection, name_scope
from tfmini.ops.array.identity import identity
from tfmini.ops.control import group
from tfmini.ops.control import tuple as tuple_of
from tfmini.ops.queues.mutex import consume_lock_op, mutex_lock_op, mutex_op

CRITICAL_SECTIONS = "critical_sections"
CRITICAL_SECTION_EXECUTIONS = "critical_section_executions"


class _Execution(NamedTuple):
    """One call of ``execute``: the resources that it uses, and whether its access is exclusive."""

    op: Operation
    handle: Tensor
    resources: list[Tensor]
    exclusive_resource_access: bool


def _identity(value: Any) -> Any:
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
