"""What a kernel raised, as TensorFlow's error: the node, the device and the task named."""

from __future__ import annotations

from tfmini import errors
from tfmini.graph.node import Node
from tfmini.runtime.codegen import NODE_LINES


def failing_node(error: BaseException) -> Node | None:
    """The node whose line of generated code raised, or None; in a loop's function, the node inside."""
    trace, found = error.__traceback__, None
    while trace is not None:
        lines = trace.tb_frame.f_globals.get(NODE_LINES, {}).get(trace.tb_frame.f_code.co_filename)
        if lines is not None and trace.tb_lineno < len(lines):
            found = lines[trace.tb_lineno] or found
        trace = trace.tb_next
    return found


def kernel_error(error: Exception, task: str) -> errors.OpError:
    """What a kernel raised, as TensorFlow's error with the node named."""
    node = failing_node(error)
    if isinstance(error, errors.OpError):
        code, message = error.error_code, error.message
    elif isinstance(error, MemoryError):
        code, message = errors.RESOURCE_EXHAUSTED, f"out of memory: {error}"
    elif isinstance(error, (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError)):
        code, message = errors.INVALID_ARGUMENT, f"{error}"
    else:
        code, message = errors.INTERNAL, f"{type(error).__name__}: {error}"
    return _named(code, message, node, task)


def node_error(error: errors.OpError, node: Node, task: str) -> errors.OpError:
    """The failure of a node that answered later."""
    return _named(error.error_code, error.message, node, task, error.derived)


def _named(code: int, message: str, node: Node | None, task: str, derived: bool = False) -> errors.OpError:
    name = node.name if node is not None else ""
    if name and "[[" not in message:
        message = f"{message}\n\t [[{{{{node {name}}}}}]]"
    device = node.device if node is not None else ""
    return errors.from_code(code, message, node_name=name, device=device, task=task, derived=derived)
