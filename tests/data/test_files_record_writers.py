"""Datasets written as files of records."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf
from tests.data.elements import elements

Dataset = tf.data.Dataset
experimental = tf.data.experimental


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_dataset_of_strings_is_written_as_records(tmp_path: Path, compression: str) -> None:
    path = str(tmp_path / "r.tfrecord")
    words = Dataset.from_tensor_slices(["a", "bc", ""])
    with tf.Session() as session:
        session.run(experimental.TFRecordWriter(path, compression).write(words))
    assert elements(tf.data.TFRecordDataset(path, compression)) == [b"a", b"bc", b""]
    for wrong in (Dataset.range(3), words.batch(2)):
        with pytest.raises(TypeError, match="must produce scalar `DT_STRING` tensors"):
            experimental.TFRecordWriter(path).write(wrong)
