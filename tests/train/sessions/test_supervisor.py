"""Supervisors of one process; those of a cluster are in test_sessions_in_clusters.py."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf


def counting():
    step = tf.train.get_or_create_global_step()
    return step, step.assign_add(1)


def events(directory: Path) -> list[Any]:
    return [e for path in sorted(directory.glob("events*")) for e in tf.train.summary_iterator(str(path))]


def test_a_chief_initialises_saves_and_restores(tmp_path: Path) -> None:
    for expected in (0, 2):
        with tf.Graph().as_default():
            step, add = counting()
            tf.summary.scalar("twice", 2 * step)
            sv = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=0)
            with sv.managed_session() as session:
                assert session.run(step) == expected
                session.run([add])
                session.run([add])
                sv.saver.save(session, sv.save_path, global_step=step)
            assert sv.should_stop()
    found = events(tmp_path)
    statuses = [e.session_log.status for e in found if e.HasField("session_log")]
    log = tf.summary.SessionLog
    assert statuses.count(log.START) == 2 and statuses.count(log.STOP) == 2
    assert "twice" in {v.tag for e in found for v in e.summary.value}
    assert (tmp_path / "graph.pbtxt").exists() and any(e.HasField("meta_graph_def") for e in found)


def test_the_loss_of_a_task_leaves_a_managed_session_which_can_be_entered_again(tmp_path: Path) -> None:
    """The guides tell scripts to do so; a Supervisor does not recover by itself."""
    step, add = counting()
    sv = tf.train.Supervisor(logdir=str(tmp_path), save_model_secs=0)
    with pytest.raises(tf.errors.UnavailableError, match="ps/0 was lost"), sv.managed_session() as session:
        session.run(add)
        sv.saver.save(session, sv.save_path, global_step=step)
        session.run(add)
        raise tf.errors.UnavailableError(None, None, "ps/0 was lost")
    assert sv.should_stop()
    with sv.managed_session() as session:
        assert not sv.should_stop() and session.run(step) == 1


def test_services_run_in_threads(tmp_path: Path) -> None:
    _, add = counting()
    tf.summary.scalar("one", 1.0)
    sv = tf.train.Supervisor(logdir=str(tmp_path), save_summaries_secs=0.01, save_model_secs=0.01)
    written = threading.Event()
    writer, recorded = sv.summary_writer.add_summary, set()

    def add_summary(summary: Any, step: Any = None) -> None:
        writer(summary, step)
        recorded.add(type(summary).__name__)
        if len(recorded) > 1 and tf.train.latest_checkpoint(str(tmp_path)):
            written.set()

    sv.summary_writer.add_summary = add_summary
    with sv.managed_session() as session:
        session.run(add)
        assert written.wait(60)
    tags = {v.tag for e in events(tmp_path) for v in e.summary.value}
    assert {"one", "global_step/sec"} <= tags


def test_summaries_that_need_feeds_are_told_of_in_the_summary_thread(tmp_path: Path) -> None:
    counting()
    tf.summary.scalar("fed", tf.placeholder(tf.float32, []))
    sv = tf.train.Supervisor(logdir=str(tmp_path), save_summaries_secs=0.01)
    fed = "(?s)You must feed.*The supervisor's summary thread ran this, without feeds"
    with pytest.raises(tf.errors.InvalidArgumentError, match=fed), sv.managed_session():
        assert sv.coord.wait_for_stop(60)


def test_the_end_of_the_input_is_a_clean_end_and_other_errors_are_not() -> None:
    sv = tf.train.Supervisor()
    with sv.managed_session():
        raise tf.errors.OutOfRangeError.of("EOI")
    assert sv.should_stop()
    with pytest.raises(ValueError, match="mine"), sv.managed_session():
        raise ValueError("mine")


def test_an_error_at_the_preparation_is_raised() -> None:
    tf.get_variable("v", initializer=1.0)
    sv = tf.train.Supervisor(init_op=None)
    with pytest.raises(RuntimeError, match="Variables not initialized: v"), sv.managed_session():
        pass


def test_loops_stop_with_the_supervisor() -> None:
    sv = tf.train.Supervisor()
    called, calls = threading.Event(), []

    def call(value: int, more: int) -> None:
        calls.append((value, more))
        called.set()

    with sv.managed_session():
        looper = sv.loop(0.001, call, (1,), {"more": 2})
        assert called.wait(60)
    assert not looper.is_alive() and calls[0] == (1, 2)


def test_an_error_of_a_loop_ends_the_session() -> None:
    sv = tf.train.Supervisor()

    def fail() -> None:
        raise ValueError("in a thread")

    with pytest.raises(ValueError, match="in a thread"), sv.managed_session():
        sv.loop(None, fail)
        sv.wait_for_stop()


def test_a_stop_request_ends_a_workers_wait(caplog: pytest.LogCaptureFixture) -> None:
    with tf.device("/job:local/task:0"):
        tf.get_variable("v", initializer=1.0)
    with tf.train.Server.create_local_server() as server:
        sv = tf.train.Supervisor(is_chief=False, recovery_wait_secs=30)
        handler = logging.Handler()
        # The wait says so when it has looked for the first time.
        handler.emit = lambda line: sv.request_stop() if "Waiting for model" in line.getMessage() else None
        caplog.set_level(logging.INFO, "tensorflow")
        logging.getLogger("tensorflow").addHandler(handler)
        try:
            with pytest.raises(tf.errors.CancelledError, match="A stop was requested while waiting for the chief"):
                sv.prepare_or_wait_for_session(server.target)
        finally:
            logging.getLogger("tensorflow").removeHandler(handler)


def test_services_and_non_chief_replicas_are_checked(tmp_path: Path) -> None:
    tf.Variable(1.0, use_resource=False)
    remedy = "all Variables must have their device set: 'Variable' has none.*replica_device_setter"
    with pytest.raises(ValueError, match=f"When using replicas, {remedy}"):
        tf.train.Supervisor(is_chief=False)
    with tf.Graph().as_default():
        worker = tf.train.Supervisor(is_chief=False, logdir=str(tmp_path))
        assert worker.summary_writer is None and worker.save_path is None and not worker.is_chief
        with pytest.raises(RuntimeError, match="Only chief supervisor can start standard services."):
            worker.start_standard_services(None)
        with pytest.raises(RuntimeError, match="Writing a summary requires a summary writer."):
            worker.summary_computed(None, None)


def test_ops_are_found_in_collections_or_left_out() -> None:
    mine = tf.no_op(name="mine")
    tf.add_to_collection(tf.GraphKeys.INIT_OP, mine)
    sv = tf.train.Supervisor(ready_op=None, saver=None, global_step=None)
    assert sv.init_op is mine and sv.ready_op is None and sv.saver is None and sv.global_step is None
    assert sv.summary_op is None and sv.ready_for_local_init_op is None
    assert tf.train.Supervisor.Loop is tf.train.Supervisor.loop


def test_the_basic_loop_continues_after_a_restart() -> None:
    _, add = counting()
    sv = tf.train.Supervisor()
    calls = []

    def step(session: Any, limit: int, *, failing: int) -> None:
        calls.append(session.run(add))
        if len(calls) == failing:
            raise tf.errors.AbortedError.of("restarted")
        if len(calls) == limit:
            sv.request_stop()

    tf.train.basic_train_loop(sv, step, (5,), {"failing": 2})
    assert calls == [1, 2, 1, 2, 3]
