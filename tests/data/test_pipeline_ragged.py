"""Ragged tensors in pipelines: the types of their row splits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf

Dataset = tf.data.Dataset


def _batches_of_slices(splits: Any) -> Any:
    return Dataset.from_tensor_slices(tf.RaggedTensor.from_row_splits([1, 2, 3], splits)).batch(2)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_batches_of_ragged_rows_keep_the_type_of_the_splits(dtype: Any, again: bool) -> None:
    data = _batches_of_slices(np.array([0, 2, 2, 3], dtype))
    element = (data.unbatch().batch(2) if again else data).make_one_shot_iterator().get_next()
    with tf.Session() as session:
        found = [session.run(element) for _ in range(2)]
    assert [value.to_list() for value in found] == [[[1, 2], []], [[3]]]
    assert [value.row_splits.dtype for value in found] == [dtype, dtype]


def test_nested_ragged_rows_keep_the_type_of_the_splits() -> None:
    splits = [np.array([0, 2, 3], np.int32), np.array([0, 1, 1, 3], np.int32)]
    rows = Dataset.from_tensor_slices(tf.RaggedTensor.from_nested_row_splits([1, 2, 3], splits))
    element = rows.unbatch().batch(3).make_one_shot_iterator().get_next()
    with tf.Session() as session:
        found = session.run(element)
    assert found.to_list() == [[1], [], [2, 3]] and found.row_splits.dtype == np.int32


def test_values_of_ragged_constants_have_types_of_numpy() -> None:
    found = tf.ragged.constant_value([[b"a"], [b"bc"]], dtype=bytes)
    assert found.values.dtype == np.dtype("S2") and found.to_list() == [[b"a"], [b"bc"]]
    assert [tf.ragged.constant_value([[1]], dtype=kind).values.dtype for kind in (np.int32, tf.int64)] == ["i4", "i8"]
