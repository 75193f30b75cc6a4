"""Premade estimators learn, and have TensorFlow's numbers, names and signatures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.estimator import models, premade_programs
from tests.estimator.agreement import assert_same
from tests.oracle import sent

CASES = [("linear", 2), ("linear", 3), ("regression",), ("network",), ("combined",)]


@pytest.mark.oracle_1x
@pytest.mark.parametrize("case", CASES)
def test_the_results_are_tensorflows(oracle_1x, case) -> None:
    run = getattr(premade_programs, case[0])
    assert_same(sent(run(tf, *case[1:])), oracle_1x.call(run, *case[1:]))


def test_a_network_learns_classes(tmp_path: Path) -> None:
    column = tf.feature_column.numeric_column("x", shape=4)
    made = tf.estimator.DNNClassifier(
        [8], [column], str(tmp_path), n_classes=3, config=tf.estimator.RunConfig(tf_random_seed=1)
    )
    made.train(models.inputs(tf, epochs=40))
    assert made.evaluate(models.inputs(tf))["accuracy"] > 0.8
    first = next(made.predict(models.inputs(tf)))
    assert first["classes"] == [str(first["class_ids"][0]).encode()] and first["probabilities"].shape == (3,)


def test_examples_have_weights(tmp_path: Path) -> None:
    def input_fn():
        return {"x": tf.constant([1.0, 1.0]), "w": tf.constant([1.0, 0.0])}, tf.constant([2.0, 50.0])

    made = tf.estimator.LinearRegressor([tf.feature_column.numeric_column("x")], str(tmp_path), weight_column="w")
    assert made.evaluate(input_fn, steps=1)["average_loss"] == pytest.approx(4.0)
    made.train(input_fn, steps=200)
    assert next(made.predict(input_fn))["predictions"] == pytest.approx(np.array([2.0]), abs=0.2)


def test_a_hook_finds_the_losses_under_tensorflows_names(tmp_path: Path) -> None:
    def input_fn():
        return {"x": tf.constant([1.0, 1.0]), "w": tf.constant([1.0, 3.0])}, tf.constant([2.0, 4.0])

    seen = []
    names = {"average": "linear/head/truediv", "loss": "linear/head/weighted_loss/Sum"}
    hook = tf.train.LoggingTensorHook(names, every_n_iter=1, formatter=lambda found: seen.append(found) or "")
    made = tf.estimator.LinearRegressor([tf.feature_column.numeric_column("x")], str(tmp_path), weight_column="w")
    made.train(input_fn, hooks=[hook], steps=1)
    assert seen[0]["loss"] == pytest.approx(52.0) and seen[0]["average"] == pytest.approx(13.0)


def test_checkpoints_have_the_names_of_tensorflow_1_15(tmp_path: Path) -> None:
    columns = [tf.feature_column.numeric_column("x")]

    def input_fn():
        return {"x": tf.constant([1.0, 2.0])}, tf.constant([0, 1])

    network = tf.estimator.DNNClassifier([3], columns, str(tmp_path / "dnn"), optimizer="Adam").train(input_fn, steps=1)
    linear = tf.estimator.LinearClassifier(columns, str(tmp_path / "linear")).train(input_fn, steps=1)
    layers = [f"dnn/{layer}/{part}" for layer in ("hiddenlayer_0", "logits") for part in ("bias", "kernel")]
    # A slot's name is cut off at the length of the variable's, which lacks the scope: "dnn/" leaves 4 characters.
    slots = [f"{name}/t_0/Adam{end}" for name in layers for end in ("", "_1")]
    powers = ["dnn/head/beta1_power", "dnn/head/beta2_power"]
    assert set(network.get_variable_names()) == {"global_step", *layers, *slots, *powers}
    weights = [f"linear/linear_model/{name}" for name in ("bias_weights", "x/weights")]
    accumulators = [f"{name}/part_0/Ftrl{end}" for name in weights for end in ("", "_1")]
    assert set(linear.get_variable_names()) == {"global_step", *weights, *accumulators}


def test_linear_models_summarize_their_variables(tmp_path: Path) -> None:
    """The tags are those of 1.15.5: a single bias is a number, several are a histogram."""

    def tags(made: Any) -> list[tuple[str, str]]:
        made.train(lambda: ({"x": tf.constant([1.0, 2.0])}, tf.constant([0, 1])), steps=1)
        (file,) = Path(made.model_dir).glob("events*")
        found = [value for event in tf.train.summary_iterator(str(file)) for value in event.summary.value]
        return [(value.tag, value.WhichOneof("value")) for value in found if value.tag.startswith("linear/")]

    columns, zero_weights = [tf.feature_column.numeric_column("x")], ("linear/fraction_of_zero_weights", "simple_value")
    two = tf.estimator.LinearClassifier(columns, str(tmp_path / "two"))
    three = tf.estimator.LinearClassifier(columns, str(tmp_path / "three"), n_classes=3)
    assert tags(two) == [("linear/bias", "simple_value"), zero_weights]
    assert tags(three) == [("linear/bias", "histo"), zero_weights]


def test_labels_may_be_bools(tmp_path: Path) -> None:
    def input_fn():
        return {"x": tf.constant([-1.0, 1.0])}, tf.constant([False, True])

    made = tf.estimator.LinearClassifier([tf.feature_column.numeric_column("x")], str(tmp_path))
    made.train(input_fn, steps=20)
    assert made.evaluate(input_fn, steps=1)["accuracy"] == 1.0


def test_wrong_arguments() -> None:
    column = tf.feature_column.numeric_column("x")
    with pytest.raises(ValueError, match="at least 2"):
        tf.estimator.LinearClassifier([column], n_classes=1)
    with pytest.raises(ValueError, match="label_vocabulary"):
        tf.estimator.DNNClassifier([1], [column], label_vocabulary=["a"])
    with pytest.raises(AttributeError, match="BoostedTreesClassifier"):
        tf.estimator.BoostedTreesClassifier  # noqa: B018
    with pytest.raises(TypeError, match=r"units of each layer: write \[8\]"):
        tf.estimator.DNNClassifier(8, [column])  # type: ignore[arg-type]


def test_mistakes_in_input_functions_are_named(tmp_path: Path) -> None:
    made = tf.estimator.LinearClassifier([tf.feature_column.numeric_column("x")], model_dir=str(tmp_path))
    arrays, x, y = ({"x": [1.0, 2.0]}, [0, 1]), tf.ones([2, 1]), tf.ones([2], tf.int64)

    def refused(kind: type[Exception], match: str, input_fn: Any) -> None:
        with pytest.raises(kind, match=match):
            made.train(input_fn, steps=1)

    refused(TypeError, "input_fn must be a function .*; got a dict", arrays[0])
    refused(TypeError, "got a Dataset", tf.data.Dataset.from_tensor_slices(arrays))
    refused(ValueError, r"of one example, .* lack .batch", lambda: tf.data.Dataset.from_tensor_slices(arrays))
    refused(
        ValueError, r"input_fn returned features\['x'\] of another graph", lambda: ({"x": x}, tf.ones([2], tf.int64))
    )
    refused(ValueError, "input_fn returned labels of another graph", lambda: ({"x": tf.ones([2, 1])}, y))


RANDOM = np.random.RandomState(0)
X, WEIGHTS = RANDOM.randn(60, 2).astype(np.float32), RANDOM.rand(60, 1).astype(np.float32)
Y = (X[:, 0] + 0.5 * RANDOM.randn(60) > 0).astype(int)


def examples(batch_size: int, num_threads: int = 1, y: Any = Y) -> Any:
    features = {"x": X, "w": WEIGHTS}
    return tf.estimator.inputs.numpy_input_fn(features, y, batch_size, shuffle=False, num_threads=num_threads)


def test_a_seed_gives_tensorflows_network_also_behind_arrays(tmp_path: Path) -> None:
    """The figures are those of TensorFlow 1.15.5: the weights depend on how many ops the input has made."""
    config = tf.estimator.RunConfig(str(tmp_path), tf_random_seed=1)
    columns = [tf.feature_column.numeric_column("x", [2])]
    estimator = tf.estimator.DNNClassifier([4], columns, config=config, weight_column="w")
    found = estimator.train(examples(7)).evaluate(examples(16, 2))
    expected = {"average_loss": 0.54145, "auc": 0.85317, "auc_precision_recall": 0.91480, "accuracy": 0.67575}
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=2e-5)


def test_baselines_learn_the_means_of_the_labels(tmp_path: Path) -> None:
    """Again with the figures of TensorFlow 1.15.5."""
    estimator = tf.estimator.BaselineClassifier(str(tmp_path / "classes"))
    found = estimator.train(examples(7)).evaluate(examples(16))
    expected = {"average_loss": 0.69263, "prediction/mean": 0.51218, "label/mean": 0.51667, "recall": 1.0}
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=2e-5)
    assert estimator.get_variable_names()[:1] == ["baseline/bias"]
    regressor = tf.estimator.BaselineRegressor(str(tmp_path / "numbers"), optimizer="SGD", label_dimension=2)
    labels = np.tile(np.array([[1.0, -2.0]], np.float32), (60, 1))
    regressor.train(lambda: (tf.ones([60, 3]), tf.constant(labels)), steps=1)  # features may be one tensor
    row = next(regressor.predict(lambda: tf.ones([4, 3])))
    assert row["predictions"].tolist() == [36.0, -72.0]  # the loss is a sum
    head = tf.contrib.estimator.regression_head()
    assert tf.estimator.BaselineEstimator(head).train(examples(60, y=Y[:, None]), steps=1).get_variable_value(
        "baseline/bias"
    ).shape == (1,)
