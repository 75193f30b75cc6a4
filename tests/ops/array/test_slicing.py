"""Indices of tensors."""

from __future__ import annotations

from typing import Any

import tfmini as tf


class Index:
    """An object of a library that becomes a tensor."""

    def __init__(self, value: int) -> None:
        self.value = value


def _converted(index: Index, dtype: Any = None, name: str | None = None, as_ref: bool = False) -> tf.Tensor:
    return tf.constant(index.value, dtype, name=name)


tf.register_tensor_conversion_function(Index, _converted)


def test_an_index_may_be_an_object_with_a_conversion_function() -> None:
    x = tf.constant([1, 2, 3])
    with tf.Session() as session:
        one, some = session.run([x[Index(1)], x[Index(1) :]])
    assert one == 2 and some.tolist() == [2, 3]
