"""Summaries written by ops: `tf.contrib.summary` in graph mode, and ``FileWriter(session=…)``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini.testing.process_cluster import ProcessCluster

summary = tf.contrib.summary


def events(folder: Path) -> list[Any]:
    return [e for path in sorted(folder.glob("events*")) for e in tf.train.summary_iterator(str(path))]


def values(folder: Path) -> list[tuple[int, str, str]]:
    """(step, tag, kind) of all that was written."""
    return [(e.step, v.tag, v.WhichOneof("value")) for e in events(folder) for v in e.summary.value]


def test_summaries_of_each_kind(tmp_path: Path) -> None:
    step = tf.train.get_or_create_global_step()
    writer = summary.create_file_writer(str(tmp_path), flush_millis=1000)
    with writer.as_default(), summary.always_record_summaries(), tf.name_scope("model"):
        summary.scalar("loss", tf.constant(0.5))
        summary.histogram("h", [1.0, 2.0], family="f")
        summary.image("i", tf.zeros([1, 2, 2, 3]))
        summary.audio("a", tf.zeros([1, 10, 1]), 8000.0, max_outputs=3)
        summary.generic("g", [1, 2], tf.SummaryMetadata(display_name="G"))
        summary.scalar("other step", 1.0, step=7)
        with tf.Session() as session:
            session.run(step.initializer)
            summary.initialize(tf.get_default_graph(), session)
            session.run(tf.assign_add(step, 2))
            session.run(summary.all_summary_ops())
            session.run(writer.close())
    found = {(tag, kind): at for at, tag, kind in values(tmp_path)}
    assert found == {
        ("model/loss", "simple_value"): 2, ("f/model/f/h", "histo"): 2, ("model/i/image/0", "image"): 2,
        ("model/a/audio/0", "audio"): 2, ("model/g", "tensor"): 2, ("model/other_step", "simple_value"): 7,
    }  # fmt: skip
    assert [e.WhichOneof("what") for e in events(tmp_path)][:2] == ["file_version", "graph_def"]
    assert next(tmp_path.glob("events*")).name.endswith(".v2")


def test_recording_every_few_steps_and_not_at_all(tmp_path: Path) -> None:
    step = tf.train.get_or_create_global_step()
    assert summary.scalar("nobody writes", 1.0).type == "NoOp"
    writer = summary.create_file_writer(str(tmp_path))
    with writer.as_default():
        assert summary.should_record_summaries() is False
        with summary.record_summaries_every_n_global_steps(3):
            summary.scalar("some", 1.0)
            with summary.never_record_summaries():
                summary.scalar("never", 1.0)
        with summary.always_record_summaries():
            summary.scalar("always", 1.0)
        with tf.Session() as session:
            session.run(step.initializer)
            summary.initialize(session=session)
            for _ in range(5):
                session.run(summary.all_summary_ops())
                session.run(tf.assign_add(step, 1))
            session.run(summary.flush())
            assert [at for at, tag, _ in values(tmp_path) if tag == "some"] == [0, 3]
            assert [at for at, tag, _ in values(tmp_path) if tag == "always"] == [0, 1, 2, 3, 4]
            assert not [tag for _, tag, _ in values(tmp_path) if tag == "never"]


def test_a_writer_begins_before_it_writes(tmp_path: Path) -> None:
    writer = summary.create_file_writer(str(tmp_path))
    with pytest.raises(RuntimeError, match="No default tf.contrib.summary.SummaryWriter"):
        summary.initialize()
    with writer.as_default(), summary.always_record_summaries():
        with pytest.raises(ValueError, match="session must be passed"):
            summary.initialize()
        op = summary.scalar("x", 1.0, step=0)
        with tf.Session() as session, pytest.raises(tf.errors.FailedPreconditionError, match="run its init op"):
            session.run(op)
    with summary.create_file_writer(None).as_default(), summary.always_record_summaries():
        assert summary.scalar("x", 1.0).type == "NoOp"


def test_file_writers_of_a_session_share_a_file(tmp_path: Path) -> None:
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


@pytest.mark.cluster
def test_the_task_of_the_writer_writes(tmp_path: Path) -> None:
    with tf.device("/job:ps/task:0"):
        writer = summary.create_file_writer(str(tmp_path))
    with ProcessCluster(ps=1, workers=1) as tasks, writer.as_default(), summary.always_record_summaries():
        op = summary.scalar("x", 1.0, step=4)
        with tf.Session(tasks.target("worker", 0)) as session:
            summary.initialize(session=session)
            session.run(op)
            session.run(writer.flush())
            assert values(tmp_path) == [(4, "x", "simple_value")]
