"""The rows of SQLite's queries."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tests.data.elements import elements


def rows(folder: Path, query: str, types: Any, driver: str = "sqlite") -> list[Any]:
    path = folder / "a b.sqlite"
    if not path.exists():
        with contextlib.closing(sqlite3.connect(path)) as made, made:
            made.execute("CREATE TABLE t (name TEXT, number INTEGER, real FLOAT)")
            made.executemany("INSERT INTO t VALUES (?, ?, ?)", [("12nd", 300, 1.5), (None, -1, None)])
    return elements(tf.data.experimental.SqlDataset(driver, str(path), query, types))


def test_columns_have_the_wanted_types(tmp_path: Path) -> None:
    types: Any = (tf.string, tf.int64, tf.float64)
    assert rows(tmp_path, "SELECT * FROM t", types) == [(b"12nd", 300, 1.5), (b"", -1, 0.0)]
    types = (tf.int32, tf.uint8, tf.bool)
    assert rows(tmp_path, "SELECT * FROM t", types) == [(12, 44, True), (0, 255, False)]
    assert rows(tmp_path, "SELECT number FROM t WHERE number > 400", (tf.string,)) == []


@pytest.mark.parametrize(
    "query, driver, error",
    [
        ("SELECT name FROM t", "oracle", tf.errors.InvalidArgumentError),
        ("SELECT name, number FROM t", "sqlite", tf.errors.InvalidArgumentError),
        ("DELETE FROM t", "sqlite", tf.errors.InvalidArgumentError),
        ("SELECT other FROM t", "sqlite", tf.errors.UnknownError),
        ("SELEKT name FROM t", "sqlite", tf.errors.UnknownError),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, query: str, driver: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        rows(tmp_path, query, (tf.string,), driver)


def test_a_number_that_is_no_int64_is_the_nearest_one(tmp_path: Path) -> None:
    query = "SELECT 1e30 UNION ALL SELECT -1e30 UNION ALL SELECT -2.7"
    assert rows(tmp_path, query, (tf.int64,)) == [(2**63 - 1,), (-(2**63),), (-2,)]
