"""``tf.keras`` gives what that of TensorFlow 1.15.5 gave: see `keras_programs`."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.compat import internals

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs the extra keras")
ANSWERS = json.loads((Path(__file__).parent / "answers.json").read_text())


def assert_same(found: Any, wanted: Any, where: str = "") -> None:
    """Compares structures; numbers as closely as float32 in another order of sums can be the same."""
    assert type(found) is type(wanted) or isinstance(found, (int, float)), where
    if isinstance(wanted, dict):
        assert sorted(found) == sorted(wanted), where
        for key, value in wanted.items():
            assert_same(found[key], value, f"{where}[{key!r}]")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for i, (a, b) in enumerate(zip(found, wanted)):
            assert_same(a, b, f"{where}[{i}]")
    elif isinstance(wanted, float):
        np.testing.assert_allclose(found, wanted, rtol=5e-4, atol=1e-5, err_msg=where)
    else:
        assert found == wanted, where


@pytest.fixture(scope="module")
def found() -> Any:
    """What all programs return, in a process of their own: they clear the default graph, which a test may not."""
    command = [sys.executable, "-m", "tests.compat.tf_keras.keras_programs", "tfmini"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("program", sorted(ANSWERS))
def test_program_gives_what_it_gave_on_tensorflow_1_15(program: str, found: Any) -> None:
    assert_same(found[program], ANSWERS[program])


def test_a_saved_model_that_loses_its_optimizer_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile(tf.train.AdamOptimizer(), "mse")
    tf.keras.experimental.export_saved_model(model, str(tmp_path / "model"))
    assert "saved without what compile() got" in caplog.text
    assert getattr(tf.keras.experimental.load_from_saved_model(str(tmp_path / "model")), "optimizer", None) is None
    tf.keras.backend.set_session(None)  # Keras keeps one for this graph


def test_flatten_takes_a_vector_for_each_example_and_unknown_sizes() -> None:
    flatten = tf.keras.layers.Flatten
    whole = [[2], [2, 3], [2, 3, 4], [None, None, 4]]
    flat = [flatten()(tf.placeholder(tf.float32, sizes)).shape.as_list() for sizes in whole]
    assert flat == [[2, 1], [2, 3], [2, 12], [None, None]]


def test_a_layer_of_a_dtype_can_be_written_as_json() -> None:
    entry = tf.keras.Input((3,), dtype=tf.float32)
    model = tf.keras.Model(entry, tf.keras.layers.Dense(2, dtype=tf.float32)(entry))
    dtypes = [layer["config"]["dtype"] for layer in json.loads(model.to_json())["config"]["layers"]]
    assert dtypes == ["float32", "float32"] == [layer.dtype for layer in model.layers]


def test_the_private_backend_has_the_functions_of_keras() -> None:
    internals.install()
    try:
        from tensorflow.python.keras import backend

        for name in ("reverse", "tile", "cast", "ones", "stack", "log", "expand_dims", "transpose"):
            assert getattr(backend, name) is getattr(tf.keras.backend, name), name
        assert backend.reverse(tf.ones([2, 3]), 1).shape == [2, 3]  # the op takes a list of axes alone
        from tensorflow.python.keras.optimizers import gradient_descent_v2

        assert gradient_descent_v2.SGD is tf.keras.optimizers.SGD
        assert backend.array_ops.zeros is tf.zeros
        assert backend.variables_module.Variable is tf.Variable
    finally:
        internals.uninstall()


@pytest.mark.parametrize(
    ("distribution", "deviation", "greatest"),
    [("truncated_normal", 1, 2.28), ("untruncated_normal", 1, 9), ("uniform", 1, 1.74)],
)
def test_scaled_weights_have_the_distributions_of_tensorflow(
    distribution: str, deviation: float, greatest: float
) -> None:
    make = tf.keras.initializers.VarianceScaling(100.0, "fan_in", distribution, seed=1)
    with tf.Session() as session:
        weights = session.run(make((100, 400)))
    assert abs(weights.std() - deviation) < 0.02
    assert 0.9 * min(greatest, 4) < np.abs(weights).max() < greatest


def test_build_gets_the_shapes_of_a_structure_of_states() -> None:
    shapes: list[Any] = []

    class Bridge(tf.keras.layers.Layer):
        def build(self, input_shape: Any) -> None:
            shapes.append(input_shape)
            super().build(input_shape)

        def call(self, inputs: Any) -> Any:
            return tf.convert_to_tensor(inputs[0].c)

    state = tf.nn.rnn_cell.LSTMStateTuple(tf.TensorShape([None, 5]), (None, 6))
    Bridge().build([state, (2, 3)])
    found, other = shapes[0]
    assert found.c.as_list() == [None, 5] and found.h.as_list() == [None, 6] and other.as_list() == [2, 3]


def test_a_layers_dtype_is_that_of_its_attribute() -> None:
    layer = tf.keras.layers.Layer()
    setattr(layer, "_dtype", "float16")  # noqa: B010 - as a subclass would
    assert layer.dtype == "float16" and tf.keras.layers.Dense(1, dtype=tf.float64).dtype == "float64"


def test_version_2_has_second_versions_of_some_layers() -> None:
    keras = tf.keras
    first, second = keras.layers, tf.compat.v2.keras.layers
    names = ("BatchNormalization", "DenseFeatures", "GRU", "GRUCell", "LSTM", "LSTMCell")
    assert all(getattr(first, name) is not getattr(second, name) for name in names)
    gates = [layers.LSTM(2).recurrent_activation.__name__ for layers in (first, second)]
    assert gates == ["hard_sigmoid", "sigmoid"] and first.Dense is second.Dense
    dense = second.DenseFeatures([tf.feature_column.numeric_column("a")])
    copied = type(dense).from_config(dense.get_config())
    assert isinstance(copied, first.DenseFeatures) and copied.feature_columns == dense.feature_columns
    assert tf.compat.v2.keras.Model is keras.Model


def test_features_of_version_2_have_variables_of_their_own() -> None:
    words = tf.feature_column.categorical_column_with_vocabulary_list("a", ["x", "y"])
    columns = [tf.feature_column.embedding_column(words, 3)]
    with tf.Graph().as_default():
        features = {"a": tf.constant(["x", "y"])}
        made = [tf.compat.v2.keras.layers.DenseFeatures(columns, name="same") for _ in range(2)]
        for layer in [*made, *made]:
            layer(features)
        assert [len(layer.weights) for layer in made] == [1, 1] and len(tf.global_variables()) == 2
        first = tf.keras.layers.DenseFeatures(columns, name="first")
        first(features)
        assert [weight.name for weight in first.weights] == ["first/a_embedding/embedding_weights:0"]
        with pytest.raises(ValueError, match="already exists"):
            tf.keras.layers.DenseFeatures(columns, name="first")(features)


def test_a_layer_that_was_built_casts_its_rows_and_needs_no_initializer() -> None:
    layer = tf.keras.layers.Dense(4, kernel_initializer=None)
    layer.build((2, 3))
    assert [layer(tf.ones([2, 3], dtype)).dtype for dtype in (tf.float64, tf.int32)] == [tf.float32] * 2


def test_an_initializer_may_be_given_as_a_class() -> None:
    layer = tf.keras.layers.Dense(
        2, kernel_initializer=tf.keras.initializers.Ones, bias_initializer=tf.zeros_initializer
    )
    found = layer(tf.ones([1, 3]))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(found).tolist() == [[3.0, 3.0]]


def test_any_layer_takes_a_regularizer_of_its_activity() -> None:
    class Doubled(tf.keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs * 2.0

    assert Doubled().activity_regularizer is None
    layer = Doubled(activity_regularizer=tf.keras.regularizers.l2(0.5))
    layer(tf.ones([2, 3]))
    model = tf.keras.Sequential([Doubled(input_shape=(3,), activity_regularizer=tf.reduce_sum)])
    with tf.Session() as session:
        assert session.run(layer.losses) == [6.0]  # the mean of the examples
    assert len(model.losses) == 1


def test_the_shape_of_a_weight_may_be_an_array() -> None:
    layer = tf.keras.layers.Layer()
    weight = layer.add_weight("w", shape=np.array([2, 3], np.int32), initializer="ones")
    assert weight.shape.as_list() == [2, 3]


def test_a_lambda_without_a_shape_calls_its_function_once_and_may_return_what_has_a_shape() -> None:
    class Held:
        shape = tf.TensorShape([None, 3])

    calls: list[Any] = []

    def function(x: Any) -> Any:
        calls.append(x)
        return Held(), tf.boolean_mask(x, x[:, 0] > 0)

    found = tf.keras.layers.Lambda(function)(tf.keras.layers.Input((3,)))
    assert isinstance(found[0], Held) and found[1].shape.as_list() == [None, 3] and len(calls) == 1


def test_data_in_tuples_are_as_in_lists() -> None:
    keras: Any = tf.keras
    x = np.arange(20.0, dtype="f")[:, None]
    y = 2 * x + 1
    with tf.Graph().as_default():
        ones, zeros = keras.layers.Dense(1, "linear", False, "ones"), keras.layers.Dense(1, "linear", False, "zeros")
        given = keras.Input((1,))
        model = keras.Model(given, [ones(given), zeros(given)])
        model.compile(keras.optimizers.SGD(0.0), "mse")
        assert model.test_on_batch(x, (y, x)) == [267.0, 143.5, 123.5]
        assert model.evaluate((x,), (y, x), verbose=0, sample_weight=(y[:, 0], x[:, 0])) == [6071.5, 4266.5, 1805.0]
        tensors = tf.constant(y), tf.constant(x)
        assert model.fit((tf.constant(x),), tensors, steps_per_epoch=2, verbose=0).history["loss"] == [267.0]
        assert model.fit(x, (y, x), validation_data=(x, (y, x)), verbose=0).history["val_loss"] == [267.0]
    keras.backend.set_session(None)


def test_a_model_takes_its_first_inputs_and_is_trained_without_targets() -> None:
    """What it is given beyond its inputs is dropped; the missing targets of one output are ones in training."""
    keras: Any = tf.keras
    x = np.arange(20.0, dtype="f")[:, None]
    with tf.Graph().as_default():
        model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones", input_shape=(1,))])
        model.compile(keras.optimizers.SGD(0.0), "mse")
        assert model.test_on_batch([x, x], 2 * x + 1) == 143.5
        assert model.train_on_batch(x) == model.fit([x, 2 * x], verbose=0).history["loss"][0] == 105.5
        assert model.fit((tf.constant(x), tf.constant(x)), steps_per_epoch=2, verbose=0).history["loss"] == [105.5]
        for call in model.test_on_batch, model.evaluate:
            with pytest.raises(tf.errors.InvalidArgumentError, match="must feed a value for placeholder tensor"):
                call(x)
    keras.backend.set_session(None)


def test_a_model_without_inputs_gets_those_of_its_first_call_on_layers() -> None:
    keras: Any = tf.keras
    with tf.Graph().as_default():
        model = keras.Sequential([keras.layers.Dense(2), keras.layers.Dense(3)])
        model(tf.zeros([1, 4]))
        assert not model.inputs
        given = keras.Input((4,))
        made = model(given)
        assert model.inputs == [given] and model.outputs == [made] and model.built
        assert (model.input_names, model.output_names) == (["input_1"], ["output_1"])
        model.compile("sgd", "mse")
        model.train_on_batch(np.ones((2, 4)), np.ones((2, 3)))
        assert model.outputs == [made]
    keras.backend.set_session(None)
