"""A placement plan as a device function, as a strategy, and as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.placement.device_setter import PlacementPlan, plan

CLUSTER = {"ps": ["a:1", "b:1"], "worker": ["c:1"]}


def model(tf: Any = tf) -> tuple[Any, Any]:
    """(ids, loss) of a model that knows of no plan."""
    ids = tf.placeholder(tf.int64, [None], name="ids")
    table = tf.get_variable("emb", initializer=tf.reshape(tf.range(10.0), [5, 2]))
    rows = tf.nn.embedding_lookup(table, ids, name="rows")
    with tf.variable_scope("dense"):
        weights = tf.get_variable("w", [2, 3], initializer=tf.ones_initializer())
        bias = tf.Variable(tf.zeros([3]), name="b")
    return ids, tf.reduce_sum(tf.matmul(rows, weights) + bias, name="loss")


def made(**changes: Any) -> PlacementPlan:
    placed = {"emb/part_0": 0, "emb/part_1": 1, "dense/w": 1, "dense/b": 0}
    return PlacementPlan(**{"tasks": 2, "variables": placed, "partitions": {"emb": [2, 1]}, **changes})


def devices(graph: Any) -> dict[str, str]:
    kinds = ("VariableV2", "VarHandleOp")
    return {op.name: op.device for op in graph.get_operations() if op.type in kinds and "Adagrad" not in op.name}


def test_an_unmodified_model_follows_a_plan_and_computes_the_same(tmp_path: Path) -> None:
    made().save(tmp_path / "plan.json")
    results = []
    for scope in ("", plan(tmp_path / "plan.json")):
        with tf.Graph().as_default() as graph:
            with tf.device(scope):
                ids, loss = model()
                train = tf.train.AdagradOptimizer(0.1).minimize(loss)
            placed = devices(graph)
            config = tf.ConfigProto(allow_soft_placement=True)
            definition = graph.as_graph_def()
        for node in definition.node:  # to run in one process
            node.device = ""
        with tf.Graph().as_default() as graph, tf.Session(config=config) as session:
            tf.import_graph_def(definition, name="")
            session.run([op.name for op in graph.get_operations() if op.name.endswith("Assign")])
            for _ in range(3):
                session.run(train.name, {ids.name: [0, 3, 4, 3]})
            results.append(session.run([loss.name, "rows:0"], {ids.name: [0, 1, 2, 3, 4]}))
    assert placed == {
        "emb/part_0": "/job:ps/task:0", "emb/part_1": "/job:ps/task:1",
        "dense/w": "/job:ps/task:1", "dense/b": "/job:ps/task:0",
    }  # fmt: skip
    for whole, cut in zip(*results):
        np.testing.assert_allclose(whole, cut, rtol=1e-6)


def test_as_a_strategy_it_places_cuts_and_moves() -> None:
    strategy = made(ops={"rows/Reshape": 1})
    setter = tf.train.replica_device_setter(cluster=CLUSTER, ps_strategy=strategy)
    with tf.Graph().as_default() as graph, tf.device(setter):
        model()
    assert devices(graph)["emb/part_1"] == "/job:ps/task:1"
    assert graph.get_operation_by_name("rows/Reshape").device == "/job:ps/task:1"
    assert graph.get_operation_by_name("loss").device == "/job:worker"


def test_what_the_model_requests_itself_stays() -> None:
    with tf.Graph().as_default(), tf.device(made()), tf.device("/job:worker/task:0"):
        assert tf.Variable(0.0, name="dense/b").device == "/job:worker/task:0"


def test_a_model_may_ask_again_outside_of_the_plan() -> None:
    with tf.Graph().as_default():
        with tf.device(made()):
            first = tf.get_variable("emb", [5, 2])
        for reuse in (True, tf.AUTO_REUSE):
            with tf.variable_scope("", reuse=reuse):
                assert tf.get_variable("emb", [5, 2]) is first
        with tf.device(made()), tf.variable_scope("", reuse=tf.AUTO_REUSE):
            assert tf.get_variable("emb", [5, 2]) is first


def test_a_partitioner_of_the_model_comes_first() -> None:
    with tf.Graph().as_default(), tf.device(made()):
        table = tf.get_variable("emb", [5, 2], partitioner=tf.fixed_size_partitioner(5))
        assert len(list(table)) == 5


def test_layers_work_with_a_plan() -> None:
    cut = made(partitions={"dense/kernel": [2, 1]}, variables={"dense/kernel/part_0": 0, "dense/kernel/part_1": 1})
    with tf.Graph().as_default(), tf.device(cut):
        hidden = tf.layers.dense(tf.ones([2, 4]), 3, kernel_regularizer=tf.nn.l2_loss)
        tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(hidden) + tf.losses.get_regularization_loss())
        assert [v.op.name for v in tf.trainable_variables()][:2] == ["dense/kernel/part_0", "dense/kernel/part_1"]


def test_an_unknown_variable_goes_where_its_name_says(caplog: pytest.LogCaptureFixture) -> None:
    with tf.Graph().as_default(), tf.device(made()):
        places = {tf.Variable(0.0, name="new").device for _ in range(1)}
    with tf.Graph().as_default(), tf.device(made()):
        places.add(tf.Variable(0.0, name="new").device)
    assert len(places) == 1 and "does not know the variable new" in caplog.text


def test_a_changed_shape_is_an_error() -> None:
    for shape in ([5], [1, 2]):
        with tf.Graph().as_default(), tf.device(made()), pytest.raises(ValueError, match="cuts emb into .* place"):
            tf.get_variable("emb", shape)


def test_a_plan_for_more_tasks_is_an_error() -> None:
    with pytest.raises(ValueError, match="for 2 ps tasks, but there are 1"):
        tf.train.replica_device_setter(1, ps_strategy=made())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "not JSON"),
        ("[]", "no plan"),
        ("{}", "no plan"),
        (json.dumps({**made().to_json(), "variables": {"w": 2}}), "puts w on task 2"),
        (json.dumps({**made().to_json(), "partitions": {"w": [0]}}), "cuts w into"),
        (json.dumps({**made().to_json(), "more": 1}), "more"),
        (json.dumps({**made().to_json(), "variables": 3}), "not valid"),
    ],
)
def test_files_that_are_no_plan(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=error):
        plan(file)


def test_a_saved_plan_is_the_same(tmp_path: Path) -> None:
    made(ops={"x": 1}, predicted={"step_s": 0.5}).save(tmp_path / "plan.json")
    assert plan(tmp_path / "plan.json") == made(ops={"x": 1}, predicted={"step_s": 0.5})
