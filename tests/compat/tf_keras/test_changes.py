"""The arguments, shapes, dtypes and op layers of layers and models of ``tf.keras`` are those of TensorFlow 1.15."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.compat import internals
from tfmini.compat.tf_keras import op_layers, state

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs the extra keras")
keras = tf.keras


@pytest.fixture(autouse=True)
def _in_a_graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield
    keras.backend.set_session(None)


def test_ops_between_layers_become_layers_which_configurations_and_calls_repeat() -> None:
    x = keras.Input((3,))
    middle = keras.layers.Dense(4, kernel_initializer="ones")(x)
    total = tf.reduce_sum(middle, 1, keepdims=True) * 2.0 + tf.ones([1])
    outcome = keras.layers.Dense(1, kernel_initializer="ones")(tf.concat([total, x], 1))
    model = keras.Model(x, tf.nn.relu(outcome) - 1)
    ops = ["Sum", "mul", "add", "concat"]
    names = ["input_1", "dense", *(f"tf_op_layer_{op}" for op in ops), "dense_1", "tf_op_layer_Relu", "tf_op_layer_sub"]
    assert [layer.name for layer in model.layers] == names
    assert model.predict(np.ones((2, 3))).tolist() == [[27.0], [27.0]]
    again = keras.Model.from_config(model.get_config())
    again.set_weights(model.get_weights())
    assert again.predict(np.ones((2, 3))).tolist() == [[27.0], [27.0]]
    with keras.backend.get_session().as_default():
        assert model(tf.ones([1, 3])).eval().tolist() == [[27.0]]


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_the_constants_of_ops_keep_their_types_in_configurations(dtype: str) -> None:
    x = keras.Input((2,), dtype=dtype)
    model = keras.Model(x, tf.reshape(x * 2, tf.constant([-1, 2, 1], tf.int64)))
    again = keras.models.model_from_json(model.to_json())
    assert again.predict(np.array([[1, 2]], dtype)).tolist() == [[[2], [4]]]


def test_an_op_with_several_outputs_is_one_layer() -> None:
    x = keras.Input((4,))
    model = keras.Model(x, tf.split(x, 2, 1))
    assert [part.tolist() for part in model.predict(np.array([[1, 2, 3, 4]]))] == [[[1, 2]], [[3, 4]]]


def test_layers_in_lists_and_dictionaries_are_those_of_the_model() -> None:
    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [keras.layers.Dense(3)]
            self.named = {"a": keras.layers.Dense(2)}
            self.parts.append(keras.layers.Dense(4))
            self.later: list[Any] = []
            self.later.append(keras.layers.Dense(1))

        def call(self, x: Any) -> Any:
            for part in self.parts:
                x = part(x)
            return self.later[0](self.named["a"](x))

    model = Model()
    assert len(model.layers) == 4
    model(tf.ones([2, 3]))
    assert len(model.trainable_weights) == 8


def test_a_layer_may_be_the_attribute_of_a_layer_outside_of_its_class() -> None:
    layer, part = keras.layers.Layer(), keras.layers.Dense(2)
    layer.part = part
    layer.parts = [keras.layers.Dense(3)]
    assert set(layer.submodules) == {part, layer.parts[0]}


def test_a_model_without_inputs_gets_those_of_the_first_batch() -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="have not yet been created"):
        _ = model.weights
    data = tf.data.Dataset.from_tensor_slices((np.ones((8, 3), "float32"), np.ones((8, 1), "float32"))).batch(4)
    assert len(model.fit(data, epochs=2, verbose=0).history["loss"]) == 2
    assert model.inputs[0].shape.as_list() == [None, 3]
    rows = ((np.ones((2, 3)), np.ones((2, 1))) for _ in range(4))
    other = keras.Sequential([keras.layers.Dense(1)])
    other.compile("sgd", "mse")
    assert len(other.fit_generator(rows, steps_per_epoch=2, verbose=0).history["loss"]) == 1


def test_layers_take_arrays_arguments_by_place_and_the_dtype_of_their_input() -> None:
    class Sums(keras.layers.Layer):
        def call(self, x: Any, y: Any) -> Any:
            return x + y, x - y

    total, difference = Sums()(keras.Input((2,)), 3.0)
    assert total.shape.as_list() == difference.shape.as_list() == [None, 2]
    dense = keras.layers.Dense(2)
    assert dense.dtype is None
    assert dense(np.ones((1, 3))).dtype == tf.float64 == dense.kernel.dtype.base_dtype
    assert keras.layers.LSTM(4, dtype="float64")(keras.Input((3, 2), dtype="float64")).dtype == tf.float64


def test_a_layer_takes_the_phase_that_its_call_does_not_name_and_no_surplus_argument() -> None:
    flat = tf.keras.layers.Flatten()
    assert flat(tf.ones([2, 3, 4]), training=True).shape == (2, 12)
    with pytest.raises(TypeError, match="takes 1 arguments, but got 3"):
        flat(tf.ones([2, 3, 4]), 1, 2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'phase'"):
        flat(tf.ones([2, 3, 4]), phase=1)


def test_a_copy_of_a_model_shares_its_layers() -> None:
    class Scaled(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = tf.keras.layers.Dense(2)

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

    model = Scaled()
    model(tf.ones([1, 3]))
    shared = copy.copy(model)
    assert shared is not model and shared.dense is model.dense


def test_the_seed_of_the_graph_gives_the_values_of_tensorflow() -> None:
    tf.set_random_seed(3)
    inputs = keras.Input((3,))
    dense = keras.layers.Dense(2)
    dense(inputs)
    model = keras.Sequential(
        [keras.layers.Dense(2, input_shape=(3,)), keras.layers.Dense(1, "relu", True, "he_normal")]
    )
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first, second = session.run([dense.kernel, model.layers[1].kernel])
    expected = [[0.9283607, -0.2838726], [0.9819536, 0.6919478], [0.08668041, 1.0058174]]
    assert first == pytest.approx(np.array(expected)) and second.ravel() == pytest.approx([-0.05716334, -0.832816])


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (lambda: keras.layers.Conv2D(3, 3, 2), (9, 9, 2), (4, 4, 3)),
        (lambda: keras.layers.Conv2D(3, (3, 2), (2, 1), "same", None, (1, 1), "relu"), (9, 9, 2), (5, 9, 3)),
        (lambda: keras.layers.LocallyConnected2D(3, 3, 2), (9, 9, 2), (4, 4, 3)),
        (lambda: keras.layers.Conv2DTranspose(3, 3, 2, "same"), (9, 9, 2), (18, 18, 3)),
        (lambda: keras.layers.ConvLSTM2D(3, 3, 2, "same"), (4, 9, 9, 2), (5, 5, 3)),
        (lambda: keras.layers.LSTM(3, "relu", "sigmoid", False), (4, 2), (3,)),
        (lambda: keras.layers.BatchNormalization(-1, 0.9), (4,), (4,)),
    ],
)
def test_arguments_by_place_are_those_of_tensorflow(layer: Any, shape: Any, expected: Any) -> None:
    """Not those of Keras 1, which Keras 2 takes a third and fourth number for."""
    assert layer()(keras.Input(shape)).shape.as_list()[1:] == list(expected)
    with pytest.raises(TypeError):
        keras.layers.Dense(output_dim=3)


def test_an_orthogonal_start_is_drawn_by_ops() -> None:
    tf.set_random_seed(3)
    drawn = [keras.initializers.Orthogonal(2.0)((2, 2)) for _ in range(2)]
    with tf.Session() as session:
        first, second = session.run(drawn)
        assert session.run(drawn[0] - first).any() and not np.allclose(first, second)  # a draw per run
        assert first @ first.T == pytest.approx(4 * np.eye(2), abs=1e-5)


def test_a_layer_in_a_conditional_makes_its_weights_outside() -> None:
    dense = keras.layers.Dense(2, kernel_initializer="ones")
    x, taken = tf.ones([1, 3]), tf.placeholder(tf.bool, [])
    y = tf.cond(taken, lambda: dense(x), lambda: x[:, :2])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(y, {taken: True}).tolist() == [[3, 3]] and session.run(y, {taken: False}).tolist() == [
            [1, 1]
        ]


def test_shapes_are_told_in_the_kind_in_which_they_are_asked_for() -> None:
    dense = keras.layers.Dense(3)
    assert dense.compute_output_shape((None, 4)) == (None, 3)
    assert dense.compute_output_shape(tf.TensorShape([None, 4])).as_list() == [None, 3]
    assert dense.compute_output_signature(tf.TensorSpec([None, 4])).shape.as_list() == [None, 3]


def test_an_input_has_a_batch_size_and_a_number_for_a_shape() -> None:
    assert keras.Input((2,), 5).shape.as_list() == [5, 2]
    assert keras.Input(7).shape.as_list() == [None, 7]
    with pytest.raises(ValueError, match="takes no ragged tensors"):
        keras.Input((None,), ragged=True)
    with pytest.raises(ValueError, match="shapes"):
        keras.Input((1,), shapes=1)


def test_a_layer_whose_arguments_no_configuration_has_says_so() -> None:
    class Scale(keras.layers.Layer):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

    with pytest.raises(NotImplementedError, match="override `get_config`"):
        Scale(2.0).get_config()


@pytest.mark.parametrize("implementation", [2, 3])
def test_locally_connected_layers_pad(implementation: int) -> None:
    layer = keras.layers.LocallyConnected1D(4, 3, padding="same", implementation=implementation)
    assert layer(tf.ones([2, 5, 3])).shape.as_list() == [2, 5, 4]
    assert layer.get_config()["implementation"] == implementation
    with pytest.raises(ValueError, match="border mode"):
        keras.layers.LocallyConnected2D(4, 3, padding="same")


def test_attention_masks_what_comes_later() -> None:
    query = np.ones((1, 3, 1), np.float32)
    value = np.array([[[1.0], [3.0], [8.0]]], np.float32)
    found = keras.layers.Attention(causal=True)([query, value, 0 * value])
    with tf.Session() as session:
        assert session.run(found).ravel().tolist() == pytest.approx([1.0, 2.0, 4.0])
    with pytest.raises(ValueError, match="must be called on a list"):
        keras.layers.Attention()(query)


def test_private_modules_are_where_tensorflow_has_them() -> None:
    internals.install()
    try:
        from tensorflow.python import keras as private
        from tensorflow.python.framework import test_util
        from tensorflow.python.keras import Model, backend_config
        from tensorflow.python.keras.layers import recurrent_v2
        from tensorflow.python.keras.optimizer_v2 import adam, learning_rate_schedule, optimizer_v2
        from tensorflow.python.util.compat import collections_abc

        assert test_util.disable_xla("why")(len) is test_util.disable_cudnn_autotune(len) is len
        named = test_util.generate_combinations_with_testcase_name(mode=["graph"], n=[1, 2])
        assert [case["testcase_name"] for case in named] == ["_test_mode_graph_n_1", "_test_mode_graph_n_2"]
        assert collections_abc.Iterable.__name__ == "Iterable"
        assert Model is tf.keras.Model is private.Model
        assert adam.Adam is tf.keras.optimizers.Adam
        assert optimizer_v2.OptimizerV2 is tf.keras.optimizers.Optimizer
        assert learning_rate_schedule.PolynomialDecay is tf.keras.optimizers.schedules.PolynomialDecay
        assert issubclass(recurrent_v2.LSTM, tf.keras.layers.LSTM)
        assert backend_config.epsilon() == tf.keras.backend.epsilon()
    finally:
        internals.uninstall()


def test_initializers_have_the_names_of_tensorflow_and_of_the_program() -> None:
    def mine(shape: Any, dtype: Any = None) -> Any:
        return tf.fill(shape, 7.0)

    with keras.utils.CustomObjectScope({"mine": mine}):
        assert keras.initializers.get("mine") is mine
    assert keras.initializers.GlorotUniform is keras.initializers.glorot_uniform


def test_in_a_graph_without_inputs_ops_between_layers_are_no_layers() -> None:
    with tf.Graph().as_default():
        x, keep = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.float32, [])
        found = tf.keras.layers.Dense(1)(tf.keras.layers.Dense(3)(x) * keep * tf.Variable(1.0))
        assert not hasattr(found, "_keras_history")
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            assert session.run(found, {x: [[1.0, 2.0]], keep: 0.5}).shape == (1, 1)


def test_a_layer_called_on_an_input_and_a_constant_keeps_its_weights_in_the_model() -> None:
    class Product(keras.layers.Layer):
        def build(self, shapes: Any) -> None:
            self.kernel = self.add_weight("kernel", (3, 1), initializer="ones")
            super().build(shapes)

        def call(self, inputs: Any) -> Any:
            return tf.matmul(inputs[0] + inputs[1], self.kernel)

    x = keras.Input((3,))
    model = keras.Model(x, Product()([x, tf.ones([1, 3])]))
    assert [weight.name for weight in model.trainable_weights] == ["product/kernel:0"]
    assert [layer.name for layer in model.layers] == ["input_1", "tf_op_layer_ones", "product"]
    copies = [keras.Model.from_config(model.get_config(), {"Product": Product}), keras.models.clone_model(model)]
    for one in (model, *copies):
        assert one.predict(np.ones((2, 3))).tolist() == [[6.0], [6.0]]


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_variable_between_layers_is_the_programs_and_a_copy_has_its_value(use_resource: bool) -> None:
    x, variable = keras.Input((2,)), tf.Variable(3.0, use_resource=use_resource)
    model = keras.Model(x, keras.layers.Dense(1, kernel_initializer="ones", trainable=False)(x * variable))
    session = keras.backend.get_session()
    session.run([variable.initializer])
    again, rows = keras.Model(x, model(x)), np.ones((1, 2))
    copy = keras.Model.from_config(model.get_config())
    copy.set_weights(model.get_weights())
    session.run(variable.assign(5.0))
    assert [made.predict(rows).tolist() for made in (model, again, copy)] == [[[10.0]], [[10.0]], [[6.0]]]


def test_an_op_of_a_resource_between_layers_has_no_configuration() -> None:
    x, table = keras.Input((2,), dtype="int32"), tf.Variable(tf.ones([4, 3]), use_resource=True)
    model = keras.Model(x, tf.nn.embedding_lookup(table, x))
    keras.backend.get_session().run(table.initializer)
    assert model.predict(np.zeros((1, 2))).shape == (1, 2, 3)
    with pytest.raises(ValueError, match="is no constant, which the configuration of 'tf_op_layer_.*Lambda"):
        model.get_config()


def test_states_that_ops_compute_from_an_input_are_those_of_another_input() -> None:
    x = keras.Input((4, 3))
    first = x[:, 0, :2]
    model = keras.Model(x, keras.layers.SimpleRNN(2, kernel_initializer="zeros")(x, initial_state=first))
    assert [layer.name for layer in model.layers] == ["input_1", "tf_op_layer_strided_slice", "simple_rnn"]
    other = keras.Input((4, 3))
    again = keras.Model(other, model(other))
    rows = np.arange(24.0).reshape(2, 4, 3)
    assert np.array_equal(again.predict(rows), model.predict(rows))


@pytest.mark.parametrize("masked", [False, True])
def test_states_may_have_a_known_batch_size_when_the_inputs_have_none(masked: bool) -> None:
    x = keras.Input((4, 3))
    zeros = tf.zeros([1, 2])
    inputs = keras.layers.Masking()(x) if masked else x
    found = keras.layers.LSTM(2)(inputs, initial_state=[zeros, zeros])
    assert keras.Model(x, found).predict(np.zeros((1, 4, 3))).tolist() == [[0.0, 0.0]]


def test_ops_between_layers_may_be_many_and_in_a_tf_cond_but_in_no_loop() -> None:
    x = keras.Input((1,))
    y: Any = x
    for _ in range(1500):
        y = y + 1.0
    op_layers.make_layers(state.library_root(), y)
    assert y._keras_history[0].name == "tf_op_layer_add_1499"
    picked = tf.cond(tf.reduce_sum(x) > 0, lambda: x + 1, lambda: x - 1)
    assert keras.Model(x, picked).predict(np.array([[3.0]])).tolist() == [[4.0]]
    looped = tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a * 2), (0, x))[1]
    with pytest.raises(ValueError, match="is in a loop, so it cannot be a layer of its own.*Lambda"):
        keras.Model(x, looped)
    outside = tf.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0)])
    assert keras.Model(x, x + tf.cast(outside, tf.float32)).predict(np.array([[1.0]])).tolist() == [[4.0]]


def test_ops_that_follow_no_layer_are_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[Any] = []
    walk = op_layers.traverse
    monkeypatch.setattr(op_layers, "traverse", lambda *given: walked.append(set(walk(*given))) or walked[-1])
    x = tf.placeholder(tf.float32, [None, 2])
    for _ in range(5):
        x = keras.layers.Dense(2)(x)
    before = walked[::2]  # each call walks back to the layers, and forth from them
    assert len(before[1]) == len(before[4]) > 0 == len(set.intersection(*before))


def test_a_lambda_owns_the_variables_that_its_function_makes_once() -> None:
    layer = keras.layers.Lambda(lambda x: x * tf.Variable(2.0, name="factor"))
    for _ in range(3):
        layer(np.ones((2, 2), "float32"))
    assert [weight.name for weight in layer.trainable_weights] == ["lambda/factor:0"]


def test_a_lambda_keeps_its_mask_and_the_shape_that_it_was_given() -> None:
    layer = keras.layers.Lambda(lambda x: x, output_shape=(None, 3), mask=lambda x, mask: mask)
    again = keras.layers.Lambda.from_config(layer.get_config())
    assert again.mask(1, "kept") == "kept"
    assert again.compute_output_shape((5, 2, 3)).as_list() == [5, None, 3]
    pair = keras.layers.Lambda(lambda x: x, output_shape=[(2,), (3,)])
    assert pair.compute_output_shape([(5, 2), (5, 3)]) == [(5, 2), (5, 3)]


def test_outputs_are_nested_as_call_returns_them() -> None:
    class Nested(keras.layers.Layer):
        def call(self, pair: Any) -> Any:
            return pair[0], [pair[1], {"sum": pair[0] + pair[1]}]

    first, (second, more) = Nested()((tf.ones([2]), tf.zeros([2])))
    assert first.shape == second.shape == more["sum"].shape


def test_batch_normalisation_on_a_named_device_and_weights_of_add_weight_in_checkpoints(tmp_path: Any) -> None:
    with tf.device("/cpu:0"):
        model = keras.Sequential([keras.layers.BatchNormalization(input_shape=(3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=[keras.metrics.MeanAbsoluteError()])
    assert model.fit(np.ones((2, 3)), np.ones((2, 1)), verbose=0).history["loss"]
    path = str(tmp_path / "weights")
    model.save_weights(path)
    assert tf.train.latest_checkpoint(str(tmp_path)) == path
    own = keras.Model()
    weight = own.add_weight("v", shape=[], initializer="ones")
    keras.backend.set_value(weight, 7.0)
    own.save_weights(path)
    keras.backend.set_value(weight, 1.0)
    own.load_weights(path)
    assert keras.backend.get_value(weight) == 7.0
    model.save(path + ".h5")
    assert keras.models.load_model(path + ".h5").metrics_names == ["loss", "mean_absolute_error"]


def test_the_mask_of_a_convolution_joins_inputs_and_outputs() -> None:
    from tfmini.compat.tf_keras.added_layers import conv_connected_inputs, conv_kernel_mask, deconv_output_length

    for padding, strides in (("valid", (1, 2)), ("same", (2, 1))):
        mask = conv_kernel_mask((4, 5), (2, 3), strides, padding)
        for place in np.ndindex(*mask.shape[2:]):
            joined = np.zeros((4, 5), bool)
            joined[np.ix_(*conv_connected_inputs((4, 5), (2, 3), place, strides, padding))] = True
            assert (mask[(..., *place)] == joined).all()
    with pytest.raises(NotImplementedError, match="full"):
        conv_kernel_mask((4,), 1, 1, "full")
    assert [deconv_output_length(4, 2, padding, stride=2) for padding in ("same", "valid", "full")] == [8, 8, 6]


def test_normalisations_take_the_arguments_of_tensorflow() -> None:
    assert keras.layers.BatchNormalization(fused=True)(keras.Input((4, 4, 3))).shape.as_list() == [None, 4, 4, 3]
    for fused, kept in (({}, True), ({"fused": False}, False), ({"virtual_batch_size": 2}, False)):
        norm = keras.layers.BatchNormalization(**fused)
        norm(keras.Input((4, 4, 4)))
        assert norm.fused is kept
    layer = keras.layers.LayerNormalization(
        gamma_regularizer="l2", beta_regularizer={"class_name": "L1L2", "config": {}}
    )
    layer(keras.Input((3,)))
    assert len(layer.losses) == 2
    assert keras.layers.LayerNormalization.from_config(layer.get_config()).get_config() == layer.get_config()
    with pytest.raises(ValueError, match="list/tuple of ints"):
        keras.layers.LayerNormalization(axis={"axis": 1})
    for axis, message in ((3, "Invalid axis"), ([1, -1], "Duplicate axis")):
        with pytest.raises(ValueError, match=message):
            keras.layers.LayerNormalization(axis=axis)(keras.Input((3,)))


@pytest.mark.parametrize("axis", [[-1], [1, 2], [0, -2]])
def test_batch_normalisation_has_one_axis_or_several(axis: list[int]) -> None:
    x = np.arange(40, dtype=np.float32).reshape(5, 2, 4)
    layer = keras.layers.BatchNormalization(axis=axis, momentum=0.0, epsilon=0.0)
    found = layer.apply(tf.placeholder_with_default(x, x.shape), training=True)
    others = tuple(i for i in range(3) if i not in layer.axis)
    assert layer.axis == [i % 3 for i in axis] == layer.get_config()["axis"]
    with tf.control_dependencies(layer.updates):
        kept = tf.identity(layer.moving_mean), tf.identity(layer.moving_variance)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        value, mean, variance = session.run([found, *kept])
        again = session.run(layer(x, training=False))
    np.testing.assert_allclose(value, (x - x.mean(others, keepdims=True)) / x.std(others, keepdims=True), atol=1e-5)
    keepdims = len(axis) > 1
    np.testing.assert_allclose(mean, x.mean(others, keepdims=keepdims), rtol=1e-6)
    np.testing.assert_allclose(variance, x.var(others, keepdims=keepdims), rtol=1e-6)
    np.testing.assert_allclose(again, value, atol=1e-5)


@pytest.mark.parametrize("arguments", [{"virtual_batch_size": 2}, {"renorm": True, "renorm_clipping": {"rmax": 2.0}}])
def test_batch_normalisation_computes_what_that_of_tf_layers_does(arguments: dict[str, Any]) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    layers = [library.BatchNormalization(momentum=0.5, **arguments) for library in (keras.layers, tf.layers)]
    found = [layer.apply(tf.constant(x), training=True) for layer in layers]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(2):
            values, _ = session.run([found, [layer.updates for layer in layers]])
        averages = session.run([[layer.moving_mean, layer.moving_variance] for layer in layers])
    np.testing.assert_array_equal(*values)
    np.testing.assert_array_equal(*averages)
    config = layers[0].get_config()
    assert config.items() >= arguments.items()
    assert keras.layers.BatchNormalization.from_config(config).get_config() == config


def test_the_second_batch_normalisation_uses_its_averages_while_it_is_frozen() -> None:
    layer, x = keras.layers.BatchNormalizationV2(), keras.Input((2,))
    model = keras.Model(x, layer(x))
    model.compile("sgd", "mse")
    data = np.array([[1.0, 2.0], [3.0, 6.0]], np.float32)
    with keras.backend.get_session().as_default():
        train = keras.backend.function([x, keras.backend.learning_phase()], [model.output])
        for trainable in (True, False, True):
            layer.trainable = trainable
            centred = np.abs(train([data, True])[0].mean(0)).max() < 0.01
            assert bool(centred) is trainable
    for arguments in ({"renorm": True}, {"axis": [1, 3]}, {"virtual_batch_size": 2}, {"adjustment": print}):
        with pytest.raises(ValueError, match="fused"):
            keras.layers.BatchNormalizationV2(fused=True, **arguments)
    with pytest.raises(ValueError, match="4D"):
        keras.layers.BatchNormalizationV2(fused=True)(x)


def test_pooling_and_transposed_convolution_in_three_dimensions_take_three_strides() -> None:
    x = tf.placeholder(tf.float32, [2, 4, 4, 4, 1])
    assert keras.backend.pool3d(x, (2, 2, 2), strides=(2, 2, 2)).shape.as_list() == [2, 2, 2, 2, 1]
    assert keras.layers.MaxPooling3D()(x).shape.as_list() == [2, 2, 2, 2, 1]
    assert keras.layers.Conv3DTranspose(3, 2, strides=2)(x).shape.as_list() == [2, 8, 8, 8, 3]
    with pytest.raises(ValueError, match="3 integers"):
        keras.backend.pool3d(x, (2, 2, 2), strides=(2, 2))


def test_batch_normalisation_refuses_axes_that_are_not_there() -> None:
    for axis, message in ((3, "Invalid axis"), ([1, -1], "Duplicate axis")):
        with pytest.raises(ValueError, match=message):
            keras.layers.BatchNormalization(axis=axis)(keras.Input((3,)))


def test_a_module_finds_the_variables_of_its_layers() -> None:
    module = tf.Module("outer")
    module.layers = [keras.layers.BatchNormalization(), tf.layers.Dense(2)]  # type: ignore[attr-defined]
    for layer in module.layers:  # type: ignore[attr-defined]
        layer(tf.ones([2, 3]))
    assert {v.op.name for v in module.variables} == {
        *(f"batch_normalization/{name}" for name in ("gamma", "beta", "moving_mean", "moving_variance")),
        "dense/kernel", "dense/bias",
    }  # fmt: skip
    assert len(module.trainable_variables) == 4 and len(module.submodules) == 2


def test_with_a_number_of_steps_each_takes_the_whole_arrays() -> None:
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    model.compile("sgd", "mse")
    x, y = np.ones((6, 2)), np.ones((6, 1))
    assert len(model.fit(x, y, batch_size=2, steps_per_epoch=2, epochs=3, verbose=0).history["loss"]) == 3
    assert model.predict(x, batch_size=2, steps=1).shape == (6, 1)
    assert model.evaluate(x, y, batch_size=2, steps=1, verbose=0) >= 0


def test_a_layer_with_kept_states_may_drop_some_of_them() -> None:
    layer = keras.layers.GRU(2, stateful=True, recurrent_dropout=0.5, batch_input_shape=(2, 3, 2))
    model = keras.Sequential([layer])
    model.compile("sgd", "mse")
    assert model.fit(np.ones((2, 3, 2)), np.ones((2, 2)), verbose=0).history["loss"]


def test_backend_functions_take_structures_and_the_session_that_of_a_tensors_graph() -> None:
    K = keras.backend  # noqa: N806 - as everybody calls it
    x, y = K.placeholder(shape=()), K.placeholder(shape=())
    assert K.function(x, x * x)(3.0) == 9.0
    assert K.function({"x": x, "y": y}, [x - y])({"x": 5.0, "y": 3.0}) == [2.0]
    session = K.get_session()
    with tf.Graph().as_default():
        assert K.get_session((x,)) is session
    with pytest.raises(ValueError, match="0 or 1"), state.learning_phase_scope(None):
        pass
    with pytest.raises(ValueError, match="2 integers"):
        K.separable_conv2d(tf.ones([1, 4, 4, 2]), tf.ones([3, 3, 2, 1]), tf.ones([1, 1, 2, 3]), (2, 2, 2))
    mean = tf.constant([0.0, 1.0])
    found = K.batch_normalization(tf.ones([1, 2, 3, 3]), mean, tf.ones([2]), None, None, 1, 0.0)
    assert session.run(found)[0, :, 0, 0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("rank", [1, 2])
def test_locally_connected_layers_compute_with_channels_first(rank: int) -> None:
    layer = (keras.layers.LocallyConnected1D, keras.layers.LocallyConnected2D)[rank - 1]
    sizes, x = [4, 5][:rank], np.random.RandomState(0).rand(2, *[4, 5][:rank], 3).astype("float32")
    last = keras.Sequential([layer(2, 2, input_shape=(*sizes, 3))])
    first = keras.Sequential([layer(2, 2, input_shape=(3, *sizes), data_format="channels_first")])
    kernel, _ = last.get_weights()
    places = kernel.shape[0]
    swapped = kernel.reshape(places, 2**rank, 3, 2).transpose(0, 2, 1, 3).reshape(kernel.shape)
    first.set_weights([swapped, first.get_weights()[1]])
    wanted = last.predict(x)
    found = np.moveaxis(first.predict(np.moveaxis(x, -1, 1)), 1, -1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert first.output_shape == (None, 2, *[size - 1 for size in sizes])
    assert first.layers[0].get_config()["data_format"] == "channels_first"


@pytest.mark.parametrize(("size", "wanted"), [(3, [0, 1]), (4, [1, 3]), (5, [1, 2, 3]), (6, [2, 4, 5])])
def test_a_radial_constraint_takes_values_of_the_diagonal(size: int, wanted: list[int]) -> None:
    kernel = np.zeros((size, size, 1, 2), "float32")
    kernel[..., 0] = (np.arange(size)[:, None] * np.ones(size))[..., None]
    made = keras.backend.eval(keras.constraints.radial_constraint()(keras.backend.variable(kernel)))
    assert made[size // 2, size // 2 :, 0, 0].tolist() == wanted
    assert (made == made[::-1]).all() and (made == made.transpose(1, 0, 2, 3)).all()


def test_functions_of_the_program_stand_for_regularizers_by_name() -> None:
    def mine(weights: Any) -> Any:
        return tf.reduce_sum(weights)

    x = keras.Input((2,))
    model = keras.Model(x, keras.layers.Dense(1, kernel_regularizer=mine, kernel_constraint=mine)(x))
    again = keras.Model.from_config(model.get_config(), custom_objects={"mine": mine})
    assert again.layers[1].kernel_regularizer is again.layers[1].kernel_constraint is mine


@pytest.mark.parametrize(("kernel", "scale"), [("gaussian", 3.0), ("laplacian", 5.0)])
def test_products_of_random_fourier_features_are_near_the_kernel(kernel: str, scale: float) -> None:
    utils = keras.utils.kernelized_utils
    x, y = (np.random.RandomState(i).rand(4, 3).astype("float32") for i in range(2))
    np.random.seed(0)
    tf.set_random_seed(0)
    layer = keras.layers.RandomFourierFeatures(4000, kernel, scale, trainable=True)
    near = utils.inner_product(layer(x), layer(y)) / 2000.0
    exact = {"gaussian": utils.exact_gaussian_kernel, "laplacian": utils.exact_laplacian_kernel}[kernel](x, y, scale)
    found, wanted = keras.backend.get_session().run([near, exact])
    np.testing.assert_allclose(found, wanted, atol=0.1)
    assert [w.name for w in layer.trainable_weights] == ["random_fourier_features/random_features_scale:0"]
    assert layer.compute_output_shape((None, 3)).as_list() == [None, 4000]
    again = keras.layers.RandomFourierFeatures.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((-3,), "positive integer"), ((3, "other"), "Unsupported kernel"), ((3, "gaussian", 0.0), "positive float")],
)
def test_random_fourier_features_refuse_other_arguments(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        keras.layers.RandomFourierFeatures(*arguments)


def test_files_have_the_weights_that_are_trained_first_also_of_a_model_in_a_model(tmp_path: Any) -> None:
    import h5py

    def make() -> Any:
        layers = [keras.layers.Dense(2, input_shape=(2,)), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
        x = keras.Input((2,))
        return keras.Model(x, keras.Sequential(layers, name="inner")(x))

    models, path = (make(), make()), str(tmp_path / "weights.h5")
    models[0].set_weights([np.full(w.shape.as_list(), i, np.float32) for i, w in enumerate(models[0].weights)])
    models[0].save_weights(path)
    with h5py.File(path) as file:
        names = [name.decode().split("/")[-1] for name in file["inner"].attrs["weight_names"]]
    assert names[2:] == ["gamma:0", "beta:0", "kernel:0", "bias:0", "moving_mean:0", "moving_variance:0"]
    models[1].load_weights(path)
    for first, second in zip(*(model.get_weights() for model in models)):
        np.testing.assert_array_equal(first, second)


def test_the_format_of_weights_is_what_is_asked_for(tmp_path: Any) -> None:
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    for name in ("hdf5", " H5 ", "keras"):
        model.save_weights(str(tmp_path / "w"), save_format=name)
        assert (tmp_path / "w").read_bytes()[:4] == b"\x89HDF"
    model.save_weights(str(tmp_path / "c"), save_format="TensorFlow")
    assert (tmp_path / "c.index").exists()
    with pytest.raises(ValueError, match="Unknown format"):
        model.save_weights(str(tmp_path / "w"), save_format="other")
    with pytest.raises(ValueError, match="looks like an HDF5 file"):
        model.save_weights(str(tmp_path / "w.h5"), save_format="tf")
    model.save(str(tmp_path / "m.h5"), save_format="tf")
    assert (tmp_path / "m.h5").read_bytes()[:4] == b"\x89HDF"


def test_weights_of_cudnn_become_those_of_the_layers_that_compute() -> None:
    with pytest.raises(NotImplementedError, match="use GRU"):
        keras.layers.CuDNNGRU(2)(keras.Input((3, 2)))
    layer = keras.layers.CuDNNGRU(2)
    layer.build((None, 3, 2))
    assert [w.shape.as_list() for w in layer.weights] == [[2, 6], [2, 6], [12]]


def test_the_seeds_of_a_models_ops_are_tensorflows() -> None:
    tf.set_random_seed(1)
    layers = tf.keras.layers
    tf.keras.Sequential(
        [
            layers.Conv2D(4, 3, activation="relu", input_shape=(8, 8, 1)),
            layers.MaxPooling2D(),
            layers.Conv2D(2, 2),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(5),
            layers.Dense(2, activation="softmax"),
        ]
    )
    ops = [op for op in tf.get_default_graph().get_operations() if op.type == "RandomUniform"]
    assert [op.get_attr("seed2") for op in ops] == [4, 27, 64, 82, 102]


def test_each_call_of_a_layer_keeps_the_structure_of_its_inputs() -> None:
    class Both(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return x["a"] - x["b"] if isinstance(x, dict) else x[0] * x[1]

    a, b, layer = keras.Input((2,)), keras.Input((2,)), Both()
    outputs = [layer({"a": a, "b": b}), layer([a, b])]
    again = keras.Model([a, b], keras.Model([a, b], outputs)([a, b]))
    values = np.full((1, 2), 3.0, np.float32)
    assert [found[0, 0] for found in again.predict([values, values + 1])] == [-1, 12]


def test_a_causal_separable_convolution_sees_no_later_step() -> None:
    layer = keras.layers.SeparableConv1D(1, 3, padding="causal", dilation_rate=2, use_bias=False,
                                         depthwise_initializer="ones", pointwise_initializer="ones")  # fmt: skip
    model = keras.Sequential([layer])
    assert model.predict(np.arange(1.0, 6.0).reshape(1, 5, 1)).ravel().tolist() == [1, 2, 4, 6, 9]


def test_a_lambda_that_was_not_called_tells_its_shape() -> None:
    layer = keras.layers.Lambda(lambda xs: tf.matmul(*xs), dtype="float64")
    assert tuple(layer.compute_output_shape([(10, 10), (10, 20)])) == (10, 20)


def test_bilinear_upsampling_takes_the_centres_of_pixels_as_in_tensorflow_1_15() -> None:
    layer = keras.layers.UpSampling2D((1, 2), interpolation="bilinear", input_shape=(1, 4, 1))
    found = keras.Sequential([layer]).predict(np.arange(4, dtype=np.float32).reshape(1, 1, 4, 1))
    np.testing.assert_allclose(found.ravel(), [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3])
