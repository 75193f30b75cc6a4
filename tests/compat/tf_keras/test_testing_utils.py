"""The check of a layer that libraries' own tests run finds what is wrong; small models are of the type asked for."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf

if importlib.util.find_spec("keras") is None:
    pytest.skip("needs the extra keras", allow_module_level=True)
from tfmini.compat.tf_keras import testing_utils as utils

keras: Any = tf.keras


@pytest.fixture(autouse=True)
def _in_a_graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield
    keras.backend.set_session(None)


class Scaled(keras.layers.Layer):
    """Multiplies by a number that its configuration may lose, and tells a shape that may be wrong."""

    def __init__(self, factor: float = 1.0, forgets: bool = False, more: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.factor, self.forgets, self.more = factor, forgets, more

    def call(self, x: Any) -> Any:
        """The product."""
        return x * self.factor

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the input, with a last size that is larger by ``more``."""
        sizes = input_shape.as_list()
        return tf.TensorShape([*sizes[:-1], sizes[-1] + self.more])

    def get_config(self) -> dict[str, Any]:
        """The arguments, or without the factor."""
        more = {"forgets": self.forgets, "more": self.more}
        return super().get_config() | ({} if self.forgets else {"factor": self.factor}) | more


@pytest.mark.parametrize("layer", ["Dense", "Conv1D", "LSTM"])
def test_layers_of_the_library_pass(layer: str) -> None:
    units = {"filters": 2, "kernel_size": 2, "padding": "same"} if layer == "Conv1D" else {"units": 2}
    shape = (2, 3) if layer == "Dense" else (None, 3, 4)
    output = utils.layer_test(getattr(keras.layers, layer), units, shape)
    assert output.shape[-1] == 2


def test_the_output_is_that_of_the_layer() -> None:
    with keras.utils.CustomObjectScope({"Scaled": Scaled}):
        data = np.array([[1.0, 2.0]], "f")
        made = utils.layer_test(Scaled, {"factor": 3.0}, input_data=data, expected_output=3 * data)
        assert made.tolist() == [[3.0, 6.0]]
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            utils.layer_test(Scaled, {"factor": 3.0}, input_data=data, expected_output=data)


@pytest.mark.parametrize(
    ("kwargs", "more", "message"),
    [
        ({"more": 1}, {}, r"has the shape \[2, 3\], not \[2, 4\]"),
        ({}, {"expected_output_shape": (2, 4)}, "has the shape"),
        ({}, {"expected_output_dtype": "int32"}, "gives float32, not int32"),
        ({"factor": 2.0, "forgets": True}, {"expected_output": None}, "Not equal to tolerance"),
    ],
)
def test_what_is_wrong_is_found(kwargs: dict[str, Any], more: dict[str, Any], message: str) -> None:
    with keras.utils.CustomObjectScope({"Scaled": Scaled}), pytest.raises(AssertionError, match=message):
        data = np.ones((2, 3), "f")
        if "factor" in kwargs:
            more = {"expected_output": 2 * data}
        utils.layer_test(Scaled, kwargs, input_data=data, **more)


@pytest.mark.parametrize("kind", ["sequential", "functional", "subclass", "subclass_custom_build"])
def test_small_models_are_of_the_type_asked_for(kind: str) -> None:
    with utils.model_type_scope(kind):
        model = utils.get_small_mlp(4, 3, input_dim=2)
    assert isinstance(model, keras.Sequential) == (kind == "sequential")
    assert (type(model) is keras.Model) == (kind == "functional")
    (x, y), _ = utils.get_test_data(8, 2, (2,), 3, random_seed=0)
    model.compile(utils.get_v2_optimizer("sgd", learning_rate=0.1), "sparse_categorical_crossentropy")
    model.fit(x, y, verbose=0)
    assert model.predict(x).shape == (8, 3) and len(model.weights) == 4
    with pytest.raises(ValueError, match="No model_type"):
        utils.get_model_type()
    with pytest.raises(ValueError, match="Unknown optimizer"):
        utils.get_v2_optimizer("nothing")


def test_the_mode_is_that_of_graphs() -> None:
    with pytest.raises(ValueError, match="run_eagerly_scope"):
        utils.should_run_eagerly()
    with utils.run_eagerly_scope(True):
        assert not utils.should_run_eagerly()
