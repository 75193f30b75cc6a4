"""Elements grouped by key or by length."""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.data.elements import elements

Dataset = tf.data.Dataset
experimental = tf.data.experimental


def test_an_element_beyond_the_last_boundary_is_refused() -> None:
    data = Dataset.from_tensor_slices([[1, 2, 3]]).apply(
        experimental.bucket_by_sequence_length(tf.size, [2], [1, 1], pad_to_bucket_boundary=True)
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="elements must have length < max"):
        elements(data)
