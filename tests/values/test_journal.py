"""What a process notes of its summaries and checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf
from tfmini import journal as notes
from tfmini.journal import Journal
from tfmini.ops import summary
from tfmini.train import summary_writer
from tfmini.train.checkpointing import graph_files, saver


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    own = Journal()
    for module in (notes, summary, saver, graph_files, summary_writer):
        monkeypatch.setattr(module, "journal", own)
    return own


def test_the_latest_scalar_of_each_tag_is_kept(journal: Journal, tmp_path: Path) -> None:
    merged = tf.summary.merge([tf.summary.scalar("loss", 0.5), tf.summary.histogram("h", [1.0])])
    with tf.Session() as session, tf.summary.FileWriter(str(tmp_path)) as writer:
        writer.add_summary(session.run(merged), 1)
        writer.add_summary(tf.Summary(value=[tf.Summary.Value(tag="loss", simple_value=0.25)]), 2)
        writer.add_session_log(tf.SessionLog(status=tf.SessionLog.CHECKPOINT), 3)
    (found,) = journal.scalars()
    assert found[:3] == ("loss", 2, 0.25) and found.time_s > 1e9


def test_summaries_that_a_task_writes_are_noted_too(journal: Journal, tmp_path: Path) -> None:
    writer = tf.contrib.summary.create_file_writer(str(tmp_path))
    with writer.as_default(), tf.contrib.summary.always_record_summaries():
        write = tf.contrib.summary.scalar("loss", 0.5, step=7)
    with tf.Session() as session:
        session.run(tf.contrib.summary.summary_writer_initializer_op())
        session.run(write)
    assert [(s.tag, s.step, s.value) for s in journal.scalars()] == [("loss", 7, 0.5)]


def test_checkpoints_are_noted(journal: Journal, tmp_path: Path) -> None:
    tf.Variable(1.0, name="v")
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        path = saver.save(session, str(tmp_path / "model"), global_step=3)
        saver.restore(session, path)
    assert [(h.kind, h.subject) for h in journal.happenings()] == [("saved", path), ("restored", path)]


def test_it_is_bounded() -> None:
    journal = Journal()
    for i in range(1000):
        journal.note("saved", str(i))
        journal.note_summary([tf.Summary.Value(tag=f"tag{i}", simple_value=i)], i, float(i))
    assert len(journal.happenings()) == 100 and journal.happenings()[-1].subject == "999"
    assert {s.step for s in journal.scalars()} == set(range(800, 1000))
