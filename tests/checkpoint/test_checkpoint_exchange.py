"""Checkpoints, MetaGraphs and SavedModels between tfmini and TensorFlow, both ways."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tests.checkpoint import exchange

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def exchanged(oracle: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """The directory, what TensorFlow found in our files, and what we find in its own."""
    directory = tmp_path_factory.mktemp("exchange")
    (directory / "ours").mkdir()
    exchange.write_all(tf, directory / "ours")
    script = Path(exchange.__file__).with_name("oracle_side.py")
    env = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        [oracle, str(script), str(directory)], capture_output=True, text=True, timeout=900, env=env, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return directory, json.loads(done.stdout.splitlines()[-1]), exchange.read_all(tf, directory / "theirs")


def _own(directory: Path) -> dict[str, Any]:
    return json.loads(json.dumps(exchange.read_all(tf, directory / "ours")))


def test_tensorflow_reads_ours(exchanged: Any) -> None:
    directory, found, _ = exchanged
    expected = _own(directory)
    assert sorted(found) == sorted(expected)
    for part, values in expected.items():
        assert found[part] == values, part


def test_we_read_tensorflows(exchanged: Any) -> None:
    directory, _, found = exchanged
    expected = _own(directory)
    for part, values in json.loads(json.dumps(found)).items():
        assert values == expected[part], part


@pytest.mark.parametrize("prefix", ["dtypes", "slices", "many", "merged"])
def test_the_bytes_are_the_same(exchanged: Any, prefix: str) -> None:
    directory, _, _ = exchanged
    names = sorted(path.name for path in (directory / "theirs").glob(f"{prefix}.*"))
    assert names == sorted(path.name for path in (directory / "ours").glob(f"{prefix}.*"))
    for name in names:
        assert (directory / "ours" / name).read_bytes() == (directory / "theirs" / name).read_bytes(), name


