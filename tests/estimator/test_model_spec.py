"""What a model function returns is checked by its mode."""

from __future__ import annotations

import pytest

import tfmini as tf

KEYS = tf.estimator.ModeKeys
Spec = tf.estimator.EstimatorSpec


def test_mode_keys() -> None:
    assert (KEYS.TRAIN, KEYS.EVAL, KEYS.PREDICT) == ("train", "eval", "infer")


def test_each_mode_needs_its_parts() -> None:
    loss, train = tf.constant(1.0), tf.no_op()
    assert Spec(KEYS.TRAIN, loss=loss, train_op=train).loss is loss
    assert Spec(KEYS.EVAL, loss=tf.constant([1.0])).loss.shape == ()
    for mode, given, told in (
        (KEYS.TRAIN, {"train_op": train}, "Missing loss"),
        (KEYS.TRAIN, {"loss": loss}, "Missing train_op"),
        (KEYS.EVAL, {}, "Missing loss"),
        (KEYS.PREDICT, {}, "Missing predictions"),
        (KEYS.EVAL, {"loss": tf.constant([1.0, 2.0])}, "must be scalar"),
    ):
        with pytest.raises(ValueError, match=told):
            Spec(mode, **given)


def test_types_are_checked() -> None:
    loss = tf.constant(1.0)
    for given in (
        {"eval_metric_ops": [1]},
        {"eval_metric_ops": {"a": loss}},
        {"predictions": {"a": 3.0}},
        {"evaluation_hooks": [3]},
        {"scaffold": "s"},
    ):
        with pytest.raises(TypeError):
            Spec(KEYS.EVAL, loss=loss, **given)
    outputs = {"a": loss}
    assert Spec(KEYS.EVAL, loss=loss, export_outputs=outputs).export_outputs is outputs  # as in TensorFlow 1.15
    with pytest.raises(TypeError, match="must be ExportOutput"):
        Spec(KEYS.PREDICT, predictions=loss, export_outputs=outputs)


def test_tensors_of_another_graph_are_refused() -> None:
    with tf.Graph().as_default():
        other = tf.constant(1.0)
    with pytest.raises(ValueError, match="default graph"):
        Spec(KEYS.EVAL, loss=other)


def test_one_export_output_is_the_default() -> None:
    x, export = tf.constant([1.0]), tf.estimator.export
    assert list(Spec(KEYS.PREDICT, predictions=x).export_outputs) == ["serving_default"]
    one = Spec(KEYS.PREDICT, predictions=x, export_outputs={"own": export.RegressionOutput(x)})
    assert sorted(one.export_outputs) == ["own", "serving_default"]
    two = {"a": export.RegressionOutput(x), "b": export.ClassificationOutput(scores=x)}
    with pytest.raises(ValueError, match="none of them is specified as the default"):
        Spec(KEYS.PREDICT, predictions=x, export_outputs=two)
