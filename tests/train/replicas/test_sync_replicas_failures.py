"""A synchronous run of which a worker, or the chief's thread that makes the updates, fails: nobody waits for ever."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.train.replicas.test_sync_replicas import servers
from tfmini.runtime.client import answer

LIMIT_S = 120
Step = Callable[[Any, int], Any]


class Boom(Exception):
    """What a test's script raises."""


def rate_of(kind: str, step: Any, place: str) -> Any:
    """A learning rate with which the third update fails."""
    if kind == "placeholder":
        return tf.placeholder(tf.float32, [], name="rate")
    if kind == "dataset":
        return tf.data.make_one_shot_iterator(tf.data.Dataset.from_tensor_slices(tf.constant([0.1, 0.1]))).get_next()
    if kind == "check":
        return tf.check_numerics(tf.log(1.5 - tf.cast(step, tf.float32)), "the rate")

    def rate(count: Any) -> Any:
        if count > 1:
            raise Boom(f"no rate for step {count}")
        return np.float32(0.1)

    with tf.device(place):
        found = tf.py_func(rate, [step], tf.float32)
    found.set_shape([])
    return found


class Team:
    """The workers of one run, each in a thread; ``errors`` has what each raised, None for nothing."""

    def __init__(self, count: int, *arguments: Any, rate: str = "", **more: Any) -> None:
        self.count, self.arguments, self.more, self.rate = count, arguments or (count,), more, rate
        self.errors: dict[int, BaseException | None] = {}
        self.steps = [0] * count
        self.optimizers: dict[int, Any] = {}

    def build(self, task: int) -> tuple[Any, Any, Any]:
        """(optimizer, training op, global step) in the default graph."""
        weight = tf.get_variable("weight", [2], initializer=tf.ones_initializer())
        step = tf.train.get_or_create_global_step()
        rate = rate_of(self.rate, step, f"/job:worker/task:{task}") if self.rate else 0.1
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.GradientDescentOptimizer(rate), *self.arguments, **self.more
        )
        self.optimizers[task] = optimizer
        return optimizer, optimizer.minimize(tf.reduce_sum(weight), global_step=step), step

    def work(self, target: str, task: int, train: Any, body: Step) -> None:
        hook = self.optimizers[task].make_session_run_hook(task == 0, 0)
        with tf.train.MonitoredTrainingSession(
            target, is_chief=task == 0, hooks=[hook], save_checkpoint_secs=None, save_summaries_steps=None,
            log_step_count_steps=None,
        ) as session:  # fmt: skip
            while not session.should_stop():
                session.run(train)
                self.steps[task] += 1
                body(session, task)

    def run(self, body: Step, work: Any = None) -> list[BaseException | None]:
        """Trains until each worker has ended; ``body`` runs after each step of a worker."""
        with servers(self.count) as (cluster, targets):
            threads = [
                threading.Thread(target=self._guarded, args=(cluster, targets[i], i, body, work or self.work))
                for i in range(self.count)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(LIMIT_S)
            assert not any(thread.is_alive() for thread in threads)
        return [self.errors[i] for i in range(self.count)]

    def _guarded(self, cluster: Any, target: str, task: int, body: Step, work: Any) -> None:
        setter = tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{task}")
        try:
            with tf.Graph().as_default(), tf.device(setter):
                _, train, _ = self.build(task)
                work(target, task, train, body)
            self.errors[task] = None
        except BaseException as error:
            self.errors[task] = error


def nothing(session: Any, task: int) -> None:
    """A step's end."""


CAUSES = {
    "placeholder": (tf.errors.InvalidArgumentError, "placeholder 'rate' has no value in the chief's thread", "'rate'"),
    "dataset": (tf.errors.UnknownError, "An input of the update has ended", "IteratorGetNext"),
    "check": (tf.errors.InvalidArgumentError, "the rate : Tensor had NaN values", "CheckNumerics"),
    "function": (tf.errors.OpError, "no rate for step 2", "PyFunc"),
}


@pytest.mark.parametrize("rate", CAUSES)
def test_an_error_in_the_chiefs_thread_ends_the_run_of_all(rate: str) -> None:
    kind, text, op = CAUSES[rate]
    chief, other = Team(2, rate=rate).run(nothing)
    assert isinstance(chief, kind) and text in str(chief)
    assert isinstance(other, tf.errors.UnknownError)
    assert "the thread of the chief, /job:worker/task:0, that makes the updates, has failed" in other.message
    assert text in other.message and op in other.message and type(chief).__name__ in other.message


def test_an_error_in_the_chiefs_thread_reaches_a_session_without_a_server() -> None:
    with tf.Session() as session:
        optimizer, train, _ = Team(1, rate="check").build(0)
        session.run([tf.global_variables_initializer()])
        session.run(optimizer.chief_init_op)
        (thread,) = optimizer.get_chief_queue_runner().create_threads(session, daemon=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading, "excepthook", lambda args: None)
            thread.start()
            with pytest.raises(tf.errors.UnknownError, match="(?s)the updates, has failed.*the rate : Tensor had"):
                for _ in range(5):
                    session.run(train)
            thread.join(LIMIT_S)


def test_an_error_in_the_chiefs_thread_after_the_chiefs_join_is_no_stray_exception() -> None:
    """Another worker may end the run between the chief's last step and the end of its thread's update."""
    with tf.Session() as session:
        optimizer, train, _ = Team(1, rate="check").build(0)
        session.run([tf.global_variables_initializer()])
        session.run(optimizer.chief_init_op)
        coord, stray = tf.train.Coordinator(), list[Any]()
        updates = optimizer.get_chief_queue_runner().create_threads(session, coord, daemon=True)
        coord.request_stop()
        coord.join()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading, "excepthook", stray.append)
            for thread in updates:
                thread.start()
            with pytest.raises(tf.errors.UnknownError, match="(?s)the updates, has failed.*the rate : Tensor had"):
                for _ in range(5):
                    session.run(train)
            for thread in updates:
                thread.join(LIMIT_S)
        assert stray == []


@pytest.mark.parametrize("bad", [0, 1])
def test_an_exception_of_a_script_ends_the_run_of_the_others(bad: int) -> None:
    def body(session: Any, task: int) -> None:
        if task == bad and team.steps[task] == 3:
            raise Boom("the script is wrong")

    team = Team(2)
    found = team.run(body)
    assert isinstance(found[bad], Boom)
    other = found[1 - bad]
    assert isinstance(other, tf.errors.UnknownError)
    assert f"/job:worker/task:{bad} has failed: Boom: the script is wrong" in other.message


def test_an_error_of_another_thread_ends_the_run_of_the_others() -> None:
    """The loop ends as in good order, and only closing the session raises the thread's error."""

    def body(session: Any, task: int) -> None:
        if task == 1 and team.steps[1] == 3:
            try:
                raise Boom("in a thread")
            except Boom as error:
                session._coordinated_creator.coord.request_stop(error)

    team = Team(2)
    chief, other = team.run(body)
    assert isinstance(other, Boom)
    assert isinstance(chief, tf.errors.UnknownError) and "task:1 has failed: Boom: in a thread" in chief.message


def test_the_run_goes_on_while_enough_workers_are_left() -> None:
    """Two of three are needed, so the second failure ends the run, with both causes."""

    def body(session: Any, task: int) -> None:
        if task == 2 and team.steps[2] == 2:
            gone.set()
            raise Boom("first")
        if task == 1 and gone.is_set() and (later := later_than.setdefault(1, team.steps[1])) + 5 < team.steps[1]:
            raise Boom(f"second, {later >= 0}")

    gone, later_than = threading.Event(), dict[int, int]()
    team = Team(3, 2, 3)
    chief, second, first = team.run(body)
    assert isinstance(first, Boom) and isinstance(second, Boom)
    assert isinstance(chief, tf.errors.UnknownError)
    assert "task:2 has failed: Boom: first; /job:worker/task:1 has failed: Boom: second" in chief.message


def test_an_elastic_run_goes_on_without_a_worker_that_fails() -> None:
    def body(session: Any, task: int) -> None:
        if task == 1 and team.steps[1] == 3:
            raise Boom("gone")
        if task == 0 and team.steps[0] == 30:
            session.run_step_fn(lambda step_context: step_context.request_stop())

    team = Team(2, elastic=True)
    chief, other = team.run(body)
    assert chief is None and isinstance(other, Boom)


@pytest.mark.parametrize("bad", [0, 1])
def test_an_exception_in_a_supervised_loop_ends_the_run_of_the_others(bad: int) -> None:
    def work(target: str, task: int, train: Any, body: Step) -> None:
        optimizer, is_chief = team.optimizers[task], task == 0
        supervisor = tf.train.Supervisor(
            is_chief=is_chief, ready_for_local_init_op=optimizer.ready_for_local_init_op, summary_op=None,
            local_init_op=optimizer.chief_init_op if is_chief else optimizer.local_step_init_op,
        )  # fmt: skip
        with supervisor.managed_session(target) as session:
            if is_chief:
                supervisor.start_queue_runners(session, [optimizer.get_chief_queue_runner()])
            for step in range(100):
                session.run(train)
                if task == bad and step == 3:
                    raise Boom("the script is wrong")

    team = Team(2)
    found = team.run(nothing, work)
    assert isinstance(found[bad], Boom)
    other = found[1 - bad]
    assert isinstance(other, tf.errors.UnknownError)
    assert f"/job:worker/task:{bad} has failed: Boom: the script is wrong" in other.message


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit])
def test_a_worker_that_is_told_to_end_leaves_its_token(leaving: type[BaseException]) -> None:
    def body(session: Any, task: int) -> None:
        if task == 1 and team.steps[1] == 3:
            raise leaving
        if task == 0 and team.steps[0] == 20:
            session.run_step_fn(lambda step_context: step_context.request_stop())

    team = Team(2)
    chief, other = team.run(body)
    assert chief is None and isinstance(other, leaving)


def test_a_second_call_and_a_second_optimizer_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    weight = tf.Variable(1.0)
    step = tf.train.get_or_create_global_step()
    first, second = (tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 1) for _ in range(2))
    first.minimize(weight, step)
    assert "apply_gradients" not in caplog.text
    first.minimize(2 * weight, step)
    assert caplog.text.count("was called 2 times") == 1 and "one call" in caplog.text
    second.minimize(3 * weight, step)
    second.minimize(4 * weight, step)
    assert len([record for record in caplog.records if "apply_gradients" in record.getMessage()]) == 1


def test_the_chiefs_thread_serves_the_workers_after_another_thread_has_failed() -> None:
    """The chief's own step may wait for an update: the thread ends with the session, not with the coordinator."""
    coord = tf.train.Coordinator()
    with tf.Session() as session:
        optimizer, train, step = Team(1).build(0)
        session.run(tf.global_variables_initializer())
        session.run(optimizer.chief_init_op)
        optimizer.get_chief_queue_runner().create_threads(session, coord, daemon=True, start=True)
        session.run(train)
        coord.request_stop((Boom, Boom("the disk is full"), None))
        for _ in range(3):
            session.run(train)
        assert session.run(step) >= 3
        with pytest.raises(Boom, match="the disk is full"):
            coord.join()


def test_a_thread_that_loses_a_task_wakes_the_chief_without_a_monitored_session() -> None:
    with servers(1) as (_, targets), tf.device("/job:worker/task:0"), tf.Graph().as_default():
        optimizer, train, _ = Team(2).build(0)
        runner = optimizer.get_chief_queue_runner()
        with tf.Session(targets[0]) as session, tf.Session(targets[0]) as thread:
            session.run(tf.global_variables_initializer())
            session.run(optimizer.chief_init_op)
            found: list[BaseException] = []

            def wait() -> None:
                try:
                    session.run(train)
                except tf.errors.AbortedError as error:
                    found.append(error)

            waiting = threading.Thread(target=wait)
            waiting.start()
            sent = optimizer._accumulators[0][1].num_accumulated()
            while thread.run(sent) < 1:
                pass
            with pytest.raises(tf.errors.UnavailableError), runner._failing(thread):
                raise tf.errors.UnavailableError(None, None, "a ps is lost")
            waiting.join(LIMIT_S)
            assert found


def test_who_waits_for_a_token_is_told_the_chief(monkeypatch: pytest.MonkeyPatch) -> None:
    told, texts = threading.Event(), list[str]()

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())
            if "sync_token_q" in texts[-1]:
                told.set()

    handler = Lines()
    monkeypatch.setattr(answer, "FIRST_S", 0.05)
    logging.getLogger("tfmini").addHandler(handler)
    with servers(1) as (_, targets), tf.device("/job:worker/task:0"), tf.Graph().as_default():
        optimizer, train, _ = Team(2).build(0)
        with tf.Session(targets[0]) as session, tf.Session(targets[0]) as other:
            session.run(tf.global_variables_initializer())
            session.run(optimizer.chief_init_op)
            optimizer._state.begin(session)
            ending = threading.Thread(target=lambda: (told.wait(LIMIT_S), optimizer._state.end_in(other)))
            ending.start()
            with pytest.raises(tf.errors.OutOfRangeError, match="its chief, .*, has finished"):
                session.run(train)
            ending.join(LIMIT_S)
    logging.getLogger("tfmini").removeHandler(handler)
    (text,) = [text for text in texts if "sync_token_q" in text][:1]
    assert "filled by the chief, " in text and "optimizer.ledger(session)" in text and "queue runners" not in text


def test_the_next_run_does_not_know_of_the_failure_of_the_last_one() -> None:
    with servers(1) as (_, targets), tf.device("/job:worker/task:0"):
        for is_bad in (True, False):
            with tf.Graph().as_default():
                team = Team(1)
                _, train, _ = team.build(0)

                def body(session: Any, task: int, is_bad: bool = is_bad, team: Team = team) -> None:
                    if team.steps[0] == 3:
                        if is_bad:
                            raise Boom
                        session.run_step_fn(lambda step_context: step_context.request_stop())

                try:
                    team.work(targets[0], 0, train, body)
                except Boom:
                    assert is_bad
                else:
                    assert not is_bad and team.steps[0] == 3
