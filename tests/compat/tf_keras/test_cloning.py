"""Copies of models by ``clone_and_build_model`` are compiled as the models are, and have weights of their own."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.compat.tf_keras.library import library

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs the extra keras")
keras: Any = tf.keras
XS, YS = np.ones((4, 2)), np.zeros((4, 1))


@pytest.fixture(autouse=True)
def _in_a_graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield
    keras.backend.set_session(None)


class Subclassed(keras.Model):
    """A model that cannot be made of a configuration."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        """The outputs of the layer."""
        return self.dense(inputs)


def _functional() -> Any:
    x = keras.Input((2,))
    return keras.Model(x, keras.layers.Dense(1)(x))


def _sequential() -> Any:
    return keras.Sequential([keras.layers.Dense(1)])


def _clone(model: Any, **kwargs: Any) -> Any:
    return library().models.clone_and_build_model(model, **kwargs)


@pytest.mark.parametrize("make", [_functional, _sequential])
def test_a_copy_trains_alone_with_the_same_losses_metrics_and_optimizer(make: Any) -> None:
    model = make()
    model.compile(keras.optimizers.SGD(0.25), "mae", metrics=["mse", keras.metrics.MeanAbsoluteError()])
    model.train_on_batch(XS, YS)
    before = model.get_weights()
    made = _clone(model)
    made.train_on_batch(XS, YS)
    assert made.metrics_names == model.metrics_names
    assert keras.backend.get_value(made.optimizer.lr) == 0.25
    assert [np.array_equal(a, b) for a, b in zip(before, model.get_weights())] == [True, True]
    assert not {id(weight) for weight in made.weights} & {id(weight) for weight in model.weights}


def test_a_copy_takes_other_inputs_and_counts_its_steps_in_a_variable_of_the_program() -> None:
    model = _functional()
    model.compile(tf.train.AdamOptimizer(0.1), "mse")
    steps = keras.backend.variable(123, dtype="int64")
    inputs = keras.Input((2,), name="other")
    made = _clone(model, input_tensors=inputs, optimizer_iterations=steps)
    made.train_on_batch(XS, YS)
    assert made.input_names == ["other"] and keras.backend.get_value(steps) == 124


def test_a_subclassed_model_is_its_own_copy_until_it_is_restored() -> None:
    model = Subclassed()
    model.compile("sgd", "mse")
    model.train_on_batch(XS, YS)
    dense, weights = model.dense, model.get_weights()
    with pytest.raises(ValueError, match="in_place_reset"):
        _clone(model)
    assert _clone(model, in_place_reset=True) is model
    assert model.dense is not dense
    model.train_on_batch(XS, YS)
    library().models.in_place_subclassed_model_state_restoration(model)
    assert model.dense is dense and [w.tolist() for w in model.get_weights()] == [w.tolist() for w in weights]
    model.train_on_batch(XS, YS)


def test_a_subclassed_model_whose_layers_are_in_a_list_cannot_be_reset() -> None:
    model = Subclassed()
    model.more = [keras.layers.Dense(1)]
    with pytest.raises(ValueError, match="all are attributes"):
        _clone(model, compile_clone=False, in_place_reset=True)


def test_what_is_not_compiled_has_no_compiled_copy() -> None:
    with pytest.raises(ValueError, match="has not been compiled"):
        _clone(_functional())
    assert _clone(_functional(), compile_clone=False).predict(XS).shape == (4, 1)
