"""What tests of checkpoints get."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tfmini as tf


@pytest.fixture
def session() -> Iterator[tf.Session]:
    """A session of the test's graph."""
    with tf.Session() as session:
        yield session
