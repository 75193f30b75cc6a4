"""Losses of sequences, losses with old signatures and conditional random fields of ``tf.contrib``.

They are those of its ``seq2seq``, ``legacy_seq2seq`` (with its decoder), ``nn``, ``losses``, ``crf`` and ``sparsemax``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import GraphTensor, ShapeLike, TensorLike
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import count_ops, name_scope
from tfmini.layers import losses as element_losses
from tfmini.layers.rnn_cells import RNNCell
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import fill, zeros_like
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.gather import gather_nd
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import stack
from tfmini.ops.array.layout import tile, transpose
from tfmini.ops.array.partition import one_hot, sequence_mask, where
from tfmini.ops.array.shape import expand_dims, reshape, squeeze
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.flow.cond import smart_cond
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.flow.while_loop import while_loop
from tfmini.ops.math.comparison import equal, greater, less, less_equal, logical_and, logical_or
from tfmini.ops.math.elementwise import div_no_nan, maximum, minimum
from tfmini.ops.math.reductions import (
    argmax,
    count_nonzero,
    cumsum,
    reduce_logsumexp,
    reduce_max,
    reduce_mean,
    reduce_sum,
)
from tfmini.ops.math.search import top_k
from tfmini.ops.math.sums import add_n
from tfmini.ops.math.unary import floor, is_inf, is_nan, square
from tfmini.ops.nn.activation import softplus
from tfmini.ops.nn.cross_entropy import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits,
    sparse_softmax_cross_entropy_with_logits,
)
from tfmini.ops.random_functions import random_uniform
from tfmini.ops.variables.scope import VariableScope, get_variable, get_variable_scope, variable_scope

LossFunction = Callable[..., Any]


@export("tf.contrib.seq2seq.sequence_loss")
def sequence_loss(
    logits: TensorLike,
    targets: TensorLike,
    weights: TensorLike,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
    softmax_loss_function: LossFunction | None = None,
    name: str | None = None,
) -> Tensor:
    """The weighted cross-entropy of sequences (``tf.contrib.seq2seq.sequence_loss``).

    Args:
      logits: ``[batch, time, classes]``.
      targets: class indices ``[batch, time]``.
      weights: ``[batch, time]``, for instance from `tf.sequence_mask`.
      average_across_timesteps, average_across_batch: sum over the axis and divide by the sum of its weights.
      sum_over_timesteps, sum_over_batch: sum over the axis and divide by the number of its nonzero weights.
      softmax_loss_function: ``f(labels=, logits=)`` in place of the sparse softmax cross-entropy.

    Raises:
      ValueError: when a rank is wrong, or one axis is to be both averaged and summed.
    """
    logits, targets, weights = (convert_to_tensor(value) for value in (logits, targets, weights))
    for value, rank, what in ((logits, 3, "Logits"), (targets, 2, "Targets"), (weights, 2, "Weights")):
        if value.shape.ndims != rank:
            sizes = "batch_size x sequence_length" + (" x logits" if rank == 3 else "")
            raise ValueError(f"{what} must be a [{sizes}] tensor")
    for average, total, axis in (
        (average_across_timesteps, sum_over_timesteps, "timesteps"), (average_across_batch, sum_over_batch, "batch")
    ):  # fmt: skip
        if average and total:
            raise ValueError(f"average_across_{axis} and sum_over_{axis} cannot be set to True at same time.")
    with name_scope(name, "sequence_loss", [logits, targets, weights]):
        losses = _weighted(logits, targets, weights, softmax_loss_function)
        averaged = _axes(average_across_batch, average_across_timesteps)
        summed = _axes(sum_over_batch, sum_over_timesteps)
        count_ops(-5 if len(averaged or summed) == 2 else 1)
        if averaged:  # TensorFlow then ignores the sum_over arguments
            return div_no_nan(reduce_sum(losses, axis=averaged), reduce_sum(weights, axis=averaged))
        if summed:
            count = cast(count_nonzero(weights, axis=summed), losses.dtype)
            return div_no_nan(reduce_sum(losses, axis=summed), count)
        return losses


def _axes(batch: bool, time: bool) -> list[int]:
    return [axis for axis, wanted in enumerate((batch, time)) if wanted]


def _weighted(logits: Tensor, targets: Tensor, weights: Tensor, function: LossFunction | None) -> Tensor:
    """The weighted loss of each step, ``[batch, time]``."""
    loss = function or sparse_softmax_cross_entropy_with_logits
    sizes = shape_of(logits)
    each = loss(labels=reshape(targets, [-1]), logits=reshape(logits, [-1, sizes[2]]))
    return reshape(each * reshape(weights, [-1]), sizes[0:2])


@export("tf.contrib.legacy_seq2seq.sequence_loss_by_example")
def sequence_loss_by_example(
    logits: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    average_across_timesteps: bool = True,
    softmax_loss_function: LossFunction | None = None,
    name: str | None = None,
) -> Tensor:
    """The cross-entropy of each sequence, ``[batch]`` (``tf.contrib.legacy_seq2seq.sequence_loss_by_example``).

    Args:
      logits: a list with a tensor ``[batch, classes]`` per step.
      targets, weights: lists with a tensor ``[batch]`` per step.
      average_across_timesteps: whether to divide by the sum of the weights.
      softmax_loss_function: as in `sequence_loss`.

    Raises:
      ValueError: when the lists have different lengths.
    """
    if not len(logits) == len(targets) == len(weights):
        raise ValueError(
            f"Lengths of logits, weights, and targets must be the same {len(logits)}, {len(weights)}, {len(targets)}."
        )
    loss = softmax_loss_function or sparse_softmax_cross_entropy_with_logits
    with name_scope(name, "sequence_loss_by_example", [*logits, *targets, *weights]):
        steps = [
            loss(labels=reshape(target, [-1]) if softmax_loss_function is None else target, logits=logit) * weight
            for logit, target, weight in zip(logits, targets, weights, strict=True)
        ]
        total = add_n(steps)
        # The small term avoids a division by zero if all weights are zero.
        return total / (add_n(list(weights)) + 1e-12) if average_across_timesteps else total


@export("tf.contrib.legacy_seq2seq.sequence_loss")
def sequence_loss_of_steps(
    logits: Sequence[Any],
    targets: Sequence[Any],
    weights: Sequence[Any],
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    softmax_loss_function: LossFunction | None = None,
    name: str | None = None,
) -> Tensor:
    """`sequence_loss_by_example`, averaged or summed over the batch (``tf.contrib.legacy_seq2seq.sequence_loss``)."""
    with name_scope(name, "sequence_loss", [*logits, *targets, *weights]):
        total = reduce_sum(
            sequence_loss_by_example(logits, targets, weights, average_across_timesteps, softmax_loss_function)
        )
        return total / cast(shape_of(targets[0])[0], total.dtype) if average_across_batch else total


@export("tf.contrib.legacy_seq2seq.rnn_decoder")
def rnn_decoder(
    decoder_inputs: Sequence[Any],
    initial_state: object,
    cell: RNNCell,
    loop_function: Callable[[Any, int], Any] | None = None,
    scope: str | VariableScope | None = None,
) -> tuple[list[Any], Any]:
    """Runs a cell over a list of inputs; returns (outputs, last state) (``tf.contrib.legacy_seq2seq.rnn_decoder``).

    Args:
      decoder_inputs: a list with a tensor ``[batch, width]`` per step.
      initial_state: the cell's initial state.
      loop_function: ``f(last output, step)`` computes the inputs of all steps but the first.
    """
    outputs: list[Any] = []
    state = initial_state
    with variable_scope(scope or "rnn_decoder"):
        for i, given in enumerate(decoder_inputs):
            if loop_function is not None and outputs:
                with variable_scope("loop_function", reuse=True):
                    given = loop_function(outputs[-1], i)
            if i > 0:
                get_variable_scope().reuse_variables()
            output, state = cell(given, state)
            outputs.append(output)
    return outputs, state


# ---- nn functions ----------------------------------------
# ``tf.contrib.nn``: losses with their old order of arguments, dropout for SELU networks, a scaled softplus.

_DROPPED = -1.7580993408473766  # the limit of SELU towards minus infinity


@export("tf.contrib.nn.deprecated_flipped_softmax_cross_entropy_with_logits")
def deprecated_flipped_softmax_cross_entropy_with_logits(
    logits: TensorLike, labels: TensorLike, dim: int = -1, name: str | None = None
) -> Any:
    """`softmax_cross_entropy_with_logits`, with the logits first."""
    return softmax_cross_entropy_with_logits(labels=labels, logits=logits, dim=dim, name=name)


@export("tf.contrib.nn.deprecated_flipped_sparse_softmax_cross_entropy_with_logits")
def deprecated_flipped_sparse_softmax_cross_entropy_with_logits(
    logits: TensorLike, labels: TensorLike, name: str | None = None
) -> Any:
    """`sparse_softmax_cross_entropy_with_logits`, with the logits first."""
    return sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name=name)


@export("tf.contrib.nn.deprecated_flipped_sigmoid_cross_entropy_with_logits")
def deprecated_flipped_sigmoid_cross_entropy_with_logits(
    logits: TensorLike, targets: TensorLike, name: str | None = None
) -> Any:
    """`sigmoid_cross_entropy_with_logits`, with the logits first."""
    return sigmoid_cross_entropy_with_logits(labels=targets, logits=logits, name=name)


@export("tf.contrib.nn.alpha_dropout")
def alpha_dropout(
    x: TensorLike,
    keep_prob: float,
    noise_shape: ShapeLike | GraphTensor | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """Dropout that keeps mean and variance of the activations of SELU (``tf.contrib.nn.alpha_dropout``).

    Raises:
      ValueError: ``keep_prob`` is not in (0, 1].
    """
    if not 0 < keep_prob <= 1:
        raise ValueError(f"keep_prob must be a scalar tensor or a float in the range (0, 1], got {keep_prob}")
    with name_scope(name, "alpha_dropout", [x]):
        x = convert_to_tensor(x, name="x")
        if keep_prob == 1:
            return x
        shape = shape_of(x) if noise_shape is None else noise_shape
        kept = floor(random_uniform(shape, dtype=x.dtype, seed=seed) + keep_prob)
        a = (keep_prob + keep_prob * (1 - keep_prob) * _DROPPED**2) ** -0.5
        found = a * (x * kept + _DROPPED * (1 - kept)) - a * _DROPPED * (1 - keep_prob)
        found.set_shape(x.shape)
        return found


@export("tf.contrib.nn.scaled_softplus")
def scaled_softplus(x: TensorLike, alpha: TensorLike, clip: TensorLike | None = None, name: str | None = None) -> Any:
    """``alpha * softplus(x / alpha)``, at most ``clip`` (``tf.contrib.nn.scaled_softplus``)."""
    with name_scope(name, "scaled_softplus", [x, alpha]):
        found = alpha * softplus(convert_to_tensor(x) / alpha)
        return found if clip is None else minimum(found, clip)


# ---- ``tf.contrib.losses``, ``tf.contrib.slim.losses``: predictions before labels, weights of leading axes -----------


def _of_rank(weights: TensorLike, rank: int | None) -> Any:
    """Weights of ``rank`` axes: those that have fewer are for the leading axes, as one weight per example."""
    weights = cast(convert_to_tensor(weights, name="weights"), dtypes.float32)
    own = weights.shape.ndims
    if own in (None, 0) or rank is None:
        return weights
    for _ in range(rank - own):
        weights = expand_dims(weights, -1)
    return squeeze(weights, list(range(rank, own))) if own > rank else weights


def _rank(values: TensorLike, less: int = 0) -> int | None:
    rank = convert_to_tensor(values).shape.ndims
    return None if rank is None else rank - less


@export("tf.contrib.losses.compute_weighted_loss")
def old_compute_weighted_loss(losses: TensorLike, weights: TensorLike = 1.0, scope: str | None = None) -> Tensor:
    """The sum of the weighted losses, over the number of losses whose weight is not 0.

    Args:
      losses: ``[batch, ...]``.
      weights: a scalar, or factors of the leading axes of ``losses``, such as ``[batch]``.
    """
    return element_losses.compute_weighted_loss(losses, _of_rank(weights, _rank(losses)), scope)


@export("tf.contrib.losses.absolute_difference")
def old_absolute_difference(
    predictions: TensorLike, labels: TensorLike, weights: TensorLike = 1.0, scope: str | None = None
) -> Tensor:
    """`tf.losses.absolute_difference`, with the predictions first."""
    return element_losses.absolute_difference(labels, predictions, _of_rank(weights, _rank(predictions)), scope)


@export("tf.contrib.losses.mean_squared_error")
def old_mean_squared_error(
    predictions: TensorLike, labels: TensorLike, weights: TensorLike = 1.0, scope: str | None = None
) -> Tensor:
    """`tf.losses.mean_squared_error`, with the predictions first."""
    return element_losses.mean_squared_error(labels, predictions, _of_rank(weights, _rank(predictions)), scope)


@export("tf.contrib.losses.log_loss")
def old_log_loss(
    predictions: TensorLike,
    labels: TensorLike,
    weights: TensorLike = 1.0,
    epsilon: float = 1e-7,
    scope: str | None = None,
) -> Tensor:
    """`tf.losses.log_loss`, with the predictions first."""
    return element_losses.log_loss(labels, predictions, _of_rank(weights, _rank(predictions)), epsilon, scope)


@export("tf.contrib.losses.hinge_loss")
def old_hinge_loss(logits: TensorLike, labels: TensorLike, scope: str | None = None) -> Tensor:
    """The hinge loss of each element, of the logits' shape; it is not added to a collection."""
    return element_losses.hinge_loss(
        labels, logits, scope=scope, loss_collection=None, reduction=element_losses.Reduction.NONE
    )


@export("tf.contrib.losses.sigmoid_cross_entropy")
def old_sigmoid_cross_entropy(
    logits: TensorLike,
    multi_class_labels: TensorLike,
    weights: TensorLike = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
) -> Tensor:
    """`tf.losses.sigmoid_cross_entropy`, with the logits first."""
    weights = _of_rank(weights, _rank(logits))
    return element_losses.sigmoid_cross_entropy(multi_class_labels, logits, weights, label_smoothing, scope)


@export("tf.contrib.losses.softmax_cross_entropy")
def old_softmax_cross_entropy(
    logits: TensorLike,
    onehot_labels: TensorLike,
    weights: TensorLike = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
) -> Tensor:
    """`tf.losses.softmax_cross_entropy`, with the logits first."""
    weights = _of_rank(weights, _rank(logits, less=1))
    return element_losses.softmax_cross_entropy(onehot_labels, logits, weights, label_smoothing, scope)


@export("tf.contrib.losses.sparse_softmax_cross_entropy")
def old_sparse_softmax_cross_entropy(
    logits: TensorLike, labels: TensorLike, weights: TensorLike = 1.0, scope: str | None = None
) -> Tensor:
    """`tf.losses.sparse_softmax_cross_entropy`, with the logits first; labels may be ``[batch, 1]``."""
    weights = _of_rank(weights, _rank(logits, less=1))
    return element_losses.sparse_softmax_cross_entropy(labels, logits, weights, scope)


@export("tf.contrib.losses.cosine_distance")
def old_cosine_distance(
    predictions: TensorLike,
    labels: TensorLike,
    axis: int | None = None,
    weights: TensorLike = 1.0,
    scope: str | None = None,
    dim: int | None = None,
) -> Tensor:
    """1 less the cosine of unit vectors along ``axis``, with the predictions first; the losses lack that axis."""
    axis = dim if axis is None else axis
    if axis is None:
        raise ValueError("You must specify 'axis'.")
    labels, predictions = element_losses.float_pair(labels, predictions)
    with name_scope(scope, "cosine_distance_loss", [predictions, labels, weights]) as scope:
        return old_compute_weighted_loss(1 - reduce_sum(predictions * labels, axis=axis), weights, scope)


@export("tf.contrib.losses.mean_pairwise_squared_error")
def old_mean_pairwise_squared_error(
    predictions: TensorLike, labels: TensorLike, weights: TensorLike = 1.0, scope: str | None = None
) -> Tensor:
    """The squared error of the pairs of elements of each example, each element with itself among them.

    Args:
      predictions, labels: ``[batch, ...]``.
      weights: a scalar or ``[batch]``; the losses of the examples are added up.
    """
    labels, predictions = element_losses.float_pair(labels, predictions)
    with name_scope(scope, "mean_pairwise_squared_error", [predictions, labels, weights]):
        errors = reshape(predictions - labels, [shape_of(predictions)[0], -1])
        losses = 2.0 * (reduce_mean(square(errors), 1) - square(reduce_mean(errors, 1)))
        loss = reduce_sum(losses * _of_rank(weights, 1), name="value")
    element_losses.add_loss(loss)
    return loss


# ---- ``tf.contrib.crf``: linear-chain conditional random fields ----------------------------------------------------


@export("tf.contrib.crf.crf_sequence_score")
def crf_sequence_score(
    inputs: TensorLike, tag_indices: TensorLike, sequence_lengths: TensorLike, transition_params: TensorLike
) -> Any:
    """The unnormalised score of a tag sequence: `crf_unary_score` plus `crf_binary_score`, ``[batch]``."""
    binary_metrics = crf_binary_score(tag_indices, sequence_lengths, transition_params)
    return crf_unary_score(tag_indices, sequence_lengths, inputs) + binary_metrics


@export("tf.contrib.crf.crf_unary_score")
def crf_unary_score(tag_indices: TensorLike, sequence_lengths: TensorLike, inputs: TensorLike) -> Any:
    """The sum of the potentials of the tags, up to each sequence's length, ``[batch]``.

    Args:
      tag_indices: ``[batch, steps]``; ``sequence_lengths``: ``[batch]``; ``inputs``: ``[batch, steps, tags]``.
    """
    inputs = convert_to_tensor(inputs)
    chosen = one_hot(tag_indices, shape_of(inputs)[2], dtype=inputs.dtype)
    return reduce_sum(reduce_sum(inputs * chosen, 2) * _inside(sequence_lengths, shape_of(inputs)[1], inputs), 1)


@export("tf.contrib.crf.crf_binary_score")
def crf_binary_score(tag_indices: TensorLike, sequence_lengths: TensorLike, transition_params: TensorLike) -> Any:
    """The sum of the transitions between neighbouring tags, up to each sequence's length, ``[batch]``."""
    tags, transitions = convert_to_tensor(tag_indices), convert_to_tensor(transition_params)
    scores = gather_nd(transitions, stack([tags[:, :-1], tags[:, 1:]], axis=2))
    return reduce_sum(scores * _inside(sequence_lengths, shape_of(tags)[1], transitions)[:, 1:], 1)


@export("tf.contrib.crf.crf_log_norm")
def crf_log_norm(inputs: TensorLike, sequence_lengths: TensorLike, transition_params: TensorLike) -> Any:
    """The logarithm of the sum of the exponentials of all tag sequences' scores, ``[batch]``; 0 for length 0."""
    inputs, lengths = convert_to_tensor(inputs), cast(sequence_lengths, dtypes.int32)
    transitions = expand_dims(convert_to_tensor(transition_params), 0)
    steps = _steps(inputs)

    def body(time: Tensor, alphas: Tensor) -> Any:
        after = steps.read(time) + reduce_logsumexp(expand_dims(alphas, 2) + transitions, [1])
        return time + 1, _where_rows(less(time, lengths), after, alphas)

    count = shape_of(inputs)[1]
    _, alphas = while_loop(lambda time, _: less(time, count), body, (constant(1), inputs[:, 0]))
    found = reduce_logsumexp(alphas, [1])
    return where(less_equal(lengths, 0), zeros_like(found), found)


@export("tf.contrib.crf.crf_multitag_sequence_score")
def crf_multitag_sequence_score(
    inputs: TensorLike, tag_bitmap: TensorLike, sequence_lengths: TensorLike, transition_params: TensorLike
) -> Any:
    """The logarithm of the sum of the exponentials of the scores of all tag sequences that are allowed, ``[batch]``.

    Args:
      inputs, sequence_lengths, transition_params: as those of `crf_log_norm`.
      tag_bitmap: which tags each step may have: truth values, ``[batch, steps, tags]``.
    """
    inputs = convert_to_tensor(inputs)
    allowed = where(tag_bitmap, inputs, fill(shape_of(inputs), float("-inf")))
    steps = inputs.shape.as_list()[1] if inputs.shape.ndims else None
    return smart_cond(
        equal(shape_of(inputs)[1] if steps is None else steps, 1),
        lambda: reduce_logsumexp(allowed, [1, 2]),  # in TensorFlow the lengths do not matter then
        lambda: crf_log_norm(allowed, sequence_lengths, transition_params),
    )


@export("tf.contrib.crf.crf_log_likelihood")
def crf_log_likelihood(
    inputs: TensorLike,
    tag_indices: TensorLike,
    sequence_lengths: TensorLike,
    transition_params: TensorLike | None = None,
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
def crf_decode(potentials: TensorLike, transition_params: TensorLike, sequence_length: TensorLike) -> tuple[Any, Any]:
    """(the best tags, int32 ``[batch, steps]``, 0 beyond the lengths; their scores, ``[batch]``)."""
    potentials, lengths = convert_to_tensor(potentials), cast(sequence_length, dtypes.int32)
    transitions = expand_dims(convert_to_tensor(transition_params), 0)
    batch, count, tags = (shape_of(potentials)[axis] for axis in range(3))
    steps = _steps(potentials)
    stay = tile(expand_dims(range_of(tags), 0), stack([batch, 1]))

    def forward(time: Tensor, best: Tensor, pointers: TensorArray) -> Any:
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

    def backward(time: Tensor, tag: TensorLike, found: TensorArray) -> Any:
        before = gather_nd(pointers.read(time), stack([range_of(batch), tag], axis=1))
        return time - 1, before, found.write(time - 1, before)

    found = TensorArray(dtypes.int32, count).write(count - 1, last)
    _, _, found = while_loop(lambda time, *_: greater(time, 0), backward, (count - 1, last, found))
    decoded = transpose(found.stack(), [1, 0]) * cast(sequence_mask(lengths, count), dtypes.int32)
    decoded.set_shape(potentials.shape[:2])
    return decoded, reduce_max(best, [1])


@export("tf.contrib.crf.viterbi_decode")
def viterbi_decode(score: np.ndarray[Any, Any], transition_params: np.ndarray[Any, Any]) -> tuple[list[int], Any]:
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


def _inside(lengths: TensorLike, count: TensorLike, like: Tensor) -> Any:
    return cast(sequence_mask(lengths, count), like.dtype)


def _steps(inputs: Tensor) -> TensorArray:
    whole = transpose(inputs, [1, 0, 2])
    return TensorArray(inputs.dtype, shape_of(whole)[0], clear_after_read=False).unstack(whole)


def _where_rows(chosen: TensorLike, one: TensorLike, other: Tensor) -> Any:
    found = where(chosen, one, other)
    found.set_shape(other.shape)
    return found


# ---- ``tf.contrib.sparsemax`` (Martins and Astudillo, From Softmax to Sparsemax, 2016) ------------------------------


@export("tf.contrib.sparsemax.sparsemax")
def sparsemax(logits: TensorLike, name: str | None = None) -> Tensor:
    """The point of the simplex that is nearest to each row, with zeros (``tf.contrib.sparsemax.sparsemax``).

    Args:
      logits: float32 or float64 of shape (batch, classes).

    Returns:
      Probabilities of that shape; a row with infinity, NaN or nothing but -infinity is NaN.
    """
    with name_scope(name, "sparsemax", [logits]):
        logits = convert_to_tensor(logits, name="logits")
        sizes = shape_of(logits)
        ordered, _ = top_k(logits, sizes[1])
        sums, counts = cumsum(ordered, axis=1), range_of(1, cast(sizes[1], logits.dtype) + 1, dtype=logits.dtype)
        # The number of classes with a probability: those whose part is above the threshold that they would make.
        number = reduce_sum(cast(1 + counts * ordered > sums, dtypes.int32), axis=1)
        last = stack([range_of(sizes[0]), maximum(number, 1) - 1], axis=1)
        threshold = (gather_nd(sums, last) - 1) / cast(number, logits.dtype)
        found = maximum(cast(0, logits.dtype), logits - expand_dims(threshold, 1))
        wrong = logical_or(equal(number, 0), is_nan(sums[:, -1]))
        chosen: Tensor = where(wrong, fill(sizes, cast(float("nan"), logits.dtype)), found)
        chosen.set_shape([None, None])
        return chosen


@export("tf.contrib.sparsemax.sparsemax_loss")
def sparsemax_loss(logits: TensorLike, sparsemax: TensorLike, labels: TensorLike, name: str | None = None) -> Tensor:
    """The loss whose gradient for the logits is ``sparsemax - labels`` (``tf.contrib.sparsemax.sparsemax_loss``).

    Args:
      logits, sparsemax: (batch, classes), and their `sparsemax`.
      labels: probabilities of that shape.

    Returns:
      The loss of each row, (batch,).
    """
    with name_scope(name, "sparsemax_loss", [logits, sparsemax, labels]):
        logits, sparsemax, labels = map(convert_to_tensor, (logits, sparsemax, labels))
        # -infinity times a probability of 0 counts nothing.
        support = logical_or(greater(sparsemax, 0), is_nan(sparsemax))
        own = where(support, sparsemax * (logits - 0.5 * sparsemax), zeros_like(logits))
        wanted = where(
            logical_and(equal(labels, 0), is_inf(logits)), zeros_like(logits), labels * (0.5 * labels - logits)
        )
        total: Tensor = reduce_sum(own + wanted, axis=1)
        return total
