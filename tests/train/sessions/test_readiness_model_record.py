"""The record of a model in a cluster: a chief restores it only when values are lost, and workers wait meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tests.train.sessions.readiness import said_after_a_wait
from tfmini.runtime.waits import variable_snapshots
from tfmini.train.sessions.readiness import ModelRecord, ModelRecords


@pytest.fixture
def server() -> Iterator[Any]:
    with tf.train.Server.create_local_server() as found:
        yield found


class Chief:
    """A chief's process, which starts with a graph and a manager of its own; ``w`` can be lost without ``v``."""

    def __init__(self, target: str, directory: Path | None, **arguments: Any) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default(), tf.device("/job:local/task:0"):
            self.v = tf.get_variable("v", initializer=1.0)
            with tf.container("other"):
                self.w = tf.get_variable("w", initializer=1.0)
            tf.get_variable("mine", initializer=0.0, collections=[tf.GraphKeys.LOCAL_VARIABLES])
            self.saver = tf.train.Saver([self.v, self.w])
            self.init = tf.global_variables_initializer()
            self.set = tf.group(self.v.assign(5.0), self.w.assign(5.0))
            self.manager = tf.train.SessionManager(
                tf.local_variables_initializer(), tf.report_uninitialized_variables(), **arguments
            )
        self.target, self.directory = target, directory

    def start(self) -> list[float]:
        """Prepares a session; returns the values of the variables in it."""
        directory = str(self.directory) if self.directory else None
        self.session = self.manager.prepare_session(self.target, self.init, self.saver, directory)
        return self.session.run([self.v, self.w])

    def train(self, saves: bool = True) -> None:
        """Saves a checkpoint, then changes the variables."""
        if saves:
            self.saver.save(self.session, str(self.directory / "model"))
        self.session.run(self.set)

    def records(self) -> ModelRecords:
        return ModelRecords(self.target, self.graph, None)


def trained(target: str, directory: Path) -> Chief:
    """A chief that was killed after training; its checkpoint has 1, the variables have 5."""
    chief = Chief(target, directory)
    assert chief.start() == [1.0, 1.0]
    chief.train()
    chief.session.close()
    return chief


def test_a_restarted_chief_goes_on_with_the_values_that_nobody_lost(server: Any, tmp_path: Path) -> None:
    first = trained(server.target, tmp_path)
    second = Chief(server.target, tmp_path)
    assert second.start() == [5.0, 5.0]
    assert second.manager.model == first.manager.model
    # The same chief after a loss of its connection.
    assert second.start() == [5.0, 5.0]


def test_a_chief_that_was_killed_before_its_first_checkpoint_goes_on(server: Any, tmp_path: Path) -> None:
    """Other workers may have trained in the meantime; the chief's hooks had written nothing yet."""
    first = Chief(server.target, tmp_path / "new")
    assert first.start() == [1.0, 1.0]
    first.train(saves=False)
    second = Chief(server.target, tmp_path / "new")
    assert second.start() == [5.0, 5.0]


@pytest.mark.parametrize("containers", [["other"], ["local"], ["local", "other"]])
def test_a_lost_variable_means_a_restore_of_all(server: Any, tmp_path: Path, containers: list[str]) -> None:
    first = trained(server.target, tmp_path)
    tf.Session.reset(server.target, containers)
    assert first.start() == [1.0, 1.0]
    second = Chief(server.target, tmp_path)
    second.start()
    second.train(saves=False)
    tf.Session.reset(server.target, containers)
    third = Chief(server.target, tmp_path)
    assert third.start() == [1.0, 1.0]
    assert third.manager.model not in ("", first.manager.model, second.manager.model)


def test_a_run_that_has_ended_is_restored_as_usual(server: Any, tmp_path: Path) -> None:
    first = trained(server.target, tmp_path)
    first.manager.end_run()
    assert first.records().read() == ModelRecord(first.manager.model, True, "")
    assert not any("record" in each.name for each in variable_snapshots(server.worker))  # what status shows
    assert Chief(server.target, tmp_path).start() == [1.0, 1.0]


def test_a_worker_knows_the_model_of_a_run_that_has_ended(server: Any, tmp_path: Path) -> None:
    """It may have to repeat a step, without the updates that were made: schedule 2017507."""
    first = trained(server.target, tmp_path)
    model = first.manager.model
    first.manager.end_run()
    with first.graph.as_default():
        worker = tf.train.SessionManager(graph=first.graph, ready_op=tf.report_uninitialized_variables())
        worker.wait_for_session(server.target).close()
    assert worker.model == model != ""


def test_other_runs_do_not_take_over_what_they_find(server: Any, tmp_path: Path) -> None:
    trained(server.target, tmp_path / "a")
    assert Chief(server.target, tmp_path / "b").start() == [1.0, 1.0]
    trained(server.target, tmp_path / "c")
    for path in (tmp_path / "c").iterdir():
        path.unlink()
    assert Chief(server.target, tmp_path / "c").start() == [1.0, 1.0]


def test_a_chief_may_be_killed_before_its_first_checkpoint(server: Any, tmp_path: Path) -> None:
    first = Chief(server.target, tmp_path)
    first.start()
    first.train(saves=False)
    tf.train.write_graph(first.graph, str(tmp_path), "graph.pbtxt")  # as supervisors and hooks do
    assert Chief(server.target, tmp_path).start() == [5.0, 5.0]


def test_a_chief_without_checkpoints_goes_on_and_a_new_one_begins_anew(server: Any) -> None:
    first = Chief(server.target, None)
    first.start()
    first.train(saves=False)
    assert first.start() == [5.0, 5.0]
    assert Chief(server.target, None).start() == [1.0, 1.0]


def test_a_chief_that_was_killed_while_it_restored_is_followed_by_a_restore(server: Any, tmp_path: Path) -> None:
    first = trained(server.target, tmp_path)
    record = first.records().read()
    assert record is not None and record.is_set and record.run == str(tmp_path)
    first.records().write(ModelRecord("half", False, record.run))
    assert Chief(server.target, tmp_path).start() == [1.0, 1.0]


def test_ranks_of_an_all_reduce_begin_anew(server: Any, tmp_path: Path) -> None:
    first = trained(server.target, tmp_path)
    with first.graph.as_default():
        tf.raw_ops.CollectiveReduce(
            input=tf.constant(1.0), group_size=2, group_key=1, instance_key=1, merge_op="Add", final_op="Id",
            subdiv_offsets=[0],
        )  # fmt: skip
    assert first.start() == [1.0, 1.0]


def test_a_worker_waits_until_the_whole_model_is_set(server: Any, tmp_path: Path) -> None:
    chief = trained(server.target, tmp_path)
    records = chief.records()
    half = ModelRecord("half", False, str(tmp_path))
    records.write(half)
    worker = Chief(server.target, None)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(worker.manager.wait_for_session(server.target)))
    part = "for the chief to initialise the rest of the model"
    assert part in said_after_a_wait(Chief(server.target, None).manager, server.target, part)
    thread.start()
    assert thread.is_alive() and not found
    records.write(ModelRecord("whole", True, half.run))
    thread.join(60)
    assert found and worker.manager.model == "whole"
    found[0].close()


def test_a_monitored_session_notes_the_end_of_the_run_unless_it_failed(server: Any, tmp_path: Path) -> None:
    def run(fails: bool) -> str:
        with tf.Graph().as_default() as graph:
            step = tf.train.get_or_create_global_step()
            add = step.assign_add(1)
            try:
                with tf.train.MonitoredTrainingSession(server.target, checkpoint_dir=str(tmp_path)) as session:
                    session.run(add)
                    records = ModelRecords(server.target, graph, None)
                    if fails:
                        raise ValueError
            except ValueError:
                pass
            found = records.read()
            assert found is not None
            return found.run

    assert run(fails=True) == str(tmp_path)
    assert run(fails=False) == ""


@pytest.mark.parametrize("fails", [True, False])
def test_a_supervisor_notes_the_end_of_the_run_unless_it_failed(server: Any, tmp_path: Path, fails: bool) -> None:
    v = tf.get_variable("v", initializer=1.0)
    supervisor = tf.train.Supervisor(logdir=str(tmp_path))
    try:
        with supervisor.managed_session(server.target) as session:
            assert session.run(v) == 1.0
            if fails:
                raise ValueError
    except ValueError:
        pass
    found = ModelRecords(server.target, tf.get_default_graph(), None).read()
    assert found is not None and bool(found.run) == fails
