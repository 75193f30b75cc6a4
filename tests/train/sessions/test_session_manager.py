"""Sessions whose model is initialised, restored, or waited for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tests.train.sessions.readiness import last_warning, said_after_a_wait
from tfmini.ops.variables.functions import register_resource, report_uninitialized_resources
from tfmini.train.sessions import readiness
from tfmini.train.sessions.readiness import with_places


@pytest.fixture
def server() -> Iterator[Any]:
    with tf.train.Server.create_local_server() as found:
        yield found


class Waiting(threading.Thread):
    """``wait_for_session`` of the default graph's variables, in a thread."""

    def __init__(self, target: str, manager: tf.train.SessionManager, **arguments: Any) -> None:
        super().__init__()
        self.target, self.manager, self.arguments = target, manager, arguments
        self.error: BaseException | None = None
        self.session: Any = None

    def run(self) -> None:
        try:
            self.session = self.manager.wait_for_session(self.target, **self.arguments)
        except tf.errors.OpError as error:
            self.error = error


class Heard(logging.Handler):
    """Notes the log lines that begin with a text, and tells of the first."""

    def __init__(self, start: str) -> None:
        super().__init__(logging.INFO)
        self.start, self.lines, self.one = start, [], threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(self.start):
            self.lines.append(record.getMessage())
            self.one.set()


@pytest.fixture
def heard() -> Iterator[Heard]:
    log, handler = logging.getLogger("tensorflow"), Heard("Waiting for model to be ready.")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.removeHandler(handler)
    log.setLevel(level)


def manager(**arguments: Any) -> tf.train.SessionManager:
    return tf.train.SessionManager(ready_op=tf.report_uninitialized_variables(), **arguments)


def test_the_model_is_initialised() -> None:
    x = tf.placeholder(tf.float32, [])
    v = tf.get_variable("v", initializer=x, validate_shape=False)
    w = tf.get_variable("w", initializer=1.0)
    init, two = tf.variables_initializer([v]), w.assign(2.0)
    with manager().prepare_session("", init, init_feed_dict={x: 3.0}, init_fn=lambda s: s.run(two)) as session:
        assert session.run([v, w]) == [3.0, 2.0]


def test_wrong_arguments_of_prepare_session_are_refused() -> None:
    tf.get_variable("v", initializer=1.0)
    with pytest.raises(RuntimeError, match="Model is not initialized and no init_op or init_fn or local_init_op"):
        manager().prepare_session("")
    text = r"Init operations did not make model ready.  Init op: nothing, init fn: None, .*not initialized: v"
    with pytest.raises(RuntimeError, match=text):
        manager().prepare_session("", tf.no_op(name="nothing"))
    late = manager(local_init_op=tf.no_op(), ready_for_local_init_op=tf.report_uninitialized_variables())
    with pytest.raises(RuntimeError, match="Init operations did not make model ready for local_init.  Init op: None"):
        late.prepare_session("")
    with pytest.raises(ValueError, match="Can not provide both checkpoint_dir and checkpoint_filename_with_path."):
        manager().prepare_session("", checkpoint_dir="a", checkpoint_filename_with_path="b")
    with pytest.raises(ValueError, match="you must also pass a local_init_op"):
        manager(ready_for_local_init_op=tf.constant(1))


def saved(directory: Path) -> tuple[Any, tf.train.Saver]:
    """(variable, its Saver) after a save of 7."""
    v = tf.get_variable("v", initializer=1.0)
    saver = tf.train.Saver()
    with tf.Session() as session:
        session.run(v.assign(7.0))
        saver.save(session, str(directory / "m"), global_step=3)
    return v, saver


def test_a_checkpoint_is_restored_instead(tmp_path: Path) -> None:
    v, saver = saved(tmp_path)
    fail = tf.Assert(False, ["not to be run"])
    with manager().prepare_session("", fail, saver, str(tmp_path)) as session:
        assert session.run(v) == 7.0
    assert [Path(p).name for p in saver.last_checkpoints] == ["m-3"]
    path = str(tmp_path / "m-3")
    with manager().prepare_session("", fail, saver, checkpoint_filename_with_path=path) as session:
        assert session.run(v) == 7.0


def test_recover_says_whether_it_did(tmp_path: Path) -> None:
    local = tf.get_variable("local", initializer=2.0, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    v, saver = saved(tmp_path)
    found = manager(local_init_op=local.initializer)
    session, recovered = found.recover_session("", saver, str(tmp_path))
    assert recovered and session.run([v, local]) == [7.0, 2.0]
    session, recovered = found.recover_session("", saver, str(tmp_path / "none"))
    assert not recovered and session.run(local) == 2.0
    other = tf.get_variable("other", initializer=1.0)
    session, recovered = manager().recover_session("", saver, str(tmp_path))
    assert not recovered and session.run(tf.is_variable_initialized(other)) == False  # noqa: E712


def test_a_checkpoint_can_be_waited_for(tmp_path: Path) -> None:
    v = tf.get_variable("v", initializer=1.0)
    saver = tf.train.Saver()
    found = manager()
    begin = time.monotonic()
    with found.prepare_session("", v.initializer, saver, str(tmp_path), None, True, 0.4) as session:
        assert session.run(v) == 1.0 and time.monotonic() - begin >= 0.4
    with pytest.raises(tf.errors.CancelledError, match=f"waiting for a checkpoint in {tmp_path}"):
        found.prepare_session("", v.initializer, saver, str(tmp_path), None, True, 60, cancelled=lambda: True)


def test_readiness_is_noticed_at_once_and_the_wait_says_on_whom(server: Any, heard: Heard) -> None:
    with tf.device("/job:local/task:0"):
        v = tf.get_variable("v", initializer=1.0)
    tf.get_variable("w", initializer=1.0)
    # Its own looks would be further apart than the test waits.
    waiting = Waiting(server.target, manager(recovery_wait_secs=300), max_wait_secs=300)
    init = tf.global_variables_initializer()
    waiting.start()
    assert heard.one.wait(60)
    assert "Variables not initialized: v, w" in heard.lines[0]
    assert "Waiting for the chief to initialise v (/job:local/task:0), w" in heard.lines[0]
    with tf.Session(server.target) as chief:
        chief.run(init)
        waiting.join(60)
    assert not waiting.is_alive()
    assert waiting.session.run(v) == 1.0
    waiting.session.close()


def test_a_wait_is_bounded_and_says_what_is_missing(server: Any) -> None:
    tf.get_variable("v", initializer=1.0)
    text = "Session was not ready after waiting. It was waiting for the chief to initialise v"
    assert text in said_after_a_wait(manager(), server.target, "to initialise v")


def test_a_wait_can_be_cancelled(server: Any, heard: Heard) -> None:
    tf.get_variable("v", initializer=1.0)
    stop = threading.Event()
    waiting = Waiting(server.target, manager(), cancelled=stop.is_set)
    waiting.start()
    assert heard.one.wait(60)
    stop.set()
    waiting.join(60)
    assert isinstance(waiting.error, tf.errors.CancelledError)
    assert "A stop was requested while waiting for the chief to initialise v" in str(waiting.error)


def test_a_long_wait_is_a_warning_whatever_the_log_level(
    server: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(readiness, "FIRST_S", 0.05)
    tf.get_variable("v", initializer=1.0)
    level = tf.logging.get_verbosity()
    tf.logging.set_verbosity(tf.logging.FATAL)
    try:
        said_after_a_wait(manager(), server.target, "to initialise v", lambda: last_warning(caplog))
    finally:
        tf.logging.set_verbosity(level)
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warned[0].startswith("For 0 s this task has been waiting for ")
    assert "waiting for the chief to initialise v." in last_warning(caplog)
    assert len(warned) < 12  # at 0.05, 0.1, 0.2, …


def test_a_long_wait_for_a_checkpoint_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(readiness, "FIRST_S", 0.0)
    v = tf.get_variable("v", initializer=1.0)
    manager().prepare_session("", v.initializer, tf.train.Saver(), str(tmp_path), None, True, 0.5).close()
    assert f"this task has been waiting for a checkpoint in {tmp_path}." in caplog.text


def test_local_init_waits_for_the_global_variables_and_runs_once(server: Any, heard: Heard) -> None:
    v = tf.get_variable("v", initializer=1.0)
    runs = []
    count = tf.py_func(lambda: runs.append(1) or 0, [], tf.int64)
    not_ready = tf.report_uninitialized_variables()
    found = tf.train.SessionManager(count.op, not_ready, not_ready)
    waiting = Waiting(server.target, found)
    waiting.start()
    assert heard.one.wait(60)
    assert runs == []
    with tf.Session(server.target) as chief:
        chief.run(v.initializer)
        waiting.join(60)
    assert runs == [1] and waiting.session is not None
    waiting.session.close()


def test_errors_unrelated_to_readiness_are_raised() -> None:
    bad = tf.check_numerics(tf.constant(float("nan")), "bad")
    with pytest.raises(tf.errors.InvalidArgumentError, match="bad"):
        tf.train.SessionManager(ready_op=bad).wait_for_session("")
    v = tf.get_variable("v", initializer=1.0)
    part = "uninitialized value v"
    assert part in said_after_a_wait(tf.train.SessionManager(ready_op=v + 1), "", part)


def test_long_lists_of_variables_are_shortened() -> None:
    reason = "Variables not initialized: " + ", ".join(f"v{i}" for i in range(13))
    assert with_places(reason, tf.get_default_graph()).endswith("v9 and 3 more")


def test_a_waiting_line_about_hundreds_of_variables_is_short(server: Any, heard: Heard) -> None:
    for i in range(400):
        tf.get_variable(f"some/rather/long/name_{i}", initializer=1.0)
    stop = threading.Event()
    waiting = Waiting(server.target, manager(), cancelled=stop.is_set)
    waiting.start()
    while heard.one.wait(60) and "name_9" not in heard.lines[-1]:  # a busy server has not answered at the first line
        heard.one.clear()
    stop.set()
    waiting.join(60)
    line = next(line for line in heard.lines if "name_9" in line)
    assert len(line) < 1200 and line.count("name_9") == 2 and "and 390 more" in line
    with pytest.raises(RuntimeError, match="and 390 more") as info:
        manager().prepare_session("", tf.no_op())
    assert len(str(info.value)) < 800


def test_resources_are_reported_by_name() -> None:
    done = tf.get_variable("done", initializer=False)
    handle = tf.constant(0, name="res")
    register_resource(handle, done.assign(True).op, done.read_value())
    scaffold = tf.train.Scaffold().finalize()
    with tf.Session() as session:
        session.run(done.initializer)
        assert session.run(scaffold.ready_op).tolist() == [b"res:0"]
        session.run(tf.get_collection(tf.GraphKeys.RESOURCES)[0].create)
        assert session.run(scaffold.ready_op).tolist() == []
    with tf.Graph().as_default(), tf.Session() as session:
        assert session.run(report_uninitialized_resources()).tolist() == []
