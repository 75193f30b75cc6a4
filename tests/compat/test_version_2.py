"""Names of ``tf.compat.v2`` that do something else than those of version 1."""

from __future__ import annotations

import tfmini as tf


def test_where_broadcasts_as_in_version_2() -> None:
    chosen = tf.compat.v2.where([[True, False], [False, True]], tf.ones([]), [2.0, 3.0])
    with tf.Session() as session:
        assert session.run(chosen).tolist() == [[1.0, 3.0], [2.0, 1.0]]
        assert session.run(tf.compat.v2.where([False, True])).tolist() == [[1]]
