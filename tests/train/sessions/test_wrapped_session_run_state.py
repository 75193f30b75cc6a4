"""What a chief's process does at its end for the state of its run."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import tfmini as tf
from tfmini.train.sessions.wrapped_session import STARTED, add_run_state, end_at_exit, forget_exit


def test_a_run_that_has_ended_leaves_nothing_for_the_exit() -> None:
    """What is left for the exit keeps the graph in memory; a process may train many models."""
    graph, state, called = tf.Graph(), object(), []
    any_state: Any = state

    def end_run(error: BaseException | None = None, graph: tf.Graph = graph) -> None:
        called.append(graph)

    end_at_exit(graph, end_run, end_run)
    assert STARTED not in graph.attachments  # without a state there is nothing to end
    add_run_state(graph, any_state)
    end_at_exit(graph, end_run, end_run)
    assert STARTED in graph.attachments
    forget_exit(graph)
    forget_exit(graph)
    seen = weakref.ref(graph)
    del graph, end_run
    gc.collect()
    assert seen() is None and not called
