"""``tf.contrib.crf``: linear-chain conditional random fields."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.ops.array.casting import cast
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.array.gather import gather_nd
from tfmini.ops.array.index_sets import one_hot
from tfmini.ops.array.joining import stack
from tfmini.ops.array.layout import tile
from tfmini.ops.array.masking import sequence_mask, where
from tfmini.ops.array.shape import expand_dims
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.transpose import transpose
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.flow.while_loop import while_loop
from tfmini.ops.math.comparison import greater, less, less_equal
from tfmini.ops.math.reduce_functions import argmax, reduce_logsumexp, reduce_max, reduce_sum
from tfmini.ops.variables.scope import get_variable


@export("tf.contrib.crf.crf_sequence_score")
def crf_sequence_score(inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """The unnormalised score of a tag sequence: `crf_unary_score` plus `crf_binary_score`, ``[batch]``."""
    binary = crf_binary_score(tag_indices, sequence_lengths, transition_params)
    return crf_unary_score(tag_indices, sequence_lengths, inputs) + binary


@export("tf.contrib.crf.crf_unary_score")
def crf_unary_score(tag_indices: Any, sequence_lengths: Any, inputs: Any) -> Any:
    """The sum of the potentials of the tags, up to each sequence's length, ``[batch]``.

    Args:
      tag_indices: ``[batch, steps]``; ``sequence_lengths``: ``[batch]``; ``inputs``: ``[batch, steps, tags]``.
    """
    inputs = convert_to_tensor(inputs)
    chosen = one_hot(tag_indices, shape_of(inputs)[2], dtype=inputs.dtype)
    return reduce_sum(reduce_sum(inputs * chosen, 2) * _inside(sequence_lengths, shape_of(inputs)[1], inputs), 1)


@export("tf.contrib.crf.crf_binary_score")
def crf_binary_score(tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """The sum of the transitions between neighbouring tags, up to each sequence's length, ``[batch]``."""
    tags, transitions = convert_to_tensor(tag_indices), convert_to_tensor(transition_params)
    scores = gather_nd(transitions, stack([tags[:, :-1], tags[:, 1:]], axis=2))
    return reduce_sum(scores * _inside(sequence_lengths, shape_of(tags)[1], transitions)[:, 1:], 1)


@export("tf.contrib.crf.crf_log_norm")
def crf_log_norm(inputs: Any, sequence_lengths: Any, transition_params: Any) -> Any:
    """The logarithm of the sum of the exponentials of all tag sequences' scores, ``[batch]``; 0 for length 0."""
    inputs, lengths = convert_to_tensor(inputs), convert_to_tensor(sequence_lengths, dtypes.int32)
    transitions = expand_dims(convert_to_tensor(transition_params), 0)
    steps = _steps(inputs)

    def body(time: Any, alphas: Any) -> Any:
        after = steps.read(time) + reduce_logsumexp(expand_dims(alphas, 2) + transitions, [1])
        return time + 1, _where_rows(less(time, lengths), after, alphas)

    count = shape_of(inputs)[1]
    _, alphas = while_loop(lambda time, _: less(time, count), body, (constant(1), inputs[:, 0]))
    found = reduce_logsumexp(alphas, [1])
    return where(less_equal(lengths, 0), zeros_like(found), found)


@export("tf.contrib.crf.crf_log_likelihood")
def crf_log_likelihood(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any = None
) -> tuple[Any, Any]:
    """The log-likelihood of tag sequences (``tf.contrib.crf.crf_log_likelihood``).

    Args:
      inputs: ``[batch, steps, tags]``, the potentials.
      transition_params: ``[tags, tags]``; default: a new variable ``transitions``.

    Returns:
      (log-likelihoods ``[batch]``, the transitions).
    """
    inputs = convert_to_tensor(inputs)
    if transition_params is None:
        tags = inputs.shape.as_list()[2]
        transition_params = get_variable("transitions", [tags, tags])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


@export("tf.contrib.crf.crf_decode")
def crf_decode(potentials: Any, transition_params: Any, sequence_length: Any) -> tuple[Any, Any]:
    """(the best tags, int32 ``[batch, steps]``, 0 beyond the lengths; their scores, ``[batch]``)."""
    potentials, lengths = convert_to_tensor(potentials), convert_to_tensor(sequence_length, dtypes.int32)
    transitions = expand_dims(convert_to_tensor(transition_params), 0)
    batch, count, tags = (shape_of(potentials)[axis] for axis in range(3))
    steps = _steps(potentials)
    stay = tile(expand_dims(range_of(tags), 0), stack([batch, 1]))

    def forward(time: Any, best: Any, pointers: Any) -> Any:
        scores = expand_dims(best, 2) + transitions
        inside = less(time, lengths)
        came_from = _where_rows(inside, cast(argmax(scores, 1), dtypes.int32), stay)
        after = _where_rows(inside, reduce_max(scores, [1]) + steps.read(time), best)
        return time + 1, after, pointers.write(time, came_from)

    pointers = TensorArray(dtypes.int32, count, clear_after_read=False).write(0, stay)
    _, best, pointers = while_loop(
        lambda time, *_: less(time, count), forward, (constant(1), potentials[:, 0], pointers)
    )
    last = cast(argmax(best, 1), dtypes.int32)

    def backward(time: Any, tag: Any, found: Any) -> Any:
        before = gather_nd(pointers.read(time), stack([range_of(batch), tag], axis=1))
        return time - 1, before, found.write(time - 1, before)

    found = TensorArray(dtypes.int32, count).write(count - 1, last)
    _, _, found = while_loop(lambda time, *_: greater(time, 0), backward, (count - 1, last, found))
    decoded = transpose(found.stack(), [1, 0]) * cast(sequence_mask(lengths, count), dtypes.int32)
    decoded.set_shape(potentials.shape[:2])
    return decoded, reduce_max(best, [1])


@export("tf.contrib.crf.viterbi_decode")
def viterbi_decode(score: Any, transition_params: Any) -> tuple[list[int], Any]:
    """(the best tags, their score) of one sequence of numpy arrays (``tf.contrib.crf.viterbi_decode``).

    Args:
      score: ``[steps, tags]``; ``transition_params``: ``[tags, tags]``.
    """
    best, pointers = np.array(score[0]), []
    for row in score[1:]:
        scores = best[:, None] + transition_params
        pointers.append(np.argmax(scores, 0))
        best = row + np.max(scores, 0)
    tags = [int(np.argmax(best))]
    for came_from in reversed(pointers):
        tags.append(int(came_from[tags[-1]]))
    return tags[::-1], np.max(best)


def _inside(lengths: Any, count: Any, like: Any) -> Any:
    return cast(sequence_mask(lengths, count), like.dtype)


def _steps(inputs: Any) -> TensorArray:
    whole = transpose(inputs, [1, 0, 2])
    return TensorArray(inputs.dtype, shape_of(whole)[0], clear_after_read=False).unstack(whole)


def _where_rows(chosen: Any, one: Any, other: Any) -> Any:
    found = where(chosen, one, other)
    found.set_shape(other.shape)
    return found
