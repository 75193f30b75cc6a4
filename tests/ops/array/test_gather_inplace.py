"""Ops that update rows of a tensor."""

from __future__ import annotations

import tfmini as tf
from tests.ops.session_run import run


def test_in_place_ops_do_not_change_their_input() -> None:
    x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    changed = tf.raw_ops.InplaceUpdate(x=x, i=[-1, 0], v=[[7.0, 8.0], [9.0, 0.0]])
    added = tf.raw_ops.InplaceAdd(x=x, i=[1, 1], v=[[1.0, 1.0], [1.0, 1.0]])
    before, after, sums = run([x, changed, added])
    assert before[0].tolist() == [1, 2] and after.tolist() == [[9, 0], [3, 4], [7, 8]] and sums[1].tolist() == [5, 6]
