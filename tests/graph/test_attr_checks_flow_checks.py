"""An input that leaves its loop is refused with the lines of both ops."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

import tfmini as tf


def test_a_value_from_inside_a_loop_is_refused_with_both_lines(caplog: pytest.LogCaptureFixture) -> None:
    inside: list[Any] = []

    def body(i: Any) -> Any:
        inside.append(tf.square(i, name="inner"))
        return i + 1

    tf.while_loop(lambda i: i < 3, body, [0])
    first = body.__code__.co_firstlineno
    lines = f"'while/inner' was built at {__file__}:{first + 1}, its use is at {__file__}:{first + 9}"
    caplog.set_level(logging.INFO, "tensorflow")
    with pytest.raises(ValueError, match=re.escape(f"See info log for more details. ({lines}.)")):
        tf.add(inside[0], 1)
    assert "Contexts: " in caplog.text and lines in caplog.text
