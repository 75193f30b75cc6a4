"""Recurrent layers and their wrappers of ``tf.keras``: nested inputs, time first, stacked cells, both directions."""

from __future__ import annotations

import importlib.util
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.compat import internals

pytestmark = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="needs the extra keras")
keras = tf.keras
Pair = namedtuple("Pair", "a b")


@pytest.fixture(autouse=True)
def _in_a_graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield
    keras.backend.set_session(None)


def value_of(tensor: Any) -> Any:
    return keras.backend.get_value(tensor)


class Sums:
    """A cell, no layer, that adds up pairs of inputs."""

    state_size = output_size = Pair(2, tf.TensorShape([2, 3]))

    def call(self, inputs: Any, states: Any) -> Any:
        new = Pair(states.a + inputs.a, states.b + inputs.b)
        return new, new


def test_inputs_outputs_and_states_may_be_nested() -> None:
    inputs = Pair(keras.Input((4, 2)), keras.Input((4, 2, 3)))
    layer = keras.layers.RNN(Sums(), return_sequences=True, return_state=True)
    all_a, all_b, a, b = layer(inputs)
    assert (all_a.shape.as_list(), all_b.shape.as_list()) == ([None, 4, 2], [None, 4, 2, 3])
    model = keras.Model(list(inputs), [all_a, all_b, a, b])
    found = model.predict([np.ones((1, 4, 2)), np.ones((1, 4, 2, 3))])
    assert found[0][0, :, 0].tolist() == [1, 2, 3, 4]
    assert found[3].tolist() == np.full((1, 2, 3), 4.0).tolist()
    started = layer(inputs, initial_state=Pair(tf.fill([1, 2], 5.0), tf.zeros([1, 2, 3])))
    assert started[2].shape.as_list() == [1, 2]


@pytest.mark.parametrize("unroll", [False, True])
def test_time_may_come_first(unroll: bool) -> None:
    x = tf.constant(np.random.RandomState(0).rand(2, 5, 3), tf.float32)
    layer = keras.layers.LSTM(4, return_sequences=True, unroll=unroll)
    first = keras.layers.LSTM(4, return_sequences=True, unroll=unroll, time_major=True)
    usual, swapped = layer(x), first(tf.transpose(x, [1, 0, 2]))
    first.set_weights(layer.get_weights())
    np.testing.assert_allclose(value_of(usual).transpose(1, 0, 2), value_of(swapped), rtol=1e-6)
    assert first.compute_output_shape((5, None, 3)).as_list() == [5, None, 4]
    assert keras.layers.LSTM.from_config(first.get_config()).time_major


def test_the_states_of_stacked_cells_stay_together() -> None:
    cells = [keras.layers.LSTMCell(3), keras.layers.GRUCell(4)]
    layer = keras.layers.RNN(cells, return_state=True)
    _, pair, single = layer(keras.Input((5, 2)))
    assert [state.shape.as_list() for state in pair] == [[None, 3], [None, 3]]
    assert single.shape.as_list() == [None, 4]
    shapes = layer.compute_output_shape((None, 5, 2))
    assert [shape.as_list() for shape in shapes] == [[None, 4], [None, 3], [None, 3], [None, 4]]


def test_states_are_kept_reset_and_set() -> None:
    layer = keras.layers.SimpleRNN(2, stateful=True, batch_input_shape=(1, 3, 2))
    model = keras.Sequential([layer])
    first = model.predict(np.ones((1, 3, 2)))
    assert not np.allclose(first, model.predict(np.ones((1, 3, 2))))
    layer.reset_states()
    np.testing.assert_allclose(first, model.predict(np.ones((1, 3, 2))), rtol=1e-6)
    with pytest.raises(ValueError, match="expected shape=\\(1, 2\\)"):
        layer.reset_states(np.ones((1, 3)))
    with pytest.raises(ValueError, match="needs to know its batch size"):
        keras.layers.SimpleRNN(2, stateful=True).reset_states()
    with pytest.raises(AttributeError, match="must be stateful"):
        keras.layers.SimpleRNN(2).reset_states()


def test_states_must_be_as_many_and_as_large_as_the_cells() -> None:
    x = keras.Input((3, 2))
    with pytest.raises(ValueError, match="not compatible with `cell.state_size`"):
        keras.layers.SimpleRNN(2)(x, initial_state=keras.Input((3,)))
    with pytest.raises(ValueError, match="batch_size and dtype cannot be None"):
        keras.layers.LSTMCell(2).get_initial_state()


def test_masked_outputs_may_be_zero_as_bidirectional_has_them() -> None:
    x = np.ones((1, 4, 2), "float32")
    x[0, 2:] = 0
    masked = keras.layers.Masking()(tf.constant(x))
    kept = value_of(keras.layers.SimpleRNN(3, return_sequences=True)(masked))
    assert kept[0, 3].tolist() == kept[0, 1].tolist() != [0, 0, 0]
    zeroed = keras.layers.RNN(keras.layers.SimpleRNNCell(3), return_sequences=True, zero_output_for_mask=True)
    both = keras.layers.Bidirectional(keras.layers.SimpleRNN(3, return_sequences=True))
    for layer in (zeroed, both):
        assert not value_of(layer(masked))[0, 2:].any()


def test_a_direction_may_have_a_layer_of_its_own() -> None:
    forward, backward = keras.layers.LSTM(2), keras.layers.LSTM(2, go_backwards=True, activation="relu")
    layer = keras.layers.Bidirectional(forward, backward_layer=backward)
    assert layer(keras.Input((3, 2))).shape.as_list() == [None, 4]
    assert layer.compute_output_shape((None, 3, 2)).as_list() == [None, 4]
    again = keras.layers.Bidirectional.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    with pytest.raises(ValueError, match="should have different `go_backwards`"):
        keras.layers.Bidirectional(forward, backward_layer=keras.layers.LSTM(2))
    with pytest.raises(ValueError, match="same value for attribute return_state"):
        keras.layers.Bidirectional(forward, backward_layer=keras.layers.LSTM(2, go_backwards=True, return_state=True))
    with pytest.raises(ValueError, match="initialize `Bidirectional` layer with a `Layer`"):
        keras.layers.Bidirectional(tf.ones([1]))


def test_time_distributed_layers_take_any_number_of_steps() -> None:
    layer = keras.layers.TimeDistributed(keras.layers.Dense(5))
    assert layer(keras.backend.placeholder((None, 10, 3))).shape.as_list() == [None, 10, 5]
    assert layer(keras.backend.placeholder((2, 7, 3))).shape.as_list() == [2, 7, 5]
    assert layer.compute_output_shape((None, 10, 3)).as_list() == [None, 10, 5]
    with pytest.raises(ValueError, match="at least 3 dimensions"):
        keras.layers.TimeDistributed(keras.layers.Dense(5)).build((None, 10))


def test_the_penalty_of_a_wrapped_layer_counts_once() -> None:
    x = keras.Input((3, 2))
    layer = keras.layers.Bidirectional(keras.layers.SimpleRNN(3, kernel_regularizer="l1", activity_regularizer="l1"))
    layer(x)
    assert [len(layer.losses), len(layer.get_losses_for(None)), len(layer.get_losses_for(x))] == [4, 2, 2]
    dense = keras.layers.Dense(2, kernel_regularizer="l1", activity_regularizer="l1")
    model = keras.Sequential([keras.layers.TimeDistributed(dense, input_shape=(3, 2))])
    assert len(model.losses) == 2


def test_a_peephole_cell_with_zero_peepholes_is_an_lstm() -> None:
    x = tf.constant(np.random.RandomState(0).rand(2, 3), tf.float32)
    plain, peephole = keras.layers.LSTMCell(4), keras.layers.PeepholeLSTMCell(4)
    found = []
    for cell in (plain, peephole):
        output, states = cell(x, [tf.ones([2, 4]), tf.ones([2, 4])])
        assert len(states) == 2
        found.append(output)
    peephole.set_weights([*plain.get_weights(), *np.zeros((3, 4))])
    np.testing.assert_allclose(*map(value_of, found), rtol=1e-5)


def test_the_second_version_has_the_defaults_of_cudnn() -> None:
    internals.install()
    try:
        from tensorflow.python.keras.layers import recurrent_v2
    finally:
        internals.uninstall()
    assert recurrent_v2.LSTM(2).could_use_cudnn and recurrent_v2.GRU(2).reset_after
    assert not recurrent_v2.LSTM(2, recurrent_dropout=0.1).could_use_cudnn
    assert recurrent_v2.GRUCell(2).recurrent_activation.__name__ == "sigmoid"
    assert keras.layers.LSTM(2).recurrent_activation.__name__ == "hard_sigmoid"


def test_dropout_of_a_peephole_cell_drops_in_training_only() -> None:
    x = tf.ones([4, 3, 8])
    layer = keras.layers.RNN(keras.experimental.PeepholeLSTMCell(4, dropout=0.5, recurrent_dropout=0.5))
    trained, used = layer(x, training=True), layer(x, training=False)
    session = keras.backend.get_session()
    session.run(tf.global_variables_initializer())
    assert np.ptp(session.run(used), 0).max() == 0 < np.ptp(session.run(trained), 0).max()


def test_what_is_experimental_in_1_15() -> None:
    names = [
        "CosineDecay",
        "CosineDecayRestarts",
        "LinearCosineDecay",
        "NoisyLinearCosineDecay",
        "PeepholeLSTMCell",
        "SequenceFeatures",
    ]
    assert [name for name in names if not hasattr(keras.experimental, name)] == []


def test_a_cell_of_two_states_has_a_list_of_them() -> None:
    cells = [keras.layers.LSTMCell(3), tf.compat.v2.keras.layers.LSTMCell(3)]
    assert [cell.state_size for cell in cells] == [[3, 3]] * 2
    state = cells[0].get_initial_state(batch_size=2, dtype=tf.float32)
    steps = tf.while_loop(
        lambda time, *_: time < 2, lambda time, state: (time + 1, cells[0](tf.ones([2, 4]), state)[1]), (0, state)
    )
    assert type(steps[1]) is list


_L = keras.layers
_SEEDS: list[tuple[Any, list[int]]] = [
    (lambda: _L.Bidirectional(_L.LSTM(3)), [0, 11, 40, 51, 564]),
    (lambda: _L.Bidirectional(_L.GRU(3, return_sequences=True)), [0, 11, 36, 47, 554]),
    (lambda: _L.RNN([_L.LSTMCell(3), _L.GRUCell(2)]), [0, 11, 40, 51, 493]),
    (lambda: _L.LSTM(3, use_bias=False), [0, 11, 254]),
    (lambda: _L.LSTM(3, time_major=True), [0, 11, 276]),
    (lambda: _L.GRU(3, reset_after=True), [0, 11, 302]),
    (lambda: _L.RNN([_L.LSTMCell(3) for _ in range(3)]), [0, 11, 40, 51, 80, 91, 718]),
]


@pytest.mark.parametrize("case", range(len(_SEEDS)))
def test_seeds_of_weights_behind_and_inside_of_recurrent_layers_are_those_of_tensorflow(case: int) -> None:
    make, expected = _SEEDS[case]
    tf.set_random_seed(5)
    make()(keras.Input((5, 4)))
    tf.random_uniform([1])
    kinds = ("RandomUniform", "RandomStandardNormal")
    seeds = [op.get_attr("seed2") for op in tf.get_default_graph().get_operations() if op.type in kinds]
    assert [seed - seeds[0] for seed in seeds] == expected


def _run_with_known_weights(outputs: Any) -> Any:
    random = np.random.RandomState(1)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for variable in tf.global_variables():
            variable.load(random.rand(*variable.shape.as_list()).astype("f") * 0.1, session)
        return session.run(outputs)


def _steps() -> Any:
    return tf.constant(np.random.RandomState(0).rand(2, 5, 3).astype("f"))


def test_dynamic_rnn_takes_cells_of_keras() -> None:
    _, state = tf.nn.dynamic_rnn(_L.GRUCell(4), _steps(), [5, 3], dtype=tf.float32)
    found = _run_with_known_weights(state)[0]
    np.testing.assert_allclose(found, [0.17478056, 0.18559507, 0.13055824, 0.13196725], rtol=1e-5)  # of 1.15.5
    _, states = tf.nn.dynamic_rnn(_L.LSTMCell(4), _steps(), dtype=tf.float32)
    assert [x.shape.as_list() for x in states] == [[2, 4]] * 2


def test_a_layer_takes_cells_that_are_not_kerass() -> None:
    found = _run_with_known_weights(_L.RNN(tf.nn.rnn_cell.LSTMCell(4))(_steps()))
    assert [v.name for v in tf.trainable_variables()] == ["lstm_cell/kernel:0", "lstm_cell/bias:0"]
    np.testing.assert_allclose(found[0], [0.17396076, 0.20710519, 0.10615689, 0.11614905], rtol=1e-5)  # of 1.15.5


def test_loops_of_the_backend_take_the_time_first_and_make_masked_outputs_zero() -> None:
    mask = tf.constant([[True, True, False, True, True], [False, True, True, True, False]])
    step = lambda x, states: (x + states[0], [x + states[0]])  # noqa: E731
    last, outputs, _ = keras.backend.rnn(step, _steps(), [tf.zeros((2, 3))], mask=mask, zero_output_for_mask=True)
    swapped = tf.transpose(_steps(), (1, 0, 2))
    time_first = keras.backend.rnn(step, swapped, [tf.zeros((2, 3))], mask=tf.transpose(mask), time_major=True)
    assert not value_of(last)[1].any()
    assert not value_of(outputs)[0, 2].any()
    np.testing.assert_array_equal(value_of(time_first[0])[0], value_of(last)[0])
