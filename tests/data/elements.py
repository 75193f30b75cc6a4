"""The elements of datasets."""

from __future__ import annotations

from typing import Any

import tfmini as tf


def drain(session: Any, element: Any) -> list[Any]:
    found = []
    while True:
        try:
            found.append(session.run(element))
        except tf.errors.OutOfRangeError:
            return found


def elements(dataset: Any) -> list[Any]:
    iterator = dataset.make_initializable_iterator()
    element = iterator.get_next()
    with tf.Session() as session:
        session.run(iterator.initializer)
        return drain(session, element)
