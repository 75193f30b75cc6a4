"""Sources, views, roles, lint and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import tfmini as tf
from tfmini.inspection.api import inspect
from tfmini.inspection.difference import difference
from tfmini.inspection.page_html import page
from tfmini.inspection.picture import dot
from tfmini.inspection.text import VIEWS, show
from tfmini.tools.cli import main

PS, WORKER = "/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"
EXAMPLES = Path(__file__).parents[2] / "examples"


def model(**settings) -> tf.Graph:
    graph = tf.Graph()
    with graph.as_default(), tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")):
        x = tf.placeholder(tf.float32, [None, 3], name="x")
        weights = tf.get_variable("W", [3, 2])
        loss = tf.reduce_sum(tf.matmul(x, weights))
        step = tf.train.get_or_create_global_step()
        optimizer = tf.train.AdagradOptimizer(0.1)
        if settings:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, **settings)
        optimizer.minimize(loss, global_step=step)
        tf.global_variables_initializer()
    return graph


@pytest.fixture(scope="module")
def found():
    return inspect(model(), ps=1, workers=2, batch=8)


def test_the_wire_of_a_training_step(found) -> None:
    rows = {(t.role, t.src, t.dst, t.bytes) for t in found.transfers if not t.control}
    assert rows == {("variable read", PS, WORKER, 24), ("gradient of W", WORKER, PS, 24)}
    assert found.targets == ("Adagrad",) and found.feeds == ("x:0",)
    assert all(t.key.startswith(f"{t.src};") and t.consumers for t in found.transfers)


def test_json_has_the_schema(found) -> None:
    data = json.loads(json.dumps(found.to_json()))
    assert set(data) == {"tasks", "transfers", "placement", "warnings"}
    assert {t["device"]: t["state_bytes"] for t in data["tasks"]}[PS] == 24 + 24 + 8
    assert set(data["tasks"][0]) == {"device", "ops", "variables", "state_bytes", "flops"}
    keys = {"tensor", "src", "dst", "dtype", "shape", "bytes", "role", "control"}
    assert all(set(t) == keys for t in data["transfers"])
    assert data["placement"]["W"]["device"] == PS and "explicit request" in data["placement"]["W"]["reasons"][0]


@pytest.mark.parametrize("name", VIEWS)
def test_views_fit_a_screen(found, name: str) -> None:
    text = show(found, name)
    assert text.strip() and len(text.splitlines()) < 60


def test_why_follows_the_chain(found) -> None:
    device, *reasons = found.why("W/read")
    assert device == PS and any("W" in reason for reason in reasons)


def test_difference_and_pictures(found) -> None:
    moved = inspect(model(), ps=2, workers=1)
    assert str(difference(found, found)) == "no difference"
    assert difference(found, moved).moved == ()
    assert "gradient of W" in dot(found) and dot(found).count("subgraph") == 3


def test_the_page_stands_alone(found) -> None:
    text = page(found)
    assert text.count("<script") == text.count("</script>") == 3
    assert "gradient of W" in text and "src=" not in text.partition("<script>")[0]


def test_graphs_with_foreign_and_custom_ops_open() -> None:
    graph_def = model().as_graph_def()
    for name, op, source in (("parsed", "DecodeProtoV2", "W/read"), ("mine", "MyOwnOp", "W/read")):
        node = graph_def.node.add(name=name, op=op, input=[source], device="/job:worker/task:0")
        node.attr["output_types"].list.type.extend([1, 3])
    user = graph_def.node.add(name="user", op="Neg", input=["mine:1"], device="/job:ps/task:0")
    user.attr["T"].type = 1
    found = inspect(graph_def, ps=1, workers=1, fetches=["user", "parsed"])
    assert {t.tensor: t.dtype.name for t in found.transfers}["mine:1"] == "float32"
    assert {w.kind for w in found.warnings} >= {"not executable"}
    assert found.shapes["gradients/MatMul_grad/MatMul_1", 0] == (3, 2)


@pytest.mark.parametrize("form", ["pb", "pbtxt", "meta"])
def test_files(tmp_path, form: str) -> None:
    graph = model()
    path = tmp_path / f"model.{form}"
    if form == "meta":
        with graph.as_default():
            tf.train.export_meta_graph(str(path))
    else:
        tf.train.write_graph(graph, str(tmp_path), path.name, as_text=form == "pbtxt")
    assert inspect(str(path), ps=1, workers=1).targets == ("Adagrad",)


def test_synchronous_training_that_can_never_update() -> None:
    graph = model(replicas_to_aggregate=3, total_num_replicas=3)
    assert "sync deadlock" in {w.kind for w in inspect(graph, ps=1, workers=2).warnings}
    assert "sync deadlock" not in {w.kind for w in inspect(graph, ps=1, workers=3).warnings}


def test_lint_finds_state_on_a_worker_and_unequal_ps() -> None:
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            large = tf.get_variable("large", [1000, 1000])
        with tf.device("/job:worker/task:0"):
            mine = tf.get_variable("mine", [2])
        total = tf.reduce_sum(large) + tf.reduce_sum(mine)
        kinds = {w.kind for w in inspect(graph, ps=2, workers=1, fetches=total).warnings}
    assert {"state on a worker", "ps imbalance"} <= kinds


@pytest.mark.parametrize("script", ["digits_async.py", "digits_sync.py"])
def test_the_examples_open_without_false_alarm(script: str) -> None:
    pytest.importorskip("sklearn")
    with tf.Graph().as_default():
        found = inspect(EXAMPLES / script, ps=2, workers=2, batch=100)
    assert found.warnings == []
    roles = {t.role for t in found.transfers}
    assert {"variable read", "gradient of hidden/W"} <= roles


def test_the_command(tmp_path) -> None:
    tf.train.write_graph(model(), str(tmp_path), "model.pb", as_text=False)
    path = str(tmp_path / "model.pb")
    result = CliRunner().invoke(main, ["inspect", path, "--ps", "1", "--workers", "1", "--json"])
    assert result.exit_code == 0 and json.loads(result.output)["transfers"]
    text = CliRunner().invoke(main, ["inspect", path, "--ps", "1", "--workers", "1"]).output
    assert "gradient of W" in text
    assert "explicit" in CliRunner().invoke(main, ["inspect", path, "--ps", "1", "--why", "W"]).output
    assert CliRunner().invoke(main, ["inspect", path, "--ps", "1", "--fetch", "nothing"]).exit_code == 1
