"""The default graph: of the thread's innermost block, or of the process (``tf.get_default_graph``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tfmini.export import export
from tfmini.graph.graph import Graph, default_stack

_global_default: list[Graph] = []


@export("tf.get_default_graph")
def get_default_graph() -> Graph:
    """Returns the graph of this thread's innermost ``with graph.as_default()``, or the process-wide default graph."""
    graphs = default_stack.graphs
    if graphs:
        return graphs[-1]
    if not _global_default:
        _global_default.append(Graph())
    return _global_default[0]


def graphs_inside_out() -> list[Graph]:
    """The default graphs of this thread's ``with`` blocks, innermost first, and the process-wide one."""
    return [*reversed(default_stack.graphs), *_global_default] or [get_default_graph()]


@contextmanager
def exactly_default(graph: Graph) -> Iterator[Graph]:
    """Makes ``graph`` itself the default, also where a function is being traced inside it."""
    default_stack.graphs.append(graph)
    try:
        yield graph
    finally:
        del default_stack.graphs[-1:]


@export("tf.reset_default_graph")
def reset_default_graph() -> None:
    """Forgets the process-wide default graph (``tf.reset_default_graph``).

    Raises:
      AssertionError: inside a ``with graph.as_default()`` block.
    """
    if default_stack.graphs:
        raise AssertionError(
            "Do not use tf.reset_default_graph() to clear nested graphs. If you need a cleared graph, exit the"
            " nesting and create a new graph."
        )
    _global_default.clear()


def forget_default_graphs() -> None:
    """Forgets the graphs of this thread's ``with`` blocks and the process-wide default graph."""
    default_stack.graphs.clear()
    _global_default.clear()


@contextmanager
def as_in_a_new_process() -> Iterator[None]:
    """Runs the block without any default graph, as in a new process, and restores the earlier ones afterwards."""
    nested, process_wide = default_stack.graphs, _global_default[:]
    default_stack.graphs = []
    _global_default.clear()
    try:
        yield
    finally:
        default_stack.graphs = nested
        _global_default[:] = process_wide
