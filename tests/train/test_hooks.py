"""The standard hooks, each in a monitored session of one process."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import tfmini as tf
from tfmini.train.global_steps import _increment_global_step
from tfmini.train.hooks import as_graph_element


def counting():
    """(global step, op that adds one to it after the hooks' read of it)."""
    step = tf.train.get_or_create_global_step()
    return step, _increment_global_step(1)


def run_all(hooks: list[tf.train.SessionRunHook], fetch: Any, times: int | None = None) -> int:
    """Runs until the hooks want the end, or so many times; returns how often."""
    done = 0
    with tf.train.SingularMonitoredSession(hooks=hooks) as session:
        while not session.should_stop() and done != times:
            session.run(fetch)
            done += 1
    return done


def events(directory: Path) -> list[Any]:
    tf.summary.FileWriterCache.clear()
    found: list[Any] = []
    for path in sorted(directory.glob("events*")):
        found += tf.train.summary_iterator(str(path))
    return found


def values_of(directory: Path, tag: str) -> list[tuple[int, float]]:
    return [
        (event.step, value.simple_value)
        for event in events(directory)
        for value in event.summary.value
        if value.tag == tag
    ]


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr("time.time", fake.time)  # as tests of other projects do
    return fake


def test_a_timer_counts_steps() -> None:
    timer = tf.train.SecondOrStepTimer(every_steps=3)
    assert timer.last_triggered_step() is None and timer.should_trigger_for_step(1)
    assert timer.update_last_triggered_step(1) == (None, None)
    assert [timer.should_trigger_for_step(s) for s in (1, 2, 3, 4, 9)] == [False, False, False, True, True]
    assert timer.update_last_triggered_step(5)[1] == 4 and timer.last_triggered_step() == 5
    timer.reset()
    assert timer.should_trigger_for_step(5)


def test_a_timer_counts_seconds(clock: Clock) -> None:
    timer = tf.train.SecondOrStepTimer(every_secs=10)
    timer.update_last_triggered_step(1)
    clock.now += 9.5
    assert not timer.should_trigger_for_step(2)
    clock.now += 1
    assert timer.should_trigger_for_step(2) and not timer.should_trigger_for_step(1)
    assert timer.update_last_triggered_step(2) == (10.5, 1)


def test_a_timer_needs_exactly_one_period() -> None:
    with pytest.raises(ValueError, match="Either every_secs or every_steps should be provided."):
        tf.train.SecondOrStepTimer()
    with pytest.raises(ValueError, match="Can not provide both every_secs and every_steps."):
        tf.train.SecondOrStepTimer(1.0, 1)


@pytest.mark.parametrize(("arguments", "runs"), [({"num_steps": 4}, 4), ({"last_step": 3}, 3)])
def test_training_stops_at_the_last_step(arguments: dict[str, int], runs: int) -> None:
    _, add = counting()
    assert run_all([tf.train.StopAtStepHook(**arguments)], add) == runs


def test_stop_at_step_counts_from_where_the_session_began() -> None:
    step, add = counting()
    hook = tf.train.StopAtStepHook(num_steps=2)
    hook.begin()
    with tf.Session() as session:
        session.run(step.initializer)
        session.run(step.assign(40))
        hook.after_create_session(session, None)
        context = tf.train.SessionRunContext(None, session)
        for expected in (False, True):
            before = session.run(hook.before_run(context).fetches)
            session.run(add)
            hook.after_run(context, tf.train.SessionRunValues(before, None, None))
            assert context.stop_requested is expected


def test_stop_at_step_needs_one_number_and_a_global_step() -> None:
    with pytest.raises(ValueError, match="One of num_steps or last_step must be specified."):
        tf.train.StopAtStepHook()
    with pytest.raises(ValueError, match="Only one of num_steps or last_step can be specified."):
        tf.train.StopAtStepHook(1, 2)
    with pytest.raises(RuntimeError, match=r"to use StopAtStepHook: by `tf.train.get_or_create_global_step\(\)`, and"):
        tf.train.StopAtStepHook(1).begin()


def test_a_nan_loss_fails_or_stops_training(caplog: pytest.LogCaptureFixture) -> None:
    _, add = counting()
    loss = tf.cond(tf.equal(add, 2), lambda: tf.constant(float("nan")), lambda: tf.constant(1.0))
    with pytest.raises(tf.train.NanLossDuringTrainingError, match="NaN loss during training."):
        run_all([tf.train.NanTensorHook(loss)], loss)
    assert "Model diverged with loss = NaN." in caplog.text
    assert run_all([tf.train.NanTensorHook(loss, fail_on_nan_loss=False)], loss) == 2


def test_tensors_are_logged_every_so_many_steps(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    _, add = counting()
    half = tf.identity(tf.cast(add, tf.float32) / 2, name="half")
    run_all([tf.train.LoggingTensorHook({"h": half, "s": add}, every_n_iter=2)], half, 3)
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("h = ")]
    assert lines[0] == "h = 0.5, s = 1"
    assert lines[1].startswith("h = 1.5, s = 3 (") and lines[1].endswith(" sec)") and len(lines) == 2


def test_tensors_are_logged_by_name_at_the_end_and_formatted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tf.constant([1.0, 2.0], name="c")
    hook = tf.train.LoggingTensorHook(["c"], at_end=True, formatter=lambda v: f"got {sorted(v)} {v['c'].sum()}")
    run_all([hook], tf.no_op(), 2)
    assert [r.getMessage() for r in caplog.records if r.getMessage().startswith("got")] == ["got ['c'] 3.0"]


def test_wrong_arguments_of_a_logging_hook_are_refused() -> None:
    pair = tf.split(tf.zeros([4]), 2, name="two")
    assert as_graph_element("two:1") is pair[1]
    with pytest.raises(ValueError, match="Name two is ambiguous"):
        as_graph_element("two")
    with tf.Graph().as_default(), pytest.raises(ValueError, match="should have graph attribute that is equal"):
        as_graph_element(pair[0])
    for arguments in ({}, {"every_n_iter": 1, "every_n_secs": 1.0}):
        with pytest.raises(ValueError, match="exactly one of every_n_iter and every_n_secs"):
            tf.train.LoggingTensorHook(["x"], **arguments)
    with pytest.raises(ValueError, match="invalid every_n_iter=0."):
        tf.train.LoggingTensorHook(["x"], every_n_iter=0)


def test_steps_per_second_are_logged_and_summarized(tmp_path: Path, clock: Clock) -> None:
    _, add = counting()
    hook = tf.train.StepCounterHook(every_n_steps=10, output_dir=str(tmp_path))
    with tf.train.SingularMonitoredSession(hooks=[hook]) as session:
        for _ in range(31):
            session.run(add)
            clock.now += 0.1
    found = values_of(tmp_path, "global_step/sec")
    assert [step for step, _ in found] == [11, 21, 31]
    np.testing.assert_allclose([rate for _, rate in found], 10.0, rtol=1e-6)


def test_a_global_step_that_does_not_increase_causes_five_warnings(caplog: pytest.LogCaptureFixture) -> None:
    tf.train.get_or_create_global_step()
    run_all([tf.train.StepCounterHook(every_n_steps=1)], tf.no_op(), 9)
    assert caplog.text.count("has not been increased") == 5
    caplog.clear()
    run_all([tf.train.StopAtStepHook(last_step=5)], tf.no_op(), 20)
    assert caplog.text.count("has not been increased") == 5
    with pytest.raises(ValueError, match="exactly one of every_n_steps and every_n_secs should be provided."):
        tf.train.StepCounterHook(every_n_steps=1, every_n_secs=1)


@pytest.mark.parametrize("reads, warnings", [([1, 1, 2, 2, 4, 4], 0), ([1, 1, 1, 1, 2, 2], 2)])
def test_a_run_may_read_the_step_of_the_run_before(
    reads: list[int], warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An asynchronous run reads the step before or after its own increment."""
    tf.train.get_or_create_global_step()
    hook = tf.train.StepCounterHook(every_n_steps=1000)
    hook.begin()
    for step in reads:
        context = tf.train.SessionRunContext(None, Mock(run=Mock(return_value=step)))
        hook.after_run(context, tf.train.SessionRunValues(step, None, None))
    assert caplog.text.count("has not been increased") == warnings


def test_summaries_are_written_every_so_many_steps(tmp_path: Path) -> None:
    _, add = counting()
    with tf.control_dependencies([add]):
        summary = tf.summary.scalar("two", tf.constant(2.0))
    hook = tf.train.SummarySaverHook(save_steps=4, output_dir=str(tmp_path), summary_op=summary)
    run_all([hook], add, 10)
    assert values_of(tmp_path, "two") == [(1, 2.0), (5, 2.0), (9, 2.0)]
    assert [e.step for e in events(tmp_path) if e.session_log.status == tf.summary.SessionLog.START] == [1]


def test_a_summary_hook_needs_exactly_one_source() -> None:
    for arguments in ({}, {"scaffold": tf.train.Scaffold(), "summary_op": "s"}):
        with pytest.raises(ValueError, match="Exactly one of scaffold or summary_op must be provided."):
            tf.train.SummarySaverHook(save_steps=1, **arguments)


class Listener(tf.train.CheckpointSaverListener):
    """Writes down its calls, and wants the end after a step."""

    def __init__(self, stop_at: int = -1) -> None:
        self.calls: list[Any] = []
        self.stop_at = stop_at

    def begin(self) -> None:
        self.calls.append("begin")

    def before_save(self, session: Any, global_step_value: int) -> None:
        self.calls.append(("before", global_step_value))

    def after_save(self, session: Any, global_step_value: int) -> bool:
        self.calls.append(("after", global_step_value))
        return global_step_value == self.stop_at

    def end(self, session: Any, global_step_value: int) -> None:
        self.calls.append(("end", global_step_value))


def saved_steps(directory: Path) -> list[int]:
    state = tf.train.get_checkpoint_state(str(directory))
    return [int(path.rpartition("-")[2]) for path in state.all_model_checkpoint_paths]


def test_checkpoints_are_saved_at_the_beginning_between_and_at_the_end(tmp_path: Path) -> None:
    _, add = counting()
    listener = Listener()
    scaffold = tf.train.Scaffold()
    hook = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=3, scaffold=scaffold, listeners=[listener])
    with tf.train.SingularMonitoredSession(hooks=[hook], scaffold=scaffold) as session:
        for _ in range(5):
            session.run(add)
    assert saved_steps(tmp_path) == [0, 3, 5]
    steps = [0, 3, 5]
    expected = ["begin", *((kind, s) for s in steps for kind in ("before", "after")), ("end", 5)]
    assert listener.calls == expected
    assert (tmp_path / "graph.pbtxt").exists() and (tmp_path / "model.ckpt-3.meta").exists()
    logs = [e for e in events(tmp_path) if e.session_log.status == tf.summary.SessionLog.CHECKPOINT]
    assert [e.step for e in logs] == steps
    assert any(e.HasField("graph_def") for e in events(tmp_path))
    assert any(e.HasField("meta_graph_def") for e in events(tmp_path))


def test_checkpoints_are_saved_every_so_many_seconds(tmp_path: Path, clock: Clock) -> None:
    _, add = counting()
    scaffold = tf.train.Scaffold()
    hook = tf.train.CheckpointSaverHook(str(tmp_path), save_secs=10, scaffold=scaffold)
    with tf.train.SingularMonitoredSession(hooks=[hook], scaffold=scaffold) as session:
        for _ in range(6):
            clock.now += 4
            session.run(add)
    assert saved_steps(tmp_path) == [0, 3, 6]


def test_a_listener_can_end_training(tmp_path: Path) -> None:
    _, add = counting()
    scaffold = tf.train.Scaffold()
    listener = Listener(stop_at=4)
    hook = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=2, scaffold=scaffold, listeners=[listener])
    with tf.train.SingularMonitoredSession(hooks=[hook], scaffold=scaffold) as session:
        runs = 0
        while not session.should_stop():
            session.run(add)
            runs += 1
    assert runs == 4


def test_a_checkpoint_hook_finds_its_saver(tmp_path: Path) -> None:
    step, _ = counting()

    def begin() -> None:
        hook = tf.train.CheckpointSaverHook(str(tmp_path), 1)
        hook.begin()
        with tf.Session() as session:
            session.run(step.initializer)
            hook.after_create_session(session, None)

    with pytest.raises(ValueError, match="You cannot provide both saver and scaffold."):
        tf.train.CheckpointSaverHook("x", 1, saver=object(), scaffold=tf.train.Scaffold())
    with pytest.raises(RuntimeError, match="No items in collection savers"):
        begin()
    saver = tf.train.Saver()
    tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
    begin()
    assert saver.last_checkpoints == [str(tmp_path / "model.ckpt-0")]
    tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
    with pytest.raises(RuntimeError, match="More than one item in collection savers"):
        begin()


def test_a_hook_waits_for_a_global_step() -> None:
    step, add = counting()
    hook = tf.train.GlobalStepWaiterHook(3)
    hook.begin()
    looks = []

    class Session:
        def run(self, fetch: Any) -> int:
            looks.append(fetch)
            return len(looks)

    hook.before_run(tf.train.SessionRunContext(None, Session()))
    assert len(looks) == 3
    hook.before_run(tf.train.SessionRunContext(None, Session()))
    assert len(looks) == 3
    assert run_all([tf.train.GlobalStepWaiterHook(0)], add, 1) == 1


def test_a_stop_ends_the_wait_for_a_global_step() -> None:
    counting()
    coord = tf.train.Coordinator()
    hook = tf.train.GlobalStepWaiterHook(10)
    hook.begin()
    hook.after_create_session(None, coord)

    looks = []

    class Session:
        def run(self, fetch: Any) -> int:
            looks.append(fetch)
            coord.request_stop()
            return 0

    hook.before_run(tf.train.SessionRunContext(None, Session()))
    assert len(looks) == 1


def test_final_ops_run_at_the_end_with_their_feeds() -> None:
    x = tf.placeholder(tf.float32, [])
    total = tf.Variable(0.0)
    add = total.assign_add(x)
    final = tf.train.FinalOpsHook({"total": total, "x": x}, {x: 7.0})
    feeds = iter([1.0, 2.0, 3.0])
    run_all([final, tf.train.FeedFnHook(lambda: {x: next(feeds)})], add, 3)
    assert final.final_ops_values == {"total": 6.0, "x": 7.0}


def test_a_profile_is_written_every_so_many_steps(tmp_path: Path) -> None:
    _, add = counting()
    run_all([tf.train.ProfilerHook(save_steps=2, output_dir=str(tmp_path))], add, 5)
    paths = sorted(path.name for path in tmp_path.glob("timeline-*.json"))
    assert paths == ["timeline-2.json", "timeline-4.json"]
    trace = json.loads((tmp_path / "timeline-2.json").read_text())
    assert "AssignAdd" in {event["name"] for event in trace["traceEvents"]}
    assert [e.tagged_run_metadata.tag for e in events(tmp_path) if e.HasField("tagged_run_metadata")] == [
        "step_2", "step_4",
    ]  # fmt: skip


def test_a_wait_for_a_step_sleeps_by_time_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    step = tf.train.get_or_create_global_step()
    hook = tf.train.GlobalStepWaiterHook(wait_until_step=3)
    hook.begin()
    with tf.Session() as session:
        session.run(step.initializer)
        advance = tf.assign_add(step, 1)
        slept: list[float] = []
        monkeypatch.setattr("time.sleep", lambda seconds: (slept.append(seconds), session.run(advance)))
        hook.before_run(tf.train.SessionRunContext(tf.train.SessionRunArgs(None), session))
        assert len(slept) == 3
