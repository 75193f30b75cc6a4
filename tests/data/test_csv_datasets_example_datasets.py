"""Datasets of Example messages."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf
from tests.data.elements import elements

Dataset = tf.data.Dataset
experimental = tf.data.experimental


def test_records_are_parsed_shuffled_and_batched(tmp_path: Path) -> None:
    path = str(tmp_path / "r.tfrecord")
    features = {"x": tf.FixedLenFeature([], tf.int64)}
    with tf.python_io.TFRecordWriter(path) as writer:
        for i in range(20):
            value = tf.train.Feature(int64_list=tf.train.Int64List(value=[i]))
            writer.write(tf.train.Example(features=tf.train.Features(feature={"x": value})).SerializeToString())
    data = experimental.make_batched_features_dataset(path, 6, features, num_epochs=2, drop_final_batch=True)
    batches = [batch["x"].tolist() for batch in elements(data)]
    assert [len(batch) for batch in batches] == [6] * 6
    assert len({x for batch in batches for x in batch}) == 20
    with pytest.raises(ValueError, match="label_key"):
        experimental.make_batched_features_dataset(path, 6, features, label_key="y")
    with pytest.raises(TypeError, match="`tf.ReaderBase` subclasses are not supported"):
        experimental.make_batched_features_dataset(path, 6, features, reader=tf.TFRecordReader)
