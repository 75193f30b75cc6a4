"""Checkpoints, MetaGraphs and SavedModels between tfmini and TensorFlow, both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tests.checkpoint import exchange
from tests.oracle import Oracle, sent

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def exchanged(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """The directory, the tensors that TensorFlow read from our files, and ours from its files."""
    directory = tmp_path_factory.mktemp("exchange")
    (directory / "ours").mkdir()
    exchange.write_all(tf, directory / "ours")
    theirs = oracle.call(exchange.write_and_read, str(directory))
    return directory, theirs, exchange.read_all(tf, directory / "theirs")


def _own(directory: Path) -> dict[str, Any]:
    return sent(exchange.read_all(tf, directory / "ours"))


def test_tensorflow_reads_files_of_tfmini(exchanged: Any) -> None:
    directory, found, _ = exchanged
    expected = _own(directory)
    assert sorted(found) == sorted(expected)
    for part, values in expected.items():
        assert found[part] == values, part


def test_tfmini_reads_files_of_tensorflow(exchanged: Any) -> None:
    directory, _, found = exchanged
    expected = _own(directory)
    for part, values in sent(found).items():
        assert values == expected[part], part


@pytest.mark.parametrize("prefix", ["dtypes", "slices", "many", "merged"])
def test_the_bytes_are_the_same(exchanged: Any, prefix: str) -> None:
    directory, _, _ = exchanged
    names = sorted(path.name for path in (directory / "theirs").glob(f"{prefix}.*"))
    assert names == sorted(path.name for path in (directory / "ours").glob(f"{prefix}.*"))
    for name in names:
        assert (directory / "ours" / name).read_bytes() == (directory / "theirs" / name).read_bytes(), name
