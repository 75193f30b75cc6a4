"""GraphDefs that TensorFlow itself wrote, for eight ps and sixteen workers, with reference and resource variables.

Their wire tables are compared with what TensorFlow's partitioner sends for the same step, and with what is known of
the models.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.oracle import Oracle
from tfmini.placement.task_graph import Route
from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.findings import Inspection

pytestmark = pytest.mark.oracle
MODELS = ["mlp", "cnn", "lstm", "embedding"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module", autouse=True)
def sends(oracle: Oracle, folder: Path) -> Any:
    """model -> the transfers of TensorFlow's partitioner; the models are in the folder."""
    return oracle.call_own("tests.show.inspection.oracle_models", "write_all", str(folder))


def inspected(folder: Path, name: str) -> Inspection:
    found = inspect(folder / f"{name}.pb", ps=8, workers=16, batch=64)
    assert len(found.devices) == 24 and found.targets == ("Adagrad",)
    assert found.master == "/job:worker/replica:0/task:3/device:CPU:0"  # for which the graph is built
    return found


@pytest.mark.parametrize("kind", [0, 1], ids=["reference", "resource"])
@pytest.mark.parametrize("model", MODELS)
def test_the_transfers_equal_those_of_tensorflows_partitioner(folder: Path, sends: Any, model: str, kind: int) -> None:
    found = inspected(folder, f"{model}_{kind}")
    theirs = {(re.sub(r"^edge_\d+_", "", name), src, dst) for name, src, dst in sends[f"{model}_{kind}"]}
    ours = {(t.producer, t.src, t.dst) for t in found.transfers if t.route is Route.SENT}
    assert ours <= theirs
    # Constants: TensorFlow sends some of them in every step, we hand them out when the plan is registered.
    assert {found.nodes[name].op for name, _, _ in theirs - ours} <= {"Const"}


def roles(folder: Path, name: str) -> set[tuple[str, int | None]]:
    return {(t.role, t.bytes) for t in inspected(folder, name).transfers if not t.control}


@pytest.mark.parametrize("kind", [0, 1])
def test_the_transfers_of_an_mlp_have_roles_and_sizes(folder: Path, kind: int) -> None:
    sizes = {"W1": 313600, "b1": 400, "W2": 4000}
    expected = {("variable read", n) for n in sizes.values()} | {(f"gradient of {k}", n) for k, n in sizes.items()}
    assert roles(folder, f"mlp_{kind}") == expected


@pytest.mark.parametrize("kind", [0, 1])
def test_the_transfers_of_a_cnn_have_roles_and_sizes(folder: Path, kind: int) -> None:
    sizes = {"W1": 3200, "W2": 250880}
    expected = {("variable read", n) for n in sizes.values()} | {(f"gradient of {k}", n) for k, n in sizes.items()}
    assert roles(folder, f"cnn_{kind}") == expected


def test_the_transfers_of_an_lstm_have_roles_and_sizes(folder: Path) -> None:
    expected = {("variable read", 24576), ("gradient of kernel", 24576)}
    assert roles(folder, "lstm_0") == expected
    # The read is inside the loop, so the loop also runs on the ps, which receives the loop condition.
    assert roles(folder, "lstm_1") == expected | {("condition", 1)}


def test_a_graph_that_needs_soft_placement_is_reported(folder: Path) -> None:
    placement = [w.text for w in inspected(folder, "lstm_1").warnings if w.kind == "placement"]
    assert len(placement) == 1 and "a session refuses this graph: Cannot colocate nodes" in placement[0]


@pytest.mark.parametrize("kind", [0, 1])
def test_the_transfers_of_a_partitioned_embedding_have_roles(folder: Path, kind: int) -> None:
    found = roles(folder, f"embedding_{kind}")
    assert {role for role, _ in found} == {
        *(
            f"{what} emb/part_{i}"
            for what in ("rows of", "ids for", "gradient of", "ids of the gradient of")
            for i in range(8)
        ),
        "variable read",
        "gradient of W",
    }
