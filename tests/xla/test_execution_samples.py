"""Every sample of an op with a lowering, run by XLA on the CPU: TensorFlow's answers, as for the numpy kernels."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

import tfmini as tf
from tests.ops.samples import frozen, notation
from tests.ops.samples.builders import builder, without_constants
from tests.ops.samples.notation import Row
from tfmini.graph.lowering import lowerings
from tfmini.xla.backend import FAKE_ENV

pytest.importorskip("jax")

GROUPS: dict[tuple[str, str], list[Row]] = defaultdict(list)
for _room in notation.rooms():
    for _row in notation.rows(_room):
        if _row.compared != "nothing" and "tmp" not in _row.text and _row.names & set(lowerings()):
            GROUPS[_room, _row.head].append(_row)

# What differs on a device that compiles, and why.
DIFFERENT: dict[str, str] = {}


@pytest.mark.parametrize("rows", [pytest.param(rows, id=f"{r}-{head}") for (r, head), rows in GROUPS.items()])
def test_values(rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    """No value is known before the step, so nothing is computed in advance; what has no lowering runs on the CPU."""
    monkeypatch.setenv(FAKE_ENV, "1")
    for row in rows:
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
        assert len(found) == len(theirs), row.text
        for ours, expected in zip(found, theirs):
            wrong = frozen.difference(ours, expected, row.compared, inferred=False)
            assert not wrong, f"{row.text}: {wrong}"
