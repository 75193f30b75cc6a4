"""``tf.train.summary_iterator``: reads event files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from tfmini import errors, protos
from tfmini.export import export
from tfmini.ops.io.tf_record import tf_record_iterator


@export("tf.train.summary_iterator")
def summary_iterator(path: Any) -> Iterator[Any]:
    """Yields the Event messages of an event file in order (``tf.train.summary_iterator``).

    Raises:
      NotFoundError: when there is no such file.
      DataLossError: when a record is truncated or corrupt, or no Event.
    """
    for record in tf_record_iterator(path):
        with errors.reading(f"{os.fsdecode(path)}: a record is no Event"):
            event = protos.Event.FromString(record)
        yield event
