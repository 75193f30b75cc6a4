"""Models of ``tf.keras`` as objects of SavedModels; what is expected is what TensorFlow 1.15.5 does."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.compat.tf_keras import served_models as exchange
from tests.oracle import Oracle, sent

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs the extra keras")


@pytest.mark.oracle
def test_tensorflow_reads_our_models_and_we_read_its(oracle_1x: Oracle, tmp_path: Path) -> None:
    with tf.Graph().as_default():
        counts = exchange.write(tf, tmp_path / "ours")
    assert counts[:2] == counts[2:]  # the calls that were saved leave nothing
    theirs = oracle_1x.call(exchange.exchange, str(tmp_path))
    for number, name in enumerate(("ours", "ours trained on", "theirs")):
        with tf.Graph().as_default():
            _compare(sent(exchange.read(tf, tmp_path / name)), theirs[number])


def _compare(ours: Any, theirs: Any) -> None:
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        ours, theirs = [*ours.values()], [theirs[key] for key in ours]
    if isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            _compare(one, other)
    elif isinstance(ours, str):
        assert ours == theirs
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_models_are_saved_under_the_older_names(tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
    tf.contrib.saved_model.save_keras_model(model, tmp_path / "model")
    loaded = tf.contrib.saved_model.load_keras_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(np.ones((1, 3))), model.predict(np.ones((1, 3))))


def test_a_saved_model_is_made_again_of_its_layers(tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
    model.compile("sgd", "mse")
    model.save(tmp_path / "model", save_format="tf")
    loaded = tf.keras.models.load_model(tmp_path / "model")
    assert loaded.loss == "mse"
    np.testing.assert_array_equal(loaded.predict(np.ones((1, 3))), model.predict(np.ones((1, 3))))


def test_attributes_that_checkpoints_leave_out_are_plain_values() -> None:
    layer: Any = tf.keras.layers.Layer()
    layer.arguments = tf.Module()._no_dependency({"a": 1})
    assert layer.arguments == {"a": 1}
