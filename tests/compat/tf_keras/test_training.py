"""Models of ``tf.keras`` take the data, add the losses and metrics and save the files as in TensorFlow 1.15."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs the extra keras")
keras: Any = tf.keras


@pytest.fixture(autouse=True)
def _in_a_graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield
    keras.backend.set_session(None)


class Bias(keras.layers.Layer):
    """Adds a variable to its input."""

    def build(self, input_shape: Any) -> None:
        """Makes the variable."""
        self.bias = self.add_weight("bias", (1,), initializer="zeros")

    def call(self, inputs: Any) -> Any:
        """The input and the variable."""
        return inputs + self.bias


def _model(optimizer: Any = "sgd", loss: str = "mae") -> Any:
    model = keras.Sequential([Bias(input_shape=(1,))])
    model.compile(optimizer, loss)
    return model


def _data(examples: int = 40, batch: int = 10) -> Any:
    ones = np.ones((examples, 1), np.float32)
    return tf.data.Dataset.from_tensor_slices((ones, ones)).batch(batch)


# ---- Data ------------------------------------------------------------------------------------------------------------


def test_data_that_run_out_end_training_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tensorflow"):
        history = _model().fit(_data(), epochs=3, steps_per_epoch=3, verbose=0)
    assert len(history.history["loss"]) == 2
    assert "`steps_per_epoch * epochs` batches (in this case, 9 batches)" in caplog.text


def test_an_evaluation_ends_with_the_data() -> None:
    model = _model()
    assert model.evaluate(_data(), steps=9, verbose=0) == 0
    assert model.predict(_data(), steps=9).shape == (40, 1)


def test_the_lines_of_training_tell_the_batches(capsys: pytest.CaptureFixture[str]) -> None:
    _model().fit(_data(), validation_data=_data(20))
    assert "Train on 4 steps, validate on 2 steps" in capsys.readouterr().out


def test_validation_data_begin_again_after_each_epoch() -> None:
    xs = np.arange(4, dtype=np.float32)[:, None]
    data = tf.data.Dataset.from_tensor_slices((xs, xs * 0)).batch(1)
    history = _model(keras.optimizers.SGD(0.0)).fit(
        data.repeat(), epochs=2, steps_per_epoch=1, verbose=0, validation_data=data, validation_steps=2
    )
    assert history.history["val_loss"] == [0.5, 0.5]


def test_arrays_are_validated_with_a_data_set() -> None:
    ones = np.ones((4, 1))
    history = _model().fit(ones, ones, validation_data=_data(), verbose=0)
    assert history.history["val_loss"] == [0]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"batch_size": 4}, "`batch_size` argument must not be specified"),
        ({"y": np.ones(4)}, "should not specify a target"),
        ({"sample_weight": np.ones(4)}, "`sample_weight` argument is not supported"),
        ({"validation_split": 0.5}, "`validation_split` argument is not supported"),
    ],
)
def test_what_a_data_set_has_is_no_argument(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        _model().fit(_data(), **more)


def test_a_data_set_without_an_end_needs_the_number_of_steps() -> None:
    model = _model()
    with pytest.raises(ValueError, match="the `steps_per_epoch` argument"):
        model.fit(_data().repeat())
    with pytest.raises(ValueError, match="the `steps` argument"):
        model.predict(_data().repeat())


def test_a_data_set_of_inputs_alone_trains_what_a_model_adds_to_its_loss() -> None:
    x = keras.Input((1,))
    model = keras.Model(x, Bias()(x))
    model.add_loss(tf.reduce_mean(model.output))
    model.compile(keras.optimizers.SGD(1.0))
    model.fit(tf.data.Dataset.from_tensor_slices(np.ones((4, 1), np.float32)).batch(4), verbose=0)
    assert model.get_weights()[0].tolist() == [-1]


def test_a_batch_of_a_data_set_is_one_of_train_on_batch() -> None:
    assert _model().train_on_batch(_data()) == 0


@pytest.mark.parametrize("as_data", [False, True])
def test_a_subclassed_model_takes_a_dictionary(as_data: bool) -> None:
    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.bias = Bias()

        def call(self, inputs: Any) -> Any:
            return self.bias(inputs["a"] - inputs["b"])

    model = Model()
    model.compile(keras.optimizers.SGD(1.0), "mae")
    x, y = {"a": np.full((4, 1), 3.0), "b": np.ones((4, 1))}, np.ones((4, 1))
    given = (tf.data.Dataset.from_tensor_slices((x, y)).batch(4),) if as_data else (x, y)
    assert model.fit(*given, verbose=0).history["loss"] == [1]


def test_a_functional_model_takes_and_gives_dictionaries() -> None:
    inputs = {"b": keras.Input((1,), name="b"), "a": keras.Input((1,), name="a")}
    model = keras.Model(inputs, {"difference": keras.layers.Subtract()([inputs["a"], inputs["b"]])})
    assert model.predict({"a": np.array([[3.0]]), "b": np.array([[1.0]])}).tolist() == [[2]]
    made = model({"a": tf.constant([[5.0]]), "b": tf.constant([[1.0]])})
    assert keras.backend.get_session().run(made)["difference"].tolist() == [[4]]


def _sizes(x: Any) -> Any:
    return list(x.as_list() if isinstance(x, tf.TensorShape) else x.shape.as_list())


def test_a_functional_model_gives_its_outputs_in_their_structure() -> None:
    inputs = keras.Input((2,))
    one, two = keras.layers.Dense(3)(inputs), keras.layers.Dense(4)(inputs)
    for outputs in [[one, two], (one, two), (one,), ({"a": two}, [one, two]), (one, [two, {"b": one}])]:
        model = keras.Model(inputs, outputs)
        tf.nest.assert_same_structure(outputs, model(inputs), check_types=True)
        asked = model.compute_output_shape((None, 2))
        given, made, shapes = (tf.nest.map_structure(_sizes, x) for x in (outputs, model(inputs), asked))
        assert given == made == shapes


def test_a_model_that_is_not_compiled_predicts_what_a_generator_gives() -> None:
    class Model(keras.Model):
        def call(self, x: Any) -> Any:
            return x + 1

    batches = ((np.ones((2, 1)), np.ones((2, 1))) for _ in range(2))
    assert Model().predict_generator(batches, steps=2, workers=0).tolist() == [[2]] * 4


def test_numbers_become_examples_of_a_deferred_model() -> None:
    model = keras.Sequential(keras.layers.Dense(1))
    model.compile("sgd", "mse")
    model.fit(np.ones(4), np.ones(4), verbose=0)
    assert model.predict(np.ones(3)).shape == (3, 1)


def test_a_target_of_a_data_set_is_broadcast_to_the_output() -> None:
    model = keras.Sequential([keras.layers.Dense(4, input_shape=(1,), kernel_initializer="zeros")])
    model.compile("sgd", "mse")
    assert model.evaluate(_data(), verbose=0) == 1
    with pytest.raises(ValueError, match="expects targets to have the same shape"):
        model.evaluate(np.ones((4, 1)), np.ones((4, 1)), verbose=0)


def test_weights_of_unknown_outputs_are_refused() -> None:
    x = keras.Input((1,))
    model = keras.Model(x, [keras.layers.Dense(1, name=name)(x) for name in ("one", "two")])
    model.compile("sgd", "mse")
    ones = np.ones((4, 1))
    with pytest.raises(ValueError, match=r"Unknown entries in sample_weight dictionary: \['three'\]"):
        model.fit(ones, [ones, ones], sample_weight={"three": ones})


def test_an_input_of_a_batch_size_decides_that_of_training() -> None:
    x = keras.Input((1,), batch_size=2)
    model = keras.Model(x, keras.layers.Dense(1)(x))
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0)
    with pytest.raises(ValueError, match="incompatible with the specified batch size"):
        model.fit(np.ones((4, 1)), np.ones((4, 1)), batch_size=4)
    with pytest.raises(ValueError, match=r"batch sizes: \[2, 3\]"):
        keras.Model([x, keras.Input((1,), batch_size=3)], x)


def test_validation_steps_need_validation_data() -> None:
    with pytest.raises(ValueError, match="`validation_steps` should not be specified"):
        _model().fit(np.ones((4, 1)), np.ones((4, 1)), validation_steps=1)


def test_the_mask_of_a_subclassed_models_output_leaves_out_its_examples() -> None:
    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.masking, self.dense = keras.layers.Masking(0), keras.layers.Dense(1, kernel_initializer="ones")

        def call(self, x: Any) -> Any:
            return keras.layers.TimeDistributed(self.dense)(self.masking(x))

    model = Model()
    model.compile("sgd", "mse")
    x = np.array([[[1.0], [1.0]], [[0.0], [0.0]]])
    assert model.train_on_batch(x, np.ones((2, 2, 1))) == 0


# ---- Layers ----------------------------------------------------------------------------------------------------------


def test_metrics_that_layers_and_models_add_are_named_in_the_order_of_their_values() -> None:
    class Layer(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_metric(tf.reduce_sum(x), aggregation="mean", name="of_layer")
            return x

    x = keras.Input((1,))
    model = keras.Model(x, Bias()(Layer()(x)))
    model.add_metric(tf.reduce_max(model.output) + 10, name="of_model", aggregation="mean")
    model.compile("sgd", "mse", metrics=["mae"])
    assert model.metrics_names == ["loss", "mean_absolute_error", "of_layer", "of_model"]
    assert model.evaluate(np.ones((4, 1)), np.ones((4, 1)), verbose=0) == [0, 0, 4, 11]


@pytest.mark.parametrize(
    ("more", "words"),
    [({"aggregation": "sum"}, "only `mean`"), ({"name": "a"}, "metric instance"), ({"aggregation": "mean"}, "a name")],
)
def test_a_metric_without_a_mean_or_a_name_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        keras.layers.Layer().add_metric(tf.constant(1.0), **more)


def test_a_call_may_decide_by_the_phase() -> None:
    class Layer(keras.layers.Layer):
        def call(self, x: Any, training: Any = None) -> Any:
            self.add_loss(tf.reduce_sum(x) * 0)
            if training:
                return x + 100
            return x

    model = keras.Sequential([Layer()])  # of known inputs it would be called without a phase
    model.compile("sgd", "mae")
    assert model.train_on_batch(np.zeros((2, 1)), np.zeros((2, 1))) == 100
    assert len(model.losses) == 1
    assert model.test_on_batch(np.zeros((2, 1)), np.zeros((2, 1))) == 0


def test_what_a_call_adds_in_one_phase_is_added() -> None:
    class Layer(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.norm = keras.layers.BatchNormalization(momentum=0.5)

        def call(self, x: Any, training: Any = None) -> Any:
            if training:
                self.add_loss(tf.constant(7.0))
                return self.norm(x, training=True)
            return self.norm(x, training=False)

    model = keras.Sequential([keras.layers.Flatten(), Layer()])
    model.compile(keras.optimizers.SGD(0.0), "mae")
    assert model.train_on_batch(np.full((2, 1), 8.0), np.zeros((2, 1))) == 7
    assert model.get_weights()[2].tolist() == [4.0]  # the moving mean


def test_a_dynamic_layer_tells_its_shape_but_cannot_be_compiled() -> None:
    class Layer(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            raise AssertionError

        def compute_output_shape(self, input_shape: Any) -> Any:
            return input_shape

    model = keras.Sequential([Layer(dynamic=True, input_shape=(3,))])
    assert model.output_shape == (None, 3)
    with pytest.raises(ValueError, match="You must enable eager execution"):
        model.compile("sgd", "mse")


def test_the_variables_of_columns_are_those_of_their_layer() -> None:
    column = tf.feature_column
    columns = [
        column.numeric_column("a"),
        column.embedding_column(column.categorical_column_with_identity("b", 5), 3),
    ]
    model = keras.Sequential([keras.layers.DenseFeatures(columns), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = {"a": np.ones((8, 1)), "b": np.arange(8) % 5}
    model.fit(x, np.ones((8, 1)), verbose=0)
    assert [w.shape.as_list() for w in model.trainable_weights] == [[5, 3], [4, 1], [1]]
    assert model.predict(x).shape == (8, 1)


@pytest.mark.parametrize("base", ["Sequential", "a subclass"])
def test_a_sequence_that_is_built_on_data_has_its_name(base: str) -> None:
    class Sequence(keras.Sequential):
        pass

    model = (Sequence if base == "a subclass" else keras.Sequential)([keras.layers.Flatten(), Bias()], name="s")
    model.compile("sgd", "mae")
    assert model.evaluate(np.full((2, 1), 3.0), np.zeros((2, 1)), verbose=0) == 3
    assert model.weights[0].op.name == "s/bias/bias"


def test_a_sequence_without_shapes_is_no_functional_model() -> None:
    model = keras.Sequential([keras.layers.BatchNormalization()])
    x = tf.placeholder(tf.float32, [None, 3])
    model(x)
    assert len(model.updates) == 2 and model.inputs is None  # those of one call
    built = keras.Sequential([keras.layers.Dense(2)], name="no_scope_of_this")
    built.build((None, 3))
    assert [w.op.name for w in built.weights] == ["dense/kernel", "dense/bias"] and built.inputs is None
    built.compile("sgd", "mse")
    assert built.predict(np.ones((2, 3))).shape == (2, 2)


def test_a_sequence_takes_sparse_inputs() -> None:
    model = keras.Sequential([keras.Input((3,), sparse=True), keras.layers.Lambda(tf.sparse.to_dense)])
    rows = importlib.import_module("scipy.sparse").csr_matrix(np.eye(3, dtype=np.float32))
    assert model.predict(rows).tolist() == np.eye(3).tolist()
    assert keras.backend.get_value(keras.backend.cast_to_floatx(tf.constant([1, 2]))).dtype == np.float32


def test_layers_are_added_to_a_sequence_that_data_have_built() -> None:
    model = keras.Sequential([keras.layers.Dense(2)])
    x, y = np.ones((4, 3)), np.ones((4, 2))
    for count in (1, 2):
        model.compile("sgd", "mse")
        model.fit(x, y, verbose=0)
        assert len(model.layers) == count and len(model.weights) == 2 * count
        model.add(keras.layers.Dense(2))
    model.pop()
    model.compile("sgd", "mse")
    model.fit(x, y, verbose=0)
    assert len(model.weights) == 4


def test_the_layers_of_a_model_know_its_calls() -> None:
    x = keras.Input((2,))
    inner = keras.Model(x, keras.layers.Dense(1)(keras.layers.Activation("relu")(x)))
    y = keras.Input((2,))
    outer = keras.Model(y, inner(y))
    outer.add_loss(keras.backend.sum(inner.layers[1].get_output_at(-1)))
    outer.compile("sgd")
    assert outer.evaluate(np.full((4, 2), 3.0), verbose=0) == 24


def test_a_sequence_after_an_input_layer_is_copied_with_its_shape() -> None:
    shared = keras.Sequential([keras.layers.InputLayer((3,)), keras.layers.Dense(2)])
    assert keras.Sequential.from_config(shared.get_config()).output_shape == (None, 2)
    x = keras.Input((3,))
    copy = keras.Model.from_config(keras.Model(x, shared(x)).get_config())
    assert copy.predict(np.ones((1, 3))).shape == (1, 2)


def test_a_model_of_a_sequence_without_shapes_is_read_from_a_file(tmp_path: Path) -> None:
    x, y = keras.Input((4,)), keras.Input((4,))
    shared = keras.Sequential([keras.layers.Dense(2)])
    model = keras.Model([x, y], keras.layers.add([shared(x), shared(y)]))
    model.save(str(tmp_path / "model.h5"))
    again, rows = keras.models.load_model(str(tmp_path / "model.h5"), compile=False), np.arange(8.0).reshape(2, 4)
    assert np.array_equal(again.predict([rows, rows]), model.predict([rows, rows]))
    shared.compile("adam", "mse")
    shared.fit(rows, np.ones((2, 2)), verbose=0)
    shared.save(str(tmp_path / "sequence.h5"))
    sequence = keras.models.load_model(str(tmp_path / "sequence.h5"))
    assert [keras.backend.get_value(w).shape for w in sequence.optimizer.weights] == [
        keras.backend.get_value(w).shape for w in shared.optimizer.weights
    ]
    assert np.array_equal(sequence.predict(rows), shared.predict(rows))


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_models_that_first_data_build_take_integers_as_they_are(dtype: type) -> None:
    class Model(keras.Model):
        def call(self, x: Any) -> Any:
            return x % 2

    model = Model()
    data = np.asarray([[16777217]], dtype)  # which float32 does not have
    assert model.predict(data).tolist() == [[1]]
    with pytest.raises(TypeError, match="non-floating point dtype"):
        keras.Sequential([keras.layers.Dense(1)]).predict(data)


def test_a_sequence_is_built_on_tensors() -> None:
    def make() -> Any:
        model = keras.Sequential([Bias(), Bias()])
        model.compile("sgd", "mae")
        return model

    x, y = tf.ones([10, 1]), tf.zeros([10, 1])
    assert make().evaluate(x, y, steps=2, verbose=0) == 1
    assert len(make().fit(x, y, steps_per_epoch=3, verbose=0).history["loss"]) == 1
    assert make().predict(x, steps=2).shape == (20, 1)


def test_a_call_that_must_have_more_than_the_inputs_cannot_be_trained_or_built() -> None:
    class Model(keras.Model):
        def call(self, x: Any, other: Any, more: Any = None) -> Any:
            return x + other

    model = Model()
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"passed to `fit` can only have .* found: \['other'\]"):
        model.fit(np.ones((4, 1)), np.ones((4, 1)))
    with pytest.raises(ValueError, match="cannot build your model"):
        model.build((None, 1))


def test_a_program_builds_the_layers_of_its_model_before_it_is_called() -> None:
    class Model(keras.Model):
        def build(self, input_shape: Any) -> None:
            self.dense = keras.layers.Dense(int(input_shape[-1]))

        def call(self, x: Any) -> Any:
            return self.dense(x)

    model = Model()
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 3)), np.ones((4, 3)), verbose=0)
    assert model.get_weights()[0].shape == (3, 3)


@pytest.mark.parametrize(
    ("shape", "words"), [(tf.Dimension(3), "one of the valid types"), ((None, 1), "do not support float type inputs")]
)
def test_a_model_that_cannot_be_built_on_a_shape_says_why(shape: Any, words: str) -> None:
    class Model(keras.Model):
        def call(self, x: Any) -> Any:
            return tf.nn.embedding_lookup(tf.ones([3, 2]), x)

    with pytest.raises(ValueError, match=words):
        Model().build(shape)


def test_a_dictionary_needs_a_first_layer_of_columns() -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="FeatureLayer"):
        model.fit({"a": np.ones((4, 1))}, np.ones((4, 1)))


def test_build_makes_the_variables_of_a_subclassed_model() -> None:
    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(2)

        def call(self, x: Any) -> Any:
            return self.dense(x)

    model = Model()
    model.build((None, 3))
    assert [weight.shape.as_list() for weight in model.weights] == [[3, 2], [2]]
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    assert len(model.weights) == 2


def test_the_first_call_of_a_model_calls_it_once() -> None:
    class Model(keras.Model):
        def call(self, x: Any) -> Any:
            self.add_loss(tf.reduce_sum(x))
            return x

    model = Model()
    model(tf.constant(1.0))
    assert len(model.losses) == 1


def test_a_layer_of_tf_layers_is_no_part_of_a_model() -> None:
    with pytest.raises(TypeError, match="legacy tf.layers.Layers"):
        keras.Sequential([tf.layers.Dense(1)])


# ---- Callbacks -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_saved_after_a_number_of_examples(tmp_path: Path) -> None:
    callback = keras.callbacks.ModelCheckpoint(str(tmp_path / "{epoch}.h5"), save_freq=30, save_weights_only=True)
    ones = np.ones((20, 1))
    _model().fit(ones, ones, batch_size=10, epochs=3, callbacks=[callback], verbose=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2.h5", "3.h5"]


def test_training_begins_with_the_newest_checkpoint(tmp_path: Path) -> None:
    model, zeros = _model(keras.optimizers.SGD(1.0)), np.zeros((4, 1))
    for number, value in ((1, 5.0), (2, 7.0)):
        model.set_weights([np.array([value])])
        model.save_weights(str(tmp_path / f"{number}.h5"))
    model.set_weights([np.array([0.0])])
    callback = keras.callbacks.ModelCheckpoint(
        str(tmp_path / "{epoch}.h5"), save_weights_only=True, load_weights_on_restart=True
    )
    model.fit(zeros, zeros, callbacks=[callback], verbose=0)
    assert model.get_weights()[0].tolist() == [6]


def test_other_arguments_of_a_checkpoint_are_refused() -> None:
    with pytest.raises(ValueError, match="Unrecognized save_freq"):
        keras.callbacks.ModelCheckpoint("a.h5", save_freq="batch")
    with pytest.raises(TypeError, match="resume"):
        keras.callbacks.ModelCheckpoint("a.h5", resume=True)


def _line() -> Any:
    """A model y = x, whose squared errors are those of the targets."""
    model = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(1,))])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    return model


def test_the_loss_of_a_generator_is_the_mean_of_examples_that_of_a_data_set_of_steps() -> None:
    x, y = np.zeros((10, 1), "float32"), np.array([[1.0]] * 8 + [[3.0]] * 2, "float32")

    def batches() -> Any:
        while True:
            yield x[:8], y[:8]
            yield x[8:], y[8:]

    found = _line().fit_generator(batches(), steps_per_epoch=2, epochs=1, verbose=0).history["loss"]
    assert found == pytest.approx([2.6])
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    assert _line().fit(data.repeat(), epochs=1, steps_per_epoch=2, verbose=0).history["loss"] == pytest.approx([5.0])


def test_a_validation_on_a_data_set_leaves_the_training_on_one_as_it_is() -> None:
    model = keras.Sequential([keras.layers.Dense(3, input_shape=(1,))])
    model.compile("sgd", "mse")  # targets are broadcast
    data = tf.data.Dataset.from_tensor_slices((np.ones((4, 1), "float32"), np.ones((4, 1), "float32"))).batch(2)
    made = model.fit(data.repeat(), epochs=2, steps_per_epoch=2, validation_data=data, validation_steps=2, verbose=0)
    assert len(made.history["val_loss"]) == 2


def test_arguments_of_a_data_set_may_be_given_by_position() -> None:
    data = tf.data.Dataset.from_tensors((np.zeros((1, 1), "float32"), np.ones((1, 1), "float32"))).repeat()
    made = _line().fit_generator(data, 2, 1, 0, None, None, None, 1, {1: 100.0})
    assert made.history["loss"] == pytest.approx([100.0])


def test_no_data_are_named() -> None:
    with pytest.raises(ValueError, match="The data have no batch"):
        _line().evaluate_generator(iter([]), steps=2)


def test_two_layers_of_columns_with_one_name_do_not_share_variables() -> None:
    ids = tf.feature_column.categorical_column_with_identity("ids", 5)
    column = tf.feature_column.embedding_column(ids, 2)
    given = {"ids": tf.constant([[1], [2]])}
    layer = keras.layers.DenseFeatures(column, name="columns")
    layer(given)
    layer(given)
    assert len(layer.weights) == 1
    with pytest.raises(ValueError, match="already exists"):
        keras.layers.DenseFeatures(column, name="columns")(given)


def test_columns_of_sequences_are_the_input_of_a_recurrent_layer() -> None:
    column = tf.feature_column
    ids = column.sequence_categorical_column_with_identity("ids", 5)
    layer = keras.experimental.SequenceFeatures(
        [column.embedding_column(ids, 2, initializer=tf.ones_initializer()), column.sequence_numeric_column("n")]
    )
    given = {
        "ids": tf.SparseTensor([[0, 0], [0, 1], [2, 0]], np.array([1, 4, 0]), [3, 2]),
        "n": tf.SparseTensor([[0, 0], [0, 1], [2, 0]], [1.0, 2, 3], [3, 2]),
    }
    found, lengths = layer(given)
    layer(given)
    outputs = keras.layers.SimpleRNN(4)(found, mask=tf.sequence_mask(lengths))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        rows, counts, last = session.run([found, lengths, outputs])
    assert [weight.name for weight in layer.weights] == [f"{layer.name}/ids_embedding/embedding_weights:0"]
    assert rows.tolist() == [[[1, 1, 1], [1, 1, 2]], [[0, 0, 0], [0, 0, 0]], [[1, 1, 3], [0, 0, 0]]]
    assert (counts.tolist(), last.shape) == ([2, 0, 1], (3, 4))


class Sum(keras.layers.Layer):
    """Adds its arguments, of which the last is a dictionary."""

    def call(self, first: Any, second: Any, more: Any = None) -> Any:
        """The sum."""
        return first + second + sum((more or {}).values())


def test_a_layer_takes_tensors_of_layers_in_any_argument() -> None:
    x, y, z = (keras.Input((2,)) for _ in range(3))
    model = keras.Model(
        [x, y, z], Sum()(x, y, more={"z": keras.layers.Lambda(lambda v: 2 * v)(z), "c": tf.ones((1, 2))})
    )
    copy = keras.Model.from_config(model.get_config(), {"Sum": Sum})
    for one in (model, copy):
        assert one.predict([np.full((1, 2), v) for v in (1, 10, 100)]).tolist() == [[212, 212]]
    assert [layer.name for layer in copy.layers] == [layer.name for layer in model.layers]


class Both(keras.layers.Layer):
    """Has a loss and an update of its variable, and of each input."""

    def build(self, input_shape: Any) -> None:
        """Makes the variable."""
        self.seen = self.add_weight("seen", (), initializer="zeros", trainable=False)
        self.add_loss(tf.reduce_sum(self.seen))
        self.add_update(tf.assign_add(self.seen, 1.0))

    def call(self, inputs: Any) -> Any:
        """The inputs."""
        self.add_loss(tf.reduce_sum(inputs), inputs=True)
        self.add_update(tf.assign_add(self.seen, tf.reduce_sum(inputs)))
        return tf.identity(inputs)


def test_losses_and_updates_are_those_of_the_inputs_that_they_are_computed_from() -> None:
    layer, x, y = Both(), keras.Input((1,)), keras.Input((1,))
    layer(x)
    model = keras.Model(y, keras.layers.Dense(1)(layer(y)))
    found = [(owner.get_losses_for(v), owner.get_updates_for(v)) for owner in (layer, model) for v in (x, y, None)]
    assert [(len(losses), len(updates)) for losses, updates in found] == [(1, 1)] * 6
    assert len(model.losses) == len(model.updates) == 3
    model.compile("sgd", "mse")
    model.train_on_batch(np.full((1, 1), 5.0), np.zeros((1, 1)))  # and x is not asked for
    assert keras.backend.get_value(layer.seen) == 6.0


def test_losses_and_metrics_that_a_functional_model_got_are_in_its_configuration() -> None:
    x, unused = keras.Input((1,)), keras.Input((1,))
    middle = keras.layers.Dense(1, kernel_initializer="ones")(x)
    model = keras.Model([x, unused], keras.layers.Dense(1)(middle))
    model.add_loss(tf.reduce_sum(middle * unused))
    model.add_metric(middle * 2.0, name="double", aggregation="mean")
    copy = keras.Model.from_config(model.get_config())
    assert [type(layer).__name__ for layer in copy.layers].count("AddLoss") == 1
    for one in (model, copy):
        one.compile("sgd")
        assert one.evaluate([np.full((2, 1), 3.0), np.ones((2, 1))], verbose=0) == [6.0, 6.0]


def test_a_model_tells_shapes_names_and_masks_of_its_outputs() -> None:
    x = keras.Input((4, 3))
    masked = keras.layers.Masking()(x)
    model = keras.Model({"x": x}, {"a": masked, "b": keras.layers.Lambda(lambda v: [v, v])(masked)[0]})
    copy = keras.Model.from_config(model.get_config())
    shapes = copy.compute_output_shape({"x": (None, 4, 3)})
    assert {name: shape.as_list() for name, shape in shapes.items()} == {"a": [None, 4, 3], "b": [None, 4, 3]}
    assert keras.Model(x, masked).output_mask.shape.as_list() == [None, 4]
    two = keras.Model(x, keras.layers.Lambda(lambda v: [v, v], name="two")(x))
    assert two.output_names == ["two", "two_1"]
    assert keras.Sequential([keras.layers.Dense(5)]).compute_output_shape((None, 7)).as_list() == [None, 5]


def test_a_clone_has_the_input_of_its_model_and_the_layers_that_a_function_makes() -> None:
    first = keras.layers.Dense(2)
    model = keras.Sequential([keras.layers.InputLayer((3,)), first])
    assert keras.models.clone_model(model).input_shape == (None, 3)
    assert keras.models.clone_model(model, clone_function=lambda layer: layer).layers == [first]
    x, y = keras.Input((2,)), keras.Input((2,))
    two = keras.models.clone_model(keras.Model([x, y], Sum()(x, y)))
    assert two.predict([np.ones((1, 2)), np.full((1, 2), 5.0)]).tolist() == [[6, 6]]


def test_a_subclassed_model_weighs_steps_of_examples() -> None:
    class Steps(keras.Model):
        def call(self, inputs: Any) -> Any:
            """The inputs."""
            return inputs * 1.0

    model = Steps()
    model.compile("sgd", "mae", sample_weight_mode="temporal", metrics=["mae"])
    found = model.test_on_batch(np.ones((1, 2, 1)), np.zeros((1, 2, 1)), np.array([[4.0, 0.0]]))
    assert found == [2.0, 1.0]


def test_the_tensorboard_callback_writes_batches_epochs_and_gradients(tmp_path: Path) -> None:
    model, ones = _line(), np.ones((2, 1))
    callback = keras.callbacks.TensorBoard(
        str(tmp_path), histogram_freq=1, write_grads=True, update_freq="batch", profile_batch=0
    )
    model.fit(ones, ones, verbose=0, validation_data=(ones, ones), callbacks=[callback])
    (path,) = tmp_path.glob("events*")
    tags = {value.tag for event in tf.train.summary_iterator(str(path)) for value in event.summary.value}
    assert {"batch_loss", "epoch_loss", "epoch_val_loss"} <= tags
    assert any(tag.endswith("_grad") for tag in tags)


def test_data_sets_tell_whether_they_may_be_batched_or_shuffled() -> None:
    helpers, data = (
        importlib.import_module("tfmini.compat.tf_keras.keras.engine.training_utils"),
        tf.data.Dataset.range(4),
    )
    helpers.assert_not_batched(data.shuffle(2).map(lambda x: x).prefetch(1))
    helpers.assert_not_shuffled(tf.data.Dataset.zip((data, data.repeat(2))).batch(2))
    with pytest.raises(ValueError, match="not batched"):
        helpers.assert_not_batched(data.batch(2).take(1))
    with pytest.raises(ValueError, match="not shuffled"):
        helpers.assert_not_shuffled(data.shuffle(2).batch(2))


def test_layers_that_were_frozen_when_a_model_was_compiled_keep_their_averages() -> None:
    layer, x = keras.layers.BatchNormalization(), keras.Input((2,))
    frozen, training = keras.Model(x, layer(x)), keras.Model(x, layer(x))
    layer.trainable = False
    frozen.compile("sgd", "mse")
    layer.trainable = True
    training.compile("sgd", "mse")
    for model, moves in ((frozen, False), (training, True)):
        model.train_on_batch(np.ones((3, 2)), np.ones((3, 2)))
        assert bool(keras.backend.get_value(layer.moving_mean).any()) is moves


def test_class_numbers_need_no_axis_of_their_own() -> None:
    model = keras.Sequential([keras.layers.Embedding(5, 3, input_length=4), keras.layers.Dense(5)])
    sparse = lambda y, logits: keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)  # noqa: E731
    x = np.arange(8).reshape(2, 4) % 5
    for loss in ("sparse_categorical_crossentropy", sparse):
        model.compile("sgd", loss)
        losses = [model.evaluate(x, y, verbose=0) for y in (x, x[..., None])]
        assert losses[0] == losses[1]


def test_a_frozen_model_trains_nothing_with_an_optimizer_of_tf_train() -> None:
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    model.trainable = False
    model.compile(tf.train.GradientDescentOptimizer(0.1), "mse")
    before = model.get_weights()
    model.train_on_batch(np.ones((2, 2)), np.ones((2, 1)))
    np.testing.assert_array_equal(model.get_weights()[0], before[0])


@pytest.mark.parametrize("metrics", [[], ["mae"]])
def test_losses_of_steps_on_arrays_are_their_mean_and_metrics_their_own(metrics: list[str]) -> None:
    x = np.arange(8.0).reshape(4, 2)
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones", input_shape=(2,))])
    model.compile(tf.keras.optimizers.SGD(0.0), "mse", metrics)
    expected = [21.0, 4.0] if metrics else 21.0
    assert [model.evaluate(x, x[:, :1], steps=steps, verbose=0) for steps in (1, 2, 4)] == [expected] * 3
    steps = {"steps_per_epoch": 1, "validation_steps": 2}
    told = model.fit(x, x[:, :1], verbose=0, validation_data=(x, x[:, :1]), **steps).history
    assert told["val_loss"] == [21.0]


def test_tensors_are_targets_like_arrays_and_are_not_checked() -> None:
    def compiled(loss: str, units: int) -> Any:
        model = keras.Sequential([keras.layers.Dense(units, "softmax", input_shape=(2,))])
        model.compile("sgd", loss)
        return model

    x, labels = np.ones([3, 2], np.float32), np.array([0.0, 1.0, 2.0])
    model = compiled("sparse_categorical_crossentropy", 3)
    wanted = model.test_on_batch(x, labels)
    assert model.evaluate(tf.constant(x), tf.constant(labels, tf.float32), steps=1, verbose=0) == pytest.approx(wanted)
    model = compiled("categorical_crossentropy", 1)
    with pytest.raises(ValueError, match="target array of shape"):
        model.test_on_batch(x, labels)
    assert model.test_on_batch(tf.constant(x), tf.constant(labels, tf.float32)) == pytest.approx(0.0, abs=1e-6)


def test_nodes_and_values_are_seen_as_in_tensorflow() -> None:
    model = keras.Sequential([keras.layers.Dense(3, input_shape=(2,))])
    (node,) = model.layers[0].inbound_nodes
    assert node.input_tensors is model.input and node.output_tensors is model.output
    assert node.input_shapes == (None, 2) and not model.layers[0].outbound_nodes
    assert keras.backend.get_value(3) == 3  # a learning phase that is set


def test_arrays_to_validate_with_have_batches_beside_steps() -> None:
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones", input_shape=(1,))])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    x, validation = np.ones((4, 1)), (np.arange(5.0)[:, None], np.zeros((5, 1)))
    history = model.fit(x, x, batch_size=2, steps_per_epoch=2, validation_data=validation, verbose=0).history
    assert history["val_loss"] == pytest.approx([6.0])


def test_a_history_can_be_written_as_json_and_begins_with_the_loss() -> None:
    """With NumPy 2 the sum of a float32 and an int would be a float32, which json does not know."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,), kernel_initializer="ones")])
    model.compile("sgd", "mse")
    history = model.fit(np.ones((5, 2)), np.ones((5, 1)), batch_size=2, validation_split=0.2, verbose=0).history
    assert list(json.loads(json.dumps(history))) == ["loss", "val_loss"]
    assert history["loss"][0] == pytest.approx(0.9418, abs=1e-5)


@pytest.mark.parametrize(
    ("loss", "metrics", "count"),
    [
        ("mse", [], 51), ("mae", [], 52), ("sparse_categorical_crossentropy", [], 61), ("kld", [], 61),
        ("poisson", [], 55),
        ("categorical_crossentropy", ["acc"], 108), ("categorical_crossentropy", ["mse"], 105),
    ],
)  # fmt: skip
def test_models_behind_a_compiled_one_have_the_initial_values_of_tensorflow(
    loss: str, metrics: list[str], count: int
) -> None:
    tf.set_random_seed(3)
    model = keras.Sequential([keras.layers.Dense(3, activation="softmax", input_shape=(4,))])
    model.compile("sgd", loss, metrics=metrics)
    tf.random_uniform([1])
    last = [op for op in tf.get_default_graph().get_operations() if op.type == "RandomUniform"][-1]
    assert last.get_attr("seed2") + 2 == count  # of 1.15.5 behind `clear_session`, which makes two ops


def test_ops_between_layers_count_an_op_for_each_constant() -> None:
    tf.set_random_seed(5)
    inputs = keras.Input((6,))
    x = keras.layers.Dense(2)(inputs[:, :2])
    assert x is not None
    first, *_ = (op for op in tf.get_default_graph().get_operations() if op.type == "RandomUniform")
    assert first.get_attr("seed2") == 11


class Numbers(keras.utils.Sequence):
    """Zeros whose targets are the numbers of their batches."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        return np.zeros((2, 1)), np.full((2, 1), index + 1.0)


@pytest.mark.parametrize("workers", [0, 1])
def test_each_validation_begins_with_the_first_batch_of_a_sequence(workers: int) -> None:
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(1,))])
    model.compile(keras.optimizers.SGD(0.0), "mae")
    options = {"steps_per_epoch": 2, "epochs": 3, "validation_steps": 2, "workers": workers, "shuffle": False}
    found = model.fit_generator(Numbers(), validation_data=Numbers(), verbose=0, **options).history
    assert found["loss"] == [1.5, 3.5, 3.0]  # as 1.15.5
    assert found["val_loss"] == [1.5, 1.5, 1.5]
