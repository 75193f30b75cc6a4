"""Tables and data sets of ``tf.contrib.learn``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tfmini as tf

base = tf.contrib.learn.datasets.base


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("2,2,a,b\n1.5,2,0\n3,4,1\n")
    found = base.load_csv_with_header(filename=str(path), target_dtype=np.int64, features_dtype=np.float32)
    assert found.data.dtype == np.float32 and found.data.tolist() == [[1.5, 2], [3, 4]]
    assert found.target.dtype == np.int64 and found.target.tolist() == [0, 1]
    path.write_text("7,1,2\n8,3,4\n")
    found = base.load_csv_without_header(str(path), np.int32, np.int32, target_column=0)
    assert found.data.tolist() == [[1, 2], [3, 4]] and found.target.tolist() == [7, 8]


def test_data_sets_by_name() -> None:
    with pytest.raises(ValueError, match="dbpedia"):
        tf.contrib.learn.datasets.load_dataset("dbpedia")
    with pytest.raises(tf.errors.NotFoundError, match="MNIST-data"):
        tf.contrib.learn.datasets.load_dataset("mnist")
