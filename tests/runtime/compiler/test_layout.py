"""The segments of loops that wait: none takes a turn of the driver for nothing."""

from __future__ import annotations

from typing import Any

import tfmini as tf
from tfmini.runtime.compiler.codegen import nothing


def test_an_iteration_has_no_segment_that_does_nothing() -> None:
    """A value leaves the loop where the variable is handed on, and arrivals lead to whoever needs them."""
    queue = tf.FIFOQueue(1, [tf.int32], shapes=[[]])

    def body(i: Any, total: Any) -> Any:
        with tf.control_dependencies([queue.enqueue(i)]):
            return i + 1, total + queue.dequeue()

    loop = tf.while_loop(lambda i, _: i < 9, body, [0, 0])
    with tf.Session() as session:
        assert session.run(loop) == (9, 36)
        (graph,) = session.master.master.worker.graphs.values()  # type: ignore[attr-defined]
        (waiting,) = graph.program.loops.values()
    segments = waiting.level.segments
    assert len(segments) == 3 and all(segment.run is not nothing for segment in segments)
    assert waiting.level.pending == [segment.pending for segment in segments]
