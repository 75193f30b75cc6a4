"""Element types: how run-time messages name them."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf
from tfmini.dtypes import cpp_name


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (tf.float16, "half"), (tf.float32, "float"), (tf.float64, "double"), (tf.bfloat16, "bfloat16"),
        (tf.int32, "int32"), (tf.string, "string"), (tf.as_dtype("float64_ref"), "double_ref"),
        (np.dtype("f2"), "half"),
    ],
)  # fmt: skip
def test_names_in_messages_are_those_of_tensorflows_runtime(dtype: object, name: str) -> None:
    assert cpp_name(dtype) == name  # type: ignore[arg-type]


def test_two_queues_of_one_name_are_told_apart_by_these_names() -> None:
    queues = [tf.FIFOQueue(1, dtype, shared_name="named") for dtype in (tf.float16, tf.bfloat16)]
    text = "Shared queue 'named' has component types half but requested component types were bfloat16"
    with tf.Session() as session:
        session.run(queues[0].size())
        with pytest.raises(tf.errors.InvalidArgumentError, match=text):
            session.run(queues[1].size())


@pytest.mark.parametrize("value", [None, list, dict, "no type"])
def test_what_is_no_type_is_refused(value: object) -> None:
    """numpy takes None for float64, and a class that it does not know for objects."""
    with pytest.raises(TypeError, match="Cannot convert value"):
        tf.as_dtype(value)
    with pytest.raises(TypeError):
        tf.cast(tf.constant(1), value)


def test_booleans_and_strings_are_pythons_types() -> None:
    assert tf.bool.as_numpy_dtype is bool
    assert tf.string.as_numpy_dtype is object
    assert np.zeros(2, tf.bool.as_numpy_dtype).dtype == np.bool_
