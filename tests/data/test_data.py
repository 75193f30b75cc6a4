"""Elements, types, shapes and errors of pipelines, against TensorFlow's."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf
from tests.data import dataset_cases as cases
from tests.oracle import Oracle, sent

# TensorFlow 1.15 says it so; the oracle is a later release.
OWN_WORDS = {"stack", "generator_shape", "row_shape"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The files that the cases read."""
    path = str(tmp_path_factory.mktemp("data"))
    cases.write_files(path)
    with tf.python_io.TFRecordWriter(path + "/r.tfrecord") as writer:
        for record in (b"abc", b"", b"x" * 100):
            writer.write(record)
    with tf.python_io.TFRecordWriter(path + "/e.tfrecord") as writer:
        for i in range(5):
            writer.write(example(i).SerializeToString())
    return path


def example(i: int) -> Any:
    """An Example message with an integer, two floats and ``i`` words."""
    feature = tf.train.Feature
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                "a": feature(int64_list=tf.train.Int64List(value=[i])),
                "b": feature(float_list=tf.train.FloatList(value=[i, i / 2])),
                "c": feature(bytes_list=tf.train.BytesList(value=[b"w"] * i)),
            }
        )
    )


@pytest.fixture(scope="module")
def expected(oracle: Oracle, folder: str) -> dict[str, Any]:
    """What TensorFlow makes of the cases: one process for all of them."""
    return oracle.call(cases.run_all, folder)


@pytest.fixture(scope="module")
def ours(folder: str) -> dict[str, Any]:
    return sent(cases.run_all(tf, folder))


@pytest.mark.oracle
@pytest.mark.parametrize("name", [*cases.CASES, *cases.ERRORS])
def test_elements_types_and_errors_are_tensorflows(name: str, ours: dict[str, Any], expected: dict[str, Any]) -> None:
    facts, elements, kind, message = ours[name]
    assert [facts, elements, kind] == expected[name][:3]
    if name not in OWN_WORDS:
        assert message.split("\n")[0].split(", not")[0].split(" Dimension")[0] in expected[name][3]


@pytest.mark.oracle
@pytest.mark.parametrize("name", list(cases.REDUCTIONS))
def test_reductions_are_tensorflows(name: str, ours: dict[str, Any], expected: dict[str, Any]) -> None:
    assert ours[name] == expected[name]


def test_a_reduction_keeps_the_number_of_components() -> None:
    numbers = tf.data.Dataset.range(3)
    for first, function, counts in ((0, lambda s, x: (), "1, output=0"), ((0, 1), lambda s, x: 0, "2, output=1")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"initial_state={counts}"):
            numbers.reduce(first, function)
    with tf.Session() as session:
        assert session.run(numbers.reduce({"a": 0}, lambda state, x: {"b": state["a"] + 1})) == {"a": 3}


def test_a_dataset_knows_the_datasets_that_it_reads() -> None:
    inputs, count = "_inputs", tf.data.Dataset.range
    first, second = count(3), count(4)
    for made in (first.batch(2), first.map(lambda x: x), first.filter(lambda x: x > 1), first.repeat().prefetch(1)):
        read = getattr(made, inputs)()
        assert len(read) == 1 and (read[0] is first or getattr(read[0], inputs)() == [first])
    assert getattr(first.concatenate(second), inputs)() == [first, second]
    assert getattr(tf.data.Dataset.zip((first, {"a": second})), inputs)() == [first, second]
    assert getattr(first, inputs)() == []


def test_the_spec_of_a_dataset_and_an_iterator_of_another_graph(caplog: pytest.LogCaptureFixture) -> None:
    made = tf.data.Dataset.range(4).window(2)
    spec = tf.data.DatasetSpec(tf.TensorSpec([], tf.int64))
    assert made.element_spec == spec
    take, give = (getattr(spec, name) for name in ("_to_tensor_list", "_from_tensor_list"))
    again = give(take(tf.data.Dataset.range(2))).make_one_shot_iterator().get_next()
    with tf.Session() as session:
        assert [session.run(again), session.run(again)] == [0, 1]
    with tf.Graph().as_default():
        made.make_one_shot_iterator()
    assert "created in the same graph as the iterator" in caplog.text
