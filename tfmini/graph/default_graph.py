"""The stack of default graphs, one per thread (``tf.get_default_graph``)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfmini.export import export

if TYPE_CHECKING:
    from tfmini.graph.graph import Graph


class _Stack(threading.local):
    def __init__(self) -> None:
        self.graphs: list[Graph] = []


_stack = _Stack()
_global_default: list[Graph] = []


@export("tf.get_default_graph")
def get_default_graph() -> Graph:
    """Returns the graph of this thread's innermost ``with graph.as_default()``, or the process-wide default graph."""
    graphs = _stack.graphs
    if graphs:
        return graphs[-1]
    if not _global_default:
        from tfmini.graph.graph import Graph

        _global_default.append(Graph())
    return _global_default[0]


def graphs_inside_out() -> list[Graph]:
    """The default graphs of this thread's ``with`` blocks, innermost first, and the process-wide one."""
    return [*reversed(_stack.graphs), *_global_default] or [get_default_graph()]


@contextmanager
def exactly_default(graph: Graph) -> Iterator[Graph]:
    """Makes ``graph`` itself the default, also where a function is being traced inside it."""
    _stack.graphs.append(graph)
    try:
        yield graph
    finally:
        _stack.graphs.pop()


@export("tf.reset_default_graph")
def reset_default_graph() -> None:
    """Forgets the process-wide default graph (``tf.reset_default_graph``).

    Raises:
      AssertionError: inside a ``with graph.as_default()`` block.
    """
    if _stack.graphs:
        raise AssertionError(
            "Do not use tf.reset_default_graph() to clear nested graphs. If you need a cleared graph, exit the"
            " nesting and create a new graph."
        )
    _global_default.clear()


@contextmanager
def as_in_a_new_process() -> Iterator[None]:
    """Runs the block without any default graph, as in a new process, and restores the earlier ones afterwards."""
    nested, process_wide = _stack.graphs, _global_default[:]
    _stack.graphs = []
    _global_default.clear()
    try:
        yield
    finally:
        _stack.graphs = nested
        _global_default[:] = process_wide


def innermost(graph: Graph) -> Graph:
    """Returns the graph for new ops on tensors of ``graph``: that of a function being traced inside it, or itself."""
    graphs = _stack.graphs
    if graphs and graphs[-1].outer is not None and graphs[-1].is_inside(graph):
        return graphs[-1]
    return graph


@contextmanager
def as_default(graph: Graph) -> Iterator[Graph]:
    """Makes ``graph``, or the graph of the function being traced inside it, this thread's default for the block."""
    graph = innermost(graph)
    _stack.graphs.append(graph)
    try:
        yield graph
    finally:
        if _stack.graphs[-1] is not graph:
            raise AssertionError("Nesting violated for default stack of <class 'tfmini.graph.graph.Graph'> objects")
        _stack.graphs.pop()
