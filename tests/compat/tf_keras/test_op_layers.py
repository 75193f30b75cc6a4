"""``call`` of a program's layers gets what the program has given, and is converted by AutoGraph."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.compat.tf_keras import backend

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs the extra keras")
needs_malt = pytest.mark.skipif(importlib.util.find_spec("malt") is None, reason="needs the extra autograph")
keras: Any = tf.keras


@pytest.fixture(autouse=True)
def _in_a_graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield
    keras.backend.set_session(None)


class Deciding(keras.layers.Layer):
    """Negates positive sums."""

    def call(self, x: Any) -> Any:
        """The examples, negated if their sum is positive."""
        if tf.reduce_sum(x) > 0:
            x = -x
        return x


class Squares(keras.Model):
    """Squares the result of a layer, one example after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.deciding = Deciding()

    def call(self, inputs: Any, training: Any = None) -> Any:
        """The squares, or in training their negatives."""
        found = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        for one in self.deciding(inputs):
            found = found.write(found.size(), one * tf.abs(one))
        return -found.stack() if training else found.stack()


@needs_malt
def test_tensors_decide_in_the_call_of_layers_and_models() -> None:
    model = Squares()
    model.compile("sgd", "mae")
    xs = np.array([[1.0], [3.0]], np.float32)
    assert model.predict(xs).tolist() == [[-1.0], [-9.0]]
    assert model.predict(-xs).tolist() == [[-1.0], [-9.0]]
    assert model.train_on_batch(xs, np.zeros((2, 1))) == model.test_on_batch(xs, np.zeros((2, 1))) == 5
    nested = keras.Sequential([keras.Sequential([Deciding(input_shape=(1,))]), Deciding()])
    assert nested.predict(xs).tolist() == [[-1.0], [-3.0]]


def test_a_call_that_is_not_converted_tells_which_layer_uses_a_tensor() -> None:
    class Layer(keras.layers.Layer):
        @tf.autograph.experimental.do_not_convert
        def call(self, x: Any) -> Any:
            return x if tf.reduce_sum(x) > 0 else -x

    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError, match="'decider' is attempting to use Python control"):
        Layer(name="decider")(keras.Input((1,)))


@pytest.mark.parametrize(
    "structure", [lambda a, b: (a, b), lambda a, b: [a, b], lambda a, b: {"a": a, "b": b}, lambda a, b: ((a,), [b])]
)
def test_layers_get_their_inputs_and_shapes_in_the_structure_of_the_program(structure: Any) -> None:
    seen: list[Any] = []

    class Layer(keras.layers.Layer):
        def build(self, input_shape: Any) -> None:
            seen.append(tf.nest.map_structure(lambda shape: shape.as_list(), input_shape))

        def call(self, inputs: Any) -> Any:
            seen.append(tf.nest.map_structure(lambda x: x.shape.as_list(), inputs))
            return tf.add_n(tf.nest.flatten(inputs))

    a, b = keras.Input((2,)), keras.Input((2,))
    model = keras.Model([a, b], Layer()(structure(a, b)))
    shape = [None, 2]
    assert seen == [structure(shape, shape), structure(shape, shape)]
    assert model.predict([np.ones((1, 2)), np.ones((1, 2))]).tolist() == [[2, 2]]
    model([tf.ones([1, 2]), tf.ones([1, 2])])
    assert seen[2] == structure([1, 2], [1, 2])


def test_the_ops_of_further_arguments_are_layers() -> None:
    class Sum(keras.layers.Layer):
        def call(self, x: Any, y: Any, *more: Any) -> Any:
            return tf.add_n([x, y, *more])

    x = keras.Input((2,))
    model = keras.Model(x, [Sum()(x, x * 2), Sum()(x, x * 2, x * 3)])
    again = keras.Model.from_config(model.get_config(), {"Sum": Sum})
    assert [made.tolist() for made in again.predict(np.ones((1, 2)))] == [[[3, 3]], [[6, 6]]]


def test_a_variable_as_output_trains() -> None:
    class Constant(keras.layers.Layer):
        def build(self, input_shape: Any) -> None:
            self.v = self.add_weight("v", shape=(2, 5), initializer="ones")

        def call(self, inputs: Any) -> Any:
            return self.v

    model = keras.Sequential([Constant(input_shape=(3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    before = model.get_weights()[0]
    model.fit(np.ones((2, 3)), np.ones((2, 1)), verbose=0)
    assert not np.array_equal(before, model.get_weights()[0])


def test_a_call_that_is_a_tf_function_takes_arguments_by_place_and_trains() -> None:
    class Layer(keras.layers.Layer):
        @tf.function
        def call(self, x: Any, y: Any) -> Any:
            return x + 2 * y

    class Model(keras.Model):
        @tf.function
        def call(self, inputs: Any) -> Any:
            return Layer()(inputs, 10 * inputs)

    x = keras.Input((1,))
    assert keras.Model(x, Layer()(x, 10 * x)).predict(np.ones((1, 1))).tolist() == [[21]]
    model = Model()
    model.compile("sgd", "mae")
    assert model.test_on_batch(np.ones((2, 1)), np.zeros((2, 1))) == 21


class WithState(keras.layers.Layer):
    """Returns its input and a state, as policies' networks do."""

    def call(self, x: Any, state: Any = ()) -> Any:
        """The doubled input, and the state as it was given."""
        return 2 * x, state


def test_outputs_keep_their_structure_and_what_is_no_tensor() -> None:
    layer, x = WithState(), tf.ones([2, 3])
    states = [(), None, (tf.zeros([1]), None), {"a": tf.zeros([1])}]
    found = [layer(x, state=state) for state in states]
    assert [type(one) for one in found] == [tuple] * len(states)
    assert [one[1] for one in found[:2]] == states[:2] and found[2][1][1] is None
    tf.nest.map_structure(lambda here, given: here is given, [one[1] for one in found[2:]], states[2:])
    assert all(one[0].shape.as_list() == [2, 3] for one in found)


def test_ops_are_counted_as_in_tensorflow() -> None:
    """In the first and the second call; the numbers are those of 1.15.5."""
    layers = keras.layers
    own = type("Own", (layers.LSTM,), {})
    expected: list[tuple[Any, dict[str, Any], list[int]]] = [
        (layers.LSTM(3), {}, [280, 240]),
        (own(3), {}, [280, 240]),
        (layers.LSTM(3, implementation=2), {}, [212, 172]),
        (layers.GRU(3), {}, [274, 238]),
        (layers.Dense(3, use_bias=False), {}, [37, 26]),
        (layers.Conv1D(3, 3, use_bias=False), {}, [19, 7]),
        (layers.BatchNormalization(), {"training": True}, [50, 30]),
        (layers.BatchNormalization(), {"training": False}, [32, 12]),
        (layers.LayerNormalization(center=False), {}, [20, 15]),
    ]
    for layer, kwargs, counts in expected:
        found: list[int] = []
        with tf.Graph().as_default():
            tf.set_random_seed(1)
            for _ in counts:
                inputs = keras.Input((5, 4))
                before: Any = tf.get_seed(None)[1]
                layer(inputs, **kwargs)
                after: Any = tf.get_seed(None)[1]
                found.append(after - before)
        assert found == counts, layer.name


class Sampled:
    """Stands for a tensor, as a distribution stands for a sample."""

    def __init__(self, value: Any) -> None:
        self.value, self.shape, self.dtype = value, value.shape, value.dtype


tf.register_tensor_conversion_function(Sampled, lambda x, **_: x.value)  # type: ignore[arg-type]


class Sampling(keras.layers.Layer):
    """Returns a tensor in a wrapper, and the tensor."""

    def call(self, x: Any) -> Any:
        """Both."""
        return Sampled(x), x * 2


def test_layers_take_objects_of_registered_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "symbolic_types", set())
    with pytest.raises(ValueError, match="symbolic tensor"):
        keras.layers.Lambda(lambda s: s.value + 1)(Sampled(keras.Input((2,))))
    backend.register_symbolic_tensor_type(Sampled)
    x = keras.Input((2,))
    sampled, _ = Sampling()(x)
    model = keras.Model(x, keras.layers.Lambda(lambda s: s.value + 1)(sampled))
    assert model.predict(np.ones((1, 2))).tolist() == [[2.0, 2.0]]
    passed = keras.layers.Lambda(lambda s: s)(outside := Sampled(tf.zeros([1])))
    assert passed is outside  # what comes of no layer is not copied, as in 1.15.5


def test_outputs_may_be_of_unknown_rank() -> None:
    first, second = Sampling()(tf.placeholder(tf.float32))
    assert first.shape.ndims is None and second.shape.ndims is None
    model = keras.Sequential([keras.layers.Lambda(lambda x: tf.placeholder_with_default(x, None))])
    model.compile("sgd", lambda y, p: tf.reduce_sum(y - p, -1))
    assert model.fit(tf.ones([2, 2]), tf.ones([2, 2]), steps_per_epoch=1, verbose=0).history["loss"] == [0.0]


def test_only_tensors_of_layers_make_nodes() -> None:
    """A call on other tensors leaves no trace in a layer, nor in those of a model."""
    shared = keras.layers.Dense(2)
    shared(tf.zeros((1, 3)))
    assert not shared.inbound_nodes
    with pytest.raises(AttributeError, match="no inbound nodes"):
        shared.output  # noqa: B018
    first = shared(keras.Input((3,)))
    shared(tf.zeros((1, 3)))
    assert len(shared.inbound_nodes) == 1 and shared.output is first
    model = keras.Model(inner := keras.Input((3,)), keras.layers.Dense(1)(inner))
    for x, nodes in (keras.Input((3,)), 2), (tf.zeros((2, 3)), 2):
        model(x)
        assert [len(layer.inbound_nodes) for layer in (model, *model.layers)] == [nodes, 1, nodes]


def _mask_behind(layer: Any) -> Any:
    inputs = keras.Input((5,))
    return keras.Model(inputs, layer(keras.layers.Embedding(9, 4, mask_zero=True)(inputs))).output_mask


class Weighs(keras.layers.Layer):
    """Uses the mask and does not say so."""

    def call(self, x: Any, mask: Any = None) -> Any:
        """The steps that are no padding."""
        return x * tf.cast(mask, "float32")[..., None]


def test_a_layer_that_takes_no_masks_drops_that_of_its_inputs() -> None:
    layers = keras.layers
    for made in (layers.Flatten, lambda: layers.Conv1D(2, 2), layers.GlobalMaxPooling1D, layers.ReLU, Weighs):
        assert _mask_behind(made()) is None
    assert _mask_behind(layers.LeakyReLU()) is not None
    with pytest.raises(TypeError, match="does not support masking"):
        layers.Flatten().compute_mask(keras.Input((5, 4)), tf.ones((2, 5), tf.bool))


def test_a_convolution_behind_a_masked_embedding_trains_as_in_tensorflow() -> None:
    inputs = keras.Input((5,))
    inner = keras.layers.Conv1D(2, 2)(keras.layers.Embedding(9, 4, mask_zero=True)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(inner)))
    model.compile("sgd", "mse")
    random = np.random.RandomState(0)
    model.set_weights([random.rand(*weight.shape) * 0.1 for weight in model.get_weights()])
    x, y = random.randint(0, 4, (6, 5)), random.rand(6, 1)
    losses = model.fit(x, y, epochs=2, verbose=0, shuffle=False).history["loss"]
    np.testing.assert_allclose(losses, [0.09558462, 0.09327640], rtol=1e-5)  # those of 1.15.5
    again = keras.models.model_from_json(model.to_json())
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
