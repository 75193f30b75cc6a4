"""Constants of Python values."""

from __future__ import annotations

import pytest

import tfmini as tf
from tests.ops.session_run import run


def test_a_list_of_text_and_bytes_becomes_strings() -> None:
    assert run(tf.constant(["ab", b"\xff"])).tolist() == [b"ab", b"\xff"]


def test_a_bool_is_a_number_where_a_number_is_wanted() -> None:
    assert run(tf.constant(True, tf.float32)).item() == 1.0
    assert run(tf.constant([True, False], tf.int32)).tolist() == [1, 0]
    assert run(tf.constant(1.5) + True).item() == 2.5
    with pytest.raises(TypeError, match="Expected string"):
        tf.constant(True, tf.string)
