"""Experiments of ``tf.contrib.learn``; the numbers are those of TensorFlow 1.15.5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.estimator.experiment import schedule_of

X = (np.arange(60).reshape(30, 2) % 7 / 7).astype(np.float32)
LABELS = np.eye(2, dtype=np.float32)[(X.sum(1) > 0.8).astype(np.int64)]
LEARN = tf.contrib.learn


def _inputs() -> Any:
    return tf.constant(X), tf.constant(LABELS)


def _model(features: Any, labels: Any) -> Any:
    made, loss = LEARN.models.logistic_regression_zero_init(features, labels)
    train = tf.contrib.layers.optimize_loss(loss, tf.train.get_global_step(), 0.5, "SGD")
    return {"class": tf.argmax(made, 1)}, loss, train


def _accuracy(predictions: Any, labels: Any) -> Any:
    return tf.metrics.accuracy(tf.argmax(labels, 1), predictions)


def _experiment(run_config: Any, hparams: Any = None, **more: Any) -> Any:
    metrics = {"acc": LEARN.MetricSpec(_accuracy, "class")}
    estimator = LEARN.Estimator(_model, config=run_config)
    return LEARN.Experiment(estimator, _inputs, _inputs, metrics, train_steps=20, eval_steps=1, **more)


def _config(directory: Path) -> Any:
    return LEARN.RunConfig(model_dir=str(directory), save_checkpoints_secs=None, save_checkpoints_steps=5)


@pytest.mark.parametrize("schedule", [None, "local_run", "continuous_train_and_eval"])
def test_schedules_train_and_evaluate(schedule: str | None, tmp_path: Path) -> None:
    found, exports = LEARN.learn_runner.run(_experiment, run_config=_config(tmp_path), schedule=schedule)
    assert found == pytest.approx({"acc": 0.83333, "loss": 0.4726, "global_step": 20}, rel=1e-4) and not exports


def test_an_experiment_tests_with_one_step(tmp_path: Path) -> None:
    found = _experiment(_config(tmp_path)).test()
    assert found == pytest.approx({"acc": 0.53333, "loss": 0.66933, "global_step": 1}, rel=1e-4)


def test_a_validation_monitor_stops_training(tmp_path: Path) -> None:
    monitor = LEARN.monitors.ValidationMonitor(
        input_fn=_inputs, eval_steps=1, every_n_steps=5, early_stopping_rounds=10,
        early_stopping_metric_minimize=False, check_interval_secs=0,
    )  # fmt: skip
    estimator = LEARN.Estimator(_model, config=_config(tmp_path)).fit(input_fn=_inputs, steps=60, monitors=[monitor])
    assert monitor.early_stopped and monitor.best_step == 5 and monitor.best_value == pytest.approx(0.61097, rel=1e-4)
    assert estimator.get_variable_value("global_step") == 15
    # The model needs labels; to predict it gets placeholders of them.
    assert len(list(estimator.predict(X, outputs=["class"]))) == len(X)


def test_a_core_estimator_is_exported(tmp_path: Path) -> None:
    def model(features: Any, labels: Any, mode: str) -> Any:
        targets = tf.zeros([2]) if labels is None else labels
        made, loss = LEARN.models.linear_regression_zero_init(features["x"], targets)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, made, loss, train)

    def receiver() -> Any:
        x = tf.placeholder(tf.float32, [None, 2])
        return tf.estimator.export.ServingInputReceiver({"x": x}, x)

    def inputs() -> Any:
        return {"x": tf.constant(X)}, tf.constant(X.sum(1))

    strategy = LEARN.make_export_strategy(receiver, exports_to_keep=1)
    estimator = tf.estimator.Estimator(model, config=_config(tmp_path))
    experiment = LEARN.Experiment(estimator, inputs, inputs, None, 2, 1, export_strategies=strategy)
    _, exports = experiment.train_and_evaluate()
    assert [Path(path.decode()) for path in exports] == list((tmp_path / "export/Servo").iterdir())


def test_tasks_have_schedules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster = {"ps": ["a:1"], "master": ["a:2"], "worker": ["a:3"]}
    found = []
    for job in cluster:
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}}))
        found.append(schedule_of(_config(tmp_path)))
    assert found == ["run_std_server", "train_and_evaluate", "train"]


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Give one of"):
        LEARN.learn_runner.run(_experiment)
    with pytest.raises(ValueError, match="non-existent task nothing"):
        LEARN.learn_runner.run(_experiment, run_config=_config(tmp_path), schedule="nothing")
    with pytest.raises(TypeError, match="did not return an Experiment"):
        LEARN.learn_runner.run(lambda run_config, hparams: 1, run_config=_config(tmp_path))
    with pytest.raises(ValueError, match="must be a"):
        LEARN.Experiment(object(), _inputs, _inputs)


def test_functions_of_data() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": [True, False]})
    assert LEARN.extract_pandas_data(frame).tolist() == [[1.0, 1.0], [2.0, 0.0]]
    assert LEARN.extract_pandas_labels(frame[["a"]]).tolist() == [[1], [2]]
    with pytest.raises(ValueError, match=r"c \("):
        LEARN.extract_pandas_data(pandas.DataFrame({"c": ["x"]}))
    made, loss = LEARN.models.linear_regression(tf.constant(X), tf.constant(X.sum(1)), 0.0, 0.0)
    features, labels = LEARN.io.numpy_input_fn({"x": X}, X.sum(1), 4, shuffle=False)()
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        assert session.run(loss) == pytest.approx(0.893878) and made.shape == (30,)
        assert session.run([features["x"], labels])[0].tolist() == X[:4].tolist()
    names = {op.name for op in tf.get_default_graph().get_operations() if op.type == "HistogramSummary"}
    assert names == {f"linear_regression/linear_regression.{part}" for part in ("x", "y", "weights", "bias")}


@pytest.mark.parametrize(
    ("environment", "task", "found"),
    [
        ("local", ("worker", 0), (True, "grpc://h:2", 1, 3)),
        ("local", ("master", 0), (False, "grpc://h:4", 1, 3)),
        ("cloud", ("master", 0), (True, "grpc://h:4", 1, 3)),
        ("cloud", ("worker", 0), (False, "grpc://h:2", 1, 3)),
        ("local", ("ps", 0), (False, "grpc://h:1", 1, 3)),
    ],
)
def test_worker_0_is_the_chief_but_in_the_cloud(
    environment: str, task: tuple[str, int], found: tuple[bool, str, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"ps": ["h:1"], "worker": ["h:2", "h:3"], "master": ["h:4"]}
    job = {"cluster": cluster, "task": {"type": task[0], "index": task[1]}, "environment": environment}
    monkeypatch.setenv("TF_CONFIG", json.dumps(job))
    config = LEARN.RunConfig()
    assert (config.is_chief, config.master, config.num_ps_replicas, config.num_worker_replicas) == found
    assert (config.task_type, config.task_id) == task


def test_an_export_function_gets_what_it_names() -> None:
    export = lambda function, *args: LEARN.ExportStrategy("a", function).export(*args)  # noqa: E731
    swapped = lambda estimator, directory, eval_result, checkpoint_path: (checkpoint_path, eval_result)  # noqa: E731
    assert export(swapped, None, "to", "path", {"loss": 1.0}) == ("path", {"loss": 1.0})
    assert export(lambda estimator, directory: directory, None, "to", "path") == "to"
    with pytest.raises(ValueError, match="accepting eval_result must also accept checkpoint_path"):
        export(lambda estimator, directory, eval_result: None, None, "to")


def test_monitors_are_hooks_that_are_told_the_estimator() -> None:
    hook = tf.train.StopAtStepHook(last_step=1)
    monitor = LEARN.monitors.ValidationMonitor(input_fn=_inputs, eval_steps=1)
    estimator = LEARN.Estimator(_model)
    assert LEARN.monitors.replace_monitors_with_hooks([hook, monitor], estimator) == [hook, monitor]
    assert monitor._estimator is estimator
    assert LEARN.monitors.replace_monitors_with_hooks(None, estimator) == []
    with pytest.raises(TypeError, match="is no hook"):
        LEARN.monitors.replace_monitors_with_hooks([object()], estimator)
