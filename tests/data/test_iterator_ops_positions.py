"""Saved positions of iterators: what cannot be replayed is refused, and what is restored is what came next."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf

Dataset = tf.data.Dataset


def _saved(dataset: Any, path: Path, reads: int) -> None:
    """Reads elements and saves the iterator."""
    iterator = dataset.make_initializable_iterator()
    element, saver = iterator.get_next(), tf.train.Saver([tf.data.experimental.make_saveable_from_iterator(iterator)])
    with tf.Session() as session:
        session.run(iterator.initializer)
        for _ in range(reads):
            session.run(element)
        saver.save(session, str(path / "position"))


@pytest.mark.parametrize("reads", [0, 3])
def test_the_position_in_a_generator_is_refused(tmp_path: Path, reads: int) -> None:
    stream = itertools.count()
    with pytest.raises(tf.errors.FailedPreconditionError, match="stateful.* PyFunc"):
        _saved(Dataset.from_generator(lambda: stream, tf.int64).map(lambda x: -x), tmp_path, reads)
    with pytest.raises(tf.errors.FailedPreconditionError, match="stateful.* PyFunc"):
        _saved(Dataset.from_generator(lambda: stream, tf.int64).shuffle(1), tmp_path, 1)
