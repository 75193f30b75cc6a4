"""Turns exceptions of kernels into TensorFlow's errors, which name the node, the device and the task."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator

from tfmini import errors
from tfmini.graph.node import DEFINED_AT, Node
from tfmini.graph.node_types import FETCH, SEND

# The key in a program's namespace of: file name of generated code -> the node that each line computes.
NODE_LINES = "node_lines"
# numpy's message about two arrays that do not fit each other.
_BROADCAST = re.compile(r"operands could not be broadcast together with shapes \(([\d,]*)\) \(([\d,]*)\) ?$")


def failing_node(error: BaseException) -> Node | None:
    """The node whose line of generated code raised, or None; in a loop's function, the node inside."""
    trace, found = error.__traceback__, None
    while trace is not None:
        lines = trace.tb_frame.f_globals.get(NODE_LINES, {}).get(trace.tb_frame.f_code.co_filename)
        if lines is not None and trace.tb_lineno < len(lines):
            found = lines[trace.tb_lineno] or found
        trace = trace.tb_next
    return found


def not_reached(error: BaseException, names: Iterable[str]) -> tuple[set[str], set[str]]:
    """Of the nodes of a segment whose generated code raised: those whose line had been run, and those not reached.

    The node that raised is in neither, nor is one of another block of the segment.
    """
    trace = error.__traceback__
    while trace is not None:
        lines = trace.tb_frame.f_globals.get(NODE_LINES, {}).get(trace.tb_frame.f_code.co_filename)
        if lines is not None:
            places: dict[str, list[int]] = {}
            for number, node in enumerate(lines):
                if node is not None:
                    places.setdefault(node.name, []).append(number)
            known = [(name, places[name]) for name in names if name in places]
            done = {name for name, found in known if found[-1] < trace.tb_lineno}
            return done, {name for name, found in known if found[0] > trace.tb_lineno}
        trace = trace.tb_next
    return set(), set()


def kernel_error(error: Exception, task: str, node: Node | None = None) -> errors.OpError:
    """Turns a kernel's exception into TensorFlow's error with the node named (default: of the line that raised)."""
    node = node or failing_node(error)
    found = errors.of_exception(error)
    return _named(found.error_code, _in_words(found.message), node, task)


def node_error(error: errors.OpError, node: Node, task: str) -> errors.OpError:
    """The failure of a node that answered later."""
    return _named(error.error_code, error.message, node, task, error.derived)


@contextlib.contextmanager
def named_errors(node: Node) -> Iterator[None]:
    """Names the node in errors that occur while its kernel is made, before any step runs."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever a kernel raises belongs to its node
        raise kernel_error(error, "", node) from (None if isinstance(error, errors.OpError) else error)


def _in_words(message: str) -> str:
    match = _BROADCAST.match(message)
    if match is None:
        return message
    first, second = (shape.rstrip(",") for shape in match.groups())
    return f"Incompatible shapes: [{first}] vs. [{second}]"


def _named(code: int, message: str, node: Node | None, task: str, derived: bool = False) -> errors.OpError:
    name = "" if node is None else node.name
    if node is not None and node.op in (SEND, FETCH):
        name = node.inputs[0][0]  # a value read in order to be sent: the fault is that of its producer
    if node is not None and "[[" not in message:
        place = node.attrs.get(DEFINED_AT)  # of a node inside a function, which no client's graph contains
        tag = f"{{{{node {name}}}}}" if place is None else f"node {name} (defined at {place.decode()}) "
        message = f"{message}\n\t [[{tag}]]"
    device = node.device if node is not None else ""
    return errors.from_code(code, message, node_name=name, device=device, task=task, derived=derived)


def dead_fetch(index: int) -> errors.OpError:
    """The error for a fetched value in a branch that was not taken."""
    return errors.InvalidArgumentError.of(
        f"Retval[{index}] does not have value: it lies in a branch that this step did not take."
    )
