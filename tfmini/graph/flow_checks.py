"""Checks of inputs across conds and loops: an op may not read a value of a loop that it is not in.

A *context* is the cond branch or loop body that an op belongs to (`tfmini.ops.flow.control_flow_context`). Each
`Operation` keeps its own in ``_control_flow_context``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tfmini.graph.creation_stack import capture_stack, user_frames
from tfmini.graph.traits import ENTER_OPS, EXIT_OPS, SWITCH_OPS

if TYPE_CHECKING:
    from tfmini.graph.operation import Operation

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
