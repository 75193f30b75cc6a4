"""``tf.train.summary_iterator``: the events of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfmini import protos
from tfmini.ops.tf_record import tf_record_iterator


def summary_iterator(path: Any) -> Iterator[Any]:
    """Yields the Event messages of an event file in order (``tf.train.summary_iterator``).

    Raises:
      NotFoundError: when there is no such file.
      DataLossError: where a record is torn or altered.
    """
    for record in tf_record_iterator(path):
        yield protos.Event.FromString(record)
