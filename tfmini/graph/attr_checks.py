"""Checks of attr values from Python against the declaration, and their conversion to the internal form."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tfmini import dtypes
from tfmini.graph.attr_values import tensor_from_proto
from tfmini.graph.node import FunctionBody
from tfmini.graph.op_def import AttrDef
from tfmini.graph.op_types import ENTER_OPS, EXIT_OPS, OPS, SWITCH_OPS, trait_of
from tfmini.graph.scopes import capture_stack, user_frames
from tfmini.shapes import as_raw

if TYPE_CHECKING:
    from tfmini.graph.operation import Operation


def check_attr(op_name: str, definition: AttrDef, value: Any) -> Any:
    """Checks an attr value and returns its internal form.

    Raises:
      TypeError, ValueError: the declaration does not allow the value.
    """
    kind = definition.kind
    if kind.startswith("list("):
        if isinstance(value, np.ndarray) and value.ndim == 1:
            value = value.tolist()
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"Expected list for attr '{definition.name}' of '{op_name}' Op, got {value!r}.")
        result: Any = [_CONVERTERS[kind[5:-1]](definition.name, v) for v in value]
    else:
        result = _CONVERTERS[kind](definition.name, value)
    _check_allowed(op_name, definition, result)
    return result


def _check_allowed(op_name: str, definition: AttrDef, value: Any) -> None:
    items = value if isinstance(value, list) else [value]
    if definition.allowed is not None and definition.kind.endswith("string"):
        for item in items:
            if item not in definition.allowed:
                choices = '", "'.join(a.decode() for a in definition.allowed)
                raise ValueError(
                    f"Attr '{definition.name}' of '{op_name}' Op passed string '{item.decode()}' not in: \"{choices}\"."
                )
    if definition.minimum is not None:
        size = len(value) if isinstance(value, list) else value
        if size < definition.minimum:
            raise ValueError(
                f"Attr '{definition.name}' of '{op_name}' Op passed {size} less than minimum {definition.minimum}."
            )


def _to_int(name: str, value: Any) -> int:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__index__") and not isinstance(value, float):
        raise TypeError(f"Expected int for argument '{name}' not {value!r}.")
    if isinstance(value, float) and value != int(value):
        raise TypeError(f"Expected int for argument '{name}' not {value!r}.")
    return int(value)


def _to_bool(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"Expected bool for argument '{name}' not {value!r}.")
    return bool(value)


def _to_float(name: str, value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError(f"Expected float for argument '{name}' not {value!r}.")
    return float(np.float32(value))  # the precision that the attr has in a GraphDef


def _to_bytes(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    raise TypeError(f"Expected string for argument '{name}' not {value!r}.")


def _to_tensor_value(name: str, value: Any) -> Any:
    if hasattr(value, "tensor_shape"):  # a TensorProto
        return tensor_from_proto(value)
    return np.asarray(value) if isinstance(value, np.ndarray) else value


_CONVERTERS: dict[str, Callable[[str, Any], Any]] = {
    "type": lambda name, value: dtypes.as_dtype(value).base_dtype,
    "int": _to_int,
    "float": _to_float,
    "bool": _to_bool,
    "string": _to_bytes,
    "shape": lambda name, value: as_raw(value),
    "tensor": _to_tensor_value,
    "func": lambda name, value: value if isinstance(value, (str, FunctionBody)) else value.name,
}


# ---- Attrs that later versions of TensorFlow write, which an import leaves out where they change nothing -----------

_EMPTY: dict[str, Any] = {"b": False, "i": 0, "f": 0.0, "s": b""}


def drop_later_attrs(graph_def: Any) -> None:
    """Removes hints (a trait of the op), and attrs that the op does not have, at their default.

    A new attr leaves an op as it was when it is absent, so its default is false, zero or empty almost always.
    """
    for node_def in graph_def.node:
        handle = OPS.get(node_def.op)
        if handle is None:
            continue
        hints = trait_of(node_def.op, "hints") or ()
        for attr in list(node_def.attr):
            unknown = attr not in handle.op_def.attrs and not attr.startswith("_")
            if attr in hints or unknown and _is_empty(node_def.attr[attr]):
                del node_def.attr[attr]


def _is_empty(value: Any) -> bool:
    kind = value.WhichOneof("value")
    if kind == "list":
        return not value.list.ByteSize()
    return kind in _EMPTY and getattr(value, kind) == _EMPTY[kind]


# ---- Checks of inputs across conds and loops: an op may not read a value of a loop that it is not in ---------------
# A *context* is the cond branch or loop body that an op belongs to (`tfmini.ops.flow.control_flow_context`). Each
# `Operation` keeps its own in ``_control_flow_context``.

_log = logging.getLogger("tensorflow")


def output_context(op: Operation) -> Any:
    """Returns the context in which the outputs of ``op`` can be used. Those of an Exit are outside of its loop."""
    context = op._control_flow_context
    if context is not None and op.type in EXIT_OPS:
        return context.outer_context
    return context


def while_context_of(context: Any) -> Any:
    """Returns the innermost loop around ``context`` (which may be ``context`` itself), or None."""
    return None if context is None else context.GetWhileContext()


def is_within(context: Any, container: Any) -> bool:
    """Whether ``container`` is ``context`` or encloses it. None, the outermost context, encloses every other."""
    while context is not container:
        if context is None:
            return False
        context = context.outer_context
    return True


def check_inputs(op: Operation, sources: list[Operation]) -> None:
    """Refuses inputs that leave a loop other than through an Exit.

    Raises:
      ValueError: naming both ops.
    """
    for source in sources:
        context = output_context(source)
        if context is None or context is op._control_flow_context:
            continue
        own, other = while_context_of(op._control_flow_context), while_context_of(context)
        if own is None:
            if other is not None and op.type not in ENTER_OPS and op.type not in SWITCH_OPS:
                _refuse(op, source, f"'{source.name}' is in a while loop.")
        elif not _may_read(own, other):
            _refuse(op, source, "they are in different while loops.")


def _may_read(own: Any, other: Any) -> bool:
    """Whether an op in loop ``own`` may read a value of loop ``other``: the same, an outer one or its forward loop."""
    if is_within(own, other):
        return True
    grad_state = own.grad_state
    if grad_state is not None:
        forward = grad_state.forward_context
        if is_within(forward, other) or forward is other.outer_context:
            return True
    # A second derivative reads the gradient loop before the gradient code refuses it or stops there.
    if other.grad_state is None:
        return False
    forward = other.grad_state.forward_context
    if forward is own:
        return True
    return forward.grad_state is not None and forward.grad_state.forward_context is own


def _refuse(op: Operation, source: Operation, why: str) -> None:
    text = f"Cannot use '{source.name}' as input to '{op.name}' because {why}"
    where = [f"{what} at {file}:{line}" for what, (file, line, _) in _sites(source)]
    _log.info("%s Contexts: %s, %s; %s", text, op._control_flow_context, source._control_flow_context, ", ".join(where))
    raise ValueError(f"{text} See info log for more details. ({', '.join(where)}.)")


def _sites(source: Operation) -> list[tuple[str, tuple[str, int, str]]]:
    """The user's lines that built the input, and that build the op now."""
    found = [(f"'{source.name}' was built", source.creation_stack()), ("its use is", user_frames(capture_stack()))]
    return [(what, stack[-1]) for what, stack in found if stack]
