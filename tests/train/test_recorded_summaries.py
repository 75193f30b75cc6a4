"""``tf.contrib.summary`` in a graph, and ``tf.summary.FileWriter(session=…)``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfmini as tf


def events(directory: Path) -> list[Any]:
    (path,) = directory.glob("events*")
    return list(tf.train.summary_iterator(str(path)))


def test_summaries_are_written_by_the_session(tmp_path: Path) -> None:
    step = tf.train.get_or_create_global_step()
    writer = tf.contrib.summary.create_file_writer(str(tmp_path), flush_millis=1000)
    with writer.as_default(), tf.contrib.summary.record_summaries_every_n_global_steps(2):
        tf.contrib.summary.scalar("loss", 3.0)
        tf.contrib.summary.histogram("weights", [1.0, 2.0])
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            tf.summary.initialize(graph=tf.get_default_graph(), session=session)
            for _ in range(3):
                session.run(tf.summary.all_v2_summary_ops())
                session.run(step.assign_add(1))
            session.run(writer.close())
    found = [(e.step, v.tag) for e in events(tmp_path) for v in e.summary.value]
    assert found == [(0, "loss"), (0, "weights"), (2, "loss"), (2, "weights")]
    assert any(e.graph_def for e in events(tmp_path))


def test_nothing_is_recorded_unless_asked_for(tmp_path: Path) -> None:
    writer = tf.contrib.summary.create_file_writer(str(tmp_path))
    with writer.as_default():
        assert tf.contrib.summary.scalar("loss", 1.0, step=0).type == "NoOp"
    assert tf.summary.all_v2_summary_ops() == []


def test_a_writer_that_is_not_open_says_so(tmp_path: Path) -> None:
    writer = tf.contrib.summary.create_file_writer(str(tmp_path))
    with writer.as_default(), tf.contrib.summary.always_record_summaries():
        loss = tf.contrib.summary.scalar("loss", 1.0, step=0)
    with tf.Session() as session, pytest.raises(tf.errors.FailedPreconditionError, match="is not open"):
        session.run(loss)


def test_file_writers_of_one_session_share_a_file(tmp_path: Path) -> None:
    with tf.Session() as session:
        for tag in ("one", "two"):
            writer = tf.summary.FileWriter(str(tmp_path), session=session)
            writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag=tag)]), 1)
            writer.flush()
        writer.close()
    assert [v.tag for e in events(tmp_path) for v in e.summary.value] == ["one", "two"]
