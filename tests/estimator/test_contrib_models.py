"""The estimators of ``tf.contrib.learn``; what they compute is in `tests.programs.era_estimators`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf


@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        ("LinearClassifier", "enable_centered_bias", True),
        ("LinearClassifier", "_joint_weight", True),
        ("LinearRegressor", "_joint_weights", True),
        ("DNNClassifier", "embedding_lr_multipliers", {"a": 0.5}),
        ("DNNLinearCombinedClassifier", "_joint_linear_weights", True),
        ("DNNLinearCombinedRegressor", "embedding_lr_multipliers", {"a": 0.5}),
    ],
)
def test_what_would_train_another_model_is_refused_by_name(name: str, argument: str, value: Any) -> None:
    columns = [tf.contrib.layers.real_valued_column("x")]
    given: dict[str, Any] = {argument: value}
    if "Combined" in name:
        given |= {"linear_feature_columns": columns}
    else:
        given |= {"feature_columns": columns}
    if name.startswith("DNNC"):
        given["hidden_units"] = [2]
    with pytest.raises(NotImplementedError, match=argument.replace("_linear", "").removesuffix("s")):
        getattr(tf.contrib.learn, name)(**given)


def _input() -> tuple[dict[str, Any], tf.Tensor]:
    words = tf.SparseTensor([[0, 0], [1, 0]], ["a", "b"], [2, 1])
    return {"w": words, "x": tf.constant([[1.0], [2.0]])}, tf.constant([[0], [1]])


def _mixed() -> list[Any]:
    words = tf.contrib.layers.sparse_column_with_hash_bucket("w", 10)
    return [tf.contrib.layers.embedding_column(words, 3), tf.feature_column.numeric_column("x")]


def test_the_vectors_of_a_contrib_column_are_trained_beside_new_columns(tmp_path: Any) -> None:
    model = tf.contrib.learn.DNNClassifier([32], _mixed(), str(tmp_path))
    name = "dnn/input_from_feature_columns/input_layer/w_embedding/weights"
    model.fit(input_fn=_input, steps=1)
    before = model.get_variable_value(name)
    model.fit(input_fn=_input, steps=5)
    assert np.abs(model.get_variable_value(name) - before).max() > 0


@pytest.mark.parametrize("trainable", [True, False])
def test_an_input_layer_makes_the_vectors_of_a_contrib_column_as_it_was_asked(trainable: bool) -> None:
    columns, made = _mixed(), dict[Any, Any]()
    tf.feature_column.input_layer(_input()[0], columns, ["mine"], trainable, made)
    assert [v.name for v in tf.get_collection("mine")] == ["input_layer/w_embedding/weights:0"]
    assert tf.trainable_variables() == (tf.get_collection("mine") if trainable else [])
    assert [made[column] for column in columns] == [tf.get_collection("mine"), []]
