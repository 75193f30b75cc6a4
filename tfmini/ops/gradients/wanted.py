"""Which gradients the backward pass that is under way has a use for.

A gradient function may leave out, as None, the gradient of an input that leads to no x: of the
constant in ``x * 2`` or the images in a first layer. The result is the same with fewer ops.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator
from contextlib import contextmanager

from tfmini.graph.operation import Operation


class _Current(threading.local):
    """Per thread, the ops between the ys and the xs; None: no pass is under way."""

    region: Container[Operation] | None = None


_current = _Current()


@contextmanager
def region(operations: Container[Operation]) -> Iterator[None]:
    """While this lasts, only gradients of these ops' outputs are of use."""
    outer, _current.region = _current.region, operations
    try:
        yield
    finally:
        _current.region = outer


def is_wanted(node: Operation, index: int) -> bool:
    """Whether the gradient of an input may be used."""
    operations = _current.region
    return operations is None or node._inputs[index].op in operations
