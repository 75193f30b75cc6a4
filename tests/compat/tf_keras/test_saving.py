"""Checkpoints of the weights of models have the state of the optimizer, under the names of TensorFlow 1.15.5."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs the extra keras")
keras: Any = tf.keras
KERNEL, VALUE = "layer_with_weights-0/kernel", "/.ATTRIBUTES/VARIABLE_VALUE"


@pytest.fixture(autouse=True)
def _in_a_graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield
    keras.backend.set_session(None)


def _adam() -> Any:
    return keras.optimizers.Adam(0.1)


def _model(optimizer: Any) -> Any:
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,), use_bias=False, kernel_initializer="ones")])
    model.compile(optimizer, "mse")
    return model


def _losses(model: Any, epochs: int) -> Any:
    return model.fit(np.ones((4, 2)), np.zeros((4, 1)), epochs=epochs, verbose=0).history["loss"]


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (_adam, ["beta_1", "beta_2", "decay", "iter", "learning_rate"]),
        (lambda: tf.train.AdamOptimizer(0.1), ["global_step", "optimizer/beta1_power", "optimizer/beta2_power"]),
    ],
)
def test_training_goes_on_with_the_optimizer_of_a_checkpoint(tmp_path: Path, make: Any, names: list[str]) -> None:
    model, path = _model(make()), str(tmp_path / "w")
    _losses(model, 3)
    model.save_weights(path)
    home = "optimizer/optimizer" if "global_step" in names else "optimizer"
    slots = [f"{KERNEL}/.OPTIMIZER_SLOT/{home}/{slot}" for slot in "mv"]
    written = {name for name, _ in tf.train.list_variables(path)} - {"_CHECKPOINTABLE_OBJECT_GRAPH"}
    assert written == {f"{name}{VALUE}" for name in [KERNEL, *slots, *(f"optimizer/{name}" for name in names)]}
    expected = _losses(model, 2)
    fresh, used = _model(make()), _model(make())
    _losses(used, 1)
    for other in (fresh, used):  # the optimizer of the first has no state yet
        other.load_weights(path)
        assert _losses(other, 2) == expected


def test_libraries_read_the_optimizers_weights_and_write_objects_as_json(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    from tfmini.compat.tf_keras.saving import get_json_type

    model = _model(_adam())
    _losses(model, 1)
    model.save(str(tmp_path / "model.h5"))
    with h5py.File(str(tmp_path / "model.h5"), "r") as file:
        read = [np.array(one) for one in keras.engine.saving.load_optimizer_weights_from_hdf5_group(file)]
    assert [one.tolist() for one in read] == [np.asarray(one).tolist() for one in model.optimizer.get_weights()]
    values = [np.float32(1), np.arange(2), tf.Dimension(3), tf.TensorShape([1, None]), len]
    assert [get_json_type(value) for value in values] == [1.0, [0, 1], 3, [1, None], "len"]
    assert get_json_type(_adam())["class_name"] == "Adam"
    with pytest.raises(TypeError):
        get_json_type("text")


def test_a_saved_model_is_compiled_with_the_numbers_and_objects_that_it_was(tmp_path: Path) -> None:
    model = keras.Sequential([keras.layers.Dense(2, input_shape=(3,))])
    metrics = [keras.metrics.categorical_accuracy, keras.metrics.TopKCategoricalAccuracy(1, name="top")]
    model.compile(keras.optimizers.RMSprop(0.5), keras.losses.Huber(2.0), metrics)
    x, y = np.ones((1, 3)), np.ones((1, 2))
    model.train_on_batch(x, y)
    keras.experimental.export_saved_model(model, str(tmp_path / "model"))
    again = keras.experimental.load_from_saved_model(str(tmp_path / "model"))
    assert keras.backend.get_value(again.optimizer.lr) == 0.5
    assert again.metrics_names == model.metrics_names == ["loss", "categorical_accuracy", "top"]
    assert again.evaluate(x, y, verbose=0) == model.evaluate(x, y, verbose=0)


def _saving() -> Any:
    return importlib.import_module("tfmini.python.keras.saving.saving_utils")


def test_a_traced_model_gives_its_outputs_by_name_as_outside_training() -> None:
    with tf.Graph().as_default():
        a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
        dropped = keras.layers.Dropout(0.9, name="dropped")(keras.layers.Add()([a, b]))
        model = keras.Model([a, b], dropped)
        traced = _saving().trace_model_call(model)
        found = traced([np.ones((3, 2), "f"), np.ones((3, 2), "f")])
        np.testing.assert_array_equal(tf.Session().run(found["dropped"]), np.full((3, 2), 2.0))
        with pytest.raises(ValueError, match="input shapes have not been set"):
            _saving().trace_model_call(keras.Sequential([keras.layers.Dense(1)]))


def test_convolutions_and_averages_of_models_in_models_come_back_from_hdf5(tmp_path: Path) -> None:
    layers = keras.layers
    part = lambda: keras.Sequential([layers.Conv2D(2, (1, 3), input_shape=(2, 4, 2)), layers.BatchNormalization()])  # noqa: E731
    inner = lambda: keras.Sequential([part(), layers.ZeroPadding2D((0, 1)), part()])  # noqa: E731
    model = keras.Sequential([inner(), layers.Flatten()])
    model.build((None, 2, 4, 2))
    model.set_weights([np.random.RandomState(i).rand(*w.shape) for i, w in enumerate(model.get_weights())])
    model.save_weights(str(tmp_path / "w.h5"))
    other = keras.Sequential([inner(), layers.Flatten()])
    other.build((None, 2, 4, 2))
    other.load_weights(str(tmp_path / "w.h5"))
    for a, b in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_checkpoint_has_the_weights_of_a_sequence_that_its_data_built(tmp_path: Path) -> None:
    def make() -> Any:
        model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(2), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    model = make()
    model.fit(np.ones((2, 3)), np.ones((2, 1)), verbose=0)
    model.save_weights(str(tmp_path / "weights"))
    assert f"layer-2/bias{VALUE}" in dict(tf.train.list_variables(str(tmp_path / "weights")))
    built, fitted, later = make(), make(), make()
    built.build((None, 3))
    fitted.fit(np.ones((2, 3)), np.zeros((2, 1)), verbose=0)
    for other in (built, fitted, later):  # the last one gets its weights when its data build it
        other.load_weights(str(tmp_path / "weights"))
    found = [other.predict(np.ones((1, 3))) for other in (model, built, fitted, later)]
    np.testing.assert_allclose(found, [found[0]] * 4, rtol=1e-6)


def test_a_keras_model_saves_its_private_tables_and_modules(tmp_path: Path) -> None:
    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self._held: Any = tf.Module()
            self._held.v = tf.Variable(1.0, name="v")
            self._table = tf.contrib.lookup.MutableHashTable(tf.string, tf.int64, -1)

        def fill(self, session: tf.Session) -> None:
            session.run([self._held.v.assign(2.0), self._table.insert(["a"], [5])])

        def tell(self, session: tf.Session) -> Any:
            return session.run([self._held.v, self._table.lookup("a")])

    model, again = Model(), Model()
    session = keras.backend.get_session()
    model.fill(session)
    model.save_weights(str(tmp_path / "model"))
    again.load_weights(str(tmp_path / "model"))
    assert again.tell(session) == [2, 5]


def test_initializers_are_read_and_written_with_the_dtype_that_tensorflow_gives_them() -> None:
    made = tf.keras.initializers
    for name, config in (
        ("GlorotUniform", {"seed": 1}),
        ("GlorotNormal", {"seed": None}),
        ("Zeros", {}),
        ("Constant", {"value": 2.0}),
        ("RandomUniform", {"minval": 0.0, "maxval": 0.5, "seed": 1}),
        ("VarianceScaling", {"scale": 2.0, "mode": "fan_in", "distribution": "truncated_normal", "seed": None}),
    ):
        told = {"class_name": name, "config": {**config, "dtype": "float64"}}
        layer = tf.keras.layers.Dense.from_config({"units": 2, "kernel_initializer": told})
        assert layer.get_config()["kernel_initializer"] == told
        assert made.get(told)((2, 3)).dtype == tf.float64
    assert made.serialize(made.get("he_normal"))["config"] == {
        "scale": 2.0, "mode": "fan_in", "distribution": "truncated_normal", "seed": None, "dtype": "float32",
    }  # fmt: skip
    assert tf.keras.backend.get_value(made.Constant(3, tf.int32)((1,))).dtype == np.int32
    assert type(tf.keras.layers.Dense(1).kernel_initializer) is made.GlorotUniform is made.glorot_uniform
