"""What a dataset yields behind an element that fails, beside TensorFlow 1.15.5."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.data.elements import elements

Dataset = tf.data.Dataset
experimental = tf.data.experimental
BAD = float("nan")


def checked(x: Any) -> Any:
    return tf.check_numerics(x, "bad")


def values() -> Any:
    return Dataset.from_tensor_slices(np.float32([1, BAD, 2, BAD, 3, 4, 5, 6, BAD, 7])).map(checked)


def survivors(data: Any) -> list[Any]:
    return elements(data.apply(experimental.ignore_errors()))


@pytest.mark.parametrize(
    "transform, expected",
    [
        (lambda d: d.take(3), [1, 2, 3]),
        (lambda d: d.skip(2), [3, 4, 5, 6, 7]),
        (lambda d: d.shard(2, 0), [1, 3, 5, 7]),
        (lambda d: d.batch(2), [[3, 4], [5, 6]]),
        (lambda d: d.filter(lambda x: x > 0).batch(2), [[3, 4], [5, 6], [7]]),
        (lambda d: d.window(2, 2, 2).flat_map(lambda w: w.batch(2)), [[1, 2], [2, 3], [3, 5]]),
        (lambda d: d.window(1, 3).flat_map(lambda w: w), [1, 5, 7]),
    ],
)
def test_an_error_is_no_element(transform: Any, expected: list[Any]) -> None:
    assert [np.array(value).tolist() for value in survivors(transform(values()))] == expected


def fails_at_5(x: Any) -> Any:
    return x + tf.cast(checked(tf.where(tf.equal(x, 5), BAD, 0.0)), tf.int64)


@pytest.mark.parametrize(
    "transform, expected",
    [
        (lambda d, f: d.interleave(f, 2), [4, 6, 4, 6, 4, 6, 4, 6, 6, 6]),
        (lambda d, f: d.interleave(f, 2, num_parallel_calls=2), [4, 4, 4, 6, 4, 6, 6, 6, 6, 6]),
        (lambda d, f: d.interleave(f, 2, 2, num_parallel_calls=1), [4, 4, 4, 4, 6, 6, 6, 6, 6, 6]),
        (lambda d, f: d.apply(experimental.parallel_interleave(f, 2)), [4, 4, 4, 6, 4, 6, 6, 6, 6, 6]),
    ],
)
def test_a_failed_call_of_a_parallel_interleave_takes_its_turn(transform: Any, expected: list[int]) -> None:
    numbers = Dataset.range(4, 7)
    assert survivors(transform(numbers, lambda x: Dataset.from_tensors(x).repeat(fails_at_5(x)))) == expected


def test_a_failed_element_takes_its_turn_in_a_parallel_interleave() -> None:
    def parts(x: Any) -> Any:
        return Dataset.range(2).map(lambda y: fails_at_5(10 * x + y - 35))

    numbers = Dataset.range(3, 5)
    assert survivors(numbers.interleave(parts, 2, num_parallel_calls=2)) == [-5, -4, 6]
    assert survivors(numbers.interleave(parts, 2)) == [-5, 6, -4]


def test_more_parallel_calls_than_datasets_are_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="less than or equal to cycle_length"):
        elements(Dataset.range(3).interleave(Dataset.range, 2, num_parallel_calls=3))


def test_an_interleave_reads_as_many_datasets_as_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 4}, raising=False)
    numbers, twice = Dataset.range(4), lambda x: Dataset.from_tensors(x).repeat(2)
    for dataset in (numbers.interleave(twice), numbers.interleave(twice, -1, num_parallel_calls=-1)):
        assert elements(dataset) == [0, 1, 2, 0, 1, 2, 3, 3]


def test_a_damaged_file_ends_at_its_error(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in "abc"]
    for path in paths:
        with tf.python_io.TFRecordWriter(path) as writer:
            for number in range(2):
                writer.write(f"{path[-1]}{number}".encode())
    damaged = Path(paths[1])
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert survivors(tf.data.TFRecordDataset(paths)) == [b"a0", b"a1", b"b0", b"c0", b"c1"]
