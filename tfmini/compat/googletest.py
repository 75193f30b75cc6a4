"""``tensorflow.python.platform.googletest``: the base of `tf.test.TestCase`, which knows nothing of graphs."""

from __future__ import annotations

from absl.testing.absltest import TestCase

__all__ = ["TestCase"]
