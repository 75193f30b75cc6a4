"""Which ops may be used where: the inputs of an op across conds and loops.

A *context* is the cond branch or loop body that an op belongs to (`tfmini.ops.control_flow_context`);
an `Operation` knows its own as ``_control_flow_context``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfmini.graph.operation import Operation

_log = logging.getLogger("tfmini")

EXITS = frozenset({"Exit", "RefExit"})
ENTERS = frozenset({"Enter", "RefEnter"})
SWITCHES = frozenset({"Switch", "RefSwitch"})
MERGES = frozenset({"Merge", "RefMerge"})


def output_context(op: Operation) -> Any:
    """The context in which the outputs of ``op`` can be used: an Exit's are outside of its loop."""
    context = op._control_flow_context
    if context is not None and op.type in EXITS:
        return context.outer_context
    return context


def while_context_of(context: Any) -> Any:
    """The innermost loop around ``context``, or itself if it is one, or None."""
    return None if context is None else context.GetWhileContext()


def is_within(context: Any, container: Any) -> bool:
    """Whether ``container`` is ``context`` or around it; None is around everything."""
    while context is not container:
        if context is None:
            return False
        context = context.outer_context
    return True


def check_inputs(op: Operation, sources: list[Operation]) -> None:
    """Refuses inputs that come out of a loop other than through an Exit.

    Raises:
      ValueError: naming both ops.
    """
    for source in sources:
        context = output_context(source)
        if context is None or context is op._control_flow_context:
            continue
        own, other = while_context_of(op._control_flow_context), while_context_of(context)
        if own is None:
            if other is not None and op.type not in ENTERS and op.type not in SWITCHES:
                _refuse(op, source, f"'{source._name}' is in a while loop.")
        elif not _may_read(own, other):
            _refuse(op, source, "they are in different while loops.")


def _may_read(own: Any, other: Any) -> bool:
    """Whether an op of loop ``own`` may take a value of loop ``other``: its own, outer and forward loops."""
    if is_within(own, other):
        return True
    grad_state = own.grad_state
    if grad_state is not None:
        forward = grad_state.forward_context
        if is_within(forward, other) or forward is other.outer_context:
            return True
    # The gradient of a gradient reads its loop before it is refused, or stopped.
    if other.grad_state is None:
        return False
    forward = other.grad_state.forward_context
    if forward is own:
        return True
    return forward.grad_state is not None and forward.grad_state.forward_context is own


def _refuse(op: Operation, source: Operation, why: str) -> None:
    text = f"Cannot use '{source._name}' as input to '{op._name}' because {why}"
    _log.info("%s Contexts: %s, %s", text, op._control_flow_context, source._control_flow_context)
    raise ValueError(f"{text} See info log for more details.")
