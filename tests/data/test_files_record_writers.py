"""Datasets written as files of records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tfmini as tf
from tests.data.elements import elements
from tfmini.data.files import RecordInput

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


def test_record_input_draws_each_record_once_in_a_pass(tmp_path: Path) -> None:
    for i in range(3):
        with tf.python_io.TFRecordWriter(str(tmp_path / f"{i}.rec")) as writer:
            for j in range(4):
                writer.write(f"{i}{j}".encode())
    given = str(tmp_path / "*.rec")
    with tf.Graph().as_default(), tf.Session() as session:
        one = RecordInput(given, batch_size=4, buffer_size=5, parallelism=2).get_yield_op()
        several = RecordInput(given, batch_size=2, batches=3).get_yield_op()
        passes = [sorted(np.concatenate([session.run(one) for _ in range(3)])) for _ in range(2)]
        assert passes == [sorted(f"{i}{j}".encode() for i in range(3) for j in range(4))] * 2
        assert np.shape(session.run(several)) == (3, 2)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"No files matched pattern: .*nothing"):
            session.run(RecordInput(str(tmp_path / "nothing*")).get_yield_op())


def test_record_input_takes_each_form_of_a_compression(tmp_path: Path) -> None:
    gzip = tf.python_io.TFRecordCompressionType.GZIP
    path = str(tmp_path / "records")
    with tf.python_io.TFRecordWriter(path, tf.python_io.TFRecordOptions(gzip)) as writer:
        writer.write(b"a")
    with tf.Session() as session:
        for kind in (gzip, "GZIP", tf.python_io.TFRecordOptions(gzip)):
            assert session.run(RecordInput(path, compression_type=kind).get_yield_op()) == [b"a"]
