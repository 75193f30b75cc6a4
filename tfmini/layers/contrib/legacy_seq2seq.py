"""``tf.contrib.legacy_seq2seq``: models of sequences over lists of steps, with one graph per bucket of lengths.

The steps are lists of tensors, ``[batch]`` of ids or ``[batch, width]`` of floats, and all models return
(a list of outputs, the last state).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.layers.contrib.losses import rnn_decoder, sequence_loss_by_example, sequence_loss_of_steps
from tfmini.layers.contrib.rnn import EmbeddingWrapper, OutputProjectionWrapper, additive_attention, linear, width_of
from tfmini.layers.rnn_cells import RNNCell
from tfmini.layers.rnn_unrolling import static_rnn
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.identity import stop_gradient
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.shape import expand_dims, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.flow.cond import cond
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import argmax
from tfmini.ops.nn.batch_norm import bias_add
from tfmini.ops.nn.convolution import conv2d
from tfmini.ops.nn.embedding import embedding_lookup
from tfmini.ops.variables import scope as vs
from tfmini.ops.variables.scope import VariableScope

_Scope = str | VariableScope | None
_Result = tuple[list[Any], Any]
_Projection = tuple[Any, Any] | None
_Loop = Callable[[Any, int], Any]


def _next_input(table: Tensor, projection: _Projection, update: bool) -> _Loop:
    """A function from the last output to the embedding of its likeliest symbol."""

    def loop(previous: Tensor, _: object) -> Any:
        if projection is not None:
            previous = bias_add(matmul(previous, projection[0]), projection[1])
        found = embedding_lookup(table, argmax(previous, 1))
        return found if update else stop_gradient(found)

    return loop


def _decoded(feed_previous: bool | Tensor, decode: Callable[[bool, bool], _Result]) -> _Result:
    """The result of a decoder that feeds its outputs back or not, which a tensor may decide in each step.

    Args:
      decode: (whether it feeds outputs back, whether gradients flow to the embeddings of these) -> result.
    """
    if isinstance(feed_previous, bool):
        return decode(feed_previous, True)
    made: list[_Result] = []

    def branch(feeds: bool) -> list[Any]:
        with vs.variable_scope(vs.get_variable_scope(), reuse=None if feeds else True):
            made.append(decode(feeds, False))
        return [*made[-1][0], *nest.flatten(made[-1][1])]

    found = cond(feed_previous, lambda: branch(True), lambda: branch(False))
    outputs, state = made[0]
    return list(found[: len(outputs)]), nest.pack_sequence_as(state, found[len(outputs) :])


@export("tf.contrib.legacy_seq2seq.basic_rnn_seq2seq")
def basic_rnn_seq2seq(
    encoder_inputs: list[Any], decoder_inputs: list[Any], cell: RNNCell, dtype: DTypeLike = dtypes.float32,
    scope: _Scope = None,
) -> _Result:  # fmt: skip
    """An encoder and a decoder with weights of their own (``tf.contrib.legacy_seq2seq.basic_rnn_seq2seq``)."""
    with vs.variable_scope(scope or "basic_rnn_seq2seq"):
        _, state = static_rnn(copy.deepcopy(cell), encoder_inputs, dtype=dtype)
        return rnn_decoder(decoder_inputs, state, cell)


@export("tf.contrib.legacy_seq2seq.tied_rnn_seq2seq")
def tied_rnn_seq2seq(
    encoder_inputs: list[Any], decoder_inputs: list[Any], cell: RNNCell, loop_function: _Loop | None = None,
    dtype: DTypeLike = dtypes.float32, scope: _Scope = None,
) -> _Result:  # fmt: skip
    """An encoder and a decoder that share their weights (``tf.contrib.legacy_seq2seq.tied_rnn_seq2seq``).

    Args:
      loop_function: as in `rnn_decoder`.
    """
    with vs.variable_scope("combined_tied_rnn_seq2seq"):
        scope = scope or "tied_rnn_seq2seq"
        _, state = static_rnn(cell, encoder_inputs, dtype=dtype, scope=scope)
        vs.get_variable_scope().reuse_variables()
        return rnn_decoder(decoder_inputs, state, cell, loop_function, scope)


@export("tf.contrib.legacy_seq2seq.embedding_rnn_decoder")
def embedding_rnn_decoder(
    decoder_inputs: list[Any], initial_state: object, cell: RNNCell, num_symbols: int, embedding_size: int,
    output_projection: _Projection = None, feed_previous: bool = False, update_embedding_for_previous: bool = True,
    scope: _Scope = None,
) -> _Result:  # fmt: skip
    """`rnn_decoder` of ids (``tf.contrib.legacy_seq2seq.embedding_rnn_decoder``).

    Args:
      decoder_inputs: a list of int tensors, [batch].
      num_symbols, embedding_size: the shape of the embeddings.
      output_projection: None, or (W, B) from outputs to symbols, for outputs that are fed back.
      feed_previous: whether each input but the first is the likeliest symbol of the output before.
      update_embedding_for_previous: whether gradients flow to the embeddings of such symbols.
    """
    with vs.variable_scope(scope or "embedding_rnn_decoder"):
        table = vs.get_variable("embedding", [num_symbols, embedding_size])
        loop = _next_input(table, output_projection, update_embedding_for_previous) if feed_previous else None
        steps = [embedding_lookup(table, ids) for ids in decoder_inputs]
        return rnn_decoder(steps, initial_state, cell, loop)


@export("tf.contrib.legacy_seq2seq.embedding_rnn_seq2seq")
def embedding_rnn_seq2seq(
    encoder_inputs: list[Any], decoder_inputs: list[Any], cell: RNNCell, num_encoder_symbols: int,
    num_decoder_symbols: int, embedding_size: int, output_projection: _Projection = None,
    feed_previous: bool | Tensor = False,
    dtype: DTypeLike | None = None, scope: _Scope = None,
) -> _Result:  # fmt: skip
    """A model of ids (``tf.contrib.legacy_seq2seq.embedding_rnn_seq2seq``).

    Args:
      encoder_inputs, decoder_inputs: lists of int tensors, [batch].
      feed_previous: a bool or a bool tensor; see `embedding_rnn_decoder`.
      output_projection: None: outputs are over symbols; else see `embedding_rnn_decoder`.
    """
    with vs.variable_scope(scope or "embedding_rnn_seq2seq") as opened:
        dtype = _set_dtype(opened, dtype)
        encoder = EmbeddingWrapper(copy.deepcopy(cell), num_encoder_symbols, embedding_size)
        _, state = static_rnn(encoder, encoder_inputs, dtype=dtype)
        inner = cell if output_projection is not None else OutputProjectionWrapper(cell, num_decoder_symbols)
        return _decoded(feed_previous, lambda feeds, update: embedding_rnn_decoder(
            decoder_inputs, state, inner, num_decoder_symbols, embedding_size, output_projection, feeds, update,
        ))  # fmt: skip


def _set_dtype(scope: VariableScope, dtype: DTypeLike | None) -> Any:
    if dtype is None:
        return scope.dtype
    scope.set_dtype(dtype)
    return dtype


@export("tf.contrib.legacy_seq2seq.embedding_tied_rnn_seq2seq")
def embedding_tied_rnn_seq2seq(
    encoder_inputs: list[Any], decoder_inputs: list[Any], cell: RNNCell, num_symbols: int, embedding_size: int,
    num_decoder_symbols: int | None = None, output_projection: _Projection = None, feed_previous: bool | Tensor = False,
    dtype: DTypeLike | None = None, scope: _Scope = None,
) -> _Result:  # fmt: skip
    """`tied_rnn_seq2seq` of ids, with one table (``tf.contrib.legacy_seq2seq.embedding_tied_rnn_seq2seq``).

    Args:
      num_decoder_symbols: how many symbols the outputs are over; default ``num_symbols``.
      The others are those of `embedding_rnn_seq2seq`.
    """
    with vs.variable_scope(scope or "embedding_tied_rnn_seq2seq", dtype=dtype) as opened:
        dtype = opened.dtype
        table = vs.get_variable("embedding", [num_symbols, embedding_size], dtype)
        steps, targets = ([embedding_lookup(table, ids) for ids in each] for each in (encoder_inputs, decoder_inputs))
        if output_projection is None:
            cell = OutputProjectionWrapper(cell, num_decoder_symbols or num_symbols)

        def decode(feeds: bool, update: bool) -> _Result:
            loop = _next_input(table, output_projection, update) if feeds else None
            return tied_rnn_seq2seq(steps, targets, cell, loop, dtype)

        return _decoded(feed_previous, decode)


@export("tf.contrib.legacy_seq2seq.attention_decoder")
def attention_decoder(
    decoder_inputs: list[Any], initial_state: object, attention_states: Tensor, cell: RNNCell,
    output_size: int | None = None, num_heads: int = 1, loop_function: _Loop | None = None,
    dtype: DTypeLike | None = None,
    scope: _Scope = None, initial_state_attention: bool = False,
) -> _Result:  # fmt: skip
    """A decoder that attends to states (``tf.contrib.legacy_seq2seq.attention_decoder``; Vinyals et al., 2014).

    Args:
      decoder_inputs: a list of tensors, [batch, width].
      attention_states: [batch, length, size] with a static size.
      output_size: the width of the outputs; default: the cell's.
      num_heads: how many times it attends in a step.
      loop_function: (the last output, the step) -> the next input; None: the inputs are ``decoder_inputs``.
      initial_state_attention: whether the first step sees what the initial state attends to, in place of zeros.

    Raises:
      ValueError: without inputs or heads, or where a size is not known.
    """
    if not decoder_inputs:
        raise ValueError("Must provide at least 1 input to attention decoder.")
    if num_heads < 1:
        raise ValueError("With less than 1 heads, use a non-attention decoder.")
    if attention_states.shape.as_list()[2] is None:
        raise ValueError(f"Shape[2] of attention_states must be known: {attention_states.shape}")
    with vs.variable_scope(scope or "attention_decoder", dtype=dtype) as opened:
        attend = _attention(attention_states, num_heads)
        batch, size = shape_of(decoder_inputs[0])[0], attention_states.shape.as_list()[2]
        attended = [zeros(stack([batch, size]), opened.dtype) for _ in range(num_heads)]
        for one in attended:
            one.set_shape([None, size])
        state, width = initial_state, output_size or cell.output_size
        outputs: list[Any] = []
        if initial_state_attention:
            attended = attend(state)
        for i, inputs in enumerate(decoder_inputs):
            if i:
                opened.reuse_variables()
            if loop_function is not None and outputs:
                with vs.variable_scope("loop_function", reuse=True):
                    inputs = loop_function(outputs[-1], i)
            output, state = cell(linear([inputs, *attended], width_of(inputs)), state)
            with vs.variable_scope(vs.get_variable_scope(), reuse=True if i or initial_state_attention else None):
                attended = attend(state)
            with vs.variable_scope("AttnOutputProjection"):
                outputs.append(linear([output, *attended], width))
        return outputs, state


def _attention(states: Tensor, heads: int) -> Callable[[Any], list[Any]]:
    """A function from a state to what each head sees, [batch, size]."""
    size = width_of(states)
    hidden = expand_dims(states, 2)
    parts = []
    for i in range(heads):
        kernel = vs.get_variable(f"AttnW_{i}", [1, 1, size, size])
        parts.append((conv2d(hidden, kernel, [1, 1, 1, 1], "SAME"), vs.get_variable(f"AttnV_{i}", [size])))

    def attend(query: object) -> list[Any]:
        found = []
        for i, (features, vector) in enumerate(parts):
            with vs.variable_scope(f"Attention_{i}"):
                found.append(additive_attention(query, states, features, vector))
        return found

    return attend


@export("tf.contrib.legacy_seq2seq.embedding_attention_decoder")
def embedding_attention_decoder(
    decoder_inputs: list[Any], initial_state: object, attention_states: Tensor, cell: RNNCell, num_symbols: int,
    embedding_size: int, num_heads: int = 1, output_size: int | None = None, output_projection: _Projection = None,
    feed_previous: bool = False, update_embedding_for_previous: bool = True, dtype: DTypeLike | None = None,
    scope: _Scope = None, initial_state_attention: bool = False,
) -> _Result:  # fmt: skip
    """`attention_decoder` of ids (``tf.contrib.legacy_seq2seq.embedding_attention_decoder``).

    The arguments are those of `embedding_rnn_decoder` and `attention_decoder`.
    """
    with vs.variable_scope(scope or "embedding_attention_decoder", dtype=dtype):
        table = vs.get_variable("embedding", [num_symbols, embedding_size])
        loop = _next_input(table, output_projection, update_embedding_for_previous) if feed_previous else None
        steps = [embedding_lookup(table, ids) for ids in decoder_inputs]
        return attention_decoder(steps, initial_state, attention_states, cell, output_size, num_heads, loop,
                                 initial_state_attention=initial_state_attention)  # fmt: skip


@export("tf.contrib.legacy_seq2seq.embedding_attention_seq2seq")
def embedding_attention_seq2seq(
    encoder_inputs: list[Any], decoder_inputs: list[Any], cell: RNNCell, num_encoder_symbols: int,
    num_decoder_symbols: int, embedding_size: int, num_heads: int = 1, output_projection: _Projection = None,
    feed_previous: bool | Tensor = False, dtype: DTypeLike | None = None, scope: _Scope = None,
    initial_state_attention: bool = False,
) -> _Result:  # fmt: skip
    """A model of ids that attends to the encoder's outputs (``tf.contrib.legacy_seq2seq.embedding_attention_seq2seq``).

    The arguments are those of `embedding_rnn_seq2seq` and `attention_decoder`.
    """
    with vs.variable_scope(scope or "embedding_attention_seq2seq", dtype=dtype) as opened:
        encoder = EmbeddingWrapper(copy.deepcopy(cell), num_encoder_symbols, embedding_size)
        outputs, state = static_rnn(encoder, encoder_inputs, dtype=opened.dtype)
        seen = concat([reshape(output, [-1, 1, cell.output_size]) for output in outputs], 1)
        inner, width = cell, None
        if output_projection is None:
            inner, width = OutputProjectionWrapper(cell, num_decoder_symbols), num_decoder_symbols
        return _decoded(feed_previous, lambda feeds, update: embedding_attention_decoder(
            decoder_inputs, state, seen, inner, num_decoder_symbols, embedding_size, num_heads, width,
            output_projection, feeds, update, initial_state_attention=initial_state_attention,
        ))  # fmt: skip


@export("tf.contrib.legacy_seq2seq.one2many_rnn_seq2seq")
def one2many_rnn_seq2seq(
    encoder_inputs: list[Any], decoder_inputs_dict: Mapping[str, list[Any]], enc_cell: RNNCell,
    dec_cells_dict: Mapping[str, RNNCell], num_encoder_symbols: int, num_decoder_symbols_dict: Mapping[str, int],
    embedding_size: int, feed_previous: bool | Tensor = False, dtype: DTypeLike | None = None, scope: _Scope = None,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """One encoder and several decoders (``tf.contrib.legacy_seq2seq.one2many_rnn_seq2seq``; Luong et al., 2015).

    The dictionaries have an entry for each decoder.

    Returns:
      (name -> outputs, name -> the last state).
    """
    found: dict[str, _Result] = {}
    with vs.variable_scope(scope or "one2many_rnn_seq2seq", dtype=dtype) as opened:
        encoder = EmbeddingWrapper(enc_cell, num_encoder_symbols, embedding_size)
        _, state = static_rnn(encoder, encoder_inputs, dtype=opened.dtype)
        for name, inputs in decoder_inputs_dict.items():
            symbols = num_decoder_symbols_dict[name]
            with vs.variable_scope(f"one2many_decoder_{name}"):
                cell = OutputProjectionWrapper(dec_cells_dict[name], symbols)
                decode = partial(embedding_rnn_decoder, inputs, state, cell, symbols, embedding_size, None)
                found[name] = _decoded(feed_previous, decode)
    return {name: outputs for name, (outputs, _) in found.items()}, {name: last for name, (_, last) in found.items()}


@export("tf.contrib.legacy_seq2seq.model_with_buckets")
def model_with_buckets(
    encoder_inputs: list[Any], decoder_inputs: list[Any], targets: list[Any], weights: list[Any],
    buckets: Sequence[tuple[int, int]], seq2seq: Callable[[list[Any], list[Any]], _Result],
    softmax_loss_function: Callable[..., Any] | None = None, per_example_loss: bool = False, name: str | None = None,
) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """A model for each bucket of lengths, with shared weights (``tf.contrib.legacy_seq2seq.model_with_buckets``).

    Args:
      targets, weights: lists of ids and of the weights of their losses, [batch].
      buckets: pairs (encoder's length, decoder's length), increasing.
      seq2seq: a function (encoder inputs, decoder inputs) -> (outputs, state).
      softmax_loss_function: a function (labels, logits) -> losses, by these names.
      per_example_loss: whether losses are per sequence, [batch], rather than their mean.

    Returns:
      (the outputs of each bucket, the loss of each).

    Raises:
      ValueError: when a list is shorter than the last bucket.
    """
    longest = {"encoder_inputs": buckets[-1][0], "targets": buckets[-1][1], "weights": buckets[-1][1]}
    for what, steps in (("encoder_inputs", encoder_inputs), ("targets", targets), ("weights", weights)):
        if len(steps) < longest[what]:
            raise ValueError(f"Length of {what} ({len(steps)}) must be at least that of last bucket ({longest[what]}).")
    outputs, losses = [], []
    loss = sequence_loss_by_example if per_example_loss else sequence_loss_of_steps
    with name_scope(name, "model_with_buckets", [*encoder_inputs, *decoder_inputs, *targets, *weights]):
        for i, (source, target) in enumerate(buckets):
            with vs.variable_scope(vs.get_variable_scope(), reuse=True if i else None):
                outputs.append(seq2seq(encoder_inputs[:source], decoder_inputs[:target])[0])
                losses.append(loss(outputs[-1], targets[:target], weights[:target],
                                   softmax_loss_function=softmax_loss_function))  # fmt: skip
    return outputs, losses
