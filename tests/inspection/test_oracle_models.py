"""GraphDefs that TensorFlow itself wrote: eight ps, sixteen workers, reference and resource variables."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tfmini.inspection.api import inspect

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    python = os.environ.get("TFMINI_ORACLE")
    if not python:
        pytest.skip("set TFMINI_ORACLE to the Python of an environment with TensorFlow")
    path = tmp_path_factory.mktemp("models")
    script = Path(__file__).with_name("oracle_models.py")
    subprocess.run([python, script, path], check=True, capture_output=True, timeout=110)
    return path


def roles(folder: Path, name: str) -> set[tuple[str, int | None]]:
    found = inspect(folder / f"{name}.pb", ps=8, workers=16, master="/job:worker/task:3", batch=64)
    assert [str(w) for w in found.warnings] == []
    assert len(found.devices) == 24 and found.targets == ("Adagrad",)
    return {(t.role, t.bytes) for t in found.transfers if not t.control}


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
    assert roles(folder, "lstm_0") == {("variable read", 24576), ("gradient of kernel", 24576)}


@pytest.mark.parametrize("kind", [0, 1])
def test_partitioned_embedding(folder: Path, kind: int) -> None:
    found = roles(folder, f"embedding_{kind}")
    assert {role for role, _ in found} == {
        *(f"{what} emb/part_{i}" for what in ("rows of", "ids for", "gradient of") for i in range(8)),
        "variable read",
        "gradient of W",
    }
