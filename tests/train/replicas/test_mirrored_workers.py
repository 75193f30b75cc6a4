"""Several workers in step, as processes: what TensorFlow 1.15.5 computes, what is refused, and how it ends.

The answers of TensorFlow are those of `mirrored_task.py`, one kind at a time (1.15.5 has one model per process), on two
workers with the module ``tensorflow``: `mirrored_answers.json` has what worker 0 prints.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId

ROOT = Path(__file__).parents[3]
ANSWERS = json.loads((Path(__file__).parent / "mirrored_answers.json").read_text())
_LIMIT_S = 150


class Workers:
    """What the tasks of a cluster have printed, and their exit codes, by job and index ("worker0")."""

    def __init__(self, directory: Path, jobs: dict[str, int], *what: str) -> None:
        tasks = [TaskId(job, index) for job, count in jobs.items() for index in range(count)]
        reserved = reserve_cluster(tasks)
        cluster = reserved.spec.as_dict()
        reserved.close()
        logs = {f"{task.job}{task.task}": directory / f"{task.job}{task.task}.log" for task in tasks}
        started = []
        for task, log in zip(tasks, logs.values()):
            told = json.dumps({"cluster": cluster, "task": {"type": task.job, "index": task.task}})
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CONFIG": told}
            command = [sys.executable, str(TASK), "tfmini", str(directory), *what]
            with log.open("w") as file:
                started.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment))
        try:
            codes = [process.wait(_LIMIT_S) for process in started]
        finally:
            for process in started:
                process.kill()
                process.wait(60)
        self.codes, self.printed = dict(zip(logs, codes)), {name: log.read_text() for name, log in logs.items()}

    def answers(self, task: str) -> Any:
        """What a task of `mirrored_task.py` answers."""
        lines = [line for line in self.printed[task].splitlines() if line.startswith("ANSWER ")]
        assert lines, self.printed
        return json.loads(lines[0].removeprefix("ANSWER "))


TASK = Path(__file__).parent / "mirrored_task.py"


def flat(value: Any) -> list[float]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [float(value)] if parts is None else [number for part in parts for number in flat(part)]


@pytest.mark.cluster
def test_two_workers_train_as_on_tensorflow(tmp_path: Path) -> None:
    kinds = ["mean", "again", "norm", "plain", "sum", "keras", "keras_norm", "uneven"]
    workers = Workers(tmp_path, {"worker": 2}, *kinds)
    for kind in kinds:
        chief, other = (workers.answers(task)[kind] for task in ("worker0", "worker1"))
        assert chief["losses"] == pytest.approx(ANSWERS[kind]["losses"], abs=2e-6), kind
        assert other["losses"] == pytest.approx(chief["losses"], abs=2e-6), kind
        assert chief["values"].keys() == ANSWERS[kind]["values"].keys()
        for name, value in ANSWERS[kind]["values"].items():
            assert flat(chief["values"][name]) == pytest.approx(flat(value), abs=3e-6), (kind, name)
        assert not list(tmp_path.glob(f"{kind}_1/*")), "the other worker writes nothing"
    assert set(workers.codes.values()) == {0}


@pytest.mark.cluster
def test_a_session_in_the_scope_of_a_strategy(tmp_path: Path) -> None:
    workers = Workers(tmp_path, {"worker": 2}, "session")
    for task in ("worker0", "worker1"):
        for name, value in workers.answers(task)["session"].items():
            assert flat(value) == pytest.approx(flat(ANSWERS["session"][name]), abs=2e-6), name


@pytest.mark.cluster
def test_monitored_sessions_go_on_from_the_chiefs_checkpoint(tmp_path: Path) -> None:
    workers = Workers(tmp_path, {"worker": 2}, "monitored")
    first, second = workers.answers("worker0")["monitored"]
    assert workers.answers("worker1")["monitored"] == [first, second]
    losses, square, speed = [], first[0] / 1.5, 0.0  # v and its momentum shrink alike in both components
    length = square**0.5
    for _ in range(10):
        losses.append(1.5 * length * length)
        speed = 0.5 * speed + 2 * 3 * length  # the sum of the gradients of two losses, of which one is twice the other
        length -= 0.01 * speed
    assert [*first, *second] == pytest.approx(losses, rel=1e-5)


@pytest.mark.cluster
@pytest.mark.parametrize(("what", "rows"), [("tables", 3), ("own_tables", 0)])
def test_a_worker_restores_tables_where_it_has_the_checkpoint(what: str, rows: int, tmp_path: Path) -> None:
    first, second = (Workers(tmp_path, {"worker": 2}, what) for _ in range(2))
    assert first.answers("worker0")[what] == first.answers("worker1")[what] == [0, 0]
    assert second.answers("worker0")[what] == [-3, 3]
    assert second.answers("worker1")[what] == [-3, rows]
    assert ("If the chief restores a checkpoint, counts" in second.printed["worker1"]) == (rows == 0)
    assert "If the chief" not in first.printed["worker0"] + second.printed["worker0"]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("die", "UnavailableError: Collective lost rank 1"),
        ("fail", "UnknownError: rank 1"),
        ("exit", "its script has ended in the middle of its training"),
    ],
)
def test_the_others_end_with_a_worker_that_is_lost(what: str, error: str, tmp_path: Path) -> None:
    workers = Workers(tmp_path, {"chief": 1, "worker": 1}, what)
    assert workers.codes["chief0"] == 1 and workers.codes["worker0"] != 0
    assert error in workers.printed["chief0"]
    assert what != "fail" or "worker 1 has had enough" in workers.printed["chief0"]


@pytest.mark.cluster
def test_a_chief_a_worker_and_an_evaluator(tmp_path: Path) -> None:
    workers = Workers(tmp_path, {"chief": 1, "worker": 1, "evaluator": 1}, "mean")
    assert set(workers.codes.values()) == {0}, workers.printed
    for task in ("chief0", "worker0"):
        assert workers.answers(task)["mean"]["losses"] == pytest.approx(ANSWERS["mean"]["losses"], abs=2e-6)
    assert list(tf.contrib.estimator.read_eval_metrics(str(tmp_path / "mean" / "eval")))[-1] == 12
    assert {path.name for path in tmp_path.glob("mean*")} == {"mean"}


# ---- In this process: what a strategy of two workers says and refuses while a graph is built ------------------------


def of_task(job: str, index: int = 0, **cluster: int) -> str:
    spec = {name: [f"{name}{i}:1" for i in range(count)] for name, count in cluster.items()}
    return json.dumps({"cluster": spec, "task": {"type": job, "index": index}})


@pytest.fixture
def strategy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("TF_CONFIG", of_task("worker", 1, chief=1, worker=2))
    with tf.Graph().as_default():
        yield tf.distribute.experimental.MultiWorkerMirroredStrategy()


def test_the_workers_are_those_of_tf_config(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (strategy.num_replicas_in_sync, strategy.extended.worker_devices) == (3, ("/job:worker/task:1",))
    assert not strategy.extended.should_checkpoint and strategy.extended.experimental_between_graph
    seen = strategy.experimental_distribute_datasets_from_function(lambda context: vars(context))
    assert seen == {"num_input_pipelines": 3, "input_pipeline_id": 2, "num_replicas_in_sync": 3}
    assert list(strategy.update_config_proto(tf.ConfigProto(device_filters=["/job:ps"])).device_filters) == [
        "/job:worker/task:1"
    ]
    make = tf.contrib.distribute.CollectiveAllReduceStrategy
    for job in ("chief", "evaluator"):
        monkeypatch.setenv("TF_CONFIG", of_task(job, chief=1, worker=1, evaluator=1))
        assert make().num_replicas_in_sync == {"chief": 2, "evaluator": 1}[job] and make().extended.should_checkpoint
        assert make(1).worker_devices == ("/job:chief/task:0/device:GPU:0" if job == "chief" else "/device:GPU:0",)
    monkeypatch.setenv("TF_CONFIG", of_task("ps", ps=1, chief=1, worker=1))
    with pytest.raises(ValueError, match="Unexpected task"):
        make()
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["a:1"]}}))
    with pytest.raises(ValueError, match="must also specify"):
        make()


def test_settings_of_an_estimator_of_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TF_CONFIG", of_task("worker", 0, worker=2))
    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    config = tf.estimator.RunConfig(str(tmp_path), train_distribute=strategy, eval_distribute=strategy)
    assert (config.is_chief, config.num_worker_replicas, config.master) == (True, 2, "grpc://worker0:1")
    estimator = tf.estimator.Estimator(lambda features, labels, mode: None, config=config)
    with pytest.raises(ValueError, match="train_and_evaluate"):
        estimator.train(lambda: tf.data.Dataset.range(1), steps=1)
    with pytest.raises(ValueError, match="does not evaluate"):
        estimator.evaluate(lambda: tf.data.Dataset.range(1), steps=1)
    monkeypatch.setenv("TF_CONFIG", of_task("worker", 1, worker=2))
    assert not tf.estimator.RunConfig(train_distribute=strategy).is_chief
    assert strategy.extended.worker_devices == ("/job:worker/task:1",)  # it takes the task of the settings


def test_replicas_do_not_part_in_silence(strategy: Any) -> None:
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    with strategy.scope():
        own = tf.get_variable("own", [2], initializer=tf.zeros_initializer())
        first = tf.Variable(0.0, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
        read = tf.Variable(0.0, trainable=False, synchronization=tf.VariableSynchronization.ON_READ)
        summed = tf.Variable(0.0, trainable=False, aggregation=tf.VariableAggregation.SUM)
        names = tf.Variable(["a"], trainable=False)
        outside = own[0:1]
        assert own.assign([1.0, 2.0]) is not None and outside.assign([1.0]) is not None  # all workers build and run it

        def kinds() -> list[str]:
            return [op.type for op in own.graph.get_operations()]

        def replica() -> None:
            for change in (own.assign, own.assign_add, own.assign_sub, lambda value: tf.assign(own, value)):
                with pytest.raises(ValueError, match="aggregation method to update own"):
                    change([1.0, 1.0])
            with pytest.raises(NotImplementedError, match="cannot change a part of own"):
                tf.scatter_add(own, [0], [1.0])
            for part in (outside, own[0:1]):
                with pytest.raises(NotImplementedError, match="cannot change a part of own"):
                    part.assign([1.0])
                with pytest.raises(NotImplementedError, match="cannot change a part of own"):
                    tf.assign(part, [1.0])
            for variable in (first, read):
                assert variable.assign_add(1.0) is not None
            with pytest.raises(NotImplementedError, match="cannot change a part of mean_accuracy"):
                tf.metrics.mean_per_class_accuracy([0], [0], 2)
            before = kinds().count("CollectiveReduce")
            summed.assign(1.0).assign_add(2.0)
            assert kinds().count("CollectiveReduce") == before + 2
            with pytest.raises(ValueError, match="reduces gradients itself"):
                tf.train.AllReduceOptimizer(optimizer, 3, 2).minimize(tf.reduce_sum(own))
            table = tf.get_embedding_variable("table", 2)
            with pytest.raises(tf.errors.UnimplementedError, match="no tables that grow"):
                optimizer.minimize(tf.reduce_sum(tf.nn.embedding_lookup(table, [1])), var_list=[table])

        strategy.experimental_run_v2(replica)
        with pytest.raises(RuntimeError, match="replica context"):
            optimizer.minimize(tf.reduce_sum(own))
        data = tf.data.Dataset.range(4)
        for divide in (strategy.experimental_distribute_dataset, strategy.make_dataset_iterator):
            with pytest.raises(tf.errors.UnimplementedError, match="divides no data set"):
                divide(data)
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
        with pytest.raises(NotImplementedError, match="model_to_estimator"):
            model.compile("sgd", "mse")
    assert names.dtype.base_dtype == tf.string
    with pytest.raises(ValueError, match="was made under"):
        optimizer.minimize(tf.reduce_sum(own))


@pytest.mark.parametrize("job", ["chief", "worker"])
def test_summaries_of_workers_have_a_period_in_steps(job: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TF_CONFIG", of_task(job, chief=1, worker=1))
    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    with tf.Graph().as_default(), strategy.scope():
        tf.train.get_or_create_global_step()
        for folder in (None, str(tmp_path)):
            with pytest.raises(ValueError, match="2 workers .* give save_summaries_steps"):
                tf.train.MonitoredTrainingSession(checkpoint_dir=folder, save_summaries_secs=1.5)
