"""Conds, loops and tensor arrays against TensorFlow: values, gradients, graphs, and TensorFlow running our graphs."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops import flow_cases

HERE = Path(__file__).parent
# Where TensorFlow 2.21 builds other nodes than 1.15, the release we follow: it has a write barrier in the gradients
# of tensor arrays, knows the size of some, and leaves the reduction out of some gradients of broadcasting ops.
OTHER_NODES = {
    "cond_unused_in_other_branch", "while_shape_invariant", "while_forgets", "tensor_array",
    "tensor_array_split", "tensor_array_dynamic", "tensor_array_in_cond", "map_fn",
    "map_fn_structure", "map_fn_in_cond", "map_fn_unknown", "scan",
    "scan_initializer_reverse", "scan_structure", "foldl", "foldr",
}  # fmt: skip


def own(source: str) -> dict[str, Any]:
    with tf.Graph().as_default() as graph, tf.Session() as session:
        fetches, feeds = flow_cases.build(source, tf, np)
        graph_def = graph.as_graph_def()
        values = session.run(fetches, feeds)
    return {
        "values": values,
        "nodes": flow_cases.flow_nodes(graph_def),
        "graph": base64.b64encode(graph_def.SerializeToString()).decode(),
        "fetches": [f.name for f in fetches],
        "feeds": {tensor.name: value for tensor, value in feeds.items()},
    }


@pytest.fixture(scope="module")
def ours() -> dict[str, dict[str, Any]]:
    return {name: own(source) for name, source in flow_cases.CASES.items()}


@pytest.fixture(scope="module")
def theirs(oracle: str, ours: dict[str, dict[str, Any]]) -> Any:
    graphs = {name: {key: case[key] for key in ("graph", "fetches", "feeds")} for name, case in ours.items()}
    environment = {**os.environ, "PYTHONPATH": str(HERE), "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [oracle, str(HERE / "oracle_flow.py")], input=json.dumps({"graphs": graphs}), capture_output=True, text=True,
        env=environment, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def assert_close(mine: list[Any], other: Any) -> None:
    assert isinstance(other, list), other
    for a, b in zip(mine, other, strict=True):
        if b is None or a is None:
            assert a is None and b is None
        else:
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.oracle
@pytest.mark.parametrize("name", flow_cases.CASES)
def test_values_are_tensorflows(name: str, ours: Any, theirs: Any) -> None:
    native = theirs["native"][name]
    assert "error" not in native, native
    assert_close(ours[name]["values"], native["values"])


@pytest.mark.oracle
@pytest.mark.parametrize("name", flow_cases.CASES)
def test_tensorflow_runs_the_graph(name: str, ours: Any, theirs: Any) -> None:
    assert_close(ours[name]["values"], theirs["imported"][name])


@pytest.mark.oracle
@pytest.mark.parametrize("name", [name for name in flow_cases.CASES if name not in OTHER_NODES])
def test_nodes_are_tensorflows(name: str, ours: Any, theirs: Any) -> None:
    assert ours[name]["nodes"] == theirs["native"][name]["nodes"]
