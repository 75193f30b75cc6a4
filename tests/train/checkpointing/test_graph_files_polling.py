"""Checkpoints that appear while one waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tfmini as tf


def test_checkpoints_are_iterated_as_they_appear(tmp_path: Path, session: Any) -> None:
    v = tf.Variable(1.0)
    session.run(v.initializer)
    saver = tf.train.Saver()
    first = saver.save(session, str(tmp_path / "m"), 1)
    found = tf.train.checkpoints_iterator(str(tmp_path), timeout=0)
    assert next(found) == first
    second = saver.save(session, str(tmp_path / "m"), 2)
    assert list(found) == [second]
