"""``tf.contrib.predictor``: a SavedModel or an estimator as a function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.estimator.model_export import SupervisedInputReceiver

predictor = tf.contrib.predictor


@pytest.fixture
def exported(tmp_path: Path) -> str:
    """A SavedModel of ``y = 3 x + b`` with a default for ``b``, and the signatures ``predict`` and the default one."""
    directory = str(tmp_path / "saved")
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None], name="x")
        b = tf.placeholder_with_default(0.0, [], name="b")
        y = tf.add(x * tf.get_variable("w", initializer=3.0), b, name="y")
        session.run(tf.global_variables_initializer())
        signature = tf.saved_model.signature_def_utils.predict_signature_def({"x": x, "b": b}, {"y": y})
        builder = tf.saved_model.builder.SavedModelBuilder(directory)
        named = {"predict": signature, "serving_default": signature}
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=named)
        builder.save()
    return directory


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"signature_def_key": "predict", "tags": "serve"},
        {"input_names": {"x": "x:0", "b": "b:0"}, "output_names": {"y": "y:0"}},
        {"tags": ["serve"], "config": tf.ConfigProto(allow_soft_placement=True)},
    ],
)
def test_a_saved_model_is_a_function(exported: str, how: dict[str, Any]) -> None:
    call = predictor.from_saved_model(exported, **how)
    assert np.array_equal(call({"x": [1.0, 2.0]})["y"], [3.0, 6.0])
    assert np.array_equal(call({"x": [1.0], "b": 1.0})["y"], [4.0])
    assert call.feed_tensors["x"].name == "x:0" and call.fetch_tensors["y"].graph is call.graph is call.session.graph


def test_what_a_saved_model_lacks_is_said(exported: str) -> None:
    call = predictor.from_saved_model(exported)
    with pytest.raises(ValueError, match="unexpected keys in input_dict: {'z'}"):
        call({"z": 1.0})
    with pytest.raises(tf.errors.InvalidArgumentError, match="You must feed a value for placeholder tensor 'x'"):
        call({})
    with pytest.raises(ValueError, match="no signature 'classify'; it has 'predict', 'serving_default'"):
        predictor.from_saved_model(exported, "classify")
    with pytest.raises(ValueError, match="both be specified"):
        predictor.from_saved_model(exported, input_names={"x": "x:0"})
    with pytest.raises(ValueError, match="at most one of"):
        predictor.from_saved_model(exported, "predict", input_names={"x": "x:0"}, output_names={"y": "y:0"})
    with pytest.raises(RuntimeError, match="associated with tags 'gpu'"):
        predictor.from_saved_model(exported, tags="gpu")


def _model_fn(features: dict[str, Any], labels: Any, mode: str) -> Any:
    y = tf.layers.dense(features["x"], 1, kernel_initializer=tf.constant_initializer(2.0), name="y")
    outputs = {"twice": tf.estimator.export.PredictOutput({"y": y}), "serving_default": None}
    outputs["serving_default"] = tf.estimator.export.PredictOutput({"y": y + 1})
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"y": y}, export_outputs=outputs)
    step = tf.assign_add(tf.train.get_global_step(), 1)
    return tf.estimator.EstimatorSpec(mode, loss=tf.reduce_sum(y), train_op=step)


def test_an_estimator_is_a_function(tmp_path: Path) -> None:
    def receive() -> Any:
        x = tf.placeholder(tf.float32, [None, 1])
        return tf.estimator.export.ServingInputReceiver({"x": x}, {"given": x})

    estimator = tf.estimator.Estimator(_model_fn, str(tmp_path))
    with pytest.raises(ValueError, match="Couldn't find trained model"):
        predictor.from_estimator(estimator, receive)
    estimator.train(lambda: ({"x": tf.ones([1, 1])}, tf.ones([1, 1])), steps=1)
    assert predictor.from_estimator(estimator, receive)({"given": [[3.0]]})["y"] == [[7.0]]
    assert predictor.from_estimator(estimator, receive, output_key="twice")({"given": [[3.0]]})["y"] == [[6.0]]
    with pytest.raises(ValueError, match="no signature 'other'"):
        predictor.from_estimator(estimator, receive, output_key="other")


def test_a_receiver_of_features_and_labels_checks_them() -> None:
    x, fed = tf.zeros([1]), tf.placeholder(tf.string)
    made = SupervisedInputReceiver({1: x}, {"y": x}, fed)
    assert made == ({1: x}, {"y": x}, {"input": fed})
    assert SupervisedInputReceiver(x, x, {"fed": fed}) == (x, x, {"fed": fed})
    for given, why in [
        ((x, None, fed), "labels must be defined."),
        ((x, x, None), "receiver_tensors must be defined."),
        (([1], x, fed), "feature feature must be a Tensor"),
        ((x, {"a": 3}, fed), "label a must be a Tensor"),
    ]:
        with pytest.raises(ValueError, match=why):
            SupervisedInputReceiver(*given)
