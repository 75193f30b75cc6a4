"""The estimators of ``tf.contrib.learn``; what they compute is in `tests.programs.era_estimators`."""

from __future__ import annotations

from typing import Any

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
