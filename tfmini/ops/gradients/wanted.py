"""Tells gradient functions which gradients the current backward pass uses.

A gradient function may return None for an input that does not depend on any x: for the constant in
``x * 2`` or the images in a first layer. The result is the same with fewer ops.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator
from contextlib import contextmanager

from tfmini.graph.operation import Operation


class _Current(threading.local):
    """Per thread, the ops between the ys and the xs; None outside of a backward pass."""

    region: Container[Operation] | None = None


_current = _Current()


@contextmanager
def region(operations: Container[Operation]) -> Iterator[None]:
    """While it lasts, only gradients of these ops' outputs are used."""
    outer, _current.region = _current.region, operations
    try:
        yield
    finally:
        _current.region = outer


def is_wanted(node: Operation, index: int) -> bool:
    """Whether the gradient of an input may be used."""
    operations = _current.region
    return operations is None or node.inputs[index].op in operations
