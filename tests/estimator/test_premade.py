"""Premade estimators learn, and have TensorFlow's numbers, names and signatures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tfmini as tf
from tests.estimator import models, premade_programs
from tests.estimator.agreement import assert_same
from tests.oracle import sent

CASES = [("linear", 2), ("linear", 3), ("regression",), ("network",), ("combined",)]


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES)
def test_the_results_are_tensorflows(estimator_oracle, case) -> None:
    run = getattr(premade_programs, case[0])
    assert_same(sent(run(tf, *case[1:])), estimator_oracle.call(run, *case[1:]))


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
