"""The check of a layer that libraries' own tests run finds what is wrong; small models are of the type asked for."""

from __future__ import annotations

import importlib.util
import threading
import unittest
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf

if importlib.util.find_spec("keras") is None:
    pytest.skip("needs the extra keras", allow_module_level=True)
from tfmini.compat.tf_keras import testing_utils as utils
from tfmini.compat.tf_keras.multi_head import get_optimizer_instance_v2

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
    with utils.experimental_run_tf_function_scope(True):
        assert not utils.should_run_tf_function()


def test_a_test_of_keras_parameterized_is_one_for_each_type_and_mode() -> None:
    seen: list[Any] = []

    @utils.run_with_all_model_types(exclude_models="subclass")
    class Case(utils.TestCase):
        @utils.run_all_keras_modes(always_skip_eager=True)
        def test_it_in_modes(self) -> None:
            seen.append((utils.get_model_type(), utils.should_run_eagerly(), tf.get_default_session() is not None))

        def test_it(self) -> None:
            seen.append(utils.get_model_type())

        other = "no test"

    loader = unittest.TestLoader()
    loader.testMethodPrefix = "test_it"  # not `test_session`
    suite = loader.loadTestsFromTestCase(Case)
    result = unittest.TestResult()
    thread = threading.Thread(target=suite.run, args=(result,))  # whose default graph can be reset
    thread.start()
    thread.join()
    assert not result.errors and not result.failures
    assert sorted(map(str, seen)) == [
        "('functional', False, True)",
        "('sequential', False, True)",
        "functional",
        "sequential",
    ]
    assert [reason for _, reason in result.skipped] == ["tfmini has no eager mode, in which this test runs"] * 4
    assert sorted(name for name in dir(Case) if name.startswith("test_it_in_modes_v1_session")) == [
        "test_it_in_modes_v1_session_functional", "test_it_in_modes_v1_session_sequential"
    ]  # fmt: skip


class Masked(keras.layers.Wrapper):
    """A wrapper with a weight, an update and a loss of its own."""

    def build(self, input_shape: Any = None) -> None:
        """Builds the wrapped layer first, and reads its weight."""
        super().build(input_shape)
        self._batch_input_shape = (None, 3)
        self.mask = self.add_weight("mask", self.layer.kernel.shape, initializer="ones", trainable=False)

    def call(self, x: Any) -> Any:
        """What the wrapped layer makes."""
        self.add_update(self.mask.assign(self.mask * 0.5))
        self.add_loss(tf.reduce_sum(self.mask))
        return self.layer.call(x)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """That of the wrapped layer."""
        return self.layer.compute_output_shape(input_shape)


def test_a_wrapper_builds_its_layer_and_has_weights_of_its_own() -> None:
    layer = Masked(keras.layers.Dense(2, kernel_regularizer="l2", name="inner"), name="outer")
    model = keras.Sequential([layer])
    model.build((None, 3))
    assert [w.shape.as_list() for w in layer.weights] == [[3, 2], [2], [3, 2]]
    assert layer.batch_input_shape == (None, 3)
    assert len(layer.get_weights()) == 3 and len(layer.trainable_weights) == 2
    assert len(layer.losses) == 2 and len(layer.updates) == 1
    layer.set_weights([np.zeros((3, 2)), np.ones(2), np.full((3, 2), 4.0)])
    assert model.predict(np.ones((1, 3))).tolist() == [[1.0, 1.0]]


def test_layers_take_their_first_arguments_without_names() -> None:
    layer = keras.layers.Layer(False, "plain", "float64")
    assert (layer.trainable, layer.name, layer.dtype) == (False, "plain", "float64")
    assert keras.utils.generic_utils.to_snake_case("PruneLowMagnitude") == "prune_low_magnitude"


def test_estimators_of_libraries_take_optimizers_by_name() -> None:
    made = get_optimizer_instance_v2("RMSProp", 0.5)
    assert (type(made), keras.backend.get_value(made.lr)) == (keras.optimizers.RMSprop, 0.5)
    assert get_optimizer_instance_v2(made) is made
    assert type(get_optimizer_instance_v2(keras.optimizers.Adam)) is keras.optimizers.Adam
    for wrong, told in (("Nothing", "Unsupported optimizer name"), (3, "not a tf.keras.optimizers.Optimizer")):
        with pytest.raises(ValueError, match=told):
            get_optimizer_instance_v2(wrong)
