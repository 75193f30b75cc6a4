"""The samples of ops with a lowering, built and run on a GPU: for the tests, and for `benchmarks/gpu_check.py`."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

import tfmini as tf
from tests.ops.samples import frozen, notation
from tests.ops.samples.builders import builder, without_constants
from tests.ops.samples.notation import Row
from tfmini.graph.lowering import lowerings


def groups() -> dict[tuple[str, str], list[Row]]:
    """(room, first op) -> the rows with an op that has a lowering and an answer of TensorFlow's."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for room in notation.rooms():
        for row in notation.rows(room):
            if row.compared != "nothing" and "tmp" not in row.text and row.names & set(lowerings()):
                found[room, row.head].append(row)
    return found


def difference(row: Row) -> str:
    """How the results of a row on a GPU differ from TensorFlow's, '' if they do not.

    No value is known before the step, so nothing is computed in advance; what has no lowering runs on the CPU.
    """
    with tf.Graph().as_default() as graph, tf.device("/gpu:0"):
        steps, feeds = notation.build(row, tf, builder, "")
    with tf.Graph().as_default() as blurred:
        tf.import_graph_def(without_constants(graph.as_graph_def()), name="")
        steps = [[blurred.as_graph_element(item.name) for item in step] for step in steps]
        feeds = {blurred.as_graph_element(item.name): value for item, value in feeds.items()}
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
            results = [session.run(fetches, feeds) for fetches in steps]
    found = [
        frozen.encode(np.asarray(value), tensor.shape, "")
        for step, values in zip(steps, results)
        for tensor, value in zip(step, values)
        if value is not None
    ]
    theirs = sum(frozen.read(row.room)[row.text], [])
    if len(found) != len(theirs):
        return f"{len(found)} results instead of {len(theirs)}"
    wrong = (frozen.difference(ours, expected, row.compared, inferred=False) for ours, expected in zip(found, theirs))
    return next((text for text in wrong if text), "")
