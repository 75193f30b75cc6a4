"""Control dependencies (``NoOp``, ``tf.group``, ``tf.tuple``, ``with_dependencies``), and ``tf.timestamp``."""

from __future__ import annotations

import builtins
import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor, convert_to_tensor_or_indexed_slices
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, op
from tfmini.graph.op_types import RunningStep
from tfmini.graph.scoping import colocate_with, control_dependencies, device, name_scope

_log = logging.getLogger("tensorflow")

noop: OpHandle[Operation] = op("NoOp()", shape=[], control_only=True, differentiable=False)
control_trigger_op: OpHandle[Operation] = op("ControlTrigger()", shape=[], control_only=True, differentiable=False)
abort_op: OpHandle[Operation] = op(
    "Abort(); error_msg: string = ''; exit_without_error: bool = false", shape=[], differentiable=False
)


@all_of(noop, control_trigger_op).kernel("CPU")
def _nothing() -> builtins.tuple[()]:
    return ()


@abort_op.kernel("CPU")
def _abort(step: RunningStep, *, error_msg: bytes, exit_without_error: bool) -> builtins.tuple[()]:
    """Ends the task's process; for programs that test their own recovery."""
    text = error_msg.decode(errors="replace")
    if exit_without_error:
        _log.warning("Exiting the process: %s", text)
        os._exit(0)
    _log.critical("Abort_op intentional failure; %s", text)
    os.abort()


@export("tf.no_op")
def no_op(name: str | None = None) -> Operation:
    """An operation that does nothing but carry control dependencies (``tf.no_op``)."""
    return noop(name=name)


def control_trigger(name: str | None = None) -> Operation:
    """A `no_op` that runs even if its control inputs are in an untaken branch."""
    return control_trigger_op(name=name)


@export("tf.group")
def group(*inputs: Any, **kwargs: Any) -> Operation:
    """An operation that runs after all ``inputs`` have run (``tf.group``).

    One NoOp per device gathers the inputs of that device, so that each pair of devices exchanges one
    signal however many inputs there are.

    Args:
      *inputs: tensors, operations, variables, or nested lists and dicts of them.
      name: default ``group_deps``.

    Raises:
      ValueError: for other keyword arguments.
      TypeError: for an input of another kind.
    """
    name = kwargs.pop("name", None)
    if kwargs:
        raise ValueError("Unknown keyword arguments: " + ", ".join(kwargs))
    flat = list(_flatten(inputs))
    with name_scope(name, "group_deps", flat) as scope:
        by_device: dict[str, list[Any]] = {}
        for item in flat:
            if not hasattr(item, "device"):
                raise TypeError(f"Expected tf.group() expected Tensor arguments not '{item}' with type '{type(item)}'")
            by_device.setdefault(item.device or "", []).append(item)
        if not by_device:
            return no_op(name=scope)
        if len(by_device) == 1:
            ((where, items),) = by_device.items()
            return _no_op_after(items, where, scope)
        gathered = [_no_op_after(by_device[where], where, None) for where in sorted(by_device)]
        with control_dependencies(gathered):
            return no_op(name=scope)


def _no_op_after(items: list[Any], where: str, name: str | None) -> Operation:
    with control_dependencies(items), device(where):
        return no_op(name=name)


def _flatten(value: TensorLike) -> Iterator[Any]:
    """The leaves of nested lists, tuples and dicts (by sorted key); indexed slices give their parts."""
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    if isinstance(value, IndexedSlices):
        value = [part for part in (value.values, value.indices, value.dense_shape) if part is not None]
    if isinstance(value, (list, builtins.tuple)):
        for item in value:
            yield from _flatten(item)
    else:
        yield value


@overload
def with_dependencies(dependencies: Iterable[Any], output_tensor: Tensor, name: str | None = None) -> Tensor: ...
@overload
def with_dependencies(dependencies: Iterable[Any], output_tensor: object, name: str | None = None) -> Any: ...
def with_dependencies(dependencies: Iterable[Any], output_tensor: object, name: str | None = None) -> Any:
    """``output_tensor``, available only after ``dependencies`` have run."""
    dependencies = list(dependencies)
    scope_of = name_scope(name, "control_dependency", [*dependencies, output_tensor])
    with scope_of as scope, colocate_with(output_tensor), control_dependencies(dependencies):
        value = convert_to_tensor_or_indexed_slices(output_tensor)
        if isinstance(value, Tensor):
            return identity(value, scope)
        return IndexedSlices(identity(value.values, scope), value.indices, value.dense_shape)


def identity(value: Tensor, name: str | None) -> Tensor:
    """An ``Identity`` of ``value``, found by its type because the array room imports this module."""
    return raw_ops.Identity(value, name=name)


@export("tf.tuple")
def tuple(tensors: Iterable[Any], name: str | None = None, control_inputs: Sequence[Any] | None = None) -> list[Any]:
    """The same tensors, each available only after all have been computed (``tf.tuple``).

    Args:
      tensors: tensors, indexed slices, operations or None.
      name: of the name scope.
      control_inputs: more operations or tensors to wait for.

    Raises:
      ValueError: without any tensor.
      TypeError: when a control input is neither an operation nor a tensor.
    """
    given = list(tensors)
    with name_scope(name, "tuple", given):
        items = [t if _is_graph_value(t) else convert_to_tensor(t) for t in given]
        gates = [t if isinstance(t, Operation) else t.op for t in items if t is not None]
        for control in control_inputs or ():
            if not isinstance(control, (Tensor, Operation)):
                raise TypeError(f"Control input must be Operation or Tensor: {control}")
            gates.append(control.op if isinstance(control, Tensor) else control)
        if not gates:
            raise ValueError(f"Must have at least one Tensor: {items}")
        gate = group(*sorted(set(gates), key=lambda o: o._id))
        return [_gated(gate, item) for item in items]


def _is_graph_value(value: TensorLike) -> bool:
    return value is None or isinstance(value, (Tensor, IndexedSlices, Operation))


def _gated(gate: Operation, item: object) -> Any:
    if item is None:
        return None
    if isinstance(item, Operation):
        with control_dependencies([gate]):
            return group(item)
    return with_dependencies([gate], item)


# ---- ``tf.timestamp``: the time when the step runs -----------------------------------------------------------------

timestamp_op = op("Timestamp() -> ts: float64", stateful=True, shape=[()], differentiable=False)
timestamp_op.kernel("CPU")(lambda: np.float64(time.time()))


@export("tf.timestamp")
def timestamp(name: str | None = None) -> Tensor:
    """Seconds since the epoch, float64 (``tf.timestamp``)."""
    return timestamp_op(name=name)
