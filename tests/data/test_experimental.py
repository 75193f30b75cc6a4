"""Datasets of `tf.data.experimental` beyond their elements: files that are written, arguments that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf

Dataset = tf.data.Dataset
experimental = tf.data.experimental


def drain(session: Any, element: Any) -> list[Any]:
    found = []
    while True:
        try:
            found.append(session.run(element))
        except tf.errors.OutOfRangeError:
            return found


def elements(dataset: Any) -> list[Any]:
    iterator = dataset.make_initializable_iterator()
    element = iterator.get_next()
    with tf.Session() as session:
        session.run(iterator.initializer)
        return drain(session, element)


# ---- a cache in files -----------------------------------------------------------------------


def test_a_cache_outlives_its_session(tmp_path: Path) -> None:
    path = str(tmp_path / "deeper" / "cache")
    first = Dataset.from_tensor_slices(([1, 2], ["a", "b"])).cache(path)
    assert elements(first) == [(1, b"a"), (2, b"b")]
    with tf.Graph().as_default():
        assert elements(Dataset.from_tensor_slices(([7], ["x"])).cache(path)) == [(1, b"a"), (2, b"b")]


def test_a_reading_that_stops_early_leaves_no_cache(tmp_path: Path) -> None:
    path = str(tmp_path / "cache")
    iterator = Dataset.range(5).cache(path).make_initializable_iterator()
    element = iterator.get_next()
    with tf.Session() as session:
        session.run(iterator.initializer)
        assert session.run(element) == 0
        assert (tmp_path / "cache.lockfile").exists()
        session.run(iterator.initializer)
        assert list(tmp_path.iterdir()) == []
        assert drain(session, element) == [0, 1, 2, 3, 4]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache.data-00000-of-00001", "cache.index"]


def test_two_cannot_write_one_cache(tmp_path: Path) -> None:
    path = str(tmp_path / "cache")
    readers = [Dataset.range(3).cache(path).make_initializable_iterator() for _ in range(2)]
    a, b = [reader.get_next() for reader in readers]
    with tf.Session() as session:
        session.run([reader.initializer for reader in readers])
        assert session.run(a) == 0
        with pytest.raises(tf.errors.AlreadyExistsError, match="concurrent caching iterator.*cache.lockfile"):
            session.run(b)
        assert drain(session, a) == [1, 2]
        session.run(readers[1].initializer)
        assert drain(session, b) == [0, 1, 2]


def test_a_cache_in_files_is_of_dense_tensors(tmp_path: Path) -> None:
    data = Dataset.from_tensors(tf.SparseTensor([[0]], [1], [2])).cache(str(tmp_path / "cache"))
    with pytest.raises(tf.errors.UnimplementedError, match="dense tensors only"):
        elements(data)
    assert list(tmp_path.iterdir()) == []


# ---- records --------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_writing_a_dataset_as_records(tmp_path: Path, compression: str) -> None:
    path = str(tmp_path / "r.tfrecord")
    words = Dataset.from_tensor_slices(["a", "bc", ""])
    with tf.Session() as session:
        session.run(experimental.TFRecordWriter(path, compression).write(words))
    assert elements(tf.data.TFRecordDataset(path, compression)) == [b"a", b"bc", b""]
    for wrong in (Dataset.range(3), words.batch(2)):
        with pytest.raises(TypeError, match="must produce scalar `DT_STRING` tensors"):
            experimental.TFRecordWriter(path).write(wrong)


def test_many_records_in_batches(tmp_path: Path) -> None:
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


# ---- CSV ------------------------------------------------------------------------------------


def test_a_bad_record_costs_that_record(tmp_path: Path) -> None:
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
def test_wrong_columns(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=text):
        experimental.make_csv_dataset(str(tmp_path / "*.csv"), 2, **options)


def test_wrong_csv_files(tmp_path: Path) -> None:
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


# ---- choices --------------------------------------------------------------------------------


def test_samples_follow_their_weights() -> None:
    parts = [Dataset.from_tensors(np.int64(i)).repeat() for i in range(3)]
    for weights in ([0.5, 0.0, 0.5], Dataset.from_tensors([0.5, 0.0, 0.5]).repeat()):
        found = elements(experimental.sample_from_datasets(parts, weights, seed=3).take(60))
        assert set(found) == {0, 2}
    assert set(elements(experimental.sample_from_datasets(parts, seed=3).take(60))) == {0, 1, 2}


def test_refused_arguments() -> None:
    numbers, words = Dataset.range(3), Dataset.from_tensor_slices(["a"])
    for call, kind, text in [
        (lambda: experimental.choose_from_datasets([numbers, words], numbers), TypeError, "compatible types"),
        (lambda: experimental.choose_from_datasets([numbers], words), TypeError, "scalar `tf.int64`"),
        (lambda: experimental.sample_from_datasets([numbers] * 2, [1.0]), ValueError, "length `len"),
        (lambda: experimental.sample_from_datasets([numbers] * 2, [1, 2]), TypeError, "`tf.float32` or"),
        (lambda: numbers.apply(experimental.take_while(lambda x: x)), ValueError, "scalar boolean"),
        (lambda: numbers.batch(2).map(tf.to_float).apply(experimental.unique()), TypeError, "single `tf.int32`"),
        (lambda: experimental.group_by_window(lambda x: x, lambda k, w: w), ValueError, "either window_size or"),
        (lambda: numbers.apply(experimental.group_by_window(lambda x: x, lambda k, w: k, 2)), TypeError, "return a `D"),
        (lambda: numbers.apply(experimental.group_by_window(tf.to_float, lambda k, w: w, 2)), ValueError, "`key_func`"),
        (lambda: experimental.bucket_by_sequence_length(tf.size, [3], [1]), ValueError, "len.bucket_batch_sizes"),
        (lambda: experimental.parse_example_dataset(None), ValueError, "Missing: features"),
        (lambda: numbers.apply(experimental.parse_example_dataset({})), TypeError, "vectors of strings"),
    ]:
        with pytest.raises(kind, match=text):
            call()


def test_an_element_beyond_the_last_boundary() -> None:
    data = Dataset.from_tensor_slices([[1, 2, 3]]).apply(
        experimental.bucket_by_sequence_length(tf.size, [2], [1, 1], pad_to_bucket_boundary=True)
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="elements must have length < max"):
        elements(data)


def test_an_optional_without_a_value() -> None:
    iterator = Dataset.range(1).make_one_shot_iterator()
    optional = experimental.get_next_as_optional(iterator)
    none = experimental.Optional.none_from_structure(optional.value_structure)
    with tf.Session() as session:
        assert session.run([optional.has_value(), optional.get_value()]) == [True, 0]
        assert not session.run(optional.has_value())
        with pytest.raises(tf.errors.InvalidArgumentError, match="does not have a value"):
            session.run(none.get_value())


# ---- how many elements ----------------------------------------------------------------------

COUNTED = {
    "slices": lambda d: Dataset.from_tensor_slices([[1], [2], [3]]),
    "one": lambda d: Dataset.from_tensors([1, 2]),
    "map": lambda d: d.map(lambda x: x, 2).shuffle(3).prefetch(2).cache(),
    "batch": lambda d: d.batch(2),
    "batch_drop": lambda d: d.batch(2, drop_remainder=True),
    "take": lambda d: d.take(3),
    "take_more": lambda d: d.take(9),
    "take_all": lambda d: d.take(-1),
    "skip": lambda d: d.skip(2),
    "skip_more": lambda d: d.skip(9),
    "shard": lambda d: d.shard(3, 1),
    "repeat": lambda d: d.repeat(3),
    "never": lambda d: d.repeat(0),
    "part of what has no end": lambda d: d.repeat().take(4),
    "zip": lambda d: Dataset.zip((d, d.repeat(), d.skip(1))),
    "concatenate": lambda d: d.concatenate(d),
    "window": lambda d: d.window(2, 1, drop_remainder=True),
    "window_gap": lambda d: d.window(2, 3),
    "window_stride": lambda d: d.window(2, 1, 2, drop_remainder=True),
    "nothing": lambda d: d.skip(9).repeat(),
}


@pytest.mark.parametrize("name", list(COUNTED))
def test_the_number_of_elements_is_known_beforehand(name: str) -> None:
    data = COUNTED[name](Dataset.range(5))
    with tf.Session() as session:
        count = session.run(experimental.cardinality(data))
    if "window" in name:
        data = data.flat_map(lambda w: w.batch(9))
    assert count == len(elements(data))


def test_numbers_that_are_not_known() -> None:
    data = Dataset.range(5)
    odd = data.filter(lambda x: x > 2)
    for made, expected in [
        (data.repeat(), experimental.INFINITE_CARDINALITY),
        (data.repeat().batch(2).concatenate(odd), experimental.INFINITE_CARDINALITY),
        (odd.repeat(), experimental.INFINITE_CARDINALITY),
        (odd.batch(2), experimental.UNKNOWN_CARDINALITY),
        (odd.take(2), experimental.UNKNOWN_CARDINALITY),
        (data.flat_map(lambda x: Dataset.range(x)), experimental.UNKNOWN_CARDINALITY),
        (Dataset.zip((data, odd)), experimental.UNKNOWN_CARDINALITY),
        (Dataset.zip((data.repeat(), data.repeat())), experimental.INFINITE_CARDINALITY),
    ]:
        with tf.Session() as session:
            assert session.run(experimental.cardinality(made)) == expected
