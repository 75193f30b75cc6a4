"""Datasets of CSV files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfmini as tf

Dataset = tf.data.Dataset
experimental = tf.data.experimental


def test_a_malformed_record_fails_one_read_only(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1,2\n3\n5,6\r\n")
    iterator = experimental.CsvDataset(str(path), [tf.int32, tf.int32]).make_one_shot_iterator()
    element = iterator.get_next()
    with tf.Session() as session:
        assert session.run(element) == (1, 2)
        with pytest.raises(tf.errors.InvalidArgumentError, match="Expect 2 fields but have 1 in record"):
            session.run(element)
        assert session.run(element) == (5, 6)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"select_columns": [7]}, "Column index 7 specified in select_columns out of valid range"),
        ({"select_columns": ["z"]}, "Value 'z' specified in select_columns not a valid column index or name"),
        ({"select_columns": ["a", 0]}, "select_columns contains duplicate columns"),
        ({"select_columns": ["a"], "column_defaults": [tf.int32] * 2}, "must have same length"),
        ({"label_name": "z"}, "`label_name` provided must be one of the columns"),
        ({"column_names": ["a", "a"]}, "Cannot have duplicate column names"),
        ({"header": False}, "Cannot infer column names without a header line"),
        ({"compression_type": "ZLIB"}, "not supported for probing columns"),
    ],
)
def test_wrong_columns_are_refused(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=text):
        experimental.make_csv_dataset(str(tmp_path / "*.csv"), 2, **options)


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No files match"):
        experimental.make_csv_dataset(str(tmp_path / "*.csv"), 2)
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(ValueError, match="Empty file"):
        experimental.make_csv_dataset(str(tmp_path / "a.csv"), 2)
    (tmp_path / "b.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(ValueError, match="different number of fields than expected"):
        experimental.make_csv_dataset(str(tmp_path / "b.csv"), 2)
    (tmp_path / "c.csv").write_text("a,c\n1,2\n")
    with pytest.raises(ValueError, match="different column names"):
        experimental.make_csv_dataset([str(tmp_path / "b.csv"), str(tmp_path / "c.csv")], 2)


def test_types_of_columns_are_the_least_permissive(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("i,l,f,d,s,e\n1,1,2,3,1,\n2,5000000000,.5,1e300,x,\n")
    data = experimental.make_csv_dataset(str(tmp_path / "a.csv"), 2)
    types = [data.output_types[name].name for name in ("i", "l", "f", "d", "s", "e")]
    assert types == ["int32", "int64", "float32", "float64", "string", "string"]
    assert data.output_shapes["i"].as_list() == [2]
