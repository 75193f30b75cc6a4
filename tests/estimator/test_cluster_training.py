"""`train_and_evaluate`: alone as TensorFlow does it, and in clusters of real processes by TF_CONFIG."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tfmini as tf
from tests.estimator import cluster_task, models, programs
from tests.estimator.agreement import assert_same
from tests.oracle import sent
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId

ROOT = Path(__file__).parents[2]
_LIMIT_S = 200


@pytest.mark.oracle_1x
def test_alone_it_trains_evaluates_and_exports_as_tensorflow_does(oracle_1x) -> None:
    assert_same(sent(programs.in_turns(tf)), oracle_1x.call(programs.in_turns))


def test_alone_it_evaluates_checkpoints_and_the_end(tmp_path: Path) -> None:
    made = models.estimator(tf, tmp_path, save_checkpoints_steps=5)
    train = tf.estimator.TrainSpec(models.inputs(tf, epochs=None), max_steps=12)
    spec = tf.estimator.EvalSpec(models.inputs(tf), steps=None, throttle_secs=0)
    metrics, exports = tf.estimator.train_and_evaluate(made, train, spec)
    assert metrics["global_step"] == 12 and exports == []
    assert list(tf.contrib.estimator.read_eval_metrics(made.eval_dir())) == [5, 10, 12]


def test_a_throttled_evaluation_is_left_out(tmp_path: Path) -> None:
    made = models.estimator(tf, tmp_path, save_checkpoints_steps=3)
    train = tf.estimator.TrainSpec(models.inputs(tf, epochs=None), max_steps=10)
    spec = tf.estimator.EvalSpec(models.inputs(tf), steps=1, throttle_secs=10_000)
    tf.estimator.train_and_evaluate(made, train, spec)
    assert list(tf.contrib.estimator.read_eval_metrics(made.eval_dir())) == [3, 10]


def test_arguments_are_checked(tmp_path: Path) -> None:
    made = models.estimator(tf, tmp_path)
    train = tf.estimator.TrainSpec(models.inputs(tf))
    for arguments in ((3, train, None), (made, 3, None), (made, train, 3), (made, train, None)):
        with pytest.raises(TypeError, match="must have type"):
            tf.estimator.train_and_evaluate(*arguments)


def run_cluster(jobs: dict[str, int], directory: Path, program: str = cluster_task.__file__) -> dict[str, str]:
    """Runs a process for each task of the jobs, and returns what each one printed, the ps aside.

    Fails if one does not end well. The ps serve without end and are ended here.
    """
    tasks = [TaskId(job, index) for job, count in jobs.items() for index in range(count)]
    reserved = reserve_cluster(task for task in tasks if task.job != "evaluator")
    cluster = reserved.spec.as_dict()
    reserved.close()
    started = {task: _start(cluster, task, directory, program) for task in tasks}
    try:
        codes = {task: process.wait(_LIMIT_S) for task, process in started.items() if task.job != "ps"}
    finally:
        for process in started.values():
            process.terminate()
            process.wait(60)
    printed = {f"{task.job}{task.task}": _log(directory, task).read_text() for task in tasks if task.job != "ps"}
    assert set(codes.values()) == {0}, printed
    return printed


def _log(directory: Path, task: TaskId) -> Path:
    return directory / f"{task.job}{task.task}.log"


def _start(cluster: dict[str, list[str]], task: TaskId, directory: Path, program: str) -> subprocess.Popen[bytes]:
    tf_config = json.dumps({"cluster": cluster, "task": {"type": task.job, "index": task.task}})
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CONFIG": tf_config}
    command = [sys.executable, program, str(directory / "model")]
    with _log(directory, task).open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


@pytest.mark.cluster
def test_chief_worker_ps_and_evaluator_train_together(tmp_path: Path) -> None:
    printed = run_cluster({"ps": 1, "chief": 1, "worker": 1, "evaluator": 1}, tmp_path)
    made = models.estimator(tf, tmp_path / "model")
    assert made.get_variable_value("global_step") >= cluster_task.LAST
    found = tf.contrib.estimator.read_eval_metrics(made.eval_dir())
    assert max(found) >= cluster_task.LAST and found[max(found)]["accuracy"] > 0.7
    assert len(list((tmp_path / "model" / "export" / "final").iterdir())) == 1
    assert all("done" in text for text in printed.values())


@pytest.mark.cluster
def test_the_variables_are_on_the_ps_and_the_worker_trains(tmp_path: Path) -> None:
    printed = run_cluster({"ps": 2, "chief": 1, "worker": 1}, tmp_path)
    placed = json.loads(printed["chief0"].split("placed ")[1].splitlines()[0])
    assert placed["global_step"].startswith("/job:ps/task:0") and placed["dense/kernel"].startswith("/job:ps/task:1")
    assert placed["IteratorGetNext"].startswith("/job:chief/task:0")
    assert "steps" in printed["worker0"]


@pytest.mark.cluster
def test_a_master_trains_and_evaluates(tmp_path: Path) -> None:
    run_cluster({"ps": 1, "master": 1, "worker": 1}, tmp_path)
    made = models.estimator(tf, tmp_path / "model")
    found = tf.contrib.estimator.read_eval_metrics(made.eval_dir())
    assert max(found) >= cluster_task.LAST  # an earlier one only if the worker leaves the master steps to save at
