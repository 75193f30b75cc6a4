"""File writers that write in a session: ``FileWriter(session=…)``."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf
from tests.train.summaries.written_events import events, values


def test_file_writers_of_one_session_share_a_file(tmp_path: Path) -> None:
    with tf.Session() as session:
        for tag in ("one", "two"):
            writer = tf.summary.FileWriter(str(tmp_path), session=session)
            writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag=tag)]), 1)
            writer.flush()
        writer.close()
    assert [v.tag for e in events(tmp_path) for v in e.summary.value] == ["one", "two"]


def test_file_writers_of_a_session_can_be_closed_and_reopened(tmp_path: Path) -> None:
    with tf.Session() as session:
        first = tf.summary.FileWriter(str(tmp_path), session=session, filename_suffix=".s")
        second = tf.summary.FileWriter(str(tmp_path), session=session, filename_suffix=".s")
        for i, writer in enumerate((first, second)):
            writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="x", simple_value=i)]), i)
        first.flush()
        assert [at for at, _, _ in values(tmp_path)] == [0, 1]
        assert len(list(tmp_path.glob("events*.s"))) == 1
        first.close()
        with pytest.warns(UserWarning, match="closed FileWriter"):
            first.add_summary(tf.Summary(), 2)
        first.reopen()
        first.add_summary(tf.Summary(value=[tf.Summary.Value(tag="x", simple_value=5)]), 5)
        first.close()
    assert sorted(at for at, _, _ in values(tmp_path)) == [0, 1, 5]
