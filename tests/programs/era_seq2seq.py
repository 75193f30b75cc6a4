"""Programs with beam search and monotonic attention: a part of `tests.programs.era`, in Python 3.7 without tfmini."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.programs.era import program, run

BATCH, BEAMS, CLASSES, UNITS, STEPS = 2, 3, 5, 4, 6


def _numbers(*shape: int) -> Any:
    return np.cos(np.arange(np.prod(shape)) * 1.7 + np.arange(np.prod(shape)) ** 2).reshape(shape).astype(np.float32)


def _decoder(tf: Any, attends: bool, mechanism: str = "LuongAttention", known: bool = True, **options: Any) -> Any:
    tf.get_variable_scope().set_initializer(lambda shape, dtype, **_: tf.constant(2 * _numbers(*shape), dtype))
    seq2seq = tf.contrib.seq2seq
    cell = tf.nn.rnn_cell.GRUCell(UNITS)
    if attends:
        memory = tf.constant(_numbers(BATCH, STEPS, UNITS))
        memory = seq2seq.tile_batch(
            memory if known else tf.placeholder_with_default(memory, [None, None, UNITS]), BEAMS
        )
        lengths = seq2seq.tile_batch(tf.constant([4, 6]), BEAMS)
        cell = seq2seq.AttentionWrapper(
            cell, getattr(seq2seq, mechanism)(UNITS, memory, lengths), UNITS, alignment_history=True
        )
    start = seq2seq.tile_batch(tf.constant(_numbers(BATCH, UNITS)), BEAMS)
    state = cell.zero_state(BATCH * BEAMS, tf.float32) if attends else start
    if attends:
        state = state.clone(cell_state=start)
    tokens = [1, 2] if known else tf.placeholder_with_default([1, 2], [None])
    layer = tf.layers.Dense(CLASSES, use_bias=False)
    table = tf.constant(_numbers(CLASSES, UNITS))
    return seq2seq.BeamSearchDecoder(cell, table, tokens, 0, state, BEAMS, layer, **options)


def _decoded(tf: Any, decoder: Any, **options: Any) -> Any:
    outputs, state, lengths = tf.contrib.seq2seq.dynamic_decode(decoder, maximum_iterations=5, **options)
    steps = outputs.beam_search_decoder_output
    fetches = [outputs.predicted_ids, steps.scores, steps.parent_ids, state.log_probs, state.lengths, state.finished]
    history = getattr(state.cell_state, "alignment_history", ())
    shapes = [str(one.shape) for one in (outputs.predicted_ids, steps.scores, state.log_probs, lengths)]
    kept = [] if history == () or not hasattr(history, "op") else [history]
    return run(tf, fetches + [lengths] + kept), shapes


@program
def beam_search(tf: Any) -> Any:
    return _decoded(tf, _decoder(tf, False))


@program
def beam_search_with_length_penalty(tf: Any) -> Any:
    return _decoded(tf, _decoder(tf, False, length_penalty_weight=1.3), output_time_major=True)


@program
def beam_search_with_attention(tf: Any) -> Any:
    return _decoded(tf, _decoder(tf, True))


@program
def beam_search_of_unknown_sizes(tf: Any) -> Any:
    return _decoded(tf, _decoder(tf, True, known=False))[0]


@program
def beam_search_with_coverage_penalty(tf: Any) -> Any:
    return _decoded(tf, _decoder(tf, True, "BahdanauAttention", coverage_penalty_weight=0.7))


@program
def beam_search_with_monotonic_attention(tf: Any) -> Any:
    return _decoded(tf, _decoder(tf, True, "LuongMonotonicAttention", reorder_tensor_arrays=False))


@program
def gathered_trees(tf: Any) -> Any:
    steps = np.int32([[[1, 2, 3]], [[4, 5, 6]], [[7, 8, 9]], [[-1, -1, -1]]])
    parents = np.int32([[[0, 0, 0]], [[0, 1, 1]], [[2, 1, 2]], [[-1, -1, -1]]])
    two = [np.concatenate([part, part[:, :, ::-1]], 1) for part in (steps, parents)]
    gather_tree = tf.contrib.seq2seq.gather_tree
    return run(tf, [gather_tree(steps, parents, [3], 10), gather_tree(two[0], two[1], [2, 3], 5)])


@program
def monotonic_attentions(tf: Any) -> Any:
    chosen = tf.constant(np.abs(_numbers(2, 5)))
    before = tf.constant(np.float32([[1, 0, 0, 0, 0], [0.2, 0.3, 0.5, 0, 0]]))
    found = [tf.contrib.seq2seq.monotonic_attention(chosen, before, mode) for mode in ("recursive", "parallel")]
    hard = tf.contrib.seq2seq.monotonic_attention(tf.round(chosen), before, "hard")
    slopes = [tf.gradients(one * _numbers(2, 5), [chosen, before]) for one in found]
    return run(tf, [found, hard, slopes, tf.contrib.seq2seq.safe_cumprod(chosen, axis=1, exclusive=True)])


@program
def monotonic_mechanisms(tf: Any) -> Any:
    tf.get_variable_scope().set_initializer(lambda shape, dtype, **_: tf.constant(_numbers(*shape), dtype))
    memory, query = tf.constant(_numbers(BATCH, STEPS, UNITS)), tf.constant(_numbers(BATCH, UNITS))
    found = {}
    for name, options in (
        ("LuongMonotonicAttention", {"scale": True}),
        ("BahdanauMonotonicAttention", {"normalize": True}),
    ):
        kind = getattr(tf.contrib.seq2seq, name)
        mechanism = kind(UNITS, memory, [4, 6], score_bias_init=-0.5, mode="recursive", **options)
        alignments, state = mechanism(query, mechanism.initial_state(BATCH, tf.float32))
        again = mechanism(query, state)[0]
        found[name] = [alignments, again, tf.gradients(again * _numbers(BATCH, STEPS), query)]
    return run(tf, found), [[v.name, v.shape.as_list()] for v in tf.global_variables()]


@program
def attention_by_a_function(tf: Any) -> Any:
    tf.get_variable_scope().set_initializer(lambda shape, dtype, **_: tf.constant(_numbers(*shape), dtype))
    seq2seq = tf.contrib.seq2seq
    mechanism = seq2seq.BahdanauAttention(
        UNITS, _numbers(BATCH, STEPS, UNITS), custom_key_value_fn=lambda keys, values: (2 * keys, values[:, :, :3])
    )

    def attend(mechanism: Any, output: Any, state: Any, layer: Any) -> Any:
        alignments, after = mechanism(output, state)
        return tf.reduce_sum(alignments[:, :, None] * mechanism.values, 1) + output[:, :3], alignments, after

    cell = seq2seq.AttentionWrapper(tf.nn.rnn_cell.GRUCell(UNITS), mechanism, attention_fn=attend)
    return run(tf, cell(tf.constant(_numbers(BATCH, 2)), cell.zero_state(BATCH, tf.float32))[0])
