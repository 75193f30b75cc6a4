"""The layers in attributes, lists and dictionaries are those of 1.15.5, which has those of tuples not at all."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf

if importlib.util.find_spec("keras") is None:
    pytest.skip("needs the extra keras", allow_module_level=True)
keras: Any = tf.keras
Dense = keras.layers.Dense


@pytest.fixture(autouse=True)
def _in_a_graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield
    keras.backend.set_session(None)


class Model(keras.Model):
    def __init__(self, fill: Callable[[Any], object]) -> None:
        super().__init__()
        fill(self)

    def call(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def nested(model: Any) -> None:
    model.parts = [[Dense(3)]]
    model.parts[0].append(Dense(5))
    model.parts.append([Dense(2)])


def replaced_in_a_list(model: Any) -> None:
    model.parts = [Dense(3)]
    model.parts[0] = Dense(5)


def added_to_a_dictionary(model: Any) -> None:
    model.parts = {"a": Dense(3)}
    model.parts.setdefault("b", Dense(5))
    model.parts.update(c=Dense(7))


def slices(model: Any) -> None:
    model.parts = [Dense(3), Dense(4)]
    model.parts[0:1] = [Dense(5), Dense(6)]


def removed(model: Any) -> None:
    model.parts = [Dense(3), Dense(4), Dense(5)]
    del model.parts[0]
    model.parts.pop()


def by_attribute(model: Any) -> None:
    model.a = []
    model.b = Dense(2)
    model.a.append(Dense(3))
    model.c = {"x": Dense(4)}


def twice(model: Any) -> None:
    model.a = [Dense(1)]
    model.b = model.a[0]
    model.a.append(model.b)
    model.c = {"x": model.b}


def by_key(model: Any) -> None:
    model.parts = {"b": [Dense(1)], "a": {"z": Dense(2)}}
    model.parts["b"].append(Dense(3))
    model.parts["a"]["y"] = Dense(4)


def set_again(model: Any) -> None:
    model.a, model.b, model.c, model.d = Dense(1), [Dense(2)], Dense(3), [Dense(4)]
    model.a, model.b = Dense(5), [Dense(6)]
    del model.c, model.d


def not_only_layers(model: Any) -> None:
    model.parts = [1, "a", None]
    model.parts.append(Dense(3))


def from_outside(model: Any) -> None:
    parts = [Dense(1)]
    model.parts = parts
    parts.append(Dense(2))


def in_itself(model: Any) -> None:  # 1.15.5 fails by recursion
    model.parts = [Dense(1)]
    model.parts.append(model.parts)


@pytest.mark.parametrize(
    ("fill", "units"),
    [
        (nested, [3, 5, 2]),
        (replaced_in_a_list, [5]),
        (added_to_a_dictionary, [3, 5, 7]),
        (slices, [5, 6, 4]),
        (removed, [4]),
        (by_attribute, [3, 2, 4]),
        (twice, [1]),
        (by_key, [4, 2, 1, 3]),
        (set_again, [5, 6]),
        (not_only_layers, [3]),
        (from_outside, [1, 2]),
        (in_itself, [1]),
    ],
)
def test_layers_are_looked_up_where_they_are_kept(fill: Callable[[Any], object], units: list[int]) -> None:
    model = Model(fill)
    assert [layer.units for layer in model.layers] == units
    model(tf.ones([2, 3]))
    assert [weight.shape.as_list()[-1] for weight in model.trainable_weights] == [n for n in units for _ in "wb"]
    model.trainable = False
    assert model.trainable_weights == []
    assert len(model.non_trainable_weights) == 2 * len(units)


def test_layers_of_layers_and_of_models_below() -> None:
    class Layer(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [[Dense(3)]]
            self.one = Dense(6)
            self.parts[0].append(Dense(5))

        def call(self, x: Any) -> Any:
            return self.one(self.parts[0][1](self.parts[0][0](x)))

    def fill(model: Any) -> None:
        model.parts = [[Model(nested)], {"a": Layer()}]

    model = Model(fill)
    model(tf.ones([2, 3]))
    assert [w.shape.as_list()[-1] for w in model.trainable_weights] == [3, 3, 5, 5, 2, 2, 3, 3, 5, 5, 6, 6]


def test_attributes_of_graph_networks_and_sequences_are_no_layers() -> None:
    sequence = keras.Sequential([Dense(3, input_shape=(4,))])
    sequence.extra = [Dense(5)]
    x = keras.Input((4,))
    model = keras.Model(x, Dense(3)(x))
    model.extra = Dense(5)
    assert (len(sequence.layers), len(model.layers)) == (1, 2)


def test_variables_in_lists_are_weights() -> None:
    def fill(model: Any) -> None:
        model.kept = [[tf.Variable(np.ones(6, "f"))], {"a": tf.Variable(np.ones(8, "f"))}]
        model.kept.append(tf.Variable(np.ones(7, "f"), trainable=False))
        model.dense = Dense(2)
        model.dense.build((None, 3))
        model.again = [model.dense.kernel]

    model = Model(fill)
    assert [w.shape.as_list() for w in model.trainable_weights] == [[6], [8], [3, 2], [2]]
    assert [w.shape.as_list() for w in model.non_trainable_weights] == [[7]]


def test_variables_of_deleted_and_replaced_attributes_are_no_weights() -> None:
    def fill(model: Any) -> None:
        model.a, model.b, model.c = (tf.Variable(np.ones(size, "f")) for size in (1, 2, 3))
        model.again = model.c
        del model.a, model.c
        model.b = tf.Variable(np.ones(4, "f"), trainable=False)
        model.b = None

    assert [weight.shape.as_list() for weight in Model(fill).weights] == [[3]]


def test_a_weight_of_a_layer_stays_one_of_its_owner_when_a_tensor_replaces_it() -> None:
    class Doubled(keras.layers.Wrapper):
        def build(self, input_shape: Any) -> None:
            self.layer.build(input_shape)
            self.kernel = self.layer.kernel
            self.layer.kernel = self.kernel * 2.0
            super().build(input_shape)

        def call(self, x: Any) -> Any:
            return self.layer(x)

    layer = Doubled(Dense(2))
    layer(tf.ones([2, 3]))
    assert [weight.name for weight in layer.trainable_weights] == ["doubled/kernel:0", "doubled/bias:0"]
    assert [weight.name for weight in layer.layer.trainable_weights] == ["doubled/bias:0"]


def test_what_is_kept_in_lists_trains_is_saved_and_stays_a_list(tmp_path: Path) -> None:
    x, y = np.ones((8, 3), np.float32), np.ones((8, 2), np.float32)
    model, other = Model(nested), Model(nested)
    for made in (model, other):
        made.compile("sgd", "mse", metrics=["mae", keras.metrics.MeanSquaredError()], weighted_metrics=["mae"])
        made.train_on_batch(x, y)
    before = model.get_weights()
    model.fit(x, y, epochs=2, verbose=0)
    assert (len(before), len(model.layers)) == (6, 3)
    assert all((a != b).any() for a, b in zip(before, model.get_weights()))
    model.save_weights(str(tmp_path / "w.h5"))
    other.load_weights(str(tmp_path / "w.h5"))
    assert np.allclose(model.predict(x), other.predict(x))
    assert type(model.parts) is list
    copied = copy.copy(model.parts)
    assert copied == model.parts


class Late(keras.Model):  # type: ignore[name-defined]
    """A subclassed model, whose weights are made by its first call."""

    def __init__(self, more: bool = False) -> None:
        super().__init__()
        self.first = keras.layers.Dense(3)
        self.more = keras.layers.Dense(3, kernel_initializer="identity") if more else None
        self.last = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        x = self.first(x)
        return self.last(x if self.more is None else self.more(x))


@pytest.mark.parametrize("more", [False, True])
def test_weights_of_a_checkpoint_come_to_layers_that_are_made_later(more: bool, tmp_path: Path) -> None:
    model, path, x = Late(), str(tmp_path / "weights"), np.ones((2, 2), np.float32)
    wanted = model.predict(x)
    model.save_weights(path)
    ops = len(tf.get_default_graph().get_operations())
    model.save_weights(path)
    assert len(tf.get_default_graph().get_operations()) == ops
    other = Late(more)
    other.load_weights(path)
    np.testing.assert_allclose(other.predict(x), wanted, rtol=1e-6)
    model.set_weights([np.zeros(w.shape) for w in model.weights])
    model.load_weights(path)
    np.testing.assert_allclose(model.predict(x), wanted, rtol=1e-6)


def test_a_checkpoint_without_any_weight_of_the_model_is_an_error(tmp_path: Path) -> None:
    with tf.Session() as session:
        other = tf.Variable(1.0, name="other")
        session.run(other.initializer)
        tf.train.Checkpoint(other=other).write(str(tmp_path / "other"), session)
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    with pytest.raises(AssertionError, match="Nothing except the root object matched"):
        model.load_weights(str(tmp_path / "other"))


class Mixed:
    """What layers and models of the next tests have."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.own = tf.Variable(2.0, name="own")
        self.dense, self.norm = Dense(1), keras.layers.BatchNormalization()

    def call(self, x: Any) -> Any:
        """The layers on the input."""
        return self.norm(self.dense(x) * self.own)


class MixedLayer(Mixed, keras.layers.Layer):
    pass


class MixedModel(Mixed, keras.Model):
    pass


LAYERS = ["dense/kernel", "dense/bias", "batch_normalization/gamma", "batch_normalization/beta"]
MOVING = ["batch_normalization/moving_mean", "batch_normalization/moving_variance"]


@pytest.mark.parametrize(("kind", "order"), [(MixedLayer, ["own", *LAYERS, *MOVING]), (MixedModel, [*LAYERS, *MOVING])])
def test_weights_of_layers_are_after_a_layers_own_and_before_a_models(kind: Any, order: list[str]) -> None:
    made = kind(name="m")
    made(tf.ones([2, 2]))
    expected = [name if name == "own" else f"m/{name}" for name in order]
    assert [w.op.name for w in made.weights] == expected + ["own"] * (kind is MixedModel)
    counts = len(made.trainable_weights), len(made.non_trainable_weights)
    made.trainable = False
    assert [counts, (len(made.trainable_weights), len(made.non_trainable_weights))] == [(5, 2), (0, 7)]
    assert made.get_weights()[0 if kind is MixedLayer else -1] == 2  # Keras initializes it


def test_trainable_is_that_of_all_layers_below() -> None:
    first = Dense(2)
    model = keras.Sequential([first, Dense(3)])
    model.build((None, 4))
    first.trainable = False
    assert len(model.trainable_weights) == 2
    model.trainable = False
    model.trainable = True
    assert first.trainable and len(model.trainable_weights) == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda layers: layers.TimeDistributed(Dense(2, trainable=False)),
        lambda layers: layers.TimeDistributed(Dense(2), trainable=False),
        lambda layers: layers.Bidirectional(layers.LSTM(2, trainable=False)),
        lambda layers: layers.Bidirectional(layers.LSTM(2), trainable=False),
    ],
)
def test_wrapped_layers_that_do_not_train_stay_so(make: Any) -> None:
    layer = make(keras.layers)
    layer(keras.Input((4, 3)))
    assert layer.weights and not layer.trainable_weights


def test_a_programs_attributes_may_have_names_of_models_of_inputs_and_outputs() -> None:
    class Subclassed(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self._input_layers = [Dense(2), Dense(3)]
            self._output_layers = [Dense(1)]

        def call(self, x: Any) -> Any:
            for layer in [*self._input_layers, *self._output_layers]:
                x = layer(x)
            return x

    model = Subclassed()
    model(tf.ones([2, 4]))
    assert len(model.layers) == 3 and len(model.trainable_weights) == 6


class Renamed(keras.layers.Layer):
    """Takes the kernel of a dense layer over, as weight normalisation does, or shares it."""

    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.dense, self.keeps = Dense(2), keeps

    def build(self, input_shape: Any) -> None:
        """Makes the weights."""
        self.dense.build(input_shape)
        self.v = self.dense.kernel
        if not self.keeps:
            self.dense.kernel = None
        self.g = self.add_weight("g", shape=(2,), initializer="ones")
        super().build(input_shape)

    def call(self, x: Any) -> Any:
        """The output of the dense layer."""
        if not self.keeps:
            self.dense.kernel = self.v * self.g
        return self.dense(x) * self.g


@pytest.mark.parametrize(("keeps", "names"), [(True, "kernel g kernel bias"), (False, "kernel g bias")])
def test_a_weight_of_a_layer_may_become_one_of_its_owner(keeps: bool, names: str) -> None:
    """The lists are those of 1.15.5."""
    x = keras.Input((3,))
    layer = Renamed(keeps)
    model = keras.Model(x, layer(x))
    assert [v.op.name.rpartition("/")[2] for v in layer.trainable_weights] == names.split()
    model.set_weights([np.ones(w.shape) for w in model.weights])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.train_on_batch(np.ones((4, 3)), np.ones((4, 2)))
    assert keras.backend.get_value(layer.v) == pytest.approx(np.full((3, 2), 0.7))  # one step


def test_a_layer_keeps_an_object_under_another_name_in_checkpoints(tmp_path: Path) -> None:
    class Holder(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self._hidden = Dense(1)
            self.show(self._hidden)

        def show(self, layer: Any) -> None:
            self._track_trackable(layer, name="shown")

        def call(self, x: Any) -> Any:
            return self._hidden(x)

    model = Holder()
    model.predict(np.ones((1, 2)))
    model.save_weights(str(tmp_path / "w"))
    names = [name for name, _ in tf.train.list_variables(str(tmp_path / "w"))]
    assert "shown/kernel/.ATTRIBUTES/VARIABLE_VALUE" in names
    with pytest.raises(ValueError, match="name='shown'"):
        model.show(Dense(1))


def test_a_lambda_may_make_its_variables_otherwise() -> None:
    class Lambda(keras.layers.Lambda):
        def _variable_creator(self, next_creator: Any, **kwargs: Any) -> Any:
            return next_creator(**kwargs)

    first, second = Dense(3), Dense(3)
    both = lambda x: (first(x), second(x))  # noqa: E731
    Lambda(both)(keras.Input((2,)))
    assert first.kernel is not second.kernel
    first, second = Dense(3), Dense(3)
    keras.layers.Lambda(both)(keras.Input((2,)))
    assert first.kernel is second.kernel  # as in 1.15.5: one of each name
