"""Losses of sequences (``tf.contrib.seq2seq``), and the losses and decoder of ``tf.contrib.legacy_seq2seq``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.casting import cast
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.elementwise import div_no_nan
from tfmini.ops.math.reduce_functions import count_nonzero, reduce_sum
from tfmini.ops.math.sums import add_n
from tfmini.ops.nn.cross_entropy import sparse_softmax_cross_entropy_with_logits
from tfmini.ops.variables.scope import get_variable_scope, variable_scope

LossFunction = Callable[..., Any]


@export("tf.contrib.seq2seq.sequence_loss")
def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
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
        if averaged:  # TensorFlow then ignores the sum_over arguments
            return div_no_nan(reduce_sum(losses, axis=averaged), reduce_sum(weights, axis=averaged))
        summed = _axes(sum_over_batch, sum_over_timesteps)
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
    initial_state: Any,
    cell: Any,
    loop_function: Callable[[Any, int], Any] | None = None,
    scope: Any = None,
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
