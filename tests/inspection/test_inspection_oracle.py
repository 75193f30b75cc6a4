"""GraphDefs that TensorFlow itself wrote, for eight ps and sixteen workers, with reference and resource variables.

Their wire tables are compared with what TensorFlow's partitioner sends for the same step, and with what is known of
the models.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tfmini.inspection.api import inspect
from tfmini.inspection.findings import Inspection
from tfmini.placement.layout import Route

pytestmark = pytest.mark.oracle
MODELS = ["mlp", "cnn", "lstm", "embedding"]


@pytest.fixture(scope="module")
def folder(oracle, tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    script = Path(__file__).with_name("oracle_models.py")
    subprocess.run([oracle, script, path], check=True, capture_output=True, timeout=900)
    return path


def inspected(folder: Path, name: str) -> Inspection:
    found = inspect(folder / f"{name}.pb", ps=8, workers=16, batch=64)
    assert len(found.devices) == 24 and found.targets == ("Adagrad",)
    assert found.master == "/job:worker/replica:0/task:3/device:CPU:0"  # for which the graph is built
    return found


@pytest.mark.parametrize("kind", [0, 1], ids=["reference", "resource"])
@pytest.mark.parametrize("model", MODELS)
def test_the_wire_is_that_of_tensorflows_partitioner(folder: Path, model: str, kind: int) -> None:
    found = inspected(folder, f"{model}_{kind}")
    theirs = {
        (re.sub(r"^edge_\d+_", "", name), src, dst)
        for name, src, dst in json.loads((folder / f"{model}_{kind}.json").read_text())
    }
    ours = {(t.producer, t.src, t.dst) for t in found.transfers if t.route is Route.SENT}
    assert ours <= theirs
    # Constants: TensorFlow sends some of them in every step, we hand them out when the plan is registered.
    assert {found.nodes[name].op for name, _, _ in theirs - ours} <= {"Const"}


def roles(folder: Path, name: str) -> set[tuple[str, int | None]]:
    return {(t.role, t.bytes) for t in inspected(folder, name).transfers if not t.control}


@pytest.mark.parametrize("kind", [0, 1])
def test_mlp(folder: Path, kind: int) -> None:
    sizes = {"W1": 313600, "b1": 400, "W2": 4000}
    expected = {("variable read", n) for n in sizes.values()} | {(f"gradient of {k}", n) for k, n in sizes.items()}
    assert roles(folder, f"mlp_{kind}") == expected


@pytest.mark.parametrize("kind", [0, 1])
def test_cnn(folder: Path, kind: int) -> None:
    sizes = {"W1": 3200, "W2": 250880}
    expected = {("variable read", n) for n in sizes.values()} | {(f"gradient of {k}", n) for k, n in sizes.items()}
    assert roles(folder, f"cnn_{kind}") == expected


def test_lstm(folder: Path) -> None:
    expected = {("variable read", 24576), ("gradient of kernel", 24576)}
    assert roles(folder, "lstm_0") == expected
    # The read is inside the loop, so the loop goes round on the ps as well: it is told when to stop.
    assert roles(folder, "lstm_1") == expected | {("tensor", 1)}


def test_what_tensorflow_refuses_without_soft_placement_is_said(folder: Path) -> None:
    placement = [w.text for w in inspected(folder, "lstm_1").warnings if w.kind == "placement"]
    assert len(placement) == 1 and "a session would refuse this graph: Cannot colocate nodes" in placement[0]


@pytest.mark.parametrize("kind", [0, 1])
def test_partitioned_embedding(folder: Path, kind: int) -> None:
    found = roles(folder, f"embedding_{kind}")
    assert {role for role, _ in found} == {
        *(f"{what} emb/part_{i}" for what in ("rows of", "ids for", "gradient of") for i in range(8)),
        "variable read",
        "gradient of W",
    }
