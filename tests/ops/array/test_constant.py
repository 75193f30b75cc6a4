"""Constants of Python values."""

from __future__ import annotations

import tfmini as tf
from tests.ops.session_run import run


def test_a_list_of_text_and_bytes_becomes_strings() -> None:
    assert run(tf.constant(["ab", b"\xff"])).tolist() == [b"ab", b"\xff"]
