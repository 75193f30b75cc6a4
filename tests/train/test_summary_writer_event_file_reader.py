"""Event files that are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf
from tfmini import protos
from tfmini.ops.io.record_files import frame


def test_a_record_that_is_no_event_is_a_loss_of_data(tmp_path: Path) -> None:
    """Its checksum is right, so that only the message can be wrong."""
    path = tmp_path / "events"
    path.write_bytes(frame(protos.Event(step=3).SerializeToString()) + frame(b"\xff\xff"))
    found = tf.train.summary_iterator(str(path))
    assert next(found).step == 3
    with pytest.raises(tf.errors.DataLossError, match="events: a record is no Event"):
        next(found)
