"""``dynamic_decode`` with its helpers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf

seq2seq = tf.contrib.seq2seq
BATCH, STEPS, WIDTH = 3, 4, 2
INPUTS = np.arange(BATCH * STEPS * WIDTH, dtype=np.float32).reshape(BATCH, STEPS, WIDTH)
LENGTHS = [4, 2, 0]


class Sum(tf.nn.rnn_cell.RNNCell):
    """The output and the state are the sum of the inputs so far."""

    state_size = output_size = WIDTH

    def call(self, inputs: Any, state: Any) -> Any:
        return inputs + state, inputs + state


def decode(helper: Any, **options: Any) -> Any:
    decoder = seq2seq.BasicDecoder(Sum(), helper, tf.zeros([BATCH, WIDTH]))
    with tf.Session() as session:
        return session.run(seq2seq.dynamic_decode(decoder, **options))


def test_training_feeds_the_inputs_up_to_their_lengths() -> None:
    helper = seq2seq.TrainingHelper(INPUTS, LENGTHS)
    outputs, state, lengths = decode(helper, impute_finished=True)
    sums = np.cumsum(INPUTS, 1)
    for row, length in enumerate(LENGTHS):
        assert outputs.rnn_output[row, :length].tolist() == sums[row, :length].tolist()
        assert not outputs.rnn_output[row, length:].any()
        assert state[row].tolist() == (sums[row, length - 1].tolist() if length else [0, 0])
    assert lengths.tolist() == LENGTHS and outputs.sample_id.dtype == np.int32


def test_outputs_are_those_of_dynamic_rnn_where_time_comes_first() -> None:
    helper = seq2seq.TrainingHelper(INPUTS.transpose(1, 0, 2), LENGTHS, time_major=True)
    outputs, _, _ = decode(helper, output_time_major=True, impute_finished=True)
    with tf.Session() as session:
        wanted = session.run(tf.nn.dynamic_rnn(Sum(), INPUTS, LENGTHS, dtype=tf.float32)[0])
    assert outputs.rnn_output.transpose(1, 0, 2).tolist() == wanted.tolist()


def test_greedy_decoding_feeds_embeddings_until_the_end_token() -> None:
    table = tf.constant([[0.0, 0.0], [1.0, 3.0], [5.0, 0.0]])
    helper = seq2seq.GreedyEmbeddingHelper(table, [1, 2, 0], 0)
    outputs, _, lengths = decode(helper, maximum_iterations=3)
    assert outputs.sample_id.tolist() == [[1, 1, 1], [0, 0, 0], [0, 0, 0]]
    assert lengths.tolist() == [3, 1, 1]


def test_functions_can_be_helpers() -> None:
    helper = seq2seq.CustomHelper(
        lambda: (tf.fill([BATCH], False), tf.ones([BATCH, WIDTH])),
        lambda time, outputs, state: tf.cast(outputs[:, 0], tf.int32),
        lambda time, outputs, state, sample_ids: (sample_ids >= 2, outputs, state),
    )
    outputs, _, lengths = decode(helper)
    assert outputs.sample_id.tolist() == [[1, 2]] * BATCH and lengths.tolist() == [2] * BATCH
    inference = seq2seq.InferenceHelper(
        lambda outputs: outputs, [WIDTH], tf.float32, tf.ones([BATCH, WIDTH]), lambda sample: sample[:, 0] > 3.0
    )
    assert decode(inference)[0].rnn_output[0, :, 0].tolist() == [1, 2, 4]


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_scheduled_sampling_feeds_inputs_or_samples(probability: float) -> None:
    table = tf.constant([[1.0, 0.0], [0.0, 1.0]])
    embedded = seq2seq.ScheduledEmbeddingTrainingHelper(INPUTS, [4] * BATCH, table, probability)
    outputs, _, _ = decode(embedded)
    plain = np.cumsum(INPUTS, 1)
    assert (outputs.rnn_output.tolist() == plain.tolist()) == (probability == 0)
    assert (outputs.sample_id == -1).all() == (probability == 0)
    fed_back = seq2seq.ScheduledOutputTrainingHelper(INPUTS, [4] * BATCH, probability)
    outputs, _, _ = decode(fed_back)
    doubled = INPUTS[:, :1] * np.array([1, 2, 4, 8]).reshape(1, 4, 1)
    assert outputs.rnn_output.tolist() == (doubled if probability else plain).tolist()


def test_a_decoder_is_asked_for() -> None:
    with pytest.raises(TypeError, match="Expected decoder to be type Decoder"):
        seq2seq.dynamic_decode("decoder")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be a scalar"):
        seq2seq.GreedyEmbeddingHelper(tf.ones([2, 2]), [0], [0])
