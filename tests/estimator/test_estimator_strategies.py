"""Strategies of one replica in an estimator's settings: the contexts, and the numbers of TensorFlow 1.15.5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf

_SEEN: list[tuple[Any, ...]] = []


def _inputs(input_context: Any = None) -> Any:
    x = np.arange(40, dtype=np.float32).reshape(20, 2) / 40
    data = tf.data.Dataset.from_tensor_slices(({"x": x}, x.sum(1, keepdims=True))).repeat(3)
    return data.batch(input_context.get_per_replica_batch_size(4) if input_context else 4)


def _model(features: Any, labels: Any, mode: str) -> Any:
    context = tf.distribute.get_replica_context()
    _SEEN.append((mode, tf.distribute.has_strategy(), context.num_replicas_in_sync))
    y = tf.layers.dense(features["x"], 3, tf.nn.relu, kernel_initializer=tf.constant_initializer(0.3))
    y = tf.layers.dense(y, 1, kernel_initializer=tf.constant_initializer(0.2))
    loss = tf.losses.mean_squared_error(labels, y)
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss, tf.train.get_global_step())
    metrics = {"mae": tf.metrics.mean_absolute_error(labels, y)}
    return tf.estimator.EstimatorSpec(mode, predictions=y, loss=loss, train_op=train, eval_metric_ops=metrics)


@pytest.mark.parametrize("name", ["MirroredStrategy", "ParameterServerStrategy", "CollectiveAllReduceStrategy"])
def test_a_strategy_trains_as_no_strategy_does(name: str, tmp_path: Path) -> None:
    _SEEN.clear()
    strategy = getattr(tf.contrib.distribute, name)()
    config = tf.estimator.RunConfig(str(tmp_path), train_distribute=strategy, eval_distribute=strategy)
    found = tf.estimator.Estimator(_model, config=config).train(_inputs, steps=10).evaluate(_inputs)
    assert _SEEN == [("train", True, 1), ("eval", True, 1)]
    assert list(found) == ["loss", "mae", "global_step"]
    assert list(found.values()) == pytest.approx([0.342115, 0.506001, 10], rel=1e-5)


@pytest.mark.parametrize("strategy", [None, tf.contrib.distribute.ParameterServerStrategy()])
def test_parameter_servers_of_the_cluster_keep_the_variables(
    strategy: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = {"ps": ["a:1"], "chief": ["a:2"], "worker": ["a:3"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))
    config, parts = tf.estimator.RunConfig(str(tmp_path), train_distribute=strategy), []

    def inputs(input_context: Any = None) -> Any:
        parts.append(input_context and (input_context.num_input_pipelines, input_context.input_pipeline_id))
        return _inputs()

    def model(features: Any, labels: Any, mode: str) -> Any:
        _model(features, labels, mode)
        raise _BuiltError({variable.device for variable in tf.trainable_variables()})

    with pytest.raises(_BuiltError) as built:
        tf.estimator.Estimator(model, config=config).train(inputs, steps=1)
    assert built.value.args == ({"/job:ps/task:0"},) and parts == [strategy and (2, 1)]


class _BuiltError(Exception):
    """Ends a training after its graph was built."""


def test_metrics_are_added_to_an_estimator(tmp_path: Path) -> None:
    def sums(predictions: Any, features: Any) -> Any:
        return {"y": tf.metrics.mean(predictions), "mae": tf.metrics.mean(features["x"])}

    first = tf.estimator.Estimator(_model, str(tmp_path))
    estimator = tf.contrib.estimator.add_metrics(first, sums).train(_inputs, steps=10)
    found = estimator.evaluate(_inputs)
    assert found["mae"] == pytest.approx(0.4875) and found["loss"] == pytest.approx(0.342115, rel=1e-5)
    assert "y" in found and first.evaluate(_inputs)["mae"] == pytest.approx(0.506001, rel=1e-5)
    second = tf.estimator.Estimator(_model, str(tmp_path / "warm"), warm_start_from=str(tmp_path))
    warm = tf.contrib.estimator.add_metrics(second, sums).train(_inputs, steps=1)
    cold = tf.estimator.Estimator(_model, str(tmp_path / "cold")).train(_inputs, steps=1)
    assert warm.evaluate(_inputs)["loss"] < 0.6 * cold.evaluate(_inputs)["loss"]
    with pytest.raises(ValueError, match="other"):
        tf.estimator.add_metrics(first, lambda other: {})
