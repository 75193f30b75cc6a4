"""Summaries written by ops: `tf.contrib.summary` in graph mode."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf
from tests.train.summaries.written_events import events, values
from tfmini.testing import ProcessCluster

summary = tf.contrib.summary


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


def test_summaries_of_each_kind_are_written(tmp_path: Path) -> None:
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


def test_the_first_element_of_a_tensor_is_its_scalar(tmp_path: Path) -> None:
    """As in TensorFlow, where a model's loss may have the shape (1,)."""
    writer = summary.create_file_writer(str(tmp_path), flush_millis=1000)
    with writer.as_default(), summary.always_record_summaries(), tf.Session() as session:
        written = [summary.scalar("loss", value, step=0) for value in ([1.5], [[2.5, 3.5]])]
        none = summary.scalar("none", tf.zeros([0]), step=0)
        summary.initialize(session=session)
        session.run(written)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"must be a scalar, got shape \[0\]"):
            session.run(none)
        session.run(writer.close())
    assert sorted(v.simple_value for e in events(tmp_path) for v in e.summary.value) == [1.5, 2.5]


def test_recording_can_be_limited_to_some_steps_or_none(tmp_path: Path) -> None:
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


def test_a_writer_must_be_initialized_before_it_writes(tmp_path: Path) -> None:
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


def test_those_of_version_2_are_tensors_recorded_unless_a_condition_says_no(tmp_path: Path) -> None:
    second = tf.compat.v2.summary
    asked = tf.placeholder_with_default(False, [])
    writer = second.create_file_writer(str(tmp_path))
    with writer.as_default(), tf.name_scope("run"):
        written = [second.scalar("mean loss", 2.5, step=4), second.write("raw", [1, 2], step=5)]
        for condition in (asked, lambda: True, False):
            with second.record_if(condition):
                written.append(second.histogram("weights", [1.0], step=6))
        with pytest.raises(ValueError, match="set_step"):
            second.scalar("loss", 1.0)
        second.experimental.set_step(7)
        written.append(second.text("note", "text"))
        second.experimental.set_step(None)
    written.append(second.scalar("no writer", 1.0, step=0))
    with tf.Session() as session:
        session.run(writer.init())
        assert session.run(written[:3]) == [True, True, False] and session.run(written[3])
        assert session.run(written[5:]) == [True, False]
        session.run(writer.close())
    found = [(e.step, v.tag, v.metadata.plugin_data.plugin_name) for e in events(tmp_path) for v in e.summary.value]
    scalar, histogram = (4, "run/mean loss", "scalars"), (6, "run/weights_1", "")
    assert sorted(found) == [scalar, (5, "raw", ""), histogram, (7, "run/note", "text")]
    with pytest.raises(ValueError, match="logdir"):
        second.create_file_writer(None)


@pytest.mark.parametrize(
    ("name", "tag", "scope"),
    [("a b", "outer/a b", "outer/ab/"), ("", "outer/summary", "outer/summary/"), ("%", "outer/%", "outer/summary/")],
)
def test_the_scope_of_version_2_keeps_the_tag_as_it_is(name: str, tag: str, scope: str) -> None:
    with tf.name_scope("outer"), tf.compat.v2.summary.experimental.summary_scope(name) as found:
        assert found == (tag, scope) and tf.constant(1).op.name == f"{scope}Const"
