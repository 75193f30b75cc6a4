"""Monitored sessions: order of calls, clean ends, recovery, arguments."""

from __future__ import annotations

import threading
import types
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini.train import hooks as hooks_module
from tfmini.train import saving_hooks
from tfmini.train.sessions import monitored_session
from tfmini.train.sessions.wrapped_session import _CoordinatedSession, _RecoverableSession


class Recorder(tf.train.SessionRunHook):
    """Writes down its calls into a list that it may share."""

    def __init__(self, name: str, calls: list[str], **request: Any) -> None:
        self.name, self.calls, self.request = name, calls, request
        self.values: list[Any] = []

    def begin(self) -> None:
        self.calls.append(f"{self.name} begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.calls.append(f"{self.name} created")

    def before_run(self, run_context: Any) -> Any:
        self.calls.append(f"{self.name} before")
        return tf.train.SessionRunArgs(**self.request) if self.request else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.calls.append(f"{self.name} after")
        self.values.append(run_values)

    def end(self, session: Any) -> None:
        self.calls.append(f"{self.name} end")


class FailingCreator(tf.train.SessionCreator):
    """Sessions whose runs fail as a list says, in the order of all runs."""

    def __init__(self, failures: list[Exception | None]) -> None:
        self.failures = failures
        self.created = 0

    def create_session(self) -> Any:
        self.created += 1
        session = tf.Session()
        session.run(tf.get_collection("init"))
        run = session.run

        def failing_run(*args: Any, **kwargs: Any) -> Any:
            error = self.failures.pop(0) if self.failures else None
            if error is not None:
                raise error
            return run(*args, **kwargs)

        session.run = failing_run
        return session


def aborted() -> tf.errors.AbortedError:
    return tf.errors.AbortedError.of("restarted")


def test_hooks_are_called_in_order() -> None:
    calls: list[str] = []
    with tf.train.MonitoredSession(hooks=[Recorder("a", calls), Recorder("b", calls)]) as session:
        session.run(tf.get_default_graph().get_operations()[0])
    kinds = ("begin", "created", "before", "after", "end")
    assert calls == [f"{name} {kind}" for kind in kinds for name in "ab"]


def test_hooks_add_fetches_feeds_and_options() -> None:
    x, y = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
    product = x * y
    hook = Recorder("a", [], fetches={"sum": x + y}, feed_dict={y: 2.0}, options=tf.RunOptions(timeout_in_ms=7000))
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        assert session.run(product, {x: 3.0}, options=tf.RunOptions(timeout_in_ms=5000)) == 6.0
    (values,) = hook.values
    assert values.results == {"sum": 5.0} and values.options.timeout_in_ms == 7000
    assert values.run_metadata is not None


def test_feeding_a_tensor_twice_is_refused() -> None:
    x = tf.placeholder(tf.float32, [])
    one, two = (Recorder(n, [], fetches=None, feed_dict={x: 1.0}) for n in "ab")
    for hooks, feeds, whose in (([one, two], None, "two hooks."), ([one], {x: 2.0}, "a SessionRunHook and user.")):
        with (
            tf.train.MonitoredSession(hooks=hooks) as session,
            pytest.raises(RuntimeError, match=f"Same tensor is fed by {whose}"),
        ):
            session.run(x, feeds)


def test_no_run_after_a_stop_was_requested() -> None:
    class Stop(tf.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            run_context.request_stop()

    c = tf.constant(1)
    with tf.train.MonitoredSession(hooks=[Stop()]) as session:
        assert not session.should_stop() and session.run(c) == 1 and session.should_stop()
        with pytest.raises(RuntimeError, match="Run called even after should_stop requested."):
            session.run(c)


@pytest.mark.parametrize("error", [tf.errors.OutOfRangeError.of("EOI"), StopIteration()])
def test_the_end_of_the_input_is_a_clean_end(error: Exception) -> None:
    calls: list[str] = []
    with tf.train.MonitoredSession(hooks=[Recorder("a", calls)]) as session:
        raise error
    assert calls[-1] == "a end" and session.should_stop()


def test_other_errors_are_raised_without_calling_end() -> None:
    calls: list[str] = []
    with pytest.raises(ValueError, match="mine"), tf.train.MonitoredSession(hooks=[Recorder("a", calls)]):
        raise ValueError("mine")
    assert "a end" not in calls


def test_a_closed_session_refuses_to_run() -> None:
    graph = tf.get_default_graph()
    session = tf.train.MonitoredSession()
    assert graph.finalized and session.graph is graph and not session.should_stop()
    session.close()
    assert session.should_stop() and session.graph is None and not graph.finalized
    with pytest.raises(RuntimeError, match="Session is already closed."):
        session.close()


def test_an_error_of_a_thread_reaches_the_loop() -> None:
    class Fail(tf.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            with coord.stop_on_exception():
                raise ValueError("of a thread")

    c = tf.constant(1)
    with pytest.raises(ValueError, match="of a thread"), tf.train.MonitoredSession(hooks=[Fail()]) as session:
        session.run(c)
        assert session.should_stop()


def test_queue_runners_feed_the_loop_until_the_input_ends() -> None:
    queue = tf.FIFOQueue(10, tf.float32, shapes=[()])
    source = tf.Variable(0.0)
    value = tf.cond(
        source < 4.5,
        lambda: tf.identity(source.assign_add(1.0)),
        lambda: tf.check_numerics(tf.constant(float("nan")), "end"),
    )
    runner = tf.train.QueueRunner(
        queue, [queue.enqueue(value)], queue_closed_exception_types=(tf.errors.InvalidArgumentError,)
    )
    tf.train.add_queue_runner(runner)
    taken = queue.dequeue()
    found = []
    with tf.train.MonitoredSession() as session:
        while not session.should_stop():
            found.append(session.run(taken))
    assert found == [1.0, 2.0, 3.0, 4.0, 5.0]


# ---- recovery -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tf.errors.AbortedError, tf.errors.UnavailableError])
def test_a_step_is_run_again_in_a_new_session(kind: type[tf.errors.OpError]) -> None:
    c = tf.constant(3)
    calls: list[str] = []
    creator = FailingCreator([None, kind.of("gone"), kind.of("gone again")])
    tf.get_default_graph().add_to_collection("init", tf.no_op())
    with tf.train.MonitoredSession(creator, [Recorder("a", calls)]) as session:
        assert session.run(c) == 3 and not session.should_stop()
        assert session.run(c) == 3
    assert creator.created == 3
    assert calls.count("a begin") == 1 and calls.count("a created") == 3


def test_singular_sessions_do_not_recover() -> None:
    c = tf.constant(3)

    class Fail(tf.train.SessionRunHook):
        def before_run(self, run_context: Any) -> None:
            raise aborted()

    with pytest.raises(tf.errors.AbortedError), tf.train.SingularMonitoredSession(hooks=[Fail()]) as session:
        assert session.raw_session().run(c) == 3
        session.run(c)


def test_a_hook_that_meets_a_lost_task_at_creation_is_called_again() -> None:
    c = tf.constant(3)

    class Once(tf.train.SessionRunHook):
        coords: list[Any] = []

        def after_create_session(self, session: Any, coord: Any) -> None:
            self.coords.append(coord)
            if len(self.coords) == 1:
                raise aborted()

    with tf.train.MonitoredSession(hooks=[Once()]) as session:
        assert session.run(c) == 3
    assert len(Once.coords) == 2 and Once.coords[0].joined


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_a_task_lost_while_the_loop_asks_whether_to_stop(asked: int) -> None:
    """A thread of the session may report the loss at any moment, also between two looks of the same question."""
    c = tf.constant(3)

    class Losing(tf.train.Coordinator):
        left = asked

        def raise_requested_exception(self) -> None:
            Losing.left -= 1
            if not Losing.left:
                raise tf.errors.UnavailableError.of("the connection broke: [Errno 104]")

    class Creator:
        created = 0

        def create_session(self) -> Any:
            self.created += 1
            return _CoordinatedSession(tf.Session(), Losing(), 1)

    creator = Creator()
    session = _RecoverableSession(creator)
    for _ in range(asked):
        assert not session.should_stop() and session.run(c) == 3
    assert creator.created == 2
    session.close()


def test_a_task_lost_again_while_the_hooks_begin_in_a_new_session() -> None:
    """The chief's thread meets the second loss; the hook that runs meanwhile sees only its consequence."""
    c = tf.constant(3)
    lost = tf.errors.UnavailableError.of("the connection broke: [Errno 104]")

    class Chief(tf.train.SessionRunHook):
        created = 0

        def after_create_session(self, session: Any, coord: Any) -> None:
            self.created += 1
            if self.created < 3:
                with coord.stop_on_exception():
                    raise lost
                raise tf.errors.CancelledError.of("queue closed")

    hook = Chief()
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        assert session.run(c) == 3
    assert hook.created == 3


def test_recovery_ends_after_the_last_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        now = 100.0

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            self.now += seconds

    class Never:
        max_recovery_s = 60
        tries = 0

        def create_session(self) -> Any:
            self.tries += 1
            raise tf.errors.UnavailableError.of("/job:ps/replica:0/task:0 is unavailable")

    never, clock = Never(), Clock()
    process = types.SimpleNamespace(now=clock.monotonic, sleep=clock.sleep)
    monkeypatch.setattr("tfmini.train.sessions.wrapped_session.current_process", lambda: process)
    with pytest.raises(tf.errors.UnavailableError, match="/job:ps/replica:0/task:0"):
        _RecoverableSession(never)
    assert 60 <= clock.now - 100 < 70 and never.tries > 2
    assert tf.train.WorkerSessionCreator(max_wait_secs=5).max_recovery_s == 5


def test_a_preemption_met_by_a_thread_outweighs_what_follows_from_it() -> None:
    coord = tf.train.Coordinator(clean_stop_exception_types=())

    class Session:
        def run(self) -> None:
            with coord.stop_on_exception():
                raise aborted()
            raise tf.errors.CancelledError.of("queue closed")

        def close(self) -> None:
            pass

    session = _CoordinatedSession(Session(), coord, 1)
    with pytest.raises(tf.errors.AbortedError):
        session.run()
    with pytest.raises(tf.errors.AbortedError):
        session.close()


def test_a_preemption_met_by_a_thread_ends_the_step_that_waits_for_it() -> None:
    """As of the chief whose thread applies the updates: no token comes any more."""
    coord = tf.train.Coordinator(clean_stop_exception_types=())
    queue = tf.FIFOQueue(1, tf.int32, [[]])
    begun = threading.Event()
    with tf.control_dependencies([tf.py_func(lambda: begun.set() or 0, [], tf.int64)]):
        step = queue.dequeue()

    def fail() -> None:
        begun.wait(60)  # an error before the step begins leaves nothing unfinished
        with coord.stop_on_exception():
            raise aborted()

    session = _CoordinatedSession(tf.Session(), coord, 1)
    thread = threading.Thread(target=fail)
    thread.start()
    with pytest.raises(tf.errors.AbortedError) as caught:
        session.run(step)
    thread.join(60)
    assert caught.value.unfinished is not None  # of the step, for its repetition
    with pytest.raises(tf.errors.AbortedError) as caught:
        session.run(step)  # it does not begin
    assert caught.value.unfinished is None


# ---- step functions -------------------------------------------------------------------------


def test_a_step_function_runs_the_raw_session() -> None:
    x = tf.placeholder(tf.float32, [])
    y = x + 1
    hook = Recorder("a", [], fetches=x * 2)

    def step(step_context: Any) -> tuple[float, float]:
        return step_context.session.run(y, {x: 1.0}), step_context.run_with_hooks(y, {x: 2.0})

    with tf.train.MonitoredSession(hooks=[hook]) as session:
        assert session.run_step_fn(step) == (2.0, 3.0)
        assert [v.results for v in hook.values] == [4.0]
        with pytest.raises(ValueError, match="`step_fn` may either have one `step_context` argument"):
            session.run_step_fn(lambda x: x)
        session.run_step_fn(lambda step_context: step_context.request_stop())
    assert session.should_stop()


def test_a_step_function_sees_the_new_session() -> None:
    c = tf.constant(3)
    tf.get_default_graph().add_to_collection("init", tf.no_op())
    creator = FailingCreator([aborted()])
    seen = []

    def step(step_context: Any) -> Any:
        seen.append(step_context.session)
        return step_context.session.run(c)

    with tf.train.MonitoredSession(creator) as session:
        assert session.run_step_fn(step) == 3
    assert len(seen) == 2 and seen[0] is not seen[1]


# ---- MonitoredTrainingSession ---------------------------------------------------------------


def hooks_of(**arguments: Any) -> list[tuple[str, Any, Any]]:
    """(kind, steps, seconds) of the hooks that a chief gets."""
    tf.train.get_or_create_global_step()
    periods: list[tuple[Any, Any]] = []  # of the timers, in the order of their hooks
    hooks: list[Any] = []

    def timer(every_secs: Any = None, every_steps: Any = None) -> Any:
        periods.append((every_steps, every_secs))
        return make_timer(every_secs=every_secs, every_steps=every_steps)

    def session_with(creator: Any, given: list[Any], *rest: Any) -> Any:
        hooks.extend(given)
        return make_session(creator, given, *rest)

    make_timer, make_session = tf.train.SecondOrStepTimer, tf.train.MonitoredSession
    with pytest.MonkeyPatch.context() as patch:
        for module in (hooks_module, saving_hooks):
            patch.setattr(module, "SecondOrStepTimer", timer)
        patch.setattr(monitored_session, "MonitoredSession", session_with)
        tf.train.MonitoredTrainingSession(**arguments).close()
    timed = iter(periods)
    return [(h.name, 0, 0) if isinstance(h, Recorder) else (type(h).__name__, *next(timed)) for h in hooks]


def test_the_default_hooks_log_save_and_summarize(tmp_path: Path) -> None:
    own, chiefs = Recorder("own", []), Recorder("chiefs", [])
    assert hooks_of(checkpoint_dir=str(tmp_path), hooks=[own], chief_only_hooks=[chiefs]) == [
        ("chiefs", 0, 0),
        ("StepCounterHook", 100, None),
        ("SummarySaverHook", 100, None),
        ("CheckpointSaverHook", None, 600),
        ("own", 0, 0),
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"log_step_count_steps": None, "save_summaries_secs": 5}, {"SummarySaverHook": (None, 5)}),
        ({"log_step_count_steps": 7, "save_summaries_steps": None}, {"StepCounterHook": (7, None)}),
        ({"log_step_count_steps": 0, "save_summaries_steps": 3}, {"SummarySaverHook": (3, None)}),
    ],
)
def test_periods_of_checkpoints_and_summaries_have_their_defaults(
    tmp_path: Path, arguments: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = {kind: (steps, secs) for kind, steps, secs in hooks_of(summary_dir=str(tmp_path), **arguments)}
    assert found == expected


def test_training_continues_from_the_last_checkpoint(tmp_path: Path) -> None:
    for expected in (3, 6):
        with tf.Graph().as_default():
            step = tf.train.get_or_create_global_step()
            add = step.assign_add(1)
            with tf.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), hooks=[tf.train.StopAtStepHook(num_steps=3)], save_checkpoint_steps=2
            ) as session:
                while not session.should_stop():
                    last = session.run(add)
            assert last == expected


def test_a_worker_waits_for_the_chief() -> None:
    server = tf.train.Server.create_local_server()
    ready, found = threading.Event(), []

    def work() -> None:
        with tf.Graph().as_default():
            v = tf.get_variable("v", initializer=5.0)
            ready.set()
            with tf.train.MonitoredTrainingSession(server.target, is_chief=False, max_wait_secs=100) as session:
                found.append(session.run(v))

    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert ready.wait(60)
        tf.get_variable("v", initializer=5.0)
        with tf.train.MonitoredTrainingSession(server.target):
            worker.join(60)
    finally:
        worker.join(120)
        server.stop()
    assert found == [5.0]


def test_a_hook_that_needs_a_feed_of_its_own_is_named(tmp_path: Path) -> None:
    x = tf.placeholder(tf.float32, [], name="x_in")
    y = tf.placeholder(tf.float32, [], name="y_in")
    step = tf.train.get_or_create_global_step()
    train = tf.assign_add(step, 1)
    summary = tf.summary.scalar("loss", x * 2.0)
    others = y + 1.0, x + 1.0
    hook = tf.train.SummarySaverHook(save_steps=1, output_dir=str(tmp_path), summary_op=summary)
    with tf.train.MonitoredSession(hooks=[hook]) as session:
        session.run(train, {x: 1.0})
        with pytest.raises(tf.errors.InvalidArgumentError, match="You must feed") as caught:
            session.run(train)
        assert "\nNothing that this run fetches needs 'x_in', but SummarySaverHook does" in caught.value.message
        for fetches, feeds in ((others[0], {x: 1.0}), ([train, others[1]], None)):
            with pytest.raises(tf.errors.InvalidArgumentError, match="You must feed") as caught:
                session.run(fetches, feeds)
            assert "SummarySaverHook" not in caught.value.message


def test_a_closed_session_says_that_it_is_closed() -> None:
    x = tf.constant(1)
    with tf.train.MonitoredSession() as session:
        session.run(x)
    for use in (lambda: session.run(x), lambda: session.run_step_fn(lambda step_context: None)):
        with pytest.raises(
            RuntimeError, match="Attempted to use a closed MonitoredSession. Its `with` block has ended"
        ):
            use()


def test_one_hook_in_place_of_a_list_is_named() -> None:
    with pytest.raises(TypeError, match=r"hooks must be a list of hooks, but got one: write hooks=\[StopAtStepHook"):
        tf.train.MonitoredSession(hooks=tf.train.StopAtStepHook(last_step=5))
    with pytest.raises(TypeError, match=r"hooks must be a list of hooks, but got one: write hooks=\[StopAtStepHook"):
        tf.train.MonitoredTrainingSession(hooks=tf.train.StopAtStepHook(last_step=5))
    with pytest.raises(TypeError, match=r"the class itself. Write StopAtStepHook\(…\)"):
        tf.train.MonitoredTrainingSession(hooks=[tf.train.StopAtStepHook])
