"""Transformations of `tf.data.experimental`."""

from __future__ import annotations

import pytest

import tfmini as tf

Dataset = tf.data.Dataset
experimental = tf.data.experimental


def test_wrong_arguments_of_transformations_are_refused() -> None:
    numbers, words = Dataset.range(3), Dataset.from_tensor_slices(["a"])
    for call, kind, text in [
        (lambda: experimental.choose_from_datasets([numbers, words], numbers), TypeError, "must have the same type"),
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


def test_a_traced_function_sees_the_collections_of_the_graph() -> None:
    with tf.Graph().as_default():
        variable, seen = tf.get_variable("w", []), []
        tf.data.Dataset.range(1).map(lambda x: seen.append(tf.global_variables()) or x)
        assert seen == [[variable]]
