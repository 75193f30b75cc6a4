"""Attention, against the formulas in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.compat import internals

attention_wrapper = internals.module("contrib.seq2seq.python.ops.attention_wrapper")
seq2seq = tf.contrib.seq2seq
_rng = np.random.RandomState(0)
MEMORY, QUERY = _rng.randn(2, 4, 3).astype(np.float32), _rng.randn(2, 5).astype(np.float32)
LENGTHS = np.array([4, 2])


def values(*tensors: Any) -> Any:
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(tensors)


def softmax(score: np.ndarray) -> np.ndarray:
    score = np.where(np.arange(4) < LENGTHS[:, None], score, -np.inf)
    exponents = np.exp(score - score.max(1, keepdims=True))
    return exponents / exponents.sum(1, keepdims=True)


@pytest.mark.parametrize("normalize", [False, True])
def test_additive_attention(normalize: bool) -> None:
    mechanism = seq2seq.BahdanauAttention(6, MEMORY, LENGTHS, normalize=normalize)
    alignments, _ = mechanism(tf.constant(QUERY), state=None)
    variables = {v.op.name: v for v in tf.global_variables()}
    found, weights = values(alignments, variables)
    keys = MEMORY * (np.arange(4) < LENGTHS[:, None])[..., None] @ weights["memory_layer/kernel"]
    query = QUERY @ weights["bahdanau_attention/query_layer/kernel"]
    v = weights["bahdanau_attention/attention_v"]
    if normalize:
        v = weights["bahdanau_attention/attention_g"] * v / np.sqrt((v**2).sum())
    assert np.allclose(found, softmax((v * np.tanh(keys + query[:, None])).sum(2)), atol=1e-5)
    assert len(variables) == (5 if normalize else 3)


@pytest.mark.parametrize("scale", [False, True])
def test_multiplicative_attention(scale: bool) -> None:
    mechanism = seq2seq.LuongAttention(5, MEMORY, LENGTHS, scale=scale)
    alignments, _ = mechanism(tf.constant(QUERY), state=None)
    found, weights = values(alignments, {v.op.name: v for v in tf.global_variables()})
    keys = MEMORY @ weights["memory_layer/kernel"]
    assert np.allclose(found, softmax(np.einsum("bd,btd->bt", QUERY, keys)), atol=1e-5)
    assert ("luong_attention/attention_g" in weights) == scale
    with pytest.raises(ValueError, match="Incompatible or unknown inner dimensions"):
        mechanism(tf.ones([2, 6]), state=None)


def test_libraries_derive_mechanisms_with_tensorflows_arguments() -> None:
    """As those do that score by other formulas, or with the last alignment."""

    class Sticky(attention_wrapper._BaseAttentionMechanism):
        def __init__(self, memory: Any, lengths: Any) -> None:
            super().__init__(
                query_layer=None, memory_layer=None, memory=memory, memory_sequence_length=lengths,
                probability_fn=lambda score, previous: tf.nn.softmax(score) + previous, name="Sticky",
            )  # fmt: skip

        def __call__(self, query: Any, state: Any) -> Any:
            alignments = self._probability_fn(tf.reduce_sum(self.keys, 2) + query[:, :1], state)
            return alignments, alignments

    alignments, _ = Sticky(MEMORY, LENGTHS)(tf.constant(QUERY), tf.ones([2, 4]))
    inside = np.arange(4) < LENGTHS[:, None]
    assert np.allclose(values(alignments)[0], softmax((MEMORY * inside[..., None]).sum(2) + QUERY[:, :1]) + 1)
    with pytest.raises(ValueError, match="fully defined inner dims"):
        Sticky(tf.placeholder(tf.float32, [2, 4, None]), LENGTHS)


def test_a_cell_attends_to_its_memory() -> None:
    mechanism = seq2seq.LuongAttention(5, MEMORY, LENGTHS)
    gru = tf.nn.rnn_cell.GRUCell(5)
    cell = seq2seq.AttentionWrapper(gru, mechanism, attention_layer_size=7, alignment_history=True)
    state = cell.zero_state(2, tf.float32)
    outputs = []
    for _ in range(3):
        output, state = cell(tf.ones([2, 2]), state)
        outputs.append(output)
    found, alignments, history, time = values(
        outputs[-1], state.alignments, state.alignment_history.stack(), state.time
    )
    assert found.shape == (2, 7) and time == 3 and history.shape == (3, 2, 4)
    assert np.allclose(alignments.sum(1), 1) and (alignments[1, 2:] == 0).all() and (history[-1] == alignments).all()
    assert cell.output_size == 7 and cell.state_size.attention == 7
    names = [v.op.name for v in tf.global_variables()]
    assert names[1:] == [
        *(f"attention_wrapper/gru_cell/gates/{kind}" for kind in ("kernel", "bias")),
        *(f"attention_wrapper/gru_cell/candidate/{kind}" for kind in ("kernel", "bias")),
        "attention_wrapper/attention_layer/kernel",
    ]  # fmt: skip


def test_several_mechanisms_join_their_contexts() -> None:
    both = [seq2seq.LuongAttention(5, MEMORY), seq2seq.BahdanauAttention(4, MEMORY)]
    start = tf.ones([2, 5])
    cell = seq2seq.AttentionWrapper(tf.nn.rnn_cell.GRUCell(5), both, output_attention=False, initial_cell_state=start)
    state = cell.zero_state(2, tf.float32)
    output, state = cell(tf.ones([2, 2]), state)
    found, contexts = values(output, state.attention)
    assert found.shape == (2, 5) and contexts.shape == (2, 6) and len(state.alignments) == 2
    with pytest.raises(ValueError, match="exactly one integer per attention_mechanism"):
        seq2seq.AttentionWrapper(tf.nn.rnn_cell.GRUCell(5), both, attention_layer_size=3)


def test_batches_are_repeated_and_maxima_are_hard() -> None:
    tiled, hard = values(seq2seq.tile_batch((tf.constant([[1.0], [2.0]]),), 2)[0], seq2seq.hardmax([[1.0, 3.0]]))
    assert tiled.tolist() == [[1], [1], [2], [2]] and hard.tolist() == [[0, 1]]


def test_decoders_of_libraries_read_the_attributes_of_tensorflow() -> None:
    mechanism = seq2seq.LuongAttention(3, MEMORY, LENGTHS)
    one = seq2seq.AttentionWrapper(tf.nn.rnn_cell.GRUCell(5), mechanism, attention_layer_size=4)
    assert one._attention_mechanisms == [mechanism]
    assert one._item_or_tuple([7]) == 7
    assert one._attention_layer_size == 4
    several = seq2seq.AttentionWrapper(tf.nn.rnn_cell.GRUCell(5), [mechanism], attention_layer_size=[4])
    assert several._item_or_tuple([7]) == (7,)
