"""Sparse tensors as serialized tensors, and back."""

from __future__ import annotations

from typing import Any

import pytest

import tfmini as tf
from tests.ops.session_run import run


@pytest.mark.parametrize("kind", [tf.string, tf.variant])
def test_a_serialized_sparse_tensor_is_read_back(kind: Any) -> None:
    sparse = tf.SparseTensor([[0, 1], [2, 0]], ["a", "b"], [3, 2])
    back = run(tf.io.deserialize_sparse(tf.serialize_sparse(sparse, out_type=kind), tf.string))
    assert back.indices.tolist() == [[0, 1], [2, 0]] and list(back.values) == [b"a", b"b"]
    rows = run(tf.deserialize_many_sparse(tf.serialize_many_sparse(sparse), tf.string))
    assert rows.indices.tolist() == [[0, 1], [2, 0]] and rows.dense_shape.tolist() == [3, 2]


def test_text_that_is_no_message_is_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="Could not parse serialized proto"):
        run(tf.io.deserialize_sparse(["x", "y", "z"], tf.int32))
